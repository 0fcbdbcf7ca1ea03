//! Removes or replaces parts of the path.
//!
//! As in Caddy, the change applies to the escaped path. If the result is empty or not a validly escaped path, it
//! applies to the decoded path instead.

use causeway_pipeline::{Build, BuildError, Context, Fault, Template};
use serde::Deserialize;

use super::escape::{self, escaped_at, is_escape_at};
use super::{NewQuery, PathOutcome, has_path, set_target};
use crate::clean_path::{Slashes, clean_as_caddy};
use crate::replace::{self, Replacer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SubstringConfig {
    #[serde(default)]
    pub(super) find: String,
    #[serde(default)]
    replace: String,
    #[serde(default)]
    limit: i64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PathRegexpConfig {
    #[serde(default)]
    find: String,
    #[serde(default)]
    replace: String,
}

pub(super) enum Change {
    Prefix(Template),
    Suffix(Template),
    Substring { find: Template, replace: Template, limit: Option<usize>, slashes: Slashes },
    Regexp { find: Replacer, replace: Template },
}

/// Whether the removal may have exposed segments that must be cleaned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterRemoval {
    Nothing,
    Clean,
}

impl Change {
    pub(super) fn substring(written: &SubstringConfig, build: &mut Build<'_>) -> Self {
        Self::Substring {
            find: build.template(&written.find),
            replace: build.template(&written.replace),
            limit: usize::try_from(written.limit).ok().filter(|&limit| limit > 0),
            slashes: Slashes::asked_by(written.find.as_bytes()),
        }
    }

    pub(super) fn regexp(written: &PathRegexpConfig, build: &mut Build<'_>) -> Result<Self, BuildError> {
        if written.find.is_empty() {
            return Err(build.refuse("no `find`", "a regular expression"));
        }
        let find = build.at("find", |build| Replacer::build(&written.find, build))?;
        Ok(Self::Regexp { find, replace: build.template(&written.replace) })
    }

    pub(super) fn apply(&self, cx: &mut Context) -> Result<PathOutcome, Fault> {
        if !has_path(cx) {
            return Ok(PathOutcome::Unchanged);
        }
        match self {
            Self::Prefix(prefix) => cx.with_rendered(prefix, |cx, prefix| {
                let slashes = Slashes::asked_by(prefix);
                // Caddy cleans the path before it compares.
                apply_to_path(cx, |_, path, _, out| {
                    clean_as_caddy(path, slashes, out);
                    let Some(len) = prefix_len(out, prefix) else { return AfterRemoval::Nothing };
                    out.drain(..len);
                    if len > 0 { AfterRemoval::Clean } else { AfterRemoval::Nothing }
                })
            }),
            Self::Suffix(suffix) => cx.with_rendered(suffix, |cx, suffix| {
                // The closure reports whether the path became shorter: only then can dot segments be exposed.
                let slashes = Slashes::asked_by(suffix);
                apply_to_path(cx, |_, path, _, out| {
                    clean_as_caddy(path, slashes, out);
                    let Some(len) = len_without_suffix(out, suffix) else { return AfterRemoval::Nothing };
                    let shortened = len < out.len();
                    out.truncate(len);
                    if shortened { AfterRemoval::Clean } else { AfterRemoval::Nothing }
                })
            }),
            Self::Substring { find, replace, limit, slashes } => cx.with_rendered(find, |cx, find| {
                cx.with_rendered(replace, |cx, replace| {
                    let rest = apply_to_path(cx, |_, path, spare, out| {
                        clean_as_caddy(path, *slashes, spare);
                        if !replace::plain(spare, find, replace, *limit, out) {
                            out.extend_from_slice(spare);
                        }
                        AfterRemoval::Nothing
                    })?;
                    // Caddy replaces substrings in the query as well.
                    change_query(cx, |query, out| replace::plain(query, find, replace, *limit, out))?;
                    Ok(rest)
                })
            }),
            Self::Regexp { find, replace } => cx.with_rendered(replace, |cx, replace| {
                apply_to_path(cx, |cx, path, _, out| {
                    if !find.replace(cx, path, replace, out) {
                        out.extend_from_slice(path);
                    }
                    AfterRemoval::Nothing
                })
            }),
        }
    }
}

fn change_query(cx: &mut Context, replace: impl FnOnce(&[u8], &mut Vec<u8>) -> bool) -> Result<(), Fault> {
    cx.with_scratch(|cx, query| {
        let target = cx.head().target();
        if !replace(target.query().unwrap_or_default().as_bytes(), query) {
            return Ok(());
        }
        replace::check_len(query.len())?;
        cx.with_scratch(|cx, path| {
            path.extend_from_slice(cx.head().target().path().as_bytes());
            set_target(cx, path, NewQuery::Set(query))
        })
    })
}

/// Applies `change` to the escaped path; if the result is empty or badly escaped, applies it to the decoded path.
/// `change` gets an empty work buffer and an empty output buffer. Returns whether this result is empty too, before a
/// slash is put in its place. Caddy does not notice an empty result of a removed prefix or suffix, `file_server` does.
fn apply_to_path(
    cx: &mut Context,
    mut change: impl FnMut(&Context, &[u8], &mut Vec<u8>, &mut Vec<u8>) -> AfterRemoval,
) -> Result<PathOutcome, Fault> {
    cx.with_scratch(|cx, escaped| {
        cx.with_scratch(|cx, decoded| {
            cx.with_scratch(|cx, spare| {
                let mut then = change(cx, cx.head().target().path().as_bytes(), spare, escaped);
                replace::check_len(escaped.len())?;
                // Decoding the result verifies its escapes, and gives the path to escape again if its spelling is not
                // Go's.
                decoded.extend_from_slice(escaped);
                let is_decoded = escape::decode(decoded, 0) && !decoded.is_empty();
                let is_spelled = is_decoded && escape::is_path(escaped);
                if !is_decoded {
                    decoded.clear();
                    spare.clear();
                    if change(cx, cx.path(), spare, decoded) == AfterRemoval::Clean {
                        then = AfterRemoval::Clean;
                    }
                    replace::check_len(decoded.len())?;
                }
                let rest = if decoded.is_empty() { PathOutcome::Empty } else { PathOutcome::NonEmpty };
                if then == AfterRemoval::Nothing {
                    if !is_spelled {
                        escaped.clear();
                        escape::path(decoded, escaped);
                    }
                    set_target(cx, escaped, NewQuery::Kept)?;
                    return Ok(rest);
                }
                // The removal may have exposed dot segments. If only the decoded path begins with a slash, the first
                // slash was escaped: then the client's spelling cannot be kept.
                let is_spelled = is_spelled && escaped.starts_with(b"/") == decoded.starts_with(b"/");
                anchor(decoded);
                anchor(escaped);
                spare.clear();
                escape::path(decoded, spare);
                cx.with_scratch(|cx, cleaned| {
                    // Compare before and after cleaning: keep the client's spelling only if there was nothing to clean.
                    clean_as_caddy(spare, Slashes::Kept, cleaned);
                    set_target(cx, if is_spelled && spare == cleaned { escaped } else { cleaned }, NewQuery::Kept)
                })?;
                Ok(rest)
            })
        })
    })
}

fn anchor(path: &mut Vec<u8>) {
    if !path.starts_with(b"/") {
        path.insert(0, b'/');
    }
}

/// Returns the length of the escaped path's start that matches the prefix. An escape in the path is compared decoded,
/// unless the prefix has an escape at that position. Ignores ASCII case. A missing slash at the start of the prefix is
/// implied.
fn prefix_len(path: &[u8], prefix: &[u8]) -> Option<usize> {
    let mut at = 0;
    if !prefix.starts_with(b"/") {
        at = usize::from(path.starts_with(b"/"));
        if at == 0 {
            return None;
        }
    }
    for (index, want) in prefix.iter().enumerate() {
        let (byte, len) = match escaped_at(path, at) {
            Some(byte) if !is_escape_at(prefix, index) => (byte, 3),
            _ => (*path.get(at)?, 1),
        };
        if !byte.eq_ignore_ascii_case(want) {
            return None;
        }
        at += len;
    }
    Some(at)
}

/// Returns the length of the escaped path before the suffix. Compares like [`prefix_len`].
fn len_without_suffix(path: &[u8], suffix: &[u8]) -> Option<usize> {
    let mut end = path.len();
    for index in (0..suffix.len()).rev() {
        // The byte is the `%` or the last digit of an escape of the suffix. In a valid path no escape ends between
        // them.
        let spelled = index.checked_sub(2).is_some_and(|at| is_escape_at(suffix, at)) || is_escape_at(suffix, index);
        let escape = end.checked_sub(3).and_then(|at| escaped_at(path, at));
        let (byte, len) = match escape {
            Some(byte) if !spelled => (byte, 3),
            _ => (path[end.checked_sub(1)?], 1),
        };
        if !byte.eq_ignore_ascii_case(&suffix[index]) {
            return None;
        }
        end -= len;
    }
    Some(end)
}

//! `path`: a list of patterns, one of which must match the whole path.
//!
//! Caddy's documentation of `http.matchers.path`: the case of letters is ignored. A `*` at one end or at both is a fast
//! prefix, suffix or substring match that spans slashes; other patterns are globs. Before the comparison slashes are
//! merged (unless the pattern contains `//`) and dot segments resolved. A pattern with `%` is compared with the escaped
//! path at that position. A path that `rewrite` wrote without a slash at its beginning is compared without it
//! by patterns without one.

mod escaped;

use std::cell::RefCell;

use causeway_message::path::is_clean;
use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, PathReach, Reach, Template};
use serde_json::Value;

use crate::clean_path::{Slashes, clean_as_caddy};
use crate::glob::{Affix, Space, glob};
use crate::rewrite::ROOTLESS;

struct PathMatcher {
    patterns: Box<[PathPattern]>,
    rootless: VarId,
}

struct PathPattern {
    text: Template,
    /// `None` if the text contains placeholders.
    shape: Option<Shape>,
}

impl PathPattern {
    /// Returns the paths that this pattern can match, for the route index. `None` if it may match any path.
    fn reach(&self) -> Option<PathReach<'_>> {
        // The index ignores the case of ASCII letters only.
        let (text, shape) = (self.text.literal().filter(|text| text.is_ascii())?, self.shape?);
        let fixed = text.find(|ch| "*?[\\".contains(ch));
        match (shape.kind, fixed) {
            (PathMatchKind::Escaped, _) | (_, Some(0)) => None,
            // The index has the path with the slash.
            _ if !text.starts_with('/') => None,
            (PathMatchKind::Affix, None) => Some(PathReach::Exact(text)),
            (_, fixed) => Some(PathReach::Prefix(&text[..fixed.unwrap_or(text.len())])),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    kind: PathMatchKind,
    slashes: Slashes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PathMatchKind {
    Affix,
    Glob,
    Escaped,
}

impl Shape {
    fn of(pattern: &[u8]) -> Self {
        let stars = pattern.iter().filter(|&&byte| byte == b'*').count();
        let at_ends = usize::from(pattern.first() == Some(&b'*'))
            + usize::from(pattern.len() > 1 && pattern.last() == Some(&b'*'));
        // Caddy: two stars are a substring match only if they are at both ends; `*a*` is one, `a**` is not.
        let is_quick = stars == at_ends && (stars < 2 || at_ends == 2);
        let kind = if pattern.contains(&b'%') {
            PathMatchKind::Escaped
        } else if is_quick && !pattern.iter().any(|byte| stars == 0 && b"?[\\".contains(byte)) {
            PathMatchKind::Affix
        } else {
            PathMatchKind::Glob
        };
        Self { kind, slashes: Slashes::asked_by(pattern) }
    }

    fn matches(self, pattern: &[u8], path: &[u8]) -> bool {
        match self.kind {
            PathMatchKind::Affix => Affix::of(pattern).matches_any_case(path),
            PathMatchKind::Glob => glob(pattern, path, Space::AnyCase),
            PathMatchKind::Escaped => ESCAPED.with_borrow_mut(|scratch| escaped::matches(pattern, path, scratch)),
        }
    }
}

/// Compiles the matcher from a list of patterns.
///
/// # Errors
/// If the value is not a list of strings.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    let patterns = written.iter().map(|source| {
        let text = build.template(source);
        let shape = text.literal().map(|literal| Shape::of(literal.as_bytes()));
        PathPattern { text, shape }
    });
    Ok(Box::new(PathMatcher { patterns: patterns.collect(), rootless: build.allocate_slot(ROOTLESS) }))
}

thread_local! {
    /// The cleaned path. Grows up to the limit on request heads.
    static CLEANED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// Work buffers for patterns with a `%`.
    static ESCAPED: RefCell<escaped::Scratch> = const { RefCell::new(escaped::Scratch::EMPTY) };
    /// A path and a pattern in lower case.
    static LOWERED: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Matcher for PathMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.patterns.iter().any(|pattern| {
            cx.with_rendered(&pattern.text, |cx, text| {
                let shape = pattern.shape.unwrap_or_else(|| Shape::of(text));
                let is_rooted = matches!(text.first(), None | Some(b'/'));
                let skipped = usize::from(!is_rooted && cx.variable(self.rootless) == Some(cx.head().path()));
                // Escaped patterns need the raw path; all others the decoded one.
                if shape.kind == PathMatchKind::Escaped {
                    return matches(shape, text, cx.head().path(), skipped);
                }
                // A plain path needs neither cleaning nor case mapping beyond ASCII.
                if cx.path_is_plain() {
                    shape.matches(text, &cx.path()[skipped..])
                } else {
                    matches(shape, text, cx.path(), skipped)
                }
            })
        }))
    }

    fn reach(&self) -> Reach<'_> {
        let paths: Option<Vec<_>> = self.patterns.iter().map(PathPattern::reach).collect();
        paths.map_or(Reach::All, Reach::Paths)
    }
}

/// Returns whether the cleaned path without its first `skipped` bytes matches.
fn matches(shape: Shape, pattern: &[u8], path: &[u8], skipped: usize) -> bool {
    if path.is_ascii() {
        return matches_cleaned(shape, pattern, path, skipped);
    }
    // `glob` and `Affix` ignore the case of ASCII letters only; other letters must be lowered first.
    LOWERED.with_borrow_mut(|(lower_path, lower_pattern)| {
        lower(path, lower_path);
        lower(pattern, lower_pattern);
        matches_cleaned(shape, lower_pattern, lower_path, skipped)
    })
}

/// Appends the text in lower case. Keeps a letter whose lower case is ASCII (the Kelvin sign), since the route index
/// does not treat it as that ASCII letter.
fn lower(text: &[u8], out: &mut Vec<u8>) {
    fn push(ch: char, out: &mut Vec<u8>) {
        out.extend_from_slice(ch.encode_utf8(&mut [0; 4]).as_bytes());
    }
    out.clear();
    for chunk in text.utf8_chunks() {
        for ch in chunk.valid().chars() {
            if !ch.is_ascii() && ch.to_lowercase().any(|small| small.is_ascii()) {
                push(ch, out);
            } else {
                ch.to_lowercase().for_each(|small| push(small, out));
            }
        }
        out.extend_from_slice(chunk.invalid());
    }
}

fn matches_cleaned(shape: Shape, pattern: &[u8], path: &[u8], skipped: usize) -> bool {
    let has_dots = || path.windows(2).any(|pair| pair == b"/.");
    if is_clean(path) || (shape.slashes == Slashes::Kept && !has_dots()) {
        return shape.matches(pattern, &path[skipped..]);
    }
    CLEANED.with_borrow_mut(|cleaned| {
        cleaned.clear();
        clean_as_caddy(path, shape.slashes, cleaned);
        shape.matches(pattern, &cleaned[skipped..])
    })
}

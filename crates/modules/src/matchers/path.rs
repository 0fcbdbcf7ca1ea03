//! `path`: a list of patterns, one of which must match the whole path.
//!
//! Caddy's documentation of `http.matchers.path`: letters in any case; `*` at an end or at both is a quick prefix, suffix or
//! substring match that passes slashes; elsewhere patterns are globs; slashes are merged and dot segments resolved first,
//! slashes only if the pattern has no `//` itself; a pattern with `%` is compared in escaped space there.

mod escaped;

use std::cell::RefCell;

use causeway_message::path::{clean, is_clean, remove_dot_segments};
use causeway_pipeline::{Build, BuildError, Context, Matched, Matcher, PathReach, Reach, Template};
use serde_json::Value;

use crate::glob::{Affix, Space, glob};

struct PathMatcher(Box<[Pattern]>);

struct Pattern {
    text: Template,
    /// Of a text without placeholders.
    shape: Option<Shape>,
}

impl Pattern {
    /// `None` when it may match any path.
    fn reach(&self) -> Option<PathReach<'_>> {
        // Beyond ASCII the index knows no small and large letters.
        let (text, shape) = (self.text.literal().filter(|text| text.is_ascii())?, self.shape?);
        let fixed = text.find(|ch| "*?[\\".contains(ch));
        match (shape.kind, fixed) {
            (Kind::Escaped, _) | (_, Some(0)) => None,
            (Kind::Affix, None) => Some(PathReach::Exact(text)),
            (_, fixed) => Some(PathReach::Prefix(&text[..fixed.unwrap_or(text.len())])),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    kind: Kind,
    merge_slashes: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Affix,
    Glob,
    Escaped,
}

impl Shape {
    fn of(pattern: &[u8]) -> Self {
        let stars = pattern.iter().filter(|&&octet| octet == b'*').count();
        let at_ends = usize::from(pattern.first() == Some(&b'*'))
            + usize::from(pattern.len() > 1 && pattern.last() == Some(&b'*'));
        // Caddy: two stars are a substring match at both ends only; `*a*` yes, `a**` no.
        let is_quick = stars == at_ends && (stars < 2 || at_ends == 2);
        let kind = if pattern.contains(&b'%') {
            Kind::Escaped
        } else if is_quick && !pattern.iter().any(|octet| stars == 0 && b"?[\\".contains(octet)) {
            Kind::Affix
        } else {
            Kind::Glob
        };
        Self { kind, merge_slashes: !pattern.windows(2).any(|pair| pair == b"//") }
    }

    fn matches(self, pattern: &[u8], path: &[u8]) -> bool {
        match self.kind {
            Kind::Affix => Affix::of(pattern).matches_any_case(path),
            Kind::Glob => glob(pattern, path, Space::AnyCase),
            Kind::Escaped => ESCAPED.with_borrow_mut(|scratch| escaped::matches(pattern, path, scratch)),
        }
    }
}

/// Makes the matcher from a list of patterns.
///
/// # Errors
/// When it is none.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> {
    let written: Vec<String> = build.parse(value)?;
    let patterns = written.iter().map(|source| {
        let text = build.template(source);
        let shape = text.literal().map(|literal| Shape::of(literal.as_bytes()));
        Pattern { text, shape }
    });
    Ok(Box::new(PathMatcher(patterns.collect())))
}

thread_local! {
    /// A path that had to be cleaned; as long as the longest such path, which the limit on heads bounds.
    static CLEANED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// What a raw path offers to a pattern.
    static ESCAPED: RefCell<escaped::Scratch> = const { RefCell::new(escaped::Scratch::EMPTY) };
    /// A path and a pattern in small letters.
    static LOWERED: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Matcher for PathMatcher {
    fn matches(&self, cx: &mut Context) -> Matched {
        Ok(self.0.iter().any(|pattern| {
            cx.rendered(&pattern.text, |cx, text| {
                let shape = pattern.shape.unwrap_or_else(|| Shape::of(text));
                if shape.kind == Kind::Escaped {
                    return matches(shape, text, cx.head().path());
                }
                if cx.path_is_plain() { shape.matches(text, cx.path()) } else { matches(shape, text, cx.path()) }
            })
        }))
    }

    fn reach(&self) -> Reach<'_> {
        let paths: Option<Vec<_>> = self.0.iter().map(Pattern::reach).collect();
        paths.map_or(Reach::All, Reach::Paths)
    }
}

fn matches(shape: Shape, pattern: &[u8], path: &[u8]) -> bool {
    if path.is_ascii() {
        return matches_cleaned(shape, pattern, path);
    }
    // Beyond ASCII letters are compared in any case too; what compares octets does not know them.
    LOWERED.with_borrow_mut(|(lower_path, lower_pattern)| {
        lower(path, lower_path);
        lower(pattern, lower_pattern);
        matches_cleaned(shape, lower_pattern, lower_path)
    })
}

/// A letter whose small form is in ASCII (the sign for kelvin) stays: the index tells those apart.
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

/// The path as Caddy compares it, behind what `out` holds: dot segments resolved and, unless the pattern has some itself,
/// repeated slashes made one. Unlike in RFC 3986 a dot segment at the end leaves no slash behind.
pub(super) fn clean_as_caddy(path: &[u8], merge_slashes: bool, out: &mut Vec<u8>) {
    let before = out.len();
    if merge_slashes {
        clean(path, out);
    } else {
        remove_dot_segments(path, out);
    }
    if out.len() > before + 1 && out.ends_with(b"/") && !path.ends_with(b"/") {
        out.pop();
    }
}

fn matches_cleaned(shape: Shape, pattern: &[u8], path: &[u8]) -> bool {
    let has_dots = || path.windows(2).any(|pair| pair == b"/.");
    if is_clean(path) || (!shape.merge_slashes && !has_dots()) {
        return shape.matches(pattern, path);
    }
    CLEANED.with_borrow_mut(|cleaned| {
        cleaned.clear();
        clean_as_caddy(path, shape.merge_slashes, cleaned);
        shape.matches(pattern, cleaned)
    })
}

//! Wildcard patterns, compared without allocating.
//!
//! [`glob`] is Go's `path.Match`, which Caddy uses for paths and hidden files: `*` matches any run without a slash, `?`
//! one character except a slash, `[a-z]` and `[^a-z]` a class, and `\` makes the next character literal. [`Affix`] is
//! Caddy's fast form for header values: a `*` at the start, at the end, or at both.

use crate::replace::char_len;

/// A value pattern with at most a leading and a trailing `*`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Affix<'p> {
    Any,
    Exact(&'p [u8]),
    Prefix(&'p [u8]),
    Suffix(&'p [u8]),
    Contains(&'p [u8]),
}

impl<'p> Affix<'p> {
    pub(crate) fn of(pattern: &'p [u8]) -> Self {
        match pattern {
            b"*" => Self::Any,
            [b'*', inner @ .., b'*'] => Self::Contains(inner),
            [b'*', rest @ ..] => Self::Suffix(rest),
            [rest @ .., b'*'] => Self::Prefix(rest),
            _ => Self::Exact(pattern),
        }
    }

    pub(crate) fn matches(self, text: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(want) => text == want,
            Self::Prefix(want) => text.starts_with(want),
            Self::Suffix(want) => text.ends_with(want),
            Self::Contains(want) => memchr::memmem::find(text, want).is_some(),
        }
    }

    /// Like [`matches`](Self::matches), but ignores the case of ASCII letters.
    pub(crate) fn matches_any_case(self, text: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(want) => text.eq_ignore_ascii_case(want),
            Self::Prefix(want) => text.get(..want.len()).is_some_and(|start| start.eq_ignore_ascii_case(want)),
            Self::Suffix(want) => {
                text.len().checked_sub(want.len()).is_some_and(|at| text[at..].eq_ignore_ascii_case(want))
            }
            Self::Contains(want) => {
                want.is_empty() || text.windows(want.len()).any(|part| part.eq_ignore_ascii_case(want))
            }
        }
    }
}

/// How a pattern's characters are compared with the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    /// Byte by byte.
    Plain,
    /// Byte by byte, ignoring the case of ASCII letters.
    AnyCase,
}

/// Returns whether the whole text matches the whole pattern. A malformed pattern (an unclosed class) matches no text.
/// O(pattern × text).
///
/// After a mismatch only the last `*` is extended. No `*` matches a slash, so extending an earlier one would only leave
/// the later ones a shorter text.
pub(crate) fn glob(pattern: &[u8], text: &[u8], space: Space) -> bool {
    let (mut p, mut t) = (0, 0);
    // Where to resume if the last `*` takes one more byte: the pattern after the `*`, and the text position it matched
    // up to.
    let mut run: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            None if t == text.len() => return true,
            None => None,
            Some(b'*') => {
                p += 1;
                run = Some((p, t));
                continue;
            }
            Some(_) => single(&pattern[p..], &text[t..], space),
        };
        if let Some((of_pattern, of_text)) = step {
            p += of_pattern;
            t += of_text;
            continue;
        }
        let Some((tail, at)) = run else { return false };
        // A `*` never extends across a slash.
        if matches!(text.get(at), None | Some(b'/')) {
            return false;
        }
        (p, t) = (tail, at + 1);
        run = Some((p, t));
    }
}

/// Compares one pattern element that is not `*`. Returns the lengths in bytes consumed from the pattern and the text.
fn single(pattern: &[u8], text: &[u8], space: Space) -> Option<(usize, usize)> {
    let got = *text.first()?;
    match pattern {
        [b'?', ..] => (got != b'/').then(|| (1, char_len(text))),
        [b'[', class @ ..] => {
            let (taken, matches) = in_class(class, got, space)?;
            (matches && got != b'/').then_some((taken + 1, 1))
        }
        [b'\\', want, ..] => same(*want, got, space).then_some((2, 1)),
        [want, ..] => same(*want, got, space).then_some((1, 1)),
        [] => None,
    }
}

fn same(want: u8, got: u8, space: Space) -> bool {
    want == got || (space != Space::Plain && want.eq_ignore_ascii_case(&got))
}

/// Returns the length of the class after its `[`, the `]` included, and whether the class contains `got`. `None` for an
/// unclosed or empty class.
fn in_class(class: &[u8], got: u8, space: Space) -> Option<(usize, bool)> {
    let negated = class.first() == Some(&b'^');
    let mut at = usize::from(negated);
    let (mut found, mut members) = (false, 0);
    loop {
        // Go rejects an empty class, so a `]` before the first member is an error, which `member` reports.
        if *class.get(at)? == b']' && members > 0 {
            return Some((at + 1, found != negated));
        }
        let (low, end) = member(class, at)?;
        at = end;
        let mut high = low;
        if class.get(at) == Some(&b'-') {
            (high, at) = member(class, at + 1)?;
        }
        members += 1;
        let range = low..=high;
        found |= range.contains(&got);
        // A range may span only one case, for example `[A-z]` or `[a-f]`: try both cases of the byte.
        if space != Space::Plain {
            found |= range.contains(&got.to_ascii_lowercase()) || range.contains(&got.to_ascii_uppercase());
        }
    }
}

/// Reads one member at `at` and returns it with the position after it. `None` for a `-` or `]` without a backslash.
fn member(class: &[u8], at: usize) -> Option<(u8, usize)> {
    match *class.get(at)? {
        b'\\' => Some((*class.get(at + 1)?, at + 2)),
        b'-' | b']' => None,
        byte => Some((byte, at + 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, package path, func Match.
    #[test]
    fn path_match() {
        for (pattern, text, want) in [
            ("abc", "abc", true),
            ("*", "abc", true),
            ("*c", "abc", true),
            ("a*", "ab/c", false),
            ("a*/b", "abc/b", true),
            ("a*b*c*d*e*", "axbxcxdxe", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", true),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/fff", false),
            ("a*b?c*x", "abxbbxdbxebxczzx", true),
            ("a*b?c*x", "abxbbxdbxebxczzy", false),
            ("ab[c]", "abc", true),
            ("ab[b-d]", "abc", true),
            ("ab[e-g]", "abc", false),
            ("ab[^c]", "abc", false),
            ("ab[^e-g]", "abc", true),
            ("a\\*b", "a*b", true),
            ("a\\*b", "ab", false),
            ("a?b", "a\u{263a}b", true),
            ("a???b", "a\u{263a}b", false),
            ("a?b", "a/b", false),
            ("a*b", "a/b", false),
            ("[\\]a]", "]", true),
            ("[\\-x]", "-", true),
            ("[]a]", "]", false),
            ("[", "a", false),
            ("[a", "a", false),
            ("[-]", "-", false),
            ("", "", true),
            ("*", "", true),
            ("", "a", false),
        ] {
            assert_eq!(glob(pattern.as_bytes(), text.as_bytes(), Space::Plain), want, "{pattern:?} {text:?}");
        }
        assert!(glob(b"/A[b-c]*", b"/aBx", Space::AnyCase) && !glob(b"/A*", b"/ax", Space::Plain));
        // Go counts each byte of an overlong form and of an encoded surrogate as a character.
        for text in [&b"a\xe0\x80\x80b"[..], b"a\xed\xa0\x80b"] {
            assert!(glob(b"a???b", text, Space::Plain) && !glob(b"a?b", text, Space::Plain), "{text:?}");
        }
    }

    #[test]
    fn affixes() {
        for (pattern, text, want) in [
            ("*", "", true),
            ("a", "a", true),
            ("a", "A", false),
            ("a*", "ab", true),
            ("*b", "ab", true),
            ("*b", "ba", false),
            ("*b*", "abc", true),
            ("**", "", true),
            ("abc*", "ab", false),
            ("*abc", "bc", false),
            ("a*c", "abc", false),
        ] {
            let affix = Affix::of(pattern.as_bytes());
            assert_eq!(affix.matches(text.as_bytes()), want, "{pattern:?} {text:?}");
            let any_case = affix.matches_any_case(text.to_uppercase().as_bytes());
            assert_eq!(any_case, want || text == "A", "{pattern:?} {text:?}");
        }
    }
}

//! Percent-decoding and dot segments (RFC 3986 §2.1, §5.2.4).

use std::error::Error;
use std::fmt;

/// A '%' that is not followed by two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscapeError {
    /// Index of the '%' in the raw path.
    pub at: usize,
}

impl fmt::Display for EscapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the '%' at index {} is not followed by two hexadecimal digits", self.at)
    }
}

impl Error for EscapeError {}

/// Appends `raw` to `out` with percent-escapes decoded once. `%00` becomes a zero byte; a caller that cannot accept
/// it has to check. O(n). On failure `out` is unchanged.
pub fn decode(raw: impl AsRef<[u8]>, out: &mut Vec<u8>) -> Result<(), EscapeError> {
    let (raw, before) = (raw.as_ref(), out.len());
    let mut rest = raw;
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        let byte = match rest[at + 1..] {
            [high, low, ..] => hex(high).zip(hex(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let Some(byte) = byte else {
            out.truncate(before);
            return Err(EscapeError { at: raw.len() - rest.len() + at });
        };
        out.push(byte);
        rest = &rest[at + 3..];
    }
    out.extend_from_slice(rest);
    Ok(())
}

/// Appends a byte as `%XY` with upper-case digits (RFC 3986 §2.1).
pub fn push_escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
}

/// The value of a hexadecimal digit, 0..=15; `None` for any other byte.
#[must_use]
pub const fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Whether [`clean`] would return this path unchanged: it begins with a slash and has no "." or ".." segment, and no
/// empty segment except the last one. O(n), no allocation.
#[must_use]
pub fn is_clean(decoded: &[u8]) -> bool {
    let [b'/', rest @ ..] = decoded else { return false };
    let mut segments = rest.split(|&byte| byte == b'/');
    let last = segments.next_back().unwrap_or_default();
    last != b"." && last != b".." && segments.all(|segment| !matches!(segment, b"" | b"." | b".."))
}

/// Appends the shortest equivalent path to `out`: dot segments resolved and repeated slashes merged. The result
/// always has a leading slash. It has a trailing slash if the input has one or ends in a dot segment. A ".." at the
/// root is dropped. O(n).
pub fn clean(decoded: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    out.push(b'/');
    let mut segments = decoded.split(|&byte| byte == b'/').peekable();
    let mut trailing = decoded.is_empty();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            // An empty or "." segment at the end leaves a trailing slash.
            b"" | b"." => trailing = is_last,
            b".." => {
                drop_segment(out, before);
                trailing = is_last;
            }
            _ => {
                if out.len() > before + 1 {
                    out.push(b'/');
                }
                out.extend_from_slice(segment);
                trailing = false;
            }
        }
    }
    if trailing && out.len() > before + 1 {
        out.push(b'/');
    }
}

// Removes the last segment and its slash, but never the root slash at `before`.
fn drop_segment(out: &mut Vec<u8>, before: usize) {
    let slash = out[before..].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
    out.truncate(before + slash.max(1));
}

/// Appends the result of RFC 3986 §5.2.4 to `out`: dot segments are removed, empty segments are kept. O(n).
pub fn remove_dot_segments(path: &[u8], out: &mut Vec<u8>) {
    let before = out.len();
    let mut input = path;
    while !input.is_empty() {
        if let Some(rest) = input.strip_prefix(b"../").or_else(|| input.strip_prefix(b"./")) {
            input = rest;
        } else if input.starts_with(b"/./") {
            input = &input[2..];
        } else if input == b"/." {
            input = b"/";
        } else if input.starts_with(b"/../") || input == b"/.." {
            input = if input.len() > 3 { &input[3..] } else { b"/" };
            let slash = out[before..].iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            out.truncate(before + slash);
        } else if input == b"." || input == b".." {
            input = b"";
        } else {
            let end = input[1..].iter().position(|&byte| byte == b'/').map_or(input.len(), |at| at + 1);
            out.extend_from_slice(&input[..end]);
            input = &input[end..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc3986_2_1_percent_decoding_is_applied_once() {
        for (raw, want) in [
            ("/a%20b", Ok(&b"/a b"[..])),
            ("/%2e%2E/%2f", Ok(b"/..//")),
            ("/%2541", Ok(b"/%41")),
            ("/%00", Ok(b"/\0")),
            ("/%c3%bc", Ok("/ü".as_bytes())),
            ("", Ok(b"")),
            ("/%", Err(EscapeError { at: 1 })),
            ("/a%4", Err(EscapeError { at: 2 })),
            ("/%41%zz", Err(EscapeError { at: 4 })),
            ("/%u002e", Err(EscapeError { at: 1 })),
        ] {
            let mut out = b"x".to_vec();
            assert_eq!(decode(raw, &mut out), want.map(|_| ()), "{raw}");
            assert_eq!(out, [b"x", want.unwrap_or(b"")].concat(), "{raw}");
        }
    }

    #[test]
    fn clean_paths_have_no_dot_and_no_empty_segment() {
        for (path, want) in [
            ("", "/"),
            ("/", "/"),
            ("a", "/a"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//a///b//", "/a/b/"),
            ("/a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/..", "/"),
            ("/../../etc/passwd", "/etc/passwd"),
            ("../../etc", "/etc"),
            ("/a/../../b/..", "/"),
            ("/...", "/..."),
            ("/a/..b/.c", "/a/..b/.c"),
        ] {
            let mut out = b"x".to_vec();
            clean(path.as_bytes(), &mut out);
            assert_eq!(std::str::from_utf8(&out[1..]), Ok(want), "{path}");
            assert_eq!(is_clean(path.as_bytes()), path == want, "{path}");
            assert!(is_clean(want.as_bytes()), "{want}");
        }
    }

    #[test]
    fn rfc3986_5_2_4_remove_dot_segments() {
        for (path, want) in [
            ("/a/b/c/./../../g", "/a/g"),
            ("mid/content=5/../6", "mid/6"),
            ("/a//../b", "/a/b"),
            ("/../a", "/a"),
            ("/a/..", "/"),
            ("/a/.", "/a/"),
            ("..", ""),
            ("a", "a"),
            ("", ""),
        ] {
            let mut out = b"x".to_vec();
            remove_dot_segments(path.as_bytes(), &mut out);
            assert_eq!(std::str::from_utf8(&out[1..]), Ok(want), "{path}");
        }
    }
}

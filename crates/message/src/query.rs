//! Queries as Go's `net/url` reads and writes them: pairs of names and values, in which `+` is a space.

use crate::path;

/// Returns the name and value of each pair, not decoded. As in Go, an empty pair and a pair with a `;` are skipped; a
/// pair without `=` has an empty value.
pub fn pairs(query: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    query.split(|&byte| byte == b'&').filter(|pair| !pair.is_empty() && !pair.contains(&b';')).map(|pair| {
        let end = pair.iter().position(|&byte| byte == b'=').unwrap_or(pair.len());
        (&pair[..end], pair.get(end + 1..).unwrap_or_default())
    })
}

/// Appends a decoded name or value. Returns false, with `out` unchanged, if it has an invalid escape. O(n).
#[must_use]
pub fn decode(raw: &[u8], out: &mut Vec<u8>) -> bool {
    let before = out.len();
    // Split before decoding, so that an escaped plus stays a plus.
    for (number, part) in raw.split(|&byte| byte == b'+').enumerate() {
        if number > 0 {
            out.push(b' ');
        }
        if path::decode(part, out).is_err() {
            out.truncate(before);
            return false;
        }
    }
    true
}

/// Appends a name or value escaped (Go, `url.QueryEscape`).
pub fn encode(plain: &[u8], out: &mut Vec<u8>) {
    for &byte in plain {
        match byte {
            b' ' => out.push(b'+'),
            b'-' | b'_' | b'.' | b'~' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => path::push_escape(byte, out),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, url.ParseQuery.
    #[test]
    fn names_and_values() {
        let got: Vec<_> = pairs(b"a=1&&b&=c&d=e=f&g;h=1&i=").collect();
        let want: [(&[u8], &[u8]); 5] = [(b"a", b"1"), (b"b", b""), (b"", b"c"), (b"d", b"e=f"), (b"i", b"")];
        assert_eq!(got, want);
        assert_eq!(pairs(b"").count(), 0);
    }

    // Go, url.QueryUnescape.
    #[test]
    fn a_plus_is_a_space_unless_it_is_escaped() {
        for (raw, want) in [
            ("", Some("")),
            ("a+b%20c%2bd", Some("a b c+d")),
            ("++", Some("  ")),
            ("%41%", None),
            ("a+%4", None),
            ("%4+1", None),
            ("%zz", None),
        ] {
            let mut out = b"x".to_vec();
            assert_eq!(decode(raw.as_bytes(), &mut out), want.is_some(), "{raw}");
            assert_eq!(out, [b"x", want.unwrap_or_default().as_bytes()].concat(), "{raw}");
        }
    }

    // Go, url.QueryEscape.
    #[test]
    fn every_byte_survives() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        let (mut encoded, mut decoded) = (Vec::new(), Vec::new());
        encode(&all, &mut encoded);
        assert!(encoded.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~+%".contains(byte)));
        assert!(decode(&encoded, &mut decoded) && decoded == all);
    }
}

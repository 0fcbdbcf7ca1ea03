//! How paths and queries are escaped and unescaped: Go's `net/url`, so that a rewritten target is spelled as Caddy spells it.

use causeway_message::path::hex;

/// Puts `%XY` behind `out`.
pub(crate) fn push_escape(octet: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// The octets that Go writes as they are in a path.
static PLAIN_IN_PATH: [bool; 256] = among(b"-._~$&+,/:;=@");
/// The octets that a query may hold, escaped or not.
static ALLOWED_IN_QUERY: [bool; 256] = among(b"-._~$&+,/:;=@!'()*[]?%{}|\\^`");

/// Letters, digits, and these.
const fn among(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut octet = 0;
    while octet < 128 {
        table[octet] = (octet as u8).is_ascii_alphanumeric();
        octet += 1;
    }
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
}

fn is_plain_in_path(octet: u8) -> bool {
    PLAIN_IN_PATH[usize::from(octet)]
}

/// Appends a text with everything escaped that is not in the table; runs of what stays are copied whole.
fn escape_all_but(kept: &[bool; 256], mut text: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = text.iter().position(|&octet| !kept[usize::from(octet)]) {
        out.extend_from_slice(&text[..at]);
        push_escape(text[at], out);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

/// A decoded path as Go writes it (`url.URL.EscapedPath` without a raw path).
pub(super) fn path(decoded: &[u8], out: &mut Vec<u8>) {
    escape_all_but(&PLAIN_IN_PATH, decoded, out);
}

/// Whether an escaped path holds only what Go leaves in one.
pub(super) fn is_path(escaped: &[u8]) -> bool {
    escaped.iter().all(|&octet| octet == b'%' || is_plain_in_path(octet) || b"!'()*[]".contains(&octet))
}

/// As a key or value of a query is written (`url.QueryEscape`).
pub(super) fn query(plain: &[u8], out: &mut Vec<u8>) {
    for &octet in plain {
        match octet {
            b' ' => out.push(b'+'),
            _ if is_unreserved(octet) => out.push(octet),
            _ => push_escape(octet, out),
        }
    }
}

/// A query as somebody wrote it: only what no target may hold is escaped.
pub(super) fn raw_query(query: &[u8], out: &mut Vec<u8>) {
    escape_all_but(&ALLOWED_IN_QUERY, query, out);
}

/// Decodes what `text` holds from `from` on, once; false, and nothing changes, when an escape in it is bad.
pub(super) fn decode(text: &mut Vec<u8>, from: usize) -> bool {
    if memchr::memchr(b'%', &text[from..]).is_none() {
        return true;
    }
    let is_good = |at: usize| matches!(text[at..], [_, high, low, ..] if hex(high).is_some() && hex(low).is_some());
    if !(from..text.len()).all(|at| text[at] != b'%' || is_good(at)) {
        return false;
    }
    let (mut read, mut write) = (from, from);
    while read < text.len() {
        let (octet, len) = match text[read..] {
            [b'%', high, low, ..] => (hex(high).zip(hex(low)).map_or(b'%', |(high, low)| high << 4 | low), 3),
            _ => (text[read], 1),
        };
        text[write] = octet;
        (read, write) = (read + len, write + 1);
    }
    text.truncate(write);
    true
}

/// As [`decode`], in a query: `+` is a space.
pub(super) fn decode_query(text: &mut Vec<u8>, from: usize) -> bool {
    // Before decoding, so that an escaped plus stays one.
    for octet in text[from..].iter_mut().filter(|octet| **octet == b'+') {
        *octet = b' ';
    }
    decode(text, from)
}

/// Whether an escape stands at a place.
pub(super) fn is_escape_at(text: &[u8], at: usize) -> bool {
    matches!(text.get(at..), Some([b'%', high, low, ..]) if hex(*high).is_some() && hex(*low).is_some())
}

/// The octet that the escape at a place stands for.
pub(super) fn escaped_at(text: &[u8], at: usize) -> Option<u8> {
    match *text.get(at..)? {
        [b'%', high, low, ..] => Some(hex(high)? << 4 | hex(low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_may_hold() {
        for octet in 0..=255 {
            let allowed = u8::is_ascii_graphic(&octet) && !b"\"<>#".contains(&octet);
            assert_eq!(ALLOWED_IN_QUERY[usize::from(octet)], allowed, "{octet}");
            let mut out = Vec::new();
            raw_query(&[b'a', octet, b'b'], &mut out);
            let want = if allowed { vec![b'a', octet, b'b'] } else { format!("a%{octet:02X}b").into_bytes() };
            assert_eq!(out, want);
        }
    }
}

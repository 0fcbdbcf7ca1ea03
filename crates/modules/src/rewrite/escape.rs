//! How paths and queries are escaped and unescaped: Go's `net/url`, so that a rewritten target is spelled as Caddy spells it.

use crate::glob::hex;

/// Puts `%XY` behind `out`.
pub(crate) fn push_escape(octet: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(&[b'%', DIGITS[usize::from(octet >> 4)], DIGITS[usize::from(octet & 15)]]);
}

fn is_unreserved(octet: u8) -> bool {
    octet.is_ascii_alphanumeric() || b"-._~".contains(&octet)
}

/// Whether Go writes an octet of a path as it is.
fn is_plain_in_path(octet: u8) -> bool {
    is_unreserved(octet) || b"$&+,/:;=@".contains(&octet)
}

/// A decoded path as Go writes it (`url.URL.EscapedPath` without a raw path).
pub(super) fn path(decoded: &[u8], out: &mut Vec<u8>) {
    for &octet in decoded {
        if is_plain_in_path(octet) { out.push(octet) } else { push_escape(octet, out) }
    }
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
    for &octet in query {
        let is_allowed = octet.is_ascii_graphic() && !b"\"<>#".contains(&octet);
        if is_allowed { out.push(octet) } else { push_escape(octet, out) }
    }
}

/// Decodes what `text` holds from `from` on, once; false, and nothing changes, when an escape in it is bad.
pub(super) fn decode(text: &mut Vec<u8>, from: usize) -> bool {
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

//! Escapes and unescapes paths and whole queries as Go's `net/url` does, so that a rewritten target has Caddy's
//! spelling.

use causeway_message::path::{hex, push_escape};

/// The bytes that Go leaves unescaped in a path.
static PLAIN_IN_PATH: [bool; 256] = among(b"-._~$&+,/:;=@");
/// The bytes that are copied unchanged into a query, escapes included: all printable ones except `#`.
static ALLOWED_IN_QUERY: [bool; 256] = among(b"-._~$&+,/:;=@!'()*[]?%{}|\\^`\"<>");

/// A table of the ASCII letters, the digits and `marks`.
const fn among(marks: &[u8]) -> [bool; 256] {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 128 {
        table[byte] = (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    let mut at = 0;
    while at < marks.len() {
        table[marks[at] as usize] = true;
        at += 1;
    }
    table
}

fn is_plain_in_path(byte: u8) -> bool {
    PLAIN_IN_PATH[usize::from(byte)]
}

/// Appends a text and escapes every byte that is not in the table. Copies runs of unescaped bytes at once.
fn escape_all_but(kept: &[bool; 256], mut text: &[u8], out: &mut Vec<u8>) {
    while let Some(at) = text.iter().position(|&byte| !kept[usize::from(byte)]) {
        out.extend_from_slice(&text[..at]);
        push_escape(text[at], out);
        text = &text[at + 1..];
    }
    out.extend_from_slice(text);
}

/// Appends a decoded path as Go escapes it (`url.URL.EscapedPath` without a raw path).
pub(crate) fn path(decoded: &[u8], out: &mut Vec<u8>) {
    escape_all_but(&PLAIN_IN_PATH, decoded, out);
}

/// Returns whether an escaped path contains only bytes that Go accepts unescaped, and escapes.
pub(super) fn is_path(escaped: &[u8]) -> bool {
    escaped.iter().all(|&byte| byte == b'%' || is_plain_in_path(byte) || b"!'()*[]".contains(&byte))
}

/// Appends a path that is escaped in part. Escapes only the bytes that Go does not accept in an escaped one.
pub(crate) fn escape_invalid_in_path(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if is_path(std::slice::from_ref(byte)) { out.push(*byte) } else { push_escape(*byte, out) }
    }
}

/// Appends a raw query. Escapes only the bytes that no target may contain.
pub(crate) fn raw_query(query: &[u8], out: &mut Vec<u8>) {
    escape_all_but(&ALLOWED_IN_QUERY, query, out);
}

/// Decodes `text` from offset `from`, once, in place. Returns false without a change if it contains an invalid escape.
pub(super) fn decode(text: &mut Vec<u8>, from: usize) -> bool {
    if memchr::memchr(b'%', &text[from..]).is_none() {
        return true;
    }
    if !(from..text.len()).all(|at| text[at] != b'%' || is_escape_at(text, at)) {
        return false;
    }
    let (mut read, mut write) = (from, from);
    while read < text.len() {
        let (byte, len) = escaped_at(text, read).map_or((text[read], 1), |byte| (byte, 3));
        text[write] = byte;
        (read, write) = (read + len, write + 1);
    }
    text.truncate(write);
    true
}

/// Returns whether a valid escape starts at `at`.
pub(super) fn is_escape_at(text: &[u8], at: usize) -> bool {
    escaped_at(text, at).is_some()
}

/// Decodes the escape that starts at `at`, if there is one.
pub(crate) fn escaped_at(text: &[u8], at: usize) -> Option<u8> {
    match *text.get(at..)? {
        [b'%', high, low, ..] => Some(hex(high)? << 4 | hex(low)?),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_allowed_in_a_query() {
        for byte in 0..=255 {
            let allowed = u8::is_ascii_graphic(&byte) && byte != b'#';
            assert_eq!(ALLOWED_IN_QUERY[usize::from(byte)], allowed, "{byte}");
            let mut out = Vec::new();
            raw_query(&[b'a', byte, b'b'], &mut out);
            let want = if allowed { vec![b'a', byte, b'b'] } else { format!("a%{byte:02X}b").into_bytes() };
            assert_eq!(out, want);
        }
    }
}

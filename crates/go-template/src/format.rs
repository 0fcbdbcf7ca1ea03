//! Go's forms of strings and characters, as error messages show them.

use std::fmt::Write;

/// Returns the text in quotes, with Go's escapes (`%q`).
pub(crate) fn quoted(text: &[u8]) -> String {
    quote(text, '"', false)
}

/// Returns the text in quotes, with escapes for all that is not ASCII (`%+q`).
pub(crate) fn quoted_ascii(text: &[u8]) -> String {
    quote(text, '"', true)
}

/// Returns the character in quotes (`%q` of an integer).
pub(crate) fn quoted_char(c: char, only_ascii: bool) -> String {
    quote(c.encode_utf8(&mut [0; 4]).as_bytes(), '\'', only_ascii)
}

fn quote(text: &[u8], quote: char, only_ascii: bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push(quote);
    let mut rest = text;
    while let Some(&first) = rest.first() {
        let (decoded, size) = bstr::decode_utf8(rest);
        rest = &rest[size..];
        let Some(c) = decoded else {
            let _ = write!(out, "\\x{first:02x}");
            // An invalid sequence may have several bytes: each has an escape of its own.
            rest = &text[text.len() - rest.len() - size + 1..];
            continue;
        };
        match c {
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c if is_printable(c) && (c.is_ascii() || !only_ascii) => out.push(c),
            c if c < ' ' || c == '\x7f' => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if u32::from(c) < 0x1_0000 => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => {
                let _ = write!(out, "\\U{:08x}", u32::from(c));
            }
        }
    }
    out.push(quote);
    out
}

/// Returns a character with its number (`%#U`): `U+0023 '#'`.
pub(crate) fn character(c: char) -> String {
    let number = u32::from(c);
    if is_printable(c) { format!("U+{number:04X} '{c}'") } else { format!("U+{number:04X}") }
}

pub(crate) fn is_printable(c: char) -> bool {
    // The standard library escapes unprintable characters. It escapes these three for their meaning in Rust.
    matches!(c, '"' | '\'' | '\\') || !c.is_control() && c.escape_debug().count() == 1
}

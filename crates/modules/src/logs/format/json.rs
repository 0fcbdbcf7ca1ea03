//! Fields as JSON.

use std::io::Write as _;

use super::super::entry::{FieldSink, Fields, LogValue};
use super::{DurationFormat, number};

/// Whether a blank follows each `:` and `,`, as in the console format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spacing {
    Dense,
    Spaced,
}

/// Writes fields as the members of a JSON object.
pub(super) struct JsonSink<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
    spacing: Spacing,
    durations: DurationFormat,
}

impl<'o> JsonSink<'o> {
    pub(super) fn new(out: &'o mut Vec<u8>, spacing: Spacing, durations: DurationFormat) -> Self {
        Self { out, is_first: true, spacing, durations }
    }

    pub(super) fn out(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Begins a member.
    pub(super) fn key(&mut self, key: &str) {
        if !std::mem::replace(&mut self.is_first, false) {
            self.separate(b',');
        }
        self.text(key.as_bytes());
        self.separate(b':');
    }

    fn separate(&mut self, separator: u8) {
        self.out.push(separator);
        if self.spacing == Spacing::Spaced {
            self.out.push(b' ');
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.out.push(b'"');
        escape(self.out, text, Quotes::Escaped);
        self.out.push(b'"');
    }

    /// Writes a string that `write` appends. Only for texts of the operator and of this server.
    pub(super) fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len() + 1;
        self.out.push(b'"');
        write(self.out);
        // A layout of times may contain quotes; that is rare.
        if self.out[start..].iter().any(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)) {
            let written = self.out.split_off(start);
            escape(self.out, &written, Quotes::Escaped);
        }
        self.out.push(b'"');
    }

    fn list(&mut self, texts: &dyn super::super::entry::TextList) {
        self.out.push(b'[');
        let mut is_first = true;
        texts.each(&mut |text| {
            if !std::mem::replace(&mut is_first, false) {
                self.separate(b',');
            }
            self.text(text);
        });
        self.out.push(b']');
    }

    /// Writes a value alone.
    pub(super) fn bare(&mut self, value: LogValue<'_>) {
        match value {
            LogValue::Text(text) => self.text(text),
            LogValue::Texts(texts) => self.list(texts),
            LogValue::Duration(span) if self.durations == DurationFormat::Text => {
                let durations = self.durations;
                self.quoted(|out| durations.write(span, out));
            }
            LogValue::Duration(span) => self.durations.write(span, self.out),
            // JSON has no number for these.
            LogValue::Float(number) if !number.is_finite() => self.text(number.to_string().as_bytes()),
            LogValue::Float(number) => {
                let _ = write!(self.out, "{number}");
            }
            LogValue::Unsigned(number) => number::unsigned(self.out, number),
            LogValue::Signed(number) => number::signed(self.out, number),
            LogValue::Bool(value) => self.out.extend_from_slice(if value { b"true" } else { b"false" }),
        }
    }

    /// Writes an object alone.
    pub(super) fn members(&mut self, fields: &dyn Fields) {
        self.out.push(b'{');
        fields.visit(&mut JsonSink::new(self.out, self.spacing, self.durations));
        self.out.push(b'}');
    }
}

impl FieldSink for JsonSink<'_> {
    fn value(&mut self, key: &str, value: LogValue<'_>) {
        self.key(key);
        self.bare(value);
    }

    fn object(&mut self, key: &str, fields: &dyn Fields) {
        self.key(key);
        self.members(fields);
    }
}

/// Whether `"` and `\` are escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Escaped,
    Raw,
}

/// Appends the inside of a JSON string. Control characters are escaped, so that a peer can forge neither a line nor a terminal's control
/// sequence; bytes that are not UTF-8 become U+FFFD, as in Caddy.
pub(super) fn escape(out: &mut Vec<u8>, bytes: &[u8], quotes: Quotes) {
    // Most texts need no change. The loop has no branch per byte, so that the compiler vectorises it.
    let is_plain = |byte: u8| (byte >= 0x20) & (byte < 0x7f) & (byte != b'"') & (byte != b'\\');
    if bytes.iter().fold(true, |plain, byte| plain & is_plain(*byte)) {
        out.extend_from_slice(bytes);
        return;
    }
    for piece in bytes.utf8_chunks() {
        for char in piece.valid().chars() {
            match char {
                '"' | '\\' if quotes == Quotes::Escaped => out.extend_from_slice(&[b'\\', char as u8]),
                '\n' => out.extend_from_slice(b"\\n"),
                '\r' => out.extend_from_slice(b"\\r"),
                '\t' => out.extend_from_slice(b"\\t"),
                char if char.is_control() => {
                    let _ = write!(out, "\\u{:04x}", u32::from(char));
                }
                char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        for _ in piece.invalid() {
            out.extend_from_slice("\u{fffd}".as_bytes());
        }
    }
}

//! Fields as JSON.

use std::io::Write as _;
use std::time::Duration;

use super::super::entry::{FieldSink, Fields, LogKey, LogValue, TextList};
use super::{DurationFormat, number};

/// Whether a blank follows each `:` and `,`, as in the console format.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Spacing {
    Dense,
    Spaced,
}

/// Writes fields as the members of a JSON object.
pub struct JsonSink<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
    spacing: Spacing,
    durations: DurationFormat,
}

impl<'o> JsonSink<'o> {
    /// Begins an object: `out` ends with its `{`.
    pub(super) fn new(out: &'o mut Vec<u8>, spacing: Spacing, durations: DurationFormat) -> Self {
        Self { out, is_first: true, spacing, durations }
    }

    /// Continues an object without blanks: `out` ends with its `{` or with a member.
    pub(super) fn within(out: &'o mut Vec<u8>, durations: DurationFormat) -> Self {
        let is_first = out.last() == Some(&b'{');
        Self { out, is_first, spacing: Spacing::Dense, durations }
    }

    /// Begins a member.
    #[inline]
    pub(super) fn key(&mut self, key: LogKey<'_>) {
        let is_first = std::mem::replace(&mut self.is_first, false);
        match key.json().filter(|_| self.spacing == Spacing::Dense) {
            // Of a constant key both are copies of a constant length, which are a few moves and no call.
            Some(json) if is_first => self.out.extend_from_slice(&json.as_bytes()[1..]),
            Some(json) => self.out.extend_from_slice(json.as_bytes()),
            None => self.unprepared_key(key.name(), is_first),
        }
    }

    #[inline(never)]
    fn unprepared_key(&mut self, name: &str, is_first: bool) {
        if !is_first {
            self.separate(b',');
        }
        text(self.out, name.as_bytes());
        self.separate(b':');
    }

    fn separate(&mut self, separator: u8) {
        self.out.push(separator);
        if self.spacing == Spacing::Spaced {
            self.out.push(b' ');
        }
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

    fn list(&mut self, texts: &dyn TextList) {
        self.out.push(b'[');
        let mut is_first = true;
        texts.each(&mut |text| {
            if !std::mem::replace(&mut is_first, false) {
                self.separate(b',');
            }
            self::text(self.out, text);
        });
        self.out.push(b']');
    }

    /// Writes a value alone. The kind of a field's value is a constant in a record's code, which leaves one arm of the
    /// `match` where this is inlined.
    #[expect(clippy::inline_always, reason = "above")]
    #[inline(always)]
    pub(super) fn bare(&mut self, value: LogValue<'_>) {
        match value {
            LogValue::Null => self.out.extend_from_slice(b"null"),
            LogValue::Text(text) => self::text(self.out, text),
            LogValue::Plain(text) => plain(self.out, text),
            LogValue::Texts(texts) => self.list(texts),
            LogValue::OneText(text) => {
                self.out.push(b'[');
                self::text(self.out, text);
                self.out.push(b']');
            }
            LogValue::Duration(span) => self.duration(span),
            LogValue::Unsigned(number) => number::unsigned(self.out, number),
            LogValue::Signed(number) => number::signed(self.out, number),
            LogValue::Float(number) => self.float(number),
            LogValue::Bool(value) => self.out.extend_from_slice(if value { b"true" } else { b"false" }),
            LogValue::Json(json) => self.out.extend_from_slice(json),
        }
    }

    #[inline(never)]
    fn duration(&mut self, span: Duration) {
        let durations = self.durations;
        match durations {
            DurationFormat::Text => self.quoted(|out| durations.write(span, out)),
            _ => durations.write(span, self.out),
        }
    }

    #[cold]
    fn float(&mut self, number: f64) {
        if number.is_finite() {
            let _ = write!(self.out, "{number}");
        } else {
            // JSON has no number for these.
            text(self.out, number.to_string().as_bytes());
        }
    }

    /// Writes an object alone.
    #[inline]
    pub(super) fn members(&mut self, fields: &dyn Fields) {
        self.out.push(b'{');
        fields.visit_json(&mut JsonSink::new(self.out, self.spacing, self.durations));
        self.out.push(b'}');
    }
}

impl FieldSink for JsonSink<'_> {
    #[expect(clippy::inline_always, reason = "as `bare`")]
    #[inline(always)]
    fn value(&mut self, key: LogKey<'_>, value: LogValue<'_>) {
        self.key(key);
        self.bare(value);
    }

    #[inline]
    fn object(&mut self, key: LogKey<'_>, fields: &dyn Fields) {
        self.key(key);
        self.members(fields);
    }
}

/// Returns fields as an object.
pub(crate) fn json_text(fields: &dyn Fields) -> String {
    let mut out = Vec::new();
    JsonSink::new(&mut out, Spacing::Dense, DurationFormat::Seconds).members(fields);
    String::from_utf8_lossy(&out).into_owned()
}

/// Appends a member whose key is known at load, `,"name":`, to an object: `out` ends with its `{` or with a member.
pub(super) fn text_member(out: &mut Vec<u8>, member: &[u8], text: &[u8]) {
    let separator = usize::from(out.last() == Some(&b'{'));
    out.extend_from_slice(&member[separator..]);
    self::text(out, text);
}

/// Appends a string.
#[inline(never)]
fn text(out: &mut Vec<u8>, text: &[u8]) {
    // Most texts need no change.
    if is_plain(text) {
        plain(out, text);
    } else {
        out.push(b'"');
        escape(out, text, Quotes::Escaped);
        out.push(b'"');
    }
}

/// Appends a string of which nothing is escaped.
#[inline]
fn plain(out: &mut Vec<u8>, text: &[u8]) {
    out.push(b'"');
    out.extend_from_slice(text);
    out.push(b'"');
}

/// Whether `"` and `\` are escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    Escaped,
    Raw,
}

/// Appends the inside of a JSON string. Control characters are escaped, so that a peer can forge neither a line nor a
/// terminal's control sequence; bytes that are not UTF-8 become U+FFFD, as in Caddy.
#[cold]
pub(super) fn escape(out: &mut Vec<u8>, bytes: &[u8], quotes: Quotes) {
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

/// Returns whether a text is printable ASCII without `"` and `\`. Looks at eight bytes at a time.
#[inline]
fn is_plain(text: &[u8]) -> bool {
    const ONES: u64 = u64::MAX / 255;
    // The highest bit of a byte of the result is set if the byte is not plain. A borrow comes only from such a byte, so
    // that the answer for the whole word is exact.
    let others = |word: [u8; 8]| {
        let word = u64::from_ne_bytes(word);
        let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
        let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
        (word | below(word, 0x20) | equal(b'"') | equal(b'\\') | equal(0x7f)) & (ONES << 7)
    };
    match text.last_chunk() {
        // The last word overlaps the one before.
        Some(last) => text.as_chunks().0.iter().fold(others(*last), |all, word| all | others(*word)) == 0,
        None => {
            let mut word = [b' '; 8];
            word[..text.len()].copy_from_slice(text);
            others(word) == 0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 8259 §7: quotation mark, backslash and control characters are escaped. Each byte at each place of texts of
    // each length.
    #[test]
    fn plain_texts_are_those_without_an_escape() {
        for byte in 0..=255_u8 {
            let want = (b' '..=b'~').contains(&byte) && byte != b'"' && byte != b'\\';
            for len in 1..50 {
                for place in 0..len {
                    let mut text = vec![b'a'; len];
                    text[place] = byte;
                    assert_eq!(is_plain(&text), want, "{byte:#x} at {place} of {len}");
                }
            }
        }
        assert!(is_plain(b""));
    }
}

//! A span as the message `Span` of opentelemetry-proto's `trace.proto`.
//!
//! The fields of a message may have any order, so a span is written in parts: [`begin`] when the request arrives,
//! [`text`] and [`number`] for each attribute, [`end`] when the request is over.

/// Field types of protobuf's encoding.
const VARINT: u64 = 0;
pub(crate) const FIXED64: u64 = 1;
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// Bits of the field `flags` beside those of W3C Trace Context: whether the parent came over the network, and whether
/// that bit is valid.
const KNOWS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// The value of the field `kind` for a request that a server handles.
const SERVER: u64 = 2;
/// The status of a span whose request failed.
const ERROR: u64 = 2;

/// The start of a span.
#[derive(Debug, Clone, Copy)]
pub struct SpanStart<'s> {
    /// The trace; not zero.
    pub trace: [u8; 16],
    /// The span; not zero.
    pub id: [u8; 8],
    /// The span of the request's sender, if the request has one.
    pub parent: Option<[u8; 8]>,
    /// The value of `tracestate`.
    pub state: &'s [u8],
    /// The name.
    pub name: &'s [u8],
    /// The time, in nanoseconds since 1970.
    pub at: u64,
}

/// Appends the start of a sampled span.
pub fn begin(out: &mut Vec<u8>, start: &SpanStart<'_>) {
    bytes(out, 1, &start.trace);
    bytes(out, 2, &start.id);
    if !start.state.is_empty() {
        string(out, 3, start.state);
    }
    let mut flags = 1 | KNOWS_REMOTE;
    if let Some(parent) = &start.parent {
        bytes(out, 4, parent);
        flags |= IS_REMOTE;
    }
    string(out, 5, start.name);
    varint_field(out, 6, SERVER);
    fixed64(out, 7, start.at);
    tag(out, 16, FIXED32);
    out.extend_from_slice(&flags.to_le_bytes());
}

/// Appends an attribute with a text. Bytes that are no UTF-8 are replaced: protobuf does not permit them.
pub fn text(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    attribute(out, 9, key, value);
}

/// Appends an attribute with a number.
pub fn number(out: &mut Vec<u8>, key: &str, value: u64) {
    // Field 3 of `AnyValue`; its type is `int64`.
    let value = value.min(i64::MAX as u64);
    let any = 1 + varint_len(value);
    tag(out, 9, BYTES);
    varint(out, (field_len(key.len()) + field_len(any)) as u64);
    bytes(out, 1, key.as_bytes());
    tag(out, 2, BYTES);
    varint(out, any as u64);
    varint_field(out, 3, value);
}

/// Appends the end of a span: its time, in nanoseconds since 1970, and whether the server failed.
pub fn end(out: &mut Vec<u8>, at: u64, is_error: bool) {
    fixed64(out, 8, at);
    if is_error {
        tag(out, 15, BYTES);
        varint(out, 2);
        varint_field(out, 3, ERROR);
    }
}

/// Appends a message `KeyValue` with a text, as the field `number`.
pub(crate) fn attribute(out: &mut Vec<u8>, number: u64, key: &str, value: &[u8]) {
    let lossy;
    let value = match str::from_utf8(value) {
        Ok(_) => value,
        Err(_) => {
            lossy = String::from_utf8_lossy(value);
            lossy.as_bytes()
        }
    };
    let any = field_len(value.len());
    tag(out, number, BYTES);
    varint(out, (field_len(key.len()) + field_len(any)) as u64);
    bytes(out, 1, key.as_bytes());
    tag(out, 2, BYTES);
    varint(out, any as u64);
    bytes(out, 1, value);
}

/// Appends a field with bytes, a text or a message.
pub(crate) fn bytes(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    tag(out, number, BYTES);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn string(out: &mut Vec<u8>, number: u64, value: &[u8]) {
    match str::from_utf8(value) {
        Ok(_) => bytes(out, number, value),
        Err(_) => bytes(out, number, String::from_utf8_lossy(value).as_bytes()),
    }
}

pub(crate) fn fixed64(out: &mut Vec<u8>, number: u64, value: u64) {
    tag(out, number, FIXED64);
    out.extend_from_slice(&value.to_le_bytes());
}

pub(crate) fn varint_field(out: &mut Vec<u8>, number: u64, value: u64) {
    tag(out, number, VARINT);
    varint(out, value);
}

pub(crate) fn tag(out: &mut Vec<u8>, number: u64, kind: u64) {
    varint(out, number << 3 | kind);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value > 0x7f {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint_len(value: u64) -> usize {
    (64 - (value | 1).leading_zeros() as usize).div_ceil(7)
}

/// The length of a field below 16 with `len` bytes.
fn field_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

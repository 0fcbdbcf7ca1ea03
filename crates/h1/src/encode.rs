//! Encoding of response heads, and of both roles' chunks and trailers (RFC 9112 §4, §5, §7.1).

use causeway_message::{Chunk, FieldLine, FieldMap, KnownName, NameRef, ResponseHead, StatusCode, WriteList, names};

/// The framing field that a head declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// No framing field: there is no content, or it ends with the connection.
    Omitted,
    /// The handler's own Content-Length, if it set one: a response to HEAD.
    AsSet,
    /// Content-Length.
    Bytes(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
}

/// The persistence option of the Connection field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persistence {
    /// No option: HTTP/1.1 persists by default.
    Default,
    /// `close`
    Close,
    /// `keep-alive`, for HTTP/1.0 clients.
    KeepAlive,
}

/// Upper bound in bytes of a status line and the machine's own fields.
const OWN_BYTES_MAX: usize = 256;

pub(crate) fn response_head(
    head: &ResponseHead,
    length: Length,
    persistence: Persistence,
    date: Option<&[u8; 29]>,
    out: &mut WriteList,
) {
    out.reserve(OWN_BYTES_MAX + head.fields().bytes() + head.fields().len() * 48);
    status_line(head.status(), out);
    let mut upgrade = false;
    let mut dated = false;
    for FieldLine { name, value, .. } in head.sendable() {
        // The machine writes the framing and connection fields itself.
        if let NameRef::Known(known) = name {
            if is_ours(known) && !(known == names::CONTENT_LENGTH && length == Length::AsSet) {
                continue;
            }
            upgrade |= known == names::UPGRADE;
            dated |= known == names::DATE;
        }
        out.put_field(name, value);
    }
    if let (false, Some(date)) = (dated, date) {
        let mut line = *b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        line[6..35].copy_from_slice(date);
        out.put(&line);
    }
    match length {
        Length::Omitted | Length::AsSet => {}
        Length::Bytes(bytes) => put_length(bytes, out),
        Length::Chunked => out.put(b"Transfer-Encoding: chunked\r\n"),
    }
    // RFC 9110 §7.8: Upgrade is sent only if Connection lists it.
    out.put(match (persistence, upgrade) {
        (Persistence::Default, false) => b"\r\n",
        (Persistence::Close, false) => b"Connection: close\r\n\r\n",
        (Persistence::KeepAlive, false) => b"Connection: keep-alive\r\n\r\n",
        (Persistence::Default | Persistence::KeepAlive, true) => b"Connection: Upgrade\r\n\r\n",
        (Persistence::Close, true) => b"Connection: close, Upgrade\r\n\r\n",
    });
}

/// Writes an interim response other than 101 (RFC 9110 §15.2).
pub(crate) fn interim(status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
    status_line(status, out);
    put_fields(fields, is_not_ours, out);
    out.put(b"\r\n");
}

/// Writes a Content-Length field.
#[inline]
pub(crate) fn put_length(bytes: u64, out: &mut WriteList) {
    out.put(b"Content-Length: ");
    out.put_number(bytes);
    out.put(b"\r\n");
}

/// Writes a chunk, which must not be empty: an empty one would end the content (RFC 9112 §7.1).
#[inline]
pub(crate) fn put_chunked(chunk: Chunk, out: &mut WriteList) {
    out.put_hex(chunk.len() as u64);
    out.put(b"\r\n");
    out.put_chunk(chunk);
    out.put(b"\r\n");
}

/// Writes the last chunk and the trailer section (RFC 9112 §7.1.2), without the fields that are not allowed there.
pub(crate) fn trailers(fields: &FieldMap, out: &mut WriteList) {
    out.put(b"0\r\n");
    put_fields(fields, |name| name.may_trail(), out);
    out.put(b"\r\n");
}

/// Whether the field is passed through, and not written by the machine itself.
pub(crate) fn is_not_ours(name: NameRef<'_>) -> bool {
    !matches!(name, NameRef::Known(known) if is_ours(known))
}

fn put_fields(fields: &FieldMap, wanted: impl Fn(NameRef<'_>) -> bool, out: &mut WriteList) {
    for (name, value) in fields.iter().filter(|(name, _)| wanted(*name)) {
        out.put_field(name, value);
    }
}

#[inline]
fn status_line(status: StatusCode, out: &mut WriteList) {
    if let Some(line) = status.status_line() {
        return out.put(line.as_bytes());
    }
    out.put(b"HTTP/1.1 ");
    out.put_number(u64::from(status.as_u16()));
    // RFC 9112 §4: the space is required even without a reason phrase.
    out.put(b" \r\n");
}

// Fields that frame the message or describe the connection; the machine writes them itself (RFC 9110 §7.6.1, RFC 9112
// §6).
#[inline]
pub(crate) fn is_ours(name: KnownName) -> bool {
    name == names::CONNECTION
        || name == names::CONTENT_LENGTH
        || name == names::TRANSFER_ENCODING
        || name == names::KEEP_ALIVE
        || name == names::PROXY_CONNECTION
}

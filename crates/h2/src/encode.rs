//! Encoding of heads and trailers as frames (RFC 9113 §6.2, §8).
//!
//! - `head_cache`: a cache for a head that is sent repeatedly

mod head_cache;

use causeway_message::{
    FieldMap, KnownName, NameRef, ResponseHead, StatusCode, WriteList, names, syntax::write_number,
};

use crate::frame::{self, HEADER_LEN, flag, kind};
use crate::head::is_connection_specific;
use crate::hpack::Encoder;

pub(crate) use head_cache::HeadCache;

/// The Content-Length of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// No Content-Length.
    Omitted,
    /// The handler's own Content-Length, if it set one: a response to HEAD.
    AsSet,
    /// Content-Length.
    Bytes(u64),
}

/// Whether the frame ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndStream {
    Stream,
    Open,
}

/// A field block in progress. Its frame header is patched once the length is known.
pub(crate) struct HeadersFrame {
    stream: u32,
    position: usize,
}

impl HeadersFrame {
    #[inline]
    pub(crate) fn begin(stream: u32, out: &mut WriteList) -> Self {
        let position = out.position();
        out.put(&[0; HEADER_LEN]);
        Self { stream, position }
    }

    #[inline]
    pub(crate) fn end(self, end: EndStream, frame_max: u32, out: &mut WriteList) {
        let len = out.copied_len_since(self.position) - HEADER_LEN;
        let flags = if end == EndStream::Stream { flag::END_STREAM } else { 0 };
        if len > frame_max as usize {
            return self.continue_with(flags, frame_max, out);
        }
        out.patch(self.position, &frame::header(len, kind::HEADERS, flags | flag::END_HEADERS, self.stream));
    }

    // RFC 9113 §6.10: splits a block that exceeds one frame into HEADERS and CONTINUATION.
    #[cold]
    fn continue_with(self, flags: u8, frame_max: u32, out: &mut WriteList) {
        // Rare, so the block is cut out and written again with a header per fragment.
        let block = out.cut(self.position);
        let mut fragments = block[HEADER_LEN..].chunks(frame_max as usize).peekable();
        let (mut kind, mut flags) = (kind::HEADERS, flags);
        while let Some(fragment) = fragments.next() {
            if fragments.peek().is_none() {
                flags |= flag::END_HEADERS;
            }
            out.put(&frame::header(fragment.len(), kind, flags, self.stream));
            out.put(fragment);
            (kind, flags) = (kind::CONTINUATION, 0);
        }
    }
}

/// Encodes the fields of a final response.
#[inline]
pub(crate) fn response_head(
    head: &ResponseHead,
    status: StatusCode,
    length: Length,
    date: &[u8; 29],
    encoder: &mut Encoder,
    head_cache: &mut HeadCache,
    out: &mut WriteList,
) {
    if let Some(block) = head_cache.block(head, status, length, date, encoder) {
        return out.put(block);
    }
    // The state is compared after encoding: a block that inserted into the table cannot be repeated.
    let (before, position) = (encoder.state(), out.position());
    put_response(head, status, length, date, encoder, out);
    head_cache.note((head, status, length, date), before, encoder, out.copied_since(position));
}

fn put_response(
    head: &ResponseHead,
    status: StatusCode,
    length: Length,
    date: &[u8; 29],
    encoder: &mut Encoder,
    out: &mut WriteList,
) {
    encoder.status(status, out);
    let mut dated = false;
    for line in head.sendable() {
        if let NameRef::Known(known) = line.name {
            if is_ours(known) && !(known == names::CONTENT_LENGTH && length == Length::AsSet) {
                continue;
            }
            dated |= known == names::DATE;
        }
        encoder.line(line, out);
    }
    if !dated {
        encoder.field(names::DATE, date, out);
    }
    if let Length::Bytes(bytes) = length {
        let mut digits = [0; 20];
        encoder.field(names::CONTENT_LENGTH, write_number(bytes, &mut digits), out);
    }
}

/// Encodes the fields of an interim response (RFC 9110 §15.2).
pub(crate) fn interim(status: StatusCode, fields: &FieldMap, encoder: &mut Encoder, out: &mut WriteList) {
    encoder.status(status, out);
    for line in fields.lines() {
        if !matches!(line.name, NameRef::Known(known) if is_ours(known)) {
            encoder.line(line, out);
        }
    }
}

/// Encodes a trailer section, without the fields that are not allowed there (RFC 9110 §6.5.1).
pub(crate) fn trailers(fields: &FieldMap, encoder: &mut Encoder, out: &mut WriteList) {
    for line in fields.lines() {
        if line.name.may_trail() {
            encoder.line(line, out);
        }
    }
}

// Fields of HTTP/1 connections, TE, which only requests may have (RFC 9113 §8.2.2), and Content-Length, which the
// machine writes itself.
#[inline]
fn is_ours(name: KnownName) -> bool {
    matches!(name, names::CONTENT_LENGTH | names::TE) || is_connection_specific(name)
}

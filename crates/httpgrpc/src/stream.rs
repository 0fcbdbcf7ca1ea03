//! Calls of the streaming method, `causeway.httpgrpc.v1.Stream/HandleStream`: one exchange whose content streams in
//! both directions.
//!
//! ```text
//! request:   head ──► chunk* ──► trailers? ──► end
//! response:  head (1xx)* ──► head ──► chunk* ──► trailers? ──► end
//! ```

mod decode;

use causeway_message::{FieldMap, Head, NameRef, StatusCode, names};

use crate::encode::framed;
use crate::error::TooLong;
use crate::fields;
use crate::limits::MESSAGE_BYTES_DEFAULT;
use crate::wire::{field_len, put_bytes, put_len, put_number, put_some, varint_len};

pub use decode::{RequestStreamDecoder, ResponseStreamDecoder, StreamDecoder, StreamPart};

/// Numbers of the parts in a frame.
mod part {
    pub(super) const REQUEST: u32 = 1;
    pub(super) const RESPONSE: u32 = 2;
    pub(super) const CHUNK: u32 = 3;
    pub(super) const TRAILERS: u32 = 4;
}

mod request_field {
    pub(super) const METHOD: u32 = 1;
    pub(super) const URL: u32 = 2;
    pub(super) const HEADERS: u32 = 3;
    pub(super) const AUTHORITY: u32 = 4;
}

mod response_field {
    pub(super) const CODE: u32 = 1;
    pub(super) const HEADERS: u32 = 2;
}

const TRAILERS_HEADERS: u32 = 1;

/// Bytes of content in one frame: with its tag and length, a message within every receiver's default limit.
pub const CHUNK_BYTES_MAX: u64 = MESSAGE_BYTES_DEFAULT as u64 - 1 - varint_len(MESSAGE_BYTES_DEFAULT as u64);

/// Appends a frame with a request head to `out`. Overwrites `scratch`.
///
/// # Errors
/// [`TooLong`] if the frame exceeds 4 GiB; `out` is then unchanged.
pub fn encode_request_head(head: &Head, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    scratch.clear();
    put_some(request_field::METHOD, head.method().as_str().as_bytes(), scratch);
    put_some(request_field::URL, head.target().as_str().as_bytes(), scratch);
    fields::put(request_field::HEADERS, head.fields(), |name| name == NameRef::Known(names::HOST), scratch);
    put_some(request_field::AUTHORITY, head.fields().get(names::HOST).unwrap_or_default(), scratch);
    framed(out, 0, |out| put_bytes(part::REQUEST, scratch, out))
}

/// Appends a frame with a response head to `out`; after a 1xx status another head must follow. Overwrites `scratch`.
///
/// # Errors
/// As [`encode_request_head`].
pub fn encode_response_head(
    status: StatusCode,
    fields: &FieldMap,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    scratch.clear();
    put_number(response_field::CODE, u64::from(status.as_u16()), scratch);
    fields::put(response_field::HEADERS, fields, |_| false, scratch);
    framed(out, 0, |out| put_bytes(part::RESPONSE, scratch, out))
}

/// Appends the bytes of a frame before its content to `out`; the caller then sends exactly `bytes` bytes of content.
///
/// # Errors
/// [`TooLong`] beyond [`CHUNK_BYTES_MAX`]: split the content into several frames; `out` is then unchanged.
pub fn encode_chunk(bytes: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    if bytes > CHUNK_BYTES_MAX {
        return Err(TooLong);
    }
    debug_assert!(field_len(bytes) <= u64::from(MESSAGE_BYTES_DEFAULT));
    framed(out, bytes, |out| put_len(part::CHUNK, bytes, out))
}

/// Appends a frame with trailers to `out`. Overwrites `scratch`.
///
/// # Errors
/// As [`encode_request_head`].
pub fn encode_trailers(fields: &FieldMap, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    scratch.clear();
    fields::put(TRAILERS_HEADERS, fields, |_| false, scratch);
    framed(out, 0, |out| put_bytes(part::TRAILERS, scratch, out))
}

//! Calls of our own service, `causeway.httpgrpc.v1.Stream/HandleStream`: an exchange whose content streams in both directions.
//!
//! ```text
//! request:   head ──► chunk* ──► trailers? ──► end
//! response:  head (1xx)* ──► head ──► chunk* ──► trailers? ──► end
//! ```

mod decode;

use causeway_message::{FieldMap, Head, NameRef, StatusCode, names};

use crate::encode::framed;
use crate::fault::TooLong;
use crate::fields;
use crate::limits::MESSAGE_BYTES_DEFAULT;
use crate::wire::{field_len, put_len, put_number, put_octets, put_some, varint_len};

pub use decode::{Part, RequestStreamDecoder, ResponseStreamDecoder, StreamDecoder};

/// The parts' numbers in a frame.
mod part {
    pub(super) const REQUEST: u8 = 1;
    pub(super) const RESPONSE: u8 = 2;
    pub(super) const CHUNK: u8 = 3;
    pub(super) const TRAILERS: u8 = 4;
}

mod request_field {
    pub(super) const METHOD: u8 = 1;
    pub(super) const URL: u8 = 2;
    pub(super) const HEADERS: u8 = 3;
    pub(super) const AUTHORITY: u8 = 4;
}

mod response_field {
    pub(super) const CODE: u8 = 1;
    pub(super) const HEADERS: u8 = 2;
}

const TRAILERS_HEADERS: u8 = 1;

/// Octets that one frame of content may hold: with its tag and length, a message that every receiver takes.
pub const CHUNK_BYTES_MAX: u64 = MESSAGE_BYTES_DEFAULT as u64 - 1 - varint_len(MESSAGE_BYTES_DEFAULT as u64);

/// Puts a request's head behind what `out` holds. `scratch` is cleared and used.
///
/// # Errors
/// [`TooLong`] when it passes 4 GiB; `out` is as it was.
pub fn encode_request_head(head: &Head, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    scratch.clear();
    put_some(request_field::METHOD, head.method().as_str().as_bytes(), scratch);
    put_some(request_field::URL, head.target().as_str().as_bytes(), scratch);
    fields::put(request_field::HEADERS, head.fields(), |name| name == NameRef::Known(names::HOST), scratch);
    put_some(request_field::AUTHORITY, head.fields().get(names::HOST).unwrap_or_default(), scratch);
    framed(out, 0, |out| put_octets(part::REQUEST, scratch, out))
}

/// Puts a response's head behind what `out` holds; with a status of 1xx another one is to follow. `scratch` is cleared and used.
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
    framed(out, 0, |out| put_octets(part::RESPONSE, scratch, out))
}

/// Puts what stands before a piece of content behind what `out` holds; exactly `octets` of content are to follow.
///
/// # Errors
/// [`TooLong`] past [`CHUNK_BYTES_MAX`]: the piece is to be sent as several; `out` is as it was.
pub fn encode_chunk(octets: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    if octets > CHUNK_BYTES_MAX {
        return Err(TooLong);
    }
    debug_assert!(field_len(octets) <= u64::from(MESSAGE_BYTES_DEFAULT));
    framed(out, octets, |out| put_len(part::CHUNK, octets, out))
}

/// Puts trailers behind what `out` holds. `scratch` is cleared and used.
///
/// # Errors
/// As [`encode_request_head`].
pub fn encode_trailers(fields: &FieldMap, scratch: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<(), TooLong> {
    scratch.clear();
    fields::put(TRAILERS_HEADERS, fields, |_| false, scratch);
    framed(out, 0, |out| put_octets(part::TRAILERS, scratch, out))
}

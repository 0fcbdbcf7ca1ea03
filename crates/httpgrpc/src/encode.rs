//! Encodes the bytes before a message's content: gRPC's prefix, the head, and the content's length.
//!
//! The content itself is not passed through the encoder: the sender appends it by reference.

use causeway_message::{FieldMap, Head, NameRef, StatusCode, names};

use crate::decode::{request_field, response_field};
use crate::error::TooLong;
use crate::error_response::is_control;
use crate::fields;
use crate::messages::PREFIX_BYTES;
use crate::wire::{put_len, put_number, put_some};

/// Appends a request without its content to `out`; the caller then sends exactly `body_bytes` bytes of content. Omits
/// Host and the fields of the connection, for which a message has no place. O(bytes), and O(fields²) in unregistered
/// names.
///
/// # Errors
/// [`TooLong`] if message and content exceed 4 GiB; `out` is then unchanged.
pub fn encode_request(head: &Head, body_bytes: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    framed(out, body_bytes, |out| {
        put_some(request_field::METHOD, head.method().as_str().as_bytes(), out);
        put_some(request_field::URL, head.target().as_str().as_bytes(), out);
        fields::put(request_field::HEADERS, head.fields(), |name| name == NameRef::Known(names::HOST), out);
        if body_bytes > 0 {
            // The body is the last field, so its bytes can follow without being copied here.
            put_len(request_field::BODY, body_bytes, out);
        }
    })
}

/// Appends a response without its content to `out`; the caller then sends exactly `body_bytes` bytes of content.
/// Omits the fields of the connection, and those that control dskit's server
/// ([`ERROR_MESSAGE`](crate::ERROR_MESSAGE), [`DO_NOT_LOG_ERROR`](crate::DO_NOT_LOG_ERROR)). Cost as
/// [`encode_request`].
///
/// # Errors
/// As [`encode_request`].
pub fn encode_response(
    status: StatusCode,
    fields: &FieldMap,
    body_bytes: u64,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    framed(out, body_bytes, |out| put_response(status, fields, body_bytes, out))
}

/// Appends a response without prefix and content.
pub(crate) fn put_response(status: StatusCode, fields: &FieldMap, body_bytes: u64, out: &mut Vec<u8>) {
    put_number(response_field::CODE, u64::from(status.as_u16()), out);
    fields::put(response_field::HEADERS, fields, is_control, out);
    if body_bytes > 0 {
        put_len(response_field::BODY, body_bytes, out);
    }
}

/// Appends the prefix and the output of `put`. The length in the prefix includes the `behind` bytes that the caller
/// sends afterwards.
pub(crate) fn framed(out: &mut Vec<u8>, behind: u64, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let at = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    put(out);
    let bytes = (out.len() - at - PREFIX_BYTES) as u64;
    let Some(bytes) = bytes.checked_add(behind).and_then(|bytes| u32::try_from(bytes).ok()) else {
        // Leave `out` unchanged: the caller can still send another response.
        out.truncate(at);
        return Err(TooLong);
    };
    out[at + 1..at + PREFIX_BYTES].copy_from_slice(&bytes.to_be_bytes());
    Ok(())
}

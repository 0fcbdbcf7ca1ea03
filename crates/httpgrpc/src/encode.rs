//! What stands before a message's content: gRPC's prefix, the head, and how long the content is.
//!
//! The content itself is not touched: whoever sends puts it behind, by reference.

use causeway_message::{FieldMap, Head, NameRef, StatusCode, names};

use crate::decode::{request_field, response_field};
use crate::error::is_control;
use crate::fault::TooLong;
use crate::fields;
use crate::messages::PREFIX_BYTES;
use crate::wire::{put_len, put_number, put_some};

/// Puts everything of a request but its content behind what `out` holds; exactly `body_octets` of content are to follow. Host and fields of a
/// connection are left out: a message has no place for them. O(octets), and O(fields²) in names that are not registered.
///
/// # Errors
/// [`TooLong`] when message and content pass 4 GiB; `out` is as it was.
pub fn encode_request(head: &Head, body_octets: u64, out: &mut Vec<u8>) -> Result<(), TooLong> {
    framed(out, body_octets, |out| {
        put_some(request_field::METHOD, head.method().as_str().as_bytes(), out);
        put_some(request_field::URL, head.target().as_str().as_bytes(), out);
        fields::put(request_field::HEADERS, head.fields(), |name| name == NameRef::Known(names::HOST), out);
        if body_octets > 0 {
            put_len(request_field::BODY, body_octets, out);
        }
    })
}

/// Puts everything of a response but its content behind what `out` holds; exactly `body_octets` of content are to follow. Fields of a connection are
/// left out, and those that speak to dskit's server ([`ERROR_MESSAGE`](crate::ERROR_MESSAGE),
/// [`DO_NOT_LOG_ERROR`](crate::DO_NOT_LOG_ERROR)). Cost as [`encode_request`].
///
/// # Errors
/// As [`encode_request`].
pub fn encode_response(
    status: StatusCode,
    fields: &FieldMap,
    body_octets: u64,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    framed(out, body_octets, |out| put_response(status, fields, body_octets, out))
}

/// A response without the prefix and the content.
pub(crate) fn put_response(status: StatusCode, fields: &FieldMap, body_octets: u64, out: &mut Vec<u8>) {
    put_number(response_field::CODE, u64::from(status.as_u16()), out);
    fields::put(response_field::HEADERS, fields, is_control, out);
    if body_octets > 0 {
        put_len(response_field::BODY, body_octets, out);
    }
}

/// Puts the prefix before what `put` puts; `behind` octets of the message follow.
pub(crate) fn framed(out: &mut Vec<u8>, behind: u64, put: impl FnOnce(&mut Vec<u8>)) -> Result<(), TooLong> {
    let at = out.len();
    out.extend_from_slice(&[0; PREFIX_BYTES]);
    put(out);
    let octets = (out.len() - at - PREFIX_BYTES) as u64;
    let Some(octets) = octets.checked_add(behind).and_then(|octets| u32::try_from(octets).ok()) else {
        out.truncate(at);
        return Err(TooLong);
    };
    out[at + 1..at + PREFIX_BYTES].copy_from_slice(&octets.to_be_bytes());
    Ok(())
}

#![doc = include_str!("../README.md")]
//!
//! `httpgrpc.HTTP/Handle` is the unary method, `causeway.httpgrpc.v1.Stream/HandleStream` the streaming one.
//!
//! # In reading order
//! - [`Limits`]; [`DecodeError`], [`TooLong`]: the limits of decoded messages, and the errors
//! - `wire`, `field_parser`: the protobuf wire format, of complete messages and incrementally
//! - `messages`, `gzip`, [`Encoding`]: gRPC's message prefix, and compressed messages
//! - `fields`: converts message headers to fields and back; [`Body`]: content that is referenced, not copied
//! - [`Decoder`], [`encode_request`], [`encode_response`]: unary calls
//! - [`Code`], [`Status`]: the status of a call; [`ErrorEncoder`], [`decode_error`]: a response as the call's error
//! - [`StreamDecoder`], [`stream`]: calls of the streaming method
//! - [`timeout`][]: the field `grpc-timeout`
//!
//! All input is untrusted: a decoded head has passed the checks of a head received over HTTP/1. This crate never sees
//! a socket, a clock, a task or a lock.

mod body;
mod decode;
mod encode;
mod error;
mod error_response;
mod field_parser;
mod fields;
mod gzip;
mod limits;
mod messages;
mod status;
pub mod stream;
pub mod timeout;
mod wire;

pub use body::{Blocks, Body};
pub use decode::{DecodeProgress, Decoder, Request, RequestDecoder, Response, ResponseDecoder};
pub use encode::{encode_request, encode_response};
pub use error::{DecodeError, TooLong};
pub use error_response::{DO_NOT_LOG_ERROR, ERROR_MESSAGE, ErrorEncoder, decode_error, is_error};
pub use limits::{FIELDS_DEFAULT, HEAD_BYTES_DEFAULT, Limits, MESSAGE_BYTES_DEFAULT, TARGET_BYTES_DEFAULT};
pub use messages::{ACCEPTED_ENCODINGS, Encoding};
pub use status::{Code, DETAILS, Status};
pub use stream::StreamDecoder;

/// The path of the unary method.
pub const UNARY_PATH: &str = "/httpgrpc.HTTP/Handle";
/// The path of the streaming method.
pub const STREAM_PATH: &str = "/causeway.httpgrpc.v1.Stream/HandleStream";
/// The media type of our calls and responses.
pub const CONTENT_TYPE: &str = "application/grpc";
/// Metadata in which a client may repeat the request's method, for intermediaries that do not decode messages.
pub const METADATA_METHOD: &str = "httpgrpc-method";
/// Metadata in which a client may repeat the request's target.
pub const METADATA_URL: &str = "httpgrpc-url";

/// Returns whether a Content-Type is gRPC with protobuf messages: `application/grpc`, optionally with `+proto` and
/// parameters.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some((start, rest)) = content_type.split_at_checked(CONTENT_TYPE.len()) else { return false };
    let subtype = rest.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii_end();
    start.eq_ignore_ascii_case(CONTENT_TYPE.as_bytes())
        // Not `application/grpc-web` or `application/grpcx`, which only share the prefix.
        && (subtype.is_empty() || subtype.eq_ignore_ascii_case(b"+proto"))
}

#[cfg(test)]
mod tests {
    use super::is_grpc;

    // gRPC over HTTP/2, "Content-Type".
    #[test]
    fn media_types_of_grpc() {
        for (value, want) in [
            ("application/grpc", true),
            ("Application/GRPC+proto", true),
            ("application/grpc ; charset=utf-8", true),
            ("application/grpc+proto;x=y", true),
            ("application/grpc+json", false),
            ("application/grpc-web", false),
            ("application/grpcx", false),
            ("application/grp", false),
            ("", false),
        ] {
            assert_eq!(is_grpc(value.as_bytes()), want, "{value}");
        }
    }
}

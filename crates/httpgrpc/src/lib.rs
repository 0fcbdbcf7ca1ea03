//! HTTP in protobuf in gRPC: how programs of the Grafana stack carry HTTP requests over gRPC connections (`httpgrpc.HTTP/Handle` of dskit and
//! weaveworks), and a service of our own that streams content (`causeway.httpgrpc.v1.Stream/HandleStream`). The messages stand in `proto/`.
//!
//! In reading order:
//! - [`Limits`]; [`DecodeFault`], [`TooLong`]: what may be sent, and what is wrong
//! - `wire`, `walk`: protobuf, at hand and in pieces
//! - `messages`, `gzip`, [`Encoding`]: gRPC's prefix, and compressed messages
//! - `fields`: headers ⇄ fields; [`Body`]: content that is held, not copied
//! - [`Decoder`], [`encode_request`], [`encode_response`]: unary calls
//! - [`Code`], [`Status`]: how a call ends; [`ErrorEncoder`], [`decode_error`]: a response as the call's error
//! - [`StreamDecoder`], [`stream`]: calls of our own service
//! - [`timeout`][]: the field `grpc-timeout`
//!
//! Nothing that a peer says is believed: what stands in a head is as good as if it had come over HTTP/1. This room never sees a socket, a clock, a
//! task or a lock.

mod body;
mod decode;
mod encode;
mod error;
mod fault;
mod fields;
mod gzip;
mod limits;
mod messages;
mod status;
pub mod stream;
pub mod timeout;
mod walk;
mod wire;

pub use body::{Blocks, Body};
pub use decode::{Decoder, Request, RequestDecoder, Response, ResponseDecoder, Turn};
pub use encode::{encode_request, encode_response};
pub use error::{DO_NOT_LOG_ERROR, ERROR_MESSAGE, ErrorEncoder, decode_error, is_error};
pub use fault::{DecodeFault, TooLong};
pub use limits::{FIELDS_DEFAULT, HEAD_BYTES_DEFAULT, Limits, MESSAGE_BYTES_DEFAULT, TARGET_BYTES_DEFAULT};
pub use messages::{ACCEPTED_ENCODINGS, Encoding};
pub use status::{Code, DETAILS, Status};
pub use stream::StreamDecoder;

/// The path of the unary method.
pub const UNARY_PATH: &str = "/httpgrpc.HTTP/Handle";
/// The path of the streaming method.
pub const STREAM_PATH: &str = "/causeway.httpgrpc.v1.Stream/HandleStream";
/// The media type that our calls and answers have.
pub const CONTENT_TYPE: &str = "application/grpc";
/// Metadata in which a client may repeat the request's method, for whoever does not look into messages.
pub const METADATA_METHOD: &str = "httpgrpc-method";
/// Metadata in which a client may repeat the request's target.
pub const METADATA_URL: &str = "httpgrpc-url";

/// Whether a Content-Type says gRPC with protobuf messages: `application/grpc`, perhaps `+proto`, perhaps with parameters.
#[must_use]
pub fn is_grpc(content_type: &[u8]) -> bool {
    let Some((start, rest)) = content_type.split_at_checked(CONTENT_TYPE.len()) else { return false };
    let subtype = rest.split(|&octet| octet == b';').next().unwrap_or_default().trim_ascii_end();
    start.eq_ignore_ascii_case(CONTENT_TYPE.as_bytes())
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

//! Errors of the codec.

use std::fmt;

use crate::status::{Code, Status};

/// A fault in the input of a peer. It fails its call only, which ends with [`DecodeError::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecodeError {
    /// A message exceeds the limit, by its prefix; none of it was read.
    MessageTooLong {
        /// The length in the prefix, in bytes.
        bytes: u32,
        /// The limit, in bytes.
        max: u32,
    },
    /// A compressed message exceeds the limit after decompression.
    InflatedTooLong {
        /// The limit, in bytes.
        max: u32,
    },
    /// Method, target and fields together exceed the limit.
    HeadTooLong,
    /// The number of fields exceeds the limit.
    TooManyFields,
    /// The target exceeds the limit.
    TargetTooLong,
    /// The compressed flag is neither 0 nor 1.
    Flag(u8),
    /// A compressed message, in a call without `grpc-encoding`.
    NoEncoding,
    /// A compressed message, in a call with an encoding other than gzip.
    UnknownEncoding,
    /// A compressed message that is not valid gzip (RFC 1952).
    Gzip,
    /// The call ended within a message.
    Truncated,
    /// The call ended without a message.
    NoMessage,
    /// A second message where one was expected.
    SecondMessage,
    /// A number exceeds 64 bits, or is truncated.
    Varint,
    /// An invalid field number, or a wire type that is unknown or a group.
    Tag,
    /// A known field has the wrong wire type.
    WireType(u32),
    /// A field is longer than the message that contains it.
    Length,
    /// The method is not a token, is too long, or is CONNECT, which needs a connection.
    Method,
    /// The target is invalid, or its form does not match the method (RFC 9112 §3.2).
    Target,
    /// A field name is empty or not a token (RFC 9110 §5.1).
    FieldName,
    /// A field value contains a control byte (RFC 9110 §5.5).
    FieldValue,
    /// There is more than one host, or an invalid `host[:port]` (RFC 9110 §7.2).
    Host,
    /// The status is missing, or outside of 200 to 999.
    StatusCode,
    /// Content-Length is not a number, occurs twice, or differs from the content's length (RFC 9110 §8.6).
    ContentLength,
    /// A frame of a stream is out of order, or contains more than one part.
    Order,
}

impl DecodeError {
    /// Returns the code of the failed call. A server sends it; a client treats it as the server's status (gRPC's
    /// `statuscodes.md`).
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::MessageTooLong { .. }
            | Self::InflatedTooLong { .. }
            | Self::HeadTooLong
            | Self::TooManyFields
            | Self::TargetTooLong => Code::RESOURCE_EXHAUSTED,
            Self::UnknownEncoding | Self::NoMessage | Self::SecondMessage => Code::UNIMPLEMENTED,
            Self::Method | Self::Target | Self::FieldName | Self::FieldValue | Self::Host | Self::ContentLength => {
                Code::INVALID_ARGUMENT
            }
            Self::Flag(_)
            | Self::NoEncoding
            | Self::Gzip
            | Self::Truncated
            | Self::Varint
            | Self::Tag
            | Self::WireType(_)
            | Self::Length
            | Self::StatusCode
            | Self::Order => Code::INTERNAL,
        }
    }

    /// Returns the code with a message. Allocates.
    #[must_use]
    pub fn status(self) -> Status {
        Status::new(self.code(), self.to_string())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageTooLong { bytes, max } => write!(f, "a message of {bytes} bytes exceeds the limit of {max}"),
            Self::InflatedTooLong { max } => write!(f, "an inflated message exceeds the limit of {max} bytes"),
            Self::HeadTooLong => f.write_str("method, target and fields are too long"),
            Self::TooManyFields => f.write_str("too many fields"),
            Self::TargetTooLong => f.write_str("the target is too long"),
            Self::Flag(flag) => write!(f, "the compressed flag is {flag}, expected 0 or 1"),
            Self::NoEncoding => f.write_str("a compressed message without grpc-encoding"),
            Self::UnknownEncoding => f.write_str("grpc-encoding is unknown, expected gzip or identity"),
            Self::Gzip => f.write_str("a compressed message is not valid gzip"),
            Self::Truncated => f.write_str("the call ended within a message"),
            Self::NoMessage => f.write_str("the call ended without a message"),
            Self::SecondMessage => f.write_str("a second message, expected one"),
            Self::Varint => f.write_str("protobuf: a number is truncated or exceeds 64 bits"),
            Self::Tag => f.write_str("protobuf: invalid field number or wire type"),
            Self::WireType(field) => write!(f, "protobuf: field {field} has the wrong wire type"),
            Self::Length => f.write_str("protobuf: a field is longer than the message that contains it"),
            Self::Method => f.write_str("the method is invalid or not supported"),
            Self::Target => f.write_str("the url is not a request target"),
            Self::FieldName => f.write_str("a header's key is not a field name"),
            Self::FieldValue => f.write_str("a header's value contains a control byte"),
            Self::Host => f.write_str("more than one host, or an invalid host"),
            Self::StatusCode => f.write_str("the code is not a final HTTP status"),
            Self::ContentLength => f.write_str("Content-Length is not the content's length"),
            Self::Order => f.write_str("a frame of the stream is out of order"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// The output exceeds a limit: 4 GiB for a message, the limit of the trailers for an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too long to be sent")
    }
}

impl std::error::Error for TooLong {}

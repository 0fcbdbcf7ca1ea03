//! What a peer can do wrong, and what it is told.

use std::fmt;

use crate::status::{Code, Status};

/// A mistake in what the peer sent. Each reaches as far as its call: the call ends with [`DecodeFault::status`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DecodeFault {
    /// A message longer than the limit; said by its prefix, before anything of it was read.
    MessageTooLong {
        /// What the prefix says.
        octets: u32,
        /// What is allowed.
        max: u32,
    },
    /// A compressed message that is longer than the limit when it is inflated.
    InflatedTooLong {
        /// What is allowed.
        max: u32,
    },
    /// Method, target and fields are longer than the limit.
    HeadTooLong,
    /// More fields than the limit.
    TooManyFields,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The compressed flag is neither 0 nor 1.
    Flag(u8),
    /// A compressed message of a call that named no encoding.
    NoEncoding,
    /// A compressed message of a call that named an encoding other than gzip.
    UnknownEncoding,
    /// A compressed message that is no gzip (RFC 1952).
    Gzip,
    /// The call ended within a message.
    Truncated,
    /// The call ended without a message.
    NoMessage,
    /// A second message where one was expected.
    SecondMessage,
    /// A number of more than 64 bits, or cut off.
    Varint,
    /// A field number that is none, or a wire type that is unknown or a group.
    Tag,
    /// A field of another type than it has.
    WireType(u32),
    /// A field that is longer than what holds it.
    Length,
    /// A method that is no token, is longer than any there is, or is CONNECT, which needs a connection.
    Method,
    /// A target that is none, or whose form does not go with the method (RFC 9112 §3.2).
    Target,
    /// A field name that is empty or no token (RFC 9110 §5.1).
    FieldName,
    /// A control octet in a field value (RFC 9110 §5.5).
    FieldValue,
    /// More than one host, or one that is no `host[:port]` (RFC 9110 §7.2).
    Host,
    /// A status outside 200 to 999, or none.
    StatusCode,
    /// A Content-Length that is no number, is there twice, or is not what came (RFC 9110 §8.6).
    ContentLength,
    /// A frame of a stream that may not stand there, or that holds more than one part.
    Order,
}

impl DecodeFault {
    /// What the call ends with. A server sends it; a client takes it for the server's answer (gRPC's `statuscodes.md`).
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

    /// The code with what was wrong. Allocates.
    #[must_use]
    pub fn status(self) -> Status {
        Status::new(self.code(), self.to_string())
    }
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageTooLong { octets, max } => write!(f, "a message of {octets} octets, where {max} are allowed"),
            Self::InflatedTooLong { max } => write!(f, "an inflated message of more than the {max} octets allowed"),
            Self::HeadTooLong => f.write_str("method, target and fields are too long"),
            Self::TooManyFields => f.write_str("too many fields"),
            Self::TargetTooLong => f.write_str("the target is too long"),
            Self::Flag(flag) => write!(f, "the compressed flag is {flag}, expected 0 or 1"),
            Self::NoEncoding => f.write_str("a compressed message without grpc-encoding"),
            Self::UnknownEncoding => f.write_str("grpc-encoding is unknown, expected gzip or identity"),
            Self::Gzip => f.write_str("a compressed message is no gzip"),
            Self::Truncated => f.write_str("the call ended within a message"),
            Self::NoMessage => f.write_str("the call ended without a message"),
            Self::SecondMessage => f.write_str("a second message, expected one"),
            Self::Varint => f.write_str("protobuf: a number that does not end or has more than 64 bits"),
            Self::Tag => f.write_str("protobuf: a field number or wire type that is none"),
            Self::WireType(field) => write!(f, "protobuf: field {field} has another wire type than it should"),
            Self::Length => f.write_str("protobuf: a field is longer than what holds it"),
            Self::Method => f.write_str("the method is none that can be served here"),
            Self::Target => f.write_str("the url is no request target"),
            Self::FieldName => f.write_str("a header's key is no field name"),
            Self::FieldValue => f.write_str("a header's value holds a control octet"),
            Self::Host => f.write_str("more than one host, or one that is no host and port"),
            Self::StatusCode => f.write_str("the code is no final HTTP status"),
            Self::ContentLength => f.write_str("Content-Length is not the content's length"),
            Self::Order => f.write_str("a frame of the stream that may not stand there"),
        }
    }
}

impl std::error::Error for DecodeFault {}

/// What was to be sent does not fit: a message ends at 4 GiB, and an error at what the trailers may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("too long to be sent")
    }
}

impl std::error::Error for TooLong {}

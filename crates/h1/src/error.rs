//! The protocol errors that a peer can cause.

use std::error::Error;
use std::fmt;

use causeway_message::StatusCode;

/// A protocol violation by the peer. A server sends one error response and closes the connection; a client closes at
/// once: the start of the next message is unknown or cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The method is not a token, or is not followed by exactly one space.
    Method,
    /// The method is longer than any implemented one (RFC 9112 §3).
    MethodTooLong,
    /// The target is invalid, or its form does not fit the method (RFC 9112 §3.2).
    Target,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The request line does not end in one space, `HTTP/` digit `.` digit, CR LF.
    RequestLine,
    /// A major version other than 1.
    Version,
    /// A CR or LF that is not part of a line end (RFC 9112 §2.2).
    LineEnd,
    /// A field name that is empty or not a token, or white space before the colon (RFC 9112 §5.1).
    FieldName,
    /// A control byte in a field value (RFC 9110 §5.5).
    FieldValue,
    /// A line that begins with white space (RFC 9112 §5.2).
    Folded,
    /// More fields than the limit.
    TooManyFields,
    /// A head longer than the limit.
    HeadTooLong,
    /// No Host in HTTP/1.1, or more than one (RFC 9112 §3.2).
    HostCount,
    /// A Host that is not `host[:port]`.
    HostValue,
    /// A Content-Length that is not a number below 2^63, or more than one (RFC 9112 §6.3).
    ContentLength,
    /// A Transfer-Encoding that does not end in exactly one `chunked`, or that is sent in HTTP/1.0 (RFC 9112 §6.1).
    TransferEncoding,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    TransferCoding,
    /// Both Content-Length and Transfer-Encoding (RFC 9112 §6.1).
    LengthAndCoding,
    /// An expectation other than 100-continue (RFC 9110 §10.1.1).
    Expectation,
    /// A chunk size that is not hexadecimal, has more than 64 digits or is 2^63 or more (RFC 9112 §7.1).
    ChunkSize,
    /// A control byte in a chunk extension, or extensions longer than the limit (RFC 9112 §7.1.1).
    ChunkExtension,
    /// A chunk's data is not followed by CR LF.
    ChunkEnd,
    /// A trailer section longer than the limit.
    TrailersTooLong,
    /// A head that began and was not completed before the deadline.
    TooSlow,
    /// The peer closed the connection within a message (RFC 9112 §8).
    Truncated,
    /// A status line that is not `HTTP/` digit `.` digit, a space, three digits from 100 on, and an optional reason
    /// phrase (RFC 9112 §4).
    StatusLine,
    /// More interim responses than the limit.
    TooManyInterims,
    /// A 101 response to a request that offered no upgrade (RFC 9110 §7.8).
    Switch,
    /// Bytes received while no request is open.
    Unsolicited,
}

impl ProtocolError {
    /// The status of a server's error response (RFC 9110 §15.5, §15.6). A proxy maps a fault of its upstream to 502
    /// or 504 instead.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::TargetTooLong => StatusCode::URI_TOO_LONG,
            Self::TooManyFields | Self::HeadTooLong | Self::TrailersTooLong => StatusCode::FIELDS_TOO_LARGE,
            Self::Expectation => StatusCode::EXPECTATION_FAILED,
            Self::TransferCoding | Self::MethodTooLong => StatusCode::NOT_IMPLEMENTED,
            Self::Version => StatusCode::VERSION_NOT_SUPPORTED,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// A short description of the fault, for a log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Method => "an invalid method",
            Self::MethodTooLong => "a method that is too long",
            Self::Target => "an invalid target",
            Self::TargetTooLong => "a target that is too long",
            Self::RequestLine => "an invalid request line",
            Self::Version => "another version than HTTP/1",
            Self::LineEnd => "a line end other than CR LF",
            Self::FieldName => "an invalid field name, or a space before its colon",
            Self::FieldValue => "a control character in a field value",
            Self::Folded => "a line that begins with white space",
            Self::TooManyFields => "too many fields",
            Self::HeadTooLong => "a head that is too long",
            Self::HostCount => "no Host, or several",
            Self::HostValue => "an invalid Host",
            Self::ContentLength => "an invalid Content-Length, or several",
            Self::TransferEncoding => "an invalid Transfer-Encoding",
            Self::TransferCoding => "a transfer coding other than chunked",
            Self::LengthAndCoding => "both Content-Length and Transfer-Encoding",
            Self::Expectation => "an unknown expectation",
            Self::ChunkSize => "an invalid chunk size",
            Self::ChunkExtension => "an invalid chunk extension",
            Self::ChunkEnd => "a chunk of another length than its size",
            Self::TrailersTooLong => "trailers that are too long",
            Self::TooSlow => "a head that did not arrive in time",
            Self::Truncated => "the connection ended within a message",
            Self::StatusLine => "an invalid status line",
            Self::TooManyInterims => "too many interim responses",
            Self::Switch => "a switch of protocols that was not offered",
            Self::Unsolicited => "bytes without a request",
        }
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl Error for ProtocolError {}

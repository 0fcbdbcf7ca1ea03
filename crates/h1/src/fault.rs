//! What a peer can do wrong.

use causeway_message::StatusCode;

/// How far a fault reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The connection: where the next message begins is not known, or not to be trusted.
    Connection,
}

/// A breach of the protocol by the peer. A server answers it once, then the connection closes; a client closes at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeadFault {
    /// The method is no token, or does not end in one space.
    Method,
    /// The method is longer than any there is (RFC 9112 §3).
    MethodTooLong,
    /// The target is no target, or its form does not go with the method (RFC 9112 §3.2).
    Target,
    /// The target is longer than the limit.
    TargetTooLong,
    /// The request line does not end in one space, `HTTP/` digit `.` digit, CR LF.
    RequestLine,
    /// Another major version than 1.
    Version,
    /// CR or LF that is not part of a line end (RFC 9112 §2.2).
    LineEnd,
    /// A field name that is empty or no token, or white space before its colon (RFC 9112 §5.1).
    FieldName,
    /// A control octet in a field value (RFC 9110 §5.5).
    FieldValue,
    /// A line that begins with white space (RFC 9112 §5.2).
    Folded,
    /// More fields than the limit.
    TooManyFields,
    /// A head longer than the limit.
    HeadTooLong,
    /// No Host in HTTP/1.1, or more than one (RFC 9112 §3.2).
    HostCount,
    /// A Host that is no `host[:port]`.
    HostValue,
    /// A Content-Length that is no number, or more than one (RFC 9112 §6.3).
    ContentLength,
    /// Transfer-Encoding that does not end in exactly one `chunked`, or in HTTP/1.0 (RFC 9112 §6.1).
    TransferEncoding,
    /// A transfer coding other than chunked (RFC 9112 §6.1).
    TransferCoding,
    /// Both Content-Length and Transfer-Encoding (RFC 9112 §6.1).
    LengthAndCoding,
    /// An expectation other than 100-continue (RFC 9110 §10.1.1).
    Expectation,
    /// A chunk size that is none, or past 64 bits (RFC 9112 §7.1).
    ChunkSize,
    /// A control octet in a chunk extension, or more of them than the limit (RFC 9112 §7.1.1).
    ChunkExtension,
    /// A chunk that does not end in CR LF where its size says.
    ChunkEnd,
    /// A trailer section longer than the limit.
    TrailersTooLong,
    /// A head that was begun and not completed in time.
    TooSlow,
    /// The peer closed within a message (RFC 9112 §8).
    Truncated,
    /// An answer that does not begin with `HTTP/` digit `.` digit, a space, three digits from 100 on, and a reason phrase or none
    /// (RFC 9112 §4).
    StatusLine,
    /// More answers before the answer than the limit.
    TooManyInformational,
    /// A 101 that nobody asked for (RFC 9110 §7.8).
    Switch,
    /// Octets that answer no request.
    Unasked,
}

impl HeadFault {
    /// The status of a server's one answer (RFC 9110 §15.5, §15.6); who asked a server in vain is told 502, or 504.
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

    /// How far it reaches: HTTP/1 has nothing smaller than the connection.
    #[must_use]
    pub const fn scope(self) -> Scope {
        Scope::Connection
    }
}

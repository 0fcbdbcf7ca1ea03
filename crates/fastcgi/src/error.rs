//! The protocol errors that an application can cause.

/// A violation of the protocol by the application, or its refusal of the request. Each one ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FastCgiError {
    /// A record of another version of the protocol (§3.3).
    Version,
    /// A record of a type that only a web server sends, or of an unknown type in a request (§8).
    RecordType,
    /// A record of a request that is not open (§3.3).
    RequestId,
    /// An END_REQUEST record that is not 8 bytes long (§5.5).
    EndRequest,
    /// The application rejects the request for lack of a resource: FCGI_OVERLOADED (§5.5).
    Overloaded,
    /// The application rejects the request for another reason: FCGI_CANT_MPX_CONN, FCGI_UNKNOWN_ROLE, or an unknown
    /// one (§5.5).
    Refused,
    /// A line of the response's head that is not a field: no colon, or a name that is not a token.
    FieldName,
    /// A control byte in a field's value.
    FieldValue,
    /// A line that begins with white space (RFC 9112 §5.2).
    Folded,
    /// More fields than the limit.
    TooManyFields,
    /// A head longer than the limit.
    HeadTooLong,
    /// A Status that does not begin with a number from 200 to 999 (RFC 3875 §6.3.3).
    Status,
    /// A Content-Length that is not a number, or more than one.
    ContentLength,
    /// A Transfer-Encoding other than chunked, or one with a Content-Length.
    TransferEncoding,
    /// Chunked content that violates its syntax (RFC 9112 §7.1).
    Chunk,
    /// The response ended within its head, or before its Content-Length.
    Truncated,
}

impl FastCgiError {
    /// A short description of the fault, for a log.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Version => "a record of another version of FastCGI",
            Self::RecordType => "a record that only a web server sends",
            Self::RequestId => "a record of a request that is not open",
            Self::EndRequest => "a record END_REQUEST of another length than 8",
            Self::Overloaded => "no resource for the request",
            Self::Refused => "the request was rejected",
            Self::FieldName => "an invalid field name, or a line without a colon",
            Self::FieldValue => "a control character in a field value",
            Self::Folded => "a line that begins with white space",
            Self::TooManyFields => "too many fields",
            Self::HeadTooLong => "a head that is too long",
            Self::Status => "an invalid Status",
            Self::ContentLength => "an invalid Content-Length, or several",
            Self::TransferEncoding => "a Transfer-Encoding other than chunked, or one beside Content-Length",
            Self::Chunk => "an invalid chunk",
            Self::Truncated => "an end within the response",
        }
    }
}

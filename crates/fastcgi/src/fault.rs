//! The protocol errors that an application can cause.

/// A violation of the protocol by the application, or its refusal of the request. Each one ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FastCgiFault {
    /// A record of another version of the protocol (§3.3).
    Version,
    /// A record of a type that only a web server sends (§8).
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

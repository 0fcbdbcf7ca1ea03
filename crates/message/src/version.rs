//! The protocol version of a message, and the number of an exchange on its connection.

/// The HTTP version that carried a message (RFC 9110 §2.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1, and any later HTTP/1.x
    #[default]
    Http11,
    /// HTTP/2
    Http2,
}

impl Version {
    /// The version as a status line and Caddy's placeholders spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Http10 => "HTTP/1.0",
            Self::Http11 => "HTTP/1.1",
            Self::Http2 => "HTTP/2.0",
        }
    }
}

/// An exchange's number, unique on its connection: HTTP/2's stream identifier, or 1, 2, 3… on HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

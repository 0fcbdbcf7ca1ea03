//! The types that a protocol machine and its driver exchange about content and deadlines, for every version.

/// The event that a machine is waiting for. Its driver picks the deadline by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The next message; no exchange is open.
    KeepAlive,
    /// The rest of a head that has begun; over HTTP/2 the rest of any frame except DATA, or the first SETTINGS.
    Head,
    /// The rest of a message's content. A machine with several streams leaves the deadlines of content to its driver.
    Body,
    /// The acknowledgement of the PING that follows the first GOAWAY.
    Acknowledgement,
    /// No input from the peer.
    Nothing,
}

/// The way in which a received message's content is delimited (RFC 9112 §6.3, RFC 9113 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is no content.
    None,
    /// Content-Length, including 0.
    Sized(u64),
    /// Of unknown length: the framing marks the end.
    Unknown,
}

impl BodyLength {
    /// Whether no content follows the head.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Sized(0))
    }
}

/// The way in which the content of a message that we send is to be delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No content. Sent with `Content-Length: 0` if the status and method allow content.
    Empty,
    /// Exactly this many bytes follow; the last one completes the message.
    Sized(u64),
    /// Content of unknown length.
    Stream,
    /// The exchange becomes a tunnel: 101, or a 2xx to CONNECT (RFC 9110 §7.8, §9.3.6; RFC 8441).
    Tunnel,
}

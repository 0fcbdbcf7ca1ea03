//! What a protocol machine and its driver say to each other about content and turns, whatever the version.

/// Whose turn it is, for the deadlines of whoever owns the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The next request, of which no octet has come.
    KeepAlive,
    /// The rest of a request's head.
    Head,
    /// The rest of a request's body. A machine that carries several streams leaves the bodies' deadlines to its driver.
    Body,
    /// The peer's word that it has heard ours: of the end, of settings.
    Acknowledgement,
    /// Nothing from the peer.
    Nothing,
}

/// How a request's content is delimited (RFC 9112 §6.3, RFC 9113 §8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none.
    None,
    /// Content-Length, 0 included.
    Sized(u64),
    /// It ends where its framing says so.
    Unknown,
}

impl BodyLength {
    /// Whether no content follows the head.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::None | Self::Sized(0))
    }
}

/// How a response's content is to be delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No content. Sent with Content-Length: 0 where the status and method allow content.
    Empty,
    /// This many octets follow; the response is complete with the last of them.
    Sized(u64),
    /// Content of unknown length.
    Stream,
    /// The exchange becomes a tunnel: 101, or a 2xx to CONNECT (RFC 9110 §7.8, §9.3.6; RFC 8441).
    Tunnel,
}

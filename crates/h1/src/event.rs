//! What the machine says, and what it is told.

use std::ops::Range;

use causeway_message::StreamId;

use crate::fault::HeadFault;

/// Whose turn it is, for the deadlines of whoever owns the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// The next request, of which no octet has come.
    KeepAlive,
    /// The rest of a request's head.
    Head,
    /// The rest of a request's body.
    Body,
    /// Nothing from the peer.
    Nothing,
}

/// How a request's content is delimited (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// There is none: neither Content-Length nor Transfer-Encoding.
    None,
    /// Content-Length, 0 included.
    Sized(u64),
    /// Transfer-Encoding: chunked.
    Chunked,
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
    /// This many octets follow.
    Sized(u64),
    /// Content of unknown length: chunked, or up to the close for an HTTP/1.0 client.
    Stream,
    /// The connection becomes a tunnel: 101, or a 2xx to CONNECT (RFC 9110 §7.8, §9.3.6).
    Tunnel,
}

/// What happened. Ranges are of the input that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request's head is in the spare head. Without content ([`BodyLength::is_empty`]) the request is complete.
    Head {
        /// The exchange that it opens.
        stream: StreamId,
        /// What content follows.
        body: BodyLength,
        /// The client waits for a 100 before it sends the content (RFC 9110 §10.1.1).
        expects_continue: bool,
        /// The client offers another protocol (RFC 9110 §7.8), or asks for a tunnel by CONNECT.
        upgrade: bool,
    },
    /// Content, or what came through a tunnel.
    Data {
        /// The exchange.
        stream: StreamId,
        /// Where it lies; never empty.
        range: Range<usize>,
    },
    /// A trailer section with at least one field; the spare head's fields are it. The request is complete.
    Trailers {
        /// The exchange.
        stream: StreamId,
    },
    /// A request's content is complete, without trailers; through a tunnel: the peer has closed its side.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The peer broke the protocol. Nothing is parsed any more; one answer may be sent where none was begun, then the
    /// connection closes.
    Fault {
        /// The exchange that may be answered: the open one, or one opened for this very answer. `None` when there is
        /// nobody to answer: the peer has closed or a response is under way already.
        stream: Option<StreamId>,
        /// What it did.
        fault: HeadFault,
    },
}

/// What came of some octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// How many octets of the input are done with. Call again with the rest as long as this is not 0 or there is an event.
    pub consumed: usize,
    /// What happened. With an event, octets behind `consumed` have not been looked at.
    pub event: Option<Event>,
}

//! What the machine says, and what it is told.

use std::ops::Range;

use causeway_message::{BodyLength, StreamId};

use crate::fault::HeadFault;

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

/// What happened in the client's role. Ranges are of the input that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// An answer before the answer: the spare head is filled; the final head follows.
    Informational {
        /// The exchange.
        stream: StreamId,
    },
    /// The final head is in the spare head. With [`BodyLength::None`] the response is complete. The answer to a request
    /// for another protocol may have made it a tunnel: [`Client::is_tunnel`](crate::Client::is_tunnel) says so, and the
    /// length is unknown.
    Head {
        /// The exchange.
        stream: StreamId,
        /// What content follows.
        body: BodyLength,
    },
    /// Content, or what came through a tunnel; as [`Event::Data`].
    Data {
        /// The exchange.
        stream: StreamId,
        /// Where it lies in the input; never empty.
        range: Range<usize>,
    },
    /// A trailer section with at least one field; the spare head's fields are it. The response is complete.
    Trailers {
        /// The exchange.
        stream: StreamId,
    },
    /// A response's content is complete, without trailers; through a tunnel: the peer has closed its side.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The exchange and the connection are over, and no octet of an answer has come. On a connection that was idle
    /// before, most likely the peer closed it while the request was on its way; known that is not, so only what may be
    /// done twice may be sent again (RFC 9112 §9.3.1).
    Unprocessed {
        /// The exchange.
        stream: StreamId,
    },
    /// The connection is over, and an open exchange with it: what is incomplete stays incomplete, and nothing of it may
    /// pass for whole.
    Broken {
        /// What the peer did.
        fault: HeadFault,
    },
}

/// What came of some octets in the client's role; as [`Handled`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHandled {
    /// How many octets of the input are done with.
    pub consumed: usize,
    /// What happened.
    pub event: Option<ClientEvent>,
}

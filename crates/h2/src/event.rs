//! What the machine tells its owner.

use std::ops::Range;

use causeway_message::{BodyLength, StatusCode, StreamId};

use crate::fault::ErrorCode;

/// Something that happened on a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request's head is whole; the spare head is filled. Without content the request is complete.
    Head {
        /// The new exchange.
        stream: StreamId,
        /// What content follows.
        body: BodyLength,
        /// A CONNECT, extended (RFC 8441) or not: the answer may make the exchange a tunnel.
        upgrade: bool,
    },
    /// Content, or what came through a tunnel. Its octets count against the windows until they are released.
    Data {
        /// The exchange.
        stream: StreamId,
        /// Where it lies in the input; never empty.
        range: Range<usize>,
    },
    /// A trailer section with at least one field; the spare head's fields are it. The request is complete.
    Trailers {
        /// The exchange.
        stream: StreamId,
    },
    /// A request's content is complete, without trailers.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The exchange is over, both ways: the peer reset it, or broke a rule in it and was told. Nothing sent on it counts any more.
    Reset {
        /// The exchange.
        stream: StreamId,
    },
    /// A request that is understood and not served: too large, or with an expectation that is none. Its stream is open for this
    /// one answer, then it is to be reset.
    Fault {
        /// The new exchange.
        stream: StreamId,
        /// What the peer is to be told.
        status: StatusCode,
    },
    /// The connection is over: the peer broke its rules, or is gone. Every exchange ends; what is in the output is written,
    /// then the connection closes.
    Broken,
}

/// What came of some octets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// How many octets of the input are done with. Call again with the rest as long as this is not 0 or there is an event.
    pub consumed: usize,
    /// What happened. With an event, octets behind `consumed` have not been looked at.
    pub event: Option<Event>,
}

/// Something that happened on a connection in the client's role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent {
    /// An answer before the answer: the spare head is filled; the final head follows.
    Informational {
        /// The exchange.
        stream: StreamId,
    },
    /// The final head is in the spare head. With [`BodyLength::None`] the response is complete.
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
    /// A response's content is complete, without trailers.
    End {
        /// The exchange.
        stream: StreamId,
    },
    /// The exchange is over: the server reset it, or broke a rule in it and was told.
    Reset {
        /// The exchange.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The exchange is over, and the server has done nothing for it: the request may be sent again (RFC 9113 §8.7).
    Unprocessed {
        /// The exchange.
        stream: StreamId,
    },
    /// The server ends: no stream can be opened any more; what it still answers is answered.
    GoAway {
        /// Why.
        code: ErrorCode,
    },
    /// The connection is over, as [`Event::Broken`].
    Broken,
}

/// What came of some octets in the client's role; as [`Handled`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHandled {
    /// How many octets of the input are done with.
    pub consumed: usize,
    /// What happened.
    pub event: Option<ClientEvent>,
}

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

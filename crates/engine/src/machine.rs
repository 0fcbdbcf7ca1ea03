//! The local trait over protocol machines.
//!
//! A machine has no I/O: it turns octets into events, commands into octets, and says what it waits for. The driver is
//! written once over this trait; h1 is a machine with one open stream.
//!
//! - `http1`, `http2`: the two machines
//! - `protocol`: one that is either, as the peer's first octets or its TLS handshake decide

mod http1;
mod http2;
mod protocol;

use std::ops::Range;
use std::time::Instant;

use causeway_message::{Chunk, FieldMap, FieldValue, Head, ResponseHead, StatusCode, StreamId, WriteList, names};

use crate::listener::ListenerPlan;

pub(crate) use protocol::Protocol;

pub(crate) use causeway_message::{BodyLength, Framing, WaitsFor};

const SERVER: FieldValue<'static> = FieldValue::from_static("Causeway");

/// What a machine learnt from the peer's octets. Ranges are in the octets that were handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A request begins; the spare head is filled. Without a body it is complete.
    Head {
        /// Its stream.
        stream: StreamId,
        /// What of a body follows.
        body: BodyLength,
        /// The peer asked to change the protocol, and may.
        upgrade: bool,
    },
    /// Body octets.
    Data {
        /// Their stream.
        stream: StreamId,
        /// Where they are.
        range: Range<usize>,
    },
    /// The trailer section; the spare head's fields hold it. The request is complete.
    Trailers {
        /// Its stream.
        stream: StreamId,
    },
    /// The request's body is complete, without trailers.
    End {
        /// Its stream.
        stream: StreamId,
    },
    /// The stream is over before its end: nothing more comes or may be sent on it.
    Reset {
        /// Its stream.
        stream: StreamId,
    },
    /// The connection is over: every exchange ends. What the machine said last is written, then it is closed.
    Broken,
    /// The peer broke the protocol.
    Fault {
        /// The exchange that it reaches, or one that was opened for the one answer to it; `None` when nobody can be told.
        stream: Option<StreamId>,
        /// What the peer is told, where it can be told.
        status: StatusCode,
    },
}

/// A server's protocol machine.
pub(crate) trait Machine: Unpin {
    /// Whether it carries streams side by side, each with a window of its own. If not, the driver stops taking octets while a
    /// body's mailbox is full, and a stream's end may be the connection's.
    fn is_multiplexed(&self) -> bool;
    /// Exchanges that may be open or wait for one write; what comes behind them is handled after it.
    fn exchanges_max(&self) -> usize;
    /// What the peer owes us, for deadlines.
    fn waits_for(&self) -> WaitsFor;
    /// Nothing more will come of this connection: close it once all output is written.
    fn wants_close(&self) -> bool;
    /// Whether a stream takes output now.
    fn writable(&self, stream: StreamId) -> bool;
    /// Whose turn it is among streams that have content: the lowest.
    fn rank(&self, stream: StreamId) -> u64;
    /// Octets that the stream may send before another has its turn.
    fn quantum(&self, stream: StreamId) -> usize;

    /// Takes octets; returns how many were used and what they mean. To be called again with the rest, until nothing comes of it.
    fn handle_octets(
        &mut self,
        now: Instant,
        octets: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<Event>);
    /// Another plan's limits hold from the next head on. Called while no exchange is open and no octet of a head has come.
    fn renew(&mut self, plan: &ListenerPlan);
    /// The peer ended its sending side.
    fn handle_eof(&mut self) -> Option<Event>;

    /// What was owed ([`waits_for`](Self::waits_for)) did not come in time.
    fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event>;

    /// Takes no new requests; ends gracefully.
    fn drain(&mut self, out: &mut WriteList);
    /// Asked behind [`drain`](Self::drain): whether what is open now is all that there will be.
    fn is_last(&self) -> bool;
    /// The reader took octets of a body: they go back to the receive window.
    fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList);
    /// Somebody wants the body: a peer that waits for 100 (Continue) gets it.
    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList);
    /// An interim response.
    fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList);
    /// The response's head.
    fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    );
    /// Response content: takes off what the stream may carry now, and leaves the rest.
    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList);
    /// The response's trailer section.
    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList);
    /// The response is complete.
    fn finish(&mut self, stream: StreamId, out: &mut WriteList);
    /// Answers with a bare status, in place of an answer that handlers would have made, and gives the exchange up.
    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList);
    /// Gives an exchange up.
    fn reset(&mut self, stream: StreamId, out: &mut WriteList);
}

/// What a bare refusal says it comes from, as every answer does.
fn bare(status: StatusCode) -> ResponseHead {
    let mut head = ResponseHead::new(status);
    head.set(names::SERVER, SERVER);
    head
}

//! The local trait over protocol machines, and HTTP/1.1's implementation.
//!
//! A machine has no I/O: it turns octets into events, commands into octets, and says what it waits for. The driver is
//! written once over this trait and monomorphised for each machine; h1 is a machine with one open stream.

use std::ops::Range;
use std::rc::Rc;

use causeway_h1 as h1;
use causeway_message::{Chunk, FieldMap, FieldValue, Head, ResponseHead, StatusCode, StreamId, WriteList, names};

use crate::listener::ListenerPlan;

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
    /// Whether the protocol bounds what a peer may send per stream. If not, the driver stops taking octets while a body's
    /// mailbox is full.
    const FLOW_CONTROLLED: bool;

    /// What the peer owes us, for deadlines.
    fn waits_for(&self) -> WaitsFor;
    /// Nothing more will come of this connection: close it once all output is written.
    fn wants_close(&self) -> bool;
    /// Whether a stream takes output now.
    fn writable(&self, stream: StreamId) -> bool;

    /// Takes octets; returns how many were used and what they mean. To be called again with the rest, until nothing comes of it.
    fn handle_octets(&mut self, octets: &[u8], head: &mut Head, out: &mut WriteList) -> (usize, Option<Event>);
    /// Another plan's limits hold from the next head on. Called while no exchange is open and no octet of a head has come.
    fn renew(&mut self, plan: &ListenerPlan);
    /// The peer ended its sending side.
    fn handle_eof(&mut self) -> Option<Event>;

    /// What was owed ([`waits_for`](Self::waits_for)) did not come in time.
    fn handle_timeout(&mut self) -> Option<Event>;

    /// Takes no new requests; ends gracefully.
    fn drain(&mut self);
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
    /// Response content.
    fn send(&mut self, stream: StreamId, chunk: Chunk, out: &mut WriteList);
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

impl Machine for h1::Server {
    // HTTP/1.1 bounds nothing: back-pressure is not reading.
    const FLOW_CONTROLLED: bool = false;

    fn waits_for(&self) -> WaitsFor {
        self.waits_for()
    }

    fn wants_close(&self) -> bool {
        self.wants_close()
    }

    fn writable(&self, stream: StreamId) -> bool {
        self.writable(stream)
    }

    #[inline]
    fn handle_octets(&mut self, octets: &[u8], head: &mut Head, out: &mut WriteList) -> (usize, Option<Event>) {
        let handled = self.handle_octets(octets, head, out);
        (handled.consumed, handled.event.map(event))
    }

    fn renew(&mut self, plan: &ListenerPlan) {
        // Between requests a machine is as good as a new one.
        *self = Self::new(Rc::clone(&plan.limits));
    }

    fn handle_eof(&mut self) -> Option<Event> {
        self.handle_eof().map(event)
    }

    fn handle_timeout(&mut self) -> Option<Event> {
        self.handle_timeout().map(event)
    }

    fn drain(&mut self) {
        self.drain();
    }

    fn is_last(&self) -> bool {
        !self.is_idle()
    }

    fn release(&mut self, stream: StreamId, octets: u32, _out: &mut WriteList) {
        self.release(stream, octets);
    }

    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        self.send_continue(stream, out);
    }

    fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        self.send_informational(stream, status, fields, out);
    }

    #[inline]
    fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
        self.send_head(stream, head, framing, date, out);
    }

    #[inline]
    fn send(&mut self, stream: StreamId, chunk: Chunk, out: &mut WriteList) {
        self.send(stream, chunk, out);
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        self.send_trailers(stream, fields, out);
    }

    #[inline]
    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        self.finish(stream, out);
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList) {
        self.drain();
        self.send_head(stream, &bare(status), Framing::Empty, date, out);
        self.finish(stream, out);
        self.reset(stream);
    }

    fn reset(&mut self, stream: StreamId, _out: &mut WriteList) {
        self.reset(stream);
    }
}

fn event(event: h1::Event) -> Event {
    match event {
        h1::Event::Head { stream, body, upgrade, .. } => Event::Head { stream, body, upgrade },
        h1::Event::Data { stream, range } => Event::Data { stream, range },
        h1::Event::Trailers { stream } => Event::Trailers { stream },
        h1::Event::End { stream } => Event::End { stream },
        h1::Event::Fault { stream, fault } => Event::Fault { stream, status: fault.status() },
    }
}

//! The protocol machine of a connection to an upstream: either version, as the place or ALPN decides.

use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use causeway_h1 as h1;
use causeway_h2 as h2;
use causeway_message::{BodyLength, Chunk, FieldMap, Framing, Head, ResponseHead, StreamId, WaitsFor, WriteList};
use causeway_pipeline::{Scheme, Transport};

/// What a machine learnt from the upstream's octets. Ranges are in the octets that were handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Event {
    /// An answer before the answer is in the spare head.
    Interim { stream: StreamId },
    /// The final head is in the spare head; with [`BodyLength::None`] the answer is complete.
    Head { stream: StreamId, body: BodyLength },
    /// Content.
    Data { stream: StreamId, range: Range<usize> },
    /// The trailer section is in the spare head's fields; the answer is complete.
    Trailers { stream: StreamId },
    /// The answer is complete.
    End { stream: StreamId },
    /// The exchange is over.
    Reset { stream: StreamId },
    /// The exchange is over, and nothing of an answer came.
    Unprocessed { stream: StreamId },
    /// No exchange can be begun any more.
    Ending,
    /// The connection is over, because the upstream broke the protocol or closed.
    Broken,
}

/// Why an exchange was not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unopened {
    /// Not now, or not on this connection.
    Later,
    /// The request cannot be said in this protocol.
    Head,
}

/// A machine in the client's role.
pub(super) enum Machine {
    Http1(Box<h1::Client>),
    Http2(Box<h2::Client>),
}

/// Does the same to either machine.
macro_rules! either {
    ($machine:expr, $it:ident => $work:expr) => {
        match $machine {
            Machine::Http1($it) => $work,
            Machine::Http2($it) => $work,
        }
    };
}

impl Machine {
    pub(super) fn new(is_http2: bool, transport: &Transport) -> Self {
        let (head_bytes_max, trailers_bytes_max) = (transport.head_octets_max, transport.trailers_octets_max);
        if is_http2 {
            let settings = h2::Settings { head_bytes_max, trailers_bytes_max, ..h2::Settings::client() };
            Self::Http2(Box::new(h2::Client::new(Rc::new(settings))))
        } else {
            let limits = h1::Limits { head_bytes_max, trailers_bytes_max, ..h1::Limits::default() };
            Self::Http1(Box::new(h1::Client::new(Rc::new(limits))))
        }
    }

    pub(super) fn is_multiplexed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Exchanges that may be begun now.
    pub(super) fn room(&self) -> usize {
        either!(self, machine => machine.room())
    }

    /// No exchange can be begun any more.
    pub(super) fn is_last(&self) -> bool {
        either!(self, machine => machine.is_last())
    }

    pub(super) fn wants_close(&self) -> bool {
        either!(self, machine => machine.wants_close())
    }

    pub(super) fn waits_for(&self) -> WaitsFor {
        either!(self, machine => machine.waits_for())
    }

    pub(super) fn writable(&self, stream: StreamId) -> bool {
        either!(self, machine => machine.writable(stream))
    }

    /// Octets that a stream may send before another has its turn.
    pub(super) fn quantum(&self, stream: StreamId) -> usize {
        match self {
            Self::Http1(_) => usize::MAX,
            Self::Http2(machine) => machine.quantum(stream),
        }
    }

    /// Whose turn it is among streams that have content: the lowest.
    pub(super) fn rank(&self, stream: StreamId) -> u64 {
        match self {
            Self::Http1(_) => 0,
            Self::Http2(machine) => machine.rank(stream),
        }
    }

    /// Begins an exchange; where it could not, nothing was sent.
    pub(super) fn open(
        &mut self,
        head: &Head,
        scheme: Scheme,
        framing: Framing,
        out: &mut WriteList,
    ) -> Result<StreamId, Unopened> {
        match self {
            Self::Http1(machine) => machine.open(head, framing, out).map_err(|unopened| match unopened {
                h1::Unopened::Head => Unopened::Head,
                _ => Unopened::Later,
            }),
            Self::Http2(machine) => {
                let scheme = match scheme {
                    Scheme::Http => h2::Scheme::Http,
                    Scheme::Https => h2::Scheme::Https,
                };
                machine.open(head, scheme, framing, out).map_err(|unopened| match unopened {
                    h2::Unopened::Head => Unopened::Head,
                    _ => Unopened::Later,
                })
            }
        }
    }

    pub(super) fn handle_octets(
        &mut self,
        now: Instant,
        octets: &[u8],
        head: &mut ResponseHead,
        out: &mut WriteList,
    ) -> (usize, Option<Event>) {
        match self {
            Self::Http1(machine) => {
                let handled = machine.handle_octets(octets, head, out);
                (handled.consumed, handled.event.map(of_http1))
            }
            Self::Http2(machine) => {
                let handled = machine.handle_octets(now, octets, head, out);
                (handled.consumed, handled.event.map(of_http2))
            }
        }
    }

    pub(super) fn handle_eof(&mut self) -> Option<Event> {
        match self {
            Self::Http1(machine) => machine.handle_eof().map(of_http1),
            Self::Http2(machine) => machine.handle_eof().map(of_http2),
        }
    }

    /// The connection is lost: nothing is complete by that.
    pub(super) fn handle_loss(&mut self) -> Option<Event> {
        match self {
            Self::Http1(machine) => machine.handle_loss().map(of_http1),
            Self::Http2(machine) => machine.handle_eof().map(of_http2),
        }
    }

    pub(super) fn drain(&mut self, out: &mut WriteList) {
        match self {
            Self::Http1(machine) => machine.drain(),
            Self::Http2(machine) => machine.drain(out),
        }
    }

    pub(super) fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {
        if let Self::Http2(machine) = self {
            machine.release(stream, octets, out);
        }
    }

    pub(super) fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        either!(self, machine => machine.send(stream, chunk, out));
    }

    pub(super) fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        either!(self, machine => machine.send_trailers(stream, fields, out));
    }

    pub(super) fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => machine.finish(stream, out));
    }

    pub(super) fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        match self {
            Self::Http1(machine) => machine.reset(stream),
            Self::Http2(machine) => machine.reset(stream, out),
        }
    }
}

fn of_http1(event: h1::ClientEvent) -> Event {
    match event {
        h1::ClientEvent::Informational { stream } => Event::Interim { stream },
        h1::ClientEvent::Head { stream, body } => Event::Head { stream, body },
        h1::ClientEvent::Data { stream, range } => Event::Data { stream, range },
        h1::ClientEvent::Trailers { stream } => Event::Trailers { stream },
        h1::ClientEvent::End { stream } => Event::End { stream },
        h1::ClientEvent::Unprocessed { stream } => Event::Unprocessed { stream },
        h1::ClientEvent::Broken { .. } => Event::Broken,
    }
}

fn of_http2(event: h2::ClientEvent) -> Event {
    match event {
        h2::ClientEvent::Informational { stream } => Event::Interim { stream },
        h2::ClientEvent::Head { stream, body } => Event::Head { stream, body },
        h2::ClientEvent::Data { stream, range } => Event::Data { stream, range },
        h2::ClientEvent::Trailers { stream } => Event::Trailers { stream },
        h2::ClientEvent::End { stream } => Event::End { stream },
        h2::ClientEvent::Reset { stream, .. } => Event::Reset { stream },
        h2::ClientEvent::Unprocessed { stream } => Event::Unprocessed { stream },
        h2::ClientEvent::GoAway { .. } => Event::Ending,
        h2::ClientEvent::Broken => Event::Broken,
    }
}

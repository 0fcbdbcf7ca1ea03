//! One connection in the client's role (RFC 9112), for upstreams.
//!
//! Two small machines side by side, as in the server's role; when both are through, the next request may be sent.
//! ```text
//! inbound:   Idle ──open──► Head ──final head──► Body │ UntilClose ──end──► Done ──(outbound Idle)──► Idle
//!              │            ▲ │ └──switch──► Tunnel ──eof─┐  │ fault         │ octets, close,
//!              │ octets     └─┤ 1xx                       ▼  ▼               ▼ or no other may follow
//!              └──────────────┴──fault, close──────────► Closed ◄────────────┘
//! outbound:  Idle ──open──► Sized │ Chunked ──trailers, nobody reads──► Ended ──finish──► Idle
//!                           Waiting ──switch──► Tunnel ──finish──► Idle
//! ```
//! - `examine`: what an answer's head means for the connection
//! - `encode`: a request's head

mod encode;
mod examine;

use std::rc::Rc;

use causeway_message::{
    BodyLength, Chunk, FieldMap, Framing, Head, Method, ResponseHead, StreamId, Version, WaitsFor, WriteList,
};

use crate::body::{Body, Found};
use crate::encode::{put_chunked, trailers};
use crate::event::{ClientEvent, ClientHandled};
use crate::fault::HeadFault;
use crate::limits::Limits;
use crate::parse::{Parsed, has_end, response_head};
use examine::{Answer, Asked, examine};

const _: () = assert!(size_of::<Client>() <= 64);

/// Why a request was not sent. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unopened {
    /// Another exchange is open: after it has ended there may be room.
    Full,
    /// No request will be sent on this connection any more.
    Ending,
    /// The head lacks a target or an authority, or they do not go with the method or the framing; or a name in it is no
    /// token.
    Head,
}

/// The client's side of one HTTP/1 connection.
///
/// Driven as [`Server`](crate::Server) is: octets go in by [`Client::handle_octets`], again and again with what was not
/// consumed, until it answers with neither octets consumed nor an event. One exchange is open at a time, until its
/// response is complete and its request is ([`Client::finish`], or [`Framing::Empty`]), or until it is reset. An
/// exchange whose answer says so, or whose connection is not to be trusted, is the last ([`Client::is_last`]).
#[derive(Debug)]
pub struct Client {
    limits: Rc<Limits>,
    inbound: Inbound,
    outbound: Outbound,
    // The open exchange, or the last one.
    stream: u32,
    // Answers before the answer, so far.
    informational: u16,
    // What the open exchange asked for.
    asked: Asked,
    // Some octet of the answer has come.
    answered: bool,
    // Another request may follow the open one.
    keep: bool,
    // The open exchange is the last.
    draining: bool,
    // Nothing follows what is to be written.
    over: bool,
}

#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// No answer is owed: whatever comes is nobody's.
    Idle,
    /// Before an answer or within its head; so many octets were searched for its end.
    Head {
        searched: u32,
    },
    Body(Body),
    /// Content that ends with the connection.
    UntilClose,
    /// Complete, its request is not.
    Done,
    Tunnel,
    /// Nothing is parsed any more.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    /// No exchange, or its request is complete.
    Idle,
    Sized(u64),
    Chunked,
    /// What the owner still sends is dropped: behind trailers, or because nobody reads it any more.
    Ended,
    /// Another protocol was asked for: nothing may be sent before the answer.
    Waiting,
    Tunnel,
}

impl Client {
    /// A connection on which nothing has happened.
    #[must_use]
    pub fn new(limits: Rc<Limits>) -> Self {
        Self {
            limits,
            inbound: Inbound::Idle,
            outbound: Outbound::Idle,
            stream: 0,
            informational: 0,
            asked: Asked::Content,
            answered: false,
            keep: true,
            draining: false,
            over: false,
        }
    }

    /// What of the peer's the connection waits for: the rest of an answer's head that has begun, its content, or,
    /// between exchanges, nothing but its end. How long an answer may take to begin is its owner's to say.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self.inbound {
            Inbound::Idle if self.wants_close() => WaitsFor::Nothing,
            Inbound::Idle => WaitsFor::KeepAlive,
            Inbound::Head { searched: 1.. } => WaitsFor::Head,
            Inbound::Body(_) | Inbound::UntilClose => WaitsFor::Body,
            Inbound::Head { searched: 0 } | Inbound::Done | Inbound::Tunnel | Inbound::Closed => WaitsFor::Nothing,
        }
    }

    /// The connection is to be closed once all output is written.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        self.over || self.draining && self.is_idle()
    }

    /// No other request can be sent any more.
    #[must_use]
    pub fn is_last(&self) -> bool {
        // Numbers are not used twice.
        self.over || self.draining || !self.keep || self.stream == u32::MAX
    }

    /// No exchange is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Idle | Inbound::Closed)
    }

    /// How many requests may be sent now: one or none. The connection may be reused where it is one.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(self.is_idle() && !self.is_last())
    }

    /// Whether this exchange takes content: it is open, its request is not complete, and no switch to another protocol
    /// is awaited.
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && !matches!(self.outbound, Outbound::Idle | Outbound::Waiting)
    }

    /// Whether this exchange has become a tunnel: by a 101, or a 2xx to CONNECT (RFC 9110 §7.8, §9.3.6).
    #[must_use]
    pub fn is_tunnel(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && self.outbound == Outbound::Tunnel
    }

    /// Sends a request's head. Its target goes out in origin form, or as `*`; Host is its authority's. The fields that
    /// frame a message or belong to its connection are the machine's and are left out, but for `TE: trailers`; so is
    /// Expect. [`Framing::Tunnel`] asks for another protocol: that of the head's Upgrade, or by CONNECT a tunnel to its
    /// target.
    ///
    /// Octets that the peer sent before would pass for the answer: whoever reuses a connection hands in first what has
    /// come on it.
    pub fn open(&mut self, head: &Head, framing: Framing, out: &mut WriteList) -> Result<StreamId, Unopened> {
        if self.is_last() {
            return Err(Unopened::Ending);
        }
        if !self.is_idle() {
            return Err(Unopened::Full);
        }
        encode::request_head(head, framing, out).ok_or(Unopened::Head)?;
        self.stream += 1;
        self.asked = match (head.method(), framing) {
            (Method::Connect, _) => Asked::Connect,
            (_, Framing::Tunnel) => Asked::Switch,
            (Method::Head, _) => Asked::Head,
            _ => Asked::Content,
        };
        (self.informational, self.answered) = (0, false);
        self.inbound = Inbound::Head { searched: 0 };
        self.outbound = match framing {
            Framing::Empty => Outbound::Idle,
            Framing::Sized(octets) => Outbound::Sized(octets),
            Framing::Stream => Outbound::Chunked,
            Framing::Tunnel => Outbound::Waiting,
        };
        Ok(StreamId(self.stream))
    }

    /// Looks at octets from the peer. The spare head is filled when an event says so, and may be cleared otherwise
    /// while a head or trailers are incomplete. A head that was incomplete at first is looked at again when its end has
    /// come, or the limit is reached: a fault in it is told then. O(n) over all calls for each octet; no allocation
    /// once the head's memory has grown.
    pub fn handle_octets(&mut self, input: &[u8], head: &mut ResponseHead, _out: &mut WriteList) -> ClientHandled {
        match &mut self.inbound {
            Inbound::Body(body) => match body.handle(input, &self.limits, head) {
                Ok(found) => self.handle_found(found),
                Err(fault) => self.fail(fault, input),
            },
            _ if input.is_empty() => NOTHING,
            Inbound::Head { searched } => {
                let searched = *searched as usize;
                self.handle_head(input, searched, head)
            }
            Inbound::UntilClose | Inbound::Tunnel => {
                let event = ClientEvent::Data { stream: StreamId(self.stream), range: 0..input.len() };
                ClientHandled { consumed: input.len(), event: Some(event) }
            }
            // What nobody asked for would pass for the answer to the next request.
            Inbound::Idle | Inbound::Done => self.fail(HeadFault::Unasked, input),
            Inbound::Closed => ClientHandled { consumed: input.len(), event: None },
        }
    }

    /// The peer has closed its side. To be told once [`Client::handle_octets`] consumes no more of what was read, and
    /// only where the transport ended in order: content that ends with the connection is complete with it.
    pub fn handle_eof(&mut self) -> Option<ClientEvent> {
        let stream = StreamId(self.stream);
        match self.inbound {
            Inbound::Idle => {
                (self.inbound, self.over) = (Inbound::Closed, true);
                None
            }
            Inbound::Head { .. } if !self.answered => {
                self.end();
                Some(ClientEvent::Unprocessed { stream })
            }
            Inbound::UntilClose => {
                self.inbound = Inbound::Done;
                self.settle();
                Some(ClientEvent::End { stream })
            }
            // RFC 9112 §8: what ends early is incomplete. Behind a complete answer it is the request that is.
            Inbound::Head { .. } | Inbound::Body(_) | Inbound::Done => self.fail(HeadFault::Truncated, &[]).event,
            Inbound::Tunnel => {
                self.inbound = Inbound::Closed;
                Some(ClientEvent::End { stream })
            }
            Inbound::Closed => None,
        }
    }

    /// The connection is lost: it was reset, or its transport ended without saying so. As [`Client::handle_eof`], but
    /// that nothing is complete by it.
    pub fn handle_loss(&mut self) -> Option<ClientEvent> {
        match self.inbound {
            Inbound::UntilClose | Inbound::Tunnel => self.fail(HeadFault::Truncated, &[]).event,
            _ => self.handle_eof(),
        }
    }

    /// What [`Client::waits_for`] names did not come in time. A head that was begun is given up, an idle connection
    /// wants to be closed; about anything else the owner decides.
    pub fn handle_timeout(&mut self) -> Option<ClientEvent> {
        match self.waits_for() {
            WaitsFor::Head => self.fail(HeadFault::TooSlow, &[]).event,
            WaitsFor::KeepAlive => {
                self.drain();
                None
            }
            _ => None,
        }
    }

    /// Sends no more requests; the connection wants to be closed once the open exchange has ended.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Makes room in the receive window: HTTP/1 has none.
    pub fn release(&mut self, _stream: StreamId, _octets: u32) {}

    /// Sends content, by reference where it is large: all of it, unless [`Client::writable`] says that it must wait.
    /// What passes a sized content's end, or has no reader any more, is dropped.
    pub fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        if stream.0 == self.stream && self.outbound == Outbound::Waiting {
            return;
        }
        let mut chunk = std::mem::take(chunk);
        if stream.0 != self.stream || chunk.is_empty() {
            return;
        }
        match &mut self.outbound {
            Outbound::Sized(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(chunk.len());
                *left -= len as u64;
                out.put_chunk(chunk.split_to(len));
            }
            Outbound::Chunked => put_chunked(chunk, out),
            Outbound::Tunnel => out.put_chunk(chunk),
            Outbound::Idle | Outbound::Ended | Outbound::Waiting => {}
        }
    }

    /// Sends trailers, which end the content; [`Client::finish`] follows. Only chunked content can have them, elsewhere
    /// they are left out, and so is a field that may not be one (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        if stream.0 == self.stream && self.outbound == Outbound::Chunked {
            trailers(fields, out);
            self.outbound = Outbound::Ended;
        }
    }

    /// The request is complete; a tunnel ends, both ways. A sized content that is short, or a switch that was not
    /// answered, is a [`Client::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        if stream.0 != self.stream {
            return;
        }
        match self.outbound {
            Outbound::Idle => return,
            Outbound::Waiting | Outbound::Sized(1..) => return self.reset(stream),
            Outbound::Tunnel => return self.end(),
            Outbound::Chunked => out.put(b"0\r\n\r\n"),
            Outbound::Sized(0) | Outbound::Ended => {}
        }
        self.outbound = Outbound::Idle;
        self.settle();
    }

    /// Gives the exchange up: nothing more is sent or parsed, the connection wants to be closed. Nothing where the
    /// exchange is over already.
    pub fn reset(&mut self, stream: StreamId) {
        if stream.0 == self.stream && !self.is_idle() {
            self.end();
        }
    }

    fn handle_head(&mut self, input: &[u8], searched: usize, head: &mut ResponseHead) -> ClientHandled {
        self.answered = true;
        let at_limit = input.len() >= self.limits.head_bytes_max as usize;
        let parsed = if searched > 0 && !at_limit && !has_end(input, searched) {
            Ok((Parsed::Partial, Version::Http11))
        } else {
            response_head(input, &self.limits, head)
        };
        match parsed {
            Ok((Parsed::Partial, _)) => {
                self.inbound = Inbound::Head { searched: input.len() as u32 };
                NOTHING
            }
            Ok((Parsed::Whole(len), version)) => {
                match examine(head, version, self.asked).and_then(|answer| self.handle_answer(answer)) {
                    Ok(event) => ClientHandled { consumed: len, event: Some(event) },
                    Err(fault) => self.fail(fault, input),
                }
            }
            Err(fault) => self.fail(fault, input),
        }
    }

    fn handle_answer(&mut self, answer: Answer) -> Result<ClientEvent, HeadFault> {
        let stream = StreamId(self.stream);
        let body = match answer {
            Answer::Informational => {
                // RFC 9110 §15.2: any number is allowed. Without a bound they would go on for ever.
                self.informational += 1;
                if self.informational > self.limits.informational_max {
                    return Err(HeadFault::TooManyInformational);
                }
                self.inbound = Inbound::Head { searched: 0 };
                return Ok(ClientEvent::Informational { stream });
            }
            Answer::Switch => {
                self.keep = false;
                (self.inbound, self.outbound) = (Inbound::Tunnel, Outbound::Tunnel);
                BodyLength::Unknown
            }
            Answer::Final { body, until_close, keep } => {
                self.keep &= keep;
                if self.outbound == Outbound::Waiting {
                    // The switch was declined; its request had no content.
                    self.outbound = Outbound::Idle;
                }
                self.inbound = match body {
                    BodyLength::None => Inbound::Done,
                    BodyLength::Sized(octets) => Inbound::Body(Body::sized(octets)),
                    BodyLength::Unknown if until_close => Inbound::UntilClose,
                    BodyLength::Unknown => Inbound::Body(Body::chunked()),
                };
                self.settle();
                body
            }
        };
        Ok(ClientEvent::Head { stream, body })
    }

    fn handle_found(&mut self, found: Found) -> ClientHandled {
        let stream = StreamId(self.stream);
        let (consumed, event) = match found {
            Found::More(consumed) => (consumed, None),
            Found::Data(range) => (range.end, Some(ClientEvent::Data { stream, range })),
            Found::Trailers(consumed) => {
                self.inbound = Inbound::Done;
                self.settle();
                (consumed, Some(ClientEvent::Trailers { stream }))
            }
            Found::End(consumed) => {
                self.inbound = Inbound::Done;
                self.settle();
                (consumed, Some(ClientEvent::End { stream }))
            }
        };
        ClientHandled { consumed, event }
    }

    #[cold]
    fn fail(&mut self, fault: HeadFault, input: &[u8]) -> ClientHandled {
        self.end();
        ClientHandled { consumed: input.len(), event: Some(ClientEvent::Broken { fault }) }
    }

    fn end(&mut self) {
        (self.inbound, self.outbound) = (Inbound::Closed, Outbound::Idle);
        self.over = true;
    }

    // The answer through: the request's rest is nobody's where no other may follow (RFC 9112 §9.6). Both through: on to
    // the next.
    fn settle(&mut self) {
        if !matches!(self.inbound, Inbound::Done) {
            return;
        }
        if !self.keep {
            (self.inbound, self.over) = (Inbound::Closed, true);
            if self.outbound != Outbound::Idle {
                self.outbound = Outbound::Ended;
            }
        } else if self.outbound == Outbound::Idle {
            self.inbound = Inbound::Idle;
        }
    }
}

const NOTHING: ClientHandled = ClientHandled { consumed: 0, event: None };

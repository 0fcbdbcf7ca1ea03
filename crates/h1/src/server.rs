//! One connection in the server's role (RFC 9112).
//!
//! Two small machines side by side; when both are through, the next request begins.
//! ```text
//! inbound:   Head ──whole──► Body ──► Done ──(outbound Done)──► Head
//!              │ fault, close  └─ fault ─┐ └──(outbound Tunnel)──► Tunnel ──eof──► Closed
//!              └─────────────────────────┴──► Closed
//! outbound:  Idle ──request──► Open ──send_head──► Sized │ Chunked │ UntilClose │ Silent │ Tunnel ──finish──► Idle
//! ```
//! - `examine`: what a head means for the connection

mod examine;

use std::rc::Rc;

use causeway_message::{
    BodyLength, Chunk, FieldMap, Framing, Head, Method, ResponseHead, StatusCode, StreamId, Version, WaitsFor,
    WriteList, names,
};

use crate::body::{Body, Found};
use crate::encode::{self, Length, Persistence};
use crate::event::{Event, Handled};
use crate::fault::HeadFault;
use crate::limits::Limits;
use crate::parse::{Parsed, has_end, parse_head};
use examine::{Facts, examine};

const _: () = assert!(size_of::<Server>() <= 64);

/// The server's side of one HTTP/1 connection.
///
/// Octets go in by [`Server::handle_octets`], again and again with what was not consumed, until it answers with neither
/// octets consumed nor an event; what is not consumed must be shown again, with more behind it.
#[derive(Debug)]
pub struct Server {
    limits: Rc<Limits>,
    inbound: Inbound,
    outbound: Outbound,
    // The open exchange, or the last one.
    stream: u32,
    // Another request may follow the open one.
    keep: bool,
    // The open exchange, or the next one, is the last.
    draining: bool,
    // Nothing follows what is to be written.
    over: bool,
    // The peer has closed its side; only requests that had come before may follow.
    eof: bool,
    is_10: bool,
    is_head: bool,
    is_connect: bool,
    // The client waits for a 100 that was not sent.
    expects_continue: bool,
    // Some octet of the next request has come.
    begun: bool,
    empty_lines: u8,
}

#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// Between requests or within a head; so many octets were searched for its end.
    Head {
        searched: u32,
    },
    Body(Body),
    /// Complete, its response is not.
    Done,
    Tunnel,
    /// Nothing is parsed any more.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    /// No exchange, or its response is complete.
    Idle,
    /// A final response is owed.
    Open,
    Sized(u64),
    Chunked,
    /// The last chunk has gone out with trailers.
    Trailed,
    UntilClose,
    /// The response ends with its head.
    Silent,
    Tunnel,
}

impl Server {
    /// A connection on which nothing has happened.
    #[must_use]
    pub fn new(limits: Rc<Limits>) -> Self {
        Self {
            limits,
            inbound: Inbound::Head { searched: 0 },
            outbound: Outbound::Idle,
            stream: 0,
            keep: true,
            draining: false,
            over: false,
            eof: false,
            is_10: false,
            is_head: false,
            is_connect: false,
            expects_continue: false,
            begun: false,
            empty_lines: 0,
        }
    }

    /// What of the peer's the connection waits for.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self.inbound {
            Inbound::Head { .. } if self.wants_close() => WaitsFor::Nothing,
            Inbound::Head { .. } if self.begun => WaitsFor::Head,
            Inbound::Head { .. } => WaitsFor::KeepAlive,
            Inbound::Body(_) => WaitsFor::Body,
            Inbound::Done | Inbound::Tunnel | Inbound::Closed => WaitsFor::Nothing,
        }
    }

    /// Once all output is written, and whatever was read is handed in, the connection is to be closed.
    #[must_use]
    pub fn wants_close(&self) -> bool {
        let between = matches!(self.inbound, Inbound::Head { .. });
        self.over || self.eof && between || self.draining && between && !self.begun
    }

    /// No exchange is open: neither a request under way behind its head nor a response.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Head { .. } | Inbound::Closed)
    }

    /// Whether it is to [end gracefully](Server::drain).
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether this exchange's response is open: its head or more of its content may be sent.
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && self.outbound != Outbound::Idle
    }

    /// Looks at octets from the peer. The spare head is filled when an event says so, and may be cleared otherwise while a
    /// head or trailers are incomplete. A head that was incomplete at first is looked at again when its end has come, or
    /// the limit is reached: a fault in it is told then. O(n) over all calls for each octet; no allocation once the head's memory has grown.
    pub fn handle_octets(&mut self, input: &[u8], head: &mut Head, _out: &mut WriteList) -> Handled {
        match &mut self.inbound {
            Inbound::Head { searched } => {
                let searched = *searched;
                self.handle_head(input, searched, head)
            }
            Inbound::Body(body) => match body.handle(input, &self.limits, head) {
                // The rest will never come.
                Ok(Found::More(0)) if self.eof => self.fail(HeadFault::Truncated),
                Ok(found) => self.handle_found(found),
                Err(fault) => self.fail(fault),
            },
            Inbound::Tunnel => self.handle_tunnel(input),
            Inbound::Done | Inbound::Closed => NOTHING,
        }
    }

    /// The peer has closed its side. To be told once [`Server::handle_octets`] consumes no more of what was read. What it left
    /// behind an open exchange may still be handed in after that exchange: requests that are whole are answered.
    pub fn handle_eof(&mut self) -> Option<Event> {
        let stream = StreamId(self.stream);
        match self.inbound {
            Inbound::Head { .. } => {
                self.inbound = Inbound::Closed;
                self.over = true;
                // RFC 9112 §8: an incomplete head is the end of it; there is no exchange to answer.
                self.begun.then_some(Event::Fault { stream: None, fault: HeadFault::Truncated })
            }
            Inbound::Body(_) => self.fail(HeadFault::Truncated).event,
            // RFC 9112 §9.6: the peer may still read: the response goes on, and so do those to requests that have come.
            Inbound::Done => {
                self.eof = true;
                None
            }
            Inbound::Tunnel => {
                self.inbound = Inbound::Closed;
                Some(Event::End { stream })
            }
            Inbound::Closed => None,
        }
    }

    /// What [`Server::waits_for`] names did not come in time. A head that was begun gets the one answer 408 (RFC 9110
    /// §15.5.9); about anything else the owner decides.
    pub fn handle_timeout(&mut self) -> Option<Event> {
        if self.waits_for() != WaitsFor::Head {
            return None;
        }
        (self.is_10, self.is_head, self.is_connect) = (false, false, false);
        self.fail(HeadFault::TooSlow).event
    }

    /// Begins to end gracefully: the open exchange, or one whose request has begun, is answered with `Connection: close`; an idle
    /// connection wants to be closed at once. A request that was already on its way may still be handed in, and is answered.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Makes room in the receive window: HTTP/1 has none.
    pub fn release(&mut self, _stream: StreamId, _octets: u32) {}

    /// Sends 100 if the client waits for it; else nothing (RFC 9110 §10.1.1).
    pub fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        if self.expects_continue && self.outbound == Outbound::Open && stream.0 == self.stream {
            self.expects_continue = false;
            out.put(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Sends an answer before the answer: 103 and its like. Nothing to an HTTP/1.0 client (RFC 9110 §15.2), behind the final
    /// head, or for 101, which is a final answer here.
    pub fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        let open = self.outbound == Outbound::Open && stream.0 == self.stream;
        if open && !self.is_10 && status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            if status == StatusCode::CONTINUE {
                self.expects_continue = false;
            }
            encode::informational(status, fields, out);
        }
    }

    /// Sends the final head. The framing fields are the machine's: what the head has of them is left out, but for the
    /// Content-Length of an answer to HEAD with [`Framing::Empty`]. Ignored where no head is owed. One copy of each field.
    pub fn send_head(
        &mut self,
        stream: StreamId,
        head: &ResponseHead,
        framing: Framing,
        date: &[u8; 29],
        out: &mut WriteList,
    ) {
        if stream.0 != self.stream || self.outbound != Outbound::Open {
            return;
        }
        let status = head.status();
        if status.is_informational() && framing != Framing::Tunnel {
            return self.send_informational(stream, status, head.fields(), out);
        }
        // RFC 9110 §10.1.1: a client that was told neither 100 nor to go away may send the content or leave it out; what comes
        // next cannot be known.
        // RFC 9110 §9.3.6: behind a 2xx to CONNECT the client takes everything for the tunnel's, whatever we meant.
        let is_false_tunnel = self.is_connect && matches!(status.as_u16(), 200..300) && framing != Framing::Tunnel;
        // The owner may close behind any answer by saying so in its Connection field (RFC 9112 §9.6).
        let says_close = head.fields().has_token(names::CONNECTION, "close");
        if self.draining || self.expects_continue || is_false_tunnel || says_close {
            self.keep = false;
        }
        let is_silent = self.is_head || status.forbids_content();
        // RFC 9110 §8.6, RFC 9112 §6.1: no length with 1xx, 204 and a tunnel.
        let (length, outbound) = match framing {
            Framing::Tunnel => (Length::Silent, Outbound::Tunnel),
            _ if status.forbids_content() || is_false_tunnel => (Length::Silent, Outbound::Silent),
            Framing::Empty if self.is_head => (Length::AsSet, Outbound::Silent),
            Framing::Empty => (Length::Octets(0), Outbound::Silent),
            Framing::Sized(octets) => (Length::Octets(octets), Outbound::Sized(octets)),
            Framing::Stream if self.is_10 && self.is_head => (Length::Silent, Outbound::Silent),
            Framing::Stream if self.is_10 => (Length::Silent, Outbound::UntilClose),
            Framing::Stream => (Length::Chunked, Outbound::Chunked),
        };
        let outbound = if is_silent && outbound != Outbound::Tunnel { Outbound::Silent } else { outbound };
        if matches!(outbound, Outbound::UntilClose | Outbound::Tunnel) {
            self.keep = false;
        }
        let persistence = match (outbound, self.keep) {
            (Outbound::Tunnel, _) | (_, true) if !self.is_10 || outbound == Outbound::Tunnel => Persistence::Silent,
            (_, true) => Persistence::KeepAlive,
            (_, false) => Persistence::Close,
        };
        encode::response_head(head, length, persistence, Some(date), out);
        self.outbound = outbound;
        if outbound == Outbound::Tunnel && matches!(self.inbound, Inbound::Done) {
            self.inbound = Inbound::Tunnel;
        }
    }

    /// Sends content: by reference where it is large. Ignored where the response has none (HEAD, 204, …) and past a
    /// sized response's end.
    pub fn send(&mut self, stream: StreamId, mut chunk: Chunk, out: &mut WriteList) {
        if stream.0 != self.stream || chunk.is_empty() {
            return;
        }
        match &mut self.outbound {
            Outbound::Sized(left) => {
                let len = take(left, chunk.len());
                if len < chunk.len() {
                    chunk = chunk.slice(0..len);
                }
                out.put_chunk(chunk);
            }
            Outbound::Chunked => encode::put_chunked(chunk, out),
            Outbound::UntilClose | Outbound::Tunnel => out.put_chunk(chunk),
            Outbound::Idle | Outbound::Open | Outbound::Trailed | Outbound::Silent => {}
        }
    }

    /// Sends content by copy; else as [`Server::send`].
    pub fn send_octets(&mut self, stream: StreamId, octets: &[u8], out: &mut WriteList) {
        if stream.0 != self.stream || octets.is_empty() {
            return;
        }
        match &mut self.outbound {
            Outbound::Sized(left) => {
                let len = take(left, octets.len());
                out.put(&octets[..len]);
            }
            Outbound::Chunked => {
                out.put_hex(octets.len() as u64);
                out.put(b"\r\n");
                out.put(octets);
                out.put(b"\r\n");
            }
            Outbound::UntilClose | Outbound::Tunnel => out.put(octets),
            Outbound::Idle | Outbound::Open | Outbound::Trailed | Outbound::Silent => {}
        }
    }

    /// Sends trailers, which end the content; [`Server::finish`] follows. Only chunked content can have them, elsewhere they
    /// are left out, and so is a field that may not be one (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        if stream.0 == self.stream && self.outbound == Outbound::Chunked {
            encode::trailers(fields, out);
            self.outbound = Outbound::Trailed;
        }
    }

    /// Ends the response. Where the head was never sent, or a sized content is short, this is a [`Server::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        if stream.0 != self.stream {
            return;
        }
        match self.outbound {
            Outbound::Idle => return,
            Outbound::Open | Outbound::Sized(1..) => return self.reset(stream),
            Outbound::Chunked => out.put(b"0\r\n\r\n"),
            Outbound::Tunnel => self.inbound = Inbound::Closed,
            Outbound::Sized(0) | Outbound::Trailed | Outbound::UntilClose | Outbound::Silent => {}
        }
        self.outbound = Outbound::Idle;
        self.settle();
    }

    /// Gives the exchange up: nothing more is sent or parsed, the connection wants to be closed. Nothing where the exchange is
    /// over already.
    pub fn reset(&mut self, stream: StreamId) {
        if stream.0 == self.stream && !self.is_idle() {
            self.outbound = Outbound::Idle;
            self.inbound = Inbound::Closed;
            self.keep = false;
            self.over = true;
        }
    }

    fn handle_head(&mut self, mut input: &[u8], mut searched: u32, head: &mut Head) -> Handled {
        if input.is_empty() || self.over {
            return NOTHING;
        }
        self.begun = true;
        let mut skipped = 0;
        // RFC 9112 §2.2: an empty line before the request line, which some clients send behind a body.
        while let [b'\r', b'\n', rest @ ..] = input {
            if self.empty_lines >= self.limits.leading_empty_lines_max {
                return self.fail(HeadFault::RequestLine);
            }
            self.empty_lines += 1;
            skipped += 2;
            searched = 0;
            input = rest;
        }
        let at_limit = input.len() >= self.limits.head_bytes_max as usize;
        let is_partial =
            input.is_empty() || input == b"\r" || searched > 0 && !at_limit && !has_end(input, searched as usize);
        let whole = if is_partial {
            Parsed::Partial
        } else {
            match parse_head(input, &self.limits, head) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    (self.is_10, self.is_head, self.is_connect) = (false, false, false);
                    return self.fail(fault);
                }
            }
        };
        match whole {
            Parsed::Partial => {
                self.inbound = Inbound::Head { searched: if input == b"\r" { 0 } else { input.len() as u32 } };
                Handled { consumed: skipped, event: None }
            }
            Parsed::Whole(len) => match examine(head) {
                Ok(facts) => self.open(facts, head, skipped + len),
                Err(fault) => {
                    self.note(head);
                    self.fail(fault)
                }
            },
        }
    }

    fn note(&mut self, head: &Head) {
        self.is_10 = head.version() == Version::Http10;
        self.is_head = head.method() == Method::Head;
        self.is_connect = head.method() == Method::Connect;
    }

    fn open(&mut self, facts: Facts, head: &Head, consumed: usize) -> Handled {
        self.note(head);
        self.stream += 1;
        // Numbers are not used twice.
        self.keep = facts.keep && self.stream < u32::MAX - 1;
        self.expects_continue = facts.expects_continue;
        self.outbound = Outbound::Open;
        self.inbound = match facts.body {
            BodyLength::None | BodyLength::Sized(0) => Inbound::Done,
            BodyLength::Sized(octets) => Inbound::Body(Body::sized(octets)),
            BodyLength::Unknown => Inbound::Body(Body::chunked()),
        };
        let event = Event::Head {
            stream: StreamId(self.stream),
            body: facts.body,
            expects_continue: facts.expects_continue,
            upgrade: facts.upgrade,
        };
        Handled { consumed, event: Some(event) }
    }

    fn handle_tunnel(&mut self, input: &[u8]) -> Handled {
        let stream = StreamId(self.stream);
        if !input.is_empty() {
            return Handled { consumed: input.len(), event: Some(Event::Data { stream, range: 0..input.len() }) };
        }
        if self.eof {
            self.inbound = Inbound::Closed;
            return Handled { consumed: 0, event: Some(Event::End { stream }) };
        }
        NOTHING
    }

    fn handle_found(&mut self, found: Found) -> Handled {
        let stream = StreamId(self.stream);
        let (consumed, event) = match found {
            Found::More(consumed) => (consumed, None),
            Found::Data(range) => (range.end, Some(Event::Data { stream, range })),
            Found::Trailers(consumed) => {
                self.inbound = Inbound::Done;
                self.settle();
                (consumed, Some(Event::Trailers { stream }))
            }
            Found::End(consumed) => {
                self.inbound = Inbound::Done;
                self.settle();
                (consumed, Some(Event::End { stream }))
            }
        };
        if consumed > 0 {
            // The client did not wait.
            self.expects_continue = false;
        }
        Handled { consumed, event }
    }

    #[cold]
    fn fail(&mut self, fault: HeadFault) -> Handled {
        if matches!(self.inbound, Inbound::Head { .. }) {
            // The one answer is an exchange of its own.
            self.stream += 1;
            self.outbound = Outbound::Open;
        }
        self.inbound = Inbound::Closed;
        self.keep = false;
        self.expects_continue = false;
        self.over = self.outbound == Outbound::Idle;
        let stream = (self.outbound == Outbound::Open).then_some(StreamId(self.stream));
        Handled { consumed: 0, event: Some(Event::Fault { stream, fault }) }
    }

    // Both sides through: on to the next request, or to the end. The response alone through: the end too, where no other may
    // follow.
    fn settle(&mut self) {
        if self.outbound != Outbound::Idle {
            if self.outbound == Outbound::Tunnel && matches!(self.inbound, Inbound::Done) {
                self.inbound = Inbound::Tunnel;
            }
        } else if !self.keep || self.draining {
            self.over = true;
            if matches!(self.inbound, Inbound::Done) {
                self.inbound = Inbound::Closed;
            }
        } else if matches!(self.inbound, Inbound::Done) {
            self.inbound = Inbound::Head { searched: 0 };
            self.begun = false;
            self.empty_lines = 0;
            self.expects_continue = false;
        }
    }
}

const NOTHING: Handled = Handled { consumed: 0, event: None };

// As much of `wanted` octets as is left; takes it off.
fn take(left: &mut u64, wanted: usize) -> usize {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(wanted);
    *left -= len as u64;
    len
}

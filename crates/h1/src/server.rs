//! One connection in the server's role (RFC 9112).
//!
//! Two state machines run side by side. When both have completed an exchange, the next request may begin.
//! ```text
//! inbound:   Head ──whole──► Body ──► Done ──(outbound Idle)──► Head
//!              │ fault, close  └─ fault ─┐ └──(outbound Tunnel)──► Tunnel ──eof──► Closed
//!              └─────────────────────────┴──► Closed
//! outbound:  Idle ──request──► Open ──send_head──► Sized │ Chunked │ UntilClose │ NoContent │ Tunnel ──finish──► Idle
//! ```
//! - `examine`: checks a request's fields and derives its framing and persistence

mod examine;

use std::rc::Rc;

use causeway_message::{
    BodyLength, Chunk, FieldMap, Framing, Head, Method, ResponseHead, StatusCode, StreamId, Version, WaitsFor,
    WriteList, names,
};

use crate::body::{BodyParser, ParsedPiece};
use crate::encode::{self, Length, Persistence};
use crate::error::ProtocolError;
use crate::event::{Event, Handled};
use crate::limits::Limits;
use crate::parse::{Parsed, has_end, parse_head};
use examine::{RequestProperties, examine};

#[cfg(test)]
const _: () = assert!(size_of::<Server>() <= 64);

/// The server's side of one HTTP/1 connection.
///
/// Call [`Server::handle_bytes`] repeatedly with the unconsumed bytes, until it returns neither consumed bytes nor an
/// event. Unconsumed bytes must be passed again, followed by the newly received ones.
#[derive(Debug)]
pub struct Server {
    limits: Rc<Limits>,
    inbound: Inbound,
    outbound: Outbound,
    // The number of the open exchange, or of the last one.
    stream: u32,
    // Whether another request may follow the open one.
    is_persistent: bool,
    // Graceful shutdown: the open exchange, or the next one, is the last.
    is_draining: bool,
    // Whether the connection ends once the pending output is written.
    is_closing: bool,
    // The peer has closed its sending side; only requests that were received before may follow.
    is_eof: bool,
    is_http_1_0: bool,
    is_head: bool,
    is_connect: bool,
    // The client waits for a 100 that has not been sent.
    expects_continue: bool,
    // A 101 needs a 100 before it, although the request has no content.
    continue_before_switch: bool,
    // Whether a byte of the next request has been received.
    has_begun: bool,
    empty_lines: u8,
}

#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// Between requests, or within a head of which `searched` bytes were searched for its end.
    Head {
        searched: u32,
    },
    Body(BodyParser),
    /// The request is complete, its response is not.
    Done,
    Tunnel,
    /// No further input is parsed.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    /// No exchange is open, or its response is complete.
    Idle,
    /// The final response head has not been sent.
    Open,
    Sized(u64),
    Chunked,
    /// The last chunk was sent with trailers.
    Ended,
    UntilClose,
    /// The response ends with its head.
    NoContent,
    Tunnel,
}

impl Server {
    /// A new connection.
    #[must_use]
    pub fn new(limits: Rc<Limits>) -> Self {
        Self {
            limits,
            inbound: Inbound::Head { searched: 0 },
            outbound: Outbound::Idle,
            stream: 0,
            is_persistent: true,
            is_draining: false,
            is_closing: false,
            is_eof: false,
            is_http_1_0: false,
            is_head: false,
            is_connect: false,
            expects_continue: false,
            continue_before_switch: false,
            has_begun: false,
            empty_lines: 0,
        }
    }

    /// The input that the connection waits for; the driver picks a deadline by it.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self.inbound {
            Inbound::Head { .. } if self.should_close() => WaitsFor::Nothing,
            Inbound::Head { .. } if self.has_begun => WaitsFor::Head,
            Inbound::Head { .. } => WaitsFor::KeepAlive,
            // RFC 9110 §10.1.1: the client waits for the 100, or for the response, so it is not late.
            Inbound::Body(_) if self.expects_continue && self.outbound == Outbound::Open => WaitsFor::Nothing,
            Inbound::Body(_) => WaitsFor::Body,
            Inbound::Done | Inbound::Tunnel | Inbound::Closed => WaitsFor::Nothing,
        }
    }

    /// Whether the driver should close the connection once all output is written and all received bytes are handled.
    #[must_use]
    pub fn should_close(&self) -> bool {
        let between = matches!(self.inbound, Inbound::Head { .. });
        self.is_closing || self.is_eof && between || self.is_draining && between && !self.has_begun
    }

    /// Whether no exchange is open: neither a request whose head is complete nor a response.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Head { .. } | Inbound::Closed)
    }

    /// Whether the client waits for a 100 response before it sends the content (RFC 9110 §10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.expects_continue
    }

    /// Whether [`Server::drain`] has been called.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Whether the response of this exchange is open: its head or more of its content may be sent.
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && self.outbound != Outbound::Idle
    }

    /// Whether our direction of a tunnel has ended and the peer's has not. Once the output is written, the driver
    /// shuts down the sending side of its transport, since a tunnel has no end marker of its own, and goes on
    /// reading.
    #[must_use]
    pub fn is_half_closed(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Tunnel)
    }

    /// Parses bytes from the peer. Fills `head` for [`Event::Head`] and [`Event::Trailers`]; otherwise `head` may be
    /// cleared while a head or trailers are incomplete. An incomplete head is parsed again only when its end arrives
    /// or the limit is reached, so that a fault in it may be reported late. O(n) over all calls for each byte; no
    /// allocation once the head's memory has grown.
    pub fn handle_bytes(&mut self, input: &[u8], head: &mut Head) -> Handled {
        match &mut self.inbound {
            Inbound::Head { searched } => {
                let searched = *searched;
                self.handle_head(input, searched, head)
            }
            Inbound::Body(body) => match body.handle(input, &self.limits, head) {
                // The rest of the body cannot arrive any more.
                Ok(ParsedPiece::More(0)) if self.is_eof => self.fail(ProtocolError::Truncated),
                Ok(found) => self.handle_found(found),
                Err(fault) => self.fail(fault),
            },
            Inbound::Tunnel => self.handle_tunnel(input),
            Inbound::Done | Inbound::Closed => NOTHING,
        }
    }

    /// Handles the peer's end of stream. Call it once [`Server::handle_bytes`] consumes no more of the received
    /// bytes. Bytes that were received after the open exchange's request may still be passed in when that exchange
    /// has ended: the complete requests among them are answered.
    pub fn handle_eof(&mut self) -> Option<Event> {
        match self.inbound {
            Inbound::Head { .. } => {
                self.inbound = Inbound::Closed;
                self.is_closing = true;
                // RFC 9112 §8: an incomplete head ends the connection; there is no exchange to respond on.
                self.has_begun.then_some(Event::Fault { stream: None, fault: ProtocolError::Truncated })
            }
            Inbound::Body(_) => self.fail(ProtocolError::Truncated).event,
            // RFC 9112 §9.6: the peer may still read. This response and those to requests already received are sent.
            Inbound::Done => {
                self.is_eof = true;
                None
            }
            Inbound::Tunnel => Some(self.end_tunnel()),
            Inbound::Closed => None,
        }
    }

    /// Handles the expiry of the deadline for [`Server::waits_for`]. A head that has begun gets an error response,
    /// 408 (RFC 9110 §15.5.9); in all other states the driver decides.
    pub fn handle_timeout(&mut self) -> Option<Event> {
        if self.waits_for() != WaitsFor::Head {
            return None;
        }
        (self.is_http_1_0, self.is_head, self.is_connect) = (false, false, false);
        self.fail(ProtocolError::TooSlow).event
    }

    /// Begins a graceful shutdown. The open exchange, or one whose request has begun, gets `Connection: close`; an
    /// idle connection has to be closed at once. A request that was in transit may still be passed in and is
    /// answered.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Sends a 100 response if the client waits for it (RFC 9110 §10.1.1); otherwise does nothing.
    pub fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        if self.expects_continue && self.outbound == Outbound::Open && stream.0 == self.stream {
            self.expects_continue = false;
            out.put(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
    }

    /// Sends an interim response, such as 103. Does nothing for an HTTP/1.0 client (RFC 9110 §15.2), after the final
    /// head, and for 101, which is a final response here.
    pub fn send_interim(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        let open = self.outbound == Outbound::Open && stream.0 == self.stream;
        if open && !self.is_http_1_0 && status.is_informational() && status != StatusCode::SWITCHING_PROTOCOLS {
            if status == StatusCode::CONTINUE {
                self.expects_continue = false;
            }
            encode::interim(status, fields, out);
        }
    }

    /// Sends the final head. The machine writes the framing fields and drops those of `head`, except the
    /// Content-Length of a response to HEAD with [`Framing::Empty`]. Does nothing unless the final head is pending.
    /// Copies each field once.
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
            return self.send_interim(stream, status, head.fields(), out);
        }
        // RFC 9110 §10.1.1: without a 100 the client may send the content or omit it, so the next bytes are
        // ambiguous. RFC 9110 §9.3.6: after a 2xx to CONNECT the client sends tunnel bytes, even if the handler did
        // not mean a tunnel. Some clients send them before they know the response: bytes after a refused CONNECT,
        // which another party may have chosen, must not be parsed as requests.
        let is_refused_connect = self.is_connect && framing != Framing::Tunnel;
        let is_false_tunnel = is_refused_connect && matches!(status.as_u16(), 200..300);
        // A handler may close the connection with any response through the Connection field (RFC 9112 §9.6).
        let has_close_option = head.fields().has_token(names::CONNECTION, "close");
        if self.is_draining || self.expects_continue || is_refused_connect || has_close_option {
            self.is_persistent = false;
        }
        let (length, outbound) = self.choose_framing(status, framing, is_false_tunnel);
        if matches!(outbound, Outbound::UntilClose | Outbound::Tunnel) {
            self.is_persistent = false;
        }
        // HTTP/1.1 persists by default, HTTP/1.0 needs `keep-alive`; a tunnel sends neither option.
        let persistence = if outbound == Outbound::Tunnel || self.is_persistent && !self.is_http_1_0 {
            Persistence::Default
        } else if self.is_persistent {
            Persistence::KeepAlive
        } else {
            Persistence::Close
        };
        // RFC 9110 §7.8: an expectation is met first, also that of a request without content.
        if self.continue_before_switch && status == StatusCode::SWITCHING_PROTOCOLS {
            encode::interim(StatusCode::CONTINUE, &FieldMap::new(), out);
        }
        encode::response_head(head, length, persistence, Some(date), out);
        self.outbound = outbound;
        if outbound == Outbound::Tunnel && matches!(self.inbound, Inbound::Done) {
            self.inbound = Inbound::Tunnel;
        }
    }

    // RFC 9110 §8.6, RFC 9112 §6.1: no length with 1xx, 204 and a tunnel.
    #[inline]
    fn choose_framing(&self, status: StatusCode, framing: Framing, is_false_tunnel: bool) -> (Length, Outbound) {
        let (length, outbound) = match framing {
            Framing::Tunnel => return (Length::Omitted, Outbound::Tunnel),
            _ if status.forbids_content() || is_false_tunnel => (Length::Omitted, Outbound::NoContent),
            Framing::Empty if self.is_head => (Length::AsSet, Outbound::NoContent),
            Framing::Empty => (Length::Bytes(0), Outbound::NoContent),
            Framing::Sized(bytes) => (Length::Bytes(bytes), Outbound::Sized(bytes)),
            Framing::Stream if self.is_http_1_0 && self.is_head => (Length::Omitted, Outbound::NoContent),
            Framing::Stream if self.is_http_1_0 => (Length::Omitted, Outbound::UntilClose),
            Framing::Stream => (Length::Chunked, Outbound::Chunked),
        };
        if self.is_head { (length, Outbound::NoContent) } else { (length, outbound) }
    }

    /// Sends content, by reference if it is large. Ignores content of a response that has none (HEAD, 204, …) and
    /// content beyond the end of a sized response.
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
            Outbound::Idle | Outbound::Open | Outbound::Ended | Outbound::NoContent => {}
        }
    }

    /// Sends content by copy; otherwise as [`Server::send`].
    pub fn send_bytes(&mut self, stream: StreamId, bytes: &[u8], out: &mut WriteList) {
        if stream.0 != self.stream || bytes.is_empty() {
            return;
        }
        match &mut self.outbound {
            Outbound::Sized(left) => {
                let len = take(left, bytes.len());
                out.put(&bytes[..len]);
            }
            Outbound::Chunked => {
                out.put_hex(bytes.len() as u64);
                out.put(b"\r\n");
                out.put(bytes);
                out.put(b"\r\n");
            }
            Outbound::UntilClose | Outbound::Tunnel => out.put(bytes),
            Outbound::Idle | Outbound::Open | Outbound::Ended | Outbound::NoContent => {}
        }
    }

    /// Sends trailers, which end the content; [`Server::finish`] follows. Drops them unless the content is chunked,
    /// and drops fields that are not allowed in trailers (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        if stream.0 == self.stream && self.outbound == Outbound::Chunked {
            encode::trailers(fields, out);
            self.outbound = Outbound::Ended;
        }
    }

    /// Ends the response, or our direction of a tunnel (see [`Server::is_half_closed`]). If the head was not sent, or
    /// sized content is too short, this is a [`Server::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        if stream.0 != self.stream {
            return;
        }
        match self.outbound {
            Outbound::Idle => return,
            Outbound::Open | Outbound::Sized(1..) => return self.reset(stream),
            Outbound::Chunked => out.put(b"0\r\n\r\n"),
            Outbound::Tunnel if matches!(self.inbound, Inbound::Tunnel) => {
                self.outbound = Outbound::Idle;
                return;
            }
            Outbound::Tunnel => self.inbound = Inbound::Closed,
            Outbound::Sized(0) | Outbound::Ended | Outbound::UntilClose | Outbound::NoContent => {}
        }
        self.outbound = Outbound::Idle;
        self.advance_exchange();
    }

    /// Aborts the exchange: no more bytes are sent or parsed, and the connection has to be closed. Does nothing if
    /// the exchange is over.
    pub fn reset(&mut self, stream: StreamId) {
        if stream.0 == self.stream && !self.is_idle() {
            self.outbound = Outbound::Idle;
            self.inbound = Inbound::Closed;
            self.is_persistent = false;
            self.is_closing = true;
        }
    }

    fn handle_head(&mut self, mut input: &[u8], mut searched: u32, head: &mut Head) -> Handled {
        if input.is_empty() || self.is_closing {
            return NOTHING;
        }
        let mut skipped = 0;
        // RFC 9112 §2.2: skip empty lines before the request line, which some clients send after a body.
        while let [b'\r', b'\n', rest @ ..] = input {
            if self.empty_lines >= self.limits.leading_empty_lines_max {
                return self.fail(ProtocolError::RequestLine);
            }
            self.empty_lines += 1;
            skipped += 2;
            searched = 0;
            input = rest;
        }
        // An empty line after a body begins no request: the connection stays idle, and a client that sends nothing more
        // is not late.
        self.has_begun = !input.is_empty();
        let at_limit = input.len() >= self.limits.head_bytes_max as usize;
        // Parse only if the new bytes contain an end, so that a head that arrives byte by byte costs O(n).
        let is_partial =
            input.is_empty() || input == b"\r" || searched > 0 && !at_limit && !has_end(input, searched as usize);
        let whole = if is_partial {
            Parsed::Partial
        } else {
            match parse_head(input, &self.limits, head) {
                Ok(parsed) => parsed,
                Err(fault) => {
                    (self.is_http_1_0, self.is_head, self.is_connect) = (false, false, false);
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
                Ok(properties) => self.open(properties, head, skipped + len),
                Err(fault) => {
                    self.record_request(head);
                    self.fail(fault)
                }
            },
        }
    }

    fn record_request(&mut self, head: &Head) {
        self.is_http_1_0 = head.version() == Version::Http10;
        self.is_head = head.method() == Method::Head;
        self.is_connect = head.method() == Method::Connect;
    }

    fn open(&mut self, properties: RequestProperties, head: &Head, consumed: usize) -> Handled {
        self.record_request(head);
        self.stream += 1;
        // Stream numbers are not reused.
        self.is_persistent = properties.is_persistent && self.stream < u32::MAX - 1;
        self.expects_continue = properties.expects_continue;
        self.continue_before_switch = properties.continue_before_switch;
        self.outbound = Outbound::Open;
        self.inbound = match properties.body {
            BodyLength::None | BodyLength::Sized(0) => Inbound::Done,
            BodyLength::Sized(bytes) => Inbound::Body(BodyParser::sized(bytes)),
            BodyLength::Unknown => Inbound::Body(BodyParser::chunked()),
        };
        let event = Event::Head { stream: StreamId(self.stream), body: properties.body, upgrade: properties.upgrade };
        Handled { consumed, event: Some(event) }
    }

    fn handle_tunnel(&mut self, input: &[u8]) -> Handled {
        let stream = StreamId(self.stream);
        if !input.is_empty() {
            return Handled { consumed: input.len(), event: Some(Event::Data { stream, range: 0..input.len() }) };
        }
        if self.is_eof {
            return Handled { consumed: 0, event: Some(self.end_tunnel()) };
        }
        NOTHING
    }

    // Ends the peer's direction of a tunnel. The exchange is over if our direction has ended too.
    fn end_tunnel(&mut self) -> Event {
        self.inbound = Inbound::Closed;
        self.is_closing = self.outbound == Outbound::Idle;
        Event::End { stream: StreamId(self.stream) }
    }

    fn handle_found(&mut self, found: ParsedPiece) -> Handled {
        let stream = StreamId(self.stream);
        let (consumed, event) = match found {
            ParsedPiece::More(consumed) => (consumed, None),
            ParsedPiece::Data(range) => (range.end, Some(Event::Data { stream, range })),
            ParsedPiece::Trailers(consumed) => {
                self.inbound = Inbound::Done;
                self.advance_exchange();
                (consumed, Some(Event::Trailers { stream }))
            }
            ParsedPiece::End(consumed) => {
                self.inbound = Inbound::Done;
                self.advance_exchange();
                (consumed, Some(Event::End { stream }))
            }
        };
        if consumed > 0 {
            // The client did not wait for the 100.
            self.expects_continue = false;
        }
        Handled { consumed, event }
    }

    #[cold]
    fn fail(&mut self, fault: ProtocolError) -> Handled {
        if matches!(self.inbound, Inbound::Head { .. }) {
            // The error response gets an exchange of its own.
            self.stream += 1;
            self.outbound = Outbound::Open;
        }
        self.inbound = Inbound::Closed;
        self.is_persistent = false;
        self.expects_continue = false;
        self.is_closing = self.outbound == Outbound::Idle;
        let stream = (self.outbound == Outbound::Open).then_some(StreamId(self.stream));
        Handled { consumed: 0, event: Some(Event::Fault { stream, fault }) }
    }

    // Advances the connection after one side has completed. If both have, it waits for the next request or ends. If
    // only the response has, it ends too if no other request may follow.
    fn advance_exchange(&mut self) {
        if self.outbound != Outbound::Idle {
            // The request's content ended after a tunnel response was sent.
            if self.outbound == Outbound::Tunnel && matches!(self.inbound, Inbound::Done) {
                self.inbound = Inbound::Tunnel;
            }
        } else if !self.is_persistent || self.is_draining {
            self.is_closing = true;
            if matches!(self.inbound, Inbound::Done) {
                self.inbound = Inbound::Closed;
            }
        } else if matches!(self.inbound, Inbound::Done) {
            self.inbound = Inbound::Head { searched: 0 };
            self.has_begun = false;
            self.empty_lines = 0;
            self.expects_continue = false;
        }
    }
}

const NOTHING: Handled = Handled { consumed: 0, event: None };

// Takes up to `wanted` bytes off `left` and returns the number taken.
fn take(left: &mut u64, wanted: usize) -> usize {
    let len = usize::try_from(*left).unwrap_or(usize::MAX).min(wanted);
    *left -= len as u64;
    len
}

//! One connection in the client's role (RFC 9112), for upstreams.
//!
//! Two state machines run side by side, as in the server's role. When both have completed an exchange, the next
//! request may be sent.
//! ```text
//! inbound:   Idle ──open──► Head ──final head──► Body │ UntilClose ──end──► Done ──(outbound Idle)──► Idle
//!              │            ▲ │ └──switch──► Tunnel ──eof─┐  │ fault         │ bytes, close,
//!              │ bytes     └─┤ 1xx                       ▼  ▼               ▼ or the last exchange
//!              └──────────────┴──fault, close──────────► Closed ◄────────────┘
//! outbound:  Idle ──open──► Sized │ Chunked ──trailers, or last response complete──► Ended ──finish──► Idle
//!                           Waiting ──switch──► Tunnel ──finish──► Idle
//! ```
//! - `examine`: checks a response's head and derives its framing and persistence
//! - `encode`: writes a request's head

mod encode;
mod examine;

use std::fmt;
use std::rc::Rc;

use causeway_message::{
    BodyLength, Chunk, FieldMap, Framing, Head, Method, OpenError, ResponseHead, StreamId, Version, WaitsFor, WriteList,
};

use crate::body::{BodyParser, ParsedPiece};
use crate::encode::{put_chunked, trailers};
use crate::error::ProtocolError;
use crate::event::{ClientEvent, ClientHandled};
use crate::limits::Limits;
use crate::parse::{Parsed, has_end, response_head};
use examine::{RequestKind, ResponseKind, examine};

#[cfg(test)]
const _: () = assert!(size_of::<Client>() <= 72);

/// A forward proxy as the peer of a [`Client`].
#[derive(Clone, Default)]
pub struct ForwardProxy {
    /// The authority of all requests, in place of that of their heads: clients must not choose where the proxy connects
    /// to.
    pub authority: Box<str>,
    /// The value of Proxy-Authorization (RFC 9110 §11.7.2), if the proxy requires one.
    pub authorization: Option<Box<str>>,
}

// By hand, so that no log contains the password.
impl fmt::Debug for ForwardProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForwardProxy").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// The client's side of one HTTP/1 connection.
///
/// It is driven as [`Server`](crate::Server) is: call [`Client::handle_bytes`] repeatedly with the unconsumed bytes,
/// until it returns neither consumed bytes nor an event. One exchange is open at a time. It ends when its response
/// and its request are complete ([`Client::finish`], or [`Framing::Empty`]), or when it is reset. An exchange is the
/// last one if its response ends the connection or the connection's state is no longer certain ([`Client::is_last`]).
#[derive(Debug)]
pub struct Client {
    limits: Rc<Limits>,
    proxy: Option<Rc<ForwardProxy>>,
    /// The connection serves one request, with `Connection: close`.
    is_single: bool,
    inbound: Inbound,
    outbound: Outbound,
    // The number of the open exchange, or of the last one.
    stream: u32,
    // Number of interim responses to the open exchange.
    interims: u16,
    // The kind of the open request, which decides how its response is parsed.
    request_kind: RequestKind,
    // Whether a byte of the response has been received.
    has_response: bool,
    // Whether the last response head was HTTP/1.0.
    is_http_1_0: bool,
    // Whether another request may follow the open one.
    is_persistent: bool,
    // The open exchange is the last.
    is_draining: bool,
    // Whether the connection ends once the pending output is written.
    is_closing: bool,
}

#[derive(Clone, Copy, Debug)]
enum Inbound {
    /// No response is expected: any byte is a fault.
    Idle,
    /// Before a response, or within its head, of which `searched` bytes were searched for its end.
    Head {
        searched: u32,
    },
    Body(BodyParser),
    /// Content that ends with the connection.
    UntilClose,
    /// The response is complete, its request is not.
    Done,
    Tunnel,
    /// No further input is parsed.
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outbound {
    /// No exchange is open, or its request is complete.
    Idle,
    Sized(u64),
    Chunked,
    /// Content that the caller still sends is dropped: trailers were sent, or the peer no longer reads it.
    Ended,
    /// The request is for another protocol, and complete: nothing may be sent before the response.
    Waiting,
    Tunnel,
}

impl Client {
    /// A new connection.
    #[must_use]
    pub fn new(limits: Rc<Limits>) -> Self {
        Self {
            limits,
            proxy: None,
            is_single: false,
            inbound: Inbound::Idle,
            outbound: Outbound::Idle,
            stream: 0,
            interims: 0,
            request_kind: RequestKind::Content,
            has_response: false,
            is_http_1_0: false,
            is_persistent: true,
            is_draining: false,
            is_closing: false,
        }
    }

    /// The peer is a forward proxy: requests are sent in absolute form with the scheme `http` (RFC 9112 §3.2.2).
    #[must_use]
    pub fn with_forward_proxy(mut self, proxy: ForwardProxy) -> Self {
        self.proxy = Some(Rc::new(proxy));
        self
    }

    /// The connection serves one request, which has `Connection: close` (RFC 9112 §9.6).
    #[must_use]
    pub fn without_keep_alive(mut self) -> Self {
        self.is_single = true;
        self
    }

    /// The input that the connection waits for: the rest of a response head that has begun, its content, or, between
    /// exchanges, only the end of the connection. The driver itself bounds the time until a response begins.
    #[must_use]
    pub fn waits_for(&self) -> WaitsFor {
        match self.inbound {
            Inbound::Idle if self.should_close() => WaitsFor::Nothing,
            Inbound::Idle => WaitsFor::KeepAlive,
            Inbound::Head { searched: 1.. } => WaitsFor::Head,
            Inbound::Body(_) | Inbound::UntilClose => WaitsFor::Body,
            Inbound::Head { searched: 0 } | Inbound::Done | Inbound::Tunnel | Inbound::Closed => WaitsFor::Nothing,
        }
    }

    /// Whether the driver should close the connection once all output is written.
    #[must_use]
    pub fn should_close(&self) -> bool {
        self.is_closing || self.is_draining && self.is_idle()
    }

    /// Whether no further request can be sent.
    #[must_use]
    pub fn is_last(&self) -> bool {
        // Stream numbers are not reused.
        self.is_closing
            || self.is_draining
            || !self.is_persistent
            || self.stream == u32::MAX
            || self.is_single && self.stream > 0
    }

    /// The version of the last complete response head.
    #[must_use]
    pub fn version(&self) -> Version {
        if self.is_http_1_0 { Version::Http10 } else { Version::Http11 }
    }

    /// Whether no exchange is open.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Idle | Inbound::Closed)
    }

    /// The number of requests that may be sent now, 0 or 1. If it is 1, the connection may be reused.
    #[must_use]
    pub fn room(&self) -> usize {
        usize::from(self.is_idle() && !self.is_last())
    }

    /// Whether this exchange accepts content: it is open, its request is not complete, and no protocol switch is
    /// pending.
    #[inline]
    #[must_use]
    pub fn writable(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && !matches!(self.outbound, Outbound::Idle | Outbound::Waiting)
    }

    /// Whether this exchange has become a tunnel, by a 101 or by a 2xx to CONNECT (RFC 9110 §7.8, §9.3.6).
    #[must_use]
    pub fn is_tunnel(&self, stream: StreamId) -> bool {
        stream.0 == self.stream && (self.outbound == Outbound::Tunnel || matches!(self.inbound, Inbound::Tunnel))
    }

    /// Whether our direction of a tunnel has ended and the peer's has not, as
    /// [`Server::is_half_closed`](crate::Server::is_half_closed).
    #[must_use]
    pub fn is_half_closed(&self) -> bool {
        self.outbound == Outbound::Idle && matches!(self.inbound, Inbound::Tunnel)
    }

    /// Sends a request's head. The target is sent in origin form or as `*`, or in absolute form to a
    /// [proxy](Self::with_forward_proxy); Host is the head's authority, or the one for the proxy. The machine writes
    /// the fields that frame the message or describe the connection and drops those of `head`, except `TE: trailers`;
    /// it also drops Expect. [`Framing::Tunnel`] requests another protocol: the one in the head's Upgrade field, or
    /// with CONNECT a tunnel to the target.
    ///
    /// Before it reuses a connection, the caller must pass all received bytes to [`Client::handle_bytes`]. Bytes that
    /// the peer sent before the request would otherwise be parsed as its response.
    pub fn open(&mut self, head: &Head, framing: Framing, out: &mut WriteList) -> Result<StreamId, OpenError> {
        self.send_request_head(head, framing, 0, out)
    }

    /// As [`Client::open`] with [`Framing::Tunnel`], for a request that has content, which this method sends. The
    /// other protocol begins after it (RFC 9110 §7.8).
    pub fn open_after(&mut self, head: &Head, content: Chunk, out: &mut WriteList) -> Result<StreamId, OpenError> {
        let stream = self.send_request_head(head, Framing::Tunnel, content.len(), out)?;
        out.put_chunk(content);
        Ok(stream)
    }

    /// Sends a request's head. `before_tunnel`: the bytes of content that precede a tunnel.
    fn send_request_head(
        &mut self,
        head: &Head,
        framing: Framing,
        before_tunnel: usize,
        out: &mut WriteList,
    ) -> Result<StreamId, OpenError> {
        if self.is_last() {
            return Err(OpenError::Ending);
        }
        if !self.is_idle() {
            return Err(OpenError::Full);
        }
        let (proxy, is_last) = (self.proxy.as_deref(), self.is_single);
        encode::request_head(head, (framing, before_tunnel), proxy, is_last, out).ok_or(OpenError::Head)?;
        self.stream += 1;
        self.request_kind = match (head.method(), framing) {
            (Method::Connect, _) => RequestKind::Connect,
            (method, Framing::Tunnel) => RequestKind::Switch { is_head: method == Method::Head },
            (Method::Head, _) => RequestKind::Head,
            _ => RequestKind::Content,
        };
        (self.interims, self.has_response) = (0, false);
        self.inbound = Inbound::Head { searched: 0 };
        self.outbound = match framing {
            Framing::Empty => Outbound::Idle,
            Framing::Sized(bytes) => Outbound::Sized(bytes),
            Framing::Stream => Outbound::Chunked,
            Framing::Tunnel => Outbound::Waiting,
        };
        Ok(StreamId(self.stream))
    }

    /// Parses bytes from the peer. Fills `head` for [`ClientEvent::Interim`], [`ClientEvent::Head`] and
    /// [`ClientEvent::Trailers`]; otherwise `head` may be cleared while a head or trailers are incomplete. An
    /// incomplete head is parsed again only when its end arrives or the limit is reached, so that a fault in it may
    /// be reported late. O(n) over all calls for each byte; no allocation once the head's memory has grown.
    pub fn handle_bytes(&mut self, input: &[u8], head: &mut ResponseHead) -> ClientHandled {
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
            // Unsolicited bytes would be parsed as the response to the next request.
            Inbound::Idle | Inbound::Done => self.fail(ProtocolError::Unsolicited, input),
            Inbound::Closed => ClientHandled { consumed: input.len(), event: None },
        }
    }

    /// Handles the peer's orderly end of stream. Call it once [`Client::handle_bytes`] consumes no more of the
    /// received bytes. Content that is delimited by the end of the connection is complete then; after a disorderly
    /// end call [`Client::handle_loss`].
    pub fn handle_eof(&mut self) -> Option<ClientEvent> {
        let stream = StreamId(self.stream);
        match self.inbound {
            Inbound::Idle => {
                (self.inbound, self.is_closing) = (Inbound::Closed, true);
                None
            }
            Inbound::Head { .. } if !self.has_response => {
                self.end();
                Some(ClientEvent::Unprocessed { stream, fault: None })
            }
            Inbound::UntilClose => {
                self.inbound = Inbound::Done;
                self.advance_exchange();
                Some(ClientEvent::End { stream })
            }
            // RFC 9112 §8: a message that ends early is incomplete. In `Done` the incomplete message is the request.
            Inbound::Head { .. } | Inbound::Body(_) | Inbound::Done => self.fail(ProtocolError::Truncated, &[]).event,
            Inbound::Tunnel => {
                self.inbound = Inbound::Closed;
                self.is_closing = self.outbound == Outbound::Idle;
                Some(ClientEvent::End { stream })
            }
            Inbound::Closed => None,
        }
    }

    /// Handles the loss of the connection: a reset, or a transport that ended without its own end marker. As
    /// [`Client::handle_eof`], except that it completes no content.
    pub fn handle_loss(&mut self) -> Option<ClientEvent> {
        match self.inbound {
            Inbound::UntilClose | Inbound::Tunnel => self.fail(ProtocolError::Truncated, &[]).event,
            _ => self.handle_eof(),
        }
    }

    /// Handles the expiry of the deadline for [`Client::waits_for`]. A head that has begun fails the connection, an
    /// idle connection has to be closed; in all other states the driver decides.
    pub fn handle_timeout(&mut self) -> Option<ClientEvent> {
        match self.waits_for() {
            WaitsFor::Head => self.fail(ProtocolError::TooSlow, &[]).event,
            WaitsFor::KeepAlive => {
                self.drain();
                None
            }
            _ => None,
        }
    }

    /// Accepts no further request; the connection has to be closed once the open exchange has ended.
    pub fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Sends content, by reference if it is large. Takes all of `chunk`, or none of it while a protocol switch is
    /// pending (see [`Client::writable`]). Drops bytes beyond the end of a sized content, and bytes that the peer no
    /// longer reads.
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

    /// Sends trailers, which end the content; [`Client::finish`] follows. Drops them unless the content is chunked,
    /// and drops fields that are not allowed in trailers (RFC 9110 §6.5.1).
    pub fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        if stream.0 == self.stream && self.outbound == Outbound::Chunked {
            trailers(fields, out);
            self.outbound = Outbound::Ended;
        }
    }

    /// Completes the request, or ends our direction of a tunnel (see [`Client::is_half_closed`]). If sized content is
    /// too short, or a protocol switch is still pending, this is a [`Client::reset`].
    pub fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        if stream.0 != self.stream {
            return;
        }
        match self.outbound {
            Outbound::Idle => return,
            Outbound::Waiting | Outbound::Sized(1..) => return self.reset(stream),
            Outbound::Tunnel if matches!(self.inbound, Inbound::Tunnel) => {
                self.outbound = Outbound::Idle;
                return;
            }
            Outbound::Tunnel => return self.end(),
            Outbound::Chunked => out.put(b"0\r\n\r\n"),
            Outbound::Sized(0) | Outbound::Ended => {}
        }
        self.outbound = Outbound::Idle;
        self.advance_exchange();
    }

    /// Aborts the exchange: no more bytes are sent or parsed, and the connection has to be closed. Does nothing if
    /// the exchange is over.
    pub fn reset(&mut self, stream: StreamId) {
        if stream.0 == self.stream && !self.is_idle() {
            self.end();
        }
    }

    fn handle_head(&mut self, input: &[u8], searched: usize, head: &mut ResponseHead) -> ClientHandled {
        self.has_response = true;
        let at_limit = input.len() >= self.limits.head_bytes_max as usize;
        // Parse only if the new bytes contain an end, so that a head that arrives byte by byte costs O(n).
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
                self.is_http_1_0 = version == Version::Http10;
                match examine(head, version, self.request_kind).and_then(|kind| self.handle_response(kind)) {
                    Ok(event) => ClientHandled { consumed: len, event: Some(event) },
                    Err(fault) => self.fail(fault, input),
                }
            }
            Err(fault) => self.fail(fault, input),
        }
    }

    fn handle_response(&mut self, kind: ResponseKind) -> Result<ClientEvent, ProtocolError> {
        let stream = StreamId(self.stream);
        let body = match kind {
            ResponseKind::Interim => {
                // RFC 9110 §15.2 allows any number; the limit bounds an endless series.
                self.interims += 1;
                if self.interims > self.limits.interims_max {
                    return Err(ProtocolError::TooManyInterims);
                }
                self.inbound = Inbound::Head { searched: 0 };
                return Ok(ClientEvent::Interim { stream });
            }
            ResponseKind::Switch => {
                self.is_persistent = false;
                (self.inbound, self.outbound) = (Inbound::Tunnel, Outbound::Tunnel);
                BodyLength::Unknown
            }
            ResponseKind::Final { body, until_close, is_persistent } => {
                self.is_persistent &= is_persistent;
                if self.outbound == Outbound::Waiting {
                    // The switch was declined; its request is complete.
                    self.outbound = Outbound::Idle;
                }
                self.inbound = match body {
                    BodyLength::None => Inbound::Done,
                    BodyLength::Sized(bytes) => Inbound::Body(BodyParser::sized(bytes)),
                    BodyLength::Unknown if until_close => Inbound::UntilClose,
                    BodyLength::Unknown => Inbound::Body(BodyParser::chunked()),
                };
                self.advance_exchange();
                body
            }
        };
        Ok(ClientEvent::Head { stream, body })
    }

    fn handle_found(&mut self, found: ParsedPiece) -> ClientHandled {
        let stream = StreamId(self.stream);
        let (consumed, event) = match found {
            ParsedPiece::More(consumed) => (consumed, None),
            ParsedPiece::Data(range) => (range.end, Some(ClientEvent::Data { stream, range })),
            ParsedPiece::Trailers(consumed) => {
                self.inbound = Inbound::Done;
                self.advance_exchange();
                (consumed, Some(ClientEvent::Trailers { stream }))
            }
            ParsedPiece::End(consumed) => {
                self.inbound = Inbound::Done;
                self.advance_exchange();
                (consumed, Some(ClientEvent::End { stream }))
            }
        };
        ClientHandled { consumed, event }
    }

    #[cold]
    fn fail(&mut self, fault: ProtocolError, input: &[u8]) -> ClientHandled {
        self.end();
        ClientHandled { consumed: input.len(), event: Some(ClientEvent::Broken { fault: Some(fault) }) }
    }

    fn end(&mut self) {
        (self.inbound, self.outbound) = (Inbound::Closed, Outbound::Idle);
        self.is_closing = true;
    }

    // Advances the connection after the response is complete. If no other request may follow, the rest of the request
    // is dropped (RFC 9112 §9.6); if the request is complete too, the next one may be sent.
    fn advance_exchange(&mut self) {
        if !matches!(self.inbound, Inbound::Done) {
            return;
        }
        if !self.is_persistent {
            (self.inbound, self.is_closing) = (Inbound::Closed, true);
            if self.outbound != Outbound::Idle {
                self.outbound = Outbound::Ended;
            }
        } else if self.outbound == Outbound::Idle {
            self.inbound = Inbound::Idle;
        }
    }
}

const NOTHING: ClientHandled = ClientHandled { consumed: 0, event: None };

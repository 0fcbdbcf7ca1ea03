//! A server's machine, which is HTTP/1.1 or HTTP/2.
//!
//! ```text
//!   in the clear:  Http1, first bytes ──the preface──► Http2        (prior knowledge, RFC 9113 §3.3)
//!                    │ anything else ──► closed                (where the listener does not serve HTTP/1)
//!                    ▼
//!                  Http1 ──Upgrade: h2c──► Http2               (RFC 7540 §3.2, where the listener allows it)
//!   over TLS:      the choice of ALPN, to the end
//! ```
//! If the listener serves no protocol on a connection, `accept` or the TLS handshake closes it, and there is no
//! machine. One type for both versions means one copy of the driver's code in the instruction cache; each command costs
//! a well-predicted branch.

use std::rc::Rc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_h1 as h1;
use causeway_h2 as h2;
use causeway_message::{
    BodyLength, Chunk, FieldMap, FieldValue, Head, ResponseHead, StatusCode, StreamId, Version, WriteList, names,
};

use super::{Framing, Machine, ServerEvent, ServerMachine, WaitsFor};
use crate::listener::{HttpConfig, ListenerPlan};

/// While the first bytes may still become HTTP/2's preface, the HTTP/1 machine gets at most this many of them: too few
/// for a request line.
const SHOWN_MAX: usize = 3;
/// Pipelined requests of HTTP/1.1 that may wait for one write.
const PIPELINED_MAX: usize = 64;
/// Exchanges of HTTP/2 whose streams are closed and which only wait to be written, besides the open ones.
const CLOSED_MAX: usize = 128;

const SERVER: FieldValue<'static> = FieldValue::from_static("Causeway");

/// The protocol machine of a connection that a client opened.
pub(crate) enum HttpServerMachine {
    /// HTTP/1.1, which may become HTTP/2.
    Http1(Http1),
    /// HTTP/2.
    Http2(Box<h2::Server>),
}

/// HTTP/1.1, and the offer that decides whether it may become HTTP/2.
pub(crate) struct Http1 {
    server: h1::Server,
    http: Rc<HttpConfig>,
    /// In the clear, and the bytes so far may be the beginning of HTTP/2's preface.
    may_be_preface: bool,
    is_cleartext: bool,
}

impl HttpServerMachine {
    /// A connection in the clear.
    pub(crate) fn for_cleartext(http: &Rc<HttpConfig>) -> Self {
        Self::Http1(Http1 { may_be_preface: http.protocols.http2_clear, is_cleartext: true, ..Http1::new(http) })
    }

    /// A connection over TLS, with the protocol that ALPN chose (RFC 7301); HTTP/1.1 without a choice.
    pub(crate) fn for_tls(http: &Rc<HttpConfig>, alpn: Option<&[u8]>) -> Self {
        // Over TLS the preface decides nothing: ALPN did, and the client has its result.
        if alpn == Some(b"h2") {
            return Self::http2(http);
        }
        Self::Http1(Http1::new(http))
    }

    fn http2(http: &HttpConfig) -> Self {
        Self::Http2(Box::new(h2::Server::new(Rc::clone(&http.http2))))
    }

    /// Replaces the machine of HTTP/1.1 by `next`.
    #[cold]
    fn become_http2(&mut self, mut next: Self, out: &mut WriteList) {
        if matches!(self, Self::Http1(http1) if http1.server.is_draining()) {
            next.drain(out);
        }
        *self = next;
    }
}

impl Http1 {
    /// HTTP/1.1 and nothing else.
    fn new(http: &Rc<HttpConfig>) -> Self {
        let server = h1::Server::new(Rc::clone(&http.http1));
        Self { server, http: Rc::clone(http), may_be_preface: false, is_cleartext: false }
    }

    /// Returns how many of the first bytes the HTTP/1 machine gets; `None` if they are HTTP/2's preface. While they may
    /// become the preface, the machine gets too few of them to respond, but enough to report that it waits for a head.
    #[cold]
    fn check_preface(&mut self, bytes: &[u8]) -> Option<usize> {
        // The preface begins like a request line, `PRI * HTTP/2.0`, so a few bytes do not tell the versions apart.
        let common = bytes.iter().zip(h2::PREFACE).take_while(|(byte, expected)| byte == expected).count();
        if common == h2::PREFACE.len() {
            return None;
        }
        // A beginning of the preface.
        self.may_be_preface = common == bytes.len();
        Some(if self.may_be_preface { common.min(SHOWN_MAX) } else { bytes.len() })
    }

    /// Returns the settings of a request that upgrades to HTTP/2 as in RFC 7540 §3.2.
    #[cold]
    fn settings_of_upgrade(&self, head: &Head) -> Option<Vec<u8>> {
        let fields = head.fields();
        // All conditions of RFC 7540 §3.2 and §3.2.1. Otherwise the request is served over HTTP/1.1.
        let is_upgrade = fields.has_token(names::UPGRADE, "h2c")
            && fields.has_token(names::CONNECTION, "HTTP2-Settings")
            && head.version() == Version::Http11
            && !fields.is_repeated(names::HTTP2_SETTINGS);
        if !is_upgrade {
            return None;
        }
        URL_SAFE_NO_PAD.decode(fields.get(names::HTTP2_SETTINGS)?).ok()
    }
}

/// Runs the same expression on either machine.
macro_rules! either {
    ($this:expr, $machine:ident => $work:expr) => {
        match $this {
            HttpServerMachine::Http1(Http1 { server: $machine, .. }) => $work,
            HttpServerMachine::Http2($machine) => $work,
        }
    };
}

impl Machine for HttpServerMachine {
    fn is_multiplexed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    fn waits_for(&self) -> WaitsFor {
        either!(self, machine => machine.waits_for())
    }

    fn should_close(&self) -> bool {
        either!(self, machine => machine.should_close())
    }

    fn is_half_closed(&self) -> bool {
        matches!(self, Self::Http1(http1) if http1.server.is_half_closed())
    }

    fn is_last(&self) -> bool {
        match self {
            Self::Http1(http1) => !http1.server.is_idle(),
            Self::Http2(machine) => machine.is_last(),
        }
    }

    fn writable(&self, stream: StreamId) -> bool {
        either!(self, machine => machine.writable(stream))
    }

    fn rank(&self, stream: StreamId) -> u64 {
        match self {
            Self::Http1(_) => 0,
            Self::Http2(machine) => machine.rank(stream),
        }
    }

    fn quantum(&self, stream: StreamId) -> usize {
        match self {
            Self::Http1(_) => usize::MAX,
            Self::Http2(machine) => machine.quantum(stream),
        }
    }

    fn drain(&mut self, out: &mut WriteList) {
        match self {
            Self::Http1(http1) => http1.server.drain(),
            Self::Http2(machine) => machine.drain(out),
        }
    }

    fn release(&mut self, stream: StreamId, bytes: u32, out: &mut WriteList) {
        // HTTP/1.1 has no window: its backpressure is that nothing is read.
        if let Self::Http2(machine) = self {
            machine.release(stream, bytes, out);
        }
    }

    #[inline]
    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        match self {
            // HTTP/1.1 takes all of it: its only limit is the output, which the driver checks.
            Self::Http1(http1) => http1.server.send(stream, std::mem::take(chunk), out),
            Self::Http2(machine) => machine.send(stream, chunk, out),
        }
    }

    fn expect_trailers(&mut self, stream: StreamId) {
        // RFC 9112 §6.3: Content-Length ends a message.
        if let Self::Http2(machine) = self {
            machine.expect_trailers(stream);
        }
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        either!(self, machine => machine.send_trailers(stream, fields, out));
    }

    #[inline]
    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => machine.finish(stream, out));
    }

    fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        match self {
            Self::Http1(http1) => http1.server.reset(stream),
            Self::Http2(machine) => machine.reset(stream, out),
        }
    }
}

impl ServerMachine for HttpServerMachine {
    fn exchanges_max(&self) -> usize {
        match self {
            Self::Http1(_) => PIPELINED_MAX,
            // Streams that are closed but unwritten are not counted by the machine, so they have a bound of their own.
            Self::Http2(machine) => machine.streams() + CLOSED_MAX,
        }
    }

    #[inline]
    fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<ServerEvent>) {
        let mut shown = bytes;
        if let Self::Http1(http1) = self
            && http1.may_be_preface
        {
            match http1.check_preface(bytes) {
                // RFC 9113 §3.4: GOAWAY may be omitted, because the peer does not use HTTP/2 either. Caddy closes
                // likewise.
                Some(_) if !http1.may_be_preface && !http1.http.protocols.http1 => {
                    http1.server.handle_eof();
                    let fault = ServerEvent::Fault { stream: None, fault: StatusCode::BAD_REQUEST };
                    return (bytes.len(), Some(fault));
                }
                Some(len) => shown = &bytes[..len],
                None => {
                    let next = Self::http2(&http1.http);
                    self.become_http2(next, out);
                }
            }
        }
        let (used, event) = match self {
            Self::Http1(http1) => {
                let handled = http1.server.handle_bytes(shown, head);
                (handled.consumed, handled.event.map(of_http1))
            }
            Self::Http2(machine) => {
                let handled = machine.handle_bytes(now, shown, head, out);
                (handled.consumed, handled.event)
            }
        };
        if let (Self::Http1(http1), Some(ServerEvent::Head { body, upgrade: true, .. })) = (&*self, &event)
            && http1.is_cleartext
            && http1.http.protocols.http2_upgrade
            // RFC 7540 §3.2: a body would have to arrive whole before the switch; such a request stays with HTTP/1.1.
            && body.is_empty()
            && let Some(settings) = http1.settings_of_upgrade(head)
            && let Ok(server) = h2::Server::upgraded(Rc::clone(&http1.http.http2), &settings, head)
        {
            out.put(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
            self.become_http2(Self::Http2(Box::new(server)), out);
            // Fields of the HTTP/1.1 connection, which no handler or upstream may see.
            for name in [names::CONNECTION, names::UPGRADE, names::HTTP2_SETTINGS] {
                head.fields_mut().remove(name);
            }
            head.set_version(Version::Http2);
            let event = ServerEvent::Head { stream: StreamId(1), body: BodyLength::None, upgrade: false };
            return (used, Some(event));
        }
        (used, event)
    }

    fn set_limits(&mut self, plan: &ListenerPlan) {
        // HTTP/2's limits were announced in SETTINGS, and hold for the connection.
        if let Self::Http1(http1) = self {
            http1.http = Rc::clone(&plan.http);
            // Between requests a machine is in its initial state.
            http1.server = h1::Server::new(Rc::clone(&plan.http.http1));
        }
    }

    fn handle_eof(&mut self) -> Option<ServerEvent> {
        match self {
            Self::Http1(http1) => http1.server.handle_eof().map(of_http1),
            Self::Http2(machine) => machine.handle_eof(),
        }
    }

    fn handle_timeout(&mut self, out: &mut WriteList) -> Option<ServerEvent> {
        match self {
            // A part of the preface arrived: a client of HTTP/2 cannot read a response of HTTP/1.
            Self::Http1(http1) if !http1.http.protocols.http1 => http1.server.handle_eof().map(of_http1),
            Self::Http1(http1) => http1.server.handle_timeout().map(of_http1),
            Self::Http2(machine) => machine.handle_timeout(out),
        }
    }

    fn expects_continue(&self, stream: StreamId) -> bool {
        match self {
            Self::Http1(http1) => http1.server.expects_continue(),
            Self::Http2(machine) => machine.expects_continue(stream),
        }
    }

    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => machine.send_continue(stream, out));
    }

    fn send_interim(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        either!(self, machine => machine.send_interim(stream, status, fields, out));
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
        either!(self, machine => machine.send_head(stream, head, framing, date, out));
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList) {
        let mut head = ResponseHead::new(status);
        head.set(names::SERVER, SERVER);
        match self {
            Self::Http1(Http1 { server, .. }) => {
                server.drain();
                server.send_head(stream, &head, Framing::Empty, date, out);
                server.finish(stream, out);
                server.reset(stream);
            }
            Self::Http2(machine) => {
                // Without effect if a head was sent already; then the stream just ends.
                machine.send_head(stream, &head, Framing::Empty, date, out);
                machine.reset(stream, out);
            }
        }
    }
}

fn of_http1(event: h1::Event) -> ServerEvent {
    event.map_fault(h1::ProtocolError::status)
}

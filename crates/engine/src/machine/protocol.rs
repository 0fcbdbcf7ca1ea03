//! A machine that is HTTP/1.1 or HTTP/2.
//!
//! ```text
//!   in the clear:  Http1, fresh ──the preface──► Http2        (prior knowledge, RFC 9113 §3.3)
//!                    │ anything else
//!                    ▼
//!                  Http1 ──Upgrade: h2c──► Http2               (RFC 7540 §3.2, where the listener allows it)
//!   over TLS:      what ALPN chose, to the end
//! ```
//! One connection type for both keeps the driver's code, and its place in the cache, one: a verb costs a branch that is taken
//! the same way each time.

use std::rc::Rc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use causeway_h1 as h1;
use causeway_h2 as h2;
use causeway_message::{
    BodyLength, Chunk, FieldMap, Head, ResponseHead, StatusCode, StreamId, Version, WriteList, names,
};

use super::{Event, Framing, Machine, WaitsFor};
use crate::listener::{ListenerPlan, Offer};

/// Octets of what may still become the preface that HTTP/1 is shown: they make no request of it.
const SHOWN_MAX: usize = 3;

/// See the module.
pub(crate) enum Protocol {
    /// HTTP/1.1, for now.
    Http1(Http1),
    /// HTTP/2.
    Http2(Box<h2::Server>),
}

/// HTTP/1.1, and what may still come of it.
pub(crate) struct Http1 {
    server: h1::Server,
    offer: Rc<Offer>,
    /// In the clear, and what came so far may be the beginning of the preface.
    fresh: bool,
    is_clear: bool,
}

impl Protocol {
    /// A connection in the clear.
    pub(crate) fn clear(offer: &Rc<Offer>) -> Self {
        // Where HTTP/1 is not spoken what is no preface is HTTP/2's own mistake.
        if offer.protocols.http2_clear && !offer.protocols.http1 {
            return Self::http2(offer);
        }
        Self::Http1(Http1 { fresh: offer.protocols.http2_clear, is_clear: true, ..Http1::new(offer) })
    }

    /// A connection over TLS, with what ALPN chose (RFC 7301); without a choice it is HTTP/1.1.
    pub(crate) fn protected(offer: &Rc<Offer>, alpn: Option<&[u8]>) -> Self {
        if alpn == Some(b"h2") {
            return Self::http2(offer);
        }
        Self::Http1(Http1::new(offer))
    }

    fn http2(offer: &Offer) -> Self {
        Self::Http2(Box::new(h2::Server::new(Rc::clone(&offer.http2))))
    }

    /// The peer speaks HTTP/2 from here on.
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
    fn new(offer: &Rc<Offer>) -> Self {
        let server = h1::Server::new(Rc::clone(&offer.http1));
        Self { server, offer: Rc::clone(offer), fresh: false, is_clear: false }
    }

    /// How many of the first octets are for HTTP/1; `None`: they are HTTP/2's preface.
    #[cold]
    fn open(&mut self, octets: &[u8]) -> Option<usize> {
        let common = octets.iter().zip(h2::PREFACE).take_while(|(octet, expected)| octet == expected).count();
        if common == h2::PREFACE.len() {
            return None;
        }
        // Shorter than the preface, and the same so far.
        self.fresh = common == octets.len();
        Some(if self.fresh { common.min(SHOWN_MAX) } else { octets.len() })
    }

    /// The request in `head` asks for HTTP/2 in the way of RFC 7540 §3.2: its settings.
    #[cold]
    fn settings_of_upgrade(&self, head: &Head) -> Option<Vec<u8>> {
        let fields = head.fields();
        let asks = fields.has_token(names::UPGRADE, "h2c")
            && fields.has_token(names::CONNECTION, "HTTP2-Settings")
            && head.version() == Version::Http11
            && !fields.is_repeated(names::HTTP2_SETTINGS);
        if !asks {
            return None;
        }
        URL_SAFE_NO_PAD.decode(fields.get(names::HTTP2_SETTINGS)?).ok()
    }
}

/// One verb of the machine that it is.
macro_rules! either {
    (ref $this:expr, $machine:ident => $verb:expr) => {
        match $this {
            Protocol::Http1(Http1 { server: $machine, .. }) => $verb,
            Protocol::Http2(boxed) => {
                let $machine = &**boxed;
                $verb
            }
        }
    };
    ($this:expr, $machine:ident => $verb:expr) => {
        match $this {
            Protocol::Http1(Http1 { server: $machine, .. }) => $verb,
            Protocol::Http2(boxed) => {
                let $machine = &mut **boxed;
                $verb
            }
        }
    };
}

impl Machine for Protocol {
    fn is_multiplexed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    fn exchanges_max(&self) -> usize {
        either!(ref self, machine => Machine::exchanges_max(machine))
    }

    fn waits_for(&self) -> WaitsFor {
        either!(ref self, machine => Machine::waits_for(machine))
    }

    fn wants_close(&self) -> bool {
        either!(ref self, machine => Machine::wants_close(machine))
    }

    fn writable(&self, stream: StreamId) -> bool {
        either!(ref self, machine => Machine::writable(machine, stream))
    }

    fn rank(&self, stream: StreamId) -> u64 {
        either!(ref self, machine => Machine::rank(machine, stream))
    }

    fn quantum(&self, stream: StreamId) -> usize {
        either!(ref self, machine => Machine::quantum(machine, stream))
    }

    #[inline]
    fn handle_octets(
        &mut self,
        now: Instant,
        octets: &[u8],
        head: &mut Head,
        out: &mut WriteList,
    ) -> (usize, Option<Event>) {
        let mut shown = octets;
        if let Self::Http1(http1) = self
            && http1.fresh
        {
            match http1.open(octets) {
                Some(len) => shown = &octets[..len],
                None => {
                    let next = Self::http2(&http1.offer);
                    self.become_http2(next, out);
                }
            }
        }
        let (used, event) = either!(self, machine => Machine::handle_octets(machine, now, shown, head, out));
        if let (Self::Http1(http1), Some(Event::Head { body, upgrade: true, .. })) = (&*self, &event)
            && http1.is_clear
            && http1.offer.protocols.http2_upgrade
            && body.is_empty()
            && let Some(settings) = http1.settings_of_upgrade(head)
            && let Ok(server) = h2::Server::upgraded(Rc::clone(&http1.offer.http2), &settings, head)
        {
            out.put(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n");
            self.become_http2(Self::Http2(Box::new(server)), out);
            for name in [names::CONNECTION, names::UPGRADE, names::HTTP2_SETTINGS] {
                head.fields_mut().remove(name);
            }
            head.set_version(Version::Http2);
            let event = Event::Head { stream: StreamId(1), body: BodyLength::None, upgrade: false };
            return (used, Some(event));
        }
        (used, event)
    }

    fn renew(&mut self, plan: &ListenerPlan) {
        if let Self::Http1(http1) = self {
            http1.offer = Rc::clone(&plan.offer);
        }
        either!(self, machine => Machine::renew(machine, plan));
    }

    fn handle_eof(&mut self) -> Option<Event> {
        either!(self, machine => Machine::handle_eof(machine))
    }

    fn handle_timeout(&mut self, out: &mut WriteList) -> Option<Event> {
        either!(self, machine => Machine::handle_timeout(machine, out))
    }

    fn drain(&mut self, out: &mut WriteList) {
        either!(self, machine => Machine::drain(machine, out));
    }

    fn is_last(&self) -> bool {
        either!(ref self, machine => Machine::is_last(machine))
    }

    fn release(&mut self, stream: StreamId, octets: u32, out: &mut WriteList) {
        either!(self, machine => Machine::release(machine, stream, octets, out));
    }

    fn send_continue(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => Machine::send_continue(machine, stream, out));
    }

    fn send_informational(&mut self, stream: StreamId, status: StatusCode, fields: &FieldMap, out: &mut WriteList) {
        either!(self, machine => Machine::send_informational(machine, stream, status, fields, out));
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
        either!(self, machine => Machine::send_head(machine, stream, head, framing, date, out));
    }

    #[inline]
    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        either!(self, machine => Machine::send(machine, stream, chunk, out));
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        either!(self, machine => Machine::send_trailers(machine, stream, fields, out));
    }

    #[inline]
    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => Machine::finish(machine, stream, out));
    }

    fn refuse(&mut self, stream: StreamId, status: StatusCode, date: &[u8; 29], out: &mut WriteList) {
        either!(self, machine => Machine::refuse(machine, stream, status, date, out));
    }

    fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        either!(self, machine => Machine::reset(machine, stream, out));
    }
}

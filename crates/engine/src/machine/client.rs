//! A client's machine, for connections to upstreams: HTTP/1.1 or HTTP/2 as the configuration or ALPN decides, or
//! FastCGI.

use std::rc::Rc;
use std::time::{Duration, Instant};

use causeway_fastcgi as fastcgi;
use causeway_h1 as h1;
use causeway_h1::ProtocolError;
use causeway_h2 as h2;
use causeway_message::{Chunk, FieldMap, Framing, OpenError, ResponseHead, StreamId, Version, WaitsFor, WriteList};
use causeway_pipeline::upstream::EngineCall;
use causeway_pipeline::{CallError, Scheme, UpstreamTransport};

use super::Machine;
use crate::upstream::network_proxy;

/// An event of a client's machine.
pub(crate) type ClientEvent = causeway_message::ClientEvent<CallError>;

/// A machine in the client's role.
pub(crate) enum ClientMachine {
    Http1(Box<h1::Client>),
    Http2(Box<h2::Client>),
    FastCgi(Box<fastcgi::FastCgiClient>),
}

/// Header lines of a response. Applications send more than clients do, such as Set-Cookie and Link.
const FIELDS_MAX: u16 = 1000;

/// Bytes a second that the window of one stream permits at the distance of the upstream.
const WINDOW_RATE: u64 = 20_000_000;
/// The largest window of a stream.
const WINDOW_MAX: u64 = 4 * 1024 * 1024;

/// Returns the window of a stream, in bytes, for [`WINDOW_RATE`]. The window is also the content of a response that
/// waits for a slow client.
fn stream_window(round_trip: Duration) -> u32 {
    let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX);
    (micros.saturating_mul(WINDOW_RATE / 1_000_000)).min(WINDOW_MAX) as u32
}

/// Runs the same expression on any machine.
macro_rules! each {
    ($machine:expr, $it:ident => $work:expr) => {
        match $machine {
            ClientMachine::Http1($it) => $work,
            ClientMachine::Http2($it) => $work,
            ClientMachine::FastCgi($it) => $work,
        }
    };
}

impl ClientMachine {
    /// `address` is the upstream's, `host:port`. `streams_max` is its limit of streams on an earlier HTTP/2 connection.
    pub(crate) fn new(
        is_http2: bool,
        transport: &UpstreamTransport,
        (address, round_trip): (&str, Duration),
        streams_max: Option<usize>,
    ) -> Self {
        let head_bytes_max = transport.head_bytes_max;
        // The details of an error of gRPC are trailers, and may be as long as a head.
        let trailers_bytes_max = head_bytes_max;
        // Boxed, so that a connection is not as large as the largest of the machines.
        if transport.fastcgi.is_some() {
            let limits = fastcgi::Limits { head_bytes_max, fields_max: FIELDS_MAX };
            Self::FastCgi(Box::new(fastcgi::FastCgiClient::new(Rc::new(limits))))
        } else if is_http2 {
            let defaults = h2::Settings::client();
            let stream_window = stream_window(round_trip).max(defaults.stream_window);
            let settings =
                h2::Settings { stream_window, head_bytes_max, trailers_bytes_max, fields_max: FIELDS_MAX, ..defaults };
            let mut machine = h2::Client::new(Rc::new(settings));
            if let Some(max) = streams_max {
                machine = machine.with_early_streams(max);
            }
            Self::Http2(Box::new(machine))
        } else {
            // The configured limits apply to both versions, so a fallback to HTTP/1.1 changes none of them.
            let limits =
                h1::Limits { head_bytes_max, trailers_bytes_max, fields_max: FIELDS_MAX, ..h1::Limits::default() };
            let mut machine = h1::Client::new(Rc::new(limits));
            // Without a time to be idle a connection serves one request.
            if transport.idle_timeout.is_zero() {
                machine = machine.without_keep_alive();
            }
            if let Some(proxy) = transport.forward_proxy() {
                machine = machine.with_forward_proxy(h1::ForwardProxy {
                    // RFC 9110 §4.2.3: the default port is left out.
                    authority: address.strip_suffix(":80").unwrap_or(address).into(),
                    authorization: network_proxy::authorization(proxy),
                });
            }
            Self::Http1(Box::new(machine))
        }
    }

    /// Returns the version of the last response.
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::Http1(machine) => machine.version(),
            Self::Http2(_) => Version::Http2,
            // The response has no version of its own.
            Self::FastCgi(_) => Version::Http11,
        }
    }

    pub(crate) fn is_http1(&self) -> bool {
        matches!(self, Self::Http1(_))
    }

    /// Returns how many streams an HTTP/2 upstream allows at once; `None` before its SETTINGS have arrived.
    pub(crate) fn streams_max(&self) -> Option<usize> {
        match self {
            Self::Http2(machine) => machine.streams_max(),
            Self::Http1(_) | Self::FastCgi(_) => None,
        }
    }

    /// Returns how many exchanges can begin now.
    pub(crate) fn room(&self) -> usize {
        each!(self, machine => machine.room())
    }

    /// Begins an exchange. `before_tunnel`: the request's content if a tunnel follows it. After an error nothing was
    /// queued.
    pub(crate) fn open(
        &mut self,
        call: &EngineCall,
        scheme: Scheme,
        (framing, before_tunnel): (Framing, Chunk),
        out: &mut WriteList,
    ) -> Result<StreamId, OpenError> {
        let head = call.request();
        match self {
            Self::Http1(machine) if !before_tunnel.is_empty() => machine.open_after(&head, before_tunnel, out),
            // Over HTTP/2 a tunnel's request has no content (RFC 9113 §8.5); FastCGI has no tunnels.
            _ if !before_tunnel.is_empty() => Err(OpenError::Head),
            // HTTP/1.1 has no scheme in an origin-form request (RFC 9112 §3.2.1).
            Self::Http1(machine) => machine.open(&head, framing, out),
            Self::Http2(machine) => machine.open(&head, scheme, framing, out),
            // The parameters contain the head.
            Self::FastCgi(machine) => machine.open(&call.parameters(), head.method(), framing, out),
        }
    }

    pub(crate) fn handle_bytes(
        &mut self,
        now: Instant,
        bytes: &[u8],
        head: &mut ResponseHead,
        out: &mut WriteList,
    ) -> (usize, Option<ClientEvent>) {
        match self {
            Self::Http1(machine) => {
                // Only HTTP/2 has limits on rates, so only it needs the time.
                let handled = machine.handle_bytes(bytes, head);
                (handled.consumed, handled.event.map(of_http1))
            }
            Self::Http2(machine) => {
                let handled = machine.handle_bytes(now, bytes, head, out);
                (handled.consumed, handled.event.map(of_http2))
            }
            Self::FastCgi(machine) => {
                let handled = machine.handle_bytes(bytes, head, out);
                (handled.consumed, handled.event.map(of_fastcgi))
            }
        }
    }

    /// Returns whether the upstream works on after a complete response, until an [`End`](ClientEvent::End): a FastCGI
    /// application may.
    pub(crate) fn is_application_running(&self) -> bool {
        match self {
            Self::FastCgi(machine) => !machine.is_idle(),
            Self::Http1(_) | Self::Http2(_) => false,
        }
    }

    /// Sends a message that the upstream has to answer at once, if the protocol has one.
    pub(crate) fn ping(&mut self, out: &mut WriteList) {
        if let Self::Http2(machine) = self {
            machine.ping(out);
        }
    }

    pub(crate) fn handle_eof(&mut self) -> Option<ClientEvent> {
        match self {
            Self::Http1(machine) => machine.handle_eof().map(of_http1),
            Self::Http2(machine) => machine.handle_eof().map(of_http2),
            Self::FastCgi(machine) => machine.handle_eof().map(of_fastcgi),
        }
    }

    /// The connection failed: unlike the orderly end, this completes no response.
    pub(crate) fn handle_loss(&mut self) -> Option<ClientEvent> {
        match self {
            Self::Http1(machine) => machine.handle_loss().map(of_http1),
            // These delimit every response themselves, so the kind of end makes no difference (RFC 9113 §8.1).
            Self::Http2(machine) => machine.handle_eof().map(of_http2),
            Self::FastCgi(machine) => machine.handle_eof().map(of_fastcgi),
        }
    }
}

impl Machine for ClientMachine {
    fn is_multiplexed(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    fn waits_for(&self) -> WaitsFor {
        each!(self, machine => machine.waits_for())
    }

    fn should_close(&self) -> bool {
        each!(self, machine => machine.should_close())
    }

    fn is_half_closed(&self) -> bool {
        match self {
            Self::Http1(machine) => machine.is_half_closed(),
            Self::Http2(_) | Self::FastCgi(_) => false,
        }
    }

    fn is_last(&self) -> bool {
        each!(self, machine => machine.is_last())
    }

    fn writable(&self, stream: StreamId) -> bool {
        each!(self, machine => machine.writable(stream))
    }

    fn rank(&self, stream: StreamId) -> u64 {
        match self {
            // One stream at a time: there is nothing to rank.
            Self::Http1(_) | Self::FastCgi(_) => 0,
            Self::Http2(machine) => machine.rank(stream),
        }
    }

    fn quantum(&self, stream: StreamId) -> usize {
        match self {
            Self::Http1(_) | Self::FastCgi(_) => usize::MAX,
            Self::Http2(machine) => machine.quantum(stream),
        }
    }

    fn drain(&mut self, out: &mut WriteList) {
        match self {
            Self::Http1(machine) => machine.drain(),
            Self::Http2(machine) => machine.drain(out),
            Self::FastCgi(machine) => machine.drain(),
        }
    }

    fn release(&mut self, stream: StreamId, bytes: u32, out: &mut WriteList) {
        // The others have no windows: the kernel's buffer is the backpressure.
        if let Self::Http2(machine) = self {
            machine.release(stream, bytes, out);
        }
    }

    fn send(&mut self, stream: StreamId, chunk: &mut Chunk, out: &mut WriteList) {
        each!(self, machine => machine.send(stream, chunk, out));
    }

    fn expect_trailers(&mut self, stream: StreamId) {
        // RFC 9112 §6.3: Content-Length ends a message.
        if let Self::Http2(machine) = self {
            machine.expect_trailers(stream);
        }
    }

    fn send_trailers(&mut self, stream: StreamId, fields: &FieldMap, out: &mut WriteList) {
        match self {
            Self::Http1(machine) => machine.send_trailers(stream, fields, out),
            Self::Http2(machine) => machine.send_trailers(stream, fields, out),
            // CGI has none.
            Self::FastCgi(_) => {}
        }
    }

    fn finish(&mut self, stream: StreamId, out: &mut WriteList) {
        each!(self, machine => machine.finish(stream, out));
    }

    fn reset(&mut self, stream: StreamId, out: &mut WriteList) {
        match self {
            Self::Http1(machine) => machine.reset(stream),
            Self::Http2(machine) => machine.reset(stream, out),
            Self::FastCgi(machine) => machine.reset(stream),
        }
    }
}

fn of_http1(event: h1::ClientEvent) -> ClientEvent {
    event.map_fault(|fault| match fault {
        // Distinguished, because the operator can raise these limits; a malformed response is the upstream's defect.
        ProtocolError::HeadTooLong | ProtocolError::TooManyFields | ProtocolError::TrailersTooLong => {
            CallError::TooLarge
        }
        fault => CallError::Malformed(fault.reason()),
    })
}

fn of_http2(event: h2::ClientEvent) -> ClientEvent {
    match event {
        h2::ClientEvent::Reset { stream, fault } => {
            ClientEvent::Reset { stream, fault: CallError::Reset(fault.name()) }
        }
        h2::ClientEvent::Unprocessed { stream, fault } => {
            ClientEvent::Unprocessed { stream, fault: fault.map(|fault| CallError::Reset(fault.name())) }
        }
        event => event.map_fault(|fault| CallError::Malformed(fault.name())),
    }
}

fn of_fastcgi(event: fastcgi::FastCgiEvent) -> ClientEvent {
    event.map_fault(|fault| match fault {
        fastcgi::FastCgiError::HeadTooLong | fastcgi::FastCgiError::TooManyFields => CallError::TooLarge,
        fastcgi::FastCgiError::Overloaded => CallError::Overloaded,
        // A process that dies is more common than a wrong response.
        fastcgi::FastCgiError::Truncated => CallError::Closed,
        fault => CallError::Malformed(fault.reason()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9113 §6.9: a stream's window bounds its bytes in flight, and with them its rate.
    #[test]
    fn windows_grow_with_the_distance() {
        for (millis, want) in [(0, 0), (1, 20_000), (100, 2_000_000), (300, 4 << 20), (u64::MAX, 4 << 20)] {
            assert_eq!(stream_window(Duration::from_millis(millis)), want, "{millis}");
        }
    }
}

//! One call on a connection: the request that is being sent and the response that is being received.

use std::fmt;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use causeway_message::{
    BodyLength, FieldMap, Framing, Head, Method, ResponseHead, StatusCode, StreamId, Version, WriteList, names,
};
use causeway_pipeline::upstream::{EngineCall, FailureKind, StderrLevel, report_failure, report_stderr};
use causeway_pipeline::{Body, BodyError, CallError, Frame, UpstreamTransport};
use progress::{Span, Stamp};

use super::super::sending::{PumpOutcome, Sending, framing_of, is_listed};
use super::super::wake::ExchangeWake;
use crate::clock;
use crate::machine::{ClientMachine, Machine as _};
use crate::worker::Core;

/// Bytes of a FastCGI application's STDERR that are logged for one call; the rest is dropped.
const STDERR_BYTES_MAX: usize = 4 * 1024;
/// Interim responses that a call accepts, over any protocol; the proxy forwards fewer. RFC 9110 §15.2 allows any
/// number, so without a bound an upstream could send them for ever.
const INTERIMS_MAX: u16 = 100;
/// How long a FastCGI application may go on after its response, if there is no `read_timeout`. No client waits for it,
/// so without a bound one that hangs would keep its connection for ever. Work that takes longer belongs in a queue.
const APPLICATION_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The state of the response. A tunnel's two directions end separately, and the call is over when both have.
///
/// ```text
/// Head ──final head──► Body ──end─────────────────────────────────► Over
///   └────switch──────► Tunnel ──end, our direction open──► Ended ──our end──► Over
///                        └──end, our direction ended────────────────► Over        any error ──► Over
/// Head, Body ──end, but a FastCGI application goes on──► ApplicationRunning ──its end, or too late──► Over
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Head,
    Body,
    /// Another protocol's bytes.
    Tunnel,
    /// The upstream's direction of the tunnel has ended; ours has not.
    Ended,
    /// The client has the whole response. A FastCGI application works on, and may write errors.
    ApplicationRunning,
    Over,
}

/// The profiler's view of a call. It receives the begin and the end of each wait for the upstream, because an
/// experiment that makes the upstream faster delays everything else during these waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UpstreamWait {
    /// The request's head is not sent.
    NotBegun,
    /// The call waits for the upstream, and the profiler has recorded that.
    Reported,
    /// The upstream has sent something since, or no profile ran when the wait began.
    Ended,
    /// A tunnel: neither side waits for the other.
    Tunnel,
}

/// A call on a connection.
pub(super) struct UpstreamCall {
    pub(super) stream: StreamId,
    pub(super) call: EngineCall,
    pub(super) wake: ExchangeWake,
    pub(super) sending: Sending,
    inbound: Inbound,
    framing: Framing,
    is_connect: bool,
    /// The request was sent before, on a connection that ended.
    is_retry: bool,
    /// The call became a tunnel and broke: a plain close would look like the tunnel's orderly end.
    is_cut: bool,
    /// Part of a response has arrived: an interim response, a head, content.
    has_response: bool,
    /// Interim responses so far.
    interims: u16,
    /// The number of the input block that the call's mailbox holds a piece of.
    block: u16,
    /// The text that a FastCGI application wrote to STDERR.
    stderr: Vec<u8>,
    /// The names in the response's `Connection`, if it has trailers that these may name.
    connection_names: Option<Box<[u8]>>,
    /// The status of the response's head is below 400.
    is_success: bool,
    /// The upstream's address, for the log.
    upstream: Rc<str>,
    /// Whether every text on STDERR is logged.
    captures_stderr: bool,
    /// The kernel has all output that the call has queued.
    is_written: bool,
    began: Instant,
    /// The last time at which the upstream sent bytes for the call or accepted some.
    last_progress: Instant,
    /// For the profiler: the begin of the wait for the upstream.
    stamp: Stamp,
    wait: UpstreamWait,
}

/// Returns the names in `Connection`, if it names fields of the head or of the trailers (RFC 9110 §7.6.1). The handler
/// may change the head before the trailers arrive.
fn connection_names(fields: &FieldMap) -> Option<Box<[u8]>> {
    let is_option =
        |name: &[u8]| [&b"keep-alive"[..], b"close", b"upgrade"].iter().any(|option| name.eq_ignore_ascii_case(option));
    if fields.list(names::CONNECTION).all(is_option) {
        return None;
    }
    // Rare, so an allocation is acceptable.
    let mut joined = Vec::new();
    fields.write_joined(names::CONNECTION.into(), &mut joined);
    Some(joined.into())
}

/// Returns the framing of a request's content.
pub(super) fn request_framing(body: &Body, request: &Head, machine: &ClientMachine) -> Framing {
    match framing_of(body) {
        // As in Caddy: HTTP/1.1 has trailers only after chunks (RFC 9112 §7.1.2), so a request of a declared length has
        // some only if a client of HTTP/2 sent it.
        Framing::Sized(_)
            if machine.is_http1()
                && request.version() == Version::Http2
                && request.fields().contains(names::TRAILER) =>
        {
            Framing::Stream
        }
        framing => framing,
    }
}

impl UpstreamCall {
    pub(super) fn new(
        stream: StreamId,
        call: EngineCall,
        wake: ExchangeWake,
        (body, framing): (Body, Framing),
        is_retry: bool,
        (upstream, transport): (Rc<str>, &UpstreamTransport),
    ) -> Self {
        // A tunnel's bytes wait for the upstream's consent; everything else follows the head at once.
        let mut sending = Sending::new();
        match framing {
            Framing::Empty => sending.finish(),
            Framing::Tunnel => sending.begin_held(body),
            Framing::Sized(bytes) => {
                sending.announce(bytes);
                sending.begin(body);
            }
            Framing::Stream => sending.begin(body),
        }
        // RFC 9110 §6.6.2. A handler that sets or removes a field also removes its name from the list: a server that
        // merges trailers with the head would otherwise take the client's value.
        sending.declare_trailers(call.request().fields());
        let is_connect = call.request().method() == Method::Connect;
        // No wakeup has happened yet, and the first turn must look at the call.
        wake.set_ready();
        Self {
            stream,
            call,
            wake,
            sending,
            inbound: Inbound::Head,
            framing,
            is_connect,
            is_retry,
            is_cut: false,
            has_response: false,
            interims: 0,
            block: 0,
            stderr: Vec::new(),
            connection_names: None,
            is_success: false,
            upstream,
            captures_stderr: transport.fastcgi.is_some_and(|fastcgi| fastcgi.captures_stderr),
            is_written: false,
            began: clock::now(),
            last_progress: clock::now(),
            stamp: Stamp::default(),
            wait: UpstreamWait::NotBegun,
        }
    }

    /// The request's head is being written, if it was not before. `span` is the upstream's, while a profile runs.
    pub(super) fn begin_wait(&mut self, span: Option<Span>) {
        if self.wait == UpstreamWait::NotBegun {
            self.wait = UpstreamWait::Ended;
            self.resume_wait(span);
        }
    }

    /// The call waits for the upstream (again), unless it is over. Reports the begin of the wait to the profiler.
    pub(super) fn resume_wait(&mut self, span: Option<Span>) {
        if self.wait == UpstreamWait::Ended
            && !matches!(self.inbound, Inbound::ApplicationRunning | Inbound::Over)
            && let Some(span) = span
        {
            progress::called(&mut self.stamp, span);
            self.wait = UpstreamWait::Reported;
        }
    }

    /// Part of a response arrived, in a read whose bytes the kernel received at `at`.
    pub(super) fn note_response(&mut self, at: u64) {
        self.has_response = true;
        self.end_wait(at);
    }

    /// Ends the wait for the upstream: `at` is the time at which the kernel received its bytes, or 0 if no bytes ended
    /// the wait.
    pub(super) fn end_wait(&mut self, at: u64) {
        if self.wait == UpstreamWait::Reported {
            self.wait = UpstreamWait::Ended;
            progress::answered(self.stamp, at);
        }
    }

    /// Returns the begin of the present wait for the upstream.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        (self.wait == UpstreamWait::Reported).then_some(self.stamp)
    }

    fn set_over(&mut self) {
        self.inbound = Inbound::Over;
        self.end_wait(0);
        if !self.stderr.is_empty() {
            self.report_stderr();
        }
    }

    /// Keeps text of STDERR for the log.
    #[cold]
    pub(super) fn note_stderr(&mut self, text: &[u8]) {
        let room = STDERR_BYTES_MAX - self.stderr.len();
        self.stderr.extend_from_slice(&text[..text.len().min(room)]);
    }

    /// Logs the text of STDERR: once, at the call's end, since the level depends on the response.
    #[cold]
    fn report_stderr(&mut self) {
        let level = if self.is_success { StderrLevel::Warn } else { StderrLevel::Error };
        let text = std::mem::take(&mut self.stderr);
        report_stderr(&self.upstream, &text, self.captures_stderr.then_some(level), clock::now());
    }

    /// Ends the call early.
    fn cut(&mut self) {
        self.is_cut |= matches!(self.inbound, Inbound::Tunnel | Inbound::Ended);
        self.set_over();
    }

    /// Returns whether the connection is to be closed with a reset, if it carries nothing else.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns whether only our direction of a tunnel is open.
    pub(super) fn is_half_closed(&self) -> bool {
        self.inbound == Inbound::Ended
    }

    /// Returns whether content of the response may arrive.
    fn is_receiving(&self) -> bool {
        matches!(self.inbound, Inbound::Body | Inbound::Tunnel)
    }

    /// Counts an interim response. Breaks when there were too many.
    pub(super) fn count_interim(&mut self) -> ControlFlow<()> {
        self.interims += 1;
        if self.interims > INTERIMS_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.inbound == Inbound::Over
    }

    /// Returns whether the response's content must wait for its reader, which then wakes `driver`.
    pub(super) fn is_full_or_register(&self, driver: &Waker) -> bool {
        self.is_receiving() && !self.call.mailbox().has_room_or_register(driver)
    }

    /// Continues after a wakeup by the content's source, by the response's reader, or by a handler that gave the call
    /// up.
    pub(super) fn resume(&mut self, machine: &mut ClientMachine, out: &mut WriteList) {
        if self.inbound == Inbound::ApplicationRunning {
            return;
        }
        // The handler has taken the response to a tunnel's request: the client's side is ready, too.
        if self.inbound != Inbound::Head && self.call.is_taken() {
            self.sending.start();
        }
        // After the upstream's direction of a tunnel has ended, its reader may be gone. That does not end our
        // direction, which has a source of its own.
        let is_tunnel_open = self.inbound == Inbound::Ended && self.sending.is_open();
        if self.call.is_given_up() && !is_tunnel_open {
            if self.inbound != Inbound::Over {
                // RFC 9113 §5.4.2: a reset of the stream spares the connection; over HTTP/1.1 it ends it.
                machine.reset(self.stream, out);
                self.cut();
            }
            return;
        }
        self.call.register(self.wake.waker());
        if self.sending.note_wakeup() {
            // Until now the upstream waited for the source, so the upstream's time begins here.
            self.last_progress = clock::now();
        }
        self.sync_reader(machine, out);
    }

    /// Returns the bytes that the reader took to the upstream's window.
    pub(super) fn sync_reader(&mut self, machine: &mut ClientMachine, out: &mut WriteList) {
        if self.is_receiving() && machine.is_multiplexed() {
            let mailbox = self.call.mailbox();
            let taken = mailbox.take_released_bytes();
            if taken > 0 {
                self.last_progress = clock::now();
                // The window grows by bytes that were taken, not received: a slow client slows the upstream down.
                machine.release(self.stream, taken, out);
            }
            mailbox.register_driver(self.wake.waker());
        }
    }

    /// See [`Sending::is_within_share`].
    pub(super) fn is_within_share(&self, machine: &ClientMachine) -> bool {
        self.sending.is_within_share(self.stream, machine)
    }

    /// See [`Sending::has_sendable`].
    pub(super) fn has_sendable(&self, machine: &ClientMachine) -> bool {
        self.sending.has_sendable(self.stream, machine)
    }

    /// Queues content, at most a quantum.
    pub(super) fn pump(&mut self, machine: &mut ClientMachine, core: &Core, out: &mut WriteList) {
        self.is_written = false;
        let outcome = self.sending.pump(self.stream, machine, core, self.wake.waker(), &mut self.last_progress, out);
        match outcome {
            PumpOutcome::Open => {}
            PumpOutcome::Finished => {
                self.last_progress = clock::now();
                // Both directions of the tunnel have ended.
                if self.inbound == Inbound::Ended {
                    self.set_over();
                }
            }
            PumpOutcome::Cut(error) => self.fail(CallError::RequestBody(error)),
            PumpOutcome::Panicked => self.fail(CallError::RequestBody(BodyError::Source)),
        }
    }

    /// The output of all calls is written. `was_blocked`: not at once, because the kernel had no room for it.
    pub(super) fn note_written(&mut self, was_blocked: bool) {
        self.sending.renew_share();
        let was_written = std::mem::replace(&mut self.is_written, true);
        if was_blocked && !was_written && self.inbound == Inbound::Head {
            // Until now the upstream did not have the whole request, so its time for the response begins here.
            self.last_progress = clock::now();
        }
    }

    /// Handles the final head.
    pub(super) fn handle_head(
        &mut self,
        head: &mut ResponseHead,
        body: BodyLength,
        machine: &mut ClientMachine,
        out: &mut WriteList,
    ) {
        let status = head.status();
        self.is_success = status.as_u16() < 400;
        // RFC 9110 §7.8: 101 accepts the switch; §9.3.6: any 2xx accepts a CONNECT.
        let tunnel = self.framing == Framing::Tunnel
            && (status == StatusCode::SWITCHING_PROTOCOLS || self.is_connect && matches!(status.as_u16(), 200..300));
        if self.framing == Framing::Tunnel && !tunnel {
            // The upstream refused to switch protocols: an ordinary response. Another call may need the content.
            machine.finish(self.stream, out);
            if let Some(body) = self.sending.take_held() {
                self.call.put_body(body);
            }
            self.sending.finish();
        }
        if body == BodyLength::Unknown {
            self.connection_names = connection_names(head.fields());
        }
        let length = if let BodyLength::Sized(bytes) = body { Some(bytes) } else { None };
        if tunnel {
            self.wait = UpstreamWait::Tunnel;
        }
        self.inbound = if tunnel { Inbound::Tunnel } else { Inbound::Body };
        self.last_progress = clock::now();
        self.call.set_version(machine.version());
        self.call.put_head(head, length, tunnel);
        if body == BodyLength::None && !tunnel {
            self.end(machine, out);
        }
    }

    /// Records that the call holds a piece of input block `block`, and returns `true`, if the piece may stay there. A
    /// small piece may not, if the call holds pieces of other blocks: many small pieces would each pin a block.
    pub(super) fn hold_block_if_allowed(&mut self, block: u16, is_small: bool) -> bool {
        // An empty mailbox holds no block, so a first piece may always be shared.
        if is_small && self.block != block && !self.call.mailbox().is_empty() {
            return false;
        }
        self.block = block;
        true
    }

    /// Gives a piece of the response to its reader.
    pub(super) fn put(&mut self, frame: Frame) {
        self.last_progress = clock::now();
        self.call.mailbox().push(frame);
    }

    /// Gives the response's trailers to its reader, without those that belong to the upstream's connection.
    pub(super) fn put_trailers(&mut self, mut fields: FieldMap) {
        if let Some(named) = self.connection_names.take() {
            fields.retain(|name, _| !is_listed(&named, name));
        }
        self.put(Frame::Trailers(Box::new(fields)));
    }

    /// Gives a copy of a small piece of content to the response's reader.
    pub(super) fn put_small(&mut self, bytes: &[u8]) {
        self.last_progress = clock::now();
        self.call.mailbox().push_small(bytes);
    }

    /// The response is complete. The rest of the request is abandoned, unless it is a tunnel's.
    pub(super) fn end(&mut self, machine: &mut ClientMachine, out: &mut WriteList) {
        // The other direction of a tunnel may continue without a time limit.
        if self.inbound == Inbound::Tunnel && !self.sending.is_done() {
            self.inbound = Inbound::Ended;
            return self.call.mailbox().complete();
        }
        if self.inbound == Inbound::ApplicationRunning {
            return self.set_over();
        }
        // Keep the connection: closing it would abort an application that is still running and has the whole request.
        if self.sending.is_done() && machine.is_application_running() {
            self.inbound = Inbound::ApplicationRunning;
        } else {
            self.set_over();
        }
        self.call.mailbox().complete();
        // RFC 9110 §7.5: an upstream may respond before it has read the request; it will not read the rest.
        if !self.sending.is_done() {
            machine.reset(self.stream, out);
        }
    }

    /// Fails the call: it has no response, or an incomplete one.
    pub(super) fn fail(&mut self, error: CallError) {
        if self.inbound == Inbound::ApplicationRunning {
            return self.set_over();
        }
        // The handler compares the time with its own deadline, which may have passed during this turn.
        clock::refresh();
        if self.inbound == Inbound::Body
            && !self.call.is_given_up()
            && let Some(kind) = error.kind(true)
        {
            self.report(kind, &error);
        }
        // Another call may need the content of a tunnel that has not begun.
        if self.inbound == Inbound::Head
            && let Some(body) = self.sending.take_held()
        {
            self.call.put_body(body);
        }
        self.cut();
        self.call.fail(error);
    }

    /// Logs that the response is incomplete. Before the response's head the waiting handler logs the error instead.
    #[cold]
    fn report(&self, kind: FailureKind, error: &CallError) {
        let now = clock::now();
        let cause: &dyn fmt::Display =
            if *error == CallError::Closed { &"the connection closed before the response was complete" } else { error };
        report_failure(&self.upstream, kind, now.saturating_duration_since(self.began), cause, now);
    }

    /// Returns whether the request may be sent again on another connection. Only this function decides it, for every
    /// protocol and every reason:
    ///
    /// - Never after part of a response arrived. The client may have that part, and a second response would continue
    ///   it. An interim response counts, 100 (Continue) too: it shows that the upstream began to process the request.
    /// - At most once, and only a request without content, because content is not kept.
    /// - If the protocol states that the upstream did not process the request (RFC 9113 §8.7), any method; otherwise
    ///   only an idempotent one (RFC 9110 §9.2.2).
    pub(super) fn may_retry(&self, is_known_unprocessed: bool) -> bool {
        !self.has_response
            && !self.is_retry
            && self.framing == Framing::Empty
            && !self.call.is_given_up()
            && (is_known_unprocessed || self.call.request().method().is_idempotent())
    }

    /// While the reader has bytes to take, the upstream is not late. No event reports when the reader takes the last of
    /// them, so the effective limit of the response's content is up to twice the configured one.
    pub(super) fn note_reader_progress(&mut self, machine: &ClientMachine) {
        let mailbox = self.call.mailbox();
        if matches!(self.inbound, Inbound::Body | Inbound::Tunnel)
            && !self.awaits_window(machine)
            && (!mailbox.is_empty() || !machine.is_multiplexed() && mailbox.take_released_bytes() > 0)
        {
            self.last_progress = clock::now();
        }
    }

    /// Returns whether the window or the connection is full: the upstream does not read.
    fn awaits_window(&self, machine: &ClientMachine) -> bool {
        self.sending.has_content() && !machine.writable(self.stream)
    }

    /// Returns the deadline of the upstream's next action, and the error when it passes. `is_blocked`: the kernel
    /// accepts no output, so the request may not be written yet.
    pub(super) fn deadline(
        &self,
        machine: &ClientMachine,
        transport: &UpstreamTransport,
        is_blocked: bool,
    ) -> Option<(Instant, CallError)> {
        if self.awaits_window(machine) {
            return transport.write_timeout.map(|limit| (self.last_progress + limit, CallError::Stalled));
        }
        match self.inbound {
            // The request's own source may take any time.
            Inbound::Head if is_blocked || self.sending.is_open() => None,
            Inbound::Head => transport.head_timeout.map(|limit| (self.last_progress + limit, CallError::HeadTimedOut)),
            Inbound::Body | Inbound::Tunnel => {
                transport.read_timeout.map(|limit| (self.last_progress + limit, CallError::Stalled))
            }
            // Since its response; later output is no progress.
            Inbound::ApplicationRunning => {
                Some((self.last_progress + transport.read_timeout.unwrap_or(APPLICATION_TIMEOUT), CallError::Stalled))
            }
            // Only our direction is left, and the write limit above covers it.
            Inbound::Ended | Inbound::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::fake_call;

    // docs/reverse-proxy.md, `response_header_timeout`: the time begins when the kernel has the whole request. It does
    // not begin again when the output of other calls was blocked.
    #[test]
    fn the_time_for_the_head_begins_after_the_request() {
        let (_handle, carried) = fake_call::sent();
        let transport =
            UpstreamTransport { head_timeout: Some(Duration::from_secs(60)), ..UpstreamTransport::default() };
        let address = Rc::from("127.0.0.1:1");
        let machine = ClientMachine::new(false, &transport, (&address, Duration::ZERO), None);
        let sent = (Body::Empty, Framing::Empty);
        let wake = ExchangeWake::default();
        let mut call = UpstreamCall::new(StreamId(1), carried, wake, sent, false, (address, &transport));
        let mut is_late = |was_blocked| {
            call.last_progress -= Duration::from_secs(3600);
            call.note_written(was_blocked);
            let (deadline, error) = call.deadline(&machine, &transport, false).expect("the head's");
            assert_eq!(error, CallError::HeadTimedOut);
            deadline <= clock::now()
        };
        assert!(!is_late(true), "its request was in the output");
        assert!(is_late(true), "another one was");
        assert!(is_late(false));
    }
}

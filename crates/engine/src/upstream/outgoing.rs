//! One call on a connection: what of its request is still to be sent, and what of its answer is still to come.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context as Task, Waker};
use std::time::Instant;

use causeway_message::{BodyLength, Framing, Method, ResponseHead, StatusCode, StreamId, WriteList};
use causeway_pipeline::upstream::Carried;
use causeway_pipeline::{Body, BodyFault, CallFault, Frame, Transport};
use progress::{Span, Stamp};

use super::machine::Machine;
use crate::clock;
use crate::content::{Content, Pull};
use crate::exchange::{OUTPUT_OCTETS_MAX, STREAM_OCTETS_MAX, SlotWake};
use crate::worker::{Core, count_panic};

/// Answers before the answer that a call takes. RFC 9110 §15.2 allows any number; without a bound they would go on for ever.
const INTERIMS_MAX: u16 = 100;

/// The request's half.
enum Outbound {
    /// Content is being sent.
    Sending(Content),
    /// What goes through the tunnel, once there is one and the other side has its end of it.
    Awaiting(Content),
    Sent,
}

/// The answer's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inbound {
    Head,
    Body,
    Over,
}

/// What the profiler was told of a call. Each wait for the upstream is told from its begin to its end, since meanwhile a profile that makes
/// the upstream faster makes everything else wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Its head has not left.
    NotYet,
    /// The upstream is waited for.
    Awaited,
    /// It said something, or no profile ran.
    Heard,
    /// It answered with a tunnel, in which nobody waits for the upstream more than it waits for us.
    Tunnel,
}

/// A call on a connection.
pub(super) struct Outgoing {
    pub(super) stream: StreamId,
    pub(super) call: Carried,
    pub(super) wake: SlotWake,
    outbound: Outbound,
    inbound: Inbound,
    framing: Framing,
    is_connect: bool,
    /// Sent once before, on a connection that ended.
    is_second: bool,
    /// Answers before the answer, so far.
    interims: u16,
    /// The last block of which it was given a piece to hold.
    block: u32,
    sent: u64,
    /// `sent` when output was last begun anew.
    turn_start: u64,
    /// When something was last done for it by the upstream, or taken from us.
    since: Instant,
    /// For the profiler: when the upstream was last waited for.
    stamp: Stamp,
    asked: Asked,
}

/// How a request's content will be delimited.
pub(super) fn framing(body: &Body) -> Framing {
    match body {
        Body::Tunnel(_) => Framing::Tunnel,
        body => match body.len() {
            Some(0) => Framing::Empty,
            Some(octets) => Framing::Sized(octets),
            None => Framing::Stream,
        },
    }
}

impl Outgoing {
    pub(super) fn new(
        stream: StreamId,
        call: Carried,
        wake: SlotWake,
        (body, framing): (Body, Framing),
        is_second: bool,
    ) -> Self {
        let outbound = match framing {
            Framing::Empty => Outbound::Sent,
            Framing::Tunnel => Outbound::Awaiting(body.into()),
            Framing::Sized(_) | Framing::Stream => Outbound::Sending(body.into()),
        };
        let is_connect = call.request().method() == Method::Connect;
        // Nothing woke it yet, so it looks at itself once.
        wake.mark();
        Self {
            stream,
            call,
            wake,
            outbound,
            inbound: Inbound::Head,
            framing,
            is_connect,
            is_second,
            interims: 0,
            block: 0,
            sent: 0,
            turn_start: 0,
            since: clock::now(),
            stamp: Stamp::default(),
            asked: Asked::NotYet,
        }
    }

    /// Its head leaves, unless it has; `whom` when a profile runs.
    pub(super) fn ask(&mut self, whom: Option<Span>) {
        if self.asked == Asked::NotYet {
            self.asked = Asked::Heard;
            self.wait_on(whom);
        }
    }

    /// From now on the upstream is waited for, unless it was already, or is done.
    pub(super) fn wait_on(&mut self, whom: Option<Span>) {
        if self.asked == Asked::Heard
            && !self.is_over()
            && let Some(whom) = whom
        {
            progress::called(&mut self.stamp, whom);
            self.asked = Asked::Awaited;
        }
    }

    /// A read whose octets the kernel had at `at` brought something of its answer; or it comes no more, and 0.
    pub(super) fn hear(&mut self, at: u64) {
        if self.asked == Asked::Awaited {
            self.asked = Asked::Heard;
            progress::answered(self.stamp, at);
        }
    }

    /// What the upstream's next octets are held by; `None` where it is not waited for.
    pub(super) fn stamp(&self) -> Option<Stamp> {
        (self.asked == Asked::Awaited).then_some(self.stamp)
    }

    fn over(&mut self) {
        self.inbound = Inbound::Over;
        self.hear(0);
    }

    /// One more answer before the answer; whether there were too many.
    pub(super) fn is_chatty(&mut self) -> bool {
        self.interims += 1;
        self.interims > INTERIMS_MAX
    }

    /// Whether it is through.
    pub(super) fn is_over(&self) -> bool {
        self.inbound == Inbound::Over
    }

    /// Whether the answer's content is to wait for its reader.
    pub(super) fn is_full(&self, driver: &Waker) -> bool {
        self.inbound == Inbound::Body && !self.call.mailbox().has_room(driver)
    }

    /// Goes on with whatever was woken: the content's source, the answer's reader, or somebody who gave it up.
    pub(super) fn resume(&mut self, machine: &mut Machine, out: &mut WriteList) {
        if self.call.is_given_up() {
            if self.inbound != Inbound::Over {
                machine.reset(self.stream, out);
                self.over();
            }
            return;
        }
        self.call.follow(self.wake.waker());
        self.outbound = match std::mem::replace(&mut self.outbound, Outbound::Sent) {
            Outbound::Awaiting(content) if self.inbound == Inbound::Body && self.call.is_taken() => {
                Outbound::Sending(content)
            }
            Outbound::Sending(mut content) => {
                if content.is_pending() {
                    // From now on it is the upstream that may be waited for.
                    self.since = clock::now();
                }
                content.woken();
                Outbound::Sending(content)
            }
            other => other,
        };
        self.look_at_reader(machine, out);
    }

    /// Gives back to the upstream's window what the reader took.
    pub(super) fn look_at_reader(&mut self, machine: &mut Machine, out: &mut WriteList) {
        if self.inbound == Inbound::Body && machine.is_multiplexed() {
            let mailbox = self.call.mailbox();
            let taken = mailbox.taken();
            if taken > 0 {
                self.since = clock::now();
                machine.release(self.stream, taken, out);
            }
            mailbox.notify(self.wake.waker());
        }
    }

    /// Output is begun anew: the stream may add to it again.
    pub(super) fn begin_turn(&mut self) {
        self.turn_start = self.sent;
    }

    /// Whether there is content that its stream takes, and it has not had its share of the output yet.
    pub(super) fn may_send(&self, machine: &Machine) -> bool {
        self.sent - self.turn_start < STREAM_OCTETS_MAX as u64 && self.could_send(machine)
    }

    /// Whether there is content that its stream takes and that only waits for room in the output.
    pub(super) fn could_send(&self, machine: &Machine) -> bool {
        self.has_content() && machine.writable(self.stream)
    }

    fn has_content(&self) -> bool {
        matches!(&self.outbound, Outbound::Sending(content) if !content.is_pending())
    }

    /// Queues content while the stream and the connection take it, until others are to have their turn.
    pub(super) fn pump(&mut self, machine: &mut Machine, core: &Core, out: &mut WriteList) {
        let Outbound::Sending(content) = &mut self.outbound else { return };
        let quantum_end = self.sent.saturating_add(machine.quantum(self.stream) as u64);
        let end = quantum_end.min(self.turn_start + STREAM_OCTETS_MAX as u64);
        while machine.writable(self.stream) && out.len() < OUTPUT_OCTETS_MAX && self.sent < end {
            let mut source = Task::from_waker(self.wake.waker());
            // A source that unwound is dropped with its call, never pulled again.
            let pull = catch_unwind(AssertUnwindSafe(|| content.pull(core, &mut source))).unwrap_or_else(|_| {
                count_panic(&core.load);
                Pull::Failed(BodyFault::Source)
            });
            match pull {
                Pull::Chunk(mut chunk) => {
                    let len = chunk.len();
                    machine.send(self.stream, &mut chunk, out);
                    self.sent += (len - chunk.len()) as u64;
                    self.since = clock::now();
                    content.keep(chunk);
                }
                Pull::Trailers(fields) => machine.send_trailers(self.stream, &fields, out),
                Pull::Pending => return,
                Pull::End if self.is_whole() => {
                    machine.finish(self.stream, out);
                    self.outbound = Outbound::Sent;
                    self.since = clock::now();
                    return;
                }
                // The upstream must not take what came for the whole.
                pull => {
                    machine.reset(self.stream, out);
                    let fault = if let Pull::Failed(fault) = pull { fault } else { BodyFault::Source };
                    self.fail(CallFault::RequestBody(fault));
                    return;
                }
            }
        }
    }

    /// Whether what was sent is as long as it was said to be.
    fn is_whole(&self) -> bool {
        !matches!(self.framing, Framing::Sized(octets) if self.sent < octets)
    }

    /// The final head came.
    pub(super) fn handle_head(
        &mut self,
        head: &mut ResponseHead,
        body: BodyLength,
        machine: &mut Machine,
        out: &mut WriteList,
    ) {
        let status = head.status();
        let tunnel = self.framing == Framing::Tunnel
            && (status == StatusCode::SWITCHING_PROTOCOLS || self.is_connect && matches!(status.as_u16(), 200..300));
        if self.framing == Framing::Tunnel && !tunnel {
            // Nothing but the answer comes of it.
            machine.finish(self.stream, out);
            self.outbound = Outbound::Sent;
        }
        let length = if let BodyLength::Sized(octets) = body { Some(octets) } else { None };
        if tunnel {
            self.asked = Asked::Tunnel;
        }
        self.inbound = Inbound::Body;
        self.since = clock::now();
        self.call.put_head(head, length, tunnel);
        if body == BodyLength::None && !tunnel {
            self.end(machine, out);
        }
    }

    /// Whether a piece is left in the block that it came in. A small one is, where it makes the call hold no block beside those that
    /// it holds already.
    pub(super) fn may_hold(&mut self, block: u32, is_small: bool) -> bool {
        if is_small && self.block != block && !self.call.mailbox().is_empty() {
            return false;
        }
        self.block = block;
        true
    }

    /// A piece of the answer.
    pub(super) fn put(&mut self, frame: Frame) {
        self.since = clock::now();
        self.call.mailbox().push(frame);
    }

    /// The answer is complete. What of the request was not sent by then, nobody waits for.
    pub(super) fn end(&mut self, machine: &mut Machine, out: &mut WriteList) {
        self.over();
        self.call.mailbox().complete();
        if !matches!(self.outbound, Outbound::Sent) {
            machine.reset(self.stream, out);
        }
    }

    /// The call has no answer, or no more of it.
    pub(super) fn fail(&mut self, fault: CallFault) {
        // Whoever waits for it will ask whether its time is over, which the upstream may know to the microsecond.
        clock::refresh();
        self.over();
        self.call.fail(fault);
    }

    /// Whether the call may be carried anew where the upstream did nothing for it: its request is all in its head.
    pub(super) fn may_go_again(&self, is_known_unprocessed: bool) -> bool {
        let is_whole = self.framing == Framing::Empty && !self.is_second && !self.call.is_given_up();
        // RFC 9110 §9.2.2: where it is not known, only what may be done twice is.
        is_whole && (is_known_unprocessed || self.call.request().method().is_idempotent())
    }

    /// Until when the upstream may leave it as it is, and what it would be then. `is_stuck` is whether output waits for the
    /// upstream: then its request may not be written yet.
    pub(super) fn deadline(
        &mut self,
        machine: &Machine,
        transport: &Transport,
        is_stuck: bool,
    ) -> Option<(Instant, CallFault)> {
        if self.has_content() && !machine.writable(self.stream) {
            return transport.write_timeout.map(|limit| (self.since + limit, CallFault::Closed));
        }
        match self.inbound {
            // Its own client may be as slow as it likes.
            Inbound::Head if is_stuck || matches!(self.outbound, Outbound::Sending(_)) => None,
            Inbound::Head => transport.head_timeout.map(|limit| (self.since + limit, CallFault::HeadTimedOut)),
            Inbound::Body => {
                // While a reader has something to take, it is not the upstream that is waited for. Nobody says when it took the
                // last of it, so the next look finds that, and what may pass then is up to twice the limit.
                let mailbox = self.call.mailbox();
                if !mailbox.is_empty() || !machine.is_multiplexed() && mailbox.taken() > 0 {
                    self.since = clock::now();
                }
                transport.read_timeout.map(|limit| (self.since + limit, CallFault::Closed))
            }
            Inbound::Over => None,
        }
    }
}

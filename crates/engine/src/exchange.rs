//! One exchange on a connection: its context, the two halves of its life, and the waker that makes it ready.
//!
//! ```text
//! inbound:   Open ──End──► Over            Open ──fault, time──► Failed
//! outbound:  Running ──answer──► Sending ──last octet queued──► Sent
//!               └───────────small answer──────────────────────────┘
//! ```
//! When both halves are over and the output was taken by the kernel, `recycle` ends it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as Task, Wake, Waker};
use std::time::Instant;

use atomic_waker::AtomicWaker;
use causeway_message::{Method, StatusCode, StreamId, WriteList};
use causeway_pipeline::route;
use causeway_pipeline::{Body, BodyFault, Context, Ending, Generation, Response, Spare, Verdict, Worker};
use progress::{Visit, is_active, stage};

use crate::clock;
use crate::content::{Content, Pull};
use crate::listener::ListenerPlan;
use crate::machine::{Framing, Machine};
use crate::worker::{Core, count_panic};

/// Octets that one stream may add to the output before it is written.
pub(crate) const STREAM_OCTETS_MAX: usize = 64 * 1024;
/// Octets that a connection's output may hold before nothing more is produced for it.
pub(crate) const OUTPUT_OCTETS_MAX: usize = 256 * 1024;

/// A slot at rest: an exchange's storage and its waker, allocated once and used by one exchange after another.
pub(crate) struct Resting {
    pub(crate) spare: Spare,
    pub(crate) wake: SlotWake,
}

impl Resting {
    pub(crate) fn new(worker: Rc<dyn Worker>, vacant: Rc<Generation>) -> Self {
        Self { spare: Spare::new(worker, vacant), wake: SlotWake::default() }
    }
}

/// What a wake of the exchange's waits and bodies does: marks the slot, wakes the connection's task.
pub(crate) struct SlotWake {
    flag: Arc<SlotFlag>,
    waker: Waker,
}

#[derive(Default)]
struct SlotFlag {
    ready: AtomicBool,
    task: AtomicWaker,
}

impl Wake for SlotFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Release);
        self.task.wake();
    }
}

impl Default for SlotWake {
    fn default() -> Self {
        let flag = Arc::new(SlotFlag::default());
        Self { waker: Waker::from(Arc::clone(&flag)), flag }
    }
}

impl SlotWake {
    /// Marks the slot without waking anybody: its next turn looks at it.
    pub(crate) fn mark(&self) {
        self.flag.ready.store(true, Ordering::Release);
    }

    /// The next wake goes to this task, and uses that up. Every poll of the task says so again before it asks whether the slot
    /// is ready: another thread marks the slot first and takes the task behind that, so a poll in between may have served
    /// the mark, and what it registered is taken for a wake that is over.
    pub(crate) fn follow(&self, task: &Waker) {
        self.flag.task.register(task);
    }

    /// What another thread's wake does last.
    #[cfg(test)]
    pub(crate) fn wake_task(&self) {
        self.flag.task.wake();
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Whether the slot was woken since this was last asked. A late wake of a former user of the slot costs one poll.
    pub(crate) fn take_ready(&self) -> bool {
        self.flag.ready.load(Ordering::Relaxed) && self.flag.ready.swap(false, Ordering::Acquire)
    }
}

/// The request's half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inbound {
    /// More is to come.
    Open,
    /// It is complete.
    Over,
    /// It ended before its end.
    Failed,
}

/// The response's half.
pub(crate) enum Outbound {
    /// Handlers have not answered yet.
    Running,
    /// The head is out, content is being produced.
    Sending(Content),
    /// Nothing more is to be queued.
    Sent,
}

/// What an exchange on a connection of many waits for from the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Debt {
    /// More of the request's body.
    Body,
    /// Room for the response's content.
    Window,
}

/// One exchange under way.
pub(crate) struct Exchange {
    pub(crate) stream: StreamId,
    pub(crate) cx: Context,
    /// What its listener was when it started.
    pub(crate) plan: Rc<ListenerPlan>,
    pub(crate) wake: SlotWake,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    pub(crate) ending: Ending,
    /// Content was announced that does not come: the peer must not take what came for the whole.
    pub(crate) cut: bool,
    pub(crate) status: Option<StatusCode>,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Octets of content that the head promised; 0 where it promised none.
    announced: u64,
    /// Octets of the request body that nobody wanted.
    pub(crate) discarded: u64,
    /// When the peer last did something for it: it sent octets, or took some.
    pub(crate) since: Instant,
    /// `sent` when output was last begun anew.
    turn_start: u64,
    /// For the profiler: its begin.
    visit: Visit,
    is_counted: bool,
}

impl Exchange {
    pub(crate) fn new(stream: StreamId, cx: Context, plan: Rc<ListenerPlan>, wake: SlotWake, inbound: Inbound) -> Self {
        Self {
            stream,
            cx,
            plan,
            wake,
            inbound,
            outbound: Outbound::Running,
            ending: Ending::Complete,
            cut: false,
            status: None,
            received: 0,
            sent: 0,
            announced: 0,
            discarded: 0,
            since: clock::now(),
            turn_start: 0,
            visit: Visit::begin(),
            is_counted: false,
        }
    }

    /// The kernel has all that was queued. Where that is the whole of the answer, the server made progress.
    #[inline]
    pub(crate) fn written(&mut self, core: &Core) {
        if matches!(self.outbound, Outbound::Sent) && !std::mem::replace(&mut self.is_counted, true) && is_active() {
            self.count(core);
        }
    }

    #[cold]
    fn count(&self, core: &Core) {
        // What was cut, or given up by its peer, is no answer; the one to a request whose handler panicked is.
        if matches!(self.ending, Ending::Complete | Ending::Panicked) && self.cx.is_progress() {
            self.visit.end(core.answered);
            if let Some(route) = route::answered(&self.cx) {
                self.visit.end(route);
            }
        }
    }

    /// Runs the handlers from the start.
    pub(crate) fn run<M: Machine>(&mut self, machine: &mut M, core: &Core, task: &mut Task<'_>, out: &mut WriteList) {
        let verdict = self.guarded(core, route::run);
        self.settle(verdict, machine, out);
        if self.is_waiting() {
            self.resume(machine, core, task, out);
        }
        self.look_at_body(machine, task, out);
    }

    /// Goes on with whatever was woken: the wait, or the source of the content.
    pub(crate) fn resume<M: Machine>(
        &mut self,
        machine: &mut M,
        core: &Core,
        task: &mut Task<'_>,
        out: &mut WriteList,
    ) {
        if self.is_waiting() {
            // Before the poll: a future may wake at once.
            self.wake.follow(task.waker());
            let waker = self.wake.waker.clone();
            let verdict = self.guarded(core, |cx| route::poll(cx, &mut Task::from_waker(&waker)));
            self.settle(verdict, machine, out);
        }
        if let Outbound::Sending(content) = &mut self.outbound {
            // Whether or not there is room for it now: `could_send` has to know.
            content.woken();
        }
        self.look_at_body(machine, task, out);
    }

    /// Output is begun anew: the stream may add to it again.
    pub(crate) fn begin_turn(&mut self) {
        self.turn_start = self.sent;
    }

    /// Queues content while the stream and the connection take it, until others are to have their turn.
    pub(crate) fn pump<M: Machine>(&mut self, machine: &mut M, core: &Core, task: &mut Task<'_>, out: &mut WriteList) {
        let Outbound::Sending(content) = &mut self.outbound else { return };
        let _span = stage::ENCODE.enter();
        self.wake.follow(task.waker());
        let quantum_end = self.sent.saturating_add(machine.quantum(self.stream) as u64);
        let end = quantum_end.min(self.turn_start + STREAM_OCTETS_MAX as u64);
        while machine.writable(self.stream) && out.len() < OUTPUT_OCTETS_MAX && self.sent < end {
            let mut source = Task::from_waker(&self.wake.waker);
            // A source that unwound is dropped with its exchange, never pulled again.
            let pull = catch_unwind(AssertUnwindSafe(|| content.pull(core, &mut source))).unwrap_or_else(|_| {
                count_panic(&core.load);
                self.ending = Ending::Panicked;
                Pull::Failed(BodyFault::Source)
            });
            match pull {
                Pull::Chunk(mut chunk) => {
                    // Where others share the connection, a long piece has no more than its turn.
                    let turn = if machine.is_multiplexed() { (end - self.sent) as usize } else { usize::MAX };
                    let mut part = chunk.slice(0..chunk.len().min(turn));
                    let len = part.len();
                    machine.send(self.stream, &mut part, out);
                    chunk.advance(len - part.len());
                    self.sent += (len - part.len()) as u64;
                    self.since = clock::now();
                    content.keep(chunk);
                }
                Pull::Trailers(fields) => machine.send_trailers(self.stream, &fields, out),
                Pull::Pending => return,
                Pull::End if self.sent >= self.announced => {
                    machine.finish(self.stream, out);
                    self.outbound = Outbound::Sent;
                    return;
                }
                // An end before the announced length is no end.
                Pull::End | Pull::Failed(_) => {
                    machine.reset(self.stream, out);
                    self.cut = true;
                    if self.ending == Ending::Complete {
                        self.ending = Ending::BodyFailed;
                    }
                    self.outbound = Outbound::Sent;
                    return;
                }
            }
        }
    }

    /// Whether there is content that its stream takes and that only waits for room in the output.
    pub(crate) fn could_send<M: Machine>(&self, machine: &M) -> bool {
        self.has_content() && machine.writable(self.stream)
    }

    /// Whether it could, and has not had its share of the output yet.
    pub(crate) fn may_send<M: Machine>(&self, machine: &M) -> bool {
        self.sent - self.turn_start < STREAM_OCTETS_MAX as u64 && self.could_send(machine)
    }

    /// Whether content is there, or may be.
    fn has_content(&self) -> bool {
        matches!(&self.outbound, Outbound::Sending(content) if !content.is_pending())
    }

    /// What keeps the exchange from going on, where that is the peer's to do.
    pub(crate) fn debt<M: Machine>(&self, machine: &M) -> Option<Debt> {
        if self.has_content() && !machine.writable(self.stream) {
            return Some(Debt::Window);
        }
        let owes_body = self.inbound == Inbound::Open && (self.discards() || self.cx.mailbox().is_empty());
        owes_body.then_some(Debt::Body)
    }

    /// The peer gave the exchange up, or the connection is over: nothing is sent or read any more.
    pub(crate) fn give_up(&mut self, ending: Ending) {
        self.cx.cancel_wait();
        if self.inbound == Inbound::Open {
            self.inbound = Inbound::Failed;
            self.cx.mailbox().fail(BodyFault::PeerGone);
        }
        if !matches!(self.outbound, Outbound::Sent) && self.ending == Ending::Complete {
            self.ending = ending;
        }
        self.outbound = Outbound::Sent;
        // The peer's window has it back already, and the exchange may wait long for its output: nothing is kept for nobody.
        self.cx.mailbox().discard_unread();
    }

    /// Whether a handler waits.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self.outbound, Outbound::Running) && self.cx.is_waiting()
    }

    /// Whether a wake has anything to do here: nothing is left that would wait once the answer is queued.
    pub(crate) fn hears_wakes(&self) -> bool {
        !matches!(self.outbound, Outbound::Sent)
    }

    /// Whether what is left of the request body is wanted by nobody.
    pub(crate) fn discards(&self) -> bool {
        matches!(self.outbound, Outbound::Sent) && self.cx.mailbox().is_abandoned()
    }

    /// Tells the peer what the reader of the body did: it began, it took octets.
    pub(crate) fn look_at_body<M: Machine>(&mut self, machine: &mut M, task: &Task<'_>, out: &mut WriteList) {
        if self.inbound == Inbound::Open {
            let mailbox = self.cx.mailbox();
            let is_wanted = mailbox.wanted();
            if is_wanted {
                machine.send_continue(self.stream, out);
            }
            let taken = mailbox.taken();
            if taken > 0 {
                // What kept the peer waiting was its reader.
                self.since = clock::now();
                machine.release(self.stream, taken, out);
            }
            if machine.is_multiplexed() || !is_wanted {
                // The reader may be another task, and the peer waits for the window that it makes, or for 100 (Continue).
                mailbox.notify(task.waker());
            }
        }
    }

    /// Runs handlers; a panic ends the exchange, not the worker.
    fn guarded(&mut self, core: &Core, work: impl FnOnce(&mut Context) -> Verdict) -> Option<Verdict> {
        let _span = stage::ROUTE.enter();
        let cx = &mut self.cx;
        // A context that unwound is dropped, never used again, so it may be left in any state.
        let verdict = catch_unwind(AssertUnwindSafe(|| work(cx))).ok();
        if verdict.is_none() {
            count_panic(&core.load);
            self.ending = Ending::Panicked;
        }
        verdict
    }

    fn settle<M: Machine>(&mut self, verdict: Option<Verdict>, machine: &mut M, out: &mut WriteList) {
        for (status, fields) in self.cx.take_informs() {
            machine.send_informational(self.stream, status, &fields, out);
        }
        match verdict {
            Some(Verdict::Respond(response)) => self.respond(response, machine, out),
            Some(Verdict::Waiting) => {}
            Some(Verdict::Abort) => {
                self.ending = Ending::Aborted;
                machine.reset(self.stream, out);
                self.outbound = Outbound::Sent;
            }
            None => {
                tracing::error!(peer = %self.cx.arrival().peer, "a handler panicked; its exchange ends");
                self.status = Some(StatusCode::INTERNAL_SERVER_ERROR);
                machine.refuse(self.stream, StatusCode::INTERNAL_SERVER_ERROR, &clock::date(), out);
                self.outbound = Outbound::Sent;
            }
        }
    }

    /// The status of an answer that a handler gave a 1xx, which no final answer has (RFC 9110 §15.2): it goes ahead, and 200
    /// follows, as Go has it. Nobody switches protocols without the other one's octets.
    #[cold]
    fn after_interim<M: Machine>(&mut self, status: StatusCode, machine: &mut M, out: &mut WriteList) -> StatusCode {
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        machine.send_informational(self.stream, status, self.cx.response().fields(), out);
        StatusCode::OK
    }

    fn respond<M: Machine>(&mut self, response: Response, machine: &mut M, out: &mut WriteList) {
        let _span = stage::ENCODE.enter();
        let Response { mut status, body } = response;
        if status.is_informational() && !matches!(body, Body::Tunnel(_)) {
            status = self.after_interim(status, machine, out);
        }
        let method = self.cx.original().method();
        if matches!(body, Body::Tunnel(_)) && method == Method::Connect {
            // RFC 9110 §9.3.6: a tunnel that CONNECT asked for begins with 2xx, not with 101.
            status = StatusCode::OK;
        }
        let silent = method == Method::Head || status.forbids_content();
        self.status = Some(status);
        self.cx.response_mut().set_status(status);
        let framing = match &body {
            Body::Tunnel(_) => Framing::Tunnel,
            body => match body.len() {
                Some(0) => Framing::Empty,
                Some(len) => Framing::Sized(len),
                None => Framing::Stream,
            },
        };
        machine.send_head(self.stream, self.cx.response(), framing, &clock::date(), out);
        if let Framing::Sized(len) = framing {
            self.announced = len;
        }
        match body {
            // What is longer than a turn has its rank among the others.
            Body::Chunk(chunk) if !silent && machine.is_multiplexed() && chunk.len() > STREAM_OCTETS_MAX => {
                self.outbound = Outbound::Sending(Body::Chunk(chunk).into());
                return;
            }
            Body::Chunk(mut chunk) if !silent => {
                let len = chunk.len();
                machine.send(self.stream, &mut chunk, out);
                self.sent = (len - chunk.len()) as u64;
                if !chunk.is_empty() {
                    self.outbound = Outbound::Sending(Body::Chunk(chunk).into());
                    return;
                }
            }
            Body::Tunnel(_) => {
                if self.inbound == Inbound::Over {
                    // Behind the request come the other protocol's octets.
                    self.inbound = Inbound::Open;
                    self.cx.mailbox().reopen();
                }
                self.outbound = Outbound::Sending(body.into());
                return;
            }
            Body::File(_) | Body::Parts(_) | Body::Stream(_) | Body::Incoming(_) if !silent => {
                self.outbound = Outbound::Sending(body.into());
                return;
            }
            _ => {}
        }
        machine.finish(self.stream, out);
        self.outbound = Outbound::Sent;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_marks_the_slot_and_wakes_the_task_that_follows() {
        let flag = Arc::new(SlotFlag::default());
        let slot = SlotWake { waker: Waker::from(Arc::clone(&flag)), flag };
        slot.waker.wake_by_ref();
        assert!(slot.take_ready() && !slot.take_ready(), "marked once, though nobody followed");
        let (one, other) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let count = |task: &Arc<Count>| task.0.load(Ordering::Relaxed);
        slot.follow(&Waker::from(Arc::clone(&one)));
        slot.waker.wake_by_ref();
        assert!(slot.take_ready());
        assert_eq!(count(&one), 1);
        slot.waker.wake_by_ref();
        assert_eq!(count(&one), 1, "a wake uses the registration up");
        assert!(slot.take_ready(), "and marks the slot all the same");
        slot.follow(&Waker::from(Arc::clone(&other)));
        slot.waker.wake_by_ref();
        assert_eq!((count(&one), count(&other)), (1, 1), "the slot follows its present user's task");
    }
}

//! A recorded window as a script: the steps of each thread, whose times follow from one another.
//!
//! Every event that may end a wait (a message, a write, a call, the begin of a sleep) is a *mark*: an instant that the
//! replay sets. Its effect follows a *gap* later.

use std::ops::Range;

use progress::Sharing;

/// One step of a thread. Durations are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ScriptStep {
    /// Work: a range of [`Script::work`].
    Work(u32, u32),
    /// Sets a mark.
    Mark(u32),
    /// The work to wake the threads that sleep for the step before: a range of [`Script::work`], done only if one
    /// sleeps. Empty if none slept when recorded; then the usual cost counts. If one slept and the cost was not
    /// recorded, it is part of the thread's work, and there is no such step.
    Wake(u32, u32),
    /// Waits until the cause is ready.
    Await(Cause),
    /// Is blocked for a time, for an unspecified reason.
    Wait(f64),
    Lock(u32, Sharing, f64),
    Unlock(u32, Sharing),
    /// A unit of progress, and the time at which it was recorded.
    Hit {
        point: u32,
        at: f64,
    },
    VisitBegan {
        visit: u32,
        at: f64,
    },
    /// The end of a visit; `visit` is [`NONE`] if its begin was not recorded. `weight` is that of its time.
    VisitEnded {
        visit: u32,
        point: u32,
        at: f64,
        weight: f64,
    },
}

/// Work of one kind. Durations are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) kind: u32,
    pub(super) time: f64,
    /// Additional time of hooks.
    pub(super) hooks: f64,
    /// Change of `time`, positive or negative, if its job begins after sleep and was recorded without, or the reverse.
    pub(super) sleep_change: f64,
}

/// The mark that is set when the window begins.
pub(super) const WINDOW_BEGIN: u32 = 0;

/// No visit, job, chain or span.
pub(super) const NONE: u32 = u32::MAX;

/// The reason for the time of a step or job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cause {
    pub(super) when: ReadyTime,
    /// Wakeup latency of the thread that was blocked for it; negative if none was.
    pub(super) wakeup_latency: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum ReadyTime {
    /// At this time of the window: no event in the window is the cause.
    At(f64),
    /// `gap` after a mark.
    After { mark: u32, gap: f64, edge: EdgeKind },
}

/// The connection between a mark and its effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum EdgeKind {
    /// Within the program.
    Program,
    /// A client, including the network both ways. Contains the recorded arrival time in the window.
    Clients(f64),
    /// An outside service, by the number of its span.
    Callee(u32),
}

/// The work of a thread from one cause to the next; for a thread without an event loop, all of its work.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) thread: u32,
    pub(super) cause: Cause,
    /// A second mark that it waits for, or [`NONE`].
    pub(super) room: u32,
    pub(super) steps: Range<u32>,
    /// The chain whose progress it makes: the connection or thread that started it.
    pub(super) chain: u32,
    /// Whether its own thread sent the message that caused it.
    pub(super) is_from_own_thread: bool,
    /// Whether the thread, an event loop, slept before it.
    pub(super) is_from_sleep: bool,
    /// Whether its first work is a look at the kernel's ready events.
    pub(super) has_polled: bool,
    /// Whether it follows from a wakeup of an event loop for which no hook reported a cause.
    pub(super) is_unexplained: bool,
}

/// A window, ready to be replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) is_worker: Vec<bool>,
    /// By thread: the fraction of its unblocked time in which it had a processor or waited for one.
    pub(super) runnable: Vec<f64>,
    pub(super) jobs: Vec<Job>,
    pub(super) steps: Vec<ScriptStep>,
    pub(super) work: Vec<Work>,
    pub(super) marks: u32,
    pub(super) locks: u32,
    pub(super) visits: u32,
    pub(super) points: u32,
    pub(super) chains: u32,
    /// Locks that were held when the window began.
    pub(super) held: Vec<(u32, Sharing)>,
    /// Wakeup latency of a thread, if not known individually.
    pub(super) wakeup_latency: f64,
    /// Wakeup latency of a thread that sleeps for a lock, if not known individually.
    pub(super) lock_wakeup_latency: f64,
    /// The work to wake a thread, if not recorded individually.
    pub(super) wake: Option<Work>,
    /// Number of messages, or free places in bounded channels, from before the window that threads took in it.
    pub(super) backlog: usize,
}

impl Script {
    /// Empties the script but keeps its memory, with room for the usual number of steps for that many events.
    pub(super) fn emptied(self, events: usize) -> Self {
        let Self { mut jobs, mut steps, mut work, .. } = self;
        jobs.clear();
        steps.clear();
        work.clear();
        steps.reserve(events);
        work.reserve(events);
        Self { jobs, steps, work, ..Self::default() }
    }
}

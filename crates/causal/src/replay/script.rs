//! A recorded window as something that can be done once more: what each thread did, as steps whose times follow from one another.
//!
//! Everything that somebody may wait for (a message, a write, a call, the begin of a sleep) is a *mark*: a moment that replaying sets.
//! Whatever came of it came a *gap* after it.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use progress::Sharing;

use super::{Cold, SPIN};
use crate::machine::VIRTUAL_WAKE_UP;
use crate::trace::{Event, Hooks, Trace};

/// One step. Durations are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Work: a range of [`Script::work`].
    Work(u32, u32),
    /// Sets a mark.
    Mark(u32),
    /// What it takes to wake whoever sleeps because of the step before, if somebody does: a range of [`Script::work`], empty where
    /// nobody slept when it was recorded. Where somebody did and it was not told what that took, there is no such step: it is part of
    /// the thread's work.
    Wake(u32, u32),
    /// Goes on when something has come.
    Await(Cause),
    /// Stands still, for a reason that was not said.
    Wait(f64),
    Lock(u32, Sharing, f64),
    Unlock(u32, Sharing),
    /// A unit of progress, and when it was recorded.
    Hit {
        point: u32,
        at: f64,
    },
    VisitBegan {
        visit: u32,
        at: f64,
    },
    /// The end of one; `visit` is [`NONE`] when its begin was not seen.
    VisitEnded {
        visit: u32,
        point: u32,
        at: f64,
    },
}

/// Work of one kind. Durations are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) kind: u32,
    pub(super) time: f64,
    /// What hooks took besides.
    pub(super) hooks: f64,
    /// What it takes more, or less, where its job begins from sleep and did not, or the other way round.
    pub(super) otherwise: f64,
}

/// The mark that is set when the window begins.
pub(super) const BEGIN: u32 = 0;

/// No visit.
pub(super) const NONE: u32 = u32::MAX;

/// Why a step or a job comes when it comes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cause {
    pub(super) when: When,
    /// What passed until the thread that stood still for it was up again; negative when it did not stand still.
    pub(super) lag: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum When {
    /// At a time of the window: nothing that happened in it was the cause.
    At(f64),
    /// So long after a mark.
    After { mark: u32, gap: f64, link: Link },
}

/// What lies between a mark and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Link {
    /// The program itself.
    Program,
    /// Clients, and the way to them and back. It came at that time of the window.
    Clients(f64),
    /// Somebody who was asked, by the span that is named after them.
    Callee(u32),
}

/// What a thread does from one cause to the next; of a thread that does one thing after the other: all of it.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) thread: u32,
    pub(super) cause: Cause,
    pub(super) steps: Range<u32>,
    /// Whose progress this is: the connection, or the thread, that set it off.
    pub(super) chain: u32,
    /// Whether the thread itself sent what it is for.
    pub(super) is_own: bool,
    /// Whether the thread, an event loop, slept before it.
    pub(super) is_from_sleep: bool,
    /// Whether its first work is to have asked the kernel for what was there.
    pub(super) has_looked: bool,
}

/// A window, ready to be replayed.
#[derive(Clone, Debug, Default)]
pub(super) struct Script {
    pub(super) duration: f64,
    pub(super) is_worker: Vec<bool>,
    /// Which part of the time that they worked the threads had a processor.
    pub(super) running: Vec<f64>,
    pub(super) jobs: Vec<Job>,
    pub(super) steps: Vec<Step>,
    pub(super) work: Vec<Work>,
    pub(super) marks: u32,
    pub(super) locks: u32,
    pub(super) visits: u32,
    pub(super) points: u32,
    pub(super) chains: u32,
    /// Locks that were held when the window began.
    pub(super) held: Vec<(u32, Sharing)>,
    /// How long a thread takes to be up again, where it is not known better.
    pub(super) lag: f64,
    /// The same for one that sleeps in front of a lock.
    pub(super) lock_lag: f64,
    /// What it takes to wake a thread where that was not seen.
    pub(super) wake: Option<Work>,
    /// Which part of the time the busiest thread was not blocked.
    pub(super) busiest: f64,
    /// How many messages, or free places of bounded channels, threads took that had lain there before the window.
    pub(super) backlog: usize,
}

impl Script {
    /// An empty one that has the memory of this, with room for what most often becomes of so many events.
    fn emptied(self, events: usize) -> Self {
        let Self { mut jobs, mut steps, mut work, .. } = self;
        jobs.clear();
        steps.clear();
        work.clear();
        steps.reserve(events);
        work.reserve(events);
        Self { jobs, steps, work, ..Self::default() }
    }
}

/// What marks a trace has, by what they are of.
#[derive(Default)]
struct Marks {
    known: HashMap<(Of, u64), (u32, u64)>,
    /// Writes on connections, by time.
    writes: HashMap<u64, Vec<(u64, u32)>>,
    count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Of {
    Message,
    Call,
    Timer,
}

impl Marks {
    fn find(trace: &Trace) -> Self {
        let mut marks = Self { count: BEGIN + 1, ..Self::default() };
        for &(at, event) in trace.threads.iter().flat_map(|thread| &thread.events) {
            let key = match event {
                Event::Sent { message } => (Of::Message, message),
                Event::Called { call, .. } => (Of::Call, call),
                Event::SleepBegan { timer } => (Of::Timer, timer),
                Event::Written { connection } => {
                    marks.writes.entry(connection).or_default().push((at, marks.count));
                    marks.count += 1;
                    continue;
                }
                _ => continue,
            };
            marks.known.insert(key, (marks.count, at));
            marks.count += 1;
        }
        marks.writes.values_mut().for_each(|writes| writes.sort_unstable());
        marks
    }

    /// How long clients are away, the median of those who woke a thread; 0 when none did.
    fn usual_gap(&self, trace: &Trace) -> u64 {
        let mut gaps = Vec::new();
        for thread in &trace.threads {
            let mut up = None;
            for &(at, event) in &thread.events {
                match event {
                    Event::BlockEnded => up = Some(at),
                    Event::Kind(_) => {}
                    Event::Arrived { connection, at: came } => {
                        if let (Some(up), Some((_, written))) = (up.take(), self.write_before(connection, came)) {
                            gaps.push(up.saturating_sub(written));
                        }
                    }
                    _ => up = None,
                }
            }
        }
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().unwrap_or(0)
    }

    /// The last write on the connection that what came at `at` may be an answer to.
    fn write_before(&self, connection: u64, at: u64) -> Option<(u32, u64)> {
        let writes = self.writes.get(&connection)?;
        let (written, mark) = writes[writes.partition_point(|&(written, _)| written <= at).checked_sub(1)?];
        Some((mark, written))
    }
}

/// Numbers from 0 for what has numbers of its own.
#[derive(Default)]
struct Numbers(HashMap<u64, u32>);

impl Numbers {
    fn of(&mut self, number: u64) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(number).or_insert(next)
    }
}

/// When a lock was given up, by the lock's number.
type Releases = HashMap<u64, Vec<u64>>;

struct Writer<'a> {
    script: Script,
    trace: &'a Trace,
    marks: Marks,
    locks: Numbers,
    visits: Numbers,
    chains: Numbers,
    releases: Releases,
    whoms: HashMap<u64, u32>,
    /// Calls that had been asked when the window began. They are told of when the answer is there.
    outstanding: HashSet<u64>,
    /// Units that were seen to begin.
    begun: HashSet<u64>,
    /// How long clients are away, as seen by a thread that was idle when they came back.
    usual_gap: u64,
    lags: Vec<f64>,
    lock_lags: Vec<f64>,
    wakes: Vec<Work>,
    /// By mark: whether a thread slept for it.
    slept_for: Vec<bool>,
    /// Locks that threads slept for, and those of which it was told what it takes to wake them.
    slept_at: HashSet<u32>,
    woken_at: HashSet<u32>,
    /// The job in which each mark is set.
    setters: Vec<u32>,
    /// When each job came, for the order in which chains are found.
    came: Vec<u64>,
}

/// The thread that is being written.
struct Hand {
    thread: u32,
    is_worker: bool,
    kind: u32,
    /// Up to when its time is accounted for.
    at: u64,
    /// What hooks take of it.
    hooks: Hooks,
    work: Vec<Work>,
    steps: Vec<Step>,
    cause: Cause,
    /// When the job was begun, and when what caused it had come.
    came: u64,
    ready: u64,
    chain: Option<u32>,
    /// Whether the job's cause is only that the thread woke.
    is_anonymous: bool,
    /// How many of the steps are surely the job's: all but the work behind the last other one.
    own: usize,
    /// Waits that one standstill explains (a barrier's): since when, until when, which one was the last to come and when.
    group: Option<(u64, u64, usize, u64)>,
    /// Locks that it holds.
    held: Vec<(u64, Sharing)>,
    /// The step that has what it takes to wake somebody now.
    wake: Option<usize>,
    is_waking: bool,
    blocked: Option<u64>,
    /// A block that is over and not explained yet.
    unexplained: Option<(u64, u64)>,
    /// What kind of work it was at when that ended.
    looked: u32,
    /// Whether it had slept when the job began.
    is_from_sleep: bool,
    /// Whether it has looked for the job.
    has_looked: bool,
    /// For how long it was blocked so far.
    idle: u64,
}

/// `lag` is how long a thread usually takes to be up, where that is known better than from the window, which knows it better than the
/// machine. Written in the memory of another script.
pub(super) fn write(trace: &Trace, lag: Option<f64>, cold: &Cold, memory: Script) -> Script {
    let marks = Marks::find(trace);
    let mut releases = Releases::new();
    let (mut whoms, mut asked, mut outstanding) = (HashMap::new(), HashMap::new(), HashSet::new());
    let mut begun = HashSet::new();
    for &(at, event) in trace.threads.iter().flat_map(|thread| &thread.events) {
        match event {
            Event::Unlocked { lock, .. } => releases.entry(lock).or_default().push(at),
            Event::Called { call, whom, is_first } => {
                whoms.insert(call, whom);
                if is_first {
                    asked.insert(call, at);
                }
            }
            Event::Answered { call, at: came } if asked.get(&call).is_some_and(|&asked| came <= asked) => {
                outstanding.insert(call);
            }
            Event::VisitBegan { visit } => drop(begun.insert(visit)),
            _ => {}
        }
    }
    releases.values_mut().for_each(|times| times.sort_unstable());
    let events = trace.threads.iter().map(|thread| thread.events.len()).sum();
    let usual_gap = marks.usual_gap(trace);
    let mut writer = Writer {
        setters: vec![NONE; marks.count as usize],
        slept_for: vec![false; marks.count as usize],
        slept_at: HashSet::new(),
        woken_at: HashSet::new(),
        script: Script {
            duration: (trace.span.end - trace.span.start) as f64,
            marks: marks.count,
            ..memory.emptied(events)
        },
        trace,
        marks,
        locks: Numbers::default(),
        visits: Numbers::default(),
        chains: Numbers::default(),
        releases,
        whoms,
        outstanding,
        begun,
        usual_gap,
        lags: Vec::new(),
        lock_lags: Vec::new(),
        wakes: Vec::new(),
        came: Vec::new(),
    };
    for number in 0..trace.threads.len() {
        writer.thread(number);
    }
    let mut script = writer.finish(lag);
    cold.apply(&mut script);
    script
}

impl Writer<'_> {
    fn since(&self, at: u64) -> f64 {
        at.saturating_sub(self.trace.span.start) as f64
    }

    fn thread(&mut self, number: usize) {
        let thread = &self.trace.threads[number];
        let start = self.trace.span.start;
        // A thread whose first word is that it waits no more was blocked before; any other one was at work.
        let first = thread.events.iter().find(|(_, event)| !matches!(event, Event::Kind(_)));
        let blocked = matches!(first, Some((_, Event::BlockEnded))).then_some(start);
        let mut hand = Hand {
            thread: number as u32,
            is_worker: thread.is_worker,
            kind: thread.kind,
            at: start,
            hooks: Hooks::new(self.trace.hook),
            work: Vec::new(),
            steps: Vec::new(),
            cause: Cause { when: When::At(0.0), lag: -1.0 },
            came: start,
            ready: start,
            chain: None,
            is_anonymous: true,
            own: 0,
            group: None,
            held: Vec::new(),
            wake: None,
            is_waking: false,
            blocked,
            unexplained: None,
            looked: thread.kind,
            is_from_sleep: false,
            has_looked: false,
            idle: 0,
        };
        self.script.is_worker.push(thread.is_worker);
        self.script.running.push(thread.running.clamp(0.0, 1.0));
        for &(at, event) in &thread.events {
            self.event(&mut hand, at, event);
        }
        if let Some(since) = hand.blocked {
            hand.idle += self.trace.span.end.saturating_sub(since);
        } else {
            hand.account(self.trace.span.end, 0);
        }
        self.settle(&mut hand);
        // In a replay others may be behind, and would wait for ever for what the window's end cut off.
        for (lock, sharing) in std::mem::take(&mut hand.held) {
            let lock = self.locks.of(lock);
            hand.push(Step::Unlock(lock, sharing));
        }
        self.end_job(&mut hand, usize::MAX);
        let busy = 1.0 - hand.idle as f64 / self.script.duration.max(1.0);
        self.script.busiest = self.script.busiest.max(busy);
    }

    fn event(&mut self, hand: &mut Hand, at: u64, event: Event) {
        let blocked = match event {
            Event::Took { blocked, .. } | Event::Locked { blocked, .. } | Event::SleepEnded { blocked, .. } => blocked,
            _ => 0,
        };
        hand.idle += blocked;
        if hand.blocked.is_none() {
            hand.account(at, blocked);
        }
        if std::mem::take(&mut hand.is_waking) {
            self.woke(hand);
        }
        match event {
            Event::Kind(kind) => hand.kind = kind,
            Event::Waking(kind) => {
                self.settle(hand);
                (hand.kind, hand.is_waking) = (kind, true);
            }
            Event::BlockBegan => {
                self.settle(hand);
                hand.own = hand.steps.len();
                hand.blocked = Some(at);
            }
            Event::BlockEnded => {
                let since = hand.blocked.take().unwrap_or(hand.at);
                hand.idle += at.saturating_sub(since);
                (hand.at, hand.looked) = (at, hand.kind);
                if hand.is_worker {
                    self.end_job(hand, usize::MAX);
                    hand.cause = Cause { when: When::At(self.since(at)), lag: -1.0 };
                    (hand.came, hand.ready) = (at, at);
                    hand.is_anonymous = true;
                    hand.is_from_sleep = at.saturating_sub(since) >= LOOK_MAX;
                }
                hand.unexplained = Some((since, at));
            }
            Event::Sent { message } => {
                self.mark(hand, self.marks.known[&(Of::Message, message)].0);
                hand.push_wake();
            }
            Event::Called { call, .. } if self.outstanding.contains(&call) => {}
            Event::Called { call, .. } => self.mark(hand, self.marks.known[&(Of::Call, call)].0),
            Event::SleepBegan { timer } => self.mark(hand, self.marks.known[&(Of::Timer, timer)].0),
            Event::Written { connection } => {
                if let Some((mark, _)) = self.marks.write_before(connection, at) {
                    self.mark(hand, mark);
                }
            }
            Event::Took { message, .. } => {
                let sent = self.marks.known.get(&(Of::Message, message)).copied();
                let (when, ready) = match sent {
                    // Whoever took it may have read the clock a little before the sender did.
                    Some((mark, sent)) => (When::After { mark, gap: 0.0, link: Link::Program }, Some(sent)),
                    // It lay there before the window, so that whoever comes to it sooner takes it sooner.
                    None if message == 0 && blocked == 0 && hand.unexplained.is_none() => {
                        let ready = if hand.is_worker {
                            hand.ready
                        } else {
                            self.script.backlog += 1;
                            self.trace.span.start
                        };
                        (When::At(self.since(ready)), Some(ready))
                    }
                    None => (When::At(self.since(at)), None),
                };
                self.caused(hand, when, at, blocked, ready, None);
            }
            Event::Arrived { connection, at: came } => {
                let chain = Some(self.chains.of(connection << 1));
                let came = self.arrival(hand, connection, came, at);
                let when = match self.marks.write_before(connection, came) {
                    Some((mark, written)) => {
                        When::After { mark, gap: (came - written) as f64, link: Link::Clients(self.since(came)) }
                    }
                    None => When::At(self.since(came)),
                };
                self.caused(hand, when, at, 0, Some(came), chain);
            }
            Event::Answered { call, at: came } => {
                let link = Link::Callee(self.whoms.get(&call).copied().unwrap_or(NONE));
                let when = match self.marks.known.get(&(Of::Call, call)) {
                    Some(_) if self.outstanding.contains(&call) => {
                        When::After { mark: BEGIN, gap: self.since(came), link }
                    }
                    Some(&(mark, called)) => When::After { mark, gap: came.saturating_sub(called) as f64, link },
                    None => When::At(self.since(came)),
                };
                self.caused(hand, when, at, 0, Some(came), None);
            }
            Event::SleepEnded { timer, .. } => {
                let when = match self.marks.known.get(&(Of::Timer, timer)) {
                    Some(&(mark, began)) => {
                        When::After { mark, gap: at.saturating_sub(began) as f64, link: Link::Program }
                    }
                    None => When::At(self.since(at)),
                };
                self.caused(hand, when, at, blocked, Some(at), None);
            }
            Event::Locked { lock, sharing, .. } => {
                self.settle(hand);
                let lag = self.lock_lag(lock, at, blocked).unwrap_or(-1.0);
                hand.held.push((lock, sharing));
                let lock = self.locks.of(lock);
                if blocked as f64 > SPIN {
                    self.slept_at.insert(lock);
                }
                hand.push(Step::Lock(lock, sharing, lag));
            }
            Event::Unlocked { lock: number, sharing } => {
                self.settle(hand);
                let lock = self.locks.of(number);
                match hand.held.iter().rposition(|held| *held == (number, sharing)) {
                    Some(at) => drop(hand.held.remove(at)),
                    // Its taking was not seen: it was held when the window began.
                    None => self.script.held.push((lock, sharing)),
                }
                hand.push(Step::Unlock(lock, sharing));
                hand.push_wake();
            }
            Event::Hit { point } => {
                self.settle(hand);
                self.reached(point);
                hand.push(Step::Hit { point, at: self.since(at) });
            }
            Event::VisitBegan { visit } => {
                self.settle(hand);
                // On an event loop a unit begins when its message came.
                let at = self.since(if hand.is_worker { hand.ready } else { at });
                hand.push(Step::VisitBegan { visit: self.visits.of(visit), at });
            }
            Event::VisitEnded { visit, point } => {
                self.settle(hand);
                self.reached(point);
                let visit = if self.begun.contains(&visit) { self.visits.of(visit) } else { NONE };
                hand.push(Step::VisitEnded { visit, point, at: self.since(at) });
            }
        }
    }

    /// When something came on a connection, as far as that can be known. A thread that was idle was woken by it; one that was
    /// busy may have looked late, so it is believed to have come as fast as others do.
    fn arrival(&self, hand: &Hand, connection: u64, came: u64, now: u64) -> u64 {
        if came != now {
            return came;
        }
        match (hand.unexplained, self.marks.write_before(connection, now)) {
            (Some((_, up)), _) => up,
            (None, Some((_, written))) => now.min(written + self.usual_gap),
            (None, None) => now,
        }
    }

    fn reached(&mut self, point: u32) {
        self.script.points = self.script.points.max(point + 1);
    }

    /// How long the thread took to be up after the lock was free. Not known where it was free more than once: others overtook it.
    fn lock_lag(&mut self, lock: u64, at: u64, blocked: u64) -> Option<f64> {
        let times = self.releases.get(&lock).filter(|_| blocked > 0)?;
        let (since, until) = (at.saturating_sub(blocked), times.partition_point(|&time| time <= at));
        let released = times[until.checked_sub(1)?];
        if released < since || until > 1 && times[until - 2] >= since {
            return None;
        }
        let lag = (at - released) as f64;
        self.lock_lags.push(lag);
        Some(lag)
    }

    /// Makes steps of the work so far, behind the wait that came before it.
    fn settle(&mut self, hand: &mut Hand) {
        if let Some((since, at)) = hand.unexplained.take()
            && !hand.is_worker
        {
            hand.steps.push(Step::Wait((at - since) as f64));
        }
        self.work(hand);
    }

    /// What the thread did last was to wake somebody, if it took long enough.
    fn woke(&mut self, hand: &mut Hand) {
        let (Some(step), [work]) = (hand.wake.take(), &hand.work[..]) else { return };
        let work = *work;
        if work.time < WAKE_MIN {
            return;
        }
        if let Step::Unlock(lock, _) = hand.steps[step - 1] {
            self.woken_at.insert(lock);
        }
        let from = self.script.work.len() as u32;
        self.script.work.push(work);
        hand.work.clear();
        hand.steps[step] = Step::Wake(from, from + 1);
        self.wakes.push(work);
    }

    fn work(&mut self, hand: &mut Hand) {
        if !hand.work.is_empty() {
            let from = self.script.work.len() as u32;
            self.script.work.append(&mut hand.work);
            hand.steps.push(Step::Work(from, self.script.work.len() as u32));
        }
    }

    fn mark(&mut self, hand: &mut Hand, mark: u32) {
        self.settle(hand);
        // Which job this is becomes known when it ends.
        hand.push(Step::Mark(mark));
    }

    /// What the thread does from here on is because of `when`; it had been ready to be taken since `ready`.
    fn caused(&mut self, hand: &mut Hand, when: When, at: u64, blocked: u64, ready: Option<u64>, chain: Option<u32>) {
        // The thread stood still until `up`, and what it waited for was there at `ready`.
        let stood = hand.unexplained.take().or((blocked > 0).then(|| (at.saturating_sub(blocked), at)));
        let lag = match (stood, ready) {
            (Some((since, up)), Some(ready)) if (since..=up).contains(&ready) => (up - ready) as f64,
            _ => -1.0,
        };
        let mut cause = Cause { when, lag };
        if lag >= 0.0 {
            self.lags.push(lag);
        }
        if let (When::After { mark, .. }, Some(_)) = (when, stood) {
            self.slept_for[mark as usize] = true;
        }
        if let (true, Some((since, up)), Some(ready)) = (hand.is_worker && blocked == 0, stood, ready)
            && ready < since
            && up - since < LOOK_MAX
        {
            // It did not sleep but asked the kernel for what was there: that is work, too.
            hand.work.insert(0, Work { kind: hand.looked, time: (up - since) as f64, hooks: 0.0, otherwise: 0.0 });
            hand.idle -= hand.idle.min(up - since);
            hand.has_looked = true;
        }
        if !hand.is_worker || blocked > 0 {
            hand.join_group(stood, at, ready, &mut cause);
            let behind = hand.work.split_off(if stood.is_some() && blocked == 0 { 0 } else { hand.work.len() });
            self.work(hand);
            hand.steps.push(Step::Await(cause));
            if let Some(group) = hand.group.as_mut().filter(|group| group.2 == NO_STEP) {
                group.2 = hand.steps.len() - 1;
            }
            hand.work = behind;
            return;
        }
        self.work(hand);
        if !(hand.is_anonymous && hand.own == 0) {
            // Work behind the last thing that the job did was for the next one: to read what has come.
            self.end_job(hand, if hand.own == 0 { usize::MAX } else { hand.own });
        } else if let (Some((since, up)), Some(ready)) = (stood, ready) {
            // Where it is not known when it came, it is when the thread was up.
            hand.is_from_sleep = ready >= since && (ready < up || up.saturating_sub(since) >= LOOK_MAX);
        }
        (hand.cause, hand.chain, hand.is_anonymous) = (cause, chain, false);
        (hand.came, hand.ready) = (at, ready.unwrap_or(at));
    }

    /// Ends the job behind its first `own` steps; those that are left are the next one's.
    fn end_job(&mut self, hand: &mut Hand, own: usize) {
        let rest = hand.steps.split_off(own.min(hand.steps.len()));
        let chain = hand.chain.take().unwrap_or(NONE);
        if !hand.steps.is_empty() {
            let from = self.script.steps.len() as u32;
            let job = self.script.jobs.len() as u32;
            for step in &hand.steps {
                if let Step::Mark(mark) = step {
                    self.setters[*mark as usize] = job;
                }
            }
            self.script.steps.append(&mut hand.steps);
            let steps = from..self.script.steps.len() as u32;
            let Hand { thread, cause, is_from_sleep, has_looked, .. } = *hand;
            self.script.jobs.push(Job { thread, cause, steps, chain, is_own: false, is_from_sleep, has_looked });
            self.came.push(hand.came);
            (hand.is_from_sleep, hand.has_looked) = (false, false);
        }
        hand.steps = rest;
        hand.own = 0;
        hand.wake = None;
    }

    fn finish(mut self, lag: Option<f64>) -> Script {
        for job in 0..self.script.jobs.len() {
            if let When::After { mark, gap: 0.0, link: Link::Program } = self.script.jobs[job].cause.when {
                let setter = self.script.jobs.get(self.setters[mark as usize] as usize).map(|setter| setter.thread);
                self.script.jobs[job].is_own = setter == Some(self.script.jobs[job].thread);
            }
        }
        // A job is its cause's chain's; causes come before what they cause.
        let mut order: Vec<usize> = (0..self.came.len()).collect();
        order.sort_unstable_by_key(|&job| self.came[job]);
        for job in order {
            if self.script.jobs[job].chain != NONE {
                continue;
            }
            let inherited = match self.script.jobs[job].cause.when {
                When::After { mark, .. } => match self.setters[mark as usize] {
                    NONE => NONE,
                    setter => self.script.jobs[setter as usize].chain,
                },
                When::At(_) => NONE,
            };
            self.script.jobs[job].chain = match inherited {
                NONE => self.chains.of(u64::from(self.script.jobs[job].thread) << 1 | 1),
                chain => chain,
            };
        }
        let own = usual_lag(&mut self.lags).unwrap_or(self.trace.wake_up);
        self.script.lag = lag.unwrap_or(own);
        self.script.lock_lag = usual_lag(&mut self.lock_lags).unwrap_or(own);
        for at in 1..self.script.steps.len() {
            let is_told = match self.script.steps[at - 1] {
                Step::Mark(mark) => !self.slept_for[mark as usize],
                Step::Unlock(lock, _) => !self.slept_at.contains(&lock) || self.woken_at.contains(&lock),
                _ => true,
            };
            if !is_told && self.script.steps[at] == Step::Wake(0, 0) {
                self.script.steps[at] = Step::Work(0, 0);
            }
        }
        self.wakes.sort_unstable_by(|a, b| a.time.total_cmp(&b.time));
        self.script.wake = self.wakes.get(self.wakes.len() / 2).copied();
        self.script.locks = self.locks.0.len() as u32;
        self.script.visits = self.visits.0.len() as u32;
        self.script.chains = self.chains.0.len() as u32;
        self.script
    }
}

/// How long it may take an event loop to ask for what is there, nanoseconds: a system call.
const LOOK_MAX: u64 = 20_000;

/// What is over sooner, nanoseconds, has woken nobody: the kernel found nobody, or was not asked.
const WAKE_MIN: f64 = 1_000.0;

/// Lags below this number may all be of threads that had no processor; one of [`VIRTUAL_WAKE_UP`] at most is believed then.
pub(crate) const LAGS_MIN: usize = 20;

/// The median; of few no more than a wake-up takes where a processor is free. `None` of none.
pub(crate) fn usual_lag(lags: &mut [f64]) -> Option<f64> {
    lags.sort_unstable_by(f64::total_cmp);
    let median = *lags.get(lags.len() / 2)?;
    Some(if lags.len() < LAGS_MIN { median.min(VIRTUAL_WAKE_UP) } else { median })
}

/// A wait whose step is not written yet.
const NO_STEP: usize = usize::MAX;
/// How long a thread may take to look at all that one standstill was for.
const GROUP: u64 = 20_000;

impl Hand {
    /// Where a thread stood still for several messages, it was the last of them that it stood still for, and that one's lag alone counts.
    fn join_group(&mut self, stood: Option<(u64, u64)>, at: u64, ready: Option<u64>, cause: &mut Cause) {
        let Some(ready) = ready else { return };
        if let Some((since, up)) = stood {
            self.group = Some((since, up, NO_STEP, ready));
            return;
        }
        let Some((since, up, step, last)) = self.group else { return };
        let explained = at <= up + GROUP && ready <= up;
        if !explained || !self.steps[step..].iter().all(|step| matches!(step, Step::Await(_) | Step::Work(..))) {
            self.group = None;
            return;
        }
        cause.lag = 0.0;
        if ready > last {
            if let Step::Await(earlier) = &mut self.steps[step] {
                earlier.lag = 0.0;
            }
            cause.lag = (up - ready) as f64;
            self.group = Some((since, up, NO_STEP, ready));
        }
    }

    fn push(&mut self, step: Step) {
        self.steps.push(step);
        self.own = self.steps.len();
        self.wake = None;
    }

    /// Somebody may wait for the step that was pushed last.
    fn push_wake(&mut self) {
        self.push(Step::Wake(0, 0));
        self.wake = Some(self.steps.len() - 1);
    }

    /// Accounts for the time until `at`, but for what it was blocked before it. From one hook's look at the clock to the next one's it
    /// is the program's, but for what hooks take.
    fn account(&mut self, at: u64, blocked: u64) {
        let worked = at.saturating_sub(self.at).saturating_sub(blocked) as f64;
        if worked > 0.0 {
            let hooks = self.hooks.take(worked);
            let time = worked - hooks;
            match self.work.last_mut() {
                Some(last) if last.kind == self.kind => {
                    last.time += time;
                    last.hooks += hooks;
                }
                _ => self.work.push(Work { kind: self.kind, time, hooks, otherwise: 0.0 }),
            }
        }
        self.at = at;
    }
}

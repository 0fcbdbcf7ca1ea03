//! Converts a trace into a script: the times of its events become dependencies between steps.
//!
//! - `thread`: the state of one thread.

mod thread;

use std::collections::{HashMap, HashSet};

use super::ColdCosts;
use super::marks::{MarkOrigin, Marks, UsualWaits};
use super::script::{Cause, EdgeKind, Job, NONE, ReadyTime, Script, ScriptStep, WINDOW_BEGIN, Work};
use crate::constants::{POLL_MAX, SPIN, WAKE_COST_MIN, WAKEUP_VIRTUAL, WAKEUPS_MIN};
use crate::trace::{Event, Hooks, Trace};
use thread::{NO_STEP, ThreadConverter};

/// Converts a trace, reusing the memory of another script. `wakeup_latency` is the usual one from other windows. It is
/// preferred to the latency measured in this window, which is preferred to the assumption for the machine.
pub(super) fn convert(trace: &Trace, wakeup_latency: Option<f64>, cold: &ColdCosts, memory: Script) -> Script {
    let marks = Marks::find(trace);
    let mut releases = Releases::new();
    let (mut callees, mut asked, mut outstanding) = (HashMap::new(), HashMap::new(), HashSet::new());
    let mut begun = HashSet::new();
    for &(at, event) in trace.threads.iter().flat_map(|thread| &thread.events) {
        match event {
            Event::Unlocked { lock, .. } => releases.entry(lock).or_default().push(at),
            Event::Called { call, callee, is_first } => {
                callees.insert(call, callee);
                if is_first {
                    asked.insert(call, at);
                }
            }
            // The answer arrived before the window's first event of the call, so the call was sent before the window.
            Event::Answered { call, at: came } if asked.get(&call).is_some_and(|&asked| came <= asked) => {
                outstanding.insert(call);
            }
            Event::VisitBegan { visit } => drop(begun.insert(visit)),
            _ => {}
        }
    }
    releases.values_mut().for_each(|times| times.sort_unstable());
    // About one step and one piece of work for each event.
    let events = trace.threads.iter().map(|thread| thread.events.len()).sum();
    let usual_gap = marks.usual_gap(trace);
    let usual_waits = UsualWaits::find(trace);
    let mut converter = TraceConverter {
        setters: vec![NONE; marks.count as usize],
        slept_for: vec![false; marks.count as usize],
        slept_at: HashSet::new(),
        woken_at: HashSet::new(),
        script: Script { marks: marks.count, ..memory.emptied(events) },
        trace,
        marks,
        locks: Numbers::default(),
        visits: Numbers::default(),
        chains: Numbers::default(),
        releases,
        callees,
        outstanding,
        begun,
        usual_gap,
        usual_waits,
        wakeup_latencies: Vec::new(),
        lock_wakeup_latencies: Vec::new(),
        wakes: Vec::new(),
        job_began: Vec::new(),
    };
    for number in 0..trace.threads.len() {
        converter.thread(number);
    }
    let mut script = converter.finish(wakeup_latency);
    cold.apply(&mut script);
    script
}

impl TraceConverter<'_> {
    fn since(&self, at: u64) -> f64 {
        at.saturating_sub(self.trace.time.start) as f64
    }

    fn thread(&mut self, number: usize) {
        let thread = &self.trace.threads[number];
        let start = self.trace.time.start;
        // A thread whose first event is the end of a block was blocked before. Any other one was at work.
        let first = thread.events.iter().find(|(_, event)| !matches!(event, Event::Kind(_)));
        let blocked = matches!(first, Some((_, Event::BlockEnded))).then_some(start);
        let mut state = ThreadConverter {
            thread: number as u32,
            is_worker: thread.is_worker,
            kind: thread.kind,
            at: start,
            hooks: Hooks::new(self.trace.hook),
            work: Vec::new(),
            steps: Vec::new(),
            cause: Cause { when: ReadyTime::At(0.0), wakeup_latency: -1.0 },
            job_began: start,
            ready: start,
            chain: None,
            is_anonymous: true,
            certain_steps: 0,
            room: NONE,
            group: None,
            held: Vec::new(),
            wake: None,
            is_waking: false,
            blocked,
            unexplained: None,
            is_unexplained: false,
            kind_at_wakeup: thread.kind,
            is_from_sleep: false,
            has_polled: false,
            looked: start,
            not_ready_at: start,
        };
        self.script.is_worker.push(thread.is_worker);
        self.script.runnable.push(thread.runnable.clamp(0.0, 1.0));
        for &(at, event) in &thread.events {
            self.event(&mut state, at, event);
        }
        if state.blocked.is_none() {
            state.account(self.trace.time.end, 0);
        }
        self.flush_work(&mut state);
        // Release locks that were held at the window's end. In a replay, threads may come to them later and would wait
        // forever.
        for (lock, sharing) in std::mem::take(&mut state.held) {
            let lock = self.locks.of(lock);
            state.push(ScriptStep::Unlock(lock, sharing));
        }
        self.end_job(&mut state, usize::MAX);
    }

    fn event(&mut self, state: &mut ThreadConverter, at: u64, event: Event) {
        let blocked = match event {
            Event::Took { blocked, .. } | Event::Locked { blocked, .. } | Event::SleepEnded { blocked, .. } => blocked,
            _ => 0,
        };
        // The blocked time is the end of the stretch up to `at`: it is no work.
        if state.blocked.is_none() {
            state.account(at, blocked);
        }
        // The work since the last event was a wakeup, which ends with this event.
        if std::mem::take(&mut state.is_waking) {
            self.woke(state);
        }
        match event {
            Event::Kind(kind) => state.kind = kind,
            Event::Waking(kind) => {
                self.flush_work(state);
                (state.kind, state.is_waking) = (kind, true);
            }
            Event::BlockBegan => {
                self.flush_work(state);
                // Steps up to here are the job's; work after the block belongs to the next one.
                state.certain_steps = state.steps.len();
                state.blocked = Some(at);
            }
            Event::BlockEnded => {
                let since = state.blocked.take().unwrap_or(state.at);
                (state.at, state.kind_at_wakeup) = (at, state.kind);
                let has_slept = at.saturating_sub(since) >= POLL_MAX;
                state.not_ready_at = if has_slept { since } else { state.looked };
                state.looked = at;
                if state.is_worker {
                    self.end_job(state, usize::MAX);
                    state.cause = Cause { when: ReadyTime::At(self.since(at)), wakeup_latency: -1.0 };
                    (state.job_began, state.ready) = (at, at);
                    (state.is_anonymous, state.is_unexplained) = (true, true);
                    // A shorter block was only a poll of the kernel.
                    state.is_from_sleep = has_slept;
                }
                state.unexplained = Some((since, at));
            }
            Event::Sent { message } => {
                self.mark(state, self.marks.known[&(MarkOrigin::Message, message)].0);
                state.push_wake();
            }
            // Its mark would be set too late: the call was sent before the window.
            Event::Called { call, .. } if self.outstanding.contains(&call) => {}
            Event::Called { call, .. } => self.mark(state, self.marks.known[&(MarkOrigin::Call, call)].0),
            Event::SleepBegan { timer } => self.mark(state, self.marks.known[&(MarkOrigin::Timer, timer)].0),
            Event::Written { connection } => {
                if let Some((mark, _)) = self.marks.write_before(connection, at) {
                    self.mark(state, mark);
                }
            }
            Event::Took { message, .. } => {
                let sent = self.marks.known.get(&(MarkOrigin::Message, message)).copied();
                let (when, ready) = match sent {
                    // The receiver may have read the clock a little before the sender did, so the gap is 0.
                    Some((mark, sent)) => (ReadyTime::After { mark, gap: 0.0, edge: EdgeKind::Program }, Some(sent)),
                    // It was there before the window, so a faster thread takes it sooner.
                    None if message == 0 && blocked == 0 && state.unexplained.is_none() => {
                        let ready = if state.is_worker {
                            state.ready
                        } else {
                            self.script.backlog += 1;
                            self.trace.time.start
                        };
                        (ReadyTime::At(self.since(ready)), Some(ready))
                    }
                    None => (ReadyTime::At(self.since(at)), None),
                };
                self.caused(state, when, at, blocked, ready, None);
            }
            Event::Dequeued { message } => {
                // Of a message from before the window only the room was missing: the present cause remains.
                if let Some(&(mark, sent)) = self.marks.known.get(&(MarkOrigin::Message, message)) {
                    let when = ReadyTime::After { mark, gap: 0.0, edge: EdgeKind::Program };
                    // Another thread runs its steps in program order anyway.
                    let room = if state.is_worker { self.new_mark(state) } else { NONE };
                    self.caused(state, when, at, 0, Some(sent), None);
                    state.room = room;
                }
            }
            Event::Arrived { connection, at: came } => {
                // Even numbers for connections; `finish` uses odd ones for threads.
                let chain = Some(self.chains.of(connection << 1));
                let came = self.arrival(state, connection, came, at);
                let when = match self.marks.write_before(connection, came) {
                    Some((mark, written)) => ReadyTime::After {
                        mark,
                        gap: (came - written) as f64,
                        edge: EdgeKind::Clients(self.since(came)),
                    },
                    None => ReadyTime::At(self.since(came)),
                };
                self.caused(state, when, at, 0, Some(came), chain);
            }
            Event::Answered { call, at: came } => {
                let edge = EdgeKind::Callee(self.callees.get(&call).copied().unwrap_or(NONE));
                let when = match self.marks.known.get(&(MarkOrigin::Call, call)) {
                    Some(_) if self.outstanding.contains(&call) => {
                        ReadyTime::After { mark: WINDOW_BEGIN, gap: self.since(came), edge }
                    }
                    Some(&(mark, called)) => ReadyTime::After { mark, gap: came.saturating_sub(called) as f64, edge },
                    None => ReadyTime::At(self.since(came)),
                };
                self.caused(state, when, at, 0, Some(came), None);
            }
            Event::SleepEnded { timer, .. } => {
                let began = self.marks.known.get(&(MarkOrigin::Timer, timer)).copied();
                let over = began.map_or(at, |(_, began)| self.wait_over(state, timer, began, at));
                let when = match began {
                    Some((mark, began)) => {
                        ReadyTime::After { mark, gap: over.saturating_sub(began) as f64, edge: EdgeKind::Program }
                    }
                    None => ReadyTime::At(self.since(at)),
                };
                // An end during the block is not before the time at which the thread ran.
                let ready = if state.unexplained.is_some_and(|(since, _)| over >= since) { at } else { over };
                self.caused(state, when, at, blocked, Some(ready), None);
                if state.is_worker && began.is_some() {
                    // The recorded length of the wait contains it.
                    state.cause.wakeup_latency = 0.0;
                }
            }
            Event::Locked { lock, sharing, .. } => {
                self.flush_work(state);
                let wakeup_latency = self.lock_wakeup_latency(lock, at, blocked).unwrap_or(-1.0);
                state.held.push((lock, sharing));
                let lock = self.locks.of(lock);
                // A thread blocked for longer than the spin time has slept.
                if blocked as f64 > SPIN {
                    self.slept_at.insert(lock);
                }
                state.push(ScriptStep::Lock(lock, sharing, wakeup_latency));
            }
            Event::Unlocked { lock: number, sharing } => {
                self.flush_work(state);
                let lock = self.locks.of(number);
                match state.held.iter().rposition(|held| *held == (number, sharing)) {
                    Some(at) => drop(state.held.remove(at)),
                    // Its acquisition was not recorded: it was held when the window began.
                    None => self.script.held.push((lock, sharing)),
                }
                state.push(ScriptStep::Unlock(lock, sharing));
                state.push_wake();
            }
            Event::Hit { point } => {
                self.flush_work(state);
                self.reached(point);
                state.push(ScriptStep::Hit { point, at: self.since(at) });
            }
            Event::VisitBegan { visit } => {
                self.flush_work(state);
                // On an event loop a unit begins at the arrival of its message.
                let at = self.since(if state.is_worker { state.ready } else { at });
                state.push(ScriptStep::VisitBegan { visit: self.visits.of(visit), at });
            }
            Event::VisitEnded { visit, point } => {
                self.flush_work(state);
                self.reached(point);
                let visit = if self.begun.contains(&visit) { self.visits.of(visit) } else { NONE };
                // `units::recorded` sets the weight: the begin may be in a thread that is not converted yet.
                state.push(ScriptStep::VisitEnded { visit, point, at: self.since(at), weight: 1.0 });
            }
        }
    }

    /// Estimates the arrival time of a message on a connection, if it was recorded without one. An idle thread was
    /// woken by the message. A busy thread may have looked late, so the estimate is the usual gap.
    fn arrival(&self, state: &ThreadConverter, connection: u64, came: u64, now: u64) -> u64 {
        if came != now {
            return came;
        }
        match (state.unexplained, self.marks.write_before(connection, now)) {
            (Some((_, up)), _) => up,
            (None, Some((_, written))) => now.min(written + self.usual_gap),
            (None, None) => now,
        }
    }

    /// Estimates when a task's wait was over. A wait that ended the sleep of an event loop was over when the loop ran.
    /// A busy loop may have looked late, so the estimate is the usual length of such a wait; but the wait was not over
    /// at the look before.
    fn wait_over(&self, state: &ThreadConverter, timer: u64, began: u64, now: u64) -> u64 {
        match state.unexplained {
            // A thread without an event loop is blocked during its sleep.
            _ if !state.is_worker => now,
            Some((since, up)) if up.saturating_sub(since) >= POLL_MAX => up,
            _ => self.usual_waits.of(timer).map_or(now, |usual| (began + usual).max(state.not_ready_at).min(now)),
        }
    }

    fn reached(&mut self, point: u32) {
        self.script.points = self.script.points.max(point + 1);
    }

    /// Returns the wakeup latency of a thread that slept for a lock. `None` if the lock was released more than once
    /// since: other threads overtook it.
    fn lock_wakeup_latency(&mut self, lock: u64, at: u64, blocked: u64) -> Option<f64> {
        let times = self.releases.get(&lock).filter(|_| blocked > 0)?;
        let (since, until) = (at.saturating_sub(blocked), times.partition_point(|&time| time <= at));
        let released = times[until.checked_sub(1)?];
        // The lock was not released during the wait, or more than once.
        if released < since || until > 1 && times[until - 2] >= since {
            return None;
        }
        let wakeup_latency = (at - released) as f64;
        self.lock_wakeup_latencies.push(wakeup_latency);
        Some(wakeup_latency)
    }

    /// Converts the work so far to a step, after a step for the wait before it.
    fn flush_work(&mut self, state: &mut ThreadConverter) {
        if let Some((since, at)) = state.unexplained.take()
            && !state.is_worker
        {
            state.steps.push(ScriptStep::Wait((at - since) as f64));
        }
        self.work(state);
    }

    /// Records the thread's last work as the cost of waking a thread, if it is long enough.
    fn woke(&mut self, state: &mut ThreadConverter) {
        let (Some(step), [work]) = (state.wake.take(), &state.work[..]) else { return };
        let work = *work;
        if work.time < WAKE_COST_MIN {
            return;
        }
        // The wakeup follows the step that caused it.
        if let ScriptStep::Unlock(lock, _) = state.steps[step - 1] {
            self.woken_at.insert(lock);
        }
        let from = self.script.work.len() as u32;
        self.script.work.push(work);
        state.work.clear();
        state.steps[step] = ScriptStep::Wake(from, from + 1);
        self.wakes.push(work);
    }

    fn work(&mut self, state: &mut ThreadConverter) {
        if !state.work.is_empty() {
            let from = self.script.work.len() as u32;
            self.script.work.append(&mut state.work);
            state.steps.push(ScriptStep::Work(from, self.script.work.len() as u32));
        }
    }

    fn mark(&mut self, state: &mut ThreadConverter, mark: u32) {
        self.flush_work(state);
        // The job that sets the mark becomes known when the job ends.
        state.push(ScriptStep::Mark(mark));
    }

    /// Sets a new mark here, for a job that needs the work up to it.
    fn new_mark(&mut self, state: &mut ThreadConverter) -> u32 {
        let mark = self.marks.count;
        self.marks.count += 1;
        self.script.marks = self.marks.count;
        self.setters.push(NONE);
        self.slept_for.push(false);
        self.mark(state, mark);
        mark
    }

    /// Makes `when` the cause of the thread's further work; its message was ready to be taken at `ready`.
    fn caused(
        &mut self,
        state: &mut ThreadConverter,
        when: ReadyTime,
        at: u64,
        blocked: u64,
        ready: Option<u64>,
        chain: Option<u32>,
    ) {
        // The thread was blocked until `up`, and its message was there at `ready`.
        let stood = state.unexplained.take().or((blocked > 0).then(|| (at.saturating_sub(blocked), at)));
        // The latency is known only if the message arrived during the block.
        let wakeup_latency = match (stood, ready) {
            (Some((since, up)), Some(ready)) if (since..=up).contains(&ready) => (up - ready) as f64,
            _ => -1.0,
        };
        let mut cause = Cause { when, wakeup_latency };
        if wakeup_latency >= 0.0 {
            self.wakeup_latencies.push(wakeup_latency);
        }
        if let (ReadyTime::After { mark, .. }, Some(_)) = (when, stood) {
            self.slept_for[mark as usize] = true;
        }
        if let (true, Some((since, up)), Some(ready)) = (state.is_worker && blocked == 0, stood, ready)
            && ready < since
            && up - since < POLL_MAX
        {
            // It did not sleep: it polled the kernel for ready events. That is work, too.
            state.work.insert(
                0,
                Work { kind: state.kind_at_wakeup, time: (up - since) as f64, hooks: 0.0, sleep_change: 0.0 },
            );
            state.has_polled = true;
        }
        if !state.is_worker || blocked > 0 {
            state.join_group(stood, at, ready, &mut cause);
            // Work recorded after a block that ended at `up` comes after the wait; other work before it.
            let behind = state.work.split_off(if stood.is_some() && blocked == 0 { 0 } else { state.work.len() });
            self.work(state);
            state.steps.push(ScriptStep::Await(cause));
            if let Some(group) = state.group.as_mut().filter(|group| group.2 == NO_STEP) {
                group.2 = state.steps.len() - 1;
            }
            state.work = behind;
            return;
        }
        self.work(state);
        if !(state.is_anonymous && state.certain_steps == 0) {
            // Work after the job's last step of another type belongs to the next job: it reads the next message.
            self.end_job(state, if state.certain_steps == 0 { usize::MAX } else { state.certain_steps });
        } else if let (Some((since, up)), Some(ready)) = (stood, ready) {
            // Without a known arrival time, the message arrived when the thread woke.
            state.is_from_sleep = ready >= since && (ready < up || up.saturating_sub(since) >= POLL_MAX);
        }
        (state.cause, state.chain, state.is_anonymous) = (cause, chain, false);
        state.is_unexplained = false;
        (state.job_began, state.ready) = (at, ready.unwrap_or(at));
    }

    /// Ends the job after its first `own` steps; the remaining steps belong to the next job.
    fn end_job(&mut self, state: &mut ThreadConverter, own: usize) {
        let rest = state.steps.split_off(own.min(state.steps.len()));
        let chain = state.chain.take().unwrap_or(NONE);
        let room = std::mem::replace(&mut state.room, NONE);
        if !state.steps.is_empty() {
            let from = self.script.steps.len() as u32;
            let job = self.script.jobs.len() as u32;
            for step in &state.steps {
                if let ScriptStep::Mark(mark) = step {
                    self.setters[*mark as usize] = job;
                }
            }
            self.script.steps.append(&mut state.steps);
            let steps = from..self.script.steps.len() as u32;
            let ThreadConverter { thread, cause, is_from_sleep, has_polled, is_unexplained, .. } = *state;
            self.script.jobs.push(Job {
                thread,
                cause,
                room,
                steps,
                chain,
                is_from_own_thread: false,
                is_from_sleep,
                has_polled,
                is_unexplained,
            });
            self.job_began.push(state.job_began);
            (state.is_from_sleep, state.has_polled) = (false, false);
        }
        state.steps = rest;
        state.certain_steps = 0;
        state.wake = None;
    }

    fn finish(mut self, wakeup_latency: Option<f64>) -> Script {
        for job in 0..self.script.jobs.len() {
            if let ReadyTime::After { mark, gap: 0.0, edge: EdgeKind::Program } = self.script.jobs[job].cause.when {
                let setter = self.script.jobs.get(self.setters[mark as usize] as usize).map(|setter| setter.thread);
                // A job is its thread's own if the same thread sets its mark.
                self.script.jobs[job].is_from_own_thread = setter == Some(self.script.jobs[job].thread);
            }
        }
        // A job belongs to the chain of its cause. Causes come before their effects, hence the order.
        let mut order: Vec<usize> = (0..self.job_began.len()).collect();
        order.sort_unstable_by_key(|&job| self.job_began[job]);
        for job in order {
            // The jobs that an unexplained one causes, in the program or by a call, are not explained either.
            let Job { cause, room, .. } = self.script.jobs[job];
            let of_cause = match cause.when {
                ReadyTime::After { mark, edge: EdgeKind::Program | EdgeKind::Callee(_), .. } => mark,
                _ => NONE,
            };
            let is_unexplained = [of_cause, room].into_iter().filter(|&mark| mark != NONE).any(|mark| {
                let setter = self.script.jobs.get(self.setters[mark as usize] as usize);
                setter.is_some_and(|setter| setter.is_unexplained)
            });
            self.script.jobs[job].is_unexplained |= is_unexplained;
            if self.script.jobs[job].chain != NONE {
                continue;
            }
            // Follow the cause: the job that set the mark determines the chain.
            let inherited = match self.script.jobs[job].cause.when {
                ReadyTime::After { mark, .. } => match self.setters[mark as usize] {
                    NONE => NONE,
                    setter => self.script.jobs[setter as usize].chain,
                },
                ReadyTime::At(_) => NONE,
            };
            self.script.jobs[job].chain = match inherited {
                NONE => self.chains.of(u64::from(self.script.jobs[job].thread) << 1 | 1),
                chain => chain,
            };
        }
        let own = median_wakeup_latency(&mut self.wakeup_latencies).unwrap_or(self.trace.wake_up);
        self.script.wakeup_latency = wakeup_latency.unwrap_or(own);
        self.script.lock_wakeup_latency = median_wakeup_latency(&mut self.lock_wakeup_latencies).unwrap_or(own);
        // A wakeup that happened but whose cost was not recorded is part of the thread's work: drop its `Wake` step.
        for at in 1..self.script.steps.len() {
            let is_complete = match self.script.steps[at - 1] {
                ScriptStep::Mark(mark) => !self.slept_for[mark as usize],
                ScriptStep::Unlock(lock, _) => !self.slept_at.contains(&lock) || self.woken_at.contains(&lock),
                _ => true,
            };
            if !is_complete && self.script.steps[at] == ScriptStep::Wake(0, 0) {
                self.script.steps[at] = ScriptStep::Work(0, 0);
            }
        }
        // The median cost of all recorded wakeups, for those without a recorded cost.
        self.wakes.sort_unstable_by(|a, b| a.time.total_cmp(&b.time));
        self.script.wake = self.wakes.get(self.wakes.len() / 2).copied();
        self.script.locks = self.locks.0.len() as u32;
        self.script.visits = self.visits.0.len() as u32;
        self.script.chains = self.chains.0.len() as u32;
        self.script
    }
}

/// Returns the median, at most [`WAKEUP_VIRTUAL`] with fewer than [`WAKEUPS_MIN`] values; `None` for an empty slice.
/// Sorts `wakeup_latencies`.
pub(crate) fn median_wakeup_latency(wakeup_latencies: &mut [f64]) -> Option<f64> {
    wakeup_latencies.sort_unstable_by(f64::total_cmp);
    let median = *wakeup_latencies.get(wakeup_latencies.len() / 2)?;
    Some(if wakeup_latencies.len() < WAKEUPS_MIN { median.min(WAKEUP_VIRTUAL) } else { median })
}

/// Maps arbitrary numbers to consecutive ones from 0.
#[derive(Default)]
struct Numbers(HashMap<u64, u32>);

impl Numbers {
    fn of(&mut self, number: u64) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(number).or_insert(next)
    }
}

/// By lock: the times of its releases.
type Releases = HashMap<u64, Vec<u64>>;

struct TraceConverter<'a> {
    script: Script,
    trace: &'a Trace,
    marks: Marks,
    locks: Numbers,
    visits: Numbers,
    chains: Numbers,
    releases: Releases,
    callees: HashMap<u64, u32>,
    /// Calls sent before the window. Their first event in the window is that the answer has arrived.
    outstanding: HashSet<u64>,
    /// Visits whose begin was recorded.
    begun: HashSet<u64>,
    /// Usual time from a write to the client's next request, as measured by idle threads.
    usual_gap: u64,
    usual_waits: UsualWaits,
    wakeup_latencies: Vec<f64>,
    lock_wakeup_latencies: Vec<f64>,
    wakes: Vec<Work>,
    /// By mark: whether a thread slept for it.
    slept_for: Vec<bool>,
    /// Locks that threads slept for, and those whose cost of waking was recorded.
    slept_at: HashSet<u32>,
    woken_at: HashSet<u32>,
    /// By mark: the job that sets it.
    setters: Vec<u32>,
    /// By job: the time at which it began, for the order in which chains are assigned.
    job_began: Vec<u64>,
}

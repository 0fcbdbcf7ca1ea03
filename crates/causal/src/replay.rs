//! Screening: replays a recorded window with one target made faster.
//!
//! A replay is a discrete-event simulation of the window. Threads with an event loop work in turns: they handle the
//! messages that were there when they looked, then those that they sent to themselves during the turn, and then they
//! look again. Other threads run in program order. A lock has one holder (or several readers), and a message arrives
//! when it is sent. Clients and upstreams keep their own times: a client's next request follows the answer after the
//! recorded gap, and an upstream's answer follows the call likewise. The replay cuts the target's fraction of all work,
//! and everything else follows: queues get shorter, clients return earlier, and threads wait for each other at other
//! places.
//!
//! The profiler's own hooks take part of a window, too, and would reduce every relative gain. Replays leave them out.
//!
//! A replay slows nothing down, and any number of targets can be tried on one window. Errors that are in both replays
//! cancel, because only the ratio of two replays is used. A replay cannot predict costs that depend on the times
//! themselves: caches, batches, threads that share a processor.
//!
//! - `cold`: the extra cost of work after sleep.
//! - `script`: a window as steps that depend on each other; `convert`: converts a trace into it; `marks`: the events
//!   that can end a wait.
//! - `lock`: a lock and its waiters; `units`: the progress, and the time per unit.

mod cold;
mod convert;
mod lock;
mod marks;
mod script;
#[cfg(test)]
mod tests;
mod units;

use std::collections::{BinaryHeap, VecDeque};

use progress::Sharing;

use crate::constants::SPIN;
use crate::outcome::WindowOutcome;
use crate::target::Weights;
use crate::trace::Trace;
pub use cold::ColdCosts;
pub(crate) use convert::median_wakeup_latency;
use lock::{Lock, Waiter};
use script::{Cause, EdgeKind, Job, NONE, ReadyTime, Script, ScriptStep, WINDOW_BEGIN, Work};
use units::{ProgressTotals, UnitSelection, recorded};
pub use units::{UnitCuts, WindowLengths};

/// When messages from outside arrive (a closed or an open workload model).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadModel {
    /// They follow from the program's answers: clients wait for them.
    Closed,
    /// They arrive at the recorded times.
    Open,
}

/// A recorded window that can be replayed any number of times.
#[derive(Debug, Default)]
pub struct Replay {
    script: Script,
    /// By load model.
    jobs_by_mark: [JobsByMark; 2],
    /// By point.
    selections: Vec<UnitSelection>,
    /// By load model.
    measured: [WindowOutcome; 2],
    /// By point.
    cuts: Vec<UnitCuts>,
    unexplained: Vec<u64>,
}

impl Replay {
    /// Prepares the replay of a single trace. Takes a few hundred nanoseconds per event. `wakeup_latency` is the
    /// latency, in nanoseconds, to use in place of the window's own. `cold` is from many windows.
    #[must_use]
    pub fn new(trace: &Trace, wakeup_latency: Option<f64>, cold: &ColdCosts) -> Self {
        let length = trace.time.end.saturating_sub(trace.time.start);
        Self::default().next(trace, wakeup_latency, cold, &WindowLengths::of([length]))
    }

    /// Reads one of several traces as [`Replay::new`] does, reusing the memory of `self`. `lengths` are those of all
    /// windows.
    #[must_use]
    pub fn next(self, trace: &Trace, wakeup_latency: Option<f64>, cold: &ColdCosts, lengths: &WindowLengths) -> Self {
        let mut script = convert::convert(trace, wakeup_latency, cold, self.script);
        let (totals, cuts, unexplained) = recorded(&mut script, lengths);
        let models = [LoadModel::Closed, LoadModel::Open];
        let selections = totals.selections();
        let measured = models.map(|model| totals.outcome(&selections, model));
        let jobs_by_mark = models.map(|model| JobsByMark::new(&script, model));
        Self { script, jobs_by_mark, selections, measured, cuts, unexplained }
    }

    /// Returns the window's outcome as recorded, computed in the way of a replay with that load model.
    #[must_use]
    pub fn measured(&self, model: LoadModel) -> &WindowOutcome {
        &self.measured[model as usize]
    }

    /// Returns the units of `point` that the window's begin cut; none if it made no progress.
    pub(crate) fn cuts(&self, point: u32) -> UnitCuts {
        self.cuts.get(point as usize).copied().unwrap_or_default()
    }

    /// Returns the number of units of `point` that follow from a wait of an event loop whose cause no hook reported: in
    /// a replay they end at the recorded time.
    pub(crate) fn unexplained(&self, point: u32) -> u64 {
        self.unexplained.get(point as usize).copied().unwrap_or_default()
    }

    /// Replays the window with `speedup` (0 to 1) of the target's time saved. Deterministic.
    #[must_use]
    pub fn run(&self, weights: &Weights, speedup: f64, model: LoadModel) -> WindowOutcome {
        self.play(&Change { weights, speedup, hooks_kept: 0.0 }, model)
    }

    /// Replays the window unchanged, with the recorded time of hooks. An exact replay would return the outcome of
    /// [`Replay::measured`].
    #[must_use]
    pub fn run_as_recorded(&self, model: LoadModel) -> WindowOutcome {
        self.play(&Change { weights: &Weights::default(), speedup: 0.0, hooks_kept: 1.0 }, model)
    }

    fn play(&self, change: &Change<'_>, model: LoadModel) -> WindowOutcome {
        let mut simulation = Simulation::new(&self.script, &self.jobs_by_mark[model as usize], change, model);
        simulation.run();
        let mut outcome = simulation.totals.outcome(&self.selections, model);
        for (point, thread_progress) in outcome.points.iter_mut().zip(&simulation.thread_progress) {
            // Weight each thread by its units: threads that make most of the progress count most.
            let (worked, passed) = thread_progress
                .iter()
                .fold((0.0, 0.0), |sum, one| (sum.0 + one.hits * one.worked, sum.1 + one.hits * one.until));
            point.waiting = if passed > 0.0 { (1.0 - worked / passed).clamp(0.0, 1.0) } else { 0.0 };
        }
        outcome
    }
}

/// The changes that a replay makes to the window.
struct Change<'a> {
    /// The target's fraction of each kind of work.
    weights: &'a Weights,
    /// The fraction of the target's time to save.
    speedup: f64,
    /// The fraction of the hooks' time to keep.
    hooks_kept: f64,
}

/// The jobs started by each mark.
#[derive(Debug, Default)]
struct JobsByMark {
    jobs: Vec<u32>,
    /// By mark: the index in `jobs` of its first one.
    starts: Vec<u32>,
}

impl JobsByMark {
    fn new(script: &Script, model: LoadModel) -> Self {
        let mut pairs: Vec<_> = (0..)
            .zip(&script.jobs)
            .filter_map(|(number, job)| match job.cause.when {
                ReadyTime::After { mark, edge, .. }
                    if !(model == LoadModel::Open && matches!(edge, EdgeKind::Clients(_))) =>
                {
                    Some((mark, number))
                }
                _ => None,
            })
            .chain((0..).zip(&script.jobs).filter(|(_, job)| job.room != NONE).map(|(number, job)| (job.room, number)))
            .collect();
        // By mark, then in the order of the script: counting offsets give each mark's jobs as one slice.
        pairs.sort_unstable();
        let mut starts = vec![0; script.marks as usize + 1];
        pairs.iter().for_each(|(mark, _)| starts[*mark as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        Self { jobs: pairs.into_iter().map(|(_, job)| job).collect(), starts }
    }

    fn of(&self, mark: u32) -> &'_ [u32] {
        &self.jobs[self.starts[mark as usize] as usize..self.starts[mark as usize + 1] as usize]
    }
}

/// A pending event of the simulation; the earliest is first in the heap.
#[derive(Clone, Copy, PartialEq)]
struct Due {
    at: f64,
    /// Order of insertion, which breaks ties.
    order: u64,
    event: DueEvent,
}

#[derive(Clone, Copy, PartialEq)]
enum DueEvent {
    /// A job arrives at its thread.
    Ready(u32),
    /// A thread continues.
    Go(u32),
    /// A thread that waits for a lock tries again.
    Try(u32, u32),
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        // Reversed: `BinaryHeap` pops the largest element.
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a thread in the replay.
struct ReplayThread {
    job: u32,
    /// Its next step. At the end of the job the thread takes the next job.
    step: u32,
    is_busy: bool,
    /// Whether the job starts from sleep in the replay but did not in the recording, or the other way round.
    sleep_differs: bool,
    /// The time that it has worked.
    worked: f64,
    /// Whether its last step wakes a sleeping thread.
    wakes: bool,
    /// The arrival time of the message that it handles.
    came: f64,
    /// The remaining jobs of this turn, in order, with their arrival times.
    turn: VecDeque<(u32, f64)>,
    /// The jobs that arrived since the thread last looked, and the time of that look.
    unseen: VecDeque<(u32, f64)>,
    looked: f64,
}

/// One thread's contribution to a point: the number of its units, and at the last of them the time that it has worked,
/// and the time.
#[derive(Clone, Copy, Default)]
struct ThreadProgress {
    hits: f64,
    worked: f64,
    until: f64,
}

struct Simulation<'a> {
    script: &'a Script,
    change: &'a Change<'a>,
    model: LoadModel,
    now: f64,
    due: BinaryHeap<Due>,
    order: u64,
    threads: Vec<ReplayThread>,
    marks: Vec<f64>,
    jobs_by_mark: &'a JobsByMark,
    /// By mark: the threads that wait for it.
    awaiting: Vec<Vec<u32>>,
    locks: Vec<Lock>,
    visits: Vec<f64>,
    /// By point, then by thread.
    thread_progress: Vec<Vec<ThreadProgress>>,
    totals: ProgressTotals,
}

/// The time of a mark that is not set.
const NOT_YET: f64 = f64::INFINITY;

impl<'a> Simulation<'a> {
    fn new(script: &'a Script, jobs_by_mark: &'a JobsByMark, change: &'a Change<'a>, model: LoadModel) -> Self {
        let threads = script.is_worker.len();
        let mut locks: Vec<Lock> = std::iter::repeat_with(Lock::default).take(script.locks as usize).collect();
        // Locks held at the window's begin are released by their recorded unlocks.
        for &(lock, sharing) in &script.held {
            locks[lock as usize].take(sharing);
        }
        let mut simulation = Self {
            script,
            change,
            model,
            now: 0.0,
            due: BinaryHeap::new(),
            order: 0,
            threads: std::iter::repeat_with(|| ReplayThread {
                job: NONE,
                step: 0,
                is_busy: false,
                sleep_differs: false,
                worked: 0.0,
                wakes: false,
                came: 0.0,
                turn: VecDeque::new(),
                unseen: VecDeque::new(),
                looked: 0.0,
            })
            .take(threads)
            .collect(),
            marks: vec![NOT_YET; script.marks as usize],
            jobs_by_mark,
            awaiting: vec![Vec::new(); script.marks as usize],
            locks,
            visits: vec![0.0; script.visits as usize],
            thread_progress: vec![vec![ThreadProgress::default(); threads]; script.points as usize],
            totals: ProgressTotals::new(script),
        };
        for (number, job) in (0..).zip(&script.jobs) {
            let at = match job.cause.when {
                ReadyTime::At(at) | ReadyTime::After { edge: EdgeKind::Clients(at), .. }
                    if model == LoadModel::Open || matches!(job.cause.when, ReadyTime::At(_)) =>
                {
                    at
                }
                _ => continue,
            };
            simulation.push(at, DueEvent::Ready(number));
        }
        // Starts the jobs that follow from the window's begin.
        simulation.set_mark(WINDOW_BEGIN);
        simulation
    }

    fn push(&mut self, at: f64, event: DueEvent) {
        self.order += 1;
        self.due.push(Due { at, order: self.order, event });
    }

    fn run(&mut self) {
        while let Some(due) = self.due.pop() {
            // Simulated time never goes back.
            self.now = self.now.max(due.at);
            match due.event {
                DueEvent::Ready(job) => {
                    let Job { thread, cause, .. } = self.script.jobs[job as usize];
                    let state = &mut self.threads[thread as usize];
                    if !state.is_busy {
                        // A thread that was idle needs its wakeup latency.
                        let up = due.at + self.wakeup_latency(cause);
                        self.threads[thread as usize].looked = up;
                        // A job that is ready at the window's begin was recorded on a thread that was at work, not
                        // asleep.
                        self.begin(thread, job, due.at, due.at > 0.0);
                        self.push(up, DueEvent::Go(thread));
                    } else if due.at <= state.looked {
                        // The thread had not looked yet when the job arrived: it belongs to the current turn.
                        state.turn.push_back((job, due.at));
                    } else {
                        state.unseen.push_back((job, due.at));
                    }
                }
                DueEvent::Go(thread) => self.run_thread(thread),
                DueEvent::Try(thread, lock) => self.try_again(thread, lock),
            }
        }
    }

    fn begin(&mut self, thread: u32, job: u32, came: f64, is_from_sleep: bool) {
        let Job { ref steps, is_from_sleep: was_from_sleep, .. } = self.script.jobs[job as usize];
        let state = &mut self.threads[thread as usize];
        (state.job, state.step, state.came, state.is_busy) = (job, steps.start, came, true);
        state.sleep_differs = is_from_sleep != was_from_sleep;
    }

    fn wakeup_latency(&self, cause: Cause) -> f64 {
        match cause.when {
            // Without a known cause, the event at this time is the one that woke the thread.
            ReadyTime::At(_) => cause.wakeup_latency.max(0.0),
            ReadyTime::After { .. } if cause.wakeup_latency >= 0.0 => cause.wakeup_latency,
            ReadyTime::After { .. } => self.script.wakeup_latency,
        }
    }

    /// Returns the time at which a cause is ready; [`NOT_YET`] if its mark is not set.
    fn ready(&self, when: ReadyTime) -> f64 {
        match when {
            ReadyTime::At(at) => at,
            ReadyTime::After { edge: EdgeKind::Clients(at), .. } if self.model == LoadModel::Open => at,
            ReadyTime::After { mark, gap, edge } => {
                // Only calls of the target get faster; the time of clients stays as recorded.
                let faster = matches!(edge, EdgeKind::Callee(callee) if self.change.weights.calls == Some(callee));
                self.marks[mark as usize] + if faster { gap * (1.0 - self.change.speedup) } else { gap }
            }
        }
    }

    fn cost(&self, thread: u32, work: &[Work]) -> f64 {
        let &Change { weights, speedup, hooks_kept } = self.change;
        // The rest of its time is a wait that no hook reports, which a speed-up does not shorten.
        let faster = speedup * self.script.runnable[thread as usize];
        let sleep_differs = self.threads[thread as usize].sleep_differs;
        let cost = |work: &Work| {
            let time = if sleep_differs { work.time + work.sleep_change } else { work.time };
            time * (1.0 - faster * weights.part(work.kind)) + work.hooks * hooks_kept
        };
        work.iter().map(cost).sum()
    }

    /// Runs the thread's steps up to one that takes time.
    fn run_thread(&mut self, thread: u32) {
        let index = thread as usize;
        loop {
            let state = &self.threads[index];
            let job = &self.script.jobs[state.job as usize];
            if state.step == job.steps.end {
                let state = &mut self.threads[index];
                // The turn is over: look, and take all jobs that have arrived since the last look.
                if state.turn.is_empty() {
                    std::mem::swap(&mut state.turn, &mut state.unseen);
                    state.looked = self.now;
                }
                match state.turn.pop_front() {
                    Some((job, came)) => {
                        self.begin(thread, job, came, false);
                        continue;
                    }
                    None => return self.threads[index].is_busy = false,
                }
            }
            let step = self.script.steps[state.step as usize];
            let chain = job.chain;
            // A lock or a wait that does not succeed returns without advancing, and is tried again later.
            match step {
                ScriptStep::Lock(lock, sharing, wakeup_latency) => {
                    if !self.locks[lock as usize].take(sharing) {
                        let wakeup_latency =
                            if wakeup_latency >= 0.0 { wakeup_latency } else { self.script.lock_wakeup_latency };
                        let waiter = Waiter { thread, sharing, wakeup_latency, spins_until: self.now + SPIN };
                        return self.locks[lock as usize].waiting.push_back(waiter);
                    }
                }
                ScriptStep::Await(cause) => {
                    let ready = self.ready(cause.when);
                    if ready == NOT_YET {
                        if let ReadyTime::After { mark, .. } = cause.when {
                            // `set_mark` continues the thread when the mark is set.
                            self.awaiting[mark as usize].push(thread);
                        }
                        return;
                    }
                    if ready > self.now {
                        self.threads[index].step += 1;
                        self.threads[index].came = ready;
                        let wakeup_latency = self.wakeup_latency(cause);
                        return self.push(ready + wakeup_latency, DueEvent::Go(thread));
                    }
                    self.threads[index].came = ready;
                }
                ScriptStep::Work(from, to) => {
                    if !self.work(thread, &self.script.work[from as usize..to as usize]) {
                        return;
                    }
                }
                ScriptStep::Wake(from, to) => {
                    let work = if from < to {
                        &self.script.work[from as usize..to as usize]
                    } else {
                        self.script.wake.as_slice()
                    };
                    // Without a sleeping thread, waking costs nothing.
                    if std::mem::take(&mut self.threads[index].wakes) && !self.work(thread, work) {
                        return;
                    }
                }
                ScriptStep::Wait(time) => {
                    if !self.advance(thread, time) {
                        return;
                    }
                }
                ScriptStep::Mark(mark) => self.threads[index].wakes = self.set_mark(mark),
                ScriptStep::Unlock(lock, sharing) => self.threads[index].wakes = self.unlock(lock, sharing),
                ScriptStep::Hit { point, .. } => self.hit(point, chain, thread),
                ScriptStep::VisitBegan { visit, .. } => {
                    // On an event loop a unit begins at the arrival of its message.
                    let began = if self.script.is_worker[index] { self.threads[index].came } else { self.now };
                    self.visits[visit as usize] = began;
                }
                ScriptStep::VisitEnded { visit, point, weight, .. } => {
                    if visit != NONE {
                        self.totals.timed(point, self.now - self.visits[visit as usize], weight);
                    }
                    self.hit(point, chain, thread);
                }
            }
            self.threads[index].step += 1;
        }
    }

    fn hit(&mut self, point: u32, chain: u32, thread: u32) {
        let progress = &mut self.thread_progress[point as usize][thread as usize];
        *progress =
            ThreadProgress { hits: progress.hits + 1.0, worked: self.threads[thread as usize].worked, until: self.now };
        self.totals.hit(point, chain, self.now);
    }

    /// Does the work of the thread's step. Returns whether the thread continues at once, as [`advance`](Self::advance).
    fn work(&mut self, thread: u32, work: &[Work]) -> bool {
        if work.is_empty() {
            return true;
        }
        let cost = self.cost(thread, work);
        self.threads[thread as usize].worked += cost;
        self.advance(thread, cost)
    }

    /// Takes `time` for the thread's step. If no event is due before its end, advances the clock and returns true: the
    /// thread continues at once. Otherwise schedules the thread's next step.
    fn advance(&mut self, thread: u32, time: f64) -> bool {
        let at = self.now.max(self.now + time);
        // Avoids a push and a pop for most steps.
        let is_next = self.due.peek().is_none_or(|due| due.at > at);
        if is_next {
            self.now = at;
        } else {
            self.threads[thread as usize].step += 1;
            self.push(at, DueEvent::Go(thread));
        }
        is_next
    }

    /// Sets a mark. Returns whether this wakes a sleeping thread.
    fn set_mark(&mut self, mark: u32) -> bool {
        let mut wakes = false;
        self.marks[mark as usize] = self.now;
        for &job in self.jobs_by_mark.of(mark) {
            let Job { thread, cause, room, is_from_own_thread, .. } = self.script.jobs[job as usize];
            // A job that needs two marks begins after the later one.
            if room != NONE && (self.ready(cause.when) == NOT_YET || self.marks[room as usize] == NOT_YET) {
                continue;
            }
            let is_program = matches!(cause.when, ReadyTime::After { edge: EdgeKind::Program, .. });
            wakes |= is_program && !self.threads[thread as usize].is_busy;
            // A message to itself is handled in this turn, without another look.
            if is_from_own_thread {
                self.threads[thread as usize].turn.push_back((job, self.now));
            } else {
                self.push(self.ready(cause.when).max(self.now), DueEvent::Ready(job));
            }
        }
        for thread in std::mem::take(&mut self.awaiting[mark as usize]) {
            // The time at which the wait ends is known now.
            let state = &self.threads[thread as usize];
            if let ScriptStep::Await(cause) = self.script.steps[state.step as usize] {
                let ready = self.ready(cause.when);
                self.threads[thread as usize].step += 1;
                self.threads[thread as usize].came = ready;
                self.push(ready + self.wakeup_latency(cause), DueEvent::Go(thread));
                // If a thread blocks for several messages (a barrier's), only the last one wakes it. The others have
                // latency 0.
                wakes |= cause.wakeup_latency != 0.0;
            }
        }
        wakes
    }

    /// Releases a lock. Returns whether this wakes a sleeping thread.
    fn unlock(&mut self, number: u32, sharing: Sharing) -> bool {
        let lock = &mut self.locks[number as usize];
        match sharing {
            Sharing::Exclusive => lock.exclusive = false,
            Sharing::Shared => lock.shared = lock.shared.saturating_sub(1),
        }
        self.wake(number)
    }

    /// Wakes the first waiter if it may have the lock now. When it has taken the lock, `try_again` wakes the next one,
    /// so that readers follow each other. Returns whether the waiter slept.
    fn wake(&mut self, number: u32) -> bool {
        let lock = &mut self.locks[number as usize];
        if lock.exclusive || lock.woken {
            return false;
        }
        let Some(&Waiter { thread, sharing, wakeup_latency, spins_until }) = lock.waiting.front() else { return false };
        if sharing == Sharing::Exclusive && lock.shared > 0 {
            return false;
        }
        // One waiter at a time tries, so that a release does not wake a whole crowd.
        lock.woken = true;
        let sleeps = self.now >= spins_until;
        self.push(if sleeps { self.now + wakeup_latency } else { self.now }, DueEvent::Try(thread, number));
        sleeps
    }

    fn try_again(&mut self, thread: u32, number: u32) {
        let lock = &mut self.locks[number as usize];
        lock.woken = false;
        let Some(&Waiter { sharing, .. }) = lock.waiting.front() else { return };
        if !lock.take(sharing) {
            // Another thread took it first. Its release wakes this waiter again.
            lock.waiting[0].spins_until = self.now + SPIN;
        } else {
            lock.waiting.pop_front();
            self.threads[thread as usize].step += 1;
            self.wake(number);
            self.run_thread(thread);
        }
    }
}

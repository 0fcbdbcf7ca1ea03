//! Mode A: a recorded window, once more, with something faster.
//!
//! A window is replayed as a discrete-event simulation. Threads that run an event loop work in turns: on what was there when they looked,
//! then on what they told themselves meanwhile, and then they look again; others do one thing after the other. Locks are had by one at a time, messages come when they are sent, and what lies outside keeps its pace: clients send
//! as long after our answer as they did, upstreams answer as long after our question. Then the target's part of all work is cut, and
//! everything else follows: queues that shorten, clients that come back earlier, threads that now wait for one another.
//!
//! The profiler's own hooks take part of a window, too, and would take their part from everything: replays are without them.
//!
//! Nothing is slowed for it, any number of targets is tried on the same window, and what did not change cancels out: only the ratio of two
//! replays counts. What it can't see is what costs differently when times change (caches, batches, threads that share a processor).
//!
//! - `cold`: what work takes more behind sleep.
//! - `script`: a trace as steps that follow from one another.

mod cold;
mod script;
#[cfg(test)]
mod tests;

use std::collections::{BinaryHeap, VecDeque};

use progress::Sharing;

use crate::outcome::{Outcome, PointOutcome};
use crate::target::Weights;
use crate::trace::Trace;
pub use cold::Cold;
use script::{BEGIN, Cause, Job, Link, NONE, Script, Step, When, Work};
pub(crate) use script::{LAGS_MIN, usual_lag};

/// Whose pace what comes from outside goes at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The program's: clients wait for their answers.
    Closed,
    /// Its own: it comes when it came.
    Open,
}

/// A recorded window that can be replayed any number of times.
#[derive(Debug, Default)]
pub struct Replay {
    script: Script,
    /// By pace.
    followers: [Followers; 2],
    /// By point.
    measures: Vec<Measure>,
    /// By pace.
    measured: [Outcome; 2],
}

impl Replay {
    /// Reads a trace. Takes a few hundred nanoseconds for each event. `lag` is how long a thread usually takes to be up, nanoseconds,
    /// for a window that tells too little of it: one in which hardly any slept. `cold` is from many windows.
    #[must_use]
    pub fn new(trace: &Trace, lag: Option<f64>, cold: &Cold) -> Self {
        Self::default().next(trace, lag, cold)
    }

    /// Another trace in the memory of this one, as [`Replay::new`].
    #[must_use]
    pub fn next(self, trace: &Trace, lag: Option<f64>, cold: &Cold) -> Self {
        let script = script::write(trace, lag, cold, self.script);
        let mut totals = recorded(&script);
        let paces = [Pace::Closed, Pace::Open];
        let measures = totals.measures();
        let measured = paces.map(|pace| totals.outcome(&measures, pace, script.busiest));
        let followers = paces.map(|pace| Followers::new(&script, pace));
        Self { script, followers, measures, measured }
    }

    /// What the window came to as it was recorded, taken as a replay at that pace takes it.
    #[must_use]
    pub fn measured(&self, pace: Pace) -> &Outcome {
        &self.measured[pace as usize]
    }

    /// What the window comes to when the target takes `speedup` (0 to 1) less of its time. The same question has the same answer.
    #[must_use]
    pub fn run(&self, weights: &Weights, speedup: f64, pace: Pace) -> Outcome {
        self.play(&Change { weights, speedup, hooks: 0.0 }, pace)
    }

    /// What it comes to with nothing changed and hooks that take what they took: what [`Replay::measured`] is, if the replay is right.
    #[must_use]
    pub fn run_as_recorded(&self, pace: Pace) -> Outcome {
        self.play(&Change { weights: &Weights::default(), speedup: 0.0, hooks: 1.0 }, pace)
    }

    fn play(&self, change: &Change<'_>, pace: Pace) -> Outcome {
        let mut world = World::new(&self.script, &self.followers[pace as usize], change, pace);
        world.run();
        let mut outcome = world.totals.outcome(&self.measures, pace, self.script.busiest);
        for (point, pulls) in outcome.points.iter_mut().zip(&world.pulls) {
            let (worked, passed) =
                pulls.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.hits * one.worked, sum.1 + one.hits * one.until));
            point.waiting = if passed > 0.0 { (1.0 - worked / passed).clamp(0.0, 1.0) } else { 0.0 };
        }
        outcome
    }
}

/// What is different in a replay.
struct Change<'a> {
    /// Which part of each kind of work is the target's.
    weights: &'a Weights,
    /// How much of that is saved.
    speedup: f64,
    /// What part of their time hooks take.
    hooks: f64,
}

/// The jobs that each mark sets off.
#[derive(Debug, Default)]
struct Followers {
    jobs: Vec<u32>,
    /// Where each mark's begin.
    starts: Vec<u32>,
}

impl Followers {
    fn new(script: &Script, pace: Pace) -> Self {
        let mut pairs: Vec<_> = (0..)
            .zip(&script.jobs)
            .filter_map(|(number, job)| match job.cause.when {
                When::After { mark, link, .. } if !(pace == Pace::Open && matches!(link, Link::Clients(_))) => {
                    Some((mark, number))
                }
                _ => None,
            })
            .collect();
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

/// What happens next, the earliest first.
#[derive(Clone, Copy, PartialEq)]
struct Due {
    at: f64,
    /// What was due first goes first.
    order: u64,
    what: What,
}

#[derive(Clone, Copy, PartialEq)]
enum What {
    /// A job has come to its thread.
    Ready(u32),
    /// A thread goes on.
    Go(u32),
    /// A thread that waits for a lock tries again.
    Try(u32, u32),
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.at.total_cmp(&self.at).then(other.order.cmp(&self.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Default)]
struct Lock {
    exclusive: bool,
    shared: u32,
    waiting: VecDeque<Waiter>,
    /// A thread was woken and has not tried yet.
    woken: bool,
}

/// A thread that waits for a lock.
#[derive(Clone, Copy)]
struct Waiter {
    thread: u32,
    sharing: Sharing,
    /// How long it takes to be up once it sleeps.
    lag: f64,
    /// Until when it only spins, so that it sees at once that the lock is free.
    spins_until: f64,
}

/// How long the standard library's locks spin before they sleep, nanoseconds: a hundred pauses of the processor. Whoever sleeps is
/// overtaken by those who come while it wakes, and that is much of what a contended lock costs.
const SPIN: f64 = 4_000.0;

impl Lock {
    fn take(&mut self, sharing: Sharing) -> bool {
        let free = !self.exclusive && (sharing == Sharing::Shared || self.shared == 0);
        if free {
            match sharing {
                Sharing::Exclusive => self.exclusive = true,
                Sharing::Shared => self.shared += 1,
            }
        }
        free
    }
}

/// A thread in the replay.
struct Player {
    job: u32,
    /// Its next step; at the job's end it takes another one.
    step: u32,
    is_busy: bool,
    /// Whether its job begins from sleep though it did not when it was recorded, or the other way round.
    is_otherwise: bool,
    /// For how long it has worked.
    worked: f64,
    /// Whether its last step let somebody go on who sleeps.
    wakes: bool,
    /// When what it works on had come.
    came: f64,
    /// Jobs of this turn that are left, in their order, with the times when they came.
    turn: VecDeque<(u32, f64)>,
    /// Those that have come since the thread looked, and when it did.
    unseen: VecDeque<(u32, f64)>,
    looked: f64,
}

/// Units of progress that one connection, or one thread, made.
#[derive(Clone, Copy)]
struct Tally {
    hits: u64,
    last: f64,
}

/// What one thread does for a point: its units, and until the last of them how long it worked, and when that was.
#[derive(Clone, Copy, Default)]
struct Pull {
    hits: f64,
    worked: f64,
    until: f64,
}

struct World<'a> {
    script: &'a Script,
    change: &'a Change<'a>,
    pace: Pace,
    now: f64,
    due: BinaryHeap<Due>,
    order: u64,
    players: Vec<Player>,
    marks: Vec<f64>,
    followers: &'a Followers,
    /// For each mark the threads that wait for it.
    awaiting: Vec<Vec<u32>>,
    locks: Vec<Lock>,
    visits: Vec<f64>,
    /// By point, then thread.
    pulls: Vec<Vec<Pull>>,
    totals: Totals,
}

const NOT_YET: f64 = f64::INFINITY;

impl<'a> World<'a> {
    fn new(script: &'a Script, followers: &'a Followers, change: &'a Change<'a>, pace: Pace) -> Self {
        let threads = script.is_worker.len();
        let mut locks: Vec<Lock> = std::iter::repeat_with(Lock::default).take(script.locks as usize).collect();
        for &(lock, sharing) in &script.held {
            locks[lock as usize].take(sharing);
        }
        let mut world = Self {
            script,
            change,
            pace,
            now: 0.0,
            due: BinaryHeap::new(),
            order: 0,
            players: std::iter::repeat_with(|| Player {
                job: NONE,
                step: 0,
                is_busy: false,
                is_otherwise: false,
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
            followers,
            awaiting: vec![Vec::new(); script.marks as usize],
            locks,
            visits: vec![0.0; script.visits as usize],
            pulls: vec![vec![Pull::default(); threads]; script.points as usize],
            totals: Totals::new(script),
        };
        for (number, job) in (0..).zip(&script.jobs) {
            let at = match job.cause.when {
                When::At(at) | When::After { link: Link::Clients(at), .. }
                    if pace == Pace::Open || matches!(job.cause.when, When::At(_)) =>
                {
                    at
                }
                _ => continue,
            };
            world.push(at, What::Ready(number));
        }
        world.set(BEGIN);
        world
    }

    fn push(&mut self, at: f64, what: What) {
        self.order += 1;
        self.due.push(Due { at, order: self.order, what });
    }

    fn run(&mut self) {
        while let Some(due) = self.due.pop() {
            self.now = self.now.max(due.at);
            match due.what {
                What::Ready(job) => {
                    let Job { thread, cause, .. } = self.script.jobs[job as usize];
                    let player = &mut self.players[thread as usize];
                    if !player.is_busy {
                        // A thread that was idle takes its time to be up.
                        let up = due.at + self.lag(cause);
                        self.players[thread as usize].looked = up;
                        // What a window begins with is for a thread that was at work.
                        self.begin(thread, job, due.at, due.at > 0.0);
                        self.push(up, What::Go(thread));
                    } else if due.at <= player.looked {
                        player.turn.push_back((job, due.at));
                    } else {
                        player.unseen.push_back((job, due.at));
                    }
                }
                What::Go(thread) => self.go(thread),
                What::Try(thread, lock) => self.try_again(thread, lock),
            }
        }
    }

    fn begin(&mut self, thread: u32, job: u32, came: f64, is_from_sleep: bool) {
        let Job { ref steps, is_from_sleep: was_from_sleep, .. } = self.script.jobs[job as usize];
        let player = &mut self.players[thread as usize];
        (player.job, player.step, player.came, player.is_busy) = (job, steps.start, came, true);
        player.is_otherwise = is_from_sleep != was_from_sleep;
    }

    fn lag(&self, cause: Cause) -> f64 {
        match cause.when {
            // It was this that woke the thread at that time, whatever it was.
            When::At(_) => cause.lag.max(0.0),
            When::After { .. } if cause.lag >= 0.0 => cause.lag,
            When::After { .. } => self.script.lag,
        }
    }

    /// When a cause is there; [`NOT_YET`] when its mark is not set.
    fn ready(&self, when: When) -> f64 {
        match when {
            When::At(at) => at,
            When::After { link: Link::Clients(at), .. } if self.pace == Pace::Open => at,
            When::After { mark, gap, link } => {
                let faster = matches!(link, Link::Callee(whom) if self.change.weights.calls == Some(whom));
                self.marks[mark as usize] + if faster { gap * (1.0 - self.change.speedup) } else { gap }
            }
        }
    }

    fn cost(&self, thread: u32, work: &[Work]) -> f64 {
        let &Change { weights, speedup, hooks } = self.change;
        let faster = speedup * self.script.running[thread as usize];
        let is_otherwise = self.players[thread as usize].is_otherwise;
        let cost = |work: &Work| {
            let time = if is_otherwise { work.time + work.otherwise } else { work.time };
            time * (1.0 - faster * weights.part(work.kind)) + work.hooks * hooks
        };
        work.iter().map(cost).sum()
    }

    /// Does the thread's steps until one takes time.
    fn go(&mut self, thread: u32) {
        let index = thread as usize;
        loop {
            let player = &self.players[index];
            let job = &self.script.jobs[player.job as usize];
            if player.step == job.steps.end {
                let player = &mut self.players[index];
                if player.turn.is_empty() {
                    std::mem::swap(&mut player.turn, &mut player.unseen);
                    player.looked = self.now;
                }
                match player.turn.pop_front() {
                    Some((job, came)) => {
                        self.begin(thread, job, came, false);
                        continue;
                    }
                    None => return self.players[index].is_busy = false,
                }
            }
            let step = self.script.steps[player.step as usize];
            let chain = job.chain;
            // A lock and a wait may have to be tried again.
            match step {
                Step::Lock(lock, sharing, lag) => {
                    if !self.locks[lock as usize].take(sharing) {
                        let lag = if lag >= 0.0 { lag } else { self.script.lock_lag };
                        let waiter = Waiter { thread, sharing, lag, spins_until: self.now + SPIN };
                        return self.locks[lock as usize].waiting.push_back(waiter);
                    }
                }
                Step::Await(cause) => {
                    let ready = self.ready(cause.when);
                    if ready == NOT_YET {
                        if let When::After { mark, .. } = cause.when {
                            self.awaiting[mark as usize].push(thread);
                        }
                        return;
                    }
                    if ready > self.now {
                        self.players[index].step += 1;
                        self.players[index].came = ready;
                        let lag = self.lag(cause);
                        return self.push(ready + lag, What::Go(thread));
                    }
                    self.players[index].came = ready;
                }
                Step::Work(from, to) => {
                    if !self.work(thread, &self.script.work[from as usize..to as usize]) {
                        return;
                    }
                }
                Step::Wake(from, to) => {
                    let work = if from < to {
                        &self.script.work[from as usize..to as usize]
                    } else {
                        self.script.wake.as_slice()
                    };
                    if std::mem::take(&mut self.players[index].wakes) && !self.work(thread, work) {
                        return;
                    }
                }
                Step::Wait(time) => {
                    if !self.pass(thread, time) {
                        return;
                    }
                }
                Step::Mark(mark) => self.players[index].wakes = self.set(mark),
                Step::Unlock(lock, sharing) => self.players[index].wakes = self.unlock(lock, sharing),
                Step::Hit { point, .. } => self.hit(point, chain, thread),
                Step::VisitBegan { visit, .. } => {
                    // On an event loop a unit begins when its message came.
                    let began = if self.script.is_worker[index] { self.players[index].came } else { self.now };
                    self.visits[visit as usize] = began;
                }
                Step::VisitEnded { visit, point, .. } => {
                    if visit != NONE {
                        self.totals.latencies[point as usize].push(self.now - self.visits[visit as usize]);
                    }
                    self.hit(point, chain, thread);
                }
            }
            self.players[index].step += 1;
        }
    }

    fn hit(&mut self, point: u32, chain: u32, thread: u32) {
        let pull = &mut self.pulls[point as usize][thread as usize];
        *pull = Pull { hits: pull.hits + 1.0, worked: self.players[thread as usize].worked, until: self.now };
        self.totals.hit(point, chain, self.now);
    }

    /// Lets the thread do its step's work; whether it goes on at once, as with [`pass`](Self::pass).
    fn work(&mut self, thread: u32, work: &[Work]) -> bool {
        if work.is_empty() {
            return true;
        }
        let cost = self.cost(thread, work);
        self.players[thread as usize].worked += cost;
        self.pass(thread, cost)
    }

    /// Lets the thread's step take so long. Whether nothing else happens before: then it is over, and the thread goes on at once.
    fn pass(&mut self, thread: u32, time: f64) -> bool {
        let at = self.now.max(self.now + time);
        let is_next = self.due.peek().is_none_or(|due| due.at > at);
        if is_next {
            self.now = at;
        } else {
            self.players[thread as usize].step += 1;
            self.push(at, What::Go(thread));
        }
        is_next
    }

    /// Sets a mark; whether that wakes a thread which sleeps.
    fn set(&mut self, mark: u32) -> bool {
        let mut wakes = false;
        self.marks[mark as usize] = self.now;
        for &job in self.followers.of(mark) {
            let Job { thread, cause, is_own, .. } = self.script.jobs[job as usize];
            let is_program = matches!(cause.when, When::After { link: Link::Program, .. });
            wakes |= is_program && !self.players[thread as usize].is_busy;
            if is_own {
                self.players[thread as usize].turn.push_back((job, self.now));
            } else {
                self.push(self.ready(cause.when), What::Ready(job));
            }
        }
        for thread in std::mem::take(&mut self.awaiting[mark as usize]) {
            // The wait looks again, and finds the time.
            let player = &self.players[thread as usize];
            if let Step::Await(cause) = self.script.steps[player.step as usize] {
                let ready = self.ready(cause.when);
                self.players[thread as usize].step += 1;
                self.players[thread as usize].came = ready;
                self.push(ready + self.lag(cause), What::Go(thread));
                // Of several messages that a thread stands still for (a barrier's) one wakes it; the others have no lag.
                wakes |= cause.lag != 0.0;
            }
        }
        wakes
    }

    /// Gives a lock up; whether that wakes a thread which sleeps.
    fn unlock(&mut self, number: u32, sharing: Sharing) -> bool {
        let lock = &mut self.locks[number as usize];
        match sharing {
            Sharing::Exclusive => lock.exclusive = false,
            Sharing::Shared => lock.shared = lock.shared.saturating_sub(1),
        }
        self.wake(number)
    }

    /// Wakes who may have the lock now: the first that waits and, if that only reads, all that read. Whether it slept.
    fn wake(&mut self, number: u32) -> bool {
        let lock = &mut self.locks[number as usize];
        if lock.exclusive || lock.woken {
            return false;
        }
        let Some(&Waiter { thread, sharing, lag, spins_until }) = lock.waiting.front() else { return false };
        if sharing == Sharing::Exclusive && lock.shared > 0 {
            return false;
        }
        lock.woken = true;
        let sleeps = self.now >= spins_until;
        self.push(if sleeps { self.now + lag } else { self.now }, What::Try(thread, number));
        sleeps
    }

    fn try_again(&mut self, thread: u32, number: u32) {
        let lock = &mut self.locks[number as usize];
        lock.woken = false;
        let Some(&Waiter { sharing, .. }) = lock.waiting.front() else { return };
        if !lock.take(sharing) {
            // Another one was quicker; its unlocking wakes again.
            lock.waiting[0].spins_until = self.now + SPIN;
        } else {
            lock.waiting.pop_front();
            self.players[thread as usize].step += 1;
            self.wake(number);
            self.go(thread);
        }
    }
}

/// Progress so far.
struct Totals {
    /// By point, then chain.
    tallies: Vec<Vec<Tally>>,
    /// By point: when its units were done.
    times: Vec<Vec<f64>>,
    latencies: Vec<Vec<f64>>,
    /// Units that may have been done with what lay there before the window, at most.
    backlog: usize,
}

impl Totals {
    fn new(script: &Script) -> Self {
        let tally = Tally { hits: 0, last: 0.0 };
        Self {
            tallies: vec![vec![tally; script.chains as usize]; script.points as usize],
            times: vec![Vec::new(); script.points as usize],
            latencies: vec![Vec::new(); script.points as usize],
            backlog: script.backlog,
        }
    }

    fn hit(&mut self, point: u32, chain: u32, at: f64) {
        let tally = &mut self.tallies[point as usize][chain as usize];
        tally.hits += 1;
        tally.last = tally.last.max(at);
        self.times[point as usize].push(at);
    }

    fn measures(&self) -> Vec<Measure> {
        self.tallies.iter().map(|tallies| Measure::choose(tallies)).collect()
    }

    fn outcome(&mut self, measures: &[Measure], pace: Pace, busiest: f64) -> Outcome {
        let of_point = self.tallies.iter().zip(&self.times).zip(&mut self.latencies).zip(measures);
        let points = of_point
            .map(|(((tallies, times), latencies), measure)| {
                PointOutcome::new(times.len() as u64, measure.at(pace).apply(tallies, times, self.backlog), latencies)
            })
            .collect();
        Outcome { points, busiest }
    }
}

/// How the time per unit of a point is had from what its chains contributed.
#[derive(Clone, Copy, Debug)]
enum Measure {
    /// Chains have many units: by what passes between any two, as long as no chain has run out of them. Behind that lie the window's
    /// edges, which no replay moves; and where chains that went side by side now follow each other, because one of them never lets go
    /// of a lock, the first one's pace is everybody's.
    Chains,
    /// Most units are their chain's only one: by what passes between any two.
    Pooled,
}

impl Measure {
    /// From the window as it was recorded.
    fn choose(tallies: &[Tally]) -> Self {
        let hits: u64 = tallies.iter().map(|tally| tally.hits).sum();
        let repeated: u64 = tallies.iter().map(|tally| tally.hits.saturating_sub(1)).sum();
        if repeated * 2 > hits { Self::Chains } else { Self::Pooled }
    }

    /// Whoever asks when he would never runs out, and where a connection was used last is no moment like others: the more of them are
    /// needed, the more wait.
    fn at(self, pace: Pace) -> Self {
        if pace == Pace::Open { Self::Pooled } else { self }
    }

    /// `times` are those of all units, ascending. The first ones, done with what lay in queues when the window began, do not count, up
    /// to half of all: who comes to a queue sooner has them at once, and then waits for what fills it. A few more than these are left
    /// out where a unit takes several messages.
    fn apply(self, tallies: &[Tally], times: &[f64], backlog: usize) -> f64 {
        let until = match self {
            Self::Chains => {
                // Chains of half as many units as the mean one has at least.
                let repeated = || tallies.iter().filter(|tally| tally.hits > 1);
                let (chains, units) =
                    repeated().fold((0, 0), |(chains, units), tally| (chains + 1, units + tally.hits));
                let long = repeated().filter(|tally| 2 * tally.hits * chains >= units);
                long.map(|tally| tally.last).fold(f64::INFINITY, f64::min)
            }
            Self::Pooled => f64::INFINITY,
        };
        let units = &times[..times.partition_point(|&time| time <= until)];
        match &units[backlog.min(units.len().saturating_sub(1) / 2)..] {
            units @ [first, .., last] => (last - first) / (units.len() - 1) as f64,
            _ => 0.0,
        }
    }
}

/// The progress that was recorded.
fn recorded(script: &Script) -> Totals {
    let mut totals = Totals::new(script);
    let mut visits = vec![0.0; script.visits as usize];
    let steps = || {
        let of = |job: &Job| job.steps.start as usize..job.steps.end as usize;
        script.jobs.iter().flat_map(move |job| script.steps[of(job)].iter().map(|step| (job.chain, *step)))
    };
    for (_, step) in steps() {
        if let Step::VisitBegan { visit, at } = step {
            visits[visit as usize] = at;
        }
    }
    for (chain, step) in steps() {
        match step {
            Step::Hit { point, at } => totals.hit(point, chain, at),
            Step::VisitEnded { visit, point, at } => {
                totals.hit(point, chain, at);
                if visit != NONE {
                    totals.latencies[point as usize].push(at - visits[visit as usize]);
                }
            }
            _ => {}
        }
    }
    totals.times.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    totals
}

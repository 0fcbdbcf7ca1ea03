//! The observer of a running program: records a trace, as the profiler's policy does, or computes pauses with the
//! profiler's ledger.

use causal::experiment::SeededRandom;
use causal::ledger::{Experiment, Ledger, Unit, Urgency, WindowCost, outcome};
use causal::outcome::{PointOutcome, WindowOutcome};
use causal::trace::{Event, Thread, Trace};
use progress::{Account, Sharing, Stamp};

use crate::machine::START;
use crate::program::Program;
use crate::random::stream;

/// Range by which a sleep overshoots, nanoseconds.
const OVERSHOOT: (f64, f64) = (40_000.0, 90_000.0);
/// One unit of progress in flight.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Visit {
    began: u64,
    stamp: Stamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Rest,
    Record,
    Pause,
}

/// One hook per method, as in `progress::Policy`; each records an event, calls the ledger, or does nothing, by the
/// mode.
pub(crate) struct Observer {
    mode: Mode,
    window: u32,
    began: u64,
    accounts: Vec<Account>,
    /// Each thread's running pause: the delay to be paid, its begin, and its window.
    pauses: Vec<Option<(u64, u64, u32)>>,
    ledger: Box<Ledger>,
    locks: Vec<Stamp>,
    connections: Vec<Stamp>,
    /// The last number given to a message, lock, connection, timer or visit of this window.
    serial: u64,
    /// Each thread's current kind of work.
    kinds: Vec<u32>,
    /// The window in which each thread last wrote an event.
    traced: Vec<u32>,
    events: Vec<Vec<(u64, Event)>>,
    /// Units of the window in virtual time.
    units: Vec<Unit>,
    /// The ground truth of each unit: its end, its point, and its latency.
    progress: Vec<(u64, u32, u64)>,
    random: SeededRandom,
}

impl Observer {
    pub(crate) fn new(program: &Program, seed: u64) -> Self {
        let threads = program.threads();
        let account = |number| {
            let account = Account::new(number as u32, "simulated");
            account.set_worker(program.is_worker(number));
            account
        };
        Self {
            mode: Mode::Rest,
            window: 0,
            began: 0,
            accounts: (0..threads).map(account).collect(),
            pauses: vec![None; threads],
            ledger: Box::new(Ledger::new()),
            locks: vec![Stamp::default(); program.locks()],
            connections: vec![Stamp::default(); program.tasks.len()],
            serial: 0,
            kinds: vec![0; threads],
            traced: vec![0; threads],
            events: vec![Vec::new(); threads],
            units: Vec::new(),
            progress: Vec::new(),
            random: stream(seed, 9999),
        }
    }

    pub(crate) fn rest(&mut self) {
        self.mode = Mode::Rest;
        self.progress.clear();
    }

    /// The ground truth since the last [`rest`](Self::rest).
    pub(crate) fn measured(&self, began: u64, span: u64) -> WindowOutcome {
        let points = self.progress.iter().map(|progress| progress.1 + 1).max().unwrap_or(0);
        let point = |point| {
            let of = || self.progress.iter().filter(move |progress| progress.1 == point);
            let times: Vec<f64> = of().map(|progress| progress.2 as f64).collect();
            // The least-squares slope of the count over time, whose weights fall to 0 at both ends: units that end in
            // bursts do not make it jump.
            let slope = |at: u64| 6.0 * (at - began) as f64 * (began + span - at) as f64 / (span as f64).powi(3);
            let rate: f64 = of().map(|progress| slope(progress.0)).sum();
            PointOutcome::new(times.len() as u64, if rate > 0.0 { 1.0 / rate } else { 0.0 }, &times)
        };
        WindowOutcome { points: (0..points).map(point).collect() }
    }

    fn open(&mut self, mode: Mode, now: u64) {
        self.rest();
        self.mode = mode;
        self.window += 1;
        self.began = now;
        self.serial = 0;
    }

    pub(crate) fn record(&mut self, now: u64) {
        self.open(Mode::Record, now);
        self.events.iter_mut().for_each(Vec::clear);
    }

    pub(crate) fn finish_recording(&mut self, now: u64) -> Trace {
        let threads = self.events.iter_mut().enumerate().filter(|(_, events)| !events.is_empty());
        let thread = |(number, events): (usize, &mut Vec<(u64, Event)>)| Thread {
            number: number as u32,
            is_worker: self.accounts[number].is_worker(),
            runnable: 1.0,
            kind: match events.first() {
                Some(&(_, Event::Kind(kind))) => kind,
                _ => 0,
            },
            events: std::mem::take(events),
        };
        let trace = Trace { time: self.began..now, threads: threads.map(thread).collect(), ..Trace::default() };
        self.rest();
        trace
    }

    pub(crate) fn pause(&mut self, experiment: &Experiment<'_>, now: u64) {
        self.open(Mode::Pause, now);
        self.units.clear();
        self.ledger.open(self.window, experiment, now);
    }

    pub(crate) fn finish_pausing(&mut self, now: u64) -> (WindowOutcome, WindowCost, u64) {
        let spent = self.ledger.cost(now);
        let outcome = outcome(&self.units, now - self.began, spent.delayed);
        let hits = self.progress.len() as u64;
        self.rest();
        (outcome, spent, hits)
    }

    fn next_number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn write(&mut self, thread: usize, now: u64, event: Event) {
        // A thread's first event in a window is its current kind of work, the state from which the replay starts.
        if self.traced[thread] != self.window {
            self.traced[thread] = self.window;
            self.events[thread].push((now, Event::Kind(self.kinds[thread])));
        }
        self.events[thread].push((now, event));
    }

    // A lock or connection keeps one number for the window; an older window's stamp has no value here.
    fn lasting(window: u32, stamp: &mut Stamp, number: u64) -> u64 {
        stamp.value(window).unwrap_or_else(|| {
            *stamp = Stamp::new(window, number);
            number
        })
    }

    fn join(&self, thread: usize) -> &Account {
        let account = &self.accounts[thread];
        // The account still belongs to an earlier window: start it at this window's state.
        if account.window.load(std::sync::atomic::Ordering::Relaxed) != self.window {
            self.ledger.join(account, self.window);
        }
        account
    }

    pub(crate) fn set_kind(&mut self, thread: usize, kind: u32, now: u64) {
        // Consecutive steps of one kind are one segment.
        if self.kinds[thread] != kind {
            self.enter(thread, Event::Kind, kind, now);
        }
    }

    /// The thread spends the time until its next event on waking others.
    pub(crate) fn waking(&mut self, thread: usize, kind: u32, now: u64) {
        self.enter(thread, Event::Waking, kind, now);
    }

    fn enter(&mut self, thread: usize, event: fn(u32) -> Event, kind: u32, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => self.write(thread, now, event(kind)),
            // The segment that ends here is credited before the kind changes.
            Mode::Pause => self.ledger.credit(self.join(thread), now),
        }
        self.kinds[thread] = kind;
        self.accounts[thread].kind.store(kind, std::sync::atomic::Ordering::Relaxed);
    }

    /// How long the thread must sleep before it continues, with the overshoot; `None` if it has no pending delay.
    pub(crate) fn pay(&mut self, thread: usize, is_awaited: bool, now: u64) -> Option<f64> {
        if self.mode != Mode::Pause {
            return None;
        }
        let account = self.join(thread);
        self.ledger.credit(account, now);
        let pause =
            self.ledger.take_due_pause(account, if is_awaited { Urgency::Awaited } else { Urgency::Unawaited }, now);
        if pause == 0 {
            return None;
        }
        self.pauses[thread] = Some((pause, now, self.window));
        Some(pause as f64 + OVERSHOOT.0 + self.random.fraction() * (OVERSHOOT.1 - OVERSHOOT.0))
    }

    pub(crate) fn pause_ended(&mut self, thread: usize, now: u64) -> bool {
        let Some((pause, since, window)) = self.pauses[thread].take() else { return false };
        // A window may have ended during the sleep: then the payment belongs to no account.
        if self.mode == Mode::Pause && window == self.window {
            self.ledger.paid(&self.accounts[thread], pause, since, now);
        }
        true
    }

    pub(crate) fn sent(&mut self, thread: usize, now: u64) -> Stamp {
        match self.mode {
            Mode::Rest => Stamp::default(),
            Mode::Record => {
                let message = self.next_number();
                self.write(thread, now, Event::Sent { message });
                Stamp::new(self.window, message)
            }
            Mode::Pause => self.ledger.sent(self.join(thread), self.window, now),
        }
    }

    pub(crate) fn took(&mut self, thread: usize, stamp: Stamp, blocked: u64, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let message = stamp.value(self.window).unwrap_or(0);
                self.write(thread, now, Event::Took { message, blocked });
            }
            Mode::Pause => self.ledger.received(self.join(thread), self.window, stamp, blocked, now),
        }
    }

    /// The thread took a message that had waited until its present work made room.
    pub(crate) fn dequeued(&mut self, thread: usize, stamp: Stamp, now: u64) {
        if self.mode == Mode::Record {
            let message = stamp.value(self.window).unwrap_or(0);
            self.write(thread, now, Event::Dequeued { message });
        } else {
            self.took(thread, stamp, 0, now);
        }
    }

    pub(crate) fn block_began(&mut self, thread: usize, now: u64) {
        match self.mode {
            Mode::Rest => {
                self.accounts[thread].blocked_since_ns.store(now, std::sync::atomic::Ordering::Relaxed);
            }
            Mode::Record => {
                self.accounts[thread].blocked_since_ns.store(now, std::sync::atomic::Ordering::Relaxed);
                self.write(thread, now, Event::BlockBegan);
            }
            Mode::Pause => self.ledger.block_began(self.join(thread), now),
        }
    }

    pub(crate) fn block_ended(&mut self, thread: usize, now: u64) {
        match self.mode {
            Mode::Rest => self.accounts[thread].blocked_since_ns.store(0, std::sync::atomic::Ordering::Relaxed),
            Mode::Record => {
                self.accounts[thread].blocked_since_ns.store(0, std::sync::atomic::Ordering::Relaxed);
                self.write(thread, now, Event::BlockEnded);
            }
            Mode::Pause => self.ledger.block_ended(self.join(thread), now),
        }
    }

    pub(crate) fn locked(&mut self, thread: usize, lock: usize, blocked: u64, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let number = self.next_number();
                let lock = Self::lasting(self.window, &mut self.locks[lock], number);
                self.write(thread, now, Event::Locked { lock, sharing: Sharing::Exclusive, blocked });
            }
            Mode::Pause => self.ledger.locked(self.join(thread), self.window, self.locks[lock], blocked, now),
        }
    }

    pub(crate) fn unlocked(&mut self, thread: usize, lock: usize, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let number = self.next_number();
                let lock = Self::lasting(self.window, &mut self.locks[lock], number);
                self.write(thread, now, Event::Unlocked { lock, sharing: Sharing::Exclusive });
            }
            Mode::Pause => {
                let account = self.join(thread);
                self.locks[lock] =
                    self.ledger.unlocked(account, self.window, self.locks[lock], Sharing::Exclusive, now);
            }
        }
    }

    pub(crate) fn hold(&self, stamp: Stamp, arrived: u64, now: u64) -> Option<f64> {
        if self.mode != Mode::Pause {
            return None;
        }
        self.ledger.hold(self.window, stamp, arrived, now).map(|hold| hold as f64)
    }

    pub(crate) fn written(&mut self, thread: usize, task: usize, stamp: &mut Stamp, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let number = self.next_number();
                let connection = Self::lasting(self.window, &mut self.connections[task], number);
                self.write(thread, now, Event::Written { connection });
            }
            Mode::Pause => {
                *stamp = self.ledger.sent(self.join(thread), self.window, now);
            }
        }
    }

    pub(crate) fn arrived(&mut self, thread: usize, task: usize, stamp: &mut Stamp, at: u64, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let number = self.next_number();
                let connection = Self::lasting(self.window, &mut self.connections[task], number);
                self.write(thread, now, Event::Arrived { connection, at: if at == 0 { now } else { at } });
            }
            Mode::Pause => self.ledger.arrived(self.join(thread), self.window, *stamp, at, now),
        }
    }

    pub(crate) fn called(&mut self, thread: usize, callee: u32, now: u64) -> Stamp {
        match self.mode {
            Mode::Rest => Stamp::default(),
            Mode::Record => {
                let call = self.next_number();
                self.write(thread, now, Event::Called { call, callee, is_first: true });
                Stamp::new(self.window, call)
            }
            Mode::Pause => self.ledger.called(self.join(thread), self.window, callee, now),
        }
    }

    pub(crate) fn answered(&mut self, thread: usize, stamp: Stamp, at: u64, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let call = stamp.value(self.window).unwrap_or(0);
                self.write(thread, now, Event::Answered { call, at });
            }
            Mode::Pause => self.ledger.answered(self.join(thread), self.window, stamp, at, now),
        }
    }

    pub(crate) fn slept(&mut self, thread: usize, now: u64) -> Stamp {
        match self.mode {
            Mode::Rest => Stamp::default(),
            Mode::Record => {
                let timer = self.next_number();
                self.write(thread, now, Event::SleepBegan { timer });
                Stamp::new(self.window, timer)
            }
            Mode::Pause => self.ledger.sent(self.join(thread), self.window, now),
        }
    }

    pub(crate) fn woke(&mut self, thread: usize, stamp: Stamp, blocked: u64, now: u64) {
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let timer = stamp.value(self.window).unwrap_or(0);
                self.write(thread, now, Event::SleepEnded { timer, blocked });
            }
            Mode::Pause => self.ledger.woke(self.join(thread), self.window, stamp, blocked, now),
        }
    }

    pub(crate) fn began(&mut self, thread: usize, cause: u64, now: u64) -> Visit {
        let stamp = match self.mode {
            Mode::Rest => Stamp::default(),
            Mode::Record => {
                let visit = self.next_number();
                self.write(thread, now, Event::VisitBegan { visit });
                Stamp::new(self.window, visit)
            }
            Mode::Pause => {
                let account = self.join(thread);
                self.ledger.credit(account, now);
                Stamp::new(self.window, self.ledger.visit_began(account, now))
            }
        };
        Visit { began: cause, stamp }
    }

    pub(crate) fn ended(&mut self, thread: usize, visit: Visit, point: u32, now: u64) {
        // A default visit has no begin: the unit cannot be measured.
        if visit.began >= START {
            self.progress.push((now, point, now - visit.began));
        }
        match self.mode {
            Mode::Rest => {}
            Mode::Record => {
                let visit = visit.stamp.value(self.window).unwrap_or(0);
                self.write(thread, now, Event::VisitEnded { visit, point });
            }
            Mode::Pause => {
                let account = self.join(thread);
                self.ledger.credit(account, now);
                let (at, began) = (self.ledger.virtual_time(account, now), visit.stamp.value(self.window));
                self.units.push(Unit { at, point, began });
            }
        }
    }
}

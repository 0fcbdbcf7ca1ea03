//! What happens at each hook while a window is open: the thread's kind of work is kept, and what it does is written down or paused.
//!
//! A window's number says by which rule it runs: its lowest bits are the [`Rule`], the next one is the half of the logs that is written.
//! So one load tells a hook everything, and what belongs to another window is known by its number.

mod costs;

use std::num::NonZeroU64;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use progress::{Account, Lock, Log, Point, Policy, Sharing, Span, Stamp};

use crate::ledger::{Experiment, Ledger, Spent, Unit, Urgency, outcome};
use crate::outcome::Outcome;
use crate::target::Weights;
use crate::trace::{self, Event, Thread, Trace};
use crate::{clock, kinds, machine, sample};
pub use costs::{Costs, Stretch, Toll};

/// What a window is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// None is open.
    Rest,
    /// Everything is written down (mode A).
    Record,
    /// Pauses are made (mode B).
    Pause,
}

/// Bits of a window's number that are not its count: two for the rule.
const COUNT_SHIFT: u32 = 2;
/// Stamps have room for this many bits of a window's number.
const WINDOW_MASK: u32 = (1 << 24) - 1;
/// Bits of a message's number that count within its thread.
const SERIAL_BITS: u32 = 28;

/// The policy that the profiler installs: one in a process.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The number of the window that is open, with its rule; 0 before the first.
    window: AtomicU32,
    count: AtomicU32,
    /// When the window began and ended, by [`clock::now`].
    began: AtomicU64,
    ended: AtomicU64,
    /// What to take from the kernel's times.
    unix_offset: AtomicU64,
    ledger: Ledger,
}

impl Recorder {
    /// Without an open window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: AtomicU32::new(0),
            count: AtomicU32::new(0),
            began: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            unix_offset: AtomicU64::new(0),
            ledger: Ledger::new(),
        }
    }

    /// Opens a window. The one before the last one, whose half of the logs it writes, must have been read. A window with pauses that is
    /// opened so is a control: nothing is made faster.
    pub fn open(&self, rule: Rule) {
        self.open_as(rule, &Experiment { weights: Some(&Weights::default()), speedup: 0.0 });
    }

    /// Opens a window with pauses.
    pub fn open_experiment(&self, experiment: &Experiment<'_>) {
        self.open_as(Rule::Pause, experiment);
    }

    fn open_as(&self, rule: Rule, experiment: &Experiment<'_>) {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        self.unix_offset.store(clock::unix_offset(), Relaxed);
        let now = clock::now();
        let window = (count << COUNT_SHIFT | rule as u32) & WINDOW_MASK;
        if rule == Rule::Pause {
            self.ledger.open(window, experiment, now);
        }
        self.began.store(now, Relaxed);
        // Release: who sees the window sees what it tries.
        self.window.store(window, Release);
    }

    /// Ends the window.
    pub fn close(&self) {
        self.ended.store(clock::now(), Relaxed);
        self.window.store(Rule::Rest as u32, Relaxed);
    }

    /// The rules of windows with pauses: for what the open one has cost so far, and for how much of a processor each thread has.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// What the window with pauses came to that ended last, in virtual time, and what it cost.
    pub fn outcome(&self) -> (Outcome, Spent) {
        let (began, ended) = (self.began.load(Relaxed), self.ended.load(Relaxed));
        let window = (self.count.load(Relaxed) << COUNT_SHIFT | Rule::Pause as u32) & WINDOW_MASK;
        let (spent, time) = (self.ledger.spent(ended), ended.saturating_sub(began));
        let (mut units, mut events) = (Vec::new(), Vec::new());
        let mut busiest = 0;
        for account in progress::accounts() {
            whole(account.log(), window >> COUNT_SHIFT, &mut events);
            for &(at, event) in &events {
                match event {
                    Event::Hit { point } => units.push(Unit { at, point, began: None }),
                    Event::VisitEnded { visit, point } => {
                        units.push(Unit { at, point, began: Some(visit).filter(|&began| began != 0) });
                    }
                    _ => {}
                }
            }
            if account.window.load(Relaxed) == window {
                busiest = self.ledger.busy(account, ended).max(busiest);
            }
        }
        let busiest = (busiest as f64 / time.max(1) as f64).min(1.0);
        (Outcome { busiest, ..outcome(&units, time, spent.delayed) }, spent)
    }

    /// How many entries the open window has in the log that has most.
    #[must_use]
    pub fn entries(&self) -> usize {
        let window = self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT;
        progress::accounts().iter().map(|account| account.log().read(window).len()).max().unwrap_or(0)
    }

    /// What was recorded in the window that ended last, in which each hook took `hook` nanoseconds, in the memory of another trace.
    pub fn take(&self, hook: f64, trace: &mut Trace) {
        let (window, began) = (self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT, self.began.load(Relaxed));
        let mut ended = Some(self.ended.load(Relaxed)).filter(|&ended| ended >= began).unwrap_or_else(clock::now);
        let mut threads = Vec::new();
        let mut memory = std::mem::take(&mut trace.threads).into_iter().map(|thread| thread.events);
        for account in progress::accounts().into_iter().filter(|account| account.log().read(window).len() > 0) {
            let mut events = memory.next().unwrap_or_default();
            if whole(account.log(), window, &mut events) {
                // What a full log would have said about the rest of the window is missing: it ends here for everybody.
                ended = ended.min(events.last().map_or(ended, |&(at, _)| at));
            }
            let kind = match events.first() {
                Some(&(_, Event::Kind(kind))) => kind,
                _ => kinds::of_thread(account),
            };
            events.retain(|&(at, _)| at >= began);
            let (number, is_worker) = (account.number(), account.is_worker());
            threads.push(Thread { number, is_worker, running: 1.0, kind, events });
        }
        for thread in &mut threads {
            thread.events.retain(|&(at, _)| at <= ended);
        }
        *trace = Trace { span: began..ended, hook, wake_up: machine::wake_up(), threads };
    }

    fn window(&self) -> (u32, Rule) {
        let window = self.window.load(Acquire);
        let rule = match window & ((1 << COUNT_SHIFT) - 1) {
            1 => Rule::Record,
            2 => Rule::Pause,
            _ => Rule::Rest,
        };
        (window, rule)
    }

    fn write(&self, account: &Account, window: u32, now: u64, event: Event) {
        let window = window >> COUNT_SHIFT;
        let (entry, more) = event.encode(now);
        if account.log().push(window, entry)
            && let Some(more) = more
        {
            account.log().push(window, more);
        }
    }

    fn record(&self, account: &Account, event: impl FnOnce(u32, u64) -> Event) {
        if let (window, Rule::Record) = self.window() {
            self.record_in(account, window, |now| event(window, now));
        }
    }

    fn record_in(&self, account: &Account, window: u32, event: impl FnOnce(u64) -> Event) {
        let now = clock::now();
        if account.window.load(Relaxed) != window {
            // The first of this window: what the thread was at comes before it.
            account.window.store(window, Relaxed);
            self.write(account, window, now, Event::Kind(find_kind(account)));
        }
        self.write(account, window, now, event(now));
    }

    /// What happens in a window with pauses, if one is open.
    fn pausing<T>(&self, account: &Account, rule: impl FnOnce(&Ledger, u32, u64) -> T) -> Option<T> {
        let (window, Rule::Pause) = self.window() else { return None };
        self.join(account, window);
        Some(rule(&self.ledger, window, clock::now()))
    }

    /// The thread's first hook of a window with pauses.
    fn join(&self, account: &Account, window: u32) {
        if account.window.load(Relaxed) != window {
            self.ledger.join(account, window);
            find_kind(account);
        }
    }

    /// Has the thread pay what it owes, in a window with pauses; then what it is to say.
    fn paid<T>(&self, account: &Account, urgency: Urgency, rule: impl FnOnce(&Ledger, u32, u64) -> T) -> Option<T> {
        let owed = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            (ledger.owed(account, urgency, now), window, now)
        })?;
        if let (1.., ..) = owed {
            self.sleep(account, owed);
        }
        self.pausing(account, rule)
    }

    #[cold]
    fn sleep(&self, account: &Account, (owed, window, since): (u64, u32, u64)) {
        let slack = exact_timers();
        // In pieces, so that what is left when the window ends is not slept.
        while let left @ 1.. = (since + owed).saturating_sub(clock::now()) {
            if self.window.load(Relaxed) != window {
                break;
            }
            std::thread::sleep(Duration::from_nanos(left.min(SLEEP_MAX)));
        }
        restore_timers(slack);
        if self.window.load(Relaxed) == window {
            self.ledger.paid(account, owed, since, clock::now());
        }
    }

    /// Puts the thread from its kind of work into the next one, of which `event` tells; what it was.
    fn set_kind(&self, account: &Account, event: fn(u32) -> Event, next: impl FnOnce(u32) -> u32) -> u32 {
        let mut before = 0;
        let set = || {
            before = account.kind.load(Relaxed);
            let kind = next(before);
            account.kind.store(kind, Relaxed);
            kind
        };
        // Between windows nobody asks: who meets the next one finds its kind then.
        match self.window() {
            (window, Rule::Record) => self.record_in(account, window, |_| event(set())),
            (window, Rule::Pause) => {
                self.join(account, window);
                self.ledger.credit(account, clock::now());
                set();
            }
            (_, Rule::Rest) => {}
        }
        before
    }

    /// The time of a message of the world's by our clock; 0 when it is not known.
    fn known(&self, unix: u64, now: u64) -> u64 {
        if unix == 0 { 0 } else { self.ours(unix, now) }
    }

    /// The same; now when it is not known.
    fn ours(&self, unix: u64, now: u64) -> u64 {
        match unix {
            0 => now,
            unix => unix.saturating_sub(self.unix_offset.load(Relaxed)).min(now),
        }
    }
}

/// Fills in the events of a window in a log; whether that is full: then the last event may lack a part, and is left out.
fn whole(log: &Log, window: u32, events: &mut Vec<(u64, Event)>) -> bool {
    events.clear();
    let entries = log.read(window);
    events.reserve(entries.len());
    events.extend(trace::events(entries));
    let is_full = log.is_full(window);
    if is_full {
        events.pop();
    }
    is_full
}

/// The longest sleep that nothing interrupts, nanoseconds.
const SLEEP_MAX: u64 = 2_000_000;

/// Has the thread's sleeps end when they should, and not up to 50 µs later with those of others; what it was before.
fn exact_timers() -> Option<u64> {
    let slack = rustix::thread::current_timer_slack().ok();
    // Without it the overshoot is a little larger, which is carried anyway.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    slack
}

fn restore_timers(slack: Option<u64>) {
    let _ = rustix::thread::set_current_timer_slack(slack.and_then(NonZeroU64::new));
}

/// A number for what the thread sends, unique in the window, also where another thread had the account earlier in it.
fn fresh(account: &Account) -> u64 {
    let serial = account.stamps.load(Relaxed) + 1;
    account.stamps.store(serial, Relaxed);
    u64::from(account.number() & 0xfff) << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// What the thread is at when it first hears of a window.
#[cold]
fn find_kind(account: &Account) -> u32 {
    let kind = progress::retell(kinds::of_thread(account), kinds::after);
    account.kind.store(kind, Relaxed);
    kind
}

/// A number that lasts as long as the window, for what is written to again and again.
fn lasting(stamp: &mut Stamp, account: &Account, window: u32) -> u64 {
    stamp.value(window).unwrap_or_else(|| {
        let number = fresh(account);
        *stamp = Stamp::new(window, number);
        number
    })
}

fn lock_number(lock: &Lock, account: &Account, window: u32) -> u64 {
    let was = lock.stamp();
    was.value(window).unwrap_or_else(|| {
        let mine = Stamp::new(window, fresh(account));
        lock.replace(was, mine).value(window).unwrap_or_default()
    })
}

impl Policy for Recorder {
    fn thread_began(&self, account: &'static Account) {
        account.blocked_since.store(0, Relaxed);
        match self.window() {
            // Until now it was at nothing, whoever had the account before.
            (window, Rule::Record) => self.record_in(account, window, |_| Event::BlockEnded),
            (window, Rule::Pause) => {
                self.ledger.begin(account, window, clock::now());
                find_kind(account);
            }
            (_, Rule::Rest) => {}
        }
        sample::thread_began(account);
    }

    fn thread_ended(&self, account: &'static Account) {
        self.record(account, |_, _| Event::BlockBegan);
        sample::thread_ended(account);
    }

    fn entered(&self, account: &'static Account, span: Span) -> u32 {
        let event = if span == Span::WAKE { Event::Waking } else { Event::Kind };
        self.set_kind(account, event, |kind| kinds::inside(kind, span))
    }

    fn left(&self, account: &'static Account, before: &AtomicU32) {
        // Read when the window is joined: that is what says it, where the span began before.
        self.set_kind(account, Event::Kind, |_| before.load(Relaxed));
    }

    fn at(&self, account: &'static Account, site: Span) {
        self.set_kind(account, Event::Kind, |kind| kinds::behind(kind, site));
    }

    fn before_send(&self, account: &'static Account, stamp: &mut Stamp) {
        if let Some(paid) =
            self.paid(account, Urgency::Awaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *stamp = paid;
            return;
        }
        self.record(account, |window, _| {
            let message = fresh(account);
            *stamp = Stamp::new(window, message);
            Event::Sent { message }
        });
    }

    fn after_receive(&self, account: &'static Account, stamp: Stamp, blocked: Duration) {
        let blocked = nanoseconds(blocked);
        let paused = self.pausing(account, |ledger, window, now| ledger.received(account, window, stamp, blocked, now));
        if paused.is_none() {
            self.record(account, |window, _| Event::Took { message: stamp.value(window).unwrap_or(0), blocked });
        }
    }

    fn before_block(&self, account: &'static Account) {
        if self.pausing(account, |ledger, _, now| ledger.block_began(account, now)).is_none() {
            // For a window that opens meanwhile.
            account.blocked_since.store(1, Relaxed);
            self.record(account, |_, _| Event::BlockBegan);
        }
        if account.is_worker() {
            sample::before_block();
        }
    }

    fn after_block(&self, account: &'static Account) {
        if self.pausing(account, |ledger, _, now| ledger.block_ended(account, now)).is_none() {
            account.blocked_since.store(0, Relaxed);
            self.record(account, |_, _| Event::BlockEnded);
        }
        if account.is_worker() {
            sample::after_block();
        }
    }

    fn before_lock(&self, account: &'static Account) {
        self.paid(account, Urgency::Awaited, |_, _, _| ());
    }

    fn lock_acquired(&self, account: &'static Account, lock: &Lock, sharing: Sharing, blocked: Duration) {
        let blocked = nanoseconds(blocked);
        let paused =
            self.pausing(account, |ledger, window, now| ledger.locked(account, window, lock.stamp(), blocked, now));
        if paused.is_none() {
            self.record(account, |window, _| Event::Locked {
                lock: lock_number(lock, account, window),
                sharing,
                blocked,
            });
        }
    }

    fn before_unlock(&self, account: &'static Account, lock: &Lock, sharing: Sharing, contended: bool) {
        let give_up = |ledger: &Ledger, window, now| {
            let mut left = lock.stamp();
            // Whoever came first has left a stamp of its own: the later one of both stays.
            loop {
                let mine = ledger.unlocked(account, window, left, sharing, now);
                match lock.replace(left, mine) {
                    other if other == mine => break,
                    other => left = other,
                }
            }
        };
        let paused =
            if contended { self.paid(account, Urgency::Awaited, give_up) } else { self.pausing(account, give_up) };
        if paused.is_none() {
            self.record(account, |window, _| Event::Unlocked { lock: lock_number(lock, account, window), sharing });
        }
    }

    fn written(&self, account: &'static Account, connection: &mut Stamp) {
        if let Some(paid) =
            self.paid(account, Urgency::Unawaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *connection = paid;
            return;
        }
        self.record(account, |window, _| Event::Written { connection: lasting(connection, account, window) });
    }

    fn hold(&self, account: &'static Account, connection: Stamp, arrived: u64) -> Option<Duration> {
        let wait =
            self.pausing(account, |ledger, window, now| ledger.hold(window, connection, self.known(arrived, now), now));
        wait.flatten().map(Duration::from_nanos)
    }

    fn arrived(&self, account: &'static Account, connection: &mut Stamp, arrived: u64) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.arrived(account, window, *connection, self.known(arrived, now), now);
        });
        if paused.is_none() {
            self.record(account, |window, now| Event::Arrived {
                connection: lasting(connection, account, window),
                at: self.ours(arrived, now),
            });
        }
    }

    fn called(&self, account: &'static Account, call: &mut Stamp, whom: Span) {
        if let Some(paid) =
            self.paid(account, Urgency::Unawaited, |ledger, window, now| ledger.called(account, window, whom.id(), now))
        {
            *call = paid;
            return;
        }
        self.record(account, |window, _| {
            let (number, is_first) = (fresh(account), call.value(window).is_none());
            *call = Stamp::new(window, number);
            Event::Called { call: number, whom: whom.id(), is_first }
        });
    }

    fn answered(&self, account: &'static Account, call: Stamp, arrived: u64) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.answered(account, window, call, self.ours(arrived, now), now);
        });
        if paused.is_none() {
            self.record(account, |window, now| Event::Answered {
                call: call.value(window).unwrap_or(0),
                at: self.ours(arrived, now),
            });
        }
    }

    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp) {
        if let Some(paid) =
            self.paid(account, Urgency::Unawaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *timer = paid;
            return;
        }
        self.record(account, |window, _| {
            let number = fresh(account);
            *timer = Stamp::new(window, number);
            Event::SleepBegan { timer: number }
        });
    }

    fn sleep_ended(&self, account: &'static Account, timer: Stamp, blocked: Duration) {
        let blocked = nanoseconds(blocked);
        let paused = self.pausing(account, |ledger, window, now| ledger.woke(account, window, timer, blocked, now));
        if paused.is_none() {
            self.record(account, |window, _| Event::SleepEnded { timer: timer.value(window).unwrap_or(0), blocked });
        }
    }

    fn hit(&self, account: &'static Account, point: Point) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            let at = ledger.virtual_time(account, now);
            self.write(account, window, at, Event::Hit { point: point.id() });
        });
        if paused.is_none() {
            self.record(account, |_, _| Event::Hit { point: point.id() });
        }
    }

    fn visit_began(&self, account: &'static Account, visit: &mut Stamp) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            *visit = Stamp::new(window, ledger.visit_began(account, now));
        });
        if paused.is_none() {
            self.record(account, |window, _| {
                let number = fresh(account);
                *visit = Stamp::new(window, number);
                Event::VisitBegan { visit: number }
            });
        }
    }

    fn visit_ended(&self, account: &'static Account, visit: Stamp, point: Point) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            let (at, began) = (ledger.virtual_time(account, now), visit.value(window).unwrap_or(0));
            self.write(account, window, at, Event::VisitEnded { visit: began, point: point.id() });
        });
        if paused.is_none() {
            self.record(account, |window, _| Event::VisitEnded {
                visit: visit.value(window).unwrap_or(0),
                point: point.id(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a call the second entry says whom: without it the call would be somebody else's.
    #[test]
    fn a_full_log_ends_before_its_last_event() {
        let (recorder, account) = (Recorder::new(), Account::new(0, "full"));
        let called = |call| Event::Called { call, whom: 7, is_first: true };
        recorder.write(&account, 0, 1, Event::BlockBegan);
        recorder.write(&account, 0, 2, called(2));
        let mut events = Vec::new();
        assert!(!whole(account.log(), 0, &mut events));
        assert_eq!(events, [(1, Event::BlockBegan), (2, called(2))]);
        for at in 3.. {
            recorder.write(&account, 0, at, called(at));
            if account.log().is_full(0) {
                break;
            }
        }
        assert!(whole(account.log(), 0, &mut events));
        assert!(events[1..].iter().all(|&(at, event)| event == called(at)));
        assert_eq!(events.len(), progress::ENTRIES_MAX / 2);
    }
}

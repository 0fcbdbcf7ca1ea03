//! The action of each hook while a window is open: tracks the thread's kind of work, and records its events or pauses
//! it.
//!
//! A window's number contains its purpose: the two lowest bits are the [`WindowPurpose`], and the next one selects the
//! half of the logs that is written. So a hook needs one load to know its action, and data of another window is
//! recognised by its number.

mod costs;

use std::num::NonZeroU64;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use progress::{Account, Lock, Log, Point, Policy, Sharing, Span, Stamp};

use crate::constants::PAUSE_PIECE_MAX;
use crate::ledger::{Experiment, Ledger, Unit, Urgency, WindowCost, outcome};
use crate::outcome::WindowOutcome;
use crate::trace::{self, Event, Thread, Trace};
use crate::{clock, kinds, machine, sample};
pub use costs::{HookCostEstimator, HookCosts, WorkDone};

/// The purpose of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WindowPurpose {
    /// No window is open.
    None,
    /// Record all events, for screening.
    Record,
    /// Pause threads, for confirming.
    Pause,
}

/// Bits of a window's number below its count: those of the purpose.
const COUNT_SHIFT: u32 = 2;
/// Bits of a window's number that fit into a stamp.
const WINDOW_MASK: u32 = (1 << 24) - 1;
/// Bits of a message's number that count within its thread: more than a thread sends in a window. The bits above them,
/// up to the 40 of a stamp, hold the number of its account, for [`sample::THREADS_MAX`] accounts.
const SERIAL_BITS: u32 = 26;

/// The policy that the profiler installs; one per process.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The number of the open window, including its purpose; 0 before the first.
    window: AtomicU32,
    count: AtomicU32,
    /// The times at which the last window began and ended, by [`clock::now`].
    began: AtomicU64,
    ended: AtomicU64,
    /// Offset to subtract from the kernel's times.
    unix_offset: AtomicU64,
    ledger: Ledger,
}

impl Recorder {
    /// Makes a recorder without an open window.
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

    /// Opens a window that is recorded. The window before the last one must have been read, because the new one
    /// overwrites its half of the logs.
    pub fn open_recorded(&self) {
        self.open(WindowPurpose::Record, None);
    }

    /// Opens a window with pauses for `experiment`. See [`Self::open_recorded`].
    pub fn open_experiment(&self, experiment: &Experiment<'_>) {
        self.open(WindowPurpose::Pause, Some(experiment));
    }

    fn open(&self, purpose: WindowPurpose, experiment: Option<&Experiment<'_>>) {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        // Wall time is adjusted now and then: take its offset anew for each window.
        self.unix_offset.store(clock::unix_offset(), Relaxed);
        let now = clock::now();
        let window = (count << COUNT_SHIFT | purpose as u32) & WINDOW_MASK;
        if let Some(experiment) = experiment {
            self.ledger.open(window, experiment, now);
        }
        self.began.store(now, Relaxed);
        // Release: pairs with the Acquire in `window`; a hook that sees the number sees the experiment.
        self.window.store(window, Release);
    }

    /// Ends the window.
    pub fn close(&self) {
        self.ended.store(clock::now(), Relaxed);
        self.window.store(WindowPurpose::None as u32, Relaxed);
    }

    /// Returns the rules of windows with pauses: for the cost so far of the open window, and to set each thread's
    /// runnable fraction.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the outcome, in virtual time, and the cost of the last window with pauses. It must be closed.
    pub fn outcome(&self) -> (WindowOutcome, WindowCost) {
        let (began, ended) = (self.began.load(Relaxed), self.ended.load(Relaxed));
        let window = (self.count.load(Relaxed) << COUNT_SHIFT | WindowPurpose::Pause as u32) & WINDOW_MASK;
        let (spent, time) = (self.ledger.spent(ended), ended.saturating_sub(began));
        let (mut units, mut events, mut until) = (Vec::new(), Vec::new(), u64::MAX);
        for account in progress::accounts() {
            if read_log(account.log(), window >> COUNT_SHIFT, &mut events) {
                // A full log lacks the rest of the window, so the window ends here for all threads.
                until = until.min(events.last().map_or(until, |&(at, _)| at));
            }
            for &(at, event) in &events {
                match event {
                    Event::Hit { point } => units.push(Unit { at, point, began: None }),
                    Event::VisitEnded { visit, point } => {
                        // A visit of 0 began before the window.
                        units.push(Unit { at, point, began: Some(visit).filter(|&began| began != 0) });
                    }
                    _ => {}
                }
            }
        }
        // The events have virtual times, and `outcome` leaves out those after the window's end.
        let time = time.min(until.saturating_sub(Ledger::start()) + spent.delayed);
        (outcome(&units, time, spent.delayed), spent)
    }

    /// Returns the number of entries of the open window in its fullest log.
    #[must_use]
    pub fn entries(&self) -> usize {
        let window = self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT;
        progress::accounts().iter().map(|account| account.log().read(window).len()).max().unwrap_or(0)
    }

    /// Reads the events of the last window into `trace`, reusing its memory. `hook` is the time of one hook,
    /// nanoseconds.
    pub fn take(&self, hook: f64, trace: &mut Trace) {
        let (window, began) = (self.count.load(Relaxed) & WINDOW_MASK >> COUNT_SHIFT, self.began.load(Relaxed));
        // The window may still be open: then `ended` is that of an earlier one.
        let mut ended = Some(self.ended.load(Relaxed)).filter(|&ended| ended >= began).unwrap_or_else(clock::now);
        let mut threads = Vec::new();
        let mut memory = std::mem::take(&mut trace.threads).into_iter().map(|thread| thread.events);
        for account in progress::accounts().into_iter().filter(|account| account.log().read(window).len() > 0) {
            let mut events = memory.next().unwrap_or_default();
            if read_log(account.log(), window, &mut events) {
                // A full log lacks the rest of the window, so the window ends here for all threads.
                ended = ended.min(events.last().map_or(ended, |&(at, _)| at));
            }
            // `record_in` writes the kind before a thread's first event.
            let kind = match events.first() {
                Some(&(_, Event::Kind(kind))) => kind,
                _ => kinds::of_thread(account),
            };
            // A hook may have read the clock just before the window opened.
            events.retain(|&(at, _)| at >= began);
            let (number, is_worker) = (account.number(), account.is_worker());
            threads.push(Thread { number, is_worker, runnable: 1.0, kind, events });
        }
        for thread in &mut threads {
            thread.events.retain(|&(at, _)| at <= ended);
        }
        *trace = Trace { time: began..ended, hook, wake_up: machine::wake_up(), threads };
    }

    fn window(&self) -> (u32, WindowPurpose) {
        let window = self.window.load(Acquire);
        let purpose = match window & ((1 << COUNT_SHIFT) - 1) {
            1 => WindowPurpose::Record,
            2 => WindowPurpose::Pause,
            _ => WindowPurpose::None,
        };
        (window, purpose)
    }

    fn write(&self, account: &Account, window: u32, now: u64, event: Event) {
        let window = window >> COUNT_SHIFT;
        let (entry, more) = event.encode(now);
        // Without room for the first entry, the second one must not be written either.
        if account.log().push(window, entry)
            && let Some(more) = more
        {
            account.log().push(window, more);
        }
    }

    fn record(&self, account: &Account, event: impl FnOnce(u32, u64) -> Event) {
        if let (window, WindowPurpose::Record) = self.window() {
            self.record_in(account, window, |now| event(window, now));
        }
    }

    fn record_in(&self, account: &Account, window: u32, event: impl FnOnce(u64) -> Event) {
        let now = clock::now();
        if account.window.load(Relaxed) != window {
            // The thread's first event in this window: its kind of work comes before it.
            account.window.store(window, Relaxed);
            self.write(account, window, now, Event::Kind(find_kind(account)));
        }
        self.write(account, window, now, event(now));
    }

    /// Calls `rule` if a window with pauses is open; else returns `None`.
    fn pausing<T>(&self, account: &Account, rule: impl FnOnce(&Ledger, u32, u64) -> T) -> Option<T> {
        let (window, WindowPurpose::Pause) = self.window() else { return None };
        self.join(account, window);
        Some(rule(&self.ledger, window, clock::now()))
    }

    /// Enters the thread into a window with pauses, at its first hook there.
    fn join(&self, account: &Account, window: u32) {
        if account.window.load(Relaxed) != window {
            self.ledger.join(account, window);
            find_kind(account);
        }
    }

    /// In a window with pauses: has the thread pay its debt, then returns the result of `rule`.
    fn pay_then<T>(&self, account: &Account, urgency: Urgency, rule: impl FnOnce(&Ledger, u32, u64) -> T) -> Option<T> {
        // Credit first: the thread's own work on the target raises G, and lowers its debt.
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
        // In pieces, so that the sleep ends soon after the window does.
        while let left @ 1.. = (since + owed).saturating_sub(clock::now()) {
            if self.window.load(Relaxed) != window {
                break;
            }
            std::thread::sleep(Duration::from_nanos(left.min(PAUSE_PIECE_MAX)));
        }
        restore_timers(slack);
        // Once the window has ended, its accounts no longer count.
        if self.window.load(Relaxed) == window {
            self.ledger.paid(account, owed, since, clock::now());
        }
    }

    /// Sets the thread's kind of work to `next` of the current one, recorded as `event`. Returns the previous kind.
    fn set_kind(&self, account: &Account, event: fn(u32) -> Event, next: impl FnOnce(u32) -> u32) -> u32 {
        let mut before = 0;
        let set = || {
            before = account.kind.load(Relaxed);
            let kind = next(before);
            account.kind.store(kind, Relaxed);
            kind
        };
        // Between windows the kind is not needed: a thread finds it when it joins the next one.
        match self.window() {
            (window, WindowPurpose::Record) => self.record_in(account, window, |_| event(set())),
            (window, WindowPurpose::Pause) => {
                self.join(account, window);
                // The time until now belongs to the kind before.
                self.ledger.credit(account, clock::now());
                set();
            }
            (_, WindowPurpose::None) => {}
        }
        before
    }

    /// Converts the arrival time of an outside message to the profiler's clock; 0 (unknown) stays 0.
    fn to_clock_or_unknown(&self, unix: u64, now: u64) -> u64 {
        if unix == 0 { 0 } else { self.to_clock(unix, now) }
    }

    /// Converts an arrival time to the profiler's clock; unknown is `now`.
    fn to_clock(&self, unix: u64, now: u64) -> u64 {
        match unix {
            0 => now,
            unix => unix.saturating_sub(self.unix_offset.load(Relaxed)).min(now),
        }
    }
}

/// Fills `events` with the events of a window in a log. Returns whether the log is full; its last event is then left
/// out, as it may lack its second entry.
fn read_log(log: &Log, window: u32, events: &mut Vec<(u64, Event)>) -> bool {
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

/// Sets the thread's timer slack to 1 ns: the default lets its sleeps end up to 50 µs late. Returns the previous slack.
fn exact_timers() -> Option<u64> {
    let slack = rustix::thread::current_timer_slack().ok();
    // If that fails, sleeps take a little longer; the excess is carried over anyway.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    slack
}

fn restore_timers(slack: Option<u64>) {
    let _ = rustix::thread::set_current_timer_slack(slack.and_then(NonZeroU64::new));
}

/// Returns a number for a message of the thread's that is unique in the window, even if another thread had the account
/// before. With more than [`sample::THREADS_MAX`] accounts, of which a report says that their threads are missing, two
/// may give the same numbers, and a replay may then link the wrong events.
fn next_message_number(account: &Account) -> u64 {
    let serial = account.messages.load(Relaxed) + 1;
    account.messages.store(serial, Relaxed);
    let number = u64::from(account.number()) % sample::THREADS_MAX as u64;
    number << SERIAL_BITS | serial & ((1 << SERIAL_BITS) - 1)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Finds the thread's kind of work from its open spans, when it joins a window.
#[cold]
fn find_kind(account: &Account) -> u32 {
    let kind = progress::recompute_kinds(kinds::of_thread(account), kinds::after_step);
    account.kind.store(kind, Relaxed);
    kind
}

/// Returns the stamp's number in the window, or gives it one: for a connection that is written to repeatedly.
fn window_number(stamp: &mut Stamp, account: &Account, window: u32) -> u64 {
    stamp.value(window).unwrap_or_else(|| {
        let number = next_message_number(account);
        *stamp = Stamp::new(window, number);
        number
    })
}

fn lock_number(lock: &Lock, account: &Account, window: u32) -> u64 {
    let was = lock.stamp();
    was.value(window).unwrap_or_else(|| {
        let mine = Stamp::new(window, next_message_number(account));
        lock.replace(was, mine).value(window).unwrap_or_default()
    })
}

impl Policy for Recorder {
    fn thread_began(&self, account: &'static Account) {
        account.blocked_since.store(0, Relaxed);
        match self.window() {
            // It did nothing until now. The account may be that of an ended thread.
            (window, WindowPurpose::Record) => self.record_in(account, window, |_| Event::BlockEnded),
            (window, WindowPurpose::Pause) => {
                self.ledger.begin(account, window, clock::now());
                find_kind(account);
            }
            (_, WindowPurpose::None) => {}
        }
        sample::thread_began(account);
    }

    fn thread_ended(&self, account: &'static Account) {
        self.record(account, |_, _| Event::BlockBegan);
        sample::thread_ended(account);
    }

    fn entered(&self, account: &'static Account, span: Span) -> u32 {
        let event = if span == Span::WAKE { Event::Waking } else { Event::Kind };
        self.set_kind(account, event, |kind| kinds::in_span(kind, span))
    }

    fn left(&self, account: &'static Account, before: &AtomicU32) {
        // `before` is read after the thread joined the window, which may have updated it: the span may be older than
        // the window.
        self.set_kind(account, Event::Kind, |_| before.load(Relaxed));
    }

    fn at(&self, account: &'static Account, site: Span) {
        self.set_kind(account, Event::Kind, |kind| kinds::after_site(kind, site));
    }

    fn before_send(&self, account: &'static Account, stamp: &mut Stamp) {
        if let Some(paid) =
            self.pay_then(account, Urgency::Awaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *stamp = paid;
            return;
        }
        self.record(account, |window, _| {
            let message = next_message_number(account);
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
            // In case a window opens during the block.
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
        self.pay_then(account, Urgency::Awaited, |_, _, _| ());
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
        // Stamps of locks are replaced by compare-and-swap, as several readers may release at once.
        let give_up = |ledger: &Ledger, window, now| {
            let mut left = lock.stamp();
            // Another reader may have stored its stamp first: keep the later one of both.
            loop {
                let mine = ledger.unlocked(account, window, left, sharing, now);
                match lock.replace(left, mine) {
                    other if other == mine => break,
                    other => left = other,
                }
            }
        };
        let paused =
            if contended { self.pay_then(account, Urgency::Awaited, give_up) } else { self.pausing(account, give_up) };
        if paused.is_none() {
            self.record(account, |window, _| Event::Unlocked { lock: lock_number(lock, account, window), sharing });
        }
    }

    fn written(&self, account: &'static Account, connection: &mut Stamp) {
        if let Some(paid) =
            self.pay_then(account, Urgency::Unawaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *connection = paid;
            return;
        }
        self.record(account, |window, _| Event::Written { connection: window_number(connection, account, window) });
    }

    fn hold(&self, account: &'static Account, connection: Stamp, arrived: u64) -> Option<Duration> {
        let wait = self.pausing(account, |ledger, window, now| {
            ledger.hold(window, connection, self.to_clock_or_unknown(arrived, now), now)
        });
        wait.flatten().map(Duration::from_nanos)
    }

    fn arrived(&self, account: &'static Account, connection: &mut Stamp, arrived: u64) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.arrived(account, window, *connection, self.to_clock_or_unknown(arrived, now), now);
        });
        if paused.is_none() {
            self.record(account, |window, now| Event::Arrived {
                connection: window_number(connection, account, window),
                at: self.to_clock(arrived, now),
            });
        }
    }

    fn called(&self, account: &'static Account, call: &mut Stamp, callee: Span) {
        if let Some(paid) = self.pay_then(account, Urgency::Unawaited, |ledger, window, now| {
            ledger.called(account, window, callee.id(), now)
        }) {
            *call = paid;
            return;
        }
        self.record(account, |window, _| {
            // A fresh number for each event of the call, so that it is paired with its own part of the answer.
            let (number, is_first) = (next_message_number(account), call.value(window).is_none());
            *call = Stamp::new(window, number);
            Event::Called { call: number, callee: callee.id(), is_first }
        });
    }

    fn answered(&self, account: &'static Account, call: Stamp, arrived: u64) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.answered(account, window, call, self.to_clock(arrived, now), now);
        });
        if paused.is_none() {
            self.record(account, |window, now| Event::Answered {
                call: call.value(window).unwrap_or(0),
                at: self.to_clock(arrived, now),
            });
        }
    }

    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp) {
        if let Some(paid) =
            self.pay_then(account, Urgency::Unawaited, |ledger, window, now| ledger.sent(account, window, now))
        {
            *timer = paid;
            return;
        }
        self.record(account, |window, _| {
            let number = next_message_number(account);
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
                let number = next_message_number(account);
                *visit = Stamp::new(window, number);
                Event::VisitBegan { visit: number }
            });
        }
    }

    fn visit_ended(&self, account: &'static Account, visit: Stamp, point: Point) {
        let paused = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            // Events of windows with pauses hold virtual times.
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

    /// Two accounts with equal numbers of messages would be linked by a replay.
    #[test]
    fn messages_of_all_sampled_threads_differ() {
        let last = sample::THREADS_MAX as u32 - 1;
        let mut numbers = [0, 1, 4096, last].map(|number| next_message_number(&Account::new(number, "")));
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
        assert_eq!((u64::from(last) + 1) << SERIAL_BITS, Stamp::VALUE_MAX + 1, "a stamp holds each number");
    }

    /// Without the units after a log became full, the count would seem to stop there, and the rate would be too low.
    #[test]
    fn a_window_with_pauses_ends_where_a_log_is_full() {
        let recorder = Recorder::new();
        // A number that no other test's window has.
        recorder.count.store(1 << 16, Relaxed);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                progress::register_thread();
                let account = progress::current().expect("just registered");
                recorder
                    .open_experiment(&Experiment { weights: Some(&crate::target::Weights::default()), speedup: 0.0 });
                let (window, _) = recorder.window();
                let units = (1..).map(|unit| Ledger::start() + 10 * unit);
                for at in units.take_while(|_| !account.log().is_full(window >> COUNT_SHIFT)) {
                    recorder.write(account, window, at, Event::Hit { point: 3 });
                }
                std::thread::sleep(Duration::from_millis(20));
                recorder.close();
            });
        });
        let point = recorder.outcome().0.point(3);
        assert_eq!(point.hits, progress::ENTRIES_MAX as u64 - 1);
        assert!((point.ns_per_unit / 10.0 - 1.0).abs() < 1e-3, "{point:?}");
    }

    /// The second entry of a call holds its span: without it, the call would be attributed to another one.
    #[test]
    fn a_full_log_ends_before_its_last_event() {
        let (recorder, account) = (Recorder::new(), Account::new(0, "full"));
        let called = |call| Event::Called { call, callee: 7, is_first: true };
        recorder.write(&account, 0, 1, Event::BlockBegan);
        recorder.write(&account, 0, 2, called(2));
        let mut events = Vec::new();
        assert!(!read_log(account.log(), 0, &mut events));
        assert_eq!(events, [(1, Event::BlockBegan), (2, called(2))]);
        for at in 3.. {
            recorder.write(&account, 0, at, called(at));
            if account.log().is_full(0) {
                break;
            }
        }
        assert!(read_log(account.log(), 0, &mut events));
        assert!(events[1..].iter().all(|&(at, event)| event == called(at)));
        assert_eq!(events.len(), progress::ENTRIES_MAX / 2);
    }
}

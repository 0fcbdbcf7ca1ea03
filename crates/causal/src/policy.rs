//! The action of each hook while a window is open: tracks the thread's kind of work, and records its events or pauses
//! it.
//!
//! A window's number contains its purpose: the two lowest bits are the `WindowPurpose`, and the next one selects the
//! half of the logs that is written. So a hook needs one load to know its action, and data of another window is
//! recognised by its number.
//!
//! - `read`: reads a window after its end; `numbers`: the numbers of messages and locks; `costs`: the cost of a hook.

mod costs;
mod numbers;
mod read;

use std::num::NonZeroU64;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Duration;

use progress::{Account, Lock, Point, Policy, Sharing, Span, Stamp};

use crate::constants::PAUSE_PIECE_MAX;
use crate::ledger::{Experiment, Ledger, Urgency};
use crate::trace::Event;
use crate::{clock, kinds, sample};
pub use costs::{HookCostEstimator, HookCosts, WorkDone};
use numbers::{lock_number, next_message_number, window_number};

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
        let pause = self.pausing(account, |ledger, window, now| {
            ledger.credit(account, now);
            (ledger.take_due_pause(account, urgency, now), window, now)
        })?;
        if let (1.., ..) = pause {
            self.sleep(account, pause);
        }
        self.pausing(account, rule)
    }

    #[cold]
    fn sleep(&self, account: &Account, (pause, window, since): (u64, u32, u64)) {
        let slack = exact_timers();
        // In pieces, so that the sleep ends soon after the window does.
        while let left @ 1.. = (since + pause).saturating_sub(clock::now()) {
            if self.window.load(Relaxed) != window {
                break;
            }
            std::thread::sleep(Duration::from_nanos(left.min(PAUSE_PIECE_MAX)));
        }
        restore_timers(slack);
        // Once the window has ended, its accounts no longer count.
        if self.window.load(Relaxed) == window {
            self.ledger.paid(account, pause, since, clock::now());
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

impl Policy for Recorder {
    fn thread_began(&self, account: &'static Account) {
        account.blocked_since_ns.store(0, Relaxed);
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

    fn after_queue(&self, account: &'static Account, stamp: Stamp) {
        let paused = self.pausing(account, |ledger, window, now| ledger.received(account, window, stamp, 0, now));
        if paused.is_none() {
            self.record(account, |window, _| Event::Dequeued { message: stamp.value(window).unwrap_or(0) });
        }
    }

    fn before_block(&self, account: &'static Account) {
        if self.pausing(account, |ledger, _, now| ledger.block_began(account, now)).is_none() {
            // In case a window opens during the block.
            account.blocked_since_ns.store(1, Relaxed);
            self.record(account, |_, _| Event::BlockBegan);
        }
        if account.is_worker() {
            sample::before_block();
        }
    }

    fn after_block(&self, account: &'static Account) {
        if self.pausing(account, |ledger, _, now| ledger.block_ended(account, now)).is_none() {
            account.blocked_since_ns.store(0, Relaxed);
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

    fn before_write(&self, account: &'static Account, connection: &mut Stamp) {
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

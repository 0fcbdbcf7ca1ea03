//! Confirming: the delay of each thread, and the pauses that follow from it.
//!
//! While a thread runs the target, every other thread gets a pause as long as the fraction of that time that is to be
//! saved. Relative to the paused threads, the target is then faster. Each thread has a *delay* d: the time that it was
//! paused, plus the time that it was credited with for running the target. Clock time minus d is its *virtual time*, in
//! which the program runs as if the target were faster. G is the largest delay of all, and G − d is a thread's *debt*:
//! it pays the debt by sleeping.
//!
//! Virtual time must never run backwards from a cause to its effect. So each message between threads carries a stamp
//! with the sender's time and delay, and a receiver's virtual time is at least the sender's. A blocked thread loses
//! nothing by a pause: the time blocked pays its debt, up to its length. Clients and upstreams cannot be paused, so
//! their messages are held until they would have arrived ([`Ledger::hold`]).
//!
//! Every method is a rule: it takes the account and the time, and returns how long to sleep or to hold. The policy does
//! the sleeping; a simulation advances its clock instead. Only its own thread writes the cells of an account, so
//! relaxed loads and stores suffice.
//!
//! - `stamps`: the contents of a stamp; `units`: a window's outcome from its units of progress.

mod stamps;
#[cfg(test)]
mod tests;
mod units;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use progress::{Account, Sharing, Stamp};

pub use crate::constants::{DEBT_QUANTUM, DEBT_URGENT, HOLD_MAX, HOLD_MIN, PROBE};
use crate::constants::{HOLD_MAX_PROBED, WAKEUP_MAX};
use crate::kinds::KINDS_MAX;
use crate::target::Weights;
pub use stamps::STAMP_TIME_MAX;
use stamps::StampContents;
pub use units::{Unit, outcome};

/// Accounts with their own entries in `runnable`; later accounts count as runnable all the time.
const ACCOUNTS_MAX: usize = 1024;

/// In `calls`, the bits below hold the start of the calls, the bits above their number.
const CALLS_SHIFT: u32 = 40;
/// Offset of the virtual times in the records, nanoseconds. Times before the window's begin stay above 0.
const VIRTUAL_OFFSET: u64 = 1 << 38;
/// Fixed-point representation of 1.0.
const FIXED_ONE: f64 = (1_u32 << 30) as f64;

/// The settings of one window.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'a> {
    /// The fraction of each kind of work to speed up; `None` for a load probe, which pauses everything to see how the
    /// load responds.
    pub weights: Option<&'a Weights>,
    /// The fraction of the target's time to save, from 0 (the control: the same machinery, no pauses) to 1.
    pub speedup: f64,
}

/// The cost of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowCost {
    /// G at the window's end, nanoseconds: wall time minus virtual time.
    pub delayed: u64,
    /// Total time for which outside messages were held, nanoseconds.
    pub held: u64,
    /// Total virtual time by which threads ran ahead of the message that caused their work, nanoseconds. They sleep for
    /// it later; until then the order at locks and in queues may be wrong by that much.
    pub ahead: u64,
    /// Total sleep of all threads, nanoseconds.
    pub slept: u64,
    /// Number of messages that passed at once, because they would have needed a hold longer than the maximum. With
    /// `ahead` and `slept` only for simulations and tests; no report has it.
    pub forgiven: u64,
}

/// Whether other threads wait for the thread's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// They do: pay a debt of [`DEBT_URGENT`] or more.
    Awaited,
    /// They do not: pay only a debt of [`DEBT_QUANTUM`] or more.
    Unawaited,
}

/// The state shared by all threads in a window, and the rules. There is one window at a time.
#[derive(Debug)]
pub struct Ledger {
    /// The window's number. Accounts that carry another number have not joined it.
    window: AtomicU32,
    began: AtomicU64,
    /// The largest delay so far.
    largest: AtomicU64,
    /// Fraction of wall time by which virtual time is slowed for all threads; 0 except in a load probe.
    probe: AtomicU32,
    /// Number of the span, plus 1, whose calls are the target; 0 if none are.
    target_call_span: AtomicU32,
    speedup: AtomicU32,
    /// Number of the target's unanswered calls, and the time since there are any: G grows with it.
    calls: AtomicU64,
    ahead: AtomicU64,
    held: AtomicU64,
    slept: AtomicU64,
    forgiven: AtomicU64,
    /// Running mean of the time from an answer to the next request on its connection, from loops that were idle when it
    /// arrived.
    usual_gap: AtomicU64,
    /// Time that one hook takes, nanoseconds.
    hook_cost: AtomicU64,
    /// By kind: the fraction of its time to save.
    weights: [AtomicU32; KINDS_MAX],
    /// By account: the fraction of its unblocked time in which the thread has a processor or waits for one.
    runnable: [AtomicU32; ACCOUNTS_MAX],
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// Makes a ledger without an open window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: AtomicU32::new(0),
            began: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            probe: AtomicU32::new(0),
            target_call_span: AtomicU32::new(0),
            speedup: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            held: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            forgiven: AtomicU64::new(0),
            usual_gap: AtomicU64::new(0),
            hook_cost: AtomicU64::new(0),
            weights: [const { AtomicU32::new(0) }; KINDS_MAX],
            runnable: [const { AtomicU32::new(FIXED_ONE as u32) }; ACCOUNTS_MAX],
        }
    }

    /// Opens the window of this number, which must not be 0, at `now`. All delays start at 0.
    pub fn open(&self, window: u32, experiment: &Experiment<'_>, now: u64) {
        // While the fields change, the number is 0: `credit` ignores the accounts of the last window.
        self.window.store(0, Relaxed);
        let speedup = experiment.speedup.clamp(0.0, 1.0);
        for (kind, weight) in self.weights.iter().enumerate() {
            let part = experiment.weights.map_or(0.0, |weights| weights.part(kind as u32));
            weight.store(fixed(speedup * part), Relaxed);
        }
        // Plus 1, so that 0 stands for "no span".
        let callee = experiment.weights.and_then(|weights| weights.calls).map_or(0, |span| span + 1);
        self.target_call_span.store(callee, Relaxed);
        self.speedup.store(fixed(speedup), Relaxed);
        self.probe.store(if experiment.weights.is_none() { fixed(PROBE) } else { 0 }, Relaxed);
        for counter in [&self.largest, &self.calls, &self.ahead, &self.held, &self.slept, &self.forgiven] {
            counter.store(0, Relaxed);
        }
        self.began.store(now, Relaxed);
        self.window.store(window, Relaxed);
    }

    /// Forgets the usual gap of an earlier profile, whose clients may have been others. Call it when a profile begins.
    pub fn forget_usual_gap(&self) {
        self.usual_gap.store(0, Relaxed);
    }

    /// Sets the time that a hook takes, nanoseconds. It is not counted as time of a target.
    pub fn set_hook_cost(&self, time: u64) {
        self.hook_cost.store(time, Relaxed);
    }

    /// Sets the recent fraction of a thread's unblocked time in which it had a processor or waited for one. `credit`
    /// counts only this fraction of the target's time: the rest is a wait that no hook reports.
    pub fn set_runnable(&self, account: &Account, part: f64) {
        if let Some(runnable) = self.runnable.get(account.number() as usize) {
            runnable.store(fixed(part), Relaxed);
        }
    }

    /// Returns G, the largest delay, at `now`.
    #[must_use]
    pub fn largest_delay(&self, now: u64) -> u64 {
        let probe = part(self.since(now), self.probe.load(Relaxed));
        // A probe slows virtual time for all threads alike, without a thread that runs ahead.
        self.largest.load(Relaxed).max(probe) + self.called_since(self.calls.load(Relaxed), now)
    }

    /// Returns the saved part of the time until `now` in which calls were unanswered.
    fn called_since(&self, calls: u64, now: u64) -> u64 {
        let began = calls & ((1 << CALLS_SHIFT) - 1);
        if calls == 0 { 0 } else { part(self.since(now).saturating_sub(began), self.speedup.load(Relaxed)) }
    }

    /// Returns the cost of the window until `now`.
    #[must_use]
    pub fn cost(&self, now: u64) -> WindowCost {
        WindowCost {
            delayed: self.largest_delay(now),
            held: self.held.load(Relaxed),
            ahead: self.ahead.load(Relaxed),
            slept: self.slept.load(Relaxed),
            forgiven: self.forgiven.load(Relaxed),
        }
    }

    /// Returns the time at which the window began.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.began.load(Relaxed)
    }

    fn since(&self, now: u64) -> u64 {
        now.saturating_sub(self.began())
    }

    /// Enters a thread into the window at its first hook there. It existed when the window began, so its delay starts
    /// at 0. It has to pay all pauses since then, unless this first hook reports that it was blocked.
    pub fn join(&self, account: &Account, window: u32) {
        account.window.store(window, Relaxed);
        account.credited_until_ns.store(self.began(), Relaxed);
        account.delay_ns.store(0, Relaxed);
        account.excess_ns.store(0, Relaxed);
        account.cause_time.store(0, Relaxed);
        account.activity.store(JOINED, Relaxed);
        // A block that is older than the window counts from the window's begin.
        if account.blocked_since_ns.load(Relaxed) != 0 {
            account.blocked_since_ns.store(self.began(), Relaxed);
        }
    }

    /// Enters a thread that started in the window, at `now`, with no debt. Its first received message may set a smaller
    /// delay.
    pub fn begin(&self, account: &Account, window: u32, now: u64) {
        self.join(account, window);
        account.blocked_since_ns.store(0, Relaxed);
        account.credited_until_ns.store(now, Relaxed);
        // Starting at G means no debt: the pauses so far were before the thread existed.
        account.delay_ns.store(self.largest_delay(now), Relaxed);
    }

    /// Credits the thread with the time that it ran since its last credit. Call it before the thread's kind of work
    /// changes, and at each synchronisation with other threads.
    #[inline]
    pub fn credit(&self, account: &Account, now: u64) {
        if account.blocked_since_ns.load(Relaxed) != 0 || !self.has_joined(account) {
            return;
        }
        if account.activity.load(Relaxed) == JOINED {
            account.activity.store(WORKING, Relaxed);
        }
        let ran =
            now.saturating_sub(account.credited_until_ns.load(Relaxed)).saturating_sub(self.hook_cost.load(Relaxed));
        // Never move `credited_until_ns` back: the time before it is already credited.
        account.credited_until_ns.store(now.max(account.credited_until_ns.load(Relaxed)), Relaxed);
        let kind = account.kind.load(Relaxed) as usize;
        let weight = self.weights.get(kind).map_or(0, |weight| weight.load(Relaxed));
        if weight == 0 {
            return;
        }
        // A faster target does not shorten a wait that no hook reports.
        let ran = match self.runnable.get(account.number() as usize) {
            Some(runnable) => part(ran, runnable.load(Relaxed)),
            None => ran,
        };
        let delay = account.delay_ns.load(Relaxed) + part(ran, weight);
        account.delay_ns.store(delay, Relaxed);
        self.largest.fetch_max(delay, Relaxed);
    }

    /// Returns whether the account has joined the open window. It has not if its thread was preempted within a hook
    /// while its window ended and another one began. Such a thread joins at its next hook, and its earlier work does
    /// not count.
    fn has_joined(&self, account: &Account) -> bool {
        account.window.load(Relaxed) == self.window.load(Relaxed)
    }

    /// Takes the excess of earlier sleeps off the thread's debt, and returns the pause that is then due, or 0.
    #[must_use]
    pub fn take_due_pause(&self, account: &Account, urgency: Urgency, now: u64) -> u64 {
        let debt = self.largest_delay(now).saturating_sub(account.delay_ns.load(Relaxed));
        let excess = account.excess_ns.load(Relaxed);
        let paid = debt.min(excess);
        account.delay_ns.fetch_add(paid, Relaxed);
        account.excess_ns.store(excess - paid, Relaxed);
        // A smaller debt is kept: the overshoot of a sleep is large compared with it.
        let least = if urgency == Urgency::Awaited { DEBT_URGENT } else { DEBT_QUANTUM };
        if debt - paid < least { 0 } else { debt - paid }
    }

    /// Records that the thread slept for `pause`, from `since` to `now`. The excess is kept for its next debt. It does
    /// not raise G, so it pauses no other thread.
    pub fn paid(&self, account: &Account, pause: u64, since: u64, now: u64) {
        let slept = now.saturating_sub(since);
        account.delay_ns.fetch_add(pause.min(slept), Relaxed);
        account.excess_ns.fetch_add(slept.saturating_sub(pause), Relaxed);
        account.credited_until_ns.store(now, Relaxed);
        self.slept.fetch_add(slept, Relaxed);
    }

    /// Returns clock time minus the thread's virtual time: its delay and the excess of its sleeps.
    fn delay(account: &Account) -> u64 {
        account.delay_ns.load(Relaxed) + account.excess_ns.load(Relaxed)
    }

    fn set_delay(&self, account: &Account, delay: u64, now: u64) {
        // A lowered delay moves the thread forward in virtual time.
        let ahead = Self::delay(account).saturating_sub(delay);
        if ahead > 0 {
            self.ahead.fetch_add(ahead, Relaxed);
        }
        // The part above G must not raise G, so it goes into the excess.
        let counted = delay.min(self.largest_delay(now));
        account.delay_ns.store(counted, Relaxed);
        account.excess_ns.store(delay - counted, Relaxed);
    }

    /// Returns the thread's virtual time, plus an offset: never 0, and below [`Self::start`] before the window's begin.
    #[must_use]
    pub fn virtual_time(&self, account: &Account, now: u64) -> u64 {
        (VIRTUAL_OFFSET + self.since(now)).saturating_sub(Self::delay(account))
    }

    /// Returns the virtual time at which the window begins.
    #[must_use]
    pub const fn start() -> u64 {
        VIRTUAL_OFFSET
    }

    /// Returns the stamp for a message that the thread sends, or a timer that it sets.
    #[must_use]
    pub fn sent(&self, account: &Account, window: u32, now: u64) -> Stamp {
        self.credit(account, now);
        self.stamped(account, window, now, false)
    }

    /// Records that the thread took a message at `now`, after it was blocked for `blocked`.
    pub fn received(&self, account: &Account, window: u32, stamp: Stamp, blocked: u64, now: u64) {
        let joined = account.activity.load(Relaxed) == JOINED;
        let blocked = self.unblocked(account, blocked, now);
        let delay = Self::delay(account);
        let largest = self.largest_delay(now);
        let latest = |reading: StampContents| reading.delay + self.since(now).saturating_sub(reading.sent);
        let delay = match Self::reading(stamp, window) {
            // The thread's state before its first hook is unknown: it goes on at the sender's virtual time.
            Some(reading) if joined => reading.delay,
            // If the message ended the wait, the time of the wakeup is the program's own and no pause. But the message
            // may have been sent long before the wait ended, when another event ended it.
            Some(reading) if blocked > 0 => {
                let is_cause = self.since(now).saturating_sub(reading.sent) <= blocked.min(WAKEUP_MAX);
                let most = if is_cause { reading.delay } else { latest(reading).min(largest).max(reading.delay) };
                most.min(delay + blocked)
            }
            Some(reading) => delay.min(latest(reading)),
            None if blocked > 0 => delay.max(largest).min(delay + blocked),
            None => delay,
        };
        self.set_delay(account, delay, now);
        // On an event loop, a unit begins with its message, not with the thread's work on it.
        let cause = match Self::reading(stamp, window) {
            Some(reading) if account.is_worker() => (VIRTUAL_OFFSET + reading.sent).saturating_sub(reading.delay),
            _ => 0,
        };
        self.begin_job(account, cause);
    }

    /// Credits the time until the block began. Returns how much of the block was within the window.
    fn unblocked(&self, account: &Account, blocked: u64, now: u64) -> u64 {
        let blocked = blocked.min(self.since(now));
        self.credit(account, now - blocked);
        account.credited_until_ns.store(now, Relaxed);
        blocked
    }

    fn begin_job(&self, account: &Account, cause: u64) {
        account.activity.store(WORKING, Relaxed);
        account.cause_time.store(cause, Relaxed);
    }

    /// Records that the thread blocks, for an event that is not known yet.
    pub fn block_began(&self, account: &Account, now: u64) {
        self.credit(account, now);
        // 0 stands for "not blocked".
        account.blocked_since_ns.store(now.max(1), Relaxed);
    }

    /// Records that the thread is no longer blocked: the time blocked pays its debt.
    pub fn block_ended(&self, account: &Account, now: u64) {
        let since = account.blocked_since_ns.swap(0, Relaxed);
        if since == 0 {
            return;
        }
        let blocked = now.saturating_sub(since);
        account.credited_until_ns.store(now, Relaxed);
        let delay = Self::delay(account);
        self.set_delay(account, delay.max(self.largest_delay(now)).min(delay + blocked), now);
        // `caused` needs the begin of the wait, to tell which messages arrived during it.
        account.activity.store(since.max(WORKING + 1), Relaxed);
        account.cause_time.store(0, Relaxed);
    }

    /// Records that the thread took a lock at `now`, after it was blocked for `blocked`. `stamp` is the lock's.
    pub fn locked(&self, account: &Account, window: u32, stamp: Stamp, blocked: u64, now: u64) {
        let blocked = self.unblocked(account, blocked, now);
        let delay = Self::delay(account);
        let delay = match Self::reading(stamp, window) {
            // Another thread may overtake the one that was woken, so the time of the wakeup shows nothing.
            Some(reading) if blocked > 0 => reading.delay.min(delay + blocked),
            Some(reading) => delay.min(reading.delay + self.since(now).saturating_sub(reading.sent)),
            None if blocked > 0 => delay.max(self.largest_delay(now)).min(delay + blocked),
            None => delay,
        };
        self.set_delay(account, delay, now);
    }

    /// Returns the stamp for a lock that the thread releases. Among readers, the stamp with the latest virtual time is
    /// kept.
    #[must_use]
    pub fn unlocked(&self, account: &Account, window: u32, was: Stamp, sharing: Sharing, now: u64) -> Stamp {
        // Readers release in any order, but the next writer follows the last one in virtual time.
        let mine = self.sent(account, window, now);
        let released = |stamp| {
            Self::reading(stamp, window).map(|reading| (VIRTUAL_OFFSET + reading.sent).saturating_sub(reading.delay))
        };
        if sharing == Sharing::Shared && released(was) > released(mine) { was } else { mine }
    }

    /// Returns how long to hold a message that arrived at `arrived` on a connection or as the answer to a call; `None`
    /// for no hold. A message of unknown arrival time (0) is not held: the thread that handles it gets debt instead. G
    /// may grow during the hold, so the caller calls this again after it.
    #[must_use]
    pub fn hold(&self, window: u32, stamp: Stamp, arrived: u64, now: u64) -> Option<u64> {
        if arrived == 0 {
            return None;
        }
        let wait = self.early(self.due_delay(window, stamp, arrived), arrived, now);
        // Shorter holds are not worth a timer; longer ones are forgiven in `caused`.
        if !(HOLD_MIN..=self.hold_max()).contains(&wait) {
            return None;
        }
        self.held.fetch_add(wait, Relaxed);
        Some(wait)
    }

    fn hold_max(&self) -> u64 {
        if self.probe.load(Relaxed) == 0 { HOLD_MAX } else { HOLD_MAX_PROBED }
    }

    /// Returns how much too early a message is: it is due at virtual time `arrived` − `delay`, and virtual time is now
    /// `now` − G.
    fn early(&self, delay: u64, arrived: u64, now: u64) -> u64 {
        self.largest_delay(now).saturating_sub(delay).saturating_sub(now.saturating_sub(arrived))
    }

    /// Returns the delay of a message from outside: that of the message it answers; for a call of the target, plus the
    /// saved time.
    fn due_delay(&self, window: u32, stamp: Stamp, arrived: u64) -> u64 {
        // A stamp older than the window belongs to a message without delay.
        Self::reading(stamp, window).map_or(0, |reading| {
            let took = self.since(arrived).saturating_sub(reading.sent);
            reading.delay + if reading.is_target { part(took, self.speedup.load(Relaxed)) } else { 0 }
        })
    }

    /// Records that the thread handles, from `now`, a message that arrived on a connection at `arrived`; 0 if that time
    /// is unknown.
    pub fn arrived(&self, account: &Account, window: u32, stamp: Stamp, arrived: u64, now: u64) {
        self.credit(account, now);
        let arrived = if arrived == 0 { self.guess(account, window, stamp, now) } else { arrived };
        let due = self.due_delay(window, stamp, arrived);
        self.caused(account, due, arrived, now);
    }

    /// Estimates the arrival time of the message that answers the stamped one. An idle loop was woken by it, so it
    /// arrived now. A busy loop looked late, so the estimate is the usual gap.
    fn guess(&self, account: &Account, window: u32, stamp: Stamp, now: u64) -> u64 {
        let Some(reading) = Self::reading(stamp, window) else { return now };
        let usual = self.usual_gap.load(Relaxed);
        if account.activity.load(Relaxed) > WORKING {
            let gap = self.since(now).saturating_sub(reading.sent);
            // Running mean of about the last 16 gaps.
            self.usual_gap.store(if usual == 0 { gap } else { (15 * usual + gap) / 16 }, Relaxed);
            return now;
        }
        if usual == 0 { now } else { now.min(self.began() + reading.sent + usual) }
    }

    /// Sets the thread's delay for work caused by a message that arrived at `arrived` with `delay`.
    fn caused(&self, account: &Account, mut delay: u64, arrived: u64, now: u64) {
        if self.early(delay, arrived, now) > self.hold_max() {
            // Forgive it. Otherwise the thread would sleep for the time that the message was not held, and stop all its
            // connections.
            self.forgiven.fetch_add(1, Relaxed);
            delay = delay.max(Self::delay(account));
        }
        // An idle loop woken by the message started a little later. That wakeup is the program's own time, and no
        // pause. A held message had been looked at before the loop became idle, so its arrival is earlier than
        // `waited_since`.
        let waited_since = account.activity.load(Relaxed);
        let is_woken = waited_since > WORKING && arrived >= waited_since;
        let latest = delay + if is_woken { 0 } else { now.saturating_sub(arrived) };
        if latest < Self::delay(account) {
            self.set_delay(account, latest, now);
        }
        // `since` is 0 for an arrival before the window, so subtract the time before it, too.
        let before = self.began().saturating_sub(arrived);
        self.begin_job(account, (VIRTUAL_OFFSET + self.since(arrived)).saturating_sub(before + delay));
    }

    /// Returns the stamp for a call to an outside service. While a call of the target is unanswered, G grows by the
    /// time saved.
    #[must_use]
    pub fn called(&self, account: &Account, window: u32, callee: u32, now: u64) -> Stamp {
        self.credit(account, now);
        let is_target = self.target_call_span.load(Relaxed) == callee + 1 && self.has_joined(account);
        let stamp = self.stamped(account, window, now, is_target);
        // Without a stamp the answer would not be counted, and G would grow until the window's end.
        if is_target && stamp != Stamp::default() {
            let since = self.since(now);
            let more =
                |calls: u64| Some(if calls == 0 { 1 << CALLS_SHIFT | since } else { calls + (1 << CALLS_SHIFT) });
            let _ = self.calls.fetch_update(Relaxed, Relaxed, more);
        }
        stamp
    }

    /// Records that the answer to a call arrived at `arrived` and is handled from `now`.
    pub fn answered(&self, account: &Account, window: u32, stamp: Stamp, arrived: u64, now: u64) {
        self.credit(account, now);
        let delay = self.due_delay(window, stamp, arrived);
        self.caused(account, delay, arrived, now);
        if Self::reading(stamp, window).is_some_and(|reading| reading.is_target) && self.has_joined(account) {
            // An answer without a pending call is ignored.
            let less = |calls: u64| match calls >> CALLS_SHIFT {
                0 => None,
                1 => Some(0),
                _ => Some(calls - (1 << CALLS_SHIFT)),
            };
            if let Ok(calls) = self.calls.fetch_update(Relaxed, Relaxed, less)
                && calls >> CALLS_SHIFT == 1
            {
                // The last call of the target is answered: `calls` no longer adds to G, so keep its part in `largest`.
                self.largest.fetch_add(self.called_since(calls, arrived), Relaxed);
            }
        }
    }

    /// Records that a sleep is over, for which the thread itself was blocked for `blocked`. The timer is a clock
    /// outside, which was not paused: the thread still has to sleep for the pauses during the sleep.
    pub fn woke(&self, account: &Account, window: u32, timer: Stamp, blocked: u64, now: u64) {
        let woken = account.activity.load(Relaxed) > WORKING;
        self.unblocked(account, blocked, now);
        let set = Self::reading(timer, window).map_or(0, |reading| reading.delay);
        // A loop woken by the timer was waiting for it; a busy loop looked at the timer some time after it was due.
        if woken && set < Self::delay(account) {
            self.set_delay(account, set, now);
        }
        let cause = if account.is_worker() { self.virtual_time(account, now) } else { 0 };
        self.begin_job(account, cause);
    }

    /// Returns the virtual time at which a unit begins: that of the message that caused the thread's work, or now.
    #[must_use]
    pub fn visit_began(&self, account: &Account, now: u64) -> u64 {
        match account.cause_time.load(Relaxed) {
            0 => self.virtual_time(account, now),
            cause => cause,
        }
    }
}

/// Values of an account's cell `activity`. JOINED: the thread did nothing yet in the window; WORKING: it works. Any
/// larger value: it was just woken, and has waited since that time.
const JOINED: u64 = 1;
const WORKING: u64 = 2;

fn fixed(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * FIXED_ONE).round() as u32
}

/// Returns the fraction `fixed` of `time`, rounded to the nearest nanosecond.
fn part(time: u64, fixed: u32) -> u64 {
    ((u128::from(time) * u128::from(fixed) + (1 << 29)) >> 30) as u64
}

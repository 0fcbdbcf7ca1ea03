//! Mode B: who owes which pause, and when it is paid.
//!
//! While a thread runs the target, everything else owes a pause as long as the part of that time that is to be saved. What is not
//! paused has gained by comparison, as if the target had been faster. Each thread has an account of its *delay* d: what it has been
//! paused, or was credited with for running the target. The time of the clock less d is its *virtual time*, in which the program runs
//! as if the target were faster. G is the largest delay of all, and what a thread owes is G − d.
//!
//! Virtual time must never run backwards from a cause to its effect. So whatever goes from one thread to another carries both its
//! time and its delay (a stamp), and a receiver's virtual time is at least the sender's. Whoever waits loses nothing by a
//! pause: waiting pays debt, as much as it lasted. The world outside cannot be paused, so what it sends waits until it would have
//! come ([`Ledger::hold`]).
//!
//! Everything here is a rule that is given the account and the time, and answers how long to sleep or to wait: the policy sleeps, and
//! a simulation lets its clock run. Cells of an account are written by its own thread only.

#[cfg(test)]
mod tests;
mod units;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use progress::{Account, Sharing, Stamp};

use crate::kinds::KINDS_MAX;
use crate::target::Weights;
pub use units::{Unit, outcome};

/// Debts below this wait until there are more: a sleep lasts 40 to 90 µs longer than it should, whatever its length.
pub const QUANTUM: u64 = 200_000;
/// What is owed even where others wait for the thread, nanoseconds. Less travels with the stamp, and the receiver owes it.
pub const URGENT: u64 = 20_000;
/// A message that would have to wait longer than this is let through and forgiven: nobody owes anything for it. It is counted.
pub const HOLD_MAX: u64 = 5_000_000;
/// The same in a load probe, which all that comes from outside waits for: clients may be 50 ms away.
const HOLD_MAX_PROBED: u64 = (PROBE * 50e6) as u64;
/// A message that would have to wait for less than this is let through; what it worked ahead is owed by whoever takes it.
pub const HOLD_MIN: u64 = 30_000;
/// How long it may take a thread to be up after what it waited for was sent.
const WAKE_MAX: u64 = 200_000;
/// For how long after its begin a window knows the stamps that were made in it, nanoseconds.
pub const WINDOW_MAX: u64 = UNIT << SENT_BITS;
/// The part of wall time by which the load probe pauses everything: the more, the less a given pause is hidden by what varies; a program
/// that has less than that left over gives up some of it, whatever the load does.
pub const PROBE: f64 = 0.2;
/// Accounts that have a share of the processor and a tally of their own; later ones are taken to run all the time.
const ACCOUNTS_MAX: usize = 1024;

/// A stamp's times count in this many nanoseconds.
const UNIT: u64 = 512;
/// Bits of a stamp for its time, and for its delay; one more says whether a call is the target's.
const SENT_BITS: u32 = 20;
const DELAY_BITS: u32 = 19;
/// Bits for since when there are calls; those above count them.
const CALLS_SHIFT: u32 = 40;
/// What is written down in virtual time is this much later, so that what came before the window is not below 0.
const BEFORE: u64 = 1 << 38;
/// Parts are kept in units of this.
const ONE: f64 = (1_u32 << 30) as f64;

/// What a window tries.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'a> {
    /// Which part of each kind of work is made faster; `None` pauses everything for nobody's benefit, to see what the load does.
    pub weights: Option<&'a Weights>,
    /// Which part of the target's time is saved, from 0 (everything but the pauses) to 1.
    pub speedup: f64,
}

/// What a window cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// G at its end: how much more time than virtual time passed, nanoseconds.
    pub delayed: u64,
    /// How long messages of the world's were held, summed over all, nanoseconds.
    pub held: u64,
    /// By how much threads went on before, in virtual time, what they waited for had come, summed over all, nanoseconds. What they owe
    /// for it they pay later, but who came first at a lock or in a queue may be wrong by that much.
    pub ahead: u64,
    /// How long threads slept, summed over all, nanoseconds.
    pub slept: u64,
    /// How many messages would have had to wait longer than [`HOLD_MAX`].
    pub dropped: u64,
}

/// Whether others wait for what the thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// They do: all that is worth a sleep is paid.
    Awaited,
    /// They do not: a debt waits until it is worth one.
    Unawaited,
}

/// The rules of one window at a time, and what all threads share of it.
#[derive(Debug)]
pub struct Ledger {
    /// The window's number: accounts of another one say nothing about this.
    window: AtomicU32,
    began: AtomicU64,
    /// The largest delay so far.
    largest: AtomicU64,
    /// Part of wall time that passes for nobody; 0 but in a load probe.
    probe: AtomicU32,
    /// Number of the span, plus 1, whose calls are the target's; 0 when none are.
    whom: AtomicU32,
    speedup: AtomicU32,
    /// How many calls of the target's are unanswered, and since when there were any: G grows meanwhile.
    calls: AtomicU64,
    ahead: AtomicU64,
    held: AtomicU64,
    slept: AtomicU64,
    dropped: AtomicU64,
    /// How long the world takes to answer us, as far as loops saw that waited for it.
    usual_gap: AtomicU64,
    /// What a hook takes.
    hook: AtomicU64,
    /// What of the time of each kind is saved.
    weights: [AtomicU32; KINDS_MAX],
    /// Which part of the time that it is not blocked a thread has a processor.
    running: [AtomicU32; ACCOUNTS_MAX],
    /// How long each thread was blocked or paused in the window.
    blocked: [AtomicU64; ACCOUNTS_MAX],
}

/// What a stamp says: when it was made, from the window's begin, and the delay of whoever made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reading {
    sent: u64,
    delay: u64,
    is_target: bool,
}

impl Default for Ledger {
    fn default() -> Self {
        Self::new()
    }
}

impl Ledger {
    /// Before the first window.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            window: AtomicU32::new(0),
            began: AtomicU64::new(0),
            largest: AtomicU64::new(0),
            probe: AtomicU32::new(0),
            whom: AtomicU32::new(0),
            speedup: AtomicU32::new(0),
            calls: AtomicU64::new(0),
            ahead: AtomicU64::new(0),
            held: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            usual_gap: AtomicU64::new(0),
            hook: AtomicU64::new(0),
            weights: [const { AtomicU32::new(0) }; KINDS_MAX],
            running: [const { AtomicU32::new(ONE as u32) }; ACCOUNTS_MAX],
            blocked: [const { AtomicU64::new(0) }; ACCOUNTS_MAX],
        }
    }

    /// A window of that number, which is not 0, begins at `now`: nobody owes anything.
    pub fn open(&self, window: u32, experiment: &Experiment<'_>, now: u64) {
        self.window.store(0, Relaxed);
        let speedup = experiment.speedup.clamp(0.0, 1.0);
        for (kind, weight) in self.weights.iter().enumerate() {
            let part = experiment.weights.map_or(0.0, |weights| weights.part(kind as u32));
            weight.store(fixed(speedup * part), Relaxed);
        }
        let whom = experiment.weights.and_then(|weights| weights.calls).map_or(0, |span| span + 1);
        self.whom.store(whom, Relaxed);
        self.speedup.store(fixed(speedup), Relaxed);
        self.probe.store(if experiment.weights.is_none() { fixed(PROBE) } else { 0 }, Relaxed);
        for counter in [&self.largest, &self.calls, &self.ahead, &self.held, &self.slept, &self.dropped] {
            counter.store(0, Relaxed);
        }
        self.blocked.iter().for_each(|blocked| blocked.store(0, Relaxed));
        self.began.store(now, Relaxed);
        self.window.store(window, Relaxed);
    }

    /// Says what a hook takes, nanoseconds: no target's time.
    pub fn set_hook(&self, time: u64) {
        self.hook.store(time, Relaxed);
    }

    /// Says which part of the time that it is not blocked a thread has had a processor lately: of a target's time only that part is
    /// its own, in the rest it waited for the processor.
    pub fn set_running(&self, account: &Account, part: f64) {
        if let Some(running) = self.running.get(account.number() as usize) {
            running.store(fixed(part), Relaxed);
        }
    }

    /// G: the largest delay at `now`.
    #[must_use]
    pub fn total(&self, now: u64) -> u64 {
        let probe = part(self.since(now), self.probe.load(Relaxed));
        self.largest.load(Relaxed).max(probe) + self.called_since(self.calls.load(Relaxed), now)
    }

    /// What is saved of the time in which calls were unanswered until `now`.
    fn called_since(&self, calls: u64, now: u64) -> u64 {
        let began = calls & ((1 << CALLS_SHIFT) - 1);
        if calls == 0 { 0 } else { part(self.since(now).saturating_sub(began), self.speedup.load(Relaxed)) }
    }

    /// What the window cost until `now`.
    #[must_use]
    pub fn spent(&self, now: u64) -> Spent {
        Spent {
            delayed: self.total(now),
            held: self.held.load(Relaxed),
            ahead: self.ahead.load(Relaxed),
            slept: self.slept.load(Relaxed),
            dropped: self.dropped.load(Relaxed),
        }
    }

    /// When the window began.
    #[must_use]
    pub fn began(&self) -> u64 {
        self.began.load(Relaxed)
    }

    fn since(&self, now: u64) -> u64 {
        now.saturating_sub(self.began())
    }

    /// How long a thread was neither blocked nor paused until `now`.
    #[must_use]
    pub fn busy(&self, account: &Account, now: u64) -> u64 {
        let blocked = self.blocked.get(account.number() as usize).map_or(0, |blocked| blocked.load(Relaxed));
        let since = account.blocked_since.load(Relaxed);
        let still = if since == 0 { 0 } else { now.saturating_sub(since.max(self.began())) };
        self.since(now).saturating_sub(blocked + still)
    }

    /// The thread's first hook of the window. It was there when the window began, and owes what was paused since unless this very
    /// hook says that it was blocked.
    pub fn join(&self, account: &Account, window: u32) {
        account.window.store(window, Relaxed);
        account.mark.store(self.began(), Relaxed);
        account.delay.store(0, Relaxed);
        account.excess.store(0, Relaxed);
        account.cause.store(0, Relaxed);
        account.stamps.store(JOINED, Relaxed);
        if account.blocked_since.load(Relaxed) != 0 {
            account.blocked_since.store(self.began(), Relaxed);
        }
    }

    /// The thread begins in the window: it owes nothing, and what it is told first says from when on it counts.
    pub fn begin(&self, account: &Account, window: u32, now: u64) {
        self.join(account, window);
        account.blocked_since.store(0, Relaxed);
        account.mark.store(now, Relaxed);
        account.delay.store(self.total(now), Relaxed);
    }

    /// Credits the thread with what it ran since it was last credited: to be called before its kind of work changes, and wherever it
    /// meets others.
    #[inline]
    pub fn credit(&self, account: &Account, now: u64) {
        if account.blocked_since.load(Relaxed) != 0 || !self.knows(account) {
            return;
        }
        if account.stamps.load(Relaxed) == JOINED {
            account.stamps.store(WORKING, Relaxed);
        }
        let ran = now.saturating_sub(account.mark.load(Relaxed)).saturating_sub(self.hook.load(Relaxed));
        account.mark.store(now.max(account.mark.load(Relaxed)), Relaxed);
        let kind = account.kind.load(Relaxed) as usize;
        let weight = self.weights.get(kind).map_or(0, |weight| weight.load(Relaxed));
        if weight == 0 {
            return;
        }
        let ran = match self.running.get(account.number() as usize) {
            Some(running) => part(ran, running.load(Relaxed)),
            None => ran,
        };
        let delay = account.delay.load(Relaxed) + part(ran, weight);
        account.delay.store(delay, Relaxed);
        self.largest.fetch_max(delay, Relaxed);
    }

    /// Whether the account is of the window that is open. One that is not is of a thread that stood still in the middle of a hook, while
    /// its window ended and another one began: it joins that at its next hook, and what it did before is nothing to it.
    fn knows(&self, account: &Account) -> bool {
        account.window.load(Relaxed) == self.window.load(Relaxed)
    }

    /// What the thread has to sleep before it goes on; 0 when nothing. What it slept too long before is taken off.
    #[must_use]
    pub fn owed(&self, account: &Account, urgency: Urgency, now: u64) -> u64 {
        let debt = self.total(now).saturating_sub(account.delay.load(Relaxed));
        let excess = u64::try_from(account.excess.load(Relaxed)).unwrap_or(0);
        let paid = debt.min(excess);
        account.delay.fetch_add(paid, Relaxed);
        account.excess.store((excess - paid) as i64, Relaxed);
        let least = if urgency == Urgency::Awaited { URGENT } else { QUANTUM };
        if debt - paid < least { 0 } else { debt - paid }
    }

    /// The thread slept for what it owed, from `since` to `now`. What was slept beyond is kept for the next time and pauses nobody
    /// else.
    pub fn paid(&self, account: &Account, owed: u64, since: u64, now: u64) {
        let slept = now.saturating_sub(since);
        account.delay.fetch_add(owed.min(slept), Relaxed);
        account.excess.fetch_add(slept.saturating_sub(owed) as i64, Relaxed);
        account.mark.store(now, Relaxed);
        self.slept.fetch_add(slept, Relaxed);
        self.was_blocked(account, slept);
    }

    fn was_blocked(&self, account: &Account, time: u64) {
        if let Some(blocked) = self.blocked.get(account.number() as usize) {
            blocked.fetch_add(time, Relaxed);
        }
    }

    /// All by which the thread is behind the clock.
    fn delay(account: &Account) -> u64 {
        account.delay.load(Relaxed) + u64::try_from(account.excess.load(Relaxed)).unwrap_or(0)
    }

    fn set_delay(&self, account: &Account, delay: u64, now: u64) {
        let ahead = Self::delay(account).saturating_sub(delay);
        if ahead > 0 {
            self.ahead.fetch_add(ahead, Relaxed);
        }
        let counted = delay.min(self.total(now));
        account.delay.store(counted, Relaxed);
        account.excess.store((delay - counted) as i64, Relaxed);
    }

    /// The thread's virtual time from the window's begin; never 0, and below [`Self::start`] when it is before the begin.
    #[must_use]
    pub fn virtual_time(&self, account: &Account, now: u64) -> u64 {
        (BEFORE + self.since(now)).saturating_sub(Self::delay(account))
    }

    /// The virtual time at which the window began.
    #[must_use]
    pub const fn start() -> u64 {
        BEFORE
    }

    /// What a message carries that the thread sends, or a timer that it sets.
    #[must_use]
    pub fn sent(&self, account: &Account, window: u32, now: u64) -> Stamp {
        self.credit(account, now);
        self.stamped(account, window, now, false)
    }

    fn stamped(&self, account: &Account, window: u32, now: u64, is_target: bool) -> Stamp {
        let sent = (self.since(now) + UNIT / 2) / UNIT;
        let delay = ((Self::delay(account) + UNIT / 2) / UNIT).min((1 << DELAY_BITS) - 1);
        if sent >= 1 << SENT_BITS {
            return Stamp::default();
        }
        Stamp::new(window, sent << (DELAY_BITS + 1) | delay << 1 | u64::from(is_target))
    }

    fn reading(stamp: Stamp, window: u32) -> Option<Reading> {
        stamp.value(window).map(|value| Reading {
            sent: (value >> (DELAY_BITS + 1)) * UNIT,
            delay: (value >> 1 & ((1 << DELAY_BITS) - 1)) * UNIT,
            is_target: value & 1 == 1,
        })
    }

    /// The thread took a message, for which it was blocked so long until `now`.
    pub fn received(&self, account: &Account, window: u32, stamp: Stamp, blocked: u64, now: u64) {
        let joined = account.stamps.load(Relaxed) == JOINED;
        let blocked = self.unblocked(account, blocked, now);
        let delay = Self::delay(account);
        let total = self.total(now);
        let latest = |reading: Reading| reading.delay + self.since(now).saturating_sub(reading.sent);
        let delay = match Self::reading(stamp, window) {
            // What it did before the window knew it is not known: it goes on where the message was.
            Some(reading) if joined => reading.delay,
            // The time to wake up is no pause. But it may have come long before the one that ended the wait.
            Some(reading) if blocked > 0 => {
                let is_cause = self.since(now).saturating_sub(reading.sent) <= blocked.min(WAKE_MAX);
                let most = if is_cause { reading.delay } else { latest(reading).min(total).max(reading.delay) };
                most.min(delay + blocked)
            }
            Some(reading) => delay.min(latest(reading)),
            None if blocked > 0 => delay.max(total).min(delay + blocked),
            None => delay,
        };
        self.set_delay(account, delay, now);
        let cause = match Self::reading(stamp, window) {
            Some(reading) if account.is_worker() => (BEFORE + reading.sent).saturating_sub(reading.delay),
            _ => 0,
        };
        self.begin_job(account, cause);
    }

    /// Time until a block began is credited; how long it lasted within the window.
    fn unblocked(&self, account: &Account, blocked: u64, now: u64) -> u64 {
        let blocked = blocked.min(self.since(now));
        self.credit(account, now - blocked);
        account.mark.store(now, Relaxed);
        self.was_blocked(account, blocked);
        blocked
    }

    fn begin_job(&self, account: &Account, cause: u64) {
        account.stamps.store(WORKING, Relaxed);
        account.cause.store(cause, Relaxed);
    }

    /// The thread waits for it does not know what.
    pub fn block_began(&self, account: &Account, now: u64) {
        self.credit(account, now);
        account.blocked_since.store(now.max(1), Relaxed);
    }

    /// It waits no more: what it owed is paid by the waiting.
    pub fn block_ended(&self, account: &Account, now: u64) {
        let since = account.blocked_since.swap(0, Relaxed);
        if since == 0 {
            return;
        }
        let blocked = now.saturating_sub(since);
        account.mark.store(now, Relaxed);
        self.was_blocked(account, blocked);
        let delay = Self::delay(account);
        self.set_delay(account, delay.max(self.total(now)).min(delay + blocked), now);
        account.stamps.store(since.max(WORKING + 1), Relaxed);
        account.cause.store(0, Relaxed);
    }

    /// The thread took a lock, for which it was blocked so long until `now`; the stamp is the lock's.
    pub fn locked(&self, account: &Account, window: u32, stamp: Stamp, blocked: u64, now: u64) {
        let blocked = self.unblocked(account, blocked, now);
        let delay = Self::delay(account);
        let delay = match Self::reading(stamp, window) {
            // Who is woken may be overtaken, so how long it took to be up says nothing.
            Some(reading) if blocked > 0 => reading.delay.min(delay + blocked),
            Some(reading) => delay.min(reading.delay + self.since(now).saturating_sub(reading.sent)),
            None if blocked > 0 => delay.max(self.total(now)).min(delay + blocked),
            None => delay,
        };
        self.set_delay(account, delay, now);
    }

    /// What a lock carries when the thread gives it up: readers leave the latest of them.
    #[must_use]
    pub fn unlocked(&self, account: &Account, window: u32, was: Stamp, sharing: Sharing, now: u64) -> Stamp {
        let mine = self.sent(account, window, now);
        let released =
            |stamp| Self::reading(stamp, window).map(|reading| (BEFORE + reading.sent).saturating_sub(reading.delay));
        if sharing == Sharing::Shared && released(was) > released(mine) { was } else { mine }
    }

    /// How long what came on a connection, or as the answer to a call, at `arrived` must wait. What came at a time that is not known
    /// (0) need not: whoever works on it owes for working ahead. G may grow meanwhile, so this is asked again when the time is over.
    #[must_use]
    pub fn hold(&self, window: u32, stamp: Stamp, arrived: u64, now: u64) -> Option<u64> {
        if arrived == 0 {
            return None;
        }
        let wait = self.early(self.due_delay(window, stamp, arrived), arrived, now);
        if !(HOLD_MIN..=self.hold_max()).contains(&wait) {
            return None;
        }
        self.held.fetch_add(wait, Relaxed);
        Some(wait)
    }

    fn hold_max(&self) -> u64 {
        if self.probe.load(Relaxed) == 0 { HOLD_MAX } else { HOLD_MAX_PROBED }
    }

    /// By how much what came at `arrived` with that delay is too early: it is due at arrived − delay of virtual time, which is now − G.
    fn early(&self, delay: u64, arrived: u64, now: u64) -> u64 {
        self.total(now).saturating_sub(delay).saturating_sub(now.saturating_sub(arrived))
    }

    /// The delay of what the world sent: that of what it answers, and for a call of the target's what it saved.
    fn due_delay(&self, window: u32, stamp: Stamp, arrived: u64) -> u64 {
        // What is older than the window answers what had no delay.
        Self::reading(stamp, window).map_or(0, |reading| {
            let took = self.since(arrived).saturating_sub(reading.sent);
            reading.delay + if reading.is_target { part(took, self.speedup.load(Relaxed)) } else { 0 }
        })
    }

    /// What came on a connection at `arrived` is worked on from `now`; 0 when the time is not known.
    pub fn arrived(&self, account: &Account, window: u32, stamp: Stamp, arrived: u64, now: u64) {
        self.credit(account, now);
        let arrived = if arrived == 0 { self.guess(account, window, stamp, now) } else { arrived };
        let due = self.due_delay(window, stamp, arrived);
        self.caused(account, due, arrived, now);
    }

    /// When something came that answers what the stamp is of. A loop that waited was woken by it; one that was busy looked late, so it
    /// is taken to have come as fast as others did.
    fn guess(&self, account: &Account, window: u32, stamp: Stamp, now: u64) -> u64 {
        let Some(reading) = Self::reading(stamp, window) else { return now };
        let usual = self.usual_gap.load(Relaxed);
        if account.stamps.load(Relaxed) > WORKING {
            let gap = self.since(now).saturating_sub(reading.sent);
            // A mean of about the last sixteen.
            self.usual_gap.store(if usual == 0 { gap } else { (15 * usual + gap) / 16 }, Relaxed);
            return now;
        }
        if usual == 0 { now } else { now.min(self.began() + reading.sent + usual) }
    }

    /// The thread's work is because of what came at `arrived` with that delay.
    fn caused(&self, account: &Account, mut delay: u64, arrived: u64, now: u64) {
        if self.early(delay, arrived, now) > self.hold_max() {
            // Else the thread would sleep for it what the message did not have to, and all its connections with it.
            self.dropped.fetch_add(1, Relaxed);
            delay = delay.max(Self::delay(account));
        }
        // A loop that waited when it came was up a little later: that is the program's own time, and no pause. What was held had been
        // looked at before the loop waited.
        let waited_since = account.stamps.load(Relaxed);
        let is_woken = waited_since > WORKING && arrived >= waited_since;
        let latest = delay + if is_woken { 0 } else { now.saturating_sub(arrived) };
        if latest < Self::delay(account) {
            self.set_delay(account, latest, now);
        }
        let before = self.began().saturating_sub(arrived);
        self.begin_job(account, (BEFORE + self.since(arrived)).saturating_sub(before + delay));
    }

    /// What a call to the outside carries. While one of the target's is unanswered, everybody else owes what it saves.
    #[must_use]
    pub fn called(&self, account: &Account, window: u32, whom: u32, now: u64) -> Stamp {
        self.credit(account, now);
        let is_target = self.whom.load(Relaxed) == whom + 1 && self.knows(account);
        let stamp = self.stamped(account, window, now, is_target);
        if is_target && stamp != Stamp::default() {
            let since = self.since(now);
            let more =
                |calls: u64| Some(if calls == 0 { 1 << CALLS_SHIFT | since } else { calls + (1 << CALLS_SHIFT) });
            let _ = self.calls.fetch_update(Relaxed, Relaxed, more);
        }
        stamp
    }

    /// The answer came at `arrived` and is worked on from `now`.
    pub fn answered(&self, account: &Account, window: u32, stamp: Stamp, arrived: u64, now: u64) {
        self.credit(account, now);
        let delay = self.due_delay(window, stamp, arrived);
        self.caused(account, delay, arrived, now);
        if Self::reading(stamp, window).is_some_and(|reading| reading.is_target) && self.knows(account) {
            let less = |calls: u64| match calls >> CALLS_SHIFT {
                0 => None,
                1 => Some(0),
                _ => Some(calls - (1 << CALLS_SHIFT)),
            };
            if let Ok(calls) = self.calls.fetch_update(Relaxed, Relaxed, less)
                && calls >> CALLS_SHIFT == 1
            {
                self.largest.fetch_add(self.called_since(calls, arrived), Relaxed);
            }
        }
    }

    /// A sleep is over, through which the thread itself was blocked so long. The clock that woke it is the world's and was not
    /// paused: what was paused meanwhile is still to be slept.
    pub fn woke(&self, account: &Account, window: u32, timer: Stamp, blocked: u64, now: u64) {
        let woken = account.stamps.load(Relaxed) > WORKING;
        self.unblocked(account, blocked, now);
        let set = Self::reading(timer, window).map_or(0, |reading| reading.delay);
        // A loop that was woken by the timer waited for it; one that was busy came to it some time after it was due.
        if woken && set < Self::delay(account) {
            self.set_delay(account, set, now);
        }
        let cause = if account.is_worker() { self.virtual_time(account, now) } else { 0 };
        self.begin_job(account, cause);
    }

    /// The virtual time at which a unit begins: with the cause of what the thread works on.
    #[must_use]
    pub fn visit_began(&self, account: &Account, now: u64) -> u64 {
        match account.cause.load(Relaxed) {
            0 => self.virtual_time(account, now),
            cause => cause,
        }
    }
}

/// What a thread is at, in the cell for its stamps, which have no numbers here: it did nothing in the window yet, or it works. Any
/// larger number: it was just woken, and had waited since then.
const JOINED: u64 = 1;
const WORKING: u64 = 2;

fn fixed(part: f64) -> u32 {
    (part.clamp(0.0, 1.0) * ONE).round() as u32
}

/// A part of a time, to the nearest nanosecond.
fn part(time: u64, fixed: u32) -> u64 {
    ((u128::from(time) * u128::from(fixed) + (1 << 29)) >> 30) as u64
}

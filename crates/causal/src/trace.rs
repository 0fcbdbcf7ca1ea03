//! What a window recorded: for each thread, what it did and when, in the terms in which it can be replayed.
//!
//! An [`Event`] is one or two [`Entry`]s of the thread's log: the time with a tag and a number, then what else there is to say.
//!
//! - `packed`: a trace in little memory.

mod packed;

use progress::{Entry, Sharing};

pub use packed::{Head, Packed};

/// One thing that a thread did. Numbers of messages, connections, calls, timers, locks and visits are unique in their window; 0 stands
/// for one from before it. Times are nanoseconds of [`crate::clock`], durations nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "numbers and durations, as said above")]
pub enum Event {
    /// From now on it does work of that kind.
    Kind(u32),
    /// The same, and what it does until the next event is to wake whoever waits for what it did last.
    Waking(u32),
    /// It sent a message to a thread of the program.
    Sent { message: u64 },
    /// It took one, for which it had been blocked so long until now.
    Took { message: u64, blocked: u64 },
    /// It waits for it does not say what; an event loop: for its next event.
    BlockBegan,
    /// It waits no more.
    BlockEnded,
    /// It took a lock, for which it had been blocked so long until now.
    Locked { lock: u64, sharing: Sharing, blocked: u64 },
    /// It gives the lock up.
    Unlocked { lock: u64, sharing: Sharing },
    /// It hands octets to the outside on a connection.
    Written { connection: u64 },
    /// It works on what came on a connection at `at`; when that is not known it is the time of the event.
    Arrived { connection: u64, at: u64 },
    /// It waits for somebody outside, and the time until the answer is the span's. `is_first` where it is the first word of that call in
    /// the window: it asks now, or it had asked before the window and is about to look for an answer; else it looks for the rest of one.
    Called { call: u64, whom: u32, is_first: bool },
    /// It works on the answer that came at `at`.
    Answered { call: u64, at: u64 },
    /// It, or a task on it, begins to sleep.
    SleepBegan { timer: u64 },
    /// The sleep is over, through which the thread itself was blocked so long.
    SleepEnded { timer: u64, blocked: u64 },
    /// One unit of progress.
    Hit { point: u32 },
    /// A unit began with what the thread works on.
    VisitBegan { visit: u64 },
    /// It is done.
    VisitEnded { visit: u64, point: u32 },
}

/// One window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// When it began and ended.
    pub span: std::ops::Range<u64>,
    /// What a hook took of its thread's time, nanoseconds: of each stretch that it worked between two of them.
    pub hook: f64,
    /// What it takes to wake a thread where a processor is free, nanoseconds: for threads of which no window tells.
    pub wake_up: f64,
    /// Threads that did anything.
    pub threads: Vec<Thread>,
}

/// What one thread did in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// The account's number.
    pub number: u32,
    /// Whether it is an event loop: it works on what arrived first. Else it does one thing after the other.
    pub is_worker: bool,
    /// Which part of the time that it was not blocked it really had a processor; 1 when that is not known.
    pub running: f64,
    /// What kind of work it was at when the window began.
    pub kind: u32,
    /// What it did, by time.
    pub events: Vec<(u64, Event)>,
}

/// What hooks take of a thread's time: of every stretch that it works between two of them one hook's time, on average. Short stretches have
/// cheap hooks, so what does not fit into one is taken off those behind it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    each: f64,
    owed: f64,
    /// How many there were so far, and what they took.
    pub(crate) count: u64,
    pub(crate) taken: f64,
}

impl Hooks {
    /// Each takes so long, nanoseconds.
    pub(crate) fn new(each: f64) -> Self {
        Self { each, owed: 0.0, count: 0, taken: 0.0 }
    }

    /// What they take of the next stretch, which was so long: no more than all.
    pub(crate) fn take(&mut self, worked: f64) -> f64 {
        if worked <= 0.0 {
            return 0.0;
        }
        self.count += 1;
        self.owed += self.each;
        let taken = worked.min(self.owed);
        self.owed -= taken;
        self.taken += taken;
        taken
    }
}

const TAG_SHIFT: u32 = 56;
const NUMBER_MASK: u64 = (1 << TAG_SHIFT) - 1;
/// Set in the second entry of a call's first word, above the 32 bits of the span.
const FIRST_MORE: u64 = 1 << 32;

mod tag {
    pub(super) const KIND: u64 = 1;
    pub(super) const SENT: u64 = 2;
    pub(super) const TOOK: u64 = 3;
    pub(super) const BLOCK_BEGAN: u64 = 4;
    pub(super) const BLOCK_ENDED: u64 = 5;
    pub(super) const LOCKED: u64 = 6;
    pub(super) const LOCKED_SHARED: u64 = 7;
    pub(super) const UNLOCKED: u64 = 8;
    pub(super) const UNLOCKED_SHARED: u64 = 9;
    pub(super) const WRITTEN: u64 = 10;
    pub(super) const ARRIVED: u64 = 11;
    pub(super) const CALLED: u64 = 12;
    pub(super) const ANSWERED: u64 = 13;
    pub(super) const SLEEP_BEGAN: u64 = 14;
    pub(super) const SLEEP_ENDED: u64 = 15;
    pub(super) const HIT: u64 = 16;
    pub(super) const VISIT_BEGAN: u64 = 17;
    pub(super) const VISIT_ENDED: u64 = 18;
    pub(super) const WAKING: u64 = 19;
    /// What else there is to say about the entry before.
    pub(super) const MORE: u64 = 255;
}

/// How many numbers tags of events have, from 0 on.
const TAGS: usize = tag::WAKING as usize + 1;

impl Event {
    /// As entries of a log; the second one only where there is more to say.
    #[inline]
    #[must_use]
    pub fn encode(self, now: u64) -> (Entry, Option<Entry>) {
        let (tag, number, more) = match self {
            Self::Kind(kind) => (tag::KIND, u64::from(kind), None),
            Self::Waking(kind) => (tag::WAKING, u64::from(kind), None),
            Self::Sent { message } => (tag::SENT, message, None),
            Self::Took { message, blocked } => (tag::TOOK, message, (blocked > 0).then_some(blocked)),
            Self::BlockBegan => (tag::BLOCK_BEGAN, 0, None),
            Self::BlockEnded => (tag::BLOCK_ENDED, 0, None),
            Self::Locked { lock, sharing, blocked } => {
                let tag = if sharing == Sharing::Shared { tag::LOCKED_SHARED } else { tag::LOCKED };
                (tag, lock, (blocked > 0).then_some(blocked))
            }
            Self::Unlocked { lock, sharing } => {
                (if sharing == Sharing::Shared { tag::UNLOCKED_SHARED } else { tag::UNLOCKED }, lock, None)
            }
            Self::Written { connection } => (tag::WRITTEN, connection, None),
            Self::Arrived { connection, at } => (tag::ARRIVED, connection, (at != now).then_some(at)),
            Self::Called { call, whom, is_first } => {
                (tag::CALLED, call, Some(u64::from(whom) | if is_first { FIRST_MORE } else { 0 }))
            }
            Self::Answered { call, at } => (tag::ANSWERED, call, (at != now).then_some(at)),
            Self::SleepBegan { timer } => (tag::SLEEP_BEGAN, timer, None),
            Self::SleepEnded { timer, blocked } => (tag::SLEEP_ENDED, timer, (blocked > 0).then_some(blocked)),
            Self::Hit { point } => (tag::HIT, u64::from(point), None),
            Self::VisitBegan { visit } => (tag::VISIT_BEGAN, visit, None),
            Self::VisitEnded { visit, point } => (tag::VISIT_ENDED, visit, Some(u64::from(point))),
        };
        (Entry(now, tag << TAG_SHIFT | number & NUMBER_MASK), more.map(|more| Entry(more, tag::MORE << TAG_SHIFT)))
    }
}

/// The events that a log holds. Of the last one in a log that is full the second entry may be missing, unless it has none.
pub fn events(entries: impl Iterator<Item = Entry>) -> impl Iterator<Item = (u64, Event)> {
    let mut entries = entries.peekable();
    std::iter::from_fn(move || {
        loop {
            let Entry(now, word) = entries.next()?;
            let more = entries.next_if(|next| next.1 >> TAG_SHIFT == tag::MORE).map(|next| next.0);
            if let Some(event) = event(now, word, more) {
                return Some((now, event));
            }
        }
    })
}

/// What entries stand for; `None` for what no event has.
fn event(now: u64, word: u64, more: Option<u64>) -> Option<Event> {
    let (number, more_or_now) = (word & NUMBER_MASK, more.unwrap_or(now));
    let more = more.unwrap_or(0);
    Some(match word >> TAG_SHIFT {
        tag::KIND => Event::Kind(number as u32),
        tag::WAKING => Event::Waking(number as u32),
        tag::SENT => Event::Sent { message: number },
        tag::TOOK => Event::Took { message: number, blocked: more },
        tag::BLOCK_BEGAN => Event::BlockBegan,
        tag::BLOCK_ENDED => Event::BlockEnded,
        tag::LOCKED => Event::Locked { lock: number, sharing: Sharing::Exclusive, blocked: more },
        tag::LOCKED_SHARED => Event::Locked { lock: number, sharing: Sharing::Shared, blocked: more },
        tag::UNLOCKED => Event::Unlocked { lock: number, sharing: Sharing::Exclusive },
        tag::UNLOCKED_SHARED => Event::Unlocked { lock: number, sharing: Sharing::Shared },
        tag::WRITTEN => Event::Written { connection: number },
        tag::ARRIVED => Event::Arrived { connection: number, at: more_or_now },
        tag::CALLED => Event::Called { call: number, whom: more as u32, is_first: more & FIRST_MORE != 0 },
        tag::ANSWERED => Event::Answered { call: number, at: more_or_now },
        tag::SLEEP_BEGAN => Event::SleepBegan { timer: number },
        tag::SLEEP_ENDED => Event::SleepEnded { timer: number, blocked: more },
        tag::HIT => Event::Hit { point: number as u32 },
        tag::VISIT_BEGAN => Event::VisitBegan { visit: number },
        tag::VISIT_ENDED => Event::VisitEnded { visit: number, point: more as u32 },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What does not fit is owed, however long; nothing is taken of no time, and never more than all.
    #[test]
    fn hooks_take_what_they_owe_and_no_more_than_there_is() {
        let mut hooks = Hooks::new(25.0);
        let taken = [20.0, 0.0, -1.0, 10.0, 5.0, 100.0, 100.0].map(|worked| hooks.take(worked));
        assert_eq!(taken, [20.0, 0.0, 0.0, 10.0, 5.0, 65.0, 25.0]);
        assert_eq!((hooks.count, hooks.taken, hooks.owed), (5, 125.0, 0.0));
    }

    /// One of each.
    pub(super) const EVENTS: [Event; 21] = [
        Event::Kind(7),
        Event::Waking(8),
        Event::Sent { message: 1 << 39 },
        Event::Took { message: 3, blocked: 0 },
        Event::Took { message: 3, blocked: 9 },
        Event::BlockBegan,
        Event::BlockEnded,
        Event::Locked { lock: 4, sharing: Sharing::Exclusive, blocked: 5 },
        Event::Locked { lock: 4, sharing: Sharing::Shared, blocked: 0 },
        Event::Unlocked { lock: 4, sharing: Sharing::Shared },
        Event::Unlocked { lock: 4, sharing: Sharing::Exclusive },
        Event::Written { connection: 5 },
        Event::Arrived { connection: 5, at: 77 },
        Event::Called { call: 6, whom: u32::MAX, is_first: false },
        Event::Called { call: 6, whom: 8, is_first: true },
        Event::Answered { call: 6, at: 1 },
        Event::SleepBegan { timer: 2 },
        Event::SleepEnded { timer: 2, blocked: 11 },
        Event::Hit { point: 1 },
        Event::VisitBegan { visit: 12 },
        Event::VisitEnded { visit: 12, point: 0 },
    ];

    #[test]
    fn what_is_written_down_is_what_is_read() {
        let mut entries = Vec::new();
        for (at, event) in (100..).zip(EVENTS) {
            let (entry, more) = event.encode(at);
            entries.push(entry);
            entries.extend(more);
        }
        let want: Vec<_> = (100..).zip(EVENTS).collect();
        assert_eq!(events(entries.into_iter()).collect::<Vec<_>>(), want);
    }
}

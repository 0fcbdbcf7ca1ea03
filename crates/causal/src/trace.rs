//! A recorded window: for each thread, its events and their times, in terms that can be replayed.
//!
//! An [`Event`] is one or two [`Entry`]s of the thread's log: the first holds its time, a tag and a number, the second
//! a further value.
//!
//! - `packed`: a compact form of a trace.

mod packed;

use progress::{Entry, Sharing};

pub use packed::{Packed, PackedThread};

/// An event of a thread. Numbers of messages, connections, calls, timers, locks and visits are unique in their window;
/// 0 stands for one from before it. Times are nanoseconds of [`crate::clock`], durations nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "numbers and durations, see above")]
pub enum Event {
    /// The thread starts work of that kind.
    Kind(u32),
    /// The thread starts work of that kind; until its next event it wakes the threads that wait for its last event.
    Waking(u32),
    /// It sent a message to another thread of the program.
    Sent { message: u64 },
    /// It took a message, after it was blocked for `blocked`.
    Took { message: u64, blocked: u64 },
    /// It took a message that waited in a queue until its present work made room.
    Dequeued { message: u64 },
    /// It blocks for an unspecified event; an event loop waits for its next event.
    BlockBegan,
    /// It is no longer blocked.
    BlockEnded,
    /// It took a lock, after it was blocked for `blocked`.
    Locked { lock: u64, sharing: Sharing, blocked: u64 },
    /// It releases the lock.
    Unlocked { lock: u64, sharing: Sharing },
    /// It hands bytes for a connection to the kernel.
    Written { connection: u64 },
    /// It handles bytes that arrived on a connection at `at`; the time of the event if that is unknown.
    Arrived { connection: u64, at: u64 },
    /// It waits for an outside service, and the time until the answer belongs to the span `callee`. `is_first` marks
    /// the call's first event in the window: the thread sends the call now, or sent it before the window and is about
    /// to look for an answer. Otherwise it looks for the rest of an answer.
    Called { call: u64, callee: u32, is_first: bool },
    /// It handles the answer that arrived at `at`.
    Answered { call: u64, at: u64 },
    /// The thread, or a task on it, begins to sleep.
    SleepBegan { timer: u64 },
    /// The sleep is over; the thread itself was blocked for `blocked` of it.
    SleepEnded { timer: u64, blocked: u64 },
    /// One unit of progress.
    Hit { point: u32 },
    /// A unit of progress began with the message that the thread handles.
    VisitBegan { visit: u64 },
    /// The unit is done.
    VisitEnded { visit: u64, point: u32 },
}

/// The events of one window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    /// The times at which it began and ended.
    pub time: std::ops::Range<u64>,
    /// The time that a hook took, nanoseconds: part of each stretch of work between two hooks.
    pub hook: f64,
    /// The time to wake a thread when a processor is free, nanoseconds: an assumption for threads without measured
    /// wakeups.
    pub wake_up: f64,
    /// The threads that had events.
    pub threads: Vec<Thread>,
}

/// The events of one thread in a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// The account's number.
    pub number: u32,
    /// Whether it is an event loop: it handles messages in the order of their arrival. Other threads run in program
    /// order.
    pub is_worker: bool,
    /// Fraction of its unblocked time in which it had a processor or waited for one; 1 if unknown. The rest is a wait
    /// that no hook reports (a file, a page fault).
    pub runnable: f64,
    /// Its kind of work when the window began.
    pub kind: u32,
    /// Its events, in order of time.
    pub events: Vec<(u64, Event)>,
}

/// Removes the time of hooks from a thread's stretches of work: on average one hook's time from each stretch between
/// two hooks. Hooks in short stretches are cheaper than that, so the part that exceeds a stretch is taken off the next
/// ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hooks {
    each: f64,
    owed: f64,
    /// Number of hooks so far, and the time taken off for them.
    pub(crate) count: u64,
    pub(crate) taken: f64,
}

impl Hooks {
    /// Starts with `each` nanoseconds per hook.
    pub(crate) fn new(each: f64) -> Self {
        Self { each, owed: 0.0, count: 0, taken: 0.0 }
    }

    /// Returns the time of hooks to take off the next stretch, which was `worked` nanoseconds long: never more than
    /// that.
    pub(crate) fn take(&mut self, worked: f64) -> f64 {
        // No work, no hook in between: two events of one call.
        if worked <= 0.0 {
            return 0.0;
        }
        self.count += 1;
        // Carry over the excess: the average is right even if single stretches are shorter than a hook.
        self.owed += self.each;
        let taken = worked.min(self.owed);
        self.owed -= taken;
        self.taken += taken;
        taken
    }
}

/// An entry's second word has the tag of its event from this bit on, and a number in the bits below.
const TAG_SHIFT: u32 = 56;
const NUMBER_MASK: u64 = (1 << TAG_SHIFT) - 1;
/// In the second entry of a call, above the 32 bits of the span: marks the call's first event.
const FIRST_MORE: u64 = 1 << 32;

/// Tags of events.
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
    pub(super) const DEQUEUED: u64 = 20;
    /// The second entry of the event before.
    pub(super) const MORE: u64 = 255;
}

/// Number of values for tags of events, from 0.
const TAGS: usize = tag::DEQUEUED as usize + 1;

impl Event {
    /// Encodes the event as entries of a log; the second one only if the event needs it.
    #[inline]
    #[must_use]
    pub fn encode(self, now: u64) -> (Entry, Option<Entry>) {
        let (tag, number, more) = match self {
            Self::Kind(kind) => (tag::KIND, u64::from(kind), None),
            Self::Waking(kind) => (tag::WAKING, u64::from(kind), None),
            Self::Sent { message } => (tag::SENT, message, None),
            Self::Took { message, blocked } => (tag::TOOK, message, (blocked > 0).then_some(blocked)),
            Self::Dequeued { message } => (tag::DEQUEUED, message, None),
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
            Self::Called { call, callee, is_first } => {
                (tag::CALLED, call, Some(u64::from(callee) | if is_first { FIRST_MORE } else { 0 }))
            }
            Self::Answered { call, at } => (tag::ANSWERED, call, (at != now).then_some(at)),
            Self::SleepBegan { timer } => (tag::SLEEP_BEGAN, timer, None),
            Self::SleepEnded { timer, blocked } => (tag::SLEEP_ENDED, timer, (blocked > 0).then_some(blocked)),
            Self::Hit { point } => (tag::HIT, u64::from(point), None),
            Self::VisitBegan { visit } => (tag::VISIT_BEGAN, visit, None),
            Self::VisitEnded { visit, point } => (tag::VISIT_ENDED, visit, Some(u64::from(point))),
        };
        // Two words of eight bytes each: a thread writes an entry with two stores and no lock. The mask cuts numbers to
        // 56 bits, which a counter of events does not reach.
        (Entry(now, tag << TAG_SHIFT | number & NUMBER_MASK), more.map(|more| Entry(more, tag::MORE << TAG_SHIFT)))
    }
}

/// Decodes the events of a log. In a full log the last event may lack its second entry, so its values may be wrong.
pub fn events(entries: impl Iterator<Item = Entry>) -> impl Iterator<Item = (u64, Event)> {
    let mut entries = entries.peekable();
    std::iter::from_fn(move || {
        loop {
            let Entry(now, word) = entries.next()?;
            // The second entry has no time of its own: it belongs to the entry before it. A lone second entry (its
            // first one was before the window) has a tag that `event` does not know, and is skipped.
            let more = entries.next_if(|next| next.1 >> TAG_SHIFT == tag::MORE).map(|next| next.0);
            if let Some(event) = event(now, word, more) {
                return Some((now, event));
            }
        }
    })
}

/// Decodes one event; `None` for an unknown tag.
fn event(now: u64, word: u64, more: Option<u64>) -> Option<Event> {
    let (number, more_or_now) = (word & NUMBER_MASK, more.unwrap_or(now));
    let more = more.unwrap_or(0);
    Some(match word >> TAG_SHIFT {
        tag::KIND => Event::Kind(number as u32),
        tag::WAKING => Event::Waking(number as u32),
        tag::SENT => Event::Sent { message: number },
        tag::TOOK => Event::Took { message: number, blocked: more },
        tag::DEQUEUED => Event::Dequeued { message: number },
        tag::BLOCK_BEGAN => Event::BlockBegan,
        tag::BLOCK_ENDED => Event::BlockEnded,
        // Sharing is in the tag, because the number and the second entry are both taken.
        tag::LOCKED => Event::Locked { lock: number, sharing: Sharing::Exclusive, blocked: more },
        tag::LOCKED_SHARED => Event::Locked { lock: number, sharing: Sharing::Shared, blocked: more },
        tag::UNLOCKED => Event::Unlocked { lock: number, sharing: Sharing::Exclusive },
        tag::UNLOCKED_SHARED => Event::Unlocked { lock: number, sharing: Sharing::Shared },
        tag::WRITTEN => Event::Written { connection: number },
        tag::ARRIVED => Event::Arrived { connection: number, at: more_or_now },
        tag::CALLED => Event::Called { call: number, callee: more as u32, is_first: more & FIRST_MORE != 0 },
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

    /// The excess is carried over, however large. Nothing is taken off an empty stretch, and never more than a stretch
    /// has.
    #[test]
    fn hook_time_is_deducted_and_bounded_by_the_stretch() {
        let mut hooks = Hooks::new(25.0);
        let taken = [20.0, 0.0, -1.0, 10.0, 5.0, 100.0, 100.0].map(|worked| hooks.take(worked));
        assert_eq!(taken, [20.0, 0.0, 0.0, 10.0, 5.0, 65.0, 25.0]);
        assert_eq!((hooks.count, hooks.taken, hooks.owed), (5, 125.0, 0.0));
    }

    /// At least one event of each variant.
    pub(super) const EVENTS: [Event; 22] = [
        Event::Kind(7),
        Event::Waking(8),
        Event::Sent { message: 1 << 39 },
        Event::Took { message: 3, blocked: 0 },
        Event::Took { message: 3, blocked: 9 },
        Event::Dequeued { message: 2 },
        Event::BlockBegan,
        Event::BlockEnded,
        Event::Locked { lock: 4, sharing: Sharing::Exclusive, blocked: 5 },
        Event::Locked { lock: 4, sharing: Sharing::Shared, blocked: 0 },
        Event::Unlocked { lock: 4, sharing: Sharing::Shared },
        Event::Unlocked { lock: 4, sharing: Sharing::Exclusive },
        Event::Written { connection: 5 },
        Event::Arrived { connection: 5, at: 77 },
        Event::Called { call: 6, callee: u32::MAX, is_first: false },
        Event::Called { call: 6, callee: 8, is_first: true },
        Event::Answered { call: 6, at: 1 },
        Event::SleepBegan { timer: 2 },
        Event::SleepEnded { timer: 2, blocked: 11 },
        Event::Hit { point: 1 },
        Event::VisitBegan { visit: 12 },
        Event::VisitEnded { visit: 12, point: 0 },
    ];

    #[test]
    fn events_round_trip() {
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

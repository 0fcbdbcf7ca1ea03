//! A trace in a seventh of the memory or less. A profile keeps many traces, and touching fresh memory is expensive,
//! above all on virtual machines.
//!
//! An event is its tag, the differences of its time and its number from earlier ones, and its second entry if it has
//! one. A server's events take three to five bytes, events of threads that exchange messages up to a dozen.

use progress::Entry;

use super::{Event, FIRST_MORE, NUMBER_MASK, TAG_SHIFT, TAGS, Thread, Trace, event, tag};
use crate::varint::{put, take};

/// A compact trace.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    /// The times at which the window began and ended.
    pub time: std::ops::Range<u64>,
    /// The time that a hook took, nanoseconds.
    pub hook: f64,
    /// The time to wake a thread, nanoseconds.
    pub wake_up: f64,
    /// Its threads, without their events.
    pub threads: Vec<PackedThread>,
    /// The events of all threads, thread by thread.
    bytes: Box<[u8]>,
}

/// A thread of a packed trace. Fields have the meaning of the [`Thread`] fields of that name.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "as in a thread")]
pub struct PackedThread {
    pub number: u32,
    pub kind: u32,
    pub runnable: f64,
    pub is_worker: bool,
    /// Number of its events, and the offset at which the next thread's begin.
    events: u32,
    end: u32,
}

impl Packed {
    /// Packs a trace; takes about ten nanoseconds per event.
    ///
    /// # Panics
    /// If the result would exceed 4 GiB, a thousand times the capacity of all logs.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut bytes = Vec::new();
        let threads = trace.threads.iter().map(|thread| {
            // Each thread starts from scratch, so that threads unpack independently.
            let mut last = DeltaState::new(trace.time.start);
            thread.events.iter().for_each(|&(at, event)| last.pack(at, event, &mut bytes));
            let Thread { number, is_worker, runnable, kind, .. } = *thread;
            let end = u32::try_from(bytes.len()).expect("less than 4 GiB");
            PackedThread { number, kind, runnable, is_worker, events: thread.events.len() as u32, end }
        });
        let threads = threads.collect();
        let (time, hook, wake_up) = (trace.time.clone(), trace.hook, trace.wake_up);
        Self { time, hook, wake_up, threads, bytes: bytes.into() }
    }

    /// Returns the memory that it uses on the heap, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len() + size_of_val(self.threads.as_slice())
    }

    /// Unpacks the trace. Allocates.
    #[must_use]
    pub fn unpacked(&self) -> Trace {
        let mut trace = Trace::default();
        self.unpack(&mut trace);
        trace
    }

    /// Unpacks the trace into `into`, replacing its contents and reusing its memory.
    pub fn unpack(&self, into: &mut Trace) {
        (into.time, into.hook, into.wake_up) = (self.time.clone(), self.hook, self.wake_up);
        into.threads.resize_with(self.threads.len(), Thread::default);
        let mut begin = 0;
        for (head, thread) in self.threads.iter().zip(&mut into.threads) {
            let PackedThread { number, kind, runnable, is_worker, events: len, end } = *head;
            let mut events = std::mem::take(&mut thread.events);
            events.clear();
            let (mut last, mut bytes) = (DeltaState::new(self.time.start), &self.bytes[begin..end as usize]);
            events.extend((0..len).map(|_| last.unpack(&mut bytes).expect("packed events decode")));
            *thread = Thread { number, is_worker, runnable, kind, events };
            begin = end as usize;
        }
    }
}

/// Set beside a tag if a second entry follows.
const MORE: u8 = 0x80;

/// The values that the next event is encoded relative to.
struct DeltaState {
    at: u64,
    /// The number of the last event with each tag.
    numbers: [u64; TAGS],
}

impl DeltaState {
    /// The state before the first event.
    fn new(at: u64) -> Self {
        Self { at, numbers: [0; TAGS] }
    }

    fn pack(&mut self, at: u64, event: Event, bytes: &mut Vec<u8>) {
        let (Entry(at, word), more) = event.encode(at);
        let (tag, number) = (word >> TAG_SHIFT, word & NUMBER_MASK);
        // Tags need five bits, so the highest bit is free for the mark.
        bytes.push(tag as u8 | if more.is_some() { MORE } else { 0 });
        // Times are nearly sorted, and numbers of a tag nearly consecutive: differences are small.
        put(signed(at.wrapping_sub(self.at)), bytes);
        put(signed(number.wrapping_sub(self.numbers[tag as usize])), bytes);
        if let Some(Entry(more, _)) = more {
            put(signed(more.wrapping_sub(base(tag, at))), bytes);
        }
        (self.at, self.numbers[tag as usize]) = (at, number);
    }

    fn unpack(&mut self, bytes: &mut &[u8]) -> Option<(u64, Event)> {
        let (&first, rest) = bytes.split_first()?;
        *bytes = rest;
        let tag = u64::from(first & !MORE);
        let at = self.at.wrapping_add(unsigned(take(bytes)?));
        let number = self.numbers.get_mut(tag as usize)?;
        // Wrapping throughout, so that any 64-bit values survive, as in `pack`.
        *number = number.wrapping_add(unsigned(take(bytes)?));
        let more = if first & MORE == 0 { None } else { Some(base(tag, at).wrapping_add(unsigned(take(bytes)?))) };
        self.at = at;
        Some((at, event(at, tag << TAG_SHIFT | *number, more)?))
    }
}

/// Returns the value that the second entry of such an event is likely near.
fn base(tag: u64, at: u64) -> u64 {
    match tag {
        tag::ARRIVED | tag::ANSWERED => at,
        tag::CALLED => FIRST_MORE,
        _ => 0,
    }
}

/// Zigzag-encodes a difference, so that small ones of either sign become small numbers.
fn signed(difference: u64) -> u64 {
    let difference = difference.cast_signed();
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

fn unsigned(number: u64) -> u64 {
    number >> 1 ^ (number & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use progress::Sharing;

    use super::*;
    use crate::trace::tests::EVENTS;

    const EPOCH: u64 = 1_700_000_000_000_000_000;
    /// Distance between the numbers of two threads.
    const SERIALS: u64 = 1 << 28;

    fn thread(number: u32, events: Vec<(u64, Event)>) -> Thread {
        Thread { number, is_worker: number == 1, runnable: 0.5, kind: 9, events }
    }

    // Round trip, with times that go back and numbers of any size.
    #[test]
    fn packed_traces_round_trip() {
        let all: Vec<_> = (EPOCH..).step_by(1000).zip(EVENTS.into_iter().chain(EVENTS)).collect();
        let mut odd = Vec::new();
        for shift in 0..64 {
            let number = (1 << shift) - 1;
            odd.push((number, Event::Sent { message: number & NUMBER_MASK }));
            odd.push((u64::MAX - number, Event::Arrived { connection: 1, at: number }));
            odd.push((number, Event::Took { message: 0, blocked: u64::MAX - number }));
        }
        let threads = vec![thread(1, all), thread(2, Vec::new()), thread(3, odd)];
        let trace = Trace { time: EPOCH..EPOCH + 50_000, hook: 12.0, wake_up: 34.0, threads };
        let packed = Packed::of(&trace);
        assert_eq!(packed.unpacked(), trace);
        assert_eq!((packed.threads.len(), packed.threads[1].number, packed.threads[2].runnable), (3, 2, 0.5));
        // Into the memory of another trace.
        let mut other = Trace {
            time: 0..1,
            hook: 1.0,
            wake_up: 2.0,
            threads: vec![thread(7, vec![(1, Event::BlockBegan); 99]); 5],
        };
        packed.unpack(&mut other);
        assert_eq!(other, trace);
        Packed::of(&Trace::default()).unpack(&mut other);
        assert_eq!(other, Trace::default());
    }

    fn bytes(threads: Vec<Thread>) -> usize {
        Packed::of(&Trace { time: EPOCH..EPOCH, threads, ..Trace::default() }).bytes()
    }

    // A server's requests, 28 bytes each; threads that exchange messages and take locks; and threads that are nearly
    // idle.
    #[test]
    fn frequent_events_are_small() {
        let (mut served, mut sent) = (Vec::new(), Vec::new());
        for turn in 0..1000 {
            let (at, connection, visit) = (EPOCH + turn * 12_000, SERIALS + turn % 64, SERIALS + 64 + turn);
            served.extend([
                (at, Event::Kind(3)),
                (at + 900, Event::Arrived { connection, at: at - 150_000 }),
                (at + 1300, Event::VisitBegan { visit }),
                (at + 1900, Event::Kind(4)),
                (at + 6000, Event::Written { connection }),
                (at + 11_000, Event::VisitEnded { visit, point: 1 }),
            ]);
            let (from, lock) = (turn % 8 * SERIALS + turn, turn % 5 * SERIALS + 7);
            sent.extend([
                (at, Event::Took { message: from, blocked: 40_000 }),
                (at + 900, Event::Locked { lock, sharing: Sharing::Exclusive, blocked: 0 }),
                (at + 1900, Event::Unlocked { lock, sharing: Sharing::Exclusive }),
                (at + 6000, Event::Sent { message: SERIALS + turn }),
            ]);
        }
        let bounds = [bytes(vec![thread(1, served)]), bytes(vec![thread(2, sent)])];
        assert!(bounds[0] <= 28_200 && bounds[1] <= 4000 * 9, "{bounds:?}");
        let idle = |number| thread(number, vec![(EPOCH + 9_000_000, Event::BlockEnded)]);
        assert!(bytes((0..1000).map(idle).collect()) <= 40_000);
    }
}

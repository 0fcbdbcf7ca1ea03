//! A trace in a seventh of the memory or less: a profile keeps many of them, and memory that nobody used before is dear, on virtual machines
//! above all.
//!
//! An event is its tag, then how its time and its number differ from those before, then what else there is to say: three to five octets of
//! a server's, up to a dozen where threads send messages to one another.

use progress::Entry;

use super::{Event, FIRST_MORE, NUMBER_MASK, TAG_SHIFT, TAGS, Thread, Trace, event, tag};
use crate::varint::{put, take};

/// A trace to be kept.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    /// When the window began and ended.
    pub span: std::ops::Range<u64>,
    /// What a hook took of its thread's time, nanoseconds.
    pub hook: f64,
    /// What it takes to wake a thread, nanoseconds.
    pub wake_up: f64,
    /// What there is to say of its threads but for their events.
    pub threads: Vec<Head>,
    /// All events, by thread.
    octets: Box<[u8]>,
}

/// A thread of a packed trace; what has the name of something in [`Thread`] is the same.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "as in a thread")]
pub struct Head {
    pub number: u32,
    pub kind: u32,
    pub running: f64,
    pub is_worker: bool,
    /// How many events it has, and where those of the next thread begin.
    events: u32,
    end: u32,
}

impl Packed {
    /// Takes some ten nanoseconds for each event.
    ///
    /// # Panics
    /// Where it would take 4 GiB, a thousand times what all logs hold.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let mut octets = Vec::new();
        let threads = trace.threads.iter().map(|thread| {
            let mut last = Last::new(trace.span.start);
            thread.events.iter().for_each(|&(at, event)| last.pack(at, event, &mut octets));
            let Thread { number, is_worker, running, kind, .. } = *thread;
            let end = u32::try_from(octets.len()).expect("less than 4 GiB");
            Head { number, kind, running, is_worker, events: thread.events.len() as u32, end }
        });
        let threads = threads.collect();
        let (span, hook, wake_up) = (trace.span.clone(), trace.hook, trace.wake_up);
        Self { span, hook, wake_up, threads, octets: octets.into() }
    }

    /// How much memory it takes beside itself.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets.len() + size_of_val(self.threads.as_slice())
    }

    /// What was packed.
    #[must_use]
    pub fn unpacked(&self) -> Trace {
        let mut trace = Trace::default();
        self.unpack(&mut trace);
        trace
    }

    /// The same in the memory of another trace, which is gone.
    pub fn unpack(&self, into: &mut Trace) {
        (into.span, into.hook, into.wake_up) = (self.span.clone(), self.hook, self.wake_up);
        into.threads.resize_with(self.threads.len(), Thread::default);
        let mut begin = 0;
        for (head, thread) in self.threads.iter().zip(&mut into.threads) {
            let Head { number, kind, running, is_worker, events: len, end } = *head;
            let mut events = std::mem::take(&mut thread.events);
            events.clear();
            let (mut last, mut octets) = (Last::new(self.span.start), &self.octets[begin..end as usize]);
            events.extend((0..len).map(|_| last.unpack(&mut octets).expect("what was packed")));
            *thread = Thread { number, is_worker, running, kind, events };
            begin = end as usize;
        }
    }
}

/// Set beside a tag where more follows.
const MORE: u8 = 0x80;

/// What the next event differs from.
struct Last {
    at: u64,
    /// The number of the last event of each tag.
    numbers: [u64; TAGS],
}

impl Last {
    /// Before the first event.
    fn new(at: u64) -> Self {
        Self { at, numbers: [0; TAGS] }
    }

    fn pack(&mut self, at: u64, event: Event, octets: &mut Vec<u8>) {
        let (Entry(at, word), more) = event.encode(at);
        let (tag, number) = (word >> TAG_SHIFT, word & NUMBER_MASK);
        octets.push(tag as u8 | if more.is_some() { MORE } else { 0 });
        put(signed(at.wrapping_sub(self.at)), octets);
        put(signed(number.wrapping_sub(self.numbers[tag as usize])), octets);
        if let Some(Entry(more, _)) = more {
            put(signed(more.wrapping_sub(base(tag, at))), octets);
        }
        (self.at, self.numbers[tag as usize]) = (at, number);
    }

    fn unpack(&mut self, octets: &mut &[u8]) -> Option<(u64, Event)> {
        let (&first, rest) = octets.split_first()?;
        *octets = rest;
        let tag = u64::from(first & !MORE);
        let at = self.at.wrapping_add(unsigned(take(octets)?));
        let number = self.numbers.get_mut(tag as usize)?;
        *number = number.wrapping_add(unsigned(take(octets)?));
        let more = if first & MORE == 0 { None } else { Some(base(tag, at).wrapping_add(unsigned(take(octets)?))) };
        self.at = at;
        Some((at, event(at, tag << TAG_SHIFT | *number, more)?))
    }
}

/// What the second entry of such an event is near to.
fn base(tag: u64, at: u64) -> u64 {
    match tag {
        tag::ARRIVED | tag::ANSWERED => at,
        tag::CALLED => FIRST_MORE,
        _ => 0,
    }
}

/// A difference, so that small ones are small numbers whatever their sign.
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
    /// Where one thread's numbers begin.
    const SERIALS: u64 = 1 << 28;

    fn thread(number: u32, events: Vec<(u64, Event)>) -> Thread {
        Thread { number, is_worker: number == 1, running: 0.5, kind: 9, events }
    }

    // Times that go back and numbers of any size, too: what is kept is what was there.
    #[test]
    fn what_is_packed_is_what_is_unpacked() {
        let all: Vec<_> = (EPOCH..).step_by(1000).zip(EVENTS.into_iter().chain(EVENTS)).collect();
        let mut odd = Vec::new();
        for shift in 0..64 {
            let number = (1 << shift) - 1;
            odd.push((number, Event::Sent { message: number & NUMBER_MASK }));
            odd.push((u64::MAX - number, Event::Arrived { connection: 1, at: number }));
            odd.push((number, Event::Took { message: 0, blocked: u64::MAX - number }));
        }
        let threads = vec![thread(1, all), thread(2, Vec::new()), thread(3, odd)];
        let trace = Trace { span: EPOCH..EPOCH + 50_000, hook: 12.0, wake_up: 34.0, threads };
        let packed = Packed::of(&trace);
        assert_eq!(packed.unpacked(), trace);
        assert_eq!((packed.threads.len(), packed.threads[1].number, packed.threads[2].running), (3, 2, 0.5));
        // Into what another one left.
        let mut other = Trace {
            span: 0..1,
            hook: 1.0,
            wake_up: 2.0,
            threads: vec![thread(7, vec![(1, Event::BlockBegan); 99]); 5],
        };
        packed.unpack(&mut other);
        assert_eq!(other, trace);
        Packed::of(&Trace::default()).unpack(&mut other);
        assert_eq!(other, Trace::default());
    }

    fn octets(threads: Vec<Thread>) -> usize {
        Packed::of(&Trace { span: EPOCH..EPOCH, threads, ..Trace::default() }).octets()
    }

    // Requests of a server, of which each takes 28 octets; threads that send each other messages and take locks; and threads that hardly did
    // anything.
    #[test]
    fn what_is_usual_is_small() {
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
        let bounds = [octets(vec![thread(1, served)]), octets(vec![thread(2, sent)])];
        assert!(bounds[0] <= 28_200 && bounds[1] <= 4000 * 9, "{bounds:?}");
        let idle = |number| thread(number, vec![(EPOCH + 9_000_000, Event::BlockEnded)]);
        assert!(octets((0..1000).map(idle).collect()) <= 40_000);
    }
}

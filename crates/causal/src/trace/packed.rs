//! A trace in a ninth of the memory: a profile keeps many of them, and memory that nobody used before is dear, on virtual machines above all.
//!
//! An event is its tag, then how its time and its number differ from those before, then what else there is to say; most take three or four
//! octets.

use std::ops::Range;

use progress::Entry;

use super::{Event, FIRST_MORE, TAG_SHIFT, TAGS, Thread, Trace, event, tag};

/// A trace to be kept.
#[derive(Clone, Debug, Default)]
pub struct Packed {
    /// Threads have no events here.
    head: Trace,
    /// By thread: where its events lie, and how many they are.
    places: Vec<(Range<usize>, usize)>,
    octets: Box<[u8]>,
}

impl Packed {
    /// Takes some ten nanoseconds for each event.
    #[must_use]
    pub fn of(trace: &Trace) -> Self {
        let (mut octets, mut places) = (Vec::new(), Vec::new());
        let threads = trace.threads.iter().map(|thread| {
            let begin = octets.len();
            let mut last = Last::default();
            thread.events.iter().for_each(|&(at, event)| last.pack(at, event, &mut octets));
            places.push((begin..octets.len(), thread.events.len()));
            let Thread { number, is_worker, running, kind, .. } = *thread;
            Thread { number, is_worker, running, kind, events: Vec::new() }
        });
        let head = Trace { span: trace.span.clone(), hook: trace.hook, threads: threads.collect() };
        Self { head, places, octets: octets.into() }
    }

    /// All but the events.
    #[must_use]
    pub fn head(&self) -> &Trace {
        &self.head
    }

    /// How much memory it takes.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.octets.len() + self.places.len() * (size_of::<Thread>() + size_of::<(Range<usize>, usize)>())
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
        (into.span, into.hook) = (self.head.span.clone(), self.head.hook);
        into.threads.resize_with(self.head.threads.len(), Thread::default);
        for ((head, (place, len)), thread) in self.head.threads.iter().zip(&self.places).zip(&mut into.threads) {
            let Thread { number, is_worker, running, kind, .. } = *head;
            let mut events = std::mem::take(&mut thread.events);
            events.clear();
            events.reserve_exact(*len);
            let (mut last, mut octets) = (Last::default(), &self.octets[place.clone()]);
            events.extend(std::iter::from_fn(|| last.unpack(&mut octets)));
            *thread = Thread { number, is_worker, running, kind, events };
        }
    }
}

/// Set beside a tag where more follows.
const MORE: u8 = 0x80;

/// What the next event differs from.
#[derive(Default)]
struct Last {
    at: u64,
    /// The number of the last event of each tag.
    numbers: [u64; TAGS],
}

impl Last {
    fn pack(&mut self, at: u64, event: Event, octets: &mut Vec<u8>) {
        let (Entry(at, word), more) = event.encode(at);
        let (tag, number) = (word >> TAG_SHIFT, word & super::NUMBER_MASK);
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

/// Seven bits an octet, the lowest first.
fn put(mut number: u64, octets: &mut Vec<u8>) {
    while number >= 0x80 {
        octets.push(number as u8 | 0x80);
        number >>= 7;
    }
    octets.push(number as u8);
}

fn take(octets: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (&octet, rest) = octets.split_first()?;
        *octets = rest;
        number |= u64::from(octet & 0x7f) << shift;
        if octet < 0x80 {
            break;
        }
    }
    Some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::tests::EVENTS;

    fn thread(number: u32, events: Vec<(u64, Event)>) -> Thread {
        Thread { number, is_worker: number == 1, running: 0.5, kind: 9, events }
    }

    // Times that go back and numbers of any size, too: what is kept is what was there.
    #[test]
    fn what_is_packed_is_what_is_unpacked() {
        let epoch = 1_700_000_000_000_000_000;
        let all: Vec<_> = (epoch..).step_by(1000).zip(EVENTS.into_iter().chain(EVENTS)).collect();
        let mut odd = Vec::new();
        for shift in 0..64 {
            let number = (1 << shift) - 1;
            odd.push((number, Event::Sent { message: number & super::super::NUMBER_MASK }));
            odd.push((u64::MAX - number, Event::Arrived { connection: 1, at: number }));
            odd.push((number, Event::Took { message: 0, blocked: u64::MAX - number }));
        }
        let threads = vec![thread(1, all), thread(2, Vec::new()), thread(3, odd)];
        let trace = Trace { span: epoch..epoch + 50_000, hook: 12.0, threads };
        let packed = Packed::of(&trace);
        assert_eq!(packed.unpacked(), trace);
        let heads = |trace: &Trace| trace.threads.iter().map(|thread| thread.number).collect::<Vec<_>>();
        assert_eq!((heads(packed.head()), packed.head().hook), (vec![1, 2, 3], 12.0));
        assert!(packed.head().threads.iter().all(|thread| thread.events.is_empty()));
        // Into what another one left.
        let mut other = Trace { span: 0..1, hook: 1.0, threads: vec![thread(7, vec![(1, Event::BlockBegan); 99]); 5] };
        packed.unpack(&mut other);
        assert_eq!(other, trace);
        Packed::of(&Trace::default()).unpack(&mut other);
        assert_eq!(other, Trace::default());
    }

    // A request of a server: what it is for.
    #[test]
    fn what_is_usual_is_small() {
        const SERIALS: u64 = 1 << 40;
        let mut events = Vec::new();
        for visit in 0..1000 {
            let (at, connection) = (1_700_000_000_000_000_000 + visit * 12_000, SERIALS + visit % 64);
            events.extend([
                (at, Event::Kind(3)),
                (at + 900, Event::Arrived { connection, at: at - 150_000 }),
                (at + 1300, Event::VisitBegan { visit: SERIALS + 64 + visit }),
                (at + 1900, Event::Kind(4)),
                (at + 6000, Event::Written { connection }),
                (at + 11_000, Event::VisitEnded { visit: SERIALS + 64 + visit, point: 1 }),
            ]);
        }
        let octets = Packed::of(&Trace { threads: vec![thread(1, events)], ..Trace::default() }).octets();
        assert!(octets < 6000 * 5, "{octets}");
    }
}

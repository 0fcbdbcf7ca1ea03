//! Recorded windows, kept to be replayed later.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::constants::POLL_MAX;
use crate::experiment::SeededRandom;
use crate::load::ClientBehaviour;
use crate::trace::{Event, Hooks, Packed, Thread, Trace};

/// A recorded window, with the facts that are computed at once.
#[derive(Debug)]
pub struct Recording {
    /// Its events.
    pub packed: Packed,
    /// Its length, nanoseconds.
    pub length: u64,
    /// Number of events in its fullest log.
    pub events_max: usize,
    /// Number of changes of a thread's kind of work.
    pub changes: usize,
    /// By kind of work: the time for which threads had a processor or were waiting for one, nanoseconds.
    pub kinds: BTreeMap<u32, f64>,
    /// The sum of `kinds`.
    pub busy: f64,
    /// Time of hooks, which `kinds` and `busy` leave out, nanoseconds.
    pub hooks: f64,
    /// Fraction of the time, from 0 to 1, that its busiest thread was not blocked; 0 without threads.
    pub busiest: f64,
    /// Number of hooks with a time.
    pub hook_count: u64,
    /// Processor time to read the window, divided by the number of processors, nanoseconds; 0 if unknown.
    pub reading: u64,
    /// Processor time of threads without an account, nanoseconds; 0 if unknown.
    pub unregistered: u64,
    /// Units of progress, by point.
    pub hits: Vec<u64>,
    /// Mean time of a unit, each weighted by its time, nanoseconds; 0 without any. Less than the truth if units are
    /// longer than the window.
    pub unit_time: f64,
    /// Spans of the outside calls in it.
    pub calls: Vec<u32>,
    /// Whether any bytes arrived from outside.
    pub has_load: bool,
    /// The behaviour of the clients.
    pub clients: ClientBehaviour,
    /// Wakeup latencies of sleeping event loops, nanoseconds, from arrival times recorded by the kernel. At most 64 of
    /// them.
    pub wakeup_latencies: Vec<u64>,
}

/// Maximum number of wakeup latencies kept per window.
const WAKEUP_LATENCIES_MAX: usize = 64;

impl Recording {
    /// Reads a trace. `runnable_time` returns the time for which an account's thread had a processor in the window or
    /// was waiting for one; `None` if unknown.
    #[must_use]
    pub fn new(trace: &Trace, runnable_time: impl Fn(u32) -> Option<u64>) -> Self {
        let length = trace.time.end.saturating_sub(trace.time.start);
        let mut kinds = BTreeMap::new();
        let (mut hits, mut calls, mut has_load, mut changes) = (Vec::new(), Vec::new(), false, 0);
        let mut wakeup_latencies: Vec<u64> = Vec::new();
        let (mut hooks, mut hook_count, mut busiest) = (0.0, 0, 0.0_f64);
        let sent = sent_times(trace);
        let mut packed = Packed::of(trace);
        for (thread, head) in trace.threads.iter().zip(&mut packed.threads) {
            let (own, hooked) = time_by_kind(thread, &trace.time, Hooks::new(trace.hook));
            let wall: f64 = own.values().sum();
            busiest = busiest.max(wall + hooked.taken + poll_time(thread, &sent) as f64);
            // In the rest of its unblocked time, the thread was in a wait that no hook reports.
            if let Some(runnable_time) = runnable_time(thread.number)
                && wall > 0.0
            {
                // The system call that blocks takes processor time, too, which is not work: hence the upper bound.
                head.runnable = ((runnable_time as f64 - hooked.taken) / wall).clamp(0.01, 1.0);
            }
            hooks += hooked.taken;
            hook_count += hooked.count;
            wakeup_latencies.extend(wake_ups(thread).take(WAKEUP_LATENCIES_MAX - wakeup_latencies.len()));
            for (kind, time) in own {
                *kinds.entry(kind).or_insert(0.0) += time * head.runnable;
            }
            for &(_, event) in &thread.events {
                match event {
                    Event::Kind(_) | Event::Waking(_) => changes += 1,
                    Event::Hit { point } | Event::VisitEnded { point, .. } => {
                        if hits.len() <= point as usize {
                            hits.resize(point as usize + 1, 0);
                        }
                        hits[point as usize] += 1;
                    }
                    Event::Called { callee, .. } if !calls.contains(&callee) => calls.push(callee),
                    Event::Arrived { .. } => has_load = true,
                    _ => {}
                }
            }
        }
        let events_max = trace.threads.iter().map(|thread| thread.events.len()).max().unwrap_or(0);
        let (busy, clients) = (kinds.values().sum(), ClientBehaviour::of(trace));
        Self {
            packed,
            length,
            events_max,
            changes,
            kinds,
            busy,
            hooks,
            busiest: (busiest / length.max(1) as f64).min(1.0),
            hook_count,
            reading: 0,
            unregistered: 0,
            hits,
            unit_time: unit_time(trace),
            calls,
            has_load,
            clients,
            wakeup_latencies,
        }
    }

    /// Returns whether any of its threads runs an event loop.
    #[must_use]
    pub fn has_loop(&self) -> bool {
        self.packed.threads.iter().any(|thread| thread.is_worker)
    }

    /// Returns the memory that it uses, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let sums = self.kinds.len() * size_of::<(u32, f64)>() + size_of_val(self.hits.as_slice());
        size_of::<Self>() + self.packed.bytes() + sums + size_of_val(self.wakeup_latencies.as_slice())
    }

    /// Returns the units of progress at a point.
    #[must_use]
    pub fn hits(&self, point: u32) -> u64 {
        self.hits.get(point as usize).copied().unwrap_or(0)
    }
}

/// Returns the mean time of the window's units, each weighted by its time. Of a unit that began before the window, the
/// time within counts, and once more for one that ends after the window: only at its end the unit gets its point.
fn unit_time(trace: &Trace) -> f64 {
    let events = || trace.threads.iter().flat_map(|thread| &thread.events);
    let begun: HashMap<u64, u64> = events()
        .filter_map(|&(at, event)| if let Event::VisitBegan { visit } = event { Some((visit, at)) } else { None })
        .collect();
    let (mut time, mut squares) = (0.0, 0.0);
    for &(at, event) in events() {
        let Event::VisitEnded { visit, .. } = event else { continue };
        let (began, count) = begun.get(&visit).map_or((trace.time.start, 2.0), |&began| (began, 1.0));
        let took = at.saturating_sub(began) as f64;
        time += count * took;
        squares += count * took * took;
    }
    if time > 0.0 { squares / time } else { 0.0 }
}

/// Returns the wakeup latency of each sleep of an event loop that an arrival ended: the time from the first arrival
/// until the loop ran.
fn wake_ups(thread: &Thread) -> impl Iterator<Item = u64> {
    let (mut since, mut woken) = (None, None);
    thread.events.iter().filter_map(move |&(at, event)| {
        match event {
            Event::BlockBegan => since = Some(at),
            Event::BlockEnded => woken = Some(since.take()?..at),
            Event::Kind(_) => {}
            // An arrival at the time of its own event has no recorded time.
            Event::Arrived { at: came, .. } if came != at => {
                return woken.take().filter(|slept| slept.contains(&came)).map(|slept| slept.end - came);
            }
            _ => woken = None,
        }
        None
    })
}

/// Returns the times at which messages were sent in a window with an event loop; nothing without one.
fn sent_times(trace: &Trace) -> HashMap<u64, u64> {
    // Only polls of event loops need these times.
    let has_loop = trace.threads.iter().any(|thread| thread.is_worker);
    let events = trace.threads.iter().filter(|_| has_loop).flat_map(|thread| &thread.events);
    let sent = |&(at, event): &(u64, Event)| match event {
        Event::Sent { message } => Some((message, at)),
        _ => None,
    };
    events.filter_map(sent).collect()
}

/// Returns the time for which an event loop was blocked only to poll the kernel: its next message was there before. As
/// in a replay, that is work.
fn poll_time(thread: &Thread, sent: &HashMap<u64, u64>) -> u64 {
    let (mut since, mut block, mut polled) = (None, None, 0);
    if !thread.is_worker {
        return 0;
    }
    for &(at, event) in &thread.events {
        let ready = match event {
            Event::BlockBegan => {
                since = Some(at);
                None
            }
            Event::BlockEnded => {
                block = since.take().map(|since| since..at);
                continue;
            }
            Event::Kind(_) => continue,
            // An arrival at the time of its own event has no recorded time: it ended the block.
            Event::Arrived { at: came, .. } => Some(came).filter(|&came| came != at),
            Event::Answered { at: came, .. } => Some(came),
            Event::Took { message, blocked: 0 } => sent.get(&message).copied(),
            _ => None,
        };
        // Only the first event after the block can have ended it.
        // A sleep this short is no poll, if its message arrived during it.
        if let (Some(block), Some(ready)) = (block.take(), ready)
            && ready < block.start
            && block.end - block.start < POLL_MAX
        {
            polled += block.end - block.start;
        }
    }
    polled
}

/// Returns the unblocked time of a thread by kind of work, without the time of hooks; and that time.
fn time_by_kind(thread: &Thread, span: &Range<u64>, mut hooks: Hooks) -> (BTreeMap<u32, f64>, Hooks) {
    let mut times = BTreeMap::new();
    let mut add = |kind, time: f64| *times.entry(kind).or_insert(0.0) += time - hooks.take(time);
    let (mut kind, mut from, mut blocks) = (thread.kind, span.start, false);
    let ahead = thread.events.iter().find(|(_, event)| !matches!(event, Event::Kind(_)));
    // A thread whose first event is the end of a block was blocked before.
    blocks |= matches!(ahead, Some((_, Event::BlockEnded)));
    for &(at, event) in &thread.events {
        let blocked = match event {
            Event::Took { blocked, .. } | Event::Locked { blocked, .. } | Event::SleepEnded { blocked, .. } => blocked,
            _ => 0,
        };
        let passed = at.saturating_sub(from);
        if !blocks {
            add(kind, passed.saturating_sub(blocked) as f64);
        }
        match event {
            Event::Kind(now) | Event::Waking(now) => kind = now,
            Event::BlockBegan => blocks = true,
            Event::BlockEnded => blocks = false,
            _ => {}
        }
        from = at.max(from);
    }
    if !blocks {
        add(kind, span.end.saturating_sub(from) as f64);
    }
    (times, hooks)
}

/// A random sample of all windows in bounded memory: each has an equal chance to be kept, whenever it was recorded.
#[derive(Debug)]
pub struct Recordings {
    bytes_max: usize,
    bytes: usize,
    random: SeededRandom,
    /// Each with the random number that it drew, ascending: those with the smallest numbers are kept. So any prefix is
    /// a random sample, too.
    kept: Vec<(u64, Arc<Recording>)>,
}

impl Recordings {
    /// Makes an empty sample.
    #[must_use]
    pub fn new(bytes_max: usize, seed: u64) -> Self {
        Self { bytes_max, bytes: 0, random: SeededRandom::new(seed), kept: Vec::new() }
    }

    /// Adds a window. To stay within the memory limit, drops those with the largest numbers, possibly the new one.
    pub fn push(&mut self, recording: Recording) {
        let drawn = self.random.bits();
        self.bytes += recording.bytes();
        let at = self.kept.partition_point(|&(other, _)| other < drawn);
        self.kept.insert(at, (drawn, Arc::new(recording)));
        // At least two windows are kept, however large: the least that shows a variation.
        while self.bytes > self.bytes_max && self.kept.len() > 2 {
            if let Some((_, gone)) = self.kept.pop() {
                self.bytes -= gone.bytes();
            }
        }
    }

    /// Returns all kept windows, in random order.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Recording>> {
        self.kept.iter().map(|(_, recording)| recording.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(events: &[(u64, Event)]) -> Thread {
        Thread { number: 0, is_worker: false, runnable: 1.0, kind: 1, events: events.to_vec() }
    }

    /// Blocked time belongs to no kind. A block that crosses an edge of the window counts as far as it is within.
    #[test]
    fn time_is_attributed_to_the_current_kind() {
        type RecordingCase<'a> = (&'a str, &'a [(u64, Event)], &'a [(u32, f64)]);
        let cases: [RecordingCase<'_>; 8] = [
            ("one kind", &[(1010, Event::Hit { point: 0 })], &[(1, 100.0)]),
            ("two kinds", &[(1030, Event::Kind(2)), (1040, Event::Kind(1))], &[(1, 90.0), (2, 10.0)]),
            ("a wake", &[(1030, Event::Waking(2)), (1040, Event::Kind(1))], &[(1, 90.0), (2, 10.0)]),
            ("a block", &[(1020, Event::BlockBegan), (1070, Event::BlockEnded)], &[(1, 50.0)]),
            ("a block from before", &[(1050, Event::Kind(1)), (1050, Event::BlockEnded)], &[(1, 50.0)]),
            ("a block to the end", &[(1050, Event::BlockBegan)], &[(1, 50.0)]),
            (
                "two threads, one after the other",
                &[
                    (1010, Event::Kind(2)),
                    (1010, Event::BlockEnded),
                    (1030, Event::BlockBegan),
                    (1050, Event::Kind(3)),
                    (1050, Event::BlockEnded),
                    (1055, Event::BlockBegan),
                ],
                &[(2, 20.0), (3, 5.0)],
            ),
            ("longer blocked than the window", &[(1060, Event::Took { message: 0, blocked: 500 })], &[(1, 40.0)]),
        ];
        for (why, events, want) in cases {
            let (times, hooks) = time_by_kind(&thread(events), &(1000..1100), Hooks::new(0.0));
            assert_eq!((times.into_iter().collect::<Vec<_>>().as_slice(), hooks.taken), (want, 0.0), "{why}");
        }
    }

    /// One hook is taken off each stretch of work, and none while the thread is blocked; the excess over a short
    /// stretch is taken off the next one. A thread that was runnable all the time is so without hooks, too.
    #[test]
    fn hooks_are_not_counted_as_work() {
        let events = [(1030, Event::Kind(2)), (1032, Event::BlockBegan), (1052, Event::BlockEnded)];
        let trace = Trace { time: 1000..1100, hook: 5.0, threads: vec![thread(&events)], ..Trace::default() };
        let recording = Recording::new(&trace, |_| Some(80));
        assert_eq!(recording.kinds, BTreeMap::from([(1, 25.0), (2, 40.0)]));
        assert_eq!((recording.busy, recording.packed.threads[0].runnable), (65.0, 1.0));
        assert_eq!((recording.hooks, recording.hook_count), (15.0, 3));
    }

    #[test]
    fn the_facts_of_a_recording() {
        let events = [
            (1010, Event::Arrived { connection: 1, at: 1005 }),
            (1020, Event::Called { call: 2, callee: 9, is_first: true }),
            (1030, Event::Hit { point: 2 }),
            (1050, Event::BlockBegan),
        ];
        let trace = Trace { time: 1000..1100, threads: vec![thread(&events)], ..Trace::default() };
        let recording = Recording::new(&trace, |_| Some(40));
        assert_eq!((recording.busy, recording.packed.threads[0].runnable), (40.0, 0.8));
        assert_eq!((recording.hits(2), recording.hits(0), recording.hits(7)), (1, 0, 0));
        assert_eq!((recording.calls.as_slice(), recording.has_load, recording.events_max), (&[9][..], true, 4));
        let nothing = Recording::new(&Trace::default(), |_| None);
        assert_eq!((nothing.busy, nothing.busiest, nothing.length, nothing.has_load), (0.0, 0.0, 0, false));
    }

    /// A poll for a message that was there before is work, like the time of hooks. A sleep is not, however short.
    #[test]
    fn the_busiest_thread_works_while_it_polls() {
        let block = |from| [(from, Event::BlockBegan), (from + 10, Event::BlockEnded)];
        let took = |at, message| (at, Event::Took { message, blocked: 0 });
        let sender = vec![(1005, Event::Sent { message: 1 }), (1006, Event::BlockBegan)];
        let cases = [
            ("a request before the poll", (1030, Event::Arrived { connection: 1, at: 1015 }), 1.0),
            ("a request during the block", (1030, Event::Arrived { connection: 1, at: 1025 }), 0.9),
            ("a request at an unknown time", (1030, Event::Arrived { connection: 1, at: 1030 }), 0.9),
            ("a message before the poll", took(1030, 1), 1.0),
            ("a message of unknown time", took(1030, 7), 0.9),
            ("a unit", (1030, Event::Hit { point: 0 }), 0.9),
        ];
        for (case, event, want) in cases {
            let mut events: Vec<(u64, Event)> = block(1020).into();
            events.extend([(1030, Event::Kind(2)), event]);
            let threads = vec![Thread { is_worker: true, ..thread(&events) }, thread(&sender)];
            let trace = Trace { time: 1000..1100, hook: 1.0, threads, ..Trace::default() };
            let busiest = Recording::new(&trace, |_| None).busiest;
            assert!((busiest - want).abs() < 1e-9, "{case}: {busiest}");
        }
    }

    /// Only an arrival during the sleep ended it, and of these the first one. An arrival at the time of its own event
    /// does not count.
    #[test]
    fn wakeup_latencies_of_loops_are_recorded() {
        let slept = |from, until| [(from, Event::BlockBegan), (until, Event::BlockEnded)];
        let arrived = |found, came| (found, Event::Arrived { connection: 1, at: came });
        let mut events = vec![(1005, Event::BlockEnded), arrived(1006, 1001)];
        events.extend(slept(1010, 1020));
        events.extend([(1021, Event::Kind(3)), arrived(1022, 1013), arrived(1023, 1012)]);
        events.extend(slept(1030, 1040));
        events.push(arrived(1041, 1029));
        events.extend(slept(1050, 1060));
        events.push(arrived(1061, 1061));
        events.extend(slept(1070, 1080));
        events.extend([(1081, Event::Hit { point: 0 }), arrived(1082, 1075)]);
        events.extend(slept(1090, 1095));
        events.push(arrived(1096, 1090));
        let trace = Trace { time: 1000..1100, threads: vec![thread(&events)], ..Trace::default() };
        assert_eq!(Recording::new(&trace, |_| None).wakeup_latencies, [7, 5]);
    }

    /// Each window has an equal chance to be kept, the first as well as the last, and memory is bounded.
    #[test]
    fn kept_recordings_are_an_unbiased_sample() {
        let mut kept = [0_u32; 100];
        for seed in 0..400 {
            let one = Recording::new(&Trace::default(), |_| None).bytes();
            let mut recordings = Recordings::new(20 * one, seed);
            for at in 0..100 {
                recordings.push(Recording::new(&Trace { time: at..at, ..Trace::default() }, |_| None));
            }
            let all = recordings.all();
            assert_eq!(all.len(), 20);
            all.iter().for_each(|one| kept[one.packed.time.start as usize] += 1);
        }
        // Expected: 80 each, with a standard deviation of 8.
        assert!(kept.iter().all(|&count| (45..=115).contains(&count)), "{kept:?}");
        for half in kept.chunks(50) {
            assert!((3800..4200).contains(&half.iter().sum::<u32>()));
        }
    }
}

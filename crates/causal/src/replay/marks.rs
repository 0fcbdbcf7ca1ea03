//! The events of a window that can end a wait.

use std::collections::HashMap;

use super::script::WINDOW_BEGIN;
use crate::constants::POLL_MAX;
use crate::trace::{Event, Trace};

/// The marks of a trace, by their origin.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) known: HashMap<(MarkOrigin, u64), (u32, u64)>,
    /// By connection: the writes, in order of time.
    writes: HashMap<u64, Vec<(u64, u32)>>,
    pub(super) count: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MarkOrigin {
    Message,
    Call,
    Timer,
}

impl Marks {
    pub(super) fn find(trace: &Trace) -> Self {
        // Marks are numbered before any thread is read, as an effect may be read before its cause.
        let mut marks = Self { count: WINDOW_BEGIN + 1, ..Self::default() };
        for &(at, event) in trace.threads.iter().flat_map(|thread| &thread.events) {
            let key = match event {
                Event::Sent { message } => (MarkOrigin::Message, message),
                Event::Called { call, .. } => (MarkOrigin::Call, call),
                Event::SleepBegan { timer } => (MarkOrigin::Timer, timer),
                Event::Written { connection } => {
                    marks.writes.entry(connection).or_default().push((at, marks.count));
                    marks.count += 1;
                    continue;
                }
                _ => continue,
            };
            marks.known.insert(key, (marks.count, at));
            marks.count += 1;
        }
        marks.writes.values_mut().for_each(|writes| writes.sort_unstable());
        marks
    }

    /// Returns the median time from a write to the client's next request, from requests that woke a thread; 0 if there
    /// are none.
    pub(super) fn usual_gap(&self, trace: &Trace) -> u64 {
        let mut gaps = Vec::new();
        for thread in &trace.threads {
            let mut up = None;
            for &(at, event) in &thread.events {
                match event {
                    Event::BlockEnded => up = Some(at),
                    Event::Kind(_) => {}
                    Event::Arrived { connection, at: came } => {
                        if let (Some(up), Some((_, written))) = (up.take(), self.write_before(connection, came)) {
                            gaps.push(up.saturating_sub(written));
                        }
                    }
                    _ => up = None,
                }
            }
        }
        gaps.sort_unstable();
        gaps.get(gaps.len() / 2).copied().unwrap_or(0)
    }

    /// Returns the last write on the connection before `at`: the one that a message arriving at `at` may answer.
    pub(super) fn write_before(&self, connection: u64, at: u64) -> Option<(u32, u64)> {
        let writes = self.writes.get(&connection)?;
        // The last write at or before `at`.
        let (written, mark) = writes[writes.partition_point(|&(written, _)| written <= at).checked_sub(1)?];
        Some((mark, written))
    }
}

/// The usual lengths of waits of tasks on event loops, by the kind of work that begins them.
#[derive(Default)]
pub(super) struct UsualWaits {
    /// By timer.
    kinds: HashMap<u64, u32>,
    usual: HashMap<u32, u64>,
}

impl UsualWaits {
    /// Finds the median length of those waits that woke their thread. If there are none, the shortest one: it was found
    /// late, too, but least so.
    pub(super) fn find(trace: &Trace) -> Self {
        let mut begun = HashMap::new();
        // By kind: the waits that woke a thread, and the shortest of all.
        let mut waits: HashMap<u32, (Vec<u64>, u64)> = HashMap::new();
        for thread in trace.threads.iter().filter(|thread| thread.is_worker) {
            let (mut kind, mut since, mut woken) = (thread.kind, trace.time.start, None);
            for &(at, event) in &thread.events {
                match event {
                    Event::Kind(now) | Event::Waking(now) => kind = now,
                    Event::BlockBegan => since = at,
                    Event::BlockEnded => woken = Some(at).filter(|up| up.saturating_sub(since) >= POLL_MAX),
                    Event::SleepBegan { timer } => drop(begun.insert(timer, (at, kind))),
                    Event::SleepEnded { timer, .. } => {
                        let woken = woken.take();
                        let Some(&(began, kind)) = begun.get(&timer) else { continue };
                        let (exact, shortest) = waits.entry(kind).or_insert((Vec::new(), u64::MAX));
                        *shortest = (*shortest).min(at.saturating_sub(began));
                        exact.extend(woken.map(|up| up.saturating_sub(began)));
                    }
                    // The thread may have handled that event for long, so a later end was found late.
                    _ => woken = None,
                }
            }
        }
        let usual = |(kind, (mut exact, shortest)): (u32, (Vec<u64>, u64))| {
            exact.sort_unstable();
            (kind, exact.get(exact.len() / 2).copied().unwrap_or(shortest))
        };
        Self {
            kinds: begun.into_iter().map(|(timer, (_, kind))| (timer, kind)).collect(),
            usual: waits.into_iter().map(usual).collect(),
        }
    }

    pub(super) fn of(&self, timer: u64) -> Option<u64> {
        self.usual.get(self.kinds.get(&timer)?).copied()
    }
}

//! The events of a window that can end a wait.

use std::collections::HashMap;

use super::script::WINDOW_BEGIN;
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

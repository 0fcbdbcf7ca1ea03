//! Log lines for failures of upstreams, and for the text that a FastCGI application writes to STDERR: at most one line
//! per second for each upstream and kind.
//!
//! The lines contain no part of the request, neither its target nor its fields.

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The shortest time between two lines of one upstream and kind.
const PAUSE: Duration = Duration::from_secs(1);
/// Tracked pairs of upstream and kind. The number is bounded because requests may name upstreams by placeholders.
/// Further upstreams share one line per second for each kind.
const ENTRIES_MAX: usize = 256;
/// The name of upstreams beyond [`ENTRIES_MAX`] in the log.
const OTHERS: &str = "others";

/// A kind of failure; [`CallError`](super::CallError) has the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The connection was not established.
    Unreachable,
    /// The connection was established, but no response arrived.
    NoResponse,
    /// The response did not start in time.
    TimedOut,
    /// The response ended within its content.
    BrokenOff,
    /// The response arrived, but cannot be forwarded.
    Unusable,
    /// No upstream may get a request, or too many requests wait for one.
    Unavailable,
    /// DNS did not name the upstreams.
    Lookup,
    /// A FastCGI application wrote to STDERR. Not a failure of the request.
    Stderr,
}

/// The level of a line with the text of STDERR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StderrLevel {
    /// The response is not an error.
    Warn,
    /// The response has a status of 400 or more, or there is none.
    Error,
}

impl FailureKind {
    fn message(self) -> &'static str {
        match self {
            Self::Unreachable => "an upstream cannot be reached",
            Self::NoResponse => "no response from the upstream",
            Self::TimedOut => "the upstream did not respond in time",
            Self::BrokenOff => "the upstream ended its response early",
            Self::Unusable => "the upstream's response cannot be forwarded",
            Self::Unavailable => "no upstream is available",
            Self::Lookup => "upstreams cannot be looked up",
            Self::Stderr => STDERR,
        }
    }
}

const STDERR: &str = "an upstream wrote to its stderr";

struct FailureEntry {
    upstream: Box<str>,
    kind: FailureKind,
    /// When its last line was written.
    written: Instant,
    /// Failures suppressed since then.
    suppressed: u64,
}

/// The recent lines. There is one for the process, as there is one log; only failing requests use it. A
/// [`LogLimit`](crate::LogLimit) does not fit: the lines are limited for each upstream, whose name may come from a
/// request, and a thread logs the count of the last suppressed ones.
struct FailureLog(Vec<FailureEntry>);

static FAILURE_LOG: Mutex<FailureLog> = Mutex::new(FailureLog(Vec::new()));
/// Whether a thread runs that will log the suppressed failures.
static SUMMARY_SCHEDULED: AtomicBool = AtomicBool::new(false);

impl FailureLog {
    /// Counts a failure. Returns the number of failures suppressed before it, or `None` if it is suppressed itself.
    fn note(&mut self, upstream: &str, kind: FailureKind, now: Instant) -> Option<u64> {
        let is_due = |entry: &FailureEntry| now.saturating_duration_since(entry.written) >= PAUSE;
        let find = |entries: &[FailureEntry], name: &str| {
            entries.iter().position(|entry| entry.kind == kind && *entry.upstream == *name)
        };
        let mut name = upstream;
        let mut at = find(&self.0, name);
        if at.is_none() && self.0.len() >= ENTRIES_MAX {
            // Expired entries suppress no lines any more: remove them. Their suppressed failures are not logged.
            self.0.retain(|entry| !is_due(entry));
            if self.0.len() >= ENTRIES_MAX {
                name = OTHERS;
                at = find(&self.0, name);
            }
        }
        let Some(at) = at else {
            self.0.push(FailureEntry { upstream: name.into(), kind, written: now, suppressed: 0 });
            return Some(0);
        };
        let entry = &mut self.0[at];
        if !is_due(entry) {
            entry.suppressed += 1;
            return None;
        }
        entry.written = now;
        Some(mem::take(&mut entry.suppressed))
    }

    /// Takes the counts of suppressed failures whose pause is over.
    fn take_rest(&mut self, now: Instant) -> Vec<(Box<str>, FailureKind, u64)> {
        let is_due =
            |entry: &&mut FailureEntry| entry.suppressed > 0 && now.saturating_duration_since(entry.written) >= PAUSE;
        let take = |entry: &mut FailureEntry| {
            entry.written = now;
            (entry.upstream.clone(), entry.kind, mem::take(&mut entry.suppressed))
        };
        self.0.iter_mut().filter(is_due).map(take).collect()
    }

    fn has_rest(&self) -> bool {
        self.0.iter().any(|entry| entry.suppressed > 0)
    }
}

/// Starts a thread that logs the suppressed failures within a second, unless a later failure has logged them. It is a
/// thread of its own, because an idle worker would not wake for it; at most one runs.
#[cold]
fn schedule_summary() {
    if SUMMARY_SCHEDULED.swap(true, Ordering::Relaxed) {
        return;
    }
    let summarize = || {
        loop {
            std::thread::sleep(PAUSE);
            let mut log = FAILURE_LOG.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = log.take_rest(Instant::now());
            let is_last = !log.has_rest();
            if is_last {
                // Cleared under the lock, so that a failure suppressed from here on starts a new thread.
                SUMMARY_SCHEDULED.store(false, Ordering::Relaxed);
            }
            drop(log);
            for (upstream, kind, suppressed) in rest {
                let upstream = &*upstream;
                match kind {
                    FailureKind::Stderr => tracing::warn!(upstream, suppressed, "{STDERR}"),
                    _ => tracing::error!(upstream, suppressed, "{}", kind.message()),
                }
            }
            if is_last {
                return;
            }
        }
    };
    if std::thread::Builder::new().name("failures".into()).spawn(summarize).is_err() {
        SUMMARY_SCHEDULED.store(false, Ordering::Relaxed);
    }
}

/// Logs at `error` that an upstream failed: its address, the duration of the call, and the cause. If a line of this
/// upstream and kind was written within the last second, the failure is only counted, and the next line contains the
/// count.
pub fn report_failure(upstream: &str, kind: FailureKind, took: Duration, cause: &dyn fmt::Display, now: Instant) {
    let mut log = FAILURE_LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(suppressed) = log.note(upstream, kind, now) else {
        return schedule_summary();
    };
    drop(log);
    // A name may come from a request, and a cause from a peer: values of fields, which every format of logs quotes.
    let cause = &*cause.to_string();
    let (duration, suppressed) = (took.as_secs_f64(), (suppressed > 0).then_some(suppressed));
    tracing::error!(upstream, duration, cause, suppressed, "{}", kind.message());
}

/// Logs the text that a FastCGI application wrote to STDERR during one request, at `level`. `None` is one line a second
/// at `warn`, as for failures. The text may contain parts of the request: the application decides that.
pub fn report_stderr(upstream: &str, text: &[u8], level: Option<StderrLevel>, now: Instant) {
    let mut suppressed = None;
    if level.is_none() {
        let mut log = FAILURE_LOG.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = log.note(upstream, FailureKind::Stderr, now) else {
            return schedule_summary();
        };
        suppressed = (count > 0).then_some(count);
    }
    // A value of a field, which every format of logs keeps on one line.
    let text = &*String::from_utf8_lossy(text.trim_ascii_end());
    match level {
        Some(StderrLevel::Error) => tracing::error!(upstream, text, "{STDERR}"),
        Some(StderrLevel::Warn) | None => tracing::warn!(upstream, text, suppressed, "{STDERR}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_for_each_upstream_and_kind() {
        use FailureKind::{NoResponse, Unreachable};
        let mut log = FailureLog(Vec::new());
        let begin = Instant::now();
        let cases: &[(u64, &str, FailureKind, Option<u64>)] = &[
            (0, "a:1", Unreachable, Some(0)),
            (1, "a:1", Unreachable, None),
            (2, "a:1", NoResponse, Some(0)),
            (3, "b:1", Unreachable, Some(0)),
            (999, "a:1", Unreachable, None),
            (1000, "a:1", Unreachable, Some(2)),
            (1001, "a:1", Unreachable, None),
            (5000, "a:1", Unreachable, Some(1)),
        ];
        for (ms, upstream, kind, want) in cases {
            let now = begin + Duration::from_millis(*ms);
            assert_eq!(log.note(upstream, *kind, now), *want, "{ms} ms: {upstream} {kind:?}");
        }
    }

    #[test]
    fn omitted_failures_are_reported_when_no_failure_follows() {
        let mut log = FailureLog(Vec::new());
        let begin = Instant::now();
        for _ in 0..10 {
            log.note("a:1", FailureKind::NoResponse, begin);
        }
        log.note("b:1", FailureKind::NoResponse, begin);
        assert!(log.take_rest(begin + PAUSE / 2).is_empty() && log.has_rest(), "the pause is one second");
        assert_eq!(log.take_rest(begin + PAUSE), [("a:1".into(), FailureKind::NoResponse, 9)]);
        assert!(!log.has_rest());
        assert_eq!(log.note("a:1", FailureKind::NoResponse, begin + PAUSE), None, "the rest was logged at this time");
    }

    // Requests may name any number of upstreams by placeholders.
    #[test]
    fn upstreams_without_number_are_bounded() {
        let mut log = FailureLog(Vec::new());
        let now = Instant::now();
        let lines = |log: &mut FailureLog, now| {
            let names = (0..10_000).map(|number| format!("a:{number}"));
            names.filter(|name| log.note(name, FailureKind::Unreachable, now).is_some()).count()
        };
        assert_eq!(lines(&mut log, now), ENTRIES_MAX + 1);
        assert_eq!(log.0.len(), ENTRIES_MAX + 1);
        assert_eq!(lines(&mut log, now + PAUSE / 2), 0, "no pause is over yet");
        assert!(lines(&mut log, now + PAUSE) <= 2 * ENTRIES_MAX);
        assert!(log.0.len() <= ENTRIES_MAX + 1);
    }
}

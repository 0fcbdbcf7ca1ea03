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
    NoAnswer,
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
    fn words(self) -> &'static str {
        match self {
            Self::Unreachable => "an upstream cannot be reached",
            Self::NoAnswer => "an upstream gave no answer",
            Self::TimedOut => "an upstream did not answer in time",
            Self::BrokenOff => "an upstream broke off its answer",
            Self::Unusable => "an upstream's answer cannot be forwarded",
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
    left_out: u64,
}

/// The recent lines. There is one for the process, as there is one log; only failing requests use it.
struct Lately(Vec<FailureEntry>);

static LATELY: Mutex<Lately> = Mutex::new(Lately(Vec::new()));
/// Whether a thread runs that will log the suppressed failures.
static TELLS_REST: AtomicBool = AtomicBool::new(false);

impl Lately {
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
            self.0.push(FailureEntry { upstream: name.into(), kind, written: now, left_out: 0 });
            return Some(0);
        };
        let entry = &mut self.0[at];
        if !is_due(entry) {
            entry.left_out += 1;
            return None;
        }
        entry.written = now;
        Some(mem::take(&mut entry.left_out))
    }

    /// Takes the counts of suppressed failures whose pause is over.
    fn take_rest(&mut self, now: Instant) -> Vec<(Box<str>, FailureKind, u64)> {
        let is_due =
            |entry: &&mut FailureEntry| entry.left_out > 0 && now.saturating_duration_since(entry.written) >= PAUSE;
        let tell = |entry: &mut FailureEntry| {
            entry.written = now;
            (entry.upstream.clone(), entry.kind, mem::take(&mut entry.left_out))
        };
        self.0.iter_mut().filter(is_due).map(tell).collect()
    }

    fn has_rest(&self) -> bool {
        self.0.iter().any(|entry| entry.left_out > 0)
    }
}

/// Starts a thread that logs the suppressed failures within a second, unless a later failure has logged them. It is a
/// thread of its own, because an idle worker would not wake for it; at most one runs.
#[cold]
fn schedule_summary() {
    if TELLS_REST.swap(true, Ordering::Relaxed) {
        return;
    }
    let tell = || {
        loop {
            std::thread::sleep(PAUSE);
            let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
            let rest = lately.take_rest(Instant::now());
            let is_last = !lately.has_rest();
            if is_last {
                // Cleared under the lock, so that a failure suppressed from here on starts a new thread.
                TELLS_REST.store(false, Ordering::Relaxed);
            }
            drop(lately);
            for (upstream, kind, left_out) in rest {
                let upstream = &*upstream;
                match kind {
                    FailureKind::Stderr => tracing::warn!(upstream, left_out, "{STDERR}"),
                    _ => tracing::error!(upstream, left_out, "{}", kind.words()),
                }
            }
            if is_last {
                return;
            }
        }
    };
    if std::thread::Builder::new().name("failures".into()).spawn(tell).is_err() {
        TELLS_REST.store(false, Ordering::Relaxed);
    }
}

/// Logs at `error` that an upstream failed: its address, the duration of the call, and the cause. If a line of this
/// upstream and kind was written within the last second, the failure is only counted, and the next line contains the
/// count.
pub fn report_failure(upstream: &str, kind: FailureKind, took: Duration, cause: &dyn fmt::Display, now: Instant) {
    let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(left_out) = lately.note(upstream, kind, now) else {
        return schedule_summary();
    };
    drop(lately);
    // A name may come from a request, and a cause from a peer: values of fields, which every format of logs quotes.
    let cause = &*cause.to_string();
    let (duration, left_out) = (took.as_secs_f64(), (left_out > 0).then_some(left_out));
    tracing::error!(upstream, duration, cause, left_out, "{}", kind.words());
}

/// Logs the text that a FastCGI application wrote to STDERR during one request, at `level`. `None` is one line a second
/// at `warn`, as for failures. The text may contain parts of the request: the application decides that.
pub fn report_stderr(upstream: &str, text: &[u8], level: Option<StderrLevel>, now: Instant) {
    let mut left_out = None;
    if level.is_none() {
        let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = lately.note(upstream, FailureKind::Stderr, now) else {
            return schedule_summary();
        };
        left_out = (count > 0).then_some(count);
    }
    // A value of a field, which every format of logs keeps on one line.
    let text = &*String::from_utf8_lossy(text.trim_ascii_end());
    match level {
        Some(StderrLevel::Error) => tracing::error!(upstream, text, "{STDERR}"),
        Some(StderrLevel::Warn) | None => tracing::warn!(upstream, text, left_out, "{STDERR}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_for_each_upstream_and_kind() {
        use FailureKind::{NoAnswer, Unreachable};
        let mut lately = Lately(Vec::new());
        let begin = Instant::now();
        let cases: &[(u64, &str, FailureKind, Option<u64>)] = &[
            (0, "a:1", Unreachable, Some(0)),
            (1, "a:1", Unreachable, None),
            (2, "a:1", NoAnswer, Some(0)),
            (3, "b:1", Unreachable, Some(0)),
            (999, "a:1", Unreachable, None),
            (1000, "a:1", Unreachable, Some(2)),
            (1001, "a:1", Unreachable, None),
            (5000, "a:1", Unreachable, Some(1)),
        ];
        for (ms, upstream, kind, want) in cases {
            let now = begin + Duration::from_millis(*ms);
            assert_eq!(lately.note(upstream, *kind, now), *want, "{ms} ms: {upstream} {kind:?}");
        }
    }

    #[test]
    fn omitted_failures_are_reported_when_no_failure_follows() {
        let mut lately = Lately(Vec::new());
        let begin = Instant::now();
        for _ in 0..10 {
            lately.note("a:1", FailureKind::NoAnswer, begin);
        }
        lately.note("b:1", FailureKind::NoAnswer, begin);
        assert!(lately.take_rest(begin + PAUSE / 2).is_empty() && lately.has_rest(), "the pause is one second");
        assert_eq!(lately.take_rest(begin + PAUSE), [("a:1".into(), FailureKind::NoAnswer, 9)]);
        assert!(!lately.has_rest());
        assert_eq!(lately.note("a:1", FailureKind::NoAnswer, begin + PAUSE), None, "the rest was logged at this time");
    }

    // Requests may name any number of upstreams by placeholders.
    #[test]
    fn upstreams_without_number_are_bounded() {
        let mut lately = Lately(Vec::new());
        let now = Instant::now();
        let lines = |lately: &mut Lately, now| {
            let names = (0..10_000).map(|number| format!("a:{number}"));
            names.filter(|name| lately.note(name, FailureKind::Unreachable, now).is_some()).count()
        };
        assert_eq!(lines(&mut lately, now), ENTRIES_MAX + 1);
        assert_eq!(lately.0.len(), ENTRIES_MAX + 1);
        assert_eq!(lines(&mut lately, now + PAUSE / 2), 0, "no pause is over yet");
        assert!(lines(&mut lately, now + PAUSE) <= 2 * ENTRIES_MAX);
        assert!(lately.0.len() <= ENTRIES_MAX + 1);
    }
}

//! A rate limit for log lines that requests cause.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Admits one line per second, so that a flood of similar failures cannot fill a disk. Each kind of line has its own
/// limit, as a `static`, or in the object that the line is about.
#[derive(Debug, Default)]
pub struct LogLimit {
    /// The first second at which the next line is admitted, since the first use in the process; 0 before the first
    /// line.
    next: AtomicU64,
    /// Lines suppressed since the last one.
    suppressed: AtomicU64,
}

impl LogLimit {
    /// Creates a limit that admits the next line.
    pub const fn new() -> Self {
        Self { next: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns `None` if the line must be suppressed; otherwise the number of lines suppressed since the last one.
    pub fn admit(&self) -> Option<u64> {
        static START: OnceLock<Instant> = OnceLock::new();
        self.admit_in(START.get_or_init(Instant::now).elapsed().as_secs())
    }

    fn admit_in(&self, second: u64) -> Option<u64> {
        let next = self.next.load(Ordering::Relaxed);
        // Of several threads at once, one wins the exchange and writes.
        let is_first = second >= next
            && self.next.compare_exchange(next, second + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_first {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_with_the_number_of_suppressed_lines() {
        let limit = LogLimit::new();
        let seconds = [0, 0, 0, 1, 1, 7, 8];
        assert_eq!(
            seconds.map(|second| limit.admit_in(second)),
            [Some(0), None, None, Some(2), None, Some(1), Some(0)]
        );
    }
}

//! A worker's cached clock, so that a request needs no system call for the time. The clock is read:
//! - when the worker begins, and when the reactor wakes
//! - after every 32 polls of connections and of TLS handshakes
//! - when the alarm of the worker's timers is due
//! - when a call to an upstream fails
//! - when a fault reaches the end of its routes, since the log shows its time
//! - when a handler requests the exact time, as the access log and `trace` do for each record
//! - at the end of each request whose duration the metrics measure
//!
//! Delays by the profiler (`hold`) are shorter than the cache's age, so that module reads the system's clock itself.
//!
//! A saturated runtime never parks, so reading only at wakeups would let the cached time become stale; the count of
//! polls bounds its age.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Connection polls after which the clock is read again.
const POLLS_MAX: u32 = 32;

thread_local! {
    static CLOCK: Clock = Clock::new();
}

/// The cached time of one thread.
struct Clock {
    now: Cell<Instant>,
    /// Connection polls since the last reading.
    polls: Cell<u32>,
    /// One instant on both clocks. Renewed each second, since the wall clock may be adjusted while the process runs.
    paired: Cell<(Instant, SystemTime)>,
    /// The start of the wall clock's next second.
    second_ends: Cell<Instant>,
    /// The `Date` field's value for this second (RFC 9110 §5.6.7), formatted once per second.
    date: Cell<[u8; 29]>,
}

impl Clock {
    fn new() -> Self {
        let (now, wall) = (Instant::now(), SystemTime::now());
        let clock = Self {
            now: Cell::new(now),
            polls: Cell::new(0),
            paired: Cell::new((now, wall)),
            second_ends: Cell::new(now),
            date: Cell::new([b' '; 29]),
        };
        clock.begin_second(now);
        clock
    }

    fn refresh(&self) {
        let now = Instant::now();
        self.now.set(now);
        self.polls.set(0);
        if now >= self.second_ends.get() {
            self.begin_second(now);
        }
    }

    /// Pairs the clocks again and formats the new second's `Date` value.
    fn begin_second(&self, now: Instant) {
        let wall = SystemTime::now();
        self.paired.set((now, wall));
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.second_ends.set(now + Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into()));
        let mut text = [b' '; 29];
        let mut rest = &mut text[..];
        // An IMF-fixdate is always 29 bytes long, so it fits exactly.
        let written = std::io::Write::write_fmt(&mut rest, format_args!("{}", httpdate::HttpDate::from(wall)));
        debug_assert!(written.is_ok() && rest.is_empty());
        self.date.set(text);
    }

    fn wall(&self) -> SystemTime {
        let (then, wall) = self.paired.get();
        wall + self.now.get().duration_since(then)
    }
}

/// Returns the thread's cached time.
pub(crate) fn now() -> Instant {
    CLOCK.with(|clock| clock.now.get())
}

/// Returns the thread's cached time as wall-clock time.
pub(crate) fn wall() -> SystemTime {
    CLOCK.with(Clock::wall)
}

/// Returns the value of the `Date` field for the current second.
pub(crate) fn date() -> [u8; 29] {
    CLOCK.with(|clock| clock.date.get())
}

/// Reads the system's clock into the cache.
pub(crate) fn refresh() {
    CLOCK.with(Clock::refresh);
}

/// Counts a connection poll; every 32nd reads the system's clock.
pub(crate) fn polled() {
    CLOCK.with(|clock| {
        let polls = clock.polls.get() + 1;
        clock.polls.set(polls);
        if polls >= POLLS_MAX {
            clock.refresh();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_read_once_in_several_polls() {
        refresh();
        let before = now();
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(now(), before);
        for _ in 0..POLLS_MAX {
            polled();
        }
        assert!(now() > before);
    }

    #[test]
    fn date_is_an_imf_fixdate() {
        let text = date();
        let text = std::str::from_utf8(&text).unwrap();
        assert!(httpdate::parse_http_date(text).is_ok() && text.ends_with(" GMT"), "{text}");
    }
}

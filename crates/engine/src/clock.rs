//! A worker's clock: read once when the reactor wakes, after every 32 connection polls and where a call to an upstream fails, not per request.
//!
//! A saturated runtime never parks, so the wake alone would let the clock go stale; the count of polls bounds that.

use std::cell::Cell;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Connection polls after which the clock is read again.
const POLLS_MAX: u32 = 32;

thread_local! {
    static CLOCK: Clock = Clock::new();
}

struct Clock {
    now: Cell<Instant>,
    polls: Cell<u32>,
    /// A moment on both clocks, renewed each second: the wall clock may be set while we run.
    paired: Cell<(Instant, SystemTime)>,
    /// When the wall clock's next second begins.
    second_ends: Cell<Instant>,
    /// The `Date` field's value for this second (RFC 9110 §5.6.7).
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

    fn begin_second(&self, now: Instant) {
        let wall = SystemTime::now();
        self.paired.set((now, wall));
        let since = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.second_ends.set(now + Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into()));
        let mut text = [b' '; 29];
        let mut rest = &mut text[..];
        // An IMF-fixdate always has 29 octets, so the write fits.
        let written = std::io::Write::write_fmt(&mut rest, format_args!("{}", httpdate::HttpDate::from(wall)));
        debug_assert!(written.is_ok() && rest.is_empty());
        self.date.set(text);
    }

    fn wall(&self) -> SystemTime {
        let (then, wall) = self.paired.get();
        wall + self.now.get().duration_since(then)
    }
}

/// The worker's moment.
pub(crate) fn now() -> Instant {
    CLOCK.with(|clock| clock.now.get())
}

/// The worker's moment as wall-clock time.
pub(crate) fn wall() -> SystemTime {
    CLOCK.with(Clock::wall)
}

/// The value of the `Date` field.
pub(crate) fn date() -> [u8; 29] {
    CLOCK.with(|clock| clock.date.get())
}

/// Reads the real clock.
pub(crate) fn refresh() {
    CLOCK.with(Clock::refresh);
}

/// Counts a connection's poll.
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
    fn stands_still_until_polled_often_enough() {
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

//! When the progress of an order is polled.

use std::time::Duration;

use tokio::time::Instant;

/// The longest pause between two requests, unless `Retry-After` is longer: at most that much is lost after the order is
/// ready.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A schedule with growing pauses. The last request is at its end.
pub(crate) struct Polling {
    pause: Duration,
    end: Instant,
}

impl Polling {
    /// A schedule from `now` on with this first pause, for this time.
    pub(crate) fn new(first: Duration, now: Instant, timeout: Duration) -> Self {
        Self { pause: first, end: now + timeout }
    }

    /// Returns the pause before the next request; `retry_after` is that of the authority. `None`: there is no time left
    /// for another one.
    pub(crate) fn next(&mut self, now: Instant, retry_after: Option<Duration>) -> Option<Duration> {
        if now >= self.end {
            return None;
        }
        let left = self.end - now;
        // RFC 8555 §7.5.1: the client respects it.
        if let Some(retry_after) = retry_after.filter(|retry_after| !retry_after.is_zero()) {
            return Some(retry_after).filter(|retry_after| *retry_after <= left);
        }
        let pause = self.pause.min(left);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(300);

    // Caddy's limit of 5 minutes: an authority that needs most of them is noticed soon, and there is a look at the end.
    #[test]
    fn pauses_are_short_until_the_end() {
        let start = Instant::now();
        let mut polling = Polling::new(Duration::from_millis(250), start, TIMEOUT);
        let (mut now, mut looks) = (start, 0);
        while let Some(pause) = polling.next(now, None) {
            assert!(!pause.is_zero() && pause <= Duration::from_secs(5), "{pause:?}");
            now += pause;
            looks += 1;
        }
        assert_eq!(now, start + TIMEOUT);
        assert!(looks < 70, "{looks}");
    }

    // RFC 8555 §7.5.1: the pause of the authority's `Retry-After`. One beyond the limit ends the order.
    #[test]
    fn the_pause_of_retry_after() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut polling = Polling::new(seconds(1), start, TIMEOUT);
        for (at, retry_after, want) in [
            (0, Some(seconds(20)), Some(seconds(20))),
            (0, Some(seconds(300)), Some(seconds(300))),
            (20, Some(seconds(281)), None),
            (20, Some(Duration::ZERO), Some(seconds(1))),
            (21, None, Some(seconds(2))),
            (300, Some(seconds(1)), None),
        ] {
            assert_eq!(polling.next(start + seconds(at), retry_after), want, "{at} {retry_after:?}");
        }
    }
}

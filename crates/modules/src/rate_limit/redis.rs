//! The events of a key on other servers, as Redis reported them last.
//!
//! Redis counts the events of all servers in periods as long as the window. The events of this server are subtracted,
//! because their times are known exactly. The rest is estimated: all events of the present period, and of the previous
//! period the share that is still in the window.

use std::time::{Duration, Instant};

use causeway_shared_counts::{KeyDelta, WindowCounts};
use sha2::{Digest as _, Sha256};

/// The counts of a key in Redis, and the events that are not in Redis yet.
pub(super) struct RedisEvents {
    /// The same on all servers. The key itself stays out of Redis: it may be long or a secret.
    id: [u8; 16],
    /// Events that are not in Redis.
    unsent: u32,
    /// Whether the key waits for the next round.
    is_queued: bool,
    period: u64,
    /// When the period began; `None` until the first report.
    began: Option<Instant>,
    /// The events of this server that are in Redis, in the period and the previous one.
    own: [u32; 2],
    /// The events of the other servers, in the same periods.
    others: [u32; 2],
}

impl RedisEvents {
    pub(super) fn new(key: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        Self { id, unsent: 0, is_queued: false, period: 0, began: None, own: [0; 2], others: [0; 2] }
    }

    /// Returns the number of events of other servers in the window that ends now, rounded down.
    pub(super) fn others(&self, window: Duration, now: Instant) -> usize {
        let Some(began) = self.began else { return 0 };
        let [current, previous] = self.others.map(f64::from);
        let age = now.saturating_duration_since(began).as_secs_f64() / window.as_secs_f64();
        let events = if age < 1.0 { previous.mul_add(1.0 - age, current) } else { current * (2.0 - age).max(0.0) };
        events as usize
    }

    /// Whether the reported events can still be in the window.
    pub(super) fn is_recent(&self, window: Duration, now: Instant) -> bool {
        self.began.is_some_and(|began| now.saturating_duration_since(began) < 2 * window)
    }

    /// Counts events that are not in Redis. Returns whether the key has to be queued for the next round.
    pub(super) fn add(&mut self, events: u32) -> bool {
        self.unsent = self.unsent.saturating_add(events);
        !std::mem::replace(&mut self.is_queued, true)
    }

    /// Takes the events that are not in Redis, at most `max`, the number of events in the window.
    pub(super) fn delta(&mut self, local: u64, window: Duration, max: usize) -> KeyDelta {
        self.is_queued = false;
        let unsent = std::mem::take(&mut self.unsent);
        KeyDelta { local, id: self.id, window, events: unsent.min(u32::try_from(max).unwrap_or(u32::MAX)) }
    }

    /// Takes a report that includes `events` new ones of this server.
    pub(super) fn update(&mut self, events: u32, all: WindowCounts) {
        self.own = match all.period.checked_sub(self.period) {
            Some(0) => self.own,
            Some(1) => [0, self.own[0]],
            _ => [0; 2],
        };
        let known = [self.own[0].saturating_add(events), self.own[1]];
        let all_events = [all.current, all.previous];
        for index in 0..2 {
            // Redis has restarted if it has fewer events than this server has sent.
            self.own[index] = known[index].min(all_events[index]);
            self.others[index] = all_events[index] - self.own[index];
        }
        self.period = all.period;
        self.began = Some(all.began);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn counts(period: u64, began: Instant, current: u32, previous: u32) -> WindowCounts {
        WindowCounts { period, began, current, previous }
    }

    #[test]
    fn events_of_others_leave_the_window() {
        let (mut events, start) = (RedisEvents::new(b"k"), Instant::now());
        assert_eq!(events.others(WINDOW, start), 0);
        events.update(3, counts(7, start, 5, 8));
        for (seconds, want) in [(0, 10), (5, 6), (9, 2), (10, 2), (15, 1), (20, 0), (100, 0)] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(events.others(WINDOW, now), want, "{seconds} s");
            assert_eq!(events.is_recent(WINDOW, now), seconds < 20);
        }
    }

    // The events of this server are not those of others, in the period in which it sent them and in the next one.
    #[test]
    fn own_events_are_left_out() {
        let (mut events, start) = (RedisEvents::new(b"k"), Instant::now());
        events.update(3, counts(7, start, 5, 0));
        events.update(1, counts(7, start, 7, 0));
        assert_eq!((events.own, events.others), ([4, 0], [3, 0]));
        events.update(2, counts(8, start + WINDOW, 2, 9));
        assert_eq!((events.own, events.others), ([2, 4], [0, 5]));
        events.update(0, counts(10, start + 3 * WINDOW, 6, 6));
        assert_eq!((events.own, events.others), ([0, 0], [6, 6]));
    }

    // After a restart without its data, Redis has only new events. Those of other servers count in full.
    #[test]
    fn a_redis_that_forgets() {
        let (mut events, start) = (RedisEvents::new(b"k"), Instant::now());
        events.update(9, counts(7, start, 9, 0));
        events.update(1, counts(7, start, 1, 0));
        events.update(0, counts(7, start, 4, 0));
        assert_eq!(events.others, [3, 0]);
    }

    #[test]
    fn unsent_events_are_taken_once() {
        let mut events = RedisEvents::new(b"\0\xff");
        assert!(events.add(1) && !events.add(1), "queued once");
        assert_eq!(events.delta(5, WINDOW, 10).events, 2);
        assert!(events.add(3));
        assert_eq!(events.delta(5, WINDOW, 1).events, 1, "the others have left the window");
        assert_ne!(events.id, RedisEvents::new(b"\0\xfe").id);
    }
}

//! The events of a zone, by key. All workers share them, and they outlive a reload. A zone in Redis also has the number
//! of events of other servers (`redis`).

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_shared_counts::{CountExchange, CountedKeys, KeyDelta, RedisServer, WindowCounts};

use super::redis::RedisEvents;

/// Parts of a zone with a lock each, so that workers seldom wait for each other.
const SHARDS: usize = 32;
/// Memory of a shard's events; beyond it the events of other keys are dropped. A zone has 64 MiB.
const SHARD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Memory of a key without events.
const KEY_BYTES: usize = 64;
/// Further memory of a key in Redis, with its position in the queue.
const REDIS_KEY_BYTES: usize = 96;
/// The precision of the wait in a refusal.
const WAIT_PRECISION: Duration = Duration::from_millis(1);
/// With fewer keys, a shard does not look for expired ones.
const SWEEP_KEYS_MIN: usize = 64;

/// Events that are allowed in a window of time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Limit {
    events: usize,
    window: Duration,
}

impl Limit {
    /// Returns `None` unless both are above 0. More events than a shard can hold are as many as it can hold.
    pub(super) fn new(events: i64, window: Duration) -> Option<Self> {
        let events = usize::try_from(events).ok().filter(|events| *events > 0 && !window.is_zero())?;
        Some(Self { events: events.min(SHARD_BYTES_MAX / 2 / size_of::<Instant>()), window })
    }

    /// Events per second.
    pub(super) fn rate(&self) -> f64 {
        self.events as f64 / self.window.as_secs_f64()
    }
}

pub(super) struct Zone {
    /// Keyed with random numbers, so that clients cannot choose keys that collide.
    hasher: RandomState,
    shards: [Mutex<Shard>; SHARDS],
    /// The limits of the handlers that count for it, of all plans that exist.
    limits: Mutex<Vec<Limit>>,
    /// The greatest window of `limits` in nanoseconds, and the most events.
    window_max: AtomicU64,
    events_max: AtomicUsize,
    /// `None`: this server counts for itself.
    redis: Option<RedisZone>,
}

/// A zone with a limit of its events. Several handlers may have different limits of one zone; while they exist, it
/// keeps the events that any of them needs.
pub(super) struct LimitedZone {
    zone: Arc<Zone>,
    limit: Limit,
}

impl LimitedZone {
    /// Returns the [zone](Zone::of) of this name, with this limit.
    ///
    /// # Errors
    /// As [`Zone::of`].
    pub(super) fn of(name: &str, server: Option<&RedisServer>, limit: Limit) -> io::Result<Self> {
        let zone = Zone::of(name, server, limit.window)?;
        zone.change_limits(|limits| limits.push(limit));
        Ok(Self { zone, limit })
    }

    pub(super) fn limit(&self) -> Limit {
        self.limit
    }

    /// As [`Zone::take`].
    pub(super) fn take(&self, key: &[u8], now: Instant) -> Result<(), Duration> {
        self.zone.take(key, self.limit, now)
    }
}

impl Drop for LimitedZone {
    fn drop(&mut self) {
        self.zone.change_limits(|limits| {
            if let Some(at) = limits.iter().position(|limit| *limit == self.limit) {
                limits.swap_remove(at);
            }
        });
    }
}

/// The exchange of a zone with Redis.
struct RedisZone {
    exchange: Arc<CountExchange>,
    window: Duration,
    /// The beginning of the names in Redis.
    prefix: Box<str>,
    /// The shard that the next round begins with, so that none is left out for long.
    first: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    /// By the key's hash: two keys share it with a probability of 2^-64.
    keys: HashMap<u64, Events>,
    /// Memory of `keys`, counted as [`Events::bytes`].
    bytes: usize,
    /// The number of keys at which expired ones are removed.
    sweep_at: usize,
    /// Keys with new events for Redis, once each.
    queued: Vec<u64>,
}

/// The times of a key's events, the earliest first.
#[derive(Default)]
struct Events {
    times: VecDeque<Instant>,
    /// `Some` in a zone in Redis.
    redis: Option<Box<RedisEvents>>,
}

/// The identity of a zone: its name. For a zone in Redis also the server and the window, because only counts of equal
/// windows can be added.
#[derive(PartialEq, Eq, Hash)]
struct ZoneId {
    name: String,
    redis: Option<(RedisServer, Duration)>,
}

/// The zones that exist.
static ZONES: LazyLock<Mutex<HashMap<ZoneId, Weak<Zone>>>> = LazyLock::new(Mutex::default);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Zone {
    /// Returns the zone of this name: of this server alone, or with this window in Redis. It exists until the last plan
    /// that names it is gone.
    ///
    /// # Errors
    /// The exchange with Redis cannot be opened. That it cannot be reached is no error.
    fn of(name: &str, server: Option<&RedisServer>, window: Duration) -> io::Result<Arc<Self>> {
        let id = ZoneId { name: name.to_owned(), redis: server.map(|server| (server.clone(), window)) };
        let mut zones = lock(&ZONES);
        if let Some(zone) = zones.get(&id).and_then(Weak::upgrade) {
            return Ok(zone);
        }
        zones.retain(|_, zone| zone.strong_count() > 0);
        let redis = match server {
            Some(server) => Some(RedisZone::new(CountExchange::open(server)?, name, window)),
            None => None,
        };
        let zone = Arc::new(Self::new(redis));
        if let Some(redis) = &zone.redis {
            let member: Weak<Self> = Arc::downgrade(&zone);
            redis.exchange.join(member);
        }
        zones.insert(id, Arc::downgrade(&zone));
        Ok(zone)
    }

    fn new(redis: Option<RedisZone>) -> Self {
        Self {
            hasher: RandomState::new(),
            shards: std::array::from_fn(|_| Mutex::default()),
            limits: Mutex::default(),
            window_max: AtomicU64::new(0),
            events_max: AtomicUsize::new(0),
            redis,
        }
    }

    fn change_limits(&self, change: impl FnOnce(&mut Vec<Limit>)) {
        let mut limits = lock(&self.limits);
        change(&mut limits);
        let window = limits.iter().map(|limit| limit.window).max().unwrap_or_default();
        // More than 500 years are as good as 500.
        self.window_max.store(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        self.events_max.store(limits.iter().map(|limit| limit.events).max().unwrap_or_default(), Ordering::Relaxed);
    }

    /// The events that are kept for this limit and those of the other handlers.
    fn kept(&self, limit: Limit) -> Limit {
        let window = Duration::from_nanos(self.window_max.load(Ordering::Relaxed));
        let events = self.events_max.load(Ordering::Relaxed);
        Limit { events: limit.events.max(events), window: limit.window.max(window) }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        lock(&self.shards[hash as usize % SHARDS])
    }

    /// Counts an event of this key. If the limit is reached, the event is not counted, and the error is the time until
    /// the next one is allowed. Allocates only while a key's events become more.
    fn take(&self, key: &[u8], limit: Limit, now: Instant) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(key);
        let limits = (limit, self.kept(limit));
        let Some(redis) = &self.redis else { return self.shard(hash).take(hash, None, limits, now) };
        let taken = self.shard(hash).take(hash, Some(key), limits, now);
        redis.exchange.mark_pending();
        taken
    }
}

impl RedisZone {
    fn new(exchange: Arc<CountExchange>, name: &str, window: Duration) -> Self {
        Self { exchange, window, prefix: format!("causeway/rate_limit/{name}").into(), first: AtomicUsize::new(0) }
    }
}

impl CountedKeys for Zone {
    fn collect(&self, now: Instant, max: usize, deltas: &mut Vec<KeyDelta>) -> bool {
        let Some(redis) = &self.redis else { return false };
        let end = deltas.len() + max;
        let first = redis.first.fetch_add(1, Ordering::Relaxed);
        let mut is_rest = false;
        for number in 0..SHARDS {
            let shard = &self.shards[first.wrapping_add(number) % SHARDS];
            // Each shard gets an equal share of the room that is left.
            let share = (end - deltas.len()).div_ceil(SHARDS - number);
            is_rest |= lock(shard).collect(now, redis.window, share, deltas);
        }
        is_rest
    }

    fn update(&self, delta: &KeyDelta, all: WindowCounts) {
        if let Some(redis) = self.shard(delta.local).redis_events(delta.local) {
            redis.update(delta.events, all);
        }
    }

    fn restore(&self, delta: &KeyDelta) {
        let mut shard = self.shard(delta.local);
        if shard.redis_events(delta.local).is_some_and(|redis| redis.add(delta.events)) {
            shard.queued.push(delta.local);
        }
    }

    fn prefix(&self) -> &str {
        self.redis.as_ref().map_or("", |redis| &redis.prefix)
    }
}

impl Shard {
    /// Records an event of a key, or returns the time until it is allowed. `key` is for a zone in Redis. `kept` are the
    /// events that are kept, at least those of `limit`.
    fn take(
        &mut self,
        hash: u64,
        key: Option<&[u8]>,
        (limit, kept): (Limit, Limit),
        now: Instant,
    ) -> Result<(), Duration> {
        if self.keys.len() >= self.sweep_at.max(SWEEP_KEYS_MIN) && !self.keys.contains_key(&hash) {
            self.sweep(kept.window, now);
        }
        let events = self.keys.entry(hash).or_insert_with(|| {
            let redis = key.map(|key| Box::new(RedisEvents::new(key)));
            let events = Events { redis, ..Events::default() };
            self.bytes += events.bytes();
            events
        });
        events.expire(kept.window, now);
        let refused = events.excess(limit, now);
        // Also for a refused request: the next counts from Redis may allow the next request.
        if let Some(redis) = &mut events.redis
            && redis.add(u32::from(refused.is_none()))
        {
            self.queued.push(hash);
        }
        if let Some(excess) = refused {
            return Err(events.wait(excess, limit, now));
        }
        let before = events.bytes();
        // A limit is about as many of the latest events as it allows.
        while events.times.len() >= kept.events {
            events.times.pop_front();
        }
        events.times.push_back(now);
        self.bytes += events.bytes() - before;
        if self.bytes > SHARD_BYTES_MAX {
            self.shrink(hash, kept.window, now);
        }
        Ok(())
    }

    /// Removes expired keys.
    fn sweep(&mut self, window: Duration, now: Instant) {
        let bytes = &mut self.bytes;
        self.keys.retain(|_, events| {
            let before = events.bytes();
            events.expire(window, now);
            let is_kept =
                !events.times.is_empty() || events.redis.as_ref().is_some_and(|redis| redis.is_recent(window, now));
            if !is_kept {
                *bytes -= before;
            }
            is_kept
        });
        self.queued.retain(|key| self.keys.contains_key(key));
        // Twice as many, so that the work is a constant per new key.
        self.sweep_at = 2 * self.keys.len();
    }

    /// Drops events until three quarters of the memory suffice: expired ones, then those of keys other than `hash`.
    #[cold]
    fn shrink(&mut self, hash: u64, window: Duration, now: Instant) {
        self.sweep(window, now);
        let target = SHARD_BYTES_MAX / 4 * 3;
        let bytes = &mut self.bytes;
        self.keys.retain(|key, events| {
            let is_kept = *key == hash || *bytes <= target;
            if !is_kept {
                *bytes -= events.bytes();
            }
            is_kept
        });
        self.queued.retain(|key| self.keys.contains_key(key));
        self.keys.shrink_to(2 * self.keys.len());
    }

    fn redis_events(&mut self, hash: u64) -> Option<&mut RedisEvents> {
        self.keys.get_mut(&hash)?.redis.as_deref_mut()
    }

    /// Appends the deltas of at most `max` keys. Returns whether keys are left.
    fn collect(&mut self, now: Instant, window: Duration, max: usize, deltas: &mut Vec<KeyDelta>) -> bool {
        let count = self.queued.len().min(max);
        for hash in self.queued.drain(..count) {
            let Some(events) = self.keys.get_mut(&hash) else { continue };
            events.expire(window, now);
            let in_window = events.times.len();
            deltas.extend(events.redis.as_mut().map(|redis| redis.delta(hash, window, in_window)));
        }
        !self.queued.is_empty()
    }
}

impl Events {
    /// Drops events that have left the window.
    fn expire(&mut self, window: Duration, now: Instant) {
        while self.times.front().is_some_and(|time| now.saturating_duration_since(*time) >= window) {
            self.times.pop_front();
        }
    }

    /// The number of events that have left a window.
    fn gone(&self, window: Duration, now: Instant) -> usize {
        self.times.partition_point(|time| now.saturating_duration_since(*time) >= window)
    }

    /// If the limit is reached, the number of events that have to leave the window beside one.
    fn excess(&self, limit: Limit, now: Instant) -> Option<usize> {
        let others = self.redis.as_ref().map_or(0, |redis| redis.others(limit.window, now));
        // After a reload with a lower limit there may be more events than it allows.
        (self.times.len() - self.gone(limit.window, now) + others).checked_sub(limit.events)
    }

    /// The time until an event is allowed.
    fn wait(&self, excess: usize, limit: Limit, now: Instant) -> Duration {
        match &self.redis {
            Some(redis) if redis.others(limit.window, now) > 0 => self.wait_for_all(redis, limit, now),
            _ => (self.times[self.gone(limit.window, now) + excess] + limit.window).saturating_duration_since(now),
        }
    }

    /// As [`Self::wait`], with the events of other servers: a search, since their number falls with time and has no
    /// times.
    fn wait_for_all(&self, redis: &RedisEvents, limit: Limit, now: Instant) -> Duration {
        let is_free = |wait: Duration| {
            let at = now + wait;
            self.times.len() - self.gone(limit.window, at) + redis.others(limit.window, at) < limit.events
        };
        // After two windows no event is left.
        let (mut refused, mut free) = (Duration::ZERO, 2 * limit.window);
        while free - refused > WAIT_PRECISION {
            let middle = refused + (free - refused) / 2;
            if is_free(middle) {
                free = middle;
            } else {
                refused = middle;
            }
        }
        free
    }

    fn bytes(&self) -> usize {
        let redis = if self.redis.is_some() { REDIS_KEY_BYTES } else { 0 };
        KEY_BYTES + redis + self.times.capacity() * size_of::<Instant>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limit(events: i64, window: Duration) -> Limit {
        Limit::new(events, window).unwrap()
    }

    // The plugin's documentation: at most `events` in any window of this length, for each key.
    #[test]
    fn a_window_slides() {
        let (zone, start) = (Zone::new(None), Instant::now());
        let limit = limit(2, 10 * SECOND);
        let take = |key: &str, at: u32| zone.take(key.as_bytes(), limit, start + at * SECOND);
        assert_eq!(take("a", 0), Ok(()));
        assert_eq!(take("a", 6), Ok(()));
        assert_eq!(take("a", 7), Err(3 * SECOND));
        assert_eq!(take("b", 7), Ok(()), "another key");
        assert_eq!(take("a", 10), Ok(()), "the first event has left the window");
        assert_eq!(take("a", 15), Err(SECOND), "refused events do not count");
        assert_eq!(take("a", 16), Ok(()));
    }

    // A reload changes the limit of events that exist.
    #[test]
    fn another_limit_for_the_same_events() {
        let (zone, start) = (Zone::new(None), Instant::now());
        for at in 0..4 {
            assert_eq!(zone.take(b"a", limit(4, 10 * SECOND), start + at * SECOND), Ok(()));
        }
        assert_eq!(
            zone.take(b"a", limit(2, 10 * SECOND), start + 4 * SECOND),
            Err(8 * SECOND),
            "until the third has left"
        );
        assert_eq!(zone.take(b"a", limit(2, 2 * SECOND), start + 4 * SECOND), Ok(()), "one event is left of 2 s");
    }

    // Handlers that name one zone share its events, each with a limit of its own: a short window drops none that a
    // longer one needs, and a limit of many events does not make the zone keep all of a long window.
    #[test]
    fn several_limits_of_one_zone() {
        let start = Instant::now();
        let of = |events, window| LimitedZone::of("several", None, limit(events, window)).unwrap();
        let (long, short) = (of(3, 100 * SECOND), of(2, SECOND));
        let take = |zone: &LimitedZone, at: u32| zone.take(b"a", start + at * SECOND);
        assert_eq!([take(&short, 0), take(&short, 0)], [Ok(()); 2]);
        assert_eq!(take(&short, 0), Err(SECOND));
        assert_eq!([take(&short, 10), take(&short, 10), take(&short, 20)], [Ok(()); 3]);
        assert_eq!(take(&long, 30), Err(80 * SECOND), "of the latest three the first was at 10 s");
        let kept = |shard: &Mutex<Shard>| lock(shard).keys.values().map(|events| events.times.len()).sum::<usize>();
        assert_eq!(long.zone.shards.iter().map(kept).sum::<usize>(), 3);
        // A plan that is gone needs nothing.
        drop(short);
        let short = of(2, SECOND);
        drop(long);
        assert_eq!([take(&short, 40), take(&short, 40)], [Ok(()); 2]);
        assert_eq!(short.zone.kept(limit(1, SECOND)), limit(2, SECOND));
    }

    #[test]
    fn limits_need_both_numbers() {
        for (events, window) in [(0, SECOND), (-1, SECOND), (1, Duration::ZERO)] {
            assert_eq!(Limit::new(events, window), None);
        }
        assert!(limit(i64::MAX, SECOND).events < 100_000);
    }

    // A flood of keys: memory stays bounded, expired keys are removed first, and the current key keeps its events.
    #[test]
    fn memory_is_bounded() {
        let (mut shard, start) = (Shard::default(), Instant::now());
        let limit = limit(3, SECOND);
        for key in 0..200_000 {
            let now = start + Duration::from_micros(key);
            assert_eq!(shard.take(key, None, (limit, limit), now), Ok(()));
            assert!(shard.bytes <= SHARD_BYTES_MAX, "{}", shard.bytes);
            if key % 10_000 == 0 {
                assert_eq!(shard.bytes, shard.keys.values().map(Events::bytes).sum::<usize>());
            }
        }
        let now = start + 10 * SECOND;
        shard.sweep_at = 0;
        // Only a new key leads to a sweep.
        let new = 200_000;
        for _ in 0..3 {
            assert_eq!(shard.take(new, None, (limit, limit), now), Ok(()));
        }
        assert!(shard.take(new, None, (limit, limit), now).is_err());
        assert_eq!(shard.keys.len(), 1, "the others have expired");
        assert_eq!(shard.bytes, shard.keys.values().map(Events::bytes).sum::<usize>());
    }

    #[test]
    fn zones_are_shared_by_name() {
        let of = |name| Zone::of(name, None, SECOND).unwrap();
        let one = of("shared");
        assert!(Arc::ptr_eq(&one, &of("shared")) && !Arc::ptr_eq(&one, &of("other")));
        drop(one);
        let now = Instant::now();
        assert_eq!(of("shared").take(b"a", limit(1, SECOND), now), Ok(()), "a new zone");
    }

    /// A zone in Redis whose exchange is the test.
    fn redis_zone(window: Duration) -> Zone {
        // The zone does not join, so that the exchange never collects its events.
        let server = RedisServer::parse_address("127.0.0.1:1").unwrap();
        Zone::new(Some(RedisZone::new(CountExchange::open(&server).unwrap(), "z", window)))
    }

    fn unsent(zone: &Zone, now: Instant, max: usize) -> Vec<KeyDelta> {
        let mut unsent = Vec::new();
        let is_rest = zone.collect(now, max, &mut unsent);
        assert_eq!(is_rest, zone.shards.iter().any(|shard| !lock(shard).queued.is_empty()));
        unsent
    }

    // Two servers with one limit: the reported events of each reduce the limit of the other, until they leave the
    // window.
    #[test]
    fn a_limit_of_two_servers() {
        let (one, two, start) = (redis_zone(10 * SECOND), redis_zone(10 * SECOND), Instant::now());
        let limit = limit(3, 10 * SECOND);
        let take = |zone: &Zone, at: u32| zone.take(b"k", limit, start + at * SECOND);
        assert_eq!([take(&one, 0), take(&one, 0)], [Ok(()); 2]);
        let sent = unsent(&one, start, 10);
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].events, sent[0].window), (2, 10 * SECOND));
        assert_eq!(unsent(&one, start, 10), []);
        let counts = |current| WindowCounts { period: 7, began: start, current, previous: 0 };
        one.update(&sent[0], counts(2));
        assert_eq!(take(&two, 1), Ok(()));
        let sent = unsent(&two, start + SECOND, 10);
        two.update(&sent[0], counts(3));
        let wait = take(&two, 2).unwrap_err();
        assert!(wait > 8 * SECOND && wait < 9 * SECOND + 2 * WAIT_PRECISION, "{wait:?}: its own event leaves at 11 s");
        assert_eq!(unsent(&two, start + 2 * SECOND, 10)[0].events, 0, "a refused request reads the counts");
        assert_eq!(take(&one, 2), Ok(()), "without a report of the other's event");
        assert!(take(&one, 2).is_err());
        assert_eq!(take(&two, 11), Ok(()));
    }

    // While Redis is away, the keys wait once each, and events that have left the window are not sent.
    #[test]
    fn updates_that_cannot_be_sent() {
        let (zone, start) = (redis_zone(SECOND), Instant::now());
        for number in 0..100_u8 {
            assert_eq!(zone.take(&[number], limit(2, SECOND), start), Ok(()));
        }
        let mut sent = unsent(&zone, start, 60);
        assert!((32..=60).contains(&sent.len()), "a share of each shard: {}", sent.len());
        sent.extend(unsent(&zone, start, 60));
        sent.iter().for_each(|key| zone.restore(key));
        assert_eq!(zone.take(&[0], limit(2, SECOND), start), Ok(()));
        let all = unsent(&zone, start, 1000);
        assert_eq!((all.len(), all.iter().map(|key| key.events).sum::<u32>()), (100, 101));
        all.iter().for_each(|key| zone.restore(key));
        let late = unsent(&zone, start + 2 * SECOND, 1000);
        assert_eq!((late.len(), late.iter().map(|key| key.events).sum::<u32>()), (100, 0));
    }

    // As `memory_is_bounded`, with the queue of a Redis that is away.
    #[test]
    fn memory_of_a_fleet_is_bounded() {
        let (mut shard, start) = (Shard::default(), Instant::now());
        for key in 0..100_000 {
            let now = start + Duration::from_micros(key);
            let limits = (limit(3, SECOND), limit(3, SECOND));
            assert_eq!(shard.take(key, Some(&key.to_ne_bytes()), limits, now), Ok(()));
            assert!(shard.bytes <= SHARD_BYTES_MAX && shard.queued.len() == shard.keys.len(), "{}", shard.bytes);
        }
        assert_eq!(shard.bytes, shard.keys.values().map(Events::bytes).sum::<usize>());
    }
}

//! A circuit breaker: it stops the requests to an upstream that fails too many of them, and then lets single requests
//! probe it.
//!
//! ```text
//!          too many failures         the trip is over, and a request comes
//! Closed ───────────────────► Open ─────────────────────────────────────────► Probing ─┐
//!   ▲                          ▲                                              │ │  ▲    │ the probe is cancelled,
//!   │                          └────────────────── the probe fails ───────────┘ │  └────┘ or lasts too long
//!   └───────────────────────────────────────────── the probe succeeds ──────────┘
//! ```
//! Half-open is an open breaker whose trip is over, and a probing one.
//!
//! The state is one atomic word and the window's counters are atomics, so all workers share a breaker without a lock.
//! No method allocates.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::status::millis;

/// Parts of the window. It moves on by one of them, so it covers between nine and ten tenths of its length.
const SLOTS: u32 = 10;
/// Basis points in the whole, for [`BreakerSettings::error_basis_points`] and [`LatencyLimit::slow_basis_points`].
pub const BASIS_POINTS: u32 = 10_000;
/// Bounds in milliseconds on the time for which a probe without a result excludes other probes. Within them it is the
/// trip time, so a long upload as the probe delays recovery no longer than a failure would.
const PROBE_MS: (u64, u64) = (1000, 30_000);

/// When a breaker opens and for how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BreakerSettings {
    /// The share of failed requests at which the breaker opens, in basis points.
    pub error_basis_points: Option<u32>,
    /// The limit of slow responses beyond which it opens.
    pub latency: Option<LatencyLimit>,
    /// Statuses of responses that are failures, and classes such as 5 for 5xx.
    pub error_statuses: Box<[u16]>,
    /// The time in which requests are counted; at least ten milliseconds.
    pub window: Duration,
    /// With fewer requests in the window the breaker does not open.
    pub requests_min: u32,
    /// How long the breaker is open.
    pub trip: Duration,
}

/// A quantile of latencies, as a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LatencyLimit {
    /// The share of requests that may be slow, in basis points: 500 for the 0.95 quantile. The quantile
    /// exceeds the limit exactly if more of them are slow, so no latency has to be stored.
    pub slow_basis_points: u32,
    /// A request that takes longer is slow.
    pub limit: Duration,
}

/// The phase of a breaker as operators see it. The order is that of severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BreakerPhase {
    /// Requests pass.
    Closed,
    /// One request at a time passes.
    HalfOpen,
    /// No request passes.
    Open,
}

impl BreakerPhase {
    /// Returns the name in the admin API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// A change of the phase. Of all workers exactly one gets it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerChange {
    /// Closed → open, with the window's requests.
    Opened {
        /// All requests.
        requests: u64,
        /// The failed ones.
        failures: u64,
        /// The slow ones; 0 without a limit of latency.
        slow: u64,
    },
    /// Open → half-open: the first probe begins.
    HalfOpened,
    /// Half-open → open: a probe has failed.
    Reopened,
    /// Half-open → closed: a probe has succeeded.
    Closed,
}

/// How a call to the upstream has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// With a response that is no failure.
    Succeeded,
    /// Without a response, or with one of [`BreakerSettings::error_statuses`].
    Failed,
}

/// The permission for one request. Dropping that of a probe lets another request probe.
#[derive(Debug)]
pub struct Permit {
    /// The state of the breaker when it admitted the request.
    given: u64,
    /// The breaker, if the request is a probe.
    probe: Option<Arc<CircuitBreaker>>,
}

impl Permit {
    /// Returns whether the request probes a half-open breaker.
    pub fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(breaker) = self.probe.take() {
            breaker.abandon(self.given);
        }
    }
}

/// An upstream's circuit breaker: its phase, and the outcomes of recent calls.
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    state: AtomicU64,
    requests: SlidingCount,
    failures: SlidingCount,
    slow: SlidingCount,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StoredPhase {
    Closed,
    Open,
    Probing,
}

/// The state, which is packed into one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BreakerState {
    /// Counts how often the breaker has opened or closed. The result of a request admitted in an earlier epoch has no
    /// effect.
    epoch: u32,
    phase: StoredPhase,
    /// In milliseconds: when an open breaker becomes half-open, or when another request may probe.
    until: u64,
}

impl BreakerState {
    const EPOCH_BITS: u32 = 24;
    const UNTIL_BITS: u32 = 38;
    /// 8.7 years.
    const UNTIL_MAX: u64 = (1 << Self::UNTIL_BITS) - 1;

    fn pack(self) -> u64 {
        let epoch = u64::from(self.epoch) << (u64::BITS - Self::EPOCH_BITS);
        epoch | self.until.min(Self::UNTIL_MAX) << 2 | self.phase as u64
    }

    fn unpack(word: u64) -> Self {
        let phase = match word & 3 {
            0 => StoredPhase::Closed,
            1 => StoredPhase::Open,
            _ => StoredPhase::Probing,
        };
        let epoch = (word >> (u64::BITS - Self::EPOCH_BITS)) as u32;
        Self { epoch, phase, until: word >> 2 & Self::UNTIL_MAX }
    }

    /// Returns the state of the next epoch.
    fn next(self, phase: StoredPhase, until: u64) -> u64 {
        Self { epoch: self.epoch.wrapping_add(1), phase, until }.pack()
    }
}

impl CircuitBreaker {
    pub(super) fn new(settings: BreakerSettings) -> Self {
        let (requests, failures, slow) = Default::default();
        Self { settings, state: AtomicU64::new(0), requests, failures, slow }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &BreakerSettings {
        &self.settings
    }

    /// Returns the phase.
    pub fn phase(&self, now: Instant) -> BreakerPhase {
        let state = BreakerState::unpack(self.state.load(Ordering::Relaxed));
        match state.phase {
            StoredPhase::Closed => BreakerPhase::Closed,
            StoredPhase::Open if millis(now) < state.until => BreakerPhase::Open,
            StoredPhase::Open | StoredPhase::Probing => BreakerPhase::HalfOpen,
        }
    }

    /// Returns whether [`admit`](Self::admit) would let a request pass.
    pub fn is_available(&self, now: Instant) -> bool {
        let state = BreakerState::unpack(self.state.load(Ordering::Relaxed));
        state.phase == StoredPhase::Closed || millis(now) >= state.until
    }

    /// Lets a request pass, or not (`None`). Also returns the change that it makes.
    pub fn admit(self: &Arc<Self>, now: Instant) -> Option<(Permit, Option<BreakerChange>)> {
        let mut word = self.state.load(Ordering::Acquire);
        loop {
            let state = BreakerState::unpack(word);
            if state.phase == StoredPhase::Closed {
                return Some((Permit { given: word, probe: None }, None));
            }
            let now = millis(now);
            if now < state.until {
                return None;
            }
            let probing = BreakerState { phase: StoredPhase::Probing, until: now + self.probe_ms(), ..state }.pack();
            match self.state.compare_exchange(word, probing, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    let change = (state.phase == StoredPhase::Open).then_some(BreakerChange::HalfOpened);
                    return Some((Permit { given: probing, probe: Some(Arc::clone(self)) }, change));
                }
                Err(seen) => word = seen,
            }
        }
    }

    fn probe_ms(&self) -> u64 {
        let (least, most) = PROBE_MS;
        u64::try_from(self.settings.trip.as_millis()).unwrap_or(most).clamp(least, most)
    }

    /// Counts a request that has ended after the time `took`. Returns the change of the breaker's phase, if any.
    pub fn record_outcome(
        &self,
        mut permit: Permit,
        outcome: CallOutcome,
        took: Duration,
        now: Instant,
    ) -> Option<BreakerChange> {
        let is_probe = permit.probe.take().is_some();
        let given = BreakerState::unpack(permit.given);
        let is_slow = self.settings.latency.as_ref().is_some_and(|latency| took > latency.limit);
        let is_failure = outcome == CallOutcome::Failed;
        if is_probe {
            return self.record_probe(given.epoch, is_failure || is_slow, now);
        }
        let word = self.state.load(Ordering::Acquire);
        let state = BreakerState::unpack(word);
        if state.phase != StoredPhase::Closed || state.epoch != given.epoch {
            return None;
        }
        let tick = self.tick(now);
        // First, so that no other worker sees more failures than requests.
        self.requests.add(tick);
        if is_failure {
            self.failures.add(tick);
        }
        if is_slow {
            self.slow.add(tick);
        }
        // A request that is neither does not open the breaker, even if it completes the number of requests.
        if !is_failure && !is_slow {
            return None;
        }
        let opened = self.excess(tick)?;
        let open = state.next(StoredPhase::Open, millis(now) + trip_ms(&self.settings));
        self.state.compare_exchange(word, open, Ordering::AcqRel, Ordering::Relaxed).ok().map(|_| opened)
    }

    fn record_probe(&self, epoch: u32, has_failed: bool, now: Instant) -> Option<BreakerChange> {
        let mut word = self.state.load(Ordering::Acquire);
        loop {
            let state = BreakerState::unpack(word);
            // Another probe, which began when this one lasted too long, has decided.
            if state.phase != StoredPhase::Probing || state.epoch != epoch {
                return None;
            }
            let (next, change) = if has_failed {
                (state.next(StoredPhase::Open, millis(now) + trip_ms(&self.settings)), BreakerChange::Reopened)
            } else {
                // Nothing is counted until the state below is visible.
                [&self.requests, &self.failures, &self.slow].into_iter().for_each(SlidingCount::clear);
                (state.next(StoredPhase::Closed, 0), BreakerChange::Closed)
            };
            match self.state.compare_exchange(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(change),
                Err(seen) => word = seen,
            }
        }
    }

    /// A probe ends without a result. Another one may begin, unless one has already taken its place.
    fn abandon(&self, given: u64) {
        let free = BreakerState { until: 0, ..BreakerState::unpack(given) }.pack();
        let _ = self.state.compare_exchange(given, free, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Returns the window's requests if they are too many failures or too slow.
    fn excess(&self, tick: u32) -> Option<BreakerChange> {
        let [requests, failures, slow] = [&self.requests, &self.failures, &self.slow].map(|count| count.sum(tick));
        let BreakerSettings { error_basis_points, latency, requests_min, .. } = &self.settings;
        let whole = u64::from(BASIS_POINTS);
        let is_failing = error_basis_points.is_some_and(|share| failures * whole >= u64::from(share) * requests);
        let is_slow =
            latency.as_ref().is_some_and(|latency| slow * whole > u64::from(latency.slow_basis_points) * requests);
        let is_excess = requests >= u64::from(*requests_min) && (is_failing || is_slow);
        is_excess.then_some(BreakerChange::Opened { requests, failures, slow })
    }

    /// Returns the number of the window's part at this time.
    fn tick(&self, now: Instant) -> u32 {
        let slot = (self.settings.window.as_millis() as u64 / u64::from(SLOTS)).max(1);
        (millis(now) / slot) as u32
    }
}

fn trip_ms(settings: &BreakerSettings) -> u64 {
    u64::try_from(settings.trip.as_millis()).unwrap_or(BreakerState::UNTIL_MAX)
}

/// A count over the window. Each slot has the number of its part of time in the upper half, and the count in the lower
/// half: a slot of an earlier part counts as zero, and nothing has to clear it in time.
#[derive(Debug, Default)]
struct SlidingCount([AtomicU64; SLOTS as usize]);

impl SlidingCount {
    fn add(&self, tick: u32) {
        let slot = &self.0[(tick % SLOTS) as usize];
        let mut word = slot.load(Ordering::Relaxed);
        loop {
            let (at, count) = parts(word);
            // The clock of this worker may lag, and another worker may have begun the next round.
            let next = if is_since(at, tick) { pair(at, count.saturating_add(1)) } else { pair(tick, 1) };
            match slot.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(seen) => word = seen,
            }
        }
    }

    fn sum(&self, tick: u32) -> u64 {
        let first = tick.wrapping_sub(SLOTS - 1);
        let counts = self.0.iter().map(|slot| parts(slot.load(Ordering::Relaxed)));
        counts.filter(|(at, _)| is_since(*at, first)).map(|(_, count)| u64::from(count)).sum()
    }

    fn clear(&self) {
        for slot in &self.0 {
            let (at, _) = parts(slot.load(Ordering::Relaxed));
            slot.store(pair(at, 0), Ordering::Relaxed);
        }
    }
}

fn pair(tick: u32, count: u32) -> u64 {
    u64::from(tick) << 32 | u64::from(count)
}

fn parts(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, word as u32)
}

/// Returns whether a part of time is `first` or later. The numbers wrap after years.
fn is_since(tick: u32, first: u32) -> bool {
    tick.wrapping_sub(first) <= u32::MAX / 2
}

const _: () = assert!(size_of::<Permit>() <= 16);

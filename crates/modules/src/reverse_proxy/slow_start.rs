//! `lb_slow_start`: an upstream that comes back gets a share of the requests that grows to its full one.
//!
//! Not in Caddy. The policies that distribute requests ask for the [`Shares`] of their candidates; those that keep a
//! key at its upstream, and `first`, do not.

use std::time::{Duration, Instant};

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::{Build, BuildError, Context};

use super::backend::Backends;
use super::policy::below;

/// The share of an upstream that does not start slowly.
pub(super) const FULL: u32 = 1024;
const DURATION_MAX: Duration = Duration::from_secs(24 * 3600);

/// The time until an upstream has its full share, in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct SlowStart(u64);

impl SlowStart {
    /// Compiles `load_balancing.slow_start`; zero disables it.
    pub(super) fn build(written: Option<&DurationConfig>, build: &mut Build<'_>) -> Result<Option<Self>, BuildError> {
        let Some(written) = written else { return Ok(None) };
        build.at("slow_start", |build| {
            let duration = written.duration(build)?;
            if duration > DURATION_MAX {
                return Err(build.refuse(written.written(), "a duration of at most 24h"));
            }
            Ok((!duration.is_zero()).then(|| Self((duration.as_millis() as u64).max(1))))
        })
    }

    /// Returns the share of an upstream that came back so many milliseconds ago. It is never zero, so that an upstream
    /// gets requests if there is no other one.
    fn share(self, recovered_ms: u64) -> u32 {
        (recovered_ms.min(self.0) * u64::from(FULL) / self.0).max(1) as u32
    }
}

/// The shares of upstreams at one moment.
#[derive(Clone, Copy)]
pub(super) struct Shares<'b> {
    backends: Backends<'b>,
    slow_start: Option<SlowStart>,
    now: Instant,
    /// The largest share of an available upstream. Shares are relative to it: upstreams that start together have equal
    /// ones, and are selected as if none started slowly.
    largest: u32,
}

impl<'b> Shares<'b> {
    pub(super) fn new(cx: &Context, backends: Backends<'b>, slow_start: Option<SlowStart>) -> Self {
        let now = cx.worker().now();
        let mut shares = Self { backends, slow_start, now, largest: FULL };
        if let Some(slow_start) = slow_start {
            let available = (0..backends.len()).filter(|&number| backends[number].is_available(cx));
            let all = available.map(|number| slow_start.share(backends[number].status().recovered_ms(now)));
            shares.largest = all.max().unwrap_or(FULL);
        }
        shares
    }

    /// Returns the share of an upstream, from 1 to [`FULL`].
    pub(super) fn of(&self, number: usize) -> u32 {
        let Some(slow_start) = self.slow_start else { return FULL };
        let share = slow_start.share(self.backends[number].status().recovered_ms(self.now));
        (share * FULL / self.largest).clamp(1, FULL)
    }

    /// Decides at random whether an upstream whose turn it is gets the request: with the probability of its share.
    pub(super) fn accepts(&self, cx: &Context, number: usize) -> bool {
        let share = self.of(number);
        share == FULL || below(cx, u64::from(FULL)) < u64::from(share)
    }

    /// Returns the number of requests that an upstream counts as having, to compare it with others: with half a share,
    /// twice as many. The fraction is rounded at random, so that an upstream without requests is equal to others
    /// without any with the probability of its share.
    pub(super) fn requests(&self, cx: &Context, number: usize) -> u64 {
        let requests = u64::from(self.backends[number].status().requests());
        let share = self.of(number);
        if share == FULL {
            return requests;
        }
        (requests * u64::from(FULL) + below(cx, u64::from(FULL))) / u64::from(share)
    }
}

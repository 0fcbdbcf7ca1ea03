//! The state of an upstream that all workers share: its failures, its health checks, its circuit breakers, and its
//! requests in progress.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context as PollContext, Waker};
use std::time::{Duration, Instant};

use super::breaker::{BreakerPhase, BreakerSettings, CircuitBreaker};

/// Failures of one upstream that are remembered. More of them make no upstream less healthy: `max_fails` is bounded by
/// it.
pub const FAILURES_MAX: usize = 4096;

/// The upstreams of a server, by their configured address. A handle of a plan keeps an upstream in it, so that its
/// state outlives a reload that keeps the upstream.
#[derive(Default)]
pub(crate) struct UpstreamTable(Mutex<Vec<Weak<UpstreamStatus>>>);

impl UpstreamTable {
    /// Returns the upstream's state, a new one if no plan has the upstream.
    pub(crate) fn get(&self, dial: &str) -> Arc<UpstreamStatus> {
        let mut known = lock(&self.0);
        known.retain(|status| status.strong_count() > 0);
        if let Some(status) = known.iter().filter_map(Weak::upgrade).find(|status| *status.dial == *dial) {
            return status;
        }
        let status = Arc::new(UpstreamStatus::new(dial));
        known.push(Arc::downgrade(&status));
        status
    }

    /// Returns all upstreams, in the order in which configurations named them first.
    pub(crate) fn all(&self) -> Vec<Arc<UpstreamStatus>> {
        lock(&self.0).iter().filter_map(Weak::upgrade).collect()
    }
}

/// The shared state of one upstream, identified by its configured address.
pub struct UpstreamStatus {
    dial: Box<str>,
    failures: Mutex<FailureTimes>,
    /// The length of `failures`, and when its first entry expires, in milliseconds since [`BASE`]: a worker that
    /// selects an upstream reads these two and takes the lock only when an entry has expired.
    failures_len: AtomicU32,
    failures_until: AtomicU64,
    /// The failures at which a configuration takes the upstream for down; 0 if it counts none.
    failures_limit: AtomicU32,
    /// When the upstream came back, or first came, in milliseconds since [`BASE`]; a later time while failures keep it
    /// down.
    recovered: AtomicU64,
    checks: Mutex<Vec<(Box<str>, Weak<CheckStatus>)>>,
    /// One for each of the settings. An upstream that leaves DNS keeps them, although no handler has it then.
    breakers: Mutex<Vec<Arc<CircuitBreaker>>>,
    workers: Mutex<Vec<Weak<RequestCount>>>,
}

/// The times at which failures are forgotten, the earliest first.
type FailureTimes = VecDeque<Instant>;

/// The origin of the times in atomics.
static BASE: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(super) fn millis(at: Instant) -> u64 {
    // Rounded down, so that an entry is never kept for longer because of the conversion.
    u64::try_from(at.saturating_duration_since(*BASE).as_millis()).unwrap_or(u64::MAX)
}

impl UpstreamStatus {
    fn new(dial: &str) -> Self {
        LazyLock::force(&BASE);
        Self {
            dial: dial.into(),
            failures: Mutex::default(),
            failures_len: AtomicU32::new(0),
            failures_until: AtomicU64::new(0),
            failures_limit: AtomicU32::new(0),
            recovered: AtomicU64::new(millis(Instant::now())),
            checks: Mutex::default(),
            breakers: Mutex::default(),
            workers: Mutex::default(),
        }
    }

    /// Returns the address as configured.
    pub fn dial(&self) -> &str {
        &self.dial
    }

    /// Sets from how many failures on metrics show the upstream as unhealthy.
    pub fn set_failures_limit(&self, limit: u32) {
        self.failures_limit.store(limit, Ordering::Relaxed);
    }

    /// Counts a failure until `now` + `kept`.
    pub fn add_failure(&self, now: Instant, kept: Duration) {
        let mut failures = lock(&self.failures);
        forget(&mut failures, now);
        if failures.len() < FAILURES_MAX {
            // Handlers may remember failures for different times, so the newest failure is not always forgotten last.
            let until = now + kept;
            let index = failures.partition_point(|other| *other <= until);
            failures.insert(index, until);
        }
        self.publish(&failures);
        let limit = self.failures_limit.load(Ordering::Relaxed) as usize;
        // The upstream is down until fewer than `limit` failures are left.
        if limit > 0
            && let Some(last) = failures.len().checked_sub(limit)
        {
            self.set_recovered(failures[last]);
        }
    }

    /// Records that the upstream gets requests again from `at` on.
    pub fn set_recovered(&self, at: Instant) {
        self.recovered.fetch_max(millis(at), Ordering::Relaxed);
    }

    /// Returns for how many milliseconds the upstream has got requests since it came back, or first came.
    pub fn recovered_ms(&self, now: Instant) -> u64 {
        millis(now).saturating_sub(self.recovered.load(Ordering::Relaxed))
    }

    /// Returns the circuit breaker with these settings. Handlers with equal settings share it.
    pub fn breaker(&self, settings: &BreakerSettings) -> Arc<CircuitBreaker> {
        let mut breakers = lock(&self.breakers);
        breakers.retain(|breaker| is_used(breaker) || breaker.settings() == settings);
        if let Some(known) = breakers.iter().find(|breaker| breaker.settings() == settings) {
            return Arc::clone(known);
        }
        let breaker = Arc::new(CircuitBreaker::new(settings.clone()));
        breakers.push(Arc::clone(&breaker));
        breaker
    }

    /// Returns the phase of the circuit breaker, the most severe one of several; `None` if no handler uses one.
    pub fn breaker_phase(&self, now: Instant) -> Option<BreakerPhase> {
        lock(&self.breakers).iter().filter(|breaker| is_used(breaker)).map(|breaker| breaker.phase(now)).max()
    }

    /// Returns how many failures are remembered.
    pub fn failures(&self, now: Instant) -> u32 {
        let len = self.failures_len.load(Ordering::Relaxed);
        if len == 0 || millis(now) < self.failures_until.load(Ordering::Relaxed) {
            return len;
        }
        let mut failures = lock(&self.failures);
        forget(&mut failures, now);
        self.publish(&failures);
        failures.len() as u32
    }

    fn publish(&self, failures: &FailureTimes) {
        self.failures_until.store(failures.front().map_or(0, |first| millis(*first)), Ordering::Relaxed);
        self.failures_len.store(failures.len() as u32, Ordering::Relaxed);
    }

    /// Returns the result of a kind of health check, which `settings` identify. Handlers with equal settings share it.
    pub fn check(&self, settings: &str) -> Arc<CheckStatus> {
        let mut checks = lock(&self.checks);
        checks.retain(|(_, check)| check.strong_count() > 0);
        let known = checks.iter().find(|(known, _)| **known == *settings).and_then(|(_, check)| check.upgrade());
        known.unwrap_or_else(|| {
            let check = Arc::new(CheckStatus {
                is_up: AtomicBool::new(true),
                owner: AtomicU64::new(0),
                waiting: Mutex::default(),
            });
            checks.push((settings.into(), Arc::downgrade(&check)));
            check
        })
    }

    /// Returns whether neither a health check nor a circuit breaker nor too many failures keep requests from the
    /// upstream.
    pub fn is_healthy(&self, now: Instant) -> bool {
        if self.breaker_phase(now).is_some_and(|phase| phase != BreakerPhase::Closed) {
            return false;
        }
        let limit = self.failures_limit.load(Ordering::Relaxed);
        let checks = lock(&self.checks);
        (limit == 0 || self.failures(now) < limit)
            && checks.iter().filter_map(|(_, check)| check.upgrade()).all(|check| check.is_up())
    }

    /// Adds a worker's count of requests, until the count is dropped.
    pub fn add_worker(&self) -> Arc<RequestCount> {
        let count = Arc::new(RequestCount::default());
        let mut workers = lock(&self.workers);
        workers.retain(|count| count.strong_count() > 0);
        workers.push(Arc::downgrade(&count));
        count
    }

    /// Returns the number of requests in progress, of all workers.
    pub fn requests(&self) -> u32 {
        let workers = lock(&self.workers);
        workers.iter().filter_map(Weak::upgrade).fold(0, |sum, count| sum.wrapping_add(count.get()))
    }
}

impl fmt::Debug for UpstreamStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UpstreamStatus").field("dial", &self.dial).finish_non_exhaustive()
    }
}

/// Returns whether anything but the upstream's own list has the breaker.
fn is_used(breaker: &Arc<CircuitBreaker>) -> bool {
    Arc::strong_count(breaker) > 1
}

fn forget(failures: &mut FailureTimes, now: Instant) {
    while failures.front().is_some_and(|until| *until <= now) {
        failures.pop_front();
    }
}

/// A worker's requests in progress to one upstream. Only that worker changes it.
#[derive(Debug, Default)]
pub struct RequestCount(AtomicU32);

impl RequestCount {
    /// Returns the number of requests.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    // One thread writes, so a load and a store suffice: no instruction that locks the cache line.

    /// A request begins.
    pub fn begin(&self) {
        self.0.store(self.get() + 1, Ordering::Relaxed);
    }

    /// A request ends.
    pub fn end(&self) {
        self.0.store(self.get().saturating_sub(1), Ordering::Relaxed);
    }
}

/// The result of an active health check.
#[derive(Debug)]
pub struct CheckStatus {
    is_up: AtomicBool,
    owner: AtomicU64,
    /// The owner's task, while it waits for its next check.
    waiting: Mutex<Option<Waker>>,
}

impl CheckStatus {
    /// Returns whether the upstream passes the check. Before the first check it does.
    pub fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed)
    }

    /// Sets the result. Returns whether it has changed.
    pub fn set_up(&self, is_up: bool) -> bool {
        self.is_up.swap(is_up, Ordering::Relaxed) != is_up
    }

    /// Makes the caller the only one that checks: returns its number, which [`is_owner`](Self::is_owner) compares with
    /// the present owner's. A new plan's checks replace those of the old plan, which connections may keep alive for
    /// long.
    pub fn own(&self) -> u64 {
        let number = self.owner.fetch_add(1, Ordering::Relaxed) + 1;
        self.wake();
        number
    }

    /// Returns whether no other caller of [`own`](Self::own) came after the one with this number.
    pub fn is_owner(&self, number: u64) -> bool {
        self.owner.load(Ordering::Relaxed) == number
    }

    /// Returns whether the caller of [`own`](Self::own) with this number is the owner. If so, the next call of `own`
    /// or [`wake`](Self::wake) wakes its task.
    pub fn poll_owner(&self, number: u64, poll_cx: &mut PollContext<'_>) -> bool {
        let mut waiting = lock(&self.waiting);
        // `own` wakes after it has changed the owner: either it is visible here, or it finds this task.
        let is_owner = self.is_owner(number);
        if is_owner {
            *waiting = Some(poll_cx.waker().clone());
        }
        is_owner
    }

    /// Wakes the owner's task: its plan is gone.
    pub fn wake(&self) {
        let waiting = lock(&self.waiting).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// Ignores poisoning: each change is one insertion or removal.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    // Caddy, `fail_duration`: a failure counts for this long. Failures of handlers with different durations are
    // forgotten each in its time.
    #[test]
    fn failures_are_forgotten() {
        let table = UpstreamTable::default();
        let status = table.get("a:1");
        let begin = *BASE + SECOND;
        assert_eq!(status.failures(begin), 0);
        status.add_failure(begin, 10 * SECOND);
        status.add_failure(begin, 3 * SECOND);
        status.add_failure(begin + SECOND, 3 * SECOND);
        for (seconds, want) in [(1, 3), (2, 3), (3, 2), (4, 1), (9, 1), (10, 0), (100, 0)] {
            assert_eq!(status.failures(begin + seconds * SECOND), want, "after {seconds} s");
        }
    }

    // A peer that fails without end does not make the memory grow.
    #[test]
    fn failures_are_bounded() {
        let status = UpstreamTable::default().get("a:1");
        let now = Instant::now();
        for _ in 0..2 * FAILURES_MAX {
            status.add_failure(now, SECOND);
        }
        assert_eq!(status.failures(now), FAILURES_MAX as u32);
        assert_eq!(status.failures(now + SECOND), 0);
    }

    // An upstream keeps its state as long as one plan names it: over a reload, and for all handlers.
    #[test]
    fn all_plans_share_the_status_of_an_upstream() {
        let table = UpstreamTable::default();
        let now = Instant::now();
        let old = table.get("a:1");
        old.add_failure(now, SECOND);
        let new = table.get("a:1");
        drop(old);
        assert_eq!(new.failures(now), 1);
        assert_eq!(table.get("b:1").failures(now), 0);
        drop(new);
        assert_eq!(table.all().len(), 0, "no plan names any");
        assert_eq!(table.get("a:1").failures(now), 0);
    }

    #[test]
    fn checks_and_failures_determine_the_health() {
        let status = UpstreamTable::default().get("a:1");
        let now = Instant::now();
        status.add_failure(now, SECOND);
        assert!(status.is_healthy(now), "no configuration counts failures");
        status.set_failures_limit(1);
        assert!(!status.is_healthy(now) && status.is_healthy(now + SECOND));
        let check = status.check("GET /");
        assert!(Arc::ptr_eq(&check, &status.check("GET /")) && !Arc::ptr_eq(&check, &status.check("GET /other")));
        assert!(check.set_up(false) && !check.set_up(false));
        assert!(!status.is_healthy(now + SECOND));
        drop(check);
        assert!(status.is_healthy(now + SECOND), "no handler uses the check");
    }

    // The time of recovery: a new upstream's is its first one, and failures move it to when too few are left to be
    // down.
    #[test]
    fn the_time_of_recovery() {
        let status = UpstreamTable::default().get("a:1");
        let begin = Instant::now() + SECOND;
        let up = |seconds: u32| status.recovered_ms(begin + seconds * SECOND) / 1000;
        assert_eq!(up(9), 10);
        status.add_failure(begin, 10 * SECOND);
        assert_eq!(up(9), 10, "no configuration counts failures");
        status.set_failures_limit(2);
        status.add_failure(begin + SECOND, 10 * SECOND);
        assert_eq!((up(9), up(10), up(15)), (0, 0, 5), "one failure is left after 10 s");
        status.add_failure(begin + 2 * SECOND, 10 * SECOND);
        assert_eq!((up(11), up(15)), (0, 4));
        status.set_recovered(begin + 20 * SECOND);
        status.set_recovered(begin + 3 * SECOND);
        assert_eq!(up(25), 5, "the last one");
    }

    #[test]
    fn only_the_last_owner_runs_checks() {
        let check = UpstreamTable::default().get("a:1").check("GET /");
        let old = check.own();
        assert!(check.is_owner(old));
        let new = check.own();
        assert!(!check.is_owner(old) && check.is_owner(new));
    }

    #[test]
    fn requests_of_all_workers() {
        let status = UpstreamTable::default().get("a:1");
        let (one, other) = (status.add_worker(), status.add_worker());
        one.begin();
        other.begin();
        other.begin();
        assert_eq!((status.requests(), one.get()), (3, 1));
        other.end();
        drop(one);
        assert_eq!(status.requests(), 1);
        other.end();
        other.end();
        assert_eq!(other.get(), 0);
    }
}

use std::sync::Barrier;
use std::thread;

use super::*;
use crate::Metrics;

const SECOND: Duration = Duration::from_secs(1);
const QUICK: Duration = Duration::from_millis(1);

fn settings() -> BreakerSettings {
    BreakerSettings {
        error_basis_points: Some(BASIS_POINTS / 2),
        latency: None,
        error_statuses: [5].into(),
        window: 10 * SECOND,
        requests_min: 4,
        trip: 5 * SECOND,
    }
}

/// A breaker, and a time that begins one of the window's parts.
fn breaker(settings: BreakerSettings) -> (Arc<CircuitBreaker>, Instant) {
    let breaker = Metrics::default().upstream("a:1").breaker(&settings);
    let mut now = Instant::now() + 3600 * SECOND;
    let tick = breaker.tick(now);
    while breaker.tick(now) == tick {
        now += QUICK;
    }
    (breaker, now)
}

/// A request that begins and ends at `now`.
#[track_caller]
fn request(breaker: &Arc<CircuitBreaker>, outcome: CallOutcome, took: Duration, now: Instant) -> Option<BreakerChange> {
    let (permit, begun) = breaker.admit(now).expect("it may pass");
    breaker.record_outcome(permit, outcome, took, now).or(begun)
}

#[track_caller]
fn fail(breaker: &Arc<CircuitBreaker>, now: Instant) -> Option<BreakerChange> {
    request(breaker, CallOutcome::Failed, QUICK, now)
}

#[track_caller]
fn succeed(breaker: &Arc<CircuitBreaker>, now: Instant) -> Option<BreakerChange> {
    request(breaker, CallOutcome::Succeeded, QUICK, now)
}

/// Opens the breaker.
fn open(breaker: &Arc<CircuitBreaker>, now: Instant) {
    let mut changes = (0..breaker.settings().requests_min).filter_map(|_| fail(breaker, now));
    assert!(matches!((changes.next(), changes.next()), (Some(BreakerChange::Opened { .. }), None)));
}

// Closed → open → half-open → open → half-open → closed, and a window that is empty after it.
#[test]
fn all_changes() {
    let (breaker, now) = breaker(settings());
    assert_eq!((succeed(&breaker, now), succeed(&breaker, now)), (None, None));
    assert_eq!(fail(&breaker, now), None, "one of three");
    assert_eq!(fail(&breaker, now), Some(BreakerChange::Opened { requests: 4, failures: 2, slow: 0 }));
    let end = now + 5 * SECOND;
    assert_eq!(breaker.phase(end - QUICK), BreakerPhase::Open);
    assert!(!breaker.is_available(end - QUICK) && breaker.admit(end - QUICK).is_none());
    assert_eq!(breaker.phase(end), BreakerPhase::HalfOpen);
    let (probe, change) = breaker.admit(end).expect("a probe");
    assert_eq!((probe.is_probe(), change), (true, Some(BreakerChange::HalfOpened)));
    assert!(!breaker.is_available(end) && breaker.admit(end).is_none(), "one at a time");
    assert_eq!(breaker.record_outcome(probe, CallOutcome::Failed, QUICK, end), Some(BreakerChange::Reopened));
    assert_eq!(breaker.phase(end + 4 * SECOND), BreakerPhase::Open);
    let end = end + 5 * SECOND;
    assert_eq!(succeed(&breaker, end), Some(BreakerChange::Closed));
    assert_eq!(breaker.phase(end), BreakerPhase::Closed);
    for _ in 0..3 {
        assert_eq!(fail(&breaker, end), None, "earlier failures do not count any more");
    }
    assert!(fail(&breaker, end).is_some());
}

// A success does not open the breaker, even if it is the request that completes the minimum.
#[test]
fn only_a_failure_opens() {
    let (breaker, now) = breaker(settings());
    for _ in 0..3 {
        assert_eq!(fail(&breaker, now), None);
    }
    assert_eq!(succeed(&breaker, now), None);
    assert_eq!(breaker.phase(now), BreakerPhase::Closed);
    assert!(fail(&breaker, now).is_some());
}

// The window: a failure counts for nine tenths of it at least, and never after it.
#[test]
fn requests_leave_the_window() {
    for (seconds, is_counted) in [(0, true), (8, true), (9, true), (10, false), (11, false), (1000, false)] {
        let (breaker, now) = breaker(settings());
        for _ in 0..3 {
            assert_eq!(fail(&breaker, now), None);
        }
        let change = fail(&breaker, now + seconds * SECOND);
        assert_eq!(change.is_some(), is_counted, "after {seconds} s");
    }
    // Requests without end, of which a fifth fails, never open it.
    let (breaker, now) = breaker(settings());
    for number in 0..1000 {
        let at = now + number * Duration::from_millis(70);
        assert_eq!(if number % 5 == 4 { fail(&breaker, at) } else { succeed(&breaker, at) }, None, "{number}");
    }
}

// The 0.9 quantile of ten requests is the ninth: it exceeds the limit when two are slower. Failures have no limit here.
#[test]
fn a_quantile_of_latency() {
    let latency = LatencyLimit { slow_basis_points: BASIS_POINTS / 10, limit: SECOND };
    let settings = BreakerSettings { error_basis_points: None, latency: Some(latency), requests_min: 10, ..settings() };
    let (breaker, now) = breaker(settings);
    for _ in 0..8 {
        assert_eq!(fail(&breaker, now), None);
    }
    let slow = |now| request(&breaker, CallOutcome::Succeeded, SECOND + QUICK, now);
    assert_eq!(request(&breaker, CallOutcome::Succeeded, SECOND, now), None, "not more than the limit");
    assert_eq!(slow(now), None, "one of ten");
    assert_eq!(slow(now), Some(BreakerChange::Opened { requests: 11, failures: 8, slow: 2 }));
    // A slow probe has failed, and so has one without a response, although failures do not open this breaker.
    let end = now + 5 * SECOND;
    assert_eq!(slow(end), Some(BreakerChange::Reopened));
    assert_eq!(fail(&breaker, end + 5 * SECOND), Some(BreakerChange::Reopened));
    assert_eq!(succeed(&breaker, end + 10 * SECOND), Some(BreakerChange::Closed));
}

// Requests that began before a change, and end after it, have no effect: they are about the time before.
#[test]
fn results_that_are_late() {
    let (breaker, now) = breaker(settings());
    let late: Vec<_> = (0..20).map(|_| breaker.admit(now).expect("it may pass").0).collect();
    open(&breaker, now);
    let mut late = late.into_iter();
    let mut record = |outcome, count, at| {
        for permit in late.by_ref().take(count) {
            assert_eq!(breaker.record_outcome(permit, outcome, QUICK, at), None);
        }
    };
    record(CallOutcome::Succeeded, 5, now);
    assert_eq!(breaker.phase(now), BreakerPhase::Open);
    let end = now + 5 * SECOND;
    let (probe, _) = breaker.admit(end).expect("a probe");
    record(CallOutcome::Succeeded, 5, end);
    record(CallOutcome::Failed, 5, end);
    assert_eq!(breaker.record_outcome(probe, CallOutcome::Succeeded, QUICK, end), Some(BreakerChange::Closed));
    record(CallOutcome::Failed, 5, end);
    assert_eq!(breaker.phase(end), BreakerPhase::Closed);
}

// A probe whose client has gone gives its place back, and one that lasts too long loses it; its result still counts.
#[test]
fn probes_without_result() {
    let (breaker, now) = breaker(settings());
    open(&breaker, now);
    let mut end = now + 5 * SECOND;
    let (probe, change) = breaker.admit(end).expect("a probe");
    assert_eq!(change, Some(BreakerChange::HalfOpened));
    drop(probe);
    let (first, change) = breaker.admit(end).expect("another probe");
    assert_eq!(change, None, "it was half-open already");
    end += Duration::from_millis(breaker.probe_ms());
    assert!(breaker.admit(end - QUICK).is_none());
    let (second, _) = breaker.admit(end).expect("the place of the first one");
    drop(first);
    assert!(breaker.admit(end).is_none(), "the second one has it");
    let later = end + Duration::from_millis(breaker.probe_ms());
    let (third, _) = breaker.admit(later).expect("the place of the second one");
    assert_eq!(breaker.record_outcome(second, CallOutcome::Succeeded, QUICK, later), Some(BreakerChange::Closed));
    assert_eq!(breaker.record_outcome(third, CallOutcome::Failed, QUICK, later), None, "it is closed already");
    assert_eq!(breaker.phase(later), BreakerPhase::Closed);
}

// Workers on threads of their own: one of them opens the breaker, one probes at a time, one closes it, and no request
// is lost from the count.
#[test]
fn many_threads() {
    const THREADS: usize = 4;
    const EACH: u64 = 2000;
    let settings = BreakerSettings { requests_min: THREADS as u32 * EACH as u32, ..settings() };
    for _ in 0..20 {
        let (breaker, now) = breaker(settings.clone());
        let barrier = Barrier::new(THREADS);
        let work = || {
            let mut changes = Vec::new();
            barrier.wait();
            for _ in 0..EACH {
                changes.extend(fail(&breaker, now));
            }
            barrier.wait();
            let end = now + 5 * SECOND;
            let permit = breaker.admit(end);
            // All have tried before any probe ends.
            barrier.wait();
            if let Some((permit, change)) = permit {
                assert!(permit.is_probe());
                changes.extend(change);
                changes.extend(breaker.record_outcome(permit, CallOutcome::Succeeded, QUICK, end));
            }
            changes
        };
        let changes: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
        });
        let all = THREADS as u64 * EACH;
        let opened = BreakerChange::Opened { requests: all, failures: all, slow: 0 };
        assert_eq!(changes.iter().filter(|change| **change == opened).count(), 1, "{changes:?}");
        assert_eq!(changes.iter().filter(|change| **change == BreakerChange::HalfOpened).count(), 1);
        assert_eq!(changes.iter().filter(|change| **change == BreakerChange::Closed).count(), 1);
        assert_eq!(changes.len(), 3, "{changes:?}");
    }
}

// A worker whose clock lags counts into the part that another worker has begun, and does not empty it.
#[test]
fn clocks_that_differ() {
    let (breaker, now) = breaker(settings());
    for _ in 0..2 {
        assert_eq!(fail(&breaker, now + 10 * SECOND), None);
    }
    assert_eq!(fail(&breaker, now), None);
    assert!(fail(&breaker, now).is_some(), "all four count");
}

// Equal settings share a breaker, also after no handler had it (an upstream that left DNS); others have their own, and
// an unused one does not make the upstream unhealthy.
#[test]
fn breakers_of_an_upstream() {
    let status = Metrics::default().upstream("a:1");
    let now = Instant::now();
    assert_eq!(status.breaker_phase(now), None);
    let breaker = status.breaker(&settings());
    assert_eq!(status.breaker_phase(now), Some(BreakerPhase::Closed));
    open(&breaker, now);
    assert_eq!(status.breaker_phase(now), Some(BreakerPhase::Open));
    assert!(!status.is_healthy(now));
    assert!(!status.is_healthy(now + 5 * SECOND), "half-open");
    drop(breaker);
    assert!(status.is_healthy(now) && status.breaker_phase(now).is_none());
    let breaker = status.breaker(&settings());
    assert_eq!(breaker.phase(now), BreakerPhase::Open);
    let other = status.breaker(&BreakerSettings { trip: SECOND, ..settings() });
    assert_eq!(other.phase(now), BreakerPhase::Closed);
    assert_eq!(status.breaker_phase(now), Some(BreakerPhase::Open), "the most severe one");
    drop(breaker);
    drop(status.breaker(&BreakerSettings { trip: 2 * SECOND, ..settings() }));
    assert_eq!(status.breaker(&settings()).phase(now), BreakerPhase::Closed, "forgotten: the settings were replaced");
}

#[test]
fn a_state_is_one_word() {
    for phase in [StoredPhase::Closed, StoredPhase::Open, StoredPhase::Probing] {
        for until in [0, 1, BreakerState::UNTIL_MAX] {
            for epoch in [0, 1, (1 << BreakerState::EPOCH_BITS) - 1] {
                let state = BreakerState { epoch, phase, until };
                assert_eq!(BreakerState::unpack(state.pack()), state);
            }
        }
    }
    let last = BreakerState { epoch: (1 << BreakerState::EPOCH_BITS) - 1, phase: StoredPhase::Open, until: u64::MAX };
    assert_eq!(BreakerState::unpack(last.pack()).until, BreakerState::UNTIL_MAX);
    assert_eq!(BreakerState::unpack(last.next(StoredPhase::Closed, 0)).epoch, 0, "the epoch wraps");
}

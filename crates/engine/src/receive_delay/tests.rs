use super::*;

const PAUSE: Duration = Duration::from_millis(2);

fn on_a_worker(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, work);
}

/// Returns the keys of two connections.
fn keys() -> (TimerKey, TimerKey) {
    let mut wheel = crate::timers::Wheel::new(Instant::now());
    (wheel.add(Waker::noop().clone()), wheel.add(Waker::noop().clone()))
}

/// Waits for the end of a delay. Returns its bytes.
async fn wait(delays: &ReceiveDelays, key: TimerKey) -> ReadTime {
    poll_fn(|poll_cx| delays.poll(key, poll_cx)).await
}

#[test]
fn a_delayed_read_resumes_when_it_is_due() {
    on_a_worker(async {
        let delays = Rc::new(ReceiveDelays::default());
        let (late, soon) = keys();
        let began = Instant::now();
        // The later delay begins first, so the alarm must be set to an earlier time.
        assert!(delays.delay(late, ReadTime::new(1), 4 * PAUSE, Waker::noop()));
        assert!(delays.delay(soon, ReadTime::new(2), PAUSE, Waker::noop()));
        assert_eq!(delays.next.get(), delays.delayed.borrow().values().map(|delayed| delayed.due).min());
        assert_eq!(wait(&delays, soon).await.at, 2);
        assert!(began.elapsed() >= PAUSE);
        assert_eq!(wait(&delays, late).await.at, 1);
        assert!(began.elapsed() >= 4 * PAUSE);
        assert!(delays.delayed.borrow().is_empty());
    });
}

#[test]
fn a_removed_delay_wakes_no_task_and_its_key_is_reused() {
    on_a_worker(async {
        let delays = Rc::new(ReceiveDelays::default());
        let key = keys().0;
        assert!(delays.delay(key, ReadTime::new(1), PAUSE, Waker::noop()));
        delays.forget(key);
        let began = Instant::now();
        assert!(delays.delay(key, ReadTime::new(2), 3 * PAUSE, Waker::noop()));
        assert_eq!(wait(&delays, key).await.at, 2);
        assert!(began.elapsed() >= 3 * PAUSE, "not by the alarm of the removed delay");
    });
}

#[test]
fn delays_have_bounds() {
    on_a_worker(async {
        let delays = Rc::new(ReceiveDelays::default());
        let key = keys().0;
        assert!(!delays.delay(key, ReadTime::new(1), DELAY_MIN / 2, Waker::noop()), "too short");
        let mut read = ReadTime::new(1);
        let began = Instant::now();
        // A profiler that delays the bytes without end.
        while delays.delay(key, read, 6 * PAUSE, Waker::noop()) {
            read = wait(&delays, key).await;
        }
        assert!(began.elapsed() + DELAY_MIN >= DELAY_TOTAL_MAX);
        assert!(delays.delayed.borrow().is_empty());
    });
}

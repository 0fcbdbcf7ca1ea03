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

/// Waits for the end of a hold. Returns its bytes.
async fn wait(holds: &Holds, key: TimerKey) -> ReadTime {
    poll_fn(|task| holds.poll(key, task)).await
}

#[test]
fn a_held_read_resumes_when_it_is_due() {
    on_a_worker(async {
        let holds = Rc::new(Holds::default());
        let (late, soon) = keys();
        let began = Instant::now();
        // The later hold begins first, so the alarm must be set to an earlier time.
        assert!(holds.begin(late, ReadTime::new(1), 4 * PAUSE, Waker::noop()));
        assert!(holds.begin(soon, ReadTime::new(2), PAUSE, Waker::noop()));
        assert_eq!(holds.next.get(), holds.held.borrow().values().map(|held| held.due).min());
        assert_eq!(wait(&holds, soon).await.at, 2);
        assert!(began.elapsed() >= PAUSE);
        assert_eq!(wait(&holds, late).await.at, 1);
        assert!(began.elapsed() >= 4 * PAUSE);
        assert!(holds.held.borrow().is_empty());
    });
}

#[test]
fn a_removed_hold_wakes_no_task_and_its_key_is_reused() {
    on_a_worker(async {
        let holds = Rc::new(Holds::default());
        let key = keys().0;
        assert!(holds.begin(key, ReadTime::new(1), PAUSE, Waker::noop()));
        holds.forget(key);
        let began = Instant::now();
        assert!(holds.begin(key, ReadTime::new(2), 3 * PAUSE, Waker::noop()));
        assert_eq!(wait(&holds, key).await.at, 2);
        assert!(began.elapsed() >= 3 * PAUSE, "not by the alarm of the removed hold");
    });
}

#[test]
fn holds_have_bounds() {
    on_a_worker(async {
        let holds = Rc::new(Holds::default());
        let key = keys().0;
        assert!(!holds.begin(key, ReadTime::new(1), HOLD_MIN / 2, Waker::noop()), "too short");
        let mut read = ReadTime::new(1);
        let began = Instant::now();
        // A profiler that delays the bytes without end.
        while holds.begin(key, read, 6 * PAUSE, Waker::noop()) {
            read = wait(&holds, key).await;
        }
        assert!(began.elapsed() + HOLD_MIN >= HOLDS_MAX);
        assert!(holds.held.borrow().is_empty());
    });
}

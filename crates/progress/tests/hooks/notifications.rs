//! Condition variables and barriers: which calls a notification, a timeout and a barrier make.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use progress::sync::{Barrier, Condvar, Mutex};
use progress::thread;

use crate::recorder::{check, record, until_blocked};

static READY: Mutex<bool> = Mutex::new(false);
static NOTIFIED: Condvar = Condvar::new();

fn waiter<F: FnOnce() + Send + 'static>(name: &str, work: F) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(work).unwrap()
}

#[test]
fn a_notified_thread_continues_from_the_notifier() {
    let lines = record(|| {
        *READY.lock().unwrap() = false;
        let waiting = waiter("waiting", || {
            drop(NOTIFIED.wait_while(READY.lock().unwrap(), |ready| !*ready).unwrap());
        });
        until_blocked("waiting");
        *READY.lock().unwrap() = true;
        NOTIFIED.notify_one();
        waiting.join().unwrap();
        NOTIFIED.notify_all();
    });
    check(
        &lines,
        "waiting",
        &[
            "took 1",
            "at lock",
            "in lock",
            "locked",
            "unlocks",
            "took 2, blocked",
            "locked",
            "at wait",
            "unlocks",
            "out",
            "sent 3",
        ],
    );
    let main = &lines["main"];
    let lock = ["at lock", "in lock", "locked", "unlocks", "out"];
    assert_eq!(main[..5], lock);
    assert_eq!(main[5..7], ["sent 1", "at spawn"]);
    assert_eq!(main[7..12], lock);
    assert_eq!(main[12..16], ["sent 2", "at notify", "in wake", "out"]);
    assert!(main[16].starts_with("took 3"), "{main:?}");
    // No thread waits: the notification makes no stamp, and wakes no thread.
    assert_eq!(main[17..], ["at join", "at notify"]);
}

#[test]
fn all_waiting_threads_continue_from_the_notifier() {
    static OPEN: Mutex<bool> = Mutex::new(false);
    static OPENED: Condvar = Condvar::new();
    let lines = record(|| {
        let threads = ["one", "two"]
            .map(|name| waiter(name, || drop(OPENED.wait_while(OPEN.lock().unwrap(), |open| !*open).unwrap())));
        ["one", "two"].into_iter().for_each(until_blocked);
        *OPEN.lock().unwrap() = true;
        OPENED.notify_all();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    for name in ["one", "two"] {
        assert!(lines[name].contains(&"took 3, blocked".to_owned()), "{lines:?}");
    }
}

#[test]
fn an_expired_wait_is_a_timer() {
    let mutex = Mutex::new(());
    let condvar = Condvar::new();
    let lines = record(|| {
        let (guard, result) = condvar.wait_timeout_while(mutex.lock().unwrap(), Duration::ZERO, |()| true).unwrap();
        assert!(result.timed_out());
        drop(guard);
        let (_guard, result) = condvar.wait_timeout(mutex.lock().unwrap(), Duration::from_millis(1)).unwrap();
        assert!(result.timed_out());
    });
    let main = &lines["main"];
    let wait = |timer: u32| {
        [
            "at lock".to_owned(),
            "in lock".into(),
            "locked".into(),
            format!("timer {timer}"),
            "unlocks".into(),
            format!("over {timer}, blocked"),
            "locked".into(),
            "at wait".into(),
            "unlocks".into(),
            "out".into(),
        ]
    };
    // A timeout of zero may expire before the first wait.
    assert_eq!(main[main.len() - 10..], wait(if main.len() == 20 { 2 } else { 1 }), "{main:#?}");
}

#[test]
fn leaving_a_barrier_means_waiting_for_all() {
    static BARRIER: Barrier = Barrier::new(3);
    static LEADS: AtomicBool = AtomicBool::new(false);
    let lines = record(|| {
        let threads = ["one", "two"].map(|name| {
            let thread = waiter(name, || assert!(!BARRIER.wait().is_leader()));
            until_blocked(name);
            thread
        });
        LEADS.store(BARRIER.wait().is_leader(), Ordering::Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert!(LEADS.load(Ordering::Relaxed));
    // Stamps: 1 spawns one, 2 is one's arrival; 3 spawns two, 4 is two's; 5 is main's.
    assert_eq!(lines["one"][..5], ["took 1", "sent 2", "took 4, blocked", "took 5", "at barrier"]);
    assert_eq!(lines["two"][..5], ["took 3", "sent 4", "took 2, blocked", "took 5", "at barrier"]);
    assert_eq!(
        lines["main"][..10],
        ["sent 1", "at spawn", "sent 3", "at spawn", "sent 5", "in wake", "out", "took 2", "took 4", "at barrier"]
    );
}

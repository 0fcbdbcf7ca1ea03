//! Mutexes and read-write locks: the calls for free and contended locks, panics and downgrades.

use std::panic::{AssertUnwindSafe, catch_unwind};

use progress::sync::{Mutex, RwLock, RwLockWriteGuard};
use progress::thread;

use crate::recorder::{check, kind, record, until_blocked};

const FREE: [&str; 5] = ["at lock", "in lock", "locked", "unlocks", "out"];

fn named<F: FnOnce() + Send + 'static>(name: &str, work: F) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.into()).spawn(work).unwrap()
}

#[test]
fn a_free_lock_is_taken_without_being_blocked() {
    let mutex = Mutex::new(1);
    let lines = record(|| {
        *mutex.lock().unwrap() += 1;
        *mutex.try_lock().unwrap() += 1;
    });
    check(&lines, "main", &[FREE, FREE].concat());
    assert_eq!(mutex.into_inner().unwrap(), 3);
}

#[test]
fn work_after_a_lock_has_its_own_kind() {
    record(|| {
        let mutex = Mutex::new(());
        let held = mutex.lock().unwrap();
        assert_eq!(kind(), "@lock/lock");
        drop(held);
        assert_eq!(kind(), "@lock");
    });
}

#[test]
fn a_held_lock_blocks_and_reports_its_holder() {
    let mutex = std::sync::Arc::new(Mutex::new(0));
    let lines = record(|| {
        let held = mutex.lock().unwrap();
        let other = named("other", {
            let mutex = mutex.clone();
            move || *mutex.lock().unwrap() += 1
        });
        until_blocked("other");
        assert!(mutex.try_lock().is_err());
        drop(held);
        other.join().unwrap();
        drop(mutex.lock().unwrap());
    });
    check(&lines, "other", &["took 1", "at lock", "in lock", "locked, blocked", "unlocks", "out", "sent 2"]);
    let main = &lines["main"];
    assert_eq!(main[..7], ["at lock", "in lock", "locked", "sent 1", "at spawn", "unlocks, contended", "out"]);
    // The wakeup is not part of the critical section.
    assert_eq!(main[7..9], ["in wake", "out"]);
    assert!(main[9].starts_with("took 2"));
    assert_eq!(main[10], "at join");
    assert_eq!(main[11..], FREE);
}

#[test]
fn a_panicking_thread_releases_and_poisons_its_lock() {
    let mutex = Mutex::new(());
    let lines = record(|| {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = mutex.lock().unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert!(mutex.lock().is_err());
        assert!(mutex.try_lock().is_err());
        assert_eq!(kind(), "@lock");
    });
    assert!(mutex.is_poisoned());
    check(&lines, "main", &[FREE, FREE, FREE].concat());
}

#[test]
fn readers_share_and_writers_do_not() {
    let lock = RwLock::new(1);
    let lines = record(|| {
        let one = lock.read().unwrap();
        let two = lock.try_read().unwrap();
        assert!(lock.try_write().is_err());
        drop((one, two));
        *lock.write().unwrap() += 1;
        *lock.try_write().unwrap() += 1;
    });
    let read = ["at read", "in read", "locked, shared"];
    // The first guard is dropped first, so the second one's span is entered again.
    let unread = ["unlocks, shared", "out", "in read", "unlocks, shared", "out"];
    let write = ["at write", "in write", "locked", "unlocks", "out"];
    check(&lines, "main", &[&read[..], &read, &unread, &write, &write].concat());
}

#[test]
fn a_writer_waits_for_readers_and_can_be_downgraded() {
    let lock = std::sync::Arc::new(RwLock::new(1));
    let lines = record(|| {
        let reading = lock.read().unwrap();
        let writer = named("writer", {
            let lock = lock.clone();
            move || {
                let mut writing = lock.write().unwrap();
                *writing += 1;
                assert_eq!(*RwLockWriteGuard::downgrade(writing), 2);
            }
        });
        until_blocked("writer");
        drop(reading);
        writer.join().unwrap();
    });
    check(
        &lines,
        "writer",
        &[
            "took 1",
            "at write",
            "in write",
            "locked, blocked",
            "unlocks",
            "locked, shared",
            "unlocks, shared",
            "out",
            "sent 2",
        ],
    );
    let gives_up = ["unlocks, shared, contended", "out", "in wake", "out"];
    assert!(lines["main"].windows(4).any(|lines| lines == gives_up), "{lines:#?}");
}

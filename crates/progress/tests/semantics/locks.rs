//! Mutexes, read-write locks, condition variables and barriers, compared with std's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use progress::sync::{Arc, Barrier, Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard, TryLockError};
use progress::thread;

use crate::always;

const ROUNDS: usize = 2_000;

#[test]
fn a_mutex_admits_one_thread_at_a_time() {
    always(|| {
        let count = Mutex::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..ROUNDS).for_each(|_| *count.lock().unwrap() += 1));
            }
        });
        assert_eq!(count.into_inner().unwrap(), 4 * ROUNDS);
    });
}

#[test]
fn writers_are_exclusive_and_readers_see_complete_values() {
    always(|| {
        let pair = RwLock::new((0, 0));
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut pair = pair.write().unwrap();
                        pair.0 += 1;
                        pair.1 += 1;
                        let pair = RwLockWriteGuard::downgrade(pair);
                        assert_eq!(pair.0, pair.1);
                    }
                });
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let pair = pair.read().unwrap();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(pair.into_inner().unwrap(), (2 * ROUNDS, 2 * ROUNDS));
    });
}

fn panics(work: impl FnOnce()) {
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
}

/// A panic poisons the mutex that the thread holds; a read-write lock only if the thread writes.
#[test]
fn poison() {
    always(|| {
        let mut mutex = Mutex::new(1);
        panics(|| {
            let _held = mutex.lock().unwrap();
            panic!("on purpose");
        });
        assert!(mutex.is_poisoned());
        assert_eq!(*mutex.lock().unwrap_err().into_inner(), 1);
        assert!(matches!(mutex.try_lock(), Err(TryLockError::Poisoned(_))));
        assert!(mutex.get_mut().is_err());
        let held = mutex.lock().unwrap_err().into_inner();
        assert!(matches!(mutex.try_lock(), Err(TryLockError::WouldBlock)));
        let (held, result) = Condvar::new().wait_timeout(held, Duration::from_millis(1)).unwrap_err().into_inner();
        assert!(result.timed_out());
        drop(held);
        mutex.clear_poison();
        assert_eq!(*mutex.lock().unwrap(), 1);

        let lock = RwLock::new(1);
        panics(|| {
            let _held = lock.read().unwrap();
            panic!("on purpose");
        });
        assert!(!lock.is_poisoned());
        panics(|| {
            let _held = lock.write().unwrap();
            panic!("on purpose");
        });
        assert!(lock.is_poisoned() && lock.read().is_err() && lock.write().is_err());
        assert!(matches!(lock.try_read(), Err(TryLockError::Poisoned(_))));
        assert!(matches!(lock.try_write(), Err(TryLockError::Poisoned(_))));
        lock.clear_poison();
        assert_eq!(lock.into_inner().unwrap(), 1);
    });
}

/// Traits and constants of std's types: `Sync` guards, `static` initialisers, unsized values, formatting.
#[test]
fn shapes() {
    static LOCK: Mutex<Vec<u8>> = Mutex::new(Vec::new());
    static BARRIER: Barrier = Barrier::new(1);
    fn shared<T: Sync>(_: &T) {}
    always(|| {
        shared(&LOCK.lock().unwrap());
        assert!(BARRIER.wait().is_leader());
        let unsized_: Arc<Mutex<dyn std::fmt::Debug + Send>> = Arc::new(Mutex::new(3));
        assert_eq!(format!("{:?} {}", unsized_.lock().unwrap(), Mutex::from("x").lock().unwrap()), "3 x");
        assert_eq!(format!("{:?}", Mutex::<u8>::default()), format!("{:?}", std::sync::Mutex::<u8>::default()));
        assert_eq!(format!("{:?}", RwLock::from(1)), format!("{:?}", std::sync::RwLock::from(1)));
        assert_eq!(*RwLock::<u8>::default().get_mut().unwrap(), 0);
    });
}

/// Producers and consumers over a queue: no item is lost, in whichever order threads are woken.
#[test]
fn condition_variables() {
    always(|| {
        let (queue, filled, emptied) = (Mutex::new(Vec::new()), Condvar::new(), Condvar::new());
        let sum = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut held = filled.wait_while(queue.lock().unwrap(), |queue| queue.is_empty()).unwrap();
                        sum.fetch_add(held.pop().unwrap(), Relaxed);
                        drop(held);
                        emptied.notify_all();
                    }
                });
                scope.spawn(|| {
                    for number in 0..ROUNDS {
                        let mut held: MutexGuard<'_, Vec<_>> = queue.lock().unwrap();
                        while held.len() > 3 {
                            held = emptied.wait(held).unwrap();
                        }
                        held.push(number);
                        filled.notify_one();
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), ROUNDS * (ROUNDS - 1));
    });
}

#[test]
fn a_wait_with_a_timeout_returns_why_it_ended() {
    always(|| {
        let (ready, changed) = (Mutex::new(false), Condvar::new());
        let (held, result) =
            changed.wait_timeout_while(ready.lock().unwrap(), Duration::ZERO, |ready| !*ready).unwrap();
        assert!(result.timed_out() && !*held);
        drop(held);
        thread::scope(|scope| {
            scope.spawn(|| {
                *ready.lock().unwrap() = true;
                changed.notify_all();
            });
            let forever = Duration::from_secs(600);
            let (held, result) = changed.wait_timeout_while(ready.lock().unwrap(), forever, |ready| !*ready).unwrap();
            assert!(!result.timed_out() && *held);
        });
    });
}

#[test]
fn a_barrier_has_one_leader_a_round() {
    always(|| {
        // The cases include more threads than `count`.
        for (count, threads) in [(0, 1), (1, 2), (3, 3), (2, 4)] {
            let (barrier, leaders, came) = (Barrier::new(count), AtomicUsize::new(0), AtomicUsize::new(0));
            thread::scope(|scope| {
                for _ in 0..threads {
                    // 600 arrivals in all, a multiple of `count`, so the last round is complete.
                    scope.spawn(|| {
                        while came.fetch_add(1, Relaxed) < 600 {
                            leaders.fetch_add(usize::from(barrier.wait().is_leader()), Relaxed);
                        }
                    });
                }
            });
            assert_eq!(leaders.into_inner(), 600 / count.max(1), "{count} of {threads}");
        }
    });
}

#[test]
fn no_thread_leaves_a_barrier_early() {
    always(|| {
        let (barrier, came) = (Barrier::new(3), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for round in 1..=100 {
                        came.fetch_add(1, Relaxed);
                        barrier.wait();
                        assert!(came.load(Relaxed) >= 3 * round);
                    }
                });
            }
        });
    });
}

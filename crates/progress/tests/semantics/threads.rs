//! Threads and scopes, compared with std's.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use progress::{accounts, thread};

use crate::always;

#[test]
fn a_thread_has_the_properties_of_its_builder() {
    always(|| {
        let child = thread::Builder::new()
            .name("built".into())
            .stack_size(1 << 20)
            .spawn(|| {
                let here = thread::current();
                assert_eq!(here.name(), Some("built"));
                let account = progress::current().expect("it is registered before it does anything");
                assert_eq!(account.name(), "built");
                here.id()
            })
            .unwrap();
        let id = child.thread().id();
        assert_eq!(child.thread().name(), Some("built"));
        assert_eq!(child.join().unwrap(), id);
        assert!(accounts().iter().any(|account| account.name() == "built"));
        assert_ne!(thread::current().id(), id);
    });
}

#[test]
fn join_returns_the_panic() {
    always(|| {
        let panicked = thread::spawn(|| std::panic::panic_any(7)).join().unwrap_err();
        assert_eq!(panicked.downcast_ref(), Some(&7));
    });
}

#[test]
fn a_scope_panics_for_a_thread_that_was_not_joined() {
    always(|| {
        let scope = || {
            thread::scope(|scope| {
                scope.spawn(|| panic!("on purpose"));
            });
        };
        assert!(catch_unwind(scope).is_err());
        let joined = thread::scope(|scope| scope.spawn(|| panic!("on purpose")).join().is_err());
        assert!(joined);
    });
}

#[test]
fn a_scope_that_panics_waits_first() {
    always(|| {
        let ended = AtomicUsize::new(0);
        let scope = || {
            thread::scope(|scope| {
                scope.spawn(|| {
                    thread::sleep(Duration::from_millis(2));
                    ended.fetch_add(1, Relaxed);
                });
                panic!("on purpose");
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(scope)).is_err());
        assert_eq!(ended.load(Relaxed), 1);
    });
}

/// A thread of a scope may spawn further threads in it, through its reference.
#[test]
fn scopes_nest() {
    fn spawn_more<'scope>(scope: &'scope thread::Scope<'scope, '_>, count: &'scope AtomicUsize) {
        scope.spawn(|| count.fetch_add(1, Relaxed));
        thread::Builder::new().spawn_scoped(scope, || count.fetch_add(1, Relaxed)).unwrap();
    }
    always(|| {
        let count = AtomicUsize::new(0);
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                count.fetch_add(1, Relaxed);
                scope.spawn(|| count.fetch_add(1, Relaxed));
                thread::scope(|inner| drop(inner.spawn(|| count.fetch_add(1, Relaxed))));
            });
            spawn_more(scope, &count);
            'x'
        });
        assert_eq!((result, count.load(Relaxed)), ('x', 5));
    });
}

#[test]
fn an_unparked_thread_does_not_park() {
    always(|| {
        thread::current().unpark();
        thread::park();
        let before = Instant::now();
        thread::park_timeout(Duration::from_micros(200));
        thread::sleep(Duration::from_micros(200));
        assert!(before.elapsed() >= Duration::from_micros(200));
        let child = thread::spawn(thread::park);
        child.thread().unpark();
        child.join().unwrap();
    });
}

#[test]
fn a_thread_ends_when_its_work_is_done() {
    always(|| {
        let child = thread::spawn(|| 1);
        while !child.is_finished() {
            thread::yield_now();
        }
        assert_eq!(child.join().unwrap(), 1);
    });
}

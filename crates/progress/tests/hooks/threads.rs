//! Spawning, joining, sleeping and parking: the stamps that threads exchange.

use std::time::Duration;

use progress::thread;

use crate::recorder::{check, record, until_blocked};

#[test]
fn a_child_continues_from_its_parent_and_a_join_from_its_end() {
    let lines = record(|| {
        let child = thread::Builder::new().name("child".into()).spawn(|| thread::park()).unwrap();
        until_blocked("child");
        assert!(!child.is_finished());
        child.thread().unpark();
        child.join().unwrap();
    });
    check(&lines, "child", &["took 1", "took 2, blocked", "at park", "sent 3"]);
    let main = &lines["main"];
    assert_eq!(main[..6], ["sent 1", "at spawn", "sent 2", "at unpark", "in wake", "out"]);
    assert!(main[6].starts_with("took 3"));
    assert_eq!(main[7..], ["at join"]);
}

#[test]
fn a_child_that_panics_ends_too() {
    let lines = record(|| {
        let child = thread::Builder::new().name("child".into()).spawn(|| panic!("on purpose")).unwrap();
        while !child.is_finished() {
            thread::yield_now();
        }
        assert!(child.join().is_err());
    });
    check(&lines, "child", &["took 1", "sent 2"]);
    check(&lines, "main", &["sent 1", "at spawn", "took 2", "at join"]);
}

#[test]
fn a_scope_waits_for_threads_that_were_not_joined() {
    let lines = record(|| {
        thread::scope(|scope| {
            let joined = thread::Builder::new().name("joined".into()).spawn_scoped(scope, || 7).unwrap();
            while !joined.is_finished() {
                thread::yield_now();
            }
            assert_eq!(joined.join().unwrap(), 7);
            thread::Builder::new().name("left".into()).spawn_scoped(scope, || ()).unwrap();
        });
    });
    check(&lines, "joined", &["took 1", "sent 2"]);
    check(&lines, "left", &["took 3", "sent 4"]);
    check(
        &lines,
        "main",
        &["sent 1", "at spawn", "took 2", "at join", "sent 3", "at spawn", "took 4, blocked", "at join"],
    );
}

#[test]
fn a_thread_that_unparked_itself_does_not_wait() {
    let lines = record(|| {
        thread::current().unpark();
        thread::park();
        thread::park_timeout(Duration::from_millis(1));
    });
    let main = &lines["main"];
    assert_eq!(main[..2], ["sent 1", "at unpark"]);
    assert!(main[2].starts_with("took 1"));
    assert_eq!(main[3..5], ["at park", "timer 2"]);
    assert!(["over 2, blocked", "took 0, blocked"].contains(&&*main[5]), "{main:?}");
}

#[test]
fn a_sleep_is_a_timer() {
    let lines = record(|| thread::sleep(Duration::from_micros(1)));
    check(&lines, "main", &["timer 1", "over 1, blocked", "at sleep"]);
}

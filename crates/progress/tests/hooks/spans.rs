//! Spans, points and the macros, and the begin and end of a profile in the middle of them.

use progress::sync::Mutex;
use progress::{Attention, ContextStep, Point, Span, Visit, begin, end, progress, set_attention, span};

use crate::recorder::{check, kind, record};

#[test]
fn macros_report_their_names() {
    let lines = record(|| {
        let _parse = span!("parse");
        progress!("request");
        begin!("answer");
        begin!("answer");
        end!("answer");
        end!("answer");
        end!("answer");
    });
    check(
        &lines,
        "main",
        &[
            "in parse",
            "hit request",
            "began 1",
            "began 2",
            // Units end in the order of their begins; the third end has no begin, and so no latency.
            "ended 1 of answer",
            "ended 2 of answer",
            "ended 0 of answer",
            "out",
        ],
    );
}

/// If it stayed open, each later end would pair with an earlier begin, and the latencies would include the gap between
/// windows.
#[test]
fn a_unit_may_end_between_windows() {
    let lines = record(|| {
        begin!("crossing");
        set_attention(Attention::Spans);
        end!("crossing");
        set_attention(Attention::Everything);
        begin!("crossing");
        end!("crossing");
    });
    check(&lines, "main", &["began 1", "began 2", "ended 2 of crossing"]);
}

#[test]
fn macros_give_one_span_and_one_point_for_a_name() {
    let lines = record(|| {
        for _ in 0..2 {
            drop(span!("the same"));
            progress!("the same");
        }
        assert_eq!(Span::intern("the same"), Span::intern("the same"));
        assert_eq!(Point::intern("the same"), Point::intern("the same"));
    });
    check(&lines, "main", &["in the", "out", "hit the same", "in the", "out", "hit the same"]);
}

#[test]
fn nothing_is_reported_without_a_profile() {
    let lines = record(|| {
        set_attention(Attention::Nothing);
        let _span = span!("parse");
        progress!("request");
        begin!("answer");
        end!("answer");
        Visit::begin().end(Point::intern("answer"));
        drop(Mutex::new(1).lock().unwrap());
        let (sender, receiver) = progress::sync::mpsc::sync_channel(1);
        progress::thread::scope(|scope| {
            scope.spawn(|| sender.send(1).unwrap());
        });
        receiver.recv().unwrap();
    });
    assert!(lines.is_empty(), "{lines:?}");
}

/// The profiler compares a thread's rate in windows with its rate between them, so hits count in both, and only there.
#[test]
fn units_are_counted_while_a_profile_runs() {
    record(|| {
        let counted = |attention| {
            let account = progress::current().expect("the thread is registered");
            let before = account.hits();
            set_attention(attention);
            progress!("counted");
            begin!("counted from its begin");
            end!("counted from its begin");
            Visit::begin().end(Point::intern("counted"));
            account.hits() - before
        };
        let counts = [Attention::Everything, Attention::Spans, Attention::Nothing].map(counted);
        assert_eq!(counts, [3, 3, 0]);
    });
}

/// Spans and locks opened before a profile end within it, and those opened within it end after it.
#[test]
fn a_profile_may_begin_and_end_anywhere() {
    let mutex = Mutex::new(());
    let lines = record(|| {
        set_attention(Attention::Nothing);
        let (span, lock) = (span!("before"), mutex.lock().unwrap());
        set_attention(Attention::Everything);
        drop((span, lock));
        let (span, lock) = (span!("inside"), mutex.lock().unwrap());
        set_attention(Attention::Nothing);
        drop((span, lock));
        set_attention(Attention::Everything);
        drop(mutex.lock().unwrap());
    });
    let whole = ["at lock", "in lock", "locked", "unlocks", "out"];
    // A span that ends while the policy is not called is closed all the same; the policy reads the open ones when it
    // resumes.
    let parts = [&["unlocks", "in inside"][..], &whole[..3], &whole];
    check(&lines, "main", &parts.concat());
    assert!(progress::current().is_some());
    progress::steps(|step| assert!(matches!(step, ContextStep::Site(_))));
}

#[test]
fn spans_and_locks_end_in_any_order() {
    record(|| {
        let (a, b) = (Mutex::new(()), Mutex::new(()));
        let outer = span!("outer");
        assert_eq!(kind(), "/outer");
        let held = a.lock().unwrap();
        assert_eq!(kind(), "/outer@lock/lock");
        let inner = span!("inner");
        let other = b.lock().unwrap();
        assert_eq!(kind(), "/outer@lock/lock/inner@lock/lock");
        drop(held);
        assert_eq!(kind(), "/outer@lock/inner/lock");
        drop(outer);
        assert_eq!(kind(), "/inner/lock");
        drop(inner);
        assert_eq!(kind(), "/lock");
        drop(other);
        assert_eq!(kind(), "");
    });
}

/// If the profile ends during a wait, the wait's end is still reported. Otherwise the wait would seem to last until the
/// thread's next one.
#[test]
fn a_reported_wait_has_an_end() {
    let lines = record(|| {
        progress::before_block();
        set_attention(Attention::Nothing);
        progress::after_block();
        progress::before_block();
        set_attention(Attention::Everything);
        progress::after_block();
        progress::before_block();
        set_attention(Attention::Nothing);
        progress::after_block();
        progress::before_block();
        progress::after_block();
    });
    check(&lines, "main", &["blocks", "is back", "is back", "blocks", "is back"]);
}

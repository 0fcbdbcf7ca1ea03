//! Windows with pauses on real threads. The tests check which threads pause and the counters, never speed.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use causal::kinds::{NodeStep, kinds};
use causal::ledger::{Experiment, WindowCost};
use causal::outcome::WindowOutcome;
use causal::policy::Recorder;
use causal::target::{KindShare, Weights};
use progress::sync::mpsc::sync_channel;
use progress::{Account, Attention, Point, Policy, Span, Stamp, install, set_attention, thread};

static RECORDER: Recorder = Recorder::new();
static STOP: AtomicBool = AtomicBool::new(false);

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        black_box(());
    }
}

/// Makes all time inside the span the target's.
fn weights(span: Span) -> Weights {
    let kinds = kinds();
    let is_inside = |mut kind: usize| loop {
        match kinds[kind].step {
            NodeStep::Root => return false,
            NodeStep::Span(id) if id == span.id() => return true,
            _ => kind = kinds[kind].parent as usize,
        }
    };
    let part = |kind| KindShare { part: if is_inside(kind) { 1.0 } else { 0.0 }, error: 0.0 };
    Weights { parts: (0..kinds.len()).map(part).collect(), calls: None }
}

fn window(experiment: &Experiment<'_>) -> (WindowOutcome, WindowCost) {
    RECORDER.open_experiment(experiment);
    std::thread::sleep(Duration::from_millis(100));
    RECORDER.close();
    let came = RECORDER.outcome();
    std::thread::sleep(Duration::from_millis(20));
    came
}

#[test]
fn all_threads_but_the_target_are_paused() {
    assert!(install(&RECORDER).is_ok(), "the first policy of the process");
    set_attention(Attention::Everything);
    let (target, other, point) = (Span::intern("target"), Span::intern("other"), Point::intern("item"));
    let (sender, receiver) = sync_channel::<u32>(4);
    let first = thread::spawn(move || {
        while !STOP.load(Relaxed) {
            let _busy = target.enter();
            spin(Duration::from_micros(300));
            drop(_busy);
            if sender.send(1).is_err() {
                break;
            }
        }
    });
    let second = thread::spawn(move || {
        while receiver.recv().is_ok() {
            let _busy = other.enter();
            spin(Duration::from_micros(200));
            point.hit();
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    let (control, nothing) = window(&Experiment { weights: Some(&Weights::default()), speedup: 0.0 });
    // A kind of work is known once a window has recorded it.
    let weights = weights(target);
    let (came, spent) = window(&Experiment { weights: Some(&weights), speedup: 0.5 });
    let (probed, probe) = window(&Experiment { weights: None, speedup: 0.0 });
    STOP.store(true, Relaxed);
    first.join().expect("the first thread ends well");
    second.join().expect("the second thread ends well");
    set_attention(Attention::Nothing);

    let hits = |outcome: &WindowOutcome| outcome.point(point.id()).hits;
    // Speed-up 0: no thread has pending delay.
    assert_eq!(nothing, WindowCost::default());
    assert!(hits(&control) > 0, "{control:?}");
    // The target ran, and half of that time was inserted as delay into the other threads.
    assert!(spent.delayed > 0, "{spent:?}");
    assert!(hits(&came) > 0, "{came:?}");
    // A probe pauses every thread for at least a fifth of 100 ms; a thread that does not wait must sleep for it.
    assert!(probe.delayed >= 20_000_000 && probe.slept > 0, "{probe:?}");
    assert!(hits(&probed) > 0, "{probed:?}");
}

#[test]
fn messages_without_an_arrival_time_are_not_held() {
    static ALONE: Recorder = Recorder::new();
    let account: &Account = Box::leak(Box::new(Account::new(0, "worker")));
    ALONE.open_experiment(&Experiment { weights: None, speedup: 0.0 });
    // A probe pauses everything for a fifth of the time.
    std::thread::sleep(Duration::from_millis(10));
    assert_eq!(ALONE.hold(account, Stamp::default(), 0), None);
}

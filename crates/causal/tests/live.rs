//! Profiles of this process, with real threads. Their numbers are not asserted: no test measures time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use causal::report::ReasonCode;
use causal::target::TargetKind;
use causal::{Modes, Phase, Profiler, Report, StartError};
use progress::{progress, span, thread};

/// A process has at most one profile at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Runs `profile` while another thread performs units of work.
fn during_work(profile: impl FnOnce() -> Report) -> Report {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                {
                    let _span = span!("live work");
                    (0..20_000_u64).for_each(|round| {
                        std::hint::black_box(round);
                    });
                }
                progress!("live unit");
            }
        });
        // A thread that spawns short-lived threads.
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                drop(thread::spawn(|| progress!("live short")).join());
            }
        });
        let report = profile();
        is_over.store(true, Ordering::Relaxed);
        report
    })
}

fn codes(report: &Report) -> Vec<ReasonCode> {
    report.reasons.iter().map(|reason| reason.code).collect()
}

#[test]
fn a_profile_runs_repeatedly() {
    let _one = ONE.lock();
    for modes in [Modes::Both, Modes::Screen, Modes::Confirm] {
        let report = during_work(|| {
            let builder = Profiler::builder().duration(Duration::from_millis(1500)).mode(modes).progress("live unit");
            let profiler = builder.program("a test").seed(1).start().unwrap();
            assert!(progress::is_active());
            assert!(matches!(Profiler::builder().start(), Err(StartError::Running)));
            assert!(!profiler.is_finished());
            let report = profiler.finish();
            assert!(!progress::is_active(), "its hooks are off when it ends");
            report
        });
        assert_eq!((report.program.as_str(), report.progress[0].name.as_str()), ("a test", "live unit"));
        assert!(report.progress.iter().any(|point| point.name == "live short"), "{:?}", report.progress);
        // The spans with which the profiler measures its hooks must not be reported.
        let spans = report.targets.iter().filter(|target| target.kind == TargetKind::Span);
        let spans: Vec<_> = spans.map(|target| target.name.as_str()).filter(|&name| name != "wake threads").collect();
        assert_eq!(spans, ["live work"]);
        assert!(report.perturbation.windows[0] > 0);
        assert!(!codes(&report).contains(&ReasonCode::NoProgress));
    }
}

#[test]
fn a_stopped_profile_has_a_report() {
    let _one = ONE.lock();
    let report = during_work(|| {
        let profiler = Profiler::builder().duration(Duration::from_secs(3600)).start().unwrap();
        while profiler.status().report.progress.is_empty() {
            assert!(matches!(profiler.status().phase, Phase::Screening | Phase::Confirming));
            std::thread::sleep(Duration::from_millis(20));
        }
        profiler.stop();
        profiler.finish()
    });
    assert!(codes(&report).contains(&ReasonCode::Stopped));
    // A dropped profile ends by itself, and then another one can start.
    drop(Profiler::builder().duration(Duration::from_secs(3600)).start().unwrap());
    let next = loop {
        match Profiler::builder().duration(Duration::from_millis(50)).start() {
            Ok(profiler) => break profiler,
            Err(StartError::Running) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => panic!("{error}"),
        }
    };
    // No unit of progress: the report gives that as its reason.
    assert!(codes(&next.finish()).contains(&ReasonCode::NoProgress));
}

#[test]
fn a_profile_can_follow_another() {
    let _one = ONE.lock();
    for _ in 0..5 {
        let profiler = Profiler::builder().duration(Duration::from_millis(20)).start().unwrap();
        while !profiler.is_finished() {
            std::hint::spin_loop();
        }
        assert!(!progress::is_active());
        assert_eq!(profiler.status().phase, Phase::Finished);
    }
}

#[test]
fn an_unknown_target_is_named() {
    let _one = ONE.lock();
    let report = during_work(|| {
        let builder = Profiler::builder().duration(Duration::from_millis(800)).target("live works");
        builder.start().unwrap().finish()
    });
    let reason = report.reasons.iter().find(|reason| reason.code == ReasonCode::UnknownTarget).unwrap();
    assert!(reason.text.contains("`live work`"), "{}", reason.text);
    assert!(report.targets.is_empty());
}

use super::baseline::Baseline;
use super::*;
use crate::experiment::SeededRandom;
use crate::load::LoadVerdict;
use crate::replay::LoadModel;
use crate::report::{Speech, Stack};
use crate::target::KindShare;
use crate::trace::{Event, Thread, Trace};

/// A thread that alternates between two kinds of work, 30 and 70 µs, for ten milliseconds.
fn recording(point: u32) -> Arc<Recording> {
    let mut events = Vec::new();
    for unit in 0..100 {
        events.push((unit * 100_000, Event::Kind(1)));
        events.push((unit * 100_000 + 30_000, Event::Kind(2)));
        events.push(((unit + 1) * 100_000, Event::Hit { point }));
    }
    let thread = Thread { number: 0, is_worker: false, runnable: 1.0, kind: 1, events };
    Arc::new(Recording::new(&Trace { time: 0..10_000_000, threads: vec![thread], ..Trace::default() }, |_| None))
}

fn weights(one: f64, two: f64, error: f64) -> Weights {
    let part = |part| KindShare { part, error };
    Weights { parts: vec![KindShare::default(), part(one), part(two)], calls: None }
}

/// The result does not depend on the number of threads or their order.
#[test]
fn several_threads_find_the_result_of_one() {
    let point = progress::Point::intern("estimate crew").id();
    let recordings: Vec<_> = (0..9).map(|_| recording(point)).collect();
    let hot = weights(1.0, 0.0, 0.0);
    let questions = [Scenario { weights: &hot, speedup: 0.5 }, Scenario { weights: &hot, speedup: 1.0 }];
    let ask = |threads| {
        let crew = ReplayThreads { threads, nice: 1 };
        Screen::replay_all(
            &recordings,
            &WindowDefaults::default(),
            &questions,
            &[point],
            LoadModel::Closed,
            crew,
            |windows| windows < 7,
        )
    };
    for threads in [0, 1, 3, 20] {
        let screen = ask(threads);
        assert_eq!((screen.windows, screen.results.len()), (7, 2), "{threads} threads");
        for (answer, want) in screen.results.iter().zip([0.85, 0.7]) {
            let ratio = answer[0].time.estimate().unwrap();
            assert!((ratio.mean - want).abs() < 1e-3, "{threads} threads: {ratio:?}");
        }
    }
}

/// A loop that is always busy, with four clients that are away for 100 µs, and units of 50 µs, 40 of them the target's.
/// And a loop whose client wakes it each time, with a latency of 20 µs.
fn loops(point: u32) -> [Arc<Recording>; 2] {
    let (mut busy, mut idle) = (Vec::new(), Vec::new());
    for unit in 0..200_u64 {
        let (now, connection, visit) = (unit * 50_000, unit % 4 + 1, unit + 1);
        let came = if unit < 4 { 0 } else { (unit - 3) * 50_000 + 100_000 };
        busy.extend([
            (now, Event::Arrived { connection, at: came.min(now) }),
            (now, Event::VisitBegan { visit }),
            (now, Event::Kind(1)),
            (now + 40_000, Event::Kind(2)),
            (now + 50_000, Event::Written { connection }),
            (now + 50_000, Event::VisitEnded { visit, point }),
        ]);
        idle.extend([
            (now, Event::BlockBegan),
            (now + 30_000, Event::BlockEnded),
            (now + 30_000, Event::Arrived { connection: 9, at: now + 10_000 }),
            (now + 49_000, Event::Hit { point }),
        ]);
    }
    [busy, idle].map(|events| {
        let thread = Thread { number: 0, is_worker: true, runnable: 1.0, kind: 2, events };
        Arc::new(Recording::new(&Trace { time: 0..10_000_000, threads: vec![thread], ..Trace::default() }, |_| None))
    })
}

/// Without the target's time the busy loop would be idle before each turn. Its wakeup latency of 20 µs is only in the
/// other window.
#[test]
fn windows_share_wakeup_latencies() {
    let point = progress::Point::intern("estimate wakeup_latencies").id();
    let [busy, idle] = loops(point);
    assert_eq!(
        (busy.wakeup_latencies.len(), WindowDefaults::of(std::slice::from_ref(&busy), None).wakeup_latency),
        (0, None)
    );
    assert_eq!(WindowDefaults::of(&[busy.clone(), idle.clone()], None).wakeup_latency, Some(20_000.0));
    let hot = weights(1.0, 0.0, 0.0);
    let questions = [Scenario { weights: &hot, speedup: 1.0 }];
    // Replays only the first window.
    let left = |recordings: &[Arc<Recording>]| {
        let pace = LoadModel::Closed;
        let screen = Screen::replay_all(
            recordings,
            &WindowDefaults::of(recordings, None),
            &questions,
            &[point],
            pace,
            ReplayThreads::default(),
            |windows| windows < 1,
        );
        screen.results[0][0].time.estimate().unwrap().mean
    };
    let (alone, shared) = (left(std::slice::from_ref(&busy)), left(&[busy, idle]));
    assert!((alone - 110.0 / 200.0).abs() < 0.01 && (shared - 130.0 / 200.0).abs() < 0.01, "{alone}, {shared}");
}

/// With few latencies, each may be of a loop that waited for a processor: the result is at most the time of a wakeup.
#[test]
fn few_lags_are_limited_to_the_time_of_a_wakeup() {
    let few = |wakeup_latencies: &[u64]| {
        let empty = Recording::new(&Trace { time: 0..10_000_000, ..Trace::default() }, |_| None);
        WindowDefaults::of(&[Arc::new(Recording { wakeup_latencies: wakeup_latencies.to_vec(), ..empty })], None)
            .wakeup_latency
    };
    assert_eq!(few(&[]), None);
    assert_eq!(few(&[8_000, 10_000, 500_000]), Some(10_000.0));
    assert_eq!(few(&[8_000, 400_000, 500_000]), Some(30_000.0));
    assert_eq!(few(&[400_000; 20]), Some(400_000.0));
}

/// Two hooks of 5 µs in each unit of 100 µs: 90 µs remain, 25 of them the target's. Units of the other thread have one
/// hook.
#[test]
fn hooks_count_toward_no_gain() {
    let [point, other] = ["estimate hooks", "estimate fewer hooks"].map(|name| progress::Point::intern(name).id());
    let recordings: Vec<_> = (0..3)
        .map(|_| {
            let mut trace = Trace { hook: 5_000.0, ..recording(point).packed.unpacked() };
            let events = (1..=100).map(|unit| (unit * 100_000, Event::Hit { point: other })).collect();
            trace.threads.push(Thread { number: 1, is_worker: false, runnable: 1.0, kind: 3, events });
            Arc::new(Recording::new(&trace, |_| None))
        })
        .collect();
    let hot = weights(1.0, 0.0, 0.0);
    let questions = [Scenario { weights: &hot, speedup: 0.5 }];
    let pace = LoadModel::Closed;
    let screen = Screen::replay_all(
        &recordings,
        &WindowDefaults::default(),
        &questions,
        &[point, other],
        pace,
        ReplayThreads::default(),
        |_| true,
    );
    let near = |ratio: &Ratio, want: f64| {
        let mean = ratio.estimate().unwrap().mean;
        assert!((mean - want).abs() < 1e-3, "{mean} instead of {want}");
    };
    near(&screen.results[0][0].time, 1.0 - 12.5 / 90.0);
    near(&screen.fidelity.time, 1.0);
    near(&screen.bare[0].time, 0.9);
    near(&screen.bare[1].time, 0.95);
    assert!(screen.results[0][0].waiting.mean() < 1e-3, "it never waits");
    // If the whole run shows that a hook took twice as long as assumed in the windows, 80 µs remain, 20 of them the
    // target's.
    let known = WindowDefaults { hook: Some(10_000.0), ..WindowDefaults::default() };
    let screen =
        Screen::replay_all(&recordings, &known, &questions, &[point], pace, ReplayThreads::default(), |_| true);
    near(&screen.results[0][0].time, 1.0 - 10.0 / 80.0);
    near(&screen.fidelity.time, 1.0);
    near(&screen.bare[0].time, 0.8);
    // The reported progress is that without hooks.
    let evidence = Evidence {
        recorded: (3, 30_000_000),
        halves: [(15_000_000, vec![150; point as usize + 1]), (15_000_000, vec![150; point as usize + 1])],
        ..Evidence::default()
    };
    let results = progress(
        &progress::point_names(),
        &[point],
        &evidence,
        &[Baseline { latency: Some(100_000.0), ..Baseline::default() }],
        &[[0.9, 0.8]],
    );
    assert!((results[0].baseline_rate - 10_000.0 / 0.9).abs() < 1e-6, "{results:?}");
    assert!((results[0].baseline_ns.unwrap() - 80_000.0).abs() < 1e-6, "{results:?}");
}

/// 250 of 1000 µs of work are hooks. Of a utilisation of 80 %, they are 20 points: clients in a closed loop return
/// sooner without them.
#[test]
fn utilisation_without_hooks_is_lower() {
    let one = Arc::into_inner(recording(0)).expect("the only one");
    let recordings = [Arc::new(Recording { hooks: 250_000.0, busy: 750_000.0, ..one })];
    for (recorded, follows, want) in
        [(0.8, 0.0, 0.6), (0.8, 1.0, 0.75), (1.0, 1.0, 1.0), (1.0, 0.0, 0.75), (0.0, 0.5, 0.0)]
    {
        let bare = bare_utilisation(recorded, &recordings, follows);
        assert!((bare - want).abs() < 1e-9, "{recorded}, {follows}: {bare}");
    }
    assert_eq!(bare_utilisation(1.2, &[], 1.0), 1.0);
}

/// Delta method: an error of 10 % in the target's time gives 10 % in its gain, and errors of different kinds are
/// independent.
#[test]
fn sampling_errors_are_weighted_by_time() {
    let recordings = [recording(0)];
    let error = |one, two, error| sampling_error(&weights(one, two, error), &recordings);
    assert!((error(0.5, 0.0, 0.05) - (0.3_f64.hypot(0.7) * 0.05) / 0.15).abs() < 1e-3);
    assert_eq!(error(0.5, 0.5, 0.0), 0.0);
    assert_eq!(error(0.0, 0.0, 0.1), 0.0, "no time, nothing to be wrong about");
}

#[test]
fn exact_names_have_precedence() {
    let names = ["encode".to_owned(), "encode_frame".into(), "demo::decode".into()];
    for (wanted, name, want) in [
        ("encode", "encode", true),
        ("encode", "encode_frame", false),
        ("code", "encode_frame", true),
        ("decode", "demo::decode", true),
        ("decode", "encode", false),
    ] {
        assert_eq!(is_meant(wanted, name, &names), want, "{wanted} {name}");
    }
}

#[test]
fn targets_with_equal_weights_are_one_question() {
    assert!(is_same(&weights(0.5, 0.1, 0.0), &weights(0.5, 0.1, 0.0)));
    assert!(!is_same(&weights(0.5, 0.1, 0.0), &weights(0.5, 0.2, 0.0)));
    assert!(!is_same(&Weights::default(), &Weights { calls: Some(1), ..Weights::default() }));
}

/// The requested point first, else the one with the most hits, the first one if equal.
#[test]
fn points_are_chosen() {
    let names = ["a", "b", "c", "never"].map(String::from);
    let hits = |hits: &[u64]| {
        let mut recording = Recording::new(&Trace::default(), |_| None);
        recording.hits = hits.to_vec();
        [Arc::new(recording)]
    };
    let wanted = |wanted: &[&str]| wanted.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(points(&names, &hits(&[5, 9, 9]), &[]), [1, 2, 0]);
    assert_eq!(points(&names, &hits(&[5, 9, 9]), &wanted(&["c", "a"])), [2, 0, 1]);
    assert_eq!(points(&names, &hits(&[5]), &wanted(&["never"])), [0]);
    assert!(points(&names, &hits(&[]), &[]).is_empty());
}

#[test]
fn speedups_are_compared_near_a_half() {
    assert_eq!(common_speedup(&[0.05, 0.4, 0.5, 1.0]), 0.5);
    assert_eq!(common_speedup(&[0.25, 1.0]), 0.25);
    assert_eq!(common_speedup(&[]), 0.5);
}

/// An event loop with units of 40 µs, one every 100 µs.
#[test]
fn a_replay_is_compared_with_both_times() {
    let point = progress::Point::intern("estimate fidelity").id();
    let mut events = Vec::new();
    for unit in 0..100 {
        let at = unit * 100_000;
        events.push((at, Event::BlockEnded));
        events.push((at, Event::Arrived { connection: 1, at }));
        events.push((at, Event::VisitBegan { visit: unit + 1 }));
        events.push((at + 40_000, Event::Written { connection: 1 }));
        events.push((at + 40_000, Event::VisitEnded { visit: unit + 1, point }));
        events.push((at + 40_000, Event::BlockBegan));
    }
    let thread = Thread { number: 0, is_worker: true, runnable: 1.0, kind: 1, events };
    let recording =
        Arc::new(Recording::new(&Trace { time: 0..10_000_000, threads: vec![thread], ..Trace::default() }, |_| None));
    let (pace, crew) = (LoadModel::Open, ReplayThreads::default());
    let screen = Screen::replay_all(
        &[recording.clone(), recording],
        &WindowDefaults::default(),
        &[],
        &[point],
        pace,
        crew,
        |_| true,
    );
    let ScreenResult { time, latency, .. } = screen.fidelity;
    assert_eq!((time.count(), latency.count()), (2, 2));
    assert!(misfit(&time) < 1e-3 && misfit(&latency) < 1e-3, "{time:?} {latency:?}");
    assert_eq!(screen.fidelity.counted(LoadKind::Limited), &latency);
    assert_eq!(screen.fidelity.counted(LoadKind::Closed), &time);
    assert_eq!(
        ScreenResult { time, ..ScreenResult::default() }.counted(LoadKind::Limited),
        &time,
        "where it is not measured"
    );
}

/// Any error of a replay counts, however small.
#[test]
fn a_misfit_counts_from_the_first_part_on() {
    let of = |ratio: f64| {
        let mut fidelity = Ratio::default();
        fidelity.push(1.0, ratio);
        misfit(&fidelity)
    };
    for (ratio, want) in [(1.0, 0.0), (1.02, 0.0198), (0.9, 0.10536)] {
        assert!((of(ratio) - want).abs() < 1e-4, "{ratio}");
    }
    assert_eq!(misfit(&Ratio::default()), 0.0);
}

/// The effect at one point is no evidence for another: among many points, each effect must be significant by itself.
#[test]
fn significance_is_decided_per_point() {
    let target = Target {
        name: "a".into(),
        kind: crate::target::TargetKind::Function,
        share: 0.3,
        samples: 100,
        weights: Weights::default(),
        folded: None,
    };
    // Nine windows that vary by 1 %.
    let curve = |gain: f64| {
        let of = |_| {
            let mut answer = ScreenResult::default();
            (0..9).for_each(|window| answer.time.push(1.0, 1.0 - gain + 0.009 * f64::from(window % 3 - 1)));
            answer
        };
        let sure = CurveErrors { samples: 0.0, misfit: 0.0, hooks: 0.0, follows: (1.0, 0.0) };
        Curve::new(&[0.5], 0.3, &[sure; 2], of)
    };
    let case = |gains: [f64; 2]| TargetResults { target: &target, curves: gains.map(curve).into(), gain: gains[0] };
    let is_effect = |curve: &Curve| curve.gains()[0].low > 0.0;
    let mut cases = [case([0.2, 0.008]), case([0.0, 0.0]), case([0.0, 0.0]), case([0.0, 0.2])];
    assert!(is_effect(&cases[0].curves[1]), "alone it would be believed");
    widen_insignificant(&mut cases, 0.5, LoadKind::Closed);
    let shown: Vec<Vec<bool>> = cases.iter().map(|case| case.curves.iter().map(is_effect).collect()).collect();
    assert_eq!(shown, [[true, false], [false, false], [false, false], [false, true]]);
}

/// The last look is limited by wall time, others by processor time. At least two windows are replayed, unless the
/// result is superfluous.
#[test]
fn an_estimate_ends_at_its_time_limit_or_when_superfluous() {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let time_limit = |is_final, worked: u64| {
        let limits = AnalysisLimits { time: Duration::from_millis(500), is_final, crew: ReplayThreads::default() };
        let began = Instant::now() - Duration::from_secs(1);
        TimeLimit { began, worked: AtomicU64::new(worked * 1_000_000), limits, is_cancelled: is_cancelled.clone() }
    };
    assert!(!time_limit(true, 0).is_within(1.0, 2));
    assert!(time_limit(true, 0).is_within(1.0, 1));
    // Processor time of this thread before the analysis does not count.
    own::charge_cpu_time();
    assert!(time_limit(false, 300).is_within(1.0, 2));
    assert!(!time_limit(false, 300).is_within(0.5, 2));
    assert!(!time_limit(false, 500).is_within(1.0, 2));
    is_cancelled.store(true, Relaxed);
    assert!(!time_limit(false, 0).is_within(1.0, 0));
}

/// Names one function, which takes all work of kind 1.
struct OneFunction;

impl TargetSource for OneFunction {
    fn recorded(&mut self, _: &[u32], _: &[u32]) {}

    fn samples(&self) -> u64 {
        1000
    }

    fn shortcoming(&self) -> Option<&'static str> {
        None
    }

    fn targets(&mut self, _: &[String], _: usize) -> Vec<Target> {
        let (name, kind) = ("hot".to_owned(), crate::target::TargetKind::Function);
        vec![Target { name, kind, share: 0.3, samples: 300, weights: weights(1.0, 0.0, 0.0), folded: None }]
    }

    fn names(&mut self) -> Vec<String> {
        Vec::new()
    }

    fn stacks(&mut self) -> Vec<Stack> {
        Vec::new()
    }
}

/// With an open-loop load the latency counts, but a point that has only hits has none: then the time per unit decides
/// which targets get a whole curve.
#[test]
fn targets_are_ordered_by_the_gain_that_counts() {
    let point = progress::Point::intern("estimate order").id();
    let evidence = Evidence { recordings: (0..9).map(|_| recording(point)).collect(), ..Evidence::default() };
    // The last target has the largest gain, and the look replays whole curves of all but one.
    let share = |at: usize| 0.1 * (at + 1) as f64;
    let target = |at: usize| Target {
        name: at.to_string(),
        kind: crate::target::TargetKind::Function,
        share: share(at),
        samples: 100,
        weights: weights(share(at), 0.0, 0.0),
        folded: None,
    };
    let targets: Vec<Target> = (0..=PRECISE_TARGETS).map(target).collect();
    let request = ProfileRequest {
        program: "test".into(),
        speech: Speech::default(),
        began: 0,
        targets: Vec::new(),
        progress: Vec::new(),
        speedups: vec![0.25, 0.5, 1.0],
        modes: Modes::Both,
        budget: 0.03,
    };
    let limits = AnalysisLimits { time: Duration::from_secs(600), is_final: false, crew: ReplayThreads::default() };
    let time_limit =
        TimeLimit { began: Instant::now(), worked: AtomicU64::new(0), limits, is_cancelled: Arc::default() };
    let analyst = Analyst::new(request, OneFunction);
    for kind in [LoadKind::Closed, LoadKind::Limited] {
        let verdict = LoadVerdict { kind, elasticity: None, half_width: 0.0, blocks: 0, needs_longer_probes: false };
        let screened = analyst.screen(&evidence, &WindowDefaults::default(), &targets, &[point], &verdict, &time_limit);
        let speedups: Vec<usize> = screened.answers.iter().map(|(speedups, _)| speedups.len()).collect();
        assert_eq!(speedups, [1, 3, 3, 3, 3, 3], "{kind:?}");
    }
}

/// Pauses found a gain of 40 % where the replay, which reproduces the recorded time, finds 15 %.
#[test]
fn a_disagreement_names_the_result_that_the_curve_shows() {
    let name = "estimate disagreement";
    let point = progress::Point::intern(name).id();
    let blocks = (0..6).map(|number| {
        let time = 600.0 + f64::from(number % 3);
        let sums = [(10.0, 1000.0), (10.0, time)].map(|(units, time)| Progressed { units, time });
        ConfirmBlock { sums: vec![sums; point as usize + 1], ..ConfirmBlock::new("hot", 0.5, 0.0) }
    });
    let evidence = Evidence {
        elapsed: 1_000_000_000,
        recordings: (0..9).map(|_| recording(point)).collect(),
        recorded: (9, 90_000_000),
        blocks: blocks.collect(),
        ..Evidence::default()
    };
    for (modes, shown, mode, gain) in [
        (Modes::Both, "the result of the replay", GainSource::Screened, 0.15),
        (Modes::Confirm, "the result of pauses", GainSource::Confirmed, 0.4),
    ] {
        let request = ProfileRequest {
            program: "test".into(),
            speech: Speech::default(),
            began: 0,
            targets: Vec::new(),
            progress: vec![name.into()],
            speedups: vec![0.5],
            modes,
            budget: 0.03,
        };
        let limits = AnalysisLimits { time: Duration::from_secs(10), is_final: true, crew: ReplayThreads::default() };
        let report = Analyst::new(request, OneFunction).analyse(&evidence, limits).report;
        let found = report.reasons.iter().find(|reason| reason.code == crate::report::ReasonCode::Disagreement);
        assert!(found.is_some_and(|reason| reason.text.contains(shown)), "{modes:?}: {:?}", report.reasons);
        let target = &report.targets[0];
        assert_eq!(target.mode, mode, "{modes:?}");
        assert!((target.curve[0].gain - gain).abs() < 0.01, "{modes:?}: {:?}", target.curve);
    }
}

/// Units that follow from unreported waits end at their recorded times in a replay. That is no proof that the target is
/// off the critical path.
#[test]
fn a_replay_of_unexplained_units_bounds_no_gain() {
    let name = "estimate unexplained";
    let point = progress::Point::intern(name).id();
    let mut events = Vec::new();
    for unit in 0..100 {
        let at = unit * 100_000;
        events.extend([
            (at, Event::BlockEnded),
            (at, Event::Arrived { connection: 1, at }),
            (at, Event::Kind(1)),
            (at + 40_000, Event::Kind(2)),
            (at + 40_000, Event::BlockBegan),
            (at + 80_000, Event::BlockEnded),
            (at + 90_000, Event::Written { connection: 1 }),
            (at + 90_000, Event::Hit { point }),
            (at + 90_000, Event::BlockBegan),
        ]);
    }
    let thread = Thread { number: 0, is_worker: true, runnable: 1.0, kind: 2, events };
    let trace = Trace { time: 0..10_000_000, threads: vec![thread], ..Trace::default() };
    let window = || Arc::new(Recording { unregistered: 1_000_000, ..Recording::new(&trace, |_| None) });
    let evidence = Evidence {
        elapsed: 1_000_000_000,
        recordings: (0..9).map(|_| window()).collect(),
        recorded: (9, 90_000_000),
        ..Evidence::default()
    };
    let request = ProfileRequest {
        program: "test".into(),
        speech: Speech::default(),
        began: 0,
        targets: Vec::new(),
        progress: vec![name.into()],
        speedups: vec![0.5, 1.0],
        modes: Modes::Both,
        budget: 0.03,
    };
    let limits = AnalysisLimits { time: Duration::from_secs(10), is_final: true, crew: ReplayThreads::default() };
    let report = Analyst::new(request, OneFunction).analyse(&evidence, limits).report;
    let reason = |code| report.reasons.iter().find(|reason| reason.code == code).map(|reason| reason.text.as_str());
    let unexplained = reason(crate::report::ReasonCode::Unexplained);
    assert!(unexplained.is_some_and(|text| text.starts_with("100 % of the units")), "{:?}", report.reasons);
    // 1 ms of each window, besides the 5 ms of its thread.
    let unregistered = reason(crate::report::ReasonCode::Unregistered);
    assert!(unregistered.is_some_and(|text| text.contains("use 17 %")), "{:?}", report.reasons);
    let curve = &report.targets[0].curve;
    assert!(curve.iter().all(|point| point.gain.abs() < 0.01 && point.high == GAIN_ENDS.1), "{curve:?}");
    let words = report.words();
    assert!(words.iter().all(|sentence| !sentence.contains("off the critical path")), "{words:?}");
}

/// Windows of an event loop that only passes calls on: 600 units a second take 0.7 ms, and `rate` a second take `time`
/// nanoseconds, with the upstream 8.
fn windows_with_slow_units(point: u32, lengths: &[u64], rate: f64, time: u64) -> Vec<Arc<Recording>> {
    let mut random = SeededRandom::new(7);
    let mut window = |&length: &u64| {
        // A window begins at any time; units from before it end in it.
        let mut units = Vec::new();
        for (rate, callee, took) in [(600.0, 7, 700_000), (rate, 8, time)] {
            let every = 1e9 / rate;
            let mut began = -(took as f64) - every * random.fraction();
            while began < length as f64 {
                units.push((began as i64, began as i64 + took as i64, callee));
                began += every * (0.5 + random.fraction());
            }
        }
        let mut moments = Vec::new();
        for (unit, &(began, ended, callee)) in (1_u64..).zip(&units) {
            moments.push((began, true, unit, callee, began >= 0));
            moments.push((ended, false, unit, callee, began >= 0));
        }
        moments.retain(|&(at, ..)| (0..length as i64 - 10_000).contains(&at));
        moments.sort_unstable();
        let (mut events, mut free) = (Vec::new(), 0);
        for (at, begins, unit, callee, is_whole) in moments {
            let now = free.max(at as u64);
            free = now + 5_000;
            events.push((now, Event::BlockEnded));
            if begins {
                events.push((now, Event::Arrived { connection: unit, at: now }));
                events.push((now, Event::VisitBegan { visit: unit }));
            }
            if begins || !is_whole {
                events.push((now, Event::Called { call: unit, callee, is_first: true }));
            }
            if !begins {
                events.push((now, Event::Answered { call: unit, at: now }));
                events.push((now, Event::Written { connection: unit }));
                events.push((now, Event::VisitEnded { visit: if is_whole { unit } else { 0 }, point }));
            }
            events.push((now + 5_000, Event::BlockBegan));
        }
        let thread = Thread { number: 0, is_worker: true, runnable: 1.0, kind: 2, events };
        Arc::new(Recording::new(&Trace { time: 0..length, threads: vec![thread], ..Trace::default() }, |_| None))
    };
    lengths.iter().map(&mut window).collect()
}

/// A window of 100 ms contains a tenth of the units of 90 ms whole, and nearly all of those of 0.7 ms: without weights
/// the mean would be 0.8 ms, and half of the long calls would be 5 % of it.
#[test]
fn units_cut_by_their_windows_have_no_effect_on_the_mean() {
    let point = progress::Point::intern("estimate long units").id();
    let mean = |rate: f64, time: f64| (600.0 * 0.7e6 + rate * time) / (600.0 + rate);
    let mixed: Vec<u64> = (0..16).map(|window| if window % 2 == 0 { 100_000_000 } else { 1_000_000_000 }).collect();
    for (lengths, rate, time) in [
        (vec![100_000_000; 16], 60.0, 60_000_000),
        (mixed, 6.0, 90_000_000),
        (vec![1_000_000_000; 16], 20.0, 600_000_000),
    ] {
        let recordings = windows_with_slow_units(point, &lengths, rate, time);
        let defaults = WindowDefaults::of(&recordings, None);
        let [Baseline { latency: Some(latency), cuts, .. }] = baseline::baseline(&recordings, &defaults, &[point])[..]
        else {
            panic!("no time");
        };
        let want = mean(rate, time as f64);
        assert!((latency / want - 1.0).abs() < 0.1, "{latency} instead of {want}");
        assert_eq!(cuts.unseen(), 0.0, "{cuts:?}");
        let slow = Weights { calls: Some(8), ..Weights::default() };
        let questions = [Scenario { weights: &slow, speedup: 0.5 }];
        let all = |_| true;
        let crew = ReplayThreads::default();
        let screen = Screen::replay_all(&recordings, &defaults, &questions, &[point], LoadModel::Open, crew, all);
        let left = screen.results[0][0].latency.estimate().unwrap().mean;
        let want = 1.0 - rate * time as f64 / 2.0 / ((600.0 + rate) * want);
        assert!((left - want).abs() < 0.03, "{left} instead of {want}");
        // The plan has to notice the long units, to record longer windows.
        let longest = recordings.iter().map(|one| one.unit_time).fold(0.0, f64::max);
        assert!(longest > 0.3 * time as f64, "{longest}");
    }
}

/// Units longer than all windows begin or end in them, but never do both: more are cut than the others let expect.
#[test]
fn units_longer_than_the_windows_are_noticed() {
    let point = progress::Point::intern("estimate too long units").id();
    let recordings = windows_with_slow_units(point, &[200_000_000; 16], 20.0, 1_500_000_000);
    let defaults = WindowDefaults::of(&recordings, None);
    let [Baseline { latency: Some(latency), cuts, .. }] = baseline::baseline(&recordings, &defaults, &[point])[..]
    else {
        panic!("no time");
    };
    assert!((latency / 700e3 - 1.0).abs() < 0.05, "{latency}");
    // 200 ms of each are within the windows: 4 s a second, and 0.42 s of the short ones.
    assert!((cuts.unseen() - 4.0 / 4.42).abs() < 0.05, "{cuts:?}");
    let unit_time = recordings.iter().map(|one| one.unit_time).fold(0.0, f64::max);
    assert!(unit_time > 0.4 * 200e6, "{unit_time}");
    // Without any whole unit there is no time, rather than another one.
    let evidence = Evidence { recorded: (1, 1_000_000_000), ..Evidence::default() };
    let report = progress(&progress::point_names(), &[point], &evidence, &[Baseline::default()], &[[1.0, 1.0]]);
    assert_eq!(report[0].baseline_ns, None);
}

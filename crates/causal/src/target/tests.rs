use progress::{Account, Span};

use super::*;
use crate::kinds;
use crate::sample::Sample;
use crate::symbols::Symbolizer;
use crate::symbols::here::here;

#[inline(never)]
fn outer(hot: bool) -> [usize; 2] {
    let inner = if hot { hot_one() } else { cold_one() };
    [inner, std::hint::black_box(here())]
}

#[inline(never)]
fn hot_one() -> usize {
    std::hint::black_box(here())
}

/// Differs from `hot_one`: identical functions would be merged by the compiler.
#[inline(never)]
fn cold_one() -> usize {
    let address = here();
    std::hint::black_box(address ^ 1) ^ 1
}

/// The time of a sample, nanoseconds.
const PERIOD: u64 = 4_000_000;

fn add(profile: &mut SampleProfile, kind: u32, frames: &[usize], times: u32) {
    for _ in 0..times {
        profile.add(&Sample { account: 0, kind, at: 1, frames });
    }
}

#[track_caller]
fn find<'a>(targets: &'a [Target], end: &str, kind: TargetKind) -> &'a Target {
    let found = targets.iter().find(|target| target.kind == kind && target.name.ends_with(end));
    found.unwrap_or_else(|| panic!("no {kind:?} {end} in {:?}", names(targets)))
}

fn names(targets: &[Target]) -> Vec<(TargetKind, &str)> {
    targets.iter().map(|target| (target.kind, target.name.as_str())).collect()
}

/// A worker that is in a span for three quarters of its time, where it calls `hot_one`; outside it calls `cold_one`.
fn profile() -> (SampleProfile, u32, u32) {
    let worker = kinds::of_thread(&Account::new(0, "target-test-1"));
    let inside = kinds::in_span(worker, Span::intern("target-test span"));
    let ([hot, from_hot], [cold, from_cold]) = (outer(true), outer(false));
    let mut profile = SampleProfile::new(PERIOD);
    // The first address is the thread's current one; the others are return addresses.
    add(&mut profile, inside, &[hot - 1, from_hot], 60);
    add(&mut profile, inside, &[from_hot - 1], 15);
    add(&mut profile, worker, &[cold - 1, from_cold], 25);
    (profile, worker, inside)
}

#[test]
fn functions_have_a_share_and_a_part_of_each_kind() {
    let (mut profile, worker, inside) = profile();
    assert_eq!(profile.samples(), 100);
    let targets = profile.targets(&[], 40);
    let hot = find(&targets, "target::tests::hot_one", TargetKind::Function);
    assert_eq!((hot.share, hot.samples), (0.6, 60));
    assert!((hot.weights.part(inside) - 0.8).abs() < 1e-9 && hot.weights.part(worker) == 0.0, "{hot:?}");
    let part = hot.weights.parts[inside as usize];
    assert!((part.error - (0.8_f64 * 0.2 / 75.0).sqrt()).abs() < 0.002, "{part:?}");
    let cold = find(&targets, "target::tests::cold_one", TargetKind::Function);
    assert_eq!((cold.share, cold.weights.part(worker), cold.weights.part(inside)), (0.25, 1.0, 0.0));
    let span = find(&targets, "target-test span", TargetKind::Span);
    assert_eq!((span.share, span.samples, span.weights.part(inside), span.weights.part(worker)), (0.75, 75, 1.0, 0.0));
    assert_eq!(span.weights.parts[inside as usize].error, 0.0);
    // It is in all stacks of its thread, as the only such target.
    assert_eq!(find(&targets, "target::tests::outer", TargetKind::Function).share, 1.0);
}

#[test]
fn functions_with_equal_samples_are_one_target() {
    let (mut profile, ..) = profile();
    let targets = profile.targets(&[], 40);
    let of_hot = targets.iter().filter(|target| target.samples == 60).count();
    assert_eq!(of_hot, 1, "{:?}", names(&targets));
    let requested = profile.targets(&["crates/causal/src/target/tests.rs:".to_owned()], 40);
    let lines = requested.iter().filter(|target| target.kind == TargetKind::Line && target.samples == 60).count();
    assert!(lines >= 1, "{:?}", names(&requested));
    assert!(profile.names().iter().any(|name| name.ends_with("target::tests::hot_one")));
    let unknown = profile.targets(&["no such name".to_owned()], 40);
    assert_eq!(names(&unknown), names(&targets));
}

/// The stage contains every handler of a server, so its name does not show which code to change. A span of the
/// program's author does.
#[test]
fn a_hot_function_has_precedence_over_a_stage() {
    let worker = kinds::of_thread(&Account::new(0, "target-stage-1"));
    let [hot, from_hot] = outer(true);
    for (span, want) in [
        (progress::stage::ROUTE, ["target::tests::hot_one"]),
        (Span::intern("target-test handler"), ["target-test handler"]),
        (*Span::lease("route target-test"), ["target::tests::hot_one"]),
    ] {
        let inside = kinds::in_span(worker, span);
        let mut profile = SampleProfile::new(PERIOD);
        add(&mut profile, inside, &[hot - 1, from_hot], 97);
        add(&mut profile, inside, &[from_hot - 1], 3);
        let targets = profile.targets(&[], 40);
        let names: Vec<&str> = targets.iter().map(|target| target.name.trim_start_matches("causal::")).collect();
        assert_eq!(names, want);
    }
}

#[test]
fn a_callee_with_two_callers_has_two_paths() {
    let worker = kinds::of_thread(&Account::new(0, "target-paths-1"));
    let [hot, from_hot] = outer(true);
    let cold = outer(false)[0];
    let mut profile = SampleProfile::new(PERIOD);
    add(&mut profile, worker, &[hot - 1, from_hot], 30);
    add(&mut profile, worker, &[hot - 1, cold], 50);
    add(&mut profile, worker, &[from_hot - 1], 20);
    let targets = profile.targets(&[], 40);
    let path = |caller: &str| {
        let is_it = |target: &&Target| target.kind == TargetKind::Path && target.name.contains(&format!("{caller} > "));
        targets.iter().find(is_it).unwrap_or_else(|| panic!("{caller}: {:?}", names(&targets)))
    };
    assert_eq!(path("::outer").share, 0.3);
    assert!(path("::outer").name.ends_with("::hot_one"));
    // The second path has the samples of its caller, and is a duplicate.
    assert_eq!(find(&targets, "::cold_one", TargetKind::Function).share, 0.5);
    assert_eq!(find(&targets, "::hot_one", TargetKind::Function).share, 0.8);
}

#[test]
fn recursion_counts_once() {
    let worker = kinds::of_thread(&Account::new(0, "target-recursion-1"));
    let [hot, _] = outer(true);
    let mut profile = SampleProfile::new(PERIOD);
    add(&mut profile, worker, &[hot - 1, hot, hot, hot], 10);
    let targets = profile.targets(&[], 40);
    assert_eq!(find(&targets, "::hot_one", TargetKind::Function).share, 1.0);
    assert_eq!(find(&targets, "::hot_one", TargetKind::Function).samples, 10);
}

/// The kinds of an earlier profile, such as those of a route that a reload has removed, are no targets of a later one.
#[test]
fn spans_of_earlier_profiles_are_no_targets() {
    let (mut profile, worker, _) = profile();
    let earlier = kinds::in_span(worker, Span::intern("target-test earlier"));
    let is_target = |profile: &mut SampleProfile| {
        let is_it = |name: &str| name == "target-test earlier";
        let is_target = profile.targets(&[], 40).iter().any(|target| is_it(&target.name));
        assert_eq!(profile.names().iter().any(|name| is_it(name)), is_target);
        is_target
    };
    assert!(!is_target(&mut profile));
    // A short span may be in recorded windows and in no sample.
    profile.recorded(&[earlier], &[]);
    assert!(is_target(&mut profile));
}

#[test]
fn upstreams_are_targets_without_samples() {
    let mut profile = SampleProfile::new(PERIOD);
    let span = Span::intern("target-test upstream");
    profile.recorded(&[], &[span.id(), span.id()]);
    let targets = profile.targets(&[], 40);
    let upstream = find(&targets, "target-test upstream", TargetKind::Upstream);
    assert_eq!((upstream.weights.calls, upstream.share), (Some(span.id()), 0.0));
    assert_eq!(targets.iter().filter(|target| target.kind == TargetKind::Upstream).count(), 1);
    assert!(profile.stacks().is_empty() && profile.samples() == 0);
}

#[test]
fn stacks_are_merged_by_name_and_begin_with_the_thread() {
    let (mut profile, ..) = profile();
    let stacks = profile.stacks();
    assert_eq!(stacks.iter().map(|stack| stack.count).collect::<Vec<_>>(), [60, 25, 15]);
    assert!(stacks.iter().all(|stack| stack.nanoseconds == stack.count * PERIOD), "{stacks:?}");
    assert_eq!(stacks[0].frames[0], "target-test");
    assert!(stacks[0].frames[1].ends_with("::outer") && stacks[0].frames[2].ends_with("::hot_one"), "{stacks:?}");
}

#[test]
fn stacks_beyond_the_bound_are_counted_at_known_frames() {
    let worker = kinds::of_thread(&Account::new(0, "target-bound-1"));
    let [hot, from_hot] = outer(true);
    let mut profile = SampleProfile::bounded(3, PERIOD);
    add(&mut profile, worker, &[hot - 1, from_hot], 10);
    for at in 0..1000 {
        add(&mut profile, worker, &[at, from_hot], 1);
    }
    let stacks = profile.stacks();
    assert_eq!(stacks.iter().map(|stack| stack.count).collect::<Vec<_>>(), [1000, 10]);
    assert!(stacks[0].frames.last().unwrap().ends_with("::outer"));
    assert_eq!(profile.samples(), 1010);
}

/// With real samples the function that does the work is found, within wide bounds.
#[test]
fn the_function_that_does_the_work_is_found() {
    use std::sync::atomic::{AtomicBool, Ordering};

    #[inline(never)]
    fn grind(rounds: u64) -> u64 {
        (0..rounds).fold(1, |sum: u64, at| std::hint::black_box(sum.rotate_left(5) ^ at))
    }

    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    let _alone = crate::sample::alone();
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends(&end);
        scope.spawn(|| {
            progress::register_thread();
            while !end.load(Ordering::Relaxed) {
                grind(10_000);
            }
        });
        let mut sampler = crate::sample::Sampler::start(crate::sample::Rate::Cpu).unwrap();
        let mut profile = SampleProfile::new(PERIOD);
        let began = std::time::Instant::now();
        while profile.samples() < 100 {
            assert!(began.elapsed().as_secs() < 20);
            std::thread::sleep(std::time::Duration::from_millis(10));
            sampler.refresh();
            sampler.drain(|sample| profile.add(sample));
        }
        let targets = profile.targets(&["grind".to_owned()], 40);
        let grind = targets.iter().find(|target| target.name.ends_with("::grind")).expect("it is there");
        assert!(grind.share > 0.5, "{:?}", names(&targets));
        let mut symbols = Symbolizer::new();
        symbols.places(outer(true)[0]);
        assert_eq!(profile.symbols(), symbols.symbols());
    });
}

//! What is missing or less certain than it looks, in words.

use crate::estimate::Evidence;
use crate::kinds::{self, KINDS_MAX};
use crate::load::Verdict;
use crate::profiler::Modes;
use crate::report::{CurvePoint, LoadKind, Reason, ReasonCode, Report};
use crate::sample::{Lost, THREADS_MAX};
use crate::statistics::Ratio;
use crate::target::Target;

/// What there is to judge by besides the report and the evidence.
pub(super) struct Seen<'a> {
    pub(super) targets: &'a [Target],
    pub(super) samples: u64,
    pub(super) shortcoming: Option<&'static str>,
    pub(super) verdict: &'a Verdict,
    pub(super) has_load: bool,
    /// Of what counts: the time per unit, or the time from its begin to its end.
    pub(super) fidelity: Ratio,
    /// How many progress points the program has.
    pub(super) points: usize,
    pub(super) common: f64,
    pub(super) modes: Modes,
    pub(super) is_final: bool,
}

/// Samples and units below which nothing is said with confidence.
const SAMPLES_FEW: u64 = 20;
const UNITS_FEW: u64 = 30;
const WINDOWS_FEW: usize = 4;
/// How far a replay without any change is usually off: that has its place in the intervals, and is not worth a word.
const USUAL: f64 = 0.03;
/// Half an interval that is wide: two percentage points, or a fifth of the gain.
const WIDE: (f64, f64) = (0.02, 0.2);
/// A rate that differs by this part between the halves of a run.
const CHANGED: f64 = 0.25;
/// Samples that are lost by chance: a part of all.
const LOST: f64 = 0.01;
/// Targets at the top whose intervals are looked at.
const TOP: usize = 5;
/// Names that are told to whoever asked for one that is not there.
const ALIKE_MAX: usize = 3;

fn reason(target: &str, code: ReasonCode, text: impl Into<String>) -> Reason {
    Reason { target: target.to_owned(), code, text: text.into() }
}

/// Targets that were asked for and not seen, with what is called alike.
pub(super) fn unknown(wanted: &[String], found: &[Target], seen: impl FnOnce() -> Vec<String>) -> Vec<Reason> {
    let is_unknown = |wanted: &&String| !found.iter().any(|target| target.name.contains(wanted.as_str()));
    if !wanted.iter().any(|wanted| is_unknown(&wanted)) {
        return Vec::new();
    }
    let seen = seen();
    let say = |wanted: &String| {
        let names = alike(wanted, &seen);
        let text = match (names.is_empty(), found.is_empty()) {
            (false, _) => {
                format!("nothing whose name has `{wanted}` in it was seen at work; there are {}", names.join(", "))
            }
            (true, false) => {
                let names: Vec<String> =
                    found.iter().take(ALIKE_MAX).map(|target| format!("`{}`", target.name)).collect();
                format!(
                    "nothing whose name has `{wanted}` in it was seen at work; what was seen most is {}",
                    names.join(", ")
                )
            }
            (true, true) => format!("nothing whose name has `{wanted}` in it was seen at work, nor anything else"),
        };
        reason(wanted, ReasonCode::UnknownTarget, text)
    };
    wanted.iter().filter(is_unknown).map(say).collect()
}

/// Progress points that were asked for and are not there, with what is called alike, or that were not reached. Where none was
/// reached that is said once for all.
pub(super) fn unknown_progress(wanted: &[String], names: &[String], is_reached: impl Fn(usize) -> bool) -> Vec<Reason> {
    let any = (0..names.len()).any(&is_reached);
    let say = |wanted: &String| {
        let text = match names.iter().position(|name| name == wanted) {
            Some(point) if is_reached(point) || !any => return None,
            Some(_) => format!("the progress point `{wanted}` was not reached while windows were recorded"),
            None if names.is_empty() => return None,
            None => {
                let mut alike = alike(wanted, names);
                if alike.is_empty() {
                    alike = names.iter().take(ALIKE_MAX).map(|name| format!("`{name}`")).collect();
                }
                format!("no progress point is called `{wanted}`; there are {}", alike.join(", "))
            }
        };
        Some(reason("", ReasonCode::UnknownProgress, text))
    };
    wanted.iter().filter_map(say).collect()
}

/// The names that are most like another one, quoted.
fn alike(wanted: &str, names: &[String]) -> Vec<String> {
    let mut alike: Vec<(f64, &str)> = names.iter().map(|name| (likeness(wanted, name), name.as_str())).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    alike.retain(|(likeness, _)| *likeness > 0.2);
    alike.iter().take(ALIKE_MAX).map(|(_, name)| format!("`{name}`")).collect()
}

/// Which part of the pairs of letters that are next to each other in the one name are so in the other (Dice's coefficient of the
/// shorter name).
fn likeness(a: &str, b: &str) -> f64 {
    let pairs =
        |name: &str| -> Vec<[u8; 2]> { name.to_ascii_lowercase().as_bytes().array_windows().copied().collect() };
    let (a, b) = (pairs(a), pairs(b));
    let common = a.iter().filter(|pair| b.contains(pair)).count();
    common as f64 / a.len().max(1) as f64
}

/// The factor that is to be applied to what pauses found, from [`super::confirm::phase`], with the standard error of its logarithm; where
/// windows may well be like the run there is nothing to be wrong about.
pub(super) fn phase(name: &str, phase: Option<(f64, f64)>, reasons: &mut Vec<Reason>) -> (f64, f64) {
    let Some((factor, error)) = phase else { return (1.0, 0.0) };
    let off = factor.ln().abs();
    if off < 0.05 || off < 3.0 * error {
        return (1.0, 0.0);
    }
    if off > 0.2 {
        let text = format!(
            "its windows with pauses had {:.0} % of the share that it has in the whole run; the gain is corrected for that",
            100.0 / factor
        );
        reasons.push(reason(name, ReasonCode::Changed, text));
    }
    (factor, error)
}

/// Whether both ways gave an answer and they differ.
pub(super) fn disagreement(
    name: &str,
    is_faithful: bool,
    a: &[CurvePoint],
    b: &[CurvePoint],
    reasons: &mut Vec<Reason>,
) -> bool {
    let apart = b.iter().find_map(|b| {
        let a = a.iter().find(|a| a.speedup == b.speedup)?;
        (a.high < b.low || b.high < a.low).then_some((a, b))
    });
    if let Some((a, b)) = apart {
        let shown = if is_faithful { "the replay" } else { "pauses" };
        let text = format!(
            "at a speed-up of {:.0} % the replay says {:.1} % ({:.1} to {:.1}), pauses {:.1} % ({:.1} to {:.1}); what is shown is what {shown} found",
            b.speedup * 100.0,
            a.gain * 100.0,
            a.low * 100.0,
            a.high * 100.0,
            b.gain * 100.0,
            b.low * 100.0,
            b.high * 100.0
        );
        reasons.push(reason(name, ReasonCode::Disagreement, text));
    }
    apart.is_some()
}

/// All other reasons.
pub(super) fn add(report: &mut Report, evidence: &Evidence, seen: &Seen<'_>) {
    let mut reasons = Vec::new();
    let mut say = |target: &str, code, text: String| reasons.push(reason(target, code, text));
    let units = report.progress.first().map_or(0, |progress| progress.count);
    if seen.samples == 0 {
        say(
            "",
            ReasonCode::NoSamples,
            "no thread that the profiler knows used the processor: it saw no function at work".into(),
        );
    } else if let Some(shortcoming) = seen.shortcoming {
        say("", ReasonCode::NoSymbols, shortcoming.into());
    }
    if units == 0 {
        say(
            "",
            ReasonCode::NoProgress,
            if seen.points == 0 {
                "the program has no progress point, or did not come to one: say `progress!(\"…\")` where a unit of what it is there for is done"
                    .into()
            } else {
                "no progress point was reached while windows were recorded; is there any load?".into()
            },
        );
    } else if units < UNITS_FEW {
        say("", ReasonCode::TooFew, format!("only {units} units of progress were seen; profile for longer"));
    } else if evidence.recordings.len() < WINDOWS_FEW {
        let count = evidence.recordings.len();
        say("", ReasonCode::TooFew, format!("only {count} windows were recorded; profile for longer"));
    }
    load(&mut say, seen, units);
    if let Some(ratio) = seen.fidelity.estimate()
        && super::misfit(&seen.fidelity) > USUAL
    {
        let percent = ratio.mean * 100.0;
        say(
            "",
            ReasonCode::Fidelity,
            format!(
                "replayed without any change a unit takes {percent:.1} % of the time that it took; intervals are wider for it"
            ),
        );
    }
    for name in evidence.unaffordable.iter().filter(|name| !is_confirmed(name, seen.targets, evidence)) {
        say(
            name,
            ReasonCode::BudgetSpent,
            "what was left of the budget is not enough for even the shortest windows with pauses for it".into(),
        );
    }
    if evidence.aborted * 4 > evidence.paused && evidence.aborted > 1 {
        let (aborted, paused) = (evidence.aborted, evidence.paused);
        say(
            "",
            ReasonCode::BudgetSpent,
            format!("{aborted} of {paused} windows with pauses ended early, for the budget"),
        );
    }
    if let Some(first) = report.progress.first() {
        changed(&mut say, evidence, &first.name);
    }
    if kinds::kinds().len() >= KINDS_MAX {
        say("", ReasonCode::TooMany, format!("more than {KINDS_MAX} kinds of work: what came later is not told apart"));
    }
    let shown = report.progress.len();
    if shown == super::POINTS_MAX && seen.points > shown {
        let points = seen.points;
        say("", ReasonCode::TooMany, format!("of {points} progress points the {shown} that were hit most have curves"));
    }
    lost(&mut say, &evidence.lost, evidence.kinds.values().sum());
    if evidence.is_stopped {
        say("", ReasonCode::Stopped, format!("it was stopped after {:.1} s", evidence.elapsed as f64 / 1e9));
    }
    report.reasons.extend(reasons);
    if seen.is_final && units > 0 {
        targets(report, seen);
    }
}

/// Whether the target, or one of the same time under another name, had windows with pauses.
fn is_confirmed(name: &str, targets: &[Target], evidence: &Evidence) -> bool {
    let had = |name: &str| evidence.blocks.iter().any(|block| block.name == name);
    let target = targets.iter().find(|target| target.name == name);
    let is_twin = |other: &Target| target.is_some_and(|target| super::is_same(&target.weights, &other.weights));
    had(name) || targets.iter().any(|other| is_twin(other) && had(&other.name))
}

fn load(say: &mut impl FnMut(&str, ReasonCode, String), seen: &Seen<'_>, units: u64) {
    let percent = seen.verdict.elasticity.unwrap_or(1.0) * 100.0;
    match seen.verdict.kind {
        LoadKind::Limited => say(
            "",
            ReasonCode::LoadLimited,
            format!(
                "the load sets the pace: of a pause the rate gave up {percent:.0} %. More speed means shorter times, not more units"
            ),
        ),
        LoadKind::Mixed => say(
            "",
            ReasonCode::LoadLimited,
            format!(
                "a part of the load sets its own pace: of a pause the rate gave up {percent:.0} %, and gains are scaled by that"
            ),
        ),
        LoadKind::Closed if seen.has_load && units > 0 && seen.is_final && seen.verdict.blocks == 0 => say(
            "",
            ReasonCode::Imprecise,
            "whether the load follows the program's pace could not be tried well enough; it is taken to do so".into(),
        ),
        LoadKind::Closed => {}
    }
}

/// What the sampler did not see, where that is enough to matter.
fn lost(say: &mut impl FnMut(&str, ReasonCode, String), lost: &Lost, taken: u64) {
    let Lost { samples, threads } = *lost;
    let all = samples + taken;
    if samples as f64 > LOST * all as f64 {
        let text = format!(
            "{samples} of {all} samples were lost, since nobody took them in time: busy threads are seen too little"
        );
        say("", ReasonCode::TooMany, text);
    }
    if threads > 0 {
        let text = format!(
            "{threads} threads were not sampled: the system had no timer for them, or there are more than {THREADS_MAX}"
        );
        say("", ReasonCode::TooMany, text);
    }
}

/// Whether the first half of the run was like the second; where one of them has no windows nobody knows.
fn changed(say: &mut impl FnMut(&str, ReasonCode, String), evidence: &Evidence, name: &str) {
    let Some(point) = progress::points().iter().position(|point| point == name) else { return };
    if evidence.halves.iter().any(|&(time, _)| time == 0) {
        return;
    }
    let rate = |half: &(u64, Vec<u64>)| {
        let hits = half.1.get(point).copied().unwrap_or(0) as f64;
        (hits / half.0 as f64 * 1e9, hits)
    };
    let [(first, some), (second, more)] = [rate(&evidence.halves[0]), rate(&evidence.halves[1])];
    let error = (1.0 / some.max(1.0) + 1.0 / more.max(1.0)).sqrt();
    let change = (second / first).ln().abs();
    if some.max(more) < UNITS_FEW as f64 || change <= CHANGED || change <= 4.0 * error {
        return;
    }
    let text = if first == 0.0 {
        format!("`{name}` was not reached in the first half of the run")
    } else if second == 0.0 {
        format!("`{name}` was not reached any more in the second half of the run; is whoever asked for it still there?")
    } else {
        format!(
            "the rate of `{name}` was {:.0} % {} in the second half of the run than in the first",
            100.0 * (second / first - 1.0).abs(),
            if second > first { "higher" } else { "lower" }
        )
    };
    say("", ReasonCode::Changed, text);
}

/// What is to be said about single targets.
fn targets(report: &mut Report, seen: &Seen<'_>) {
    let is_limited = seen.verdict.kind == LoadKind::Limited;
    let mut reasons = Vec::new();
    let mut said = Vec::new();
    for target in &report.targets {
        let curve = if is_limited { &target.latency } else { &target.curve };
        let Some(point) = curve.iter().find(|point| point.speedup == seen.common) else { continue };
        // A function and its only caller are one.
        if said.contains(&point.gain) || said.len() == TOP {
            continue;
        }
        said.push(point.gain);
        let half = (point.high - point.low) / 2.0;
        if half > WIDE.0.max(WIDE.1 * point.gain.abs()) {
            let text = format!(
                "the interval at {:.0} % is ± {:.1} points; profile for longer",
                seen.common * 100.0,
                half * 100.0
            );
            reasons.push(reason(&target.name, ReasonCode::Imprecise, text));
        }
        let is_sampled = !matches!(target.kind, crate::target::TargetKind::Span | crate::target::TargetKind::Upstream);
        if is_sampled && target.samples < SAMPLES_FEW && seen.modes != Modes::Confirm {
            let text = format!("it was in {} samples only", target.samples);
            reasons.push(reason(&target.name, ReasonCode::TooFew, text));
        }
    }
    report.reasons.extend(reasons);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{TargetKind, Weights};

    fn target(name: &str) -> Target {
        Target { name: name.into(), kind: TargetKind::Function, share: 0.1, samples: 9, weights: Weights::default() }
    }

    #[test]
    fn an_unknown_target_is_told_what_is_called_alike() {
        let seen = ["serde_json::to_string", "demo::encode_frame", "demo::decode"];
        let (found, seen) = (seen.map(target), || seen.map(String::from).to_vec());
        let wanted = ["encode_frames".to_owned(), "demo".into(), "xyz".into()];
        let reasons = unknown(&wanted, &found, seen);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].text.contains("there are `demo::encode_frame`"), "{}", reasons[0].text);
        assert!(reasons[1].text.contains("what was seen most is `serde_json::to_string`"), "{}", reasons[1].text);
        assert!(unknown(&wanted[2..], &[], Vec::new)[0].text.contains("nor anything else"));
    }

    #[test]
    fn an_unknown_progress_point_is_told_what_is_called_alike() {
        let names = ["request", "route /api/*", "route /files/*"].map(String::from);
        let said = |wanted: &str, names: &[String], reached: &[bool]| -> Vec<String> {
            let reasons = unknown_progress(&[wanted.to_owned()], names, |point| reached[point]);
            assert!(reasons.iter().all(|reason| reason.code == ReasonCode::UnknownProgress));
            reasons.into_iter().map(|reason| reason.text).collect()
        };
        let all = [true, false, true];
        assert!(said("request", &names, &all).is_empty());
        let alike = "no progress point is called `route /api`; there are `route /api/*`, `route /files/*`";
        assert_eq!(said("route /api", &names, &all), [alike]);
        let none = "no progress point is called `xyz`; there are `request`, `route /api/*`, `route /files/*`";
        assert_eq!(said("xyz", &names, &all), [none]);
        let idle = "the progress point `route /api/*` was not reached while windows were recorded";
        assert_eq!(said("route /api/*", &names, &all), [idle]);
        assert!(said("route /api/*", &names, &[false; 3]).is_empty(), "nothing was reached: that is said for all");
        assert!(said("xyz", &[], &[]).is_empty());
    }

    #[test]
    fn what_differs_is_said_and_pauses_win() {
        let point =
            |speedup, gain: f64| CurvePoint { speedup, gain, low: gain - 0.02, high: gain + 0.02, expected: 0.1 };
        let mut reasons = Vec::new();
        assert!(!disagreement("a", true, &[point(0.5, 0.1)], &[point(0.5, 0.13)], &mut reasons));
        assert!(
            !disagreement("a", true, &[point(0.25, 0.1)], &[point(0.5, 0.3)], &mut reasons),
            "no speed-up in common"
        );
        assert!(reasons.is_empty());
        assert!(disagreement("a", true, &[point(0.5, 0.1)], &[point(0.5, 0.15)], &mut reasons));
        assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::Disagreement));
    }

    /// What was found for a function holds for its only caller: no more is wanting there.
    #[test]
    fn a_twin_of_what_was_confirmed_lacks_nothing() {
        use crate::estimate::Block;
        use crate::target::Part;
        let part = |part| Weights { parts: vec![Part { part, error: 0.0 }], calls: None };
        let targets = [("a", 0.5), ("caller of a", 0.5), ("b", 0.4)]
            .map(|(name, of)| Target { weights: part(of), ..target(name) });
        let evidence = Evidence { blocks: vec![Block::new("a", 0.5, 0.0)], ..Evidence::default() };
        for (name, want) in [("a", true), ("caller of a", true), ("b", false), ("gone", false)] {
            assert_eq!(is_confirmed(name, &targets, &evidence), want, "{name}");
        }
    }

    #[test]
    fn what_was_not_sampled_is_said() {
        for (samples, threads, taken, want) in
            [(0, 0, 100, 0), (1, 0, 1000, 0), (20, 0, 1000, 1), (9, 0, 0, 1), (0, 3, 1000, 1), (20, 3, 1000, 2)]
        {
            let mut said = Vec::new();
            let mut say = |_: &str, code, text: String| said.push((code, text));
            lost(&mut say, &Lost { samples, threads }, taken);
            assert_eq!(said.len(), want, "{said:?}");
            assert!(said.iter().all(|(code, _)| *code == ReasonCode::TooMany));
        }
    }

    /// Hits per half, and what is said of them; the first half has 10 ms of windows, the second as many as `time`.
    #[test]
    fn halves_that_differ_are_said_to() {
        let point = progress::Point::named("reasons halves");
        for (hits, time, want) in [
            ([100, 110], 10, None),
            ([100, 10], 10, Some("90 % lower")),
            ([40, 100], 10, Some("150 % higher")),
            ([100, 200], 20, None),
            ([100, 0], 10, Some("not reached any more")),
            ([0, 100], 10, Some("in the first half")),
            ([20, 0], 10, None),
            ([100, 0], 0, None),
        ] {
            let half = |time: u64, hits| {
                let mut all = vec![0; point.id() as usize + 1];
                all[point.id() as usize] = hits;
                (time * 1_000_000, all)
            };
            let evidence = Evidence { halves: [half(10, hits[0]), half(time, hits[1])], ..Evidence::default() };
            let mut said = Vec::new();
            changed(&mut |_, code, text| said.push((code, text)), &evidence, "reasons halves");
            let is_right = |said: &[(ReasonCode, String)], want: &str| {
                said.len() == 1 && said[0].0 == ReasonCode::Changed && said[0].1.contains(want)
            };
            assert!(want.map_or(said.is_empty(), |want| is_right(&said, want)), "{hits:?}, {time}: {said:?}");
        }
    }

    #[test]
    fn a_phase_is_corrected_where_it_is_sure() {
        let mut reasons = Vec::new();
        assert_eq!(phase("a", None, &mut reasons), (1.0, 0.0));
        assert_eq!(phase("a", Some((1.3, 0.1)), &mut reasons), (1.0, 0.0), "that may be chance");
        assert_eq!(phase("a", Some((1.1, 0.01)), &mut reasons), (1.1, 0.01));
        assert!(reasons.is_empty());
        assert_eq!(phase("a", Some((0.5, 0.01)), &mut reasons), (0.5, 0.01));
        assert_eq!(reasons[0].code, ReasonCode::Changed);
    }
}

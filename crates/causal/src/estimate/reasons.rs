//! Missing or uncertain results, with their reasons in words.

use crate::constants::{
    NOTED_MISFIT, NOTED_RATE_CHANGE, NOTED_RATE_ERRORS, NOTED_SAMPLES_FEW, NOTED_SAMPLES_LOST, NOTED_TARGETS,
    NOTED_UNEXPLAINED, NOTED_UNITS_FEW, NOTED_UNREGISTERED, NOTED_UNSEEN, NOTED_WIDE_PART, NOTED_WIDE_POINTS,
    NOTED_WINDOWS_FEW, PHASE_CHANGE_MIN, PHASE_CHANGE_NOTED, PHASE_ERRORS_MIN, PROGRESS_POINTS_MAX, RECORD_LENGTH_MAX,
};
use crate::estimate::Evidence;
use crate::estimate::baseline::Baseline;
use crate::kinds::{self, KINDS_MAX};
use crate::load::{LoadVerdict, is_saturated};
use crate::own;
use crate::peers::PeerProcess;
use crate::profiler::Modes;
use crate::report::{CurvePoint, Limit, Load, LoadKind, Reason, ReasonCode, Report};
use crate::sample::{Lost, THREADS_MAX};
use crate::statistics::Ratio;
use crate::target::Target;

/// The facts to judge by, besides the report and the evidence.
pub(super) struct ReasonFacts<'a> {
    pub(super) targets: &'a [Target],
    pub(super) samples: u64,
    pub(super) shortcoming: Option<&'static str>,
    pub(super) verdict: &'a LoadVerdict,
    pub(super) has_load: bool,
    /// Error of the replay in the time that counts: per unit, or from begin to end.
    pub(super) fidelity: Ratio,
    /// The units as recorded, by progress point of the report.
    pub(super) baseline: &'a [Baseline],
    /// Number of progress points of the program.
    pub(super) points: usize,
    pub(super) common: f64,
    pub(super) modes: Modes,
    pub(super) is_final: bool,
}

/// Maximum number of similar names in a note about an unknown one.
const ALIKE_MAX: usize = 3;

fn reason(target: &str, code: ReasonCode, text: impl Into<String>) -> Reason {
    Reason { target: target.to_owned(), code, text: text.into() }
}

/// Returns a reason for each requested target that was not seen, with similar names.
pub(super) fn unknown(wanted: &[String], found: &[Target], seen: impl FnOnce() -> Vec<String>) -> Vec<Reason> {
    let is_unknown = |wanted: &&String| !found.iter().any(|target| target.name.contains(wanted.as_str()));
    if !wanted.iter().any(|wanted| is_unknown(&wanted)) {
        return Vec::new();
    }
    // Only now: collecting the names walks all samples, and most requests name targets that exist.
    let seen = seen();
    let say = |wanted: &String| {
        let names = alike(wanted, &seen);
        let text = match (names.is_empty(), found.is_empty()) {
            (false, _) => {
                format!("no target with `{wanted}` in its name was seen; similar names are {}", names.join(", "))
            }
            (true, false) => {
                let names: Vec<String> =
                    found.iter().take(ALIKE_MAX).map(|target| format!("`{}`", target.name)).collect();
                format!("no target with `{wanted}` in its name was seen; the most frequent are {}", names.join(", "))
            }
            (true, true) => format!("no target with `{wanted}` in its name was seen, and no other one either"),
        };
        reason(wanted, ReasonCode::UnknownTarget, text)
    };
    wanted.iter().filter(is_unknown).map(say).collect()
}

/// Returns a reason for each requested progress point that does not exist, with similar names, or that was not reached.
/// If no point was reached, another reason covers all of them.
pub(super) fn unknown_progress(wanted: &[String], names: &[String], is_reached: impl Fn(usize) -> bool) -> Vec<Reason> {
    let any = (0..names.len()).any(&is_reached);
    let say = |wanted: &String| {
        let text = match names.iter().position(|name| name == wanted) {
            // If no point was reached, the reader needs one reason and not one for each request.
            Some(point) if is_reached(point) || !any => return None,
            Some(_) => format!("the progress point `{wanted}` was not reached while windows were recorded"),
            // `NoProgress` is the better reason.
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

/// Returns the most similar names, quoted.
fn alike(wanted: &str, names: &[String]) -> Vec<String> {
    // By common pairs of letters and not by edits: people write the last part of a long path.
    let likeness = |name: &str| strsim::sorensen_dice(&wanted.to_ascii_lowercase(), &name.to_ascii_lowercase());
    let mut alike: Vec<(f64, &str)> = names.iter().map(|name| (likeness(name), name.as_str())).collect();
    alike.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Fewer common pairs are chance.
    alike.retain(|(likeness, _)| *likeness > 0.2);
    alike.iter().take(ALIKE_MAX).map(|(_, name)| format!("`{name}`")).collect()
}

/// Returns the factor to apply to a gain found by pauses, from [`super::confirm::phase`], with the standard error of
/// its logarithm. No correction if the difference between the windows and the run may be noise.
pub(super) fn phase(name: &str, phase: Option<(f64, f64)>, reasons: &mut Vec<Reason>) -> (f64, f64) {
    let Some((factor, error)) = phase else { return (1.0, 0.0) };
    // In logarithms: a share that was halved is as far off as one that was doubled.
    let off = factor.ln().abs();
    if off < PHASE_CHANGE_MIN || off < PHASE_ERRORS_MIN * error {
        return (1.0, 0.0);
    }
    if off > PHASE_CHANGE_NOTED {
        let text = format!(
            "its share in the windows with pauses was {:.0} % of that in the whole run; the gain is corrected for this",
            100.0 / factor
        );
        reasons.push(reason(name, ReasonCode::Changed, text));
    }
    (factor, error)
}

/// Returns whether both modes have a result and their intervals do not overlap. Adds a reason if so, which names the
/// replay's result as the one shown if `prefers_replay`.
pub(super) fn disagreement(
    name: &str,
    prefers_replay: bool,
    a: &[CurvePoint],
    b: &[CurvePoint],
    reasons: &mut Vec<Reason>,
) -> bool {
    // One point that is apart is enough: both modes claim an interval for each.
    let apart = b.iter().find_map(|b| {
        let a = a.iter().find(|a| a.speedup == b.speedup)?;
        (a.high < b.low || b.high < a.low).then_some((a, b))
    });
    if let Some((a, b)) = apart {
        let shown = if prefers_replay { "the replay" } else { "pauses" };
        let text = format!(
            "at a speed-up of {:.0} % the replay found {:.1} % ({:.1} to {:.1}), pauses {:.1} % ({:.1} to {:.1}); the result of {shown} is shown",
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

/// Returns a number with its noun: "1 sample", "2 samples".
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

/// Adds all other reasons to the report.
pub(super) fn add(report: &mut Report, evidence: &Evidence, seen: &ReasonFacts<'_>) {
    let mut reasons = Vec::new();
    let mut say = |target: &str, code, text: String| reasons.push(reason(target, code, text));
    // The main point counts; further points may be rare on purpose.
    let units = report.progress.first().map_or(0, |progress| progress.count);
    if seen.samples == 0 {
        say("", ReasonCode::NoSamples, "there are no samples: no registered thread used the processor".into());
    }
    // The case decides about the remedy: a point in the program, or a load on it.
    if units == 0 {
        say(
            "",
            ReasonCode::NoProgress,
            if seen.points == 0 {
                "the program has no progress point, or has not reached one: put `progress!(\"…\")` where a unit of work is done"
                    .into()
            } else {
                "no progress point was reached while windows were recorded; is there any load?".into()
            },
        );
    } else if units < NOTED_UNITS_FEW {
        let (units, were) = (counted(units, "unit"), were(units));
        say("", ReasonCode::TooFew, format!("only {units} of progress {were} seen; profile for longer"));
    } else if evidence.recordings.len() < NOTED_WINDOWS_FEW {
        let count = evidence.recordings.len() as u64;
        let (windows, were) = (counted(count, "window"), were(count));
        say("", ReasonCode::TooFew, format!("only {windows} {were} recorded; profile for longer"));
    }
    // After the reasons for an empty report. Without samples the lack of symbols has no effect, so it would only
    // distract.
    if let Some(shortcoming) = seen.shortcoming.filter(|_| seen.samples > 0) {
        say("", ReasonCode::NoSymbols, shortcoming.into());
    }
    load(&mut say, &report.load, evidence, seen, units);
    if let Some(ratio) = seen.fidelity.estimate()
        && super::misfit(&seen.fidelity) > NOTED_MISFIT
    {
        let percent = ratio.mean * 100.0;
        say(
            "",
            ReasonCode::Fidelity,
            format!(
                "an unchanged replay takes {percent:.1} % of the recorded time per unit; the intervals include this error"
            ),
        );
    }
    unexplained(&mut say, report, evidence, seen.baseline);
    unseen(&mut say, report, evidence, seen.baseline);
    for name in evidence.unaffordable.iter().filter(|name| !is_confirmed(name, seen.targets, evidence)) {
        say(
            name,
            ReasonCode::BudgetSpent,
            "the remaining budget does not allow even the shortest windows with pauses".into(),
        );
    }
    // More than a quarter: a few windows always meet a burst of work.
    if evidence.aborted * 4 > evidence.paused && evidence.aborted > 1 {
        let (aborted, paused) = (evidence.aborted, evidence.paused);
        say(
            "",
            ReasonCode::BudgetSpent,
            format!("{aborted} of {paused} windows with pauses ended early, to keep the budget"),
        );
    }
    if let Some(first) = report.progress.first() {
        changed(&mut say, evidence, &first.name);
    }
    if kinds::kinds().len() >= KINDS_MAX {
        say("", ReasonCode::TooMany, format!("more than {KINDS_MAX} kinds of work: later ones count as their parents"));
    }
    let shown = report.progress.len();
    // Points without hits have no curve either, and need no remark.
    let points = (0..seen.points).filter(|&point| evidence.hits(point) > 0).count();
    if points > shown && shown == PROGRESS_POINTS_MAX {
        say("", ReasonCode::TooMany, format!("only the {shown} most frequent of {points} progress points have curves"));
    }
    lost(&mut say, &evidence.lost, evidence.kinds.values().sum());
    priority(&mut say, own::is_priority_refused());
    if evidence.is_stopped {
        say("", ReasonCode::Stopped, format!("the profile was stopped after {:.1} s", evidence.elapsed as f64 / 1e9));
    }
    // After the borrow of `reasons` has ended, since the targets' reasons are added to the report itself.
    report.reasons.extend(reasons);
    if seen.is_final && units > 0 {
        targets(report, seen);
    }
}

/// Adds reasons for waits whose cause is not known, and for work on threads without an account.
fn unexplained(
    say: &mut impl FnMut(&str, ReasonCode, String),
    report: &Report,
    evidence: &Evidence,
    baseline: &[Baseline],
) {
    for (progress, baseline) in report.progress.iter().zip(baseline) {
        if baseline.unexplained > NOTED_UNEXPLAINED {
            let (name, percent) = (&progress.name, baseline.unexplained * 100.0);
            let text = format!(
                "{percent:.0} % of the units of `{name}` follow from waits of an event loop for events that no hook reported: a replay leaves them at their recorded times, so gains may be larger than it finds; report these waits, with `progress::TaskWait` for instance"
            );
            say("", ReasonCode::Unexplained, text);
        }
    }
    let (unregistered, registered) = evidence
        .recordings
        .iter()
        .fold((0.0, 0.0), |sum, one| (sum.0 + one.unregistered as f64, sum.1 + one.busy + one.hooks));
    let part = unregistered / (unregistered + registered).max(1.0);
    if part > NOTED_UNREGISTERED {
        let text = format!(
            "threads that are not registered use {:.0} % of the processor time (a runtime's threads for blocking work, for example): their functions are no targets, and waits for them keep their recorded lengths; start them with `progress::thread`, or call `progress::register_thread` on them",
            part * 100.0
        );
        say("", ReasonCode::Unregistered, text);
    }
}

/// Adds a reason for each progress point with units longer than the windows.
fn unseen(say: &mut impl FnMut(&str, ReasonCode, String), report: &Report, evidence: &Evidence, baseline: &[Baseline]) {
    let longest = evidence.recordings.iter().map(|one| one.length).max().unwrap_or(0);
    for (progress, baseline) in report.progress.iter().zip(baseline) {
        let (name, unseen) = (&progress.name, baseline.cuts.unseen());
        if unseen <= NOTED_UNSEEN {
            continue;
        }
        let (windows, percent) = (longest as f64 / 1e9, unseen * 100.0);
        let mut text = match baseline.latency {
            None => format!(
                "no unit of `{name}` began and ended within one recorded window, of {windows:.1} s at most: the time from begin to end is unknown"
            ),
            Some(_) => format!(
                "at least {percent:.0} % of the time of `{name}` is in units longer than the recorded windows, of {windows:.1} s at most: the time from begin to end is too short, and gains in it are unreliable"
            ),
        };
        if longest < RECORD_LENGTH_MAX {
            text.push_str("; a longer profile may have longer windows");
        }
        say("", ReasonCode::Imprecise, text);
    }
}

/// Returns whether the target, or one of equal weights under another name, had windows with pauses.
fn is_confirmed(name: &str, targets: &[Target], evidence: &Evidence) -> bool {
    let had = |name: &str| evidence.blocks.iter().any(|block| block.name == name);
    let target = targets.iter().find(|target| target.name == name);
    // Windows are planned for one of several names for the same code.
    let is_twin = |other: &Target| target.is_some_and(|target| super::is_same(&target.weights, &other.weights));
    had(name) || targets.iter().any(|other| is_twin(other) && had(&other.name))
}

fn load(
    say: &mut impl FnMut(&str, ReasonCode, String),
    report: &Load,
    evidence: &Evidence,
    seen: &ReasonFacts<'_>,
    units: u64,
) {
    let percent = seen.verdict.elasticity.unwrap_or(1.0) * 100.0;
    // Without enough probes, the elasticity is an estimate from the clients' behaviour.
    let gave_up = match seen.verdict.blocks {
        0 => format!("judging by the use of the connections, the rate would drop by {percent:.0} % of a pause"),
        _ => format!("the rate dropped by {percent:.0} % of a pause"),
    };
    let saturated = evidence.peer.as_ref().filter(|peer| is_saturated(peer));
    let wants = |peer: &PeerProcess| {
        let PeerProcess { name, process, busy } = peer;
        format!("a thread of `{name}` (process {process}) needed a processor {:.0} % of the time", busy * 100.0)
    };
    // At most one reason about the load: each case of the next ones explains the same figures.
    match (seen.verdict.kind, report.limit) {
        // The default assumption: it is told only at the end, when no later probe can still confirm it.
        (LoadKind::Closed, _) if seen.has_load && units > 0 && seen.is_final && seen.verdict.blocks == 0 => {
            let also = saturated.map_or(String::new(), |peer| {
                format!("; {}, so the load generator may be at its own limit", wants(peer))
            });
            say(
                "",
                ReasonCode::Imprecise,
                format!(
                    "the load probes cannot tell whether the load follows the program's pace; the gains assume that it does{also}"
                ),
            );
        }
        (LoadKind::Closed, _) => {}
        (_, Some(Limit::Generator)) => {
            let why = evidence.peer.as_ref().map(wants).unwrap_or_default();
            say(
                "",
                ReasonCode::GeneratorLimited,
                format!(
                    "the load generator is most likely at its own limit: {gave_up}, and {why}. Give it more threads, or another machine, to see the program's gain in rate"
                ),
            );
        }
        (LoadKind::Limited, _) => say(
            "",
            ReasonCode::LoadLimited,
            format!("the load sets the pace: {gave_up}. A faster program has shorter times, not more units"),
        ),
        (LoadKind::Mixed, _) => say(
            "",
            ReasonCode::LoadLimited,
            format!("a part of the load sets its own pace: {gave_up}, and the gains are scaled by this"),
        ),
    }
}

/// Adds a reason if too many samples or any threads are missing.
fn lost(say: &mut impl FnMut(&str, ReasonCode, String), lost: &Lost, taken: u64) {
    let Lost { samples, threads } = *lost;
    let all = samples + taken;
    // A share and not a number: a long profile may lose many without effect.
    if samples as f64 > NOTED_SAMPLES_LOST * all as f64 {
        let text = format!("{samples} of {all} samples were lost, not read in time: busy threads are underrepresented");
        say("", ReasonCode::TooMany, text);
    }
    if threads > 0 {
        let text = format!(
            "{} {} not sampled: the system had no timer, or there are more than {THREADS_MAX} threads",
            counted(threads, "thread"),
            were(threads)
        );
        say("", ReasonCode::TooMany, text);
    }
}

/// Adds a reason if the profiler's threads run at the priority of the program's. They then take processor time from the
/// program where there is none to spare, so its requests take longer than without a profile.
fn priority(say: &mut impl FnMut(&str, ReasonCode, String), is_refused: bool) {
    // Lowering a priority needs no permission, so only a filter of system calls refuses it.
    if is_refused {
        let text = "the system refused a lower priority for the profiler's threads, as a container may: between windows \
                    they compete with the program's";
        say("", ReasonCode::Imprecise, text.into());
    }
}

/// Adds a reason if the rate differs between the halves of the run. Unknown if one half has no windows.
fn changed(say: &mut impl FnMut(&str, ReasonCode, String), evidence: &Evidence, name: &str) {
    let Some(point) = progress::point_names().iter().position(|point| point == name) else { return };
    // A short profile has no second half to compare.
    if evidence.halves.iter().any(|&(time, _)| time == 0) {
        return;
    }
    let rate = |half: &(u64, Vec<u64>)| {
        let hits = half.1.get(point).copied().unwrap_or(0) as f64;
        (hits / half.0 as f64 * 1e9, hits)
    };
    let [(first, some), (second, more)] = [rate(&evidence.halves[0]), rate(&evidence.halves[1])];
    // Standard error of the logarithm of a ratio of Poisson counts.
    let error = (1.0 / some.max(1.0) + 1.0 / more.max(1.0)).sqrt();
    let change = (second / first).ln().abs();
    // Report only a large change, and one that is clearly not noise.
    if some.max(more) < NOTED_UNITS_FEW as f64 || change <= NOTED_RATE_CHANGE || change <= NOTED_RATE_ERRORS * error {
        return;
    }
    let text = if first == 0.0 {
        format!("`{name}` was not reached in the first half of the run")
    } else if second == 0.0 {
        format!("`{name}` was no longer reached in the second half of the run; has its load stopped?")
    } else {
        format!(
            "the rate of `{name}` was {:.0} % {} in the second half of the run than in the first",
            100.0 * (second / first - 1.0).abs(),
            if second > first { "higher" } else { "lower" }
        )
    };
    say("", ReasonCode::Changed, text);
}

/// Adds reasons about single targets.
fn targets(report: &mut Report, seen: &ReasonFacts<'_>) {
    let mut reasons = Vec::new();
    let mut said = Vec::new();
    for target in report.shown() {
        let (_, curve) = report.counted(target);
        let Some(point) = curve.iter().find(|point| point.speedup == seen.common) else { continue };
        // A function and its only caller have one result: count it once.
        if said.contains(&point.gain) || said.len() == NOTED_TARGETS {
            continue;
        }
        said.push(point.gain);
        let half = point.half_width();
        // Wide in points and in proportion: ± 3 points are nothing at a gain of 60, and everything at 4.
        if half > NOTED_WIDE_POINTS.max(NOTED_WIDE_PART * point.gain.abs()) {
            let text = format!(
                "the interval at {:.0} % is ± {:.1} points; profile for longer",
                seen.common * 100.0,
                half * 100.0
            );
            reasons.push(reason(&target.name, ReasonCode::Imprecise, text));
        }
        let is_sampled = !matches!(target.kind, crate::target::TargetKind::Span | crate::target::TargetKind::Upstream);
        if is_sampled && target.samples < NOTED_SAMPLES_FEW && seen.modes != Modes::Confirm {
            let text = format!("it was in only {}", counted(target.samples, "sample"));
            reasons.push(reason(&target.name, ReasonCode::TooFew, text));
        }
    }
    report.reasons.extend(reasons);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{GainSource, TargetReport};
    use crate::target::{TargetKind, Weights};

    fn target(name: &str) -> Target {
        Target {
            name: name.into(),
            kind: TargetKind::Function,
            share: 0.1,
            samples: 9,
            weights: Weights::default(),
            folded: None,
        }
    }

    #[test]
    fn an_unknown_target_gets_similar_names() {
        let seen = ["serde_json::to_string", "demo::encode_frame", "demo::decode"];
        let (found, seen) = (seen.map(target), || seen.map(String::from).to_vec());
        let wanted = ["encode_frames".to_owned(), "demo".into(), "xyz".into()];
        let reasons = unknown(&wanted, &found, seen);
        assert_eq!(reasons.len(), 2, "{reasons:?}");
        assert!(reasons[0].text.contains("similar names are `demo::encode_frame`"), "{}", reasons[0].text);
        assert!(reasons[1].text.contains("the most frequent are `serde_json::to_string`"), "{}", reasons[1].text);
        assert!(unknown(&wanted[2..], &[], Vec::new)[0].text.contains("and no other one"));
    }

    #[test]
    fn an_unknown_progress_point_gets_similar_names() {
        let names = ["request", "route /api/*", "route /files/*"].map(String::from);
        let reported = |wanted: &str, names: &[String], reached: &[bool]| -> Vec<String> {
            let reasons = unknown_progress(&[wanted.to_owned()], names, |point| reached[point]);
            assert!(reasons.iter().all(|reason| reason.code == ReasonCode::UnknownProgress));
            reasons.into_iter().map(|reason| reason.text).collect()
        };
        let all = [true, false, true];
        assert!(reported("request", &names, &all).is_empty());
        let alike = "no progress point is called `route /api`; there are `route /api/*`, `route /files/*`";
        assert_eq!(reported("route /api", &names, &all), [alike]);
        let none = "no progress point is called `xyz`; there are `request`, `route /api/*`, `route /files/*`";
        assert_eq!(reported("xyz", &names, &all), [none]);
        let idle = "the progress point `route /api/*` was not reached while windows were recorded";
        assert_eq!(reported("route /api/*", &names, &all), [idle]);
        assert!(reported("route /api/*", &names, &[false; 3]).is_empty(), "no point was reached: one reason for all");
        assert!(reported("xyz", &[], &[]).is_empty());
    }

    #[test]
    fn a_disagreement_is_reported_with_the_result_that_is_shown() {
        let point =
            |speedup, gain: f64| CurvePoint { speedup, gain, low: gain - 0.02, high: gain + 0.02, expected: 0.1 };
        let mut reasons = Vec::new();
        assert!(!disagreement("a", true, &[point(0.5, 0.1)], &[point(0.5, 0.13)], &mut reasons));
        assert!(
            !disagreement("a", true, &[point(0.25, 0.1)], &[point(0.5, 0.3)], &mut reasons),
            "no speed-up in common"
        );
        assert!(reasons.is_empty());
        for (prefers_replay, shown) in [(true, "the result of the replay"), (false, "the result of pauses")] {
            reasons.clear();
            assert!(disagreement("a", prefers_replay, &[point(0.5, 0.1)], &[point(0.5, 0.15)], &mut reasons));
            assert_eq!((reasons.len(), reasons[0].code), (1, ReasonCode::Disagreement));
            assert!(reasons[0].text.contains(shown), "{}", reasons[0].text);
        }
    }

    /// A confirmed result also holds for the function's only caller: no reason for that one.
    #[test]
    fn the_only_caller_of_a_confirmed_target_is_confirmed() {
        use crate::estimate::ConfirmBlock;
        use crate::target::KindShare;
        let part = |part| Weights { parts: vec![KindShare { part, error: 0.0 }], calls: None };
        let targets = [("a", 0.5), ("caller of a", 0.5), ("b", 0.4)]
            .map(|(name, of)| Target { weights: part(of), ..target(name) });
        let evidence = Evidence { blocks: vec![ConfirmBlock::new("a", 0.5, 0.0)], ..Evidence::default() };
        for (name, want) in [("a", true), ("caller of a", true), ("b", false), ("gone", false)] {
            assert_eq!(is_confirmed(name, &targets, &evidence), want, "{name}");
        }
    }

    /// For a program without a line table and without load, the reason is the load.
    #[test]
    fn the_reason_of_an_empty_report_is_first() {
        let verdict = LoadVerdict {
            kind: LoadKind::Closed,
            elasticity: None,
            half_width: 0.0,
            blocks: 0,
            needs_longer_probes: false,
        };
        let seen = ReasonFacts {
            baseline: &[],
            targets: &[],
            samples: 3,
            shortcoming: Some("the program has no line table"),
            verdict: &verdict,
            has_load: false,
            fidelity: Ratio::default(),
            points: 1,
            common: 0.5,
            modes: Modes::Both,
            is_final: true,
        };
        let mut report = Report::default();
        add(&mut report, &Evidence::default(), &seen);
        let codes: Vec<ReasonCode> = report.reasons.iter().map(|reason| reason.code).collect();
        assert_eq!(codes[..2], [ReasonCode::NoProgress, ReasonCode::NoSymbols], "{:?}", report.reasons);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!((counted(1, "sample"), were(1)), ("1 sample".into(), "was"));
        assert_eq!((counted(0, "sample"), were(2)), ("0 samples".into(), "were"));
    }

    #[test]
    fn a_refused_priority_is_reported() {
        for (is_refused, want) in [(true, 1), (false, 0)] {
            let mut count = 0;
            priority(&mut |_, _, _| count += 1, is_refused);
            assert_eq!(count, want);
        }
    }

    #[test]
    fn lost_samples_are_reported() {
        for (samples, threads, taken, want) in
            [(0, 0, 100, 0), (1, 0, 1000, 0), (20, 0, 1000, 1), (9, 0, 0, 1), (0, 3, 1000, 1), (20, 3, 1000, 2)]
        {
            let mut reported = Vec::new();
            let mut report = |_: &str, code, text: String| reported.push((code, text));
            lost(&mut report, &Lost { samples, threads }, taken);
            assert_eq!(reported.len(), want, "{reported:?}");
            assert!(reported.iter().all(|(code, _)| *code == ReasonCode::TooMany));
        }
    }

    /// Hits per half, and the expected reason; the first half has 10 ms of windows, the second `time` ms.
    #[test]
    fn halves_that_differ_are_reported() {
        let point = progress::Point::intern("reasons halves");
        for (hits, time, want) in [
            ([100, 110], 10, None),
            ([100, 10], 10, Some("90 % lower")),
            ([40, 100], 10, Some("150 % higher")),
            ([100, 200], 20, None),
            ([100, 0], 10, Some("no longer reached")),
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
            let mut reported = Vec::new();
            changed(&mut |_, code, text| reported.push((code, text)), &evidence, "reasons halves");
            let is_right = |reported: &[(ReasonCode, String)], want: &str| {
                reported.len() == 1 && reported[0].0 == ReasonCode::Changed && reported[0].1.contains(want)
            };
            assert!(
                want.map_or(reported.is_empty(), |want| is_right(&reported, want)),
                "{hits:?}, {time}: {reported:?}"
            );
        }
    }

    /// Also with an open-loop load, if the point has only hits, and so no latency.
    #[test]
    fn a_wide_interval_is_reported_for_the_curve_that_counts() {
        let wide =
            |gain: f64| vec![CurvePoint { speedup: 0.5, gain, low: gain - 0.2, high: gain + 0.2, expected: 0.1 }];
        let narrow = |gain: f64| vec![CurvePoint { speedup: 0.5, gain, low: gain, high: gain, expected: 0.1 }];
        let count = |kind, curve: Vec<CurvePoint>, latency: Vec<CurvePoint>| {
            let target = TargetReport {
                name: "a".into(),
                kind: TargetKind::Function,
                share: 0.2,
                samples: 1000,
                curve,
                latency,
                mode: GainSource::Screened,
                confirmed: Vec::new(),
                others: Vec::new(),
                folded: None,
            };
            let mut report = Report { targets: vec![target], ..Report::default() };
            report.load.kind = kind;
            let seen = ReasonFacts {
                baseline: &[],
                targets: &[],
                samples: 1000,
                shortcoming: None,
                verdict: &LoadVerdict {
                    kind,
                    elasticity: None,
                    half_width: 0.0,
                    blocks: 0,
                    needs_longer_probes: false,
                },
                has_load: true,
                fidelity: Ratio::default(),
                points: 1,
                common: 0.5,
                modes: Modes::Both,
                is_final: true,
            };
            targets(&mut report, &seen);
            report.reasons.iter().filter(|reason| reason.code == ReasonCode::Imprecise).count()
        };
        assert_eq!(count(LoadKind::Closed, wide(0.1), narrow(0.1)), 1);
        assert_eq!(count(LoadKind::Limited, wide(0.1), narrow(0.1)), 0);
        assert_eq!(count(LoadKind::Limited, narrow(0.1), wide(0.1)), 1);
        assert_eq!(count(LoadKind::Limited, wide(0.1), Vec::new()), 1);
    }

    #[test]
    fn a_phase_is_corrected_if_significant() {
        let mut reasons = Vec::new();
        assert_eq!(phase("a", None, &mut reasons), (1.0, 0.0));
        assert_eq!(phase("a", Some((1.3, 0.1)), &mut reasons), (1.0, 0.0), "that may be noise");
        assert_eq!(phase("a", Some((1.1, 0.01)), &mut reasons), (1.1, 0.01));
        assert!(reasons.is_empty());
        assert_eq!(phase("a", Some((0.5, 0.01)), &mut reasons), (0.5, 0.01));
        assert_eq!(reasons[0].code, ReasonCode::Changed);
    }
}

//! The order of the replays, and of the targets to confirm.

use super::baseline::{Baseline, baseline};
use super::{
    Analyst, Evidence, Scenario, Screen, ScreenResult, TargetResults, TargetSource, TimeLimit, WindowDefaults,
    common_speedup,
};
use crate::constants::{
    ANALYSIS_PART_BEST, ANALYSIS_PART_FIRST, ANALYSIS_PART_OTHERS, CANDIDATES_ALIKE_FLOOR, CANDIDATES_GAIN_ALIKE,
    CANDIDATES_OFFERED_MAX, CANDIDATES_SHARE_ALIKE, PRECISE_TARGETS, SCREENED_WHOLE_MAX, SCREENED_WINDOWS_FIRST,
};
use crate::load::LoadVerdict;
use crate::target::{Target, Weights};

impl<N: TargetSource> Analyst<N> {
    /// Replays the windows: first all targets at one speed-up, then the best at all of them, then the others.
    pub(super) fn screen(
        &self,
        evidence: &Evidence,
        defaults: &WindowDefaults,
        targets: &[Target],
        points: &[u32],
        verdict: &LoadVerdict,
        time_limit: &TimeLimit,
    ) -> Screened {
        let (recordings, model, limits) = (&evidence.recordings, verdict.load_model(), time_limit.limits);
        let common = common_speedup(&self.request.speedups);
        // A function and its only caller have equal weights: replay them once.
        let mut distinct: Vec<usize> = Vec::new();
        let mut same: Vec<usize> = Vec::new();
        for (at, target) in targets.iter().enumerate() {
            // Few targets, so a linear search is enough.
            let known = distinct.iter().position(|&other| is_same(&targets[other].weights, &target.weights));
            same.push(known.unwrap_or(distinct.len()));
            if known.is_none() {
                distinct.push(at);
            }
        }
        let first: Vec<Scenario<'_>> =
            distinct.iter().map(|&at| Scenario { weights: &targets[at].weights, speedup: common }).collect();
        let enough = if limits.is_final { SCREENED_WINDOWS_FIRST * 2 } else { SCREENED_WINDOWS_FIRST };
        let first = Screen::replay_all(recordings, defaults, &first, points, model, limits.crew, |windows| {
            windows < enough && time_limit.is_within(ANALYSIS_PART_FIRST, windows)
        });

        let gain = |at: usize| {
            let answer = first.results[at].first().copied().unwrap_or_default();
            answer.counted(verdict.kind).estimate().map_or(0.0, |ratio| 1.0 - ratio.mean)
        };
        let mut order: Vec<usize> = (0..distinct.len()).collect();
        // By magnitude: a large loss is as interesting as a gain.
        order.sort_by(|&a, &b| gain(b).abs().total_cmp(&gain(a).abs()));
        let (mut fidelity, mut bare) = (first.fidelity, first.bare);
        let mut answers: Vec<(Vec<f64>, Vec<Vec<ScreenResult>>)> =
            first.results.into_iter().map(|answers| (vec![common], vec![answers])).collect();
        let whole = if limits.is_final { SCREENED_WHOLE_MAX } else { PRECISE_TARGETS };
        let groups = order.chunks(whole).enumerate();
        for (group, members) in groups {
            if points.is_empty()
                || group > 0
                    && (!limits.is_final || !time_limit.is_within(ANALYSIS_PART_OTHERS, SCREENED_WINDOWS_FIRST))
            {
                break;
            }
            let ask: Vec<Scenario<'_>> = members
                .iter()
                .flat_map(|&at| self.request.speedups.iter().map(move |&speedup| (at, speedup)))
                .map(|(at, speedup)| Scenario { weights: &targets[distinct[at]].weights, speedup })
                .collect();
            // Leave some time for the other groups.
            let part = if group == 0 { ANALYSIS_PART_BEST } else { 1.0 };
            let screen = Screen::replay_all(recordings, defaults, &ask, points, model, limits.crew, |windows| {
                time_limit.is_within(part, windows)
            });
            // Use the ratios with the most windows: those of the first group, or of the first estimate.
            if group == 0 && screen.windows >= first.windows {
                (fidelity, bare) = (screen.fidelity, screen.bare);
            }
            let mut rows = screen.results.into_iter();
            for &at in members {
                let speedups = &self.request.speedups;
                let mut rows: Vec<_> = rows.by_ref().take(speedups.len()).collect();
                if screen.windows < first.windows
                    && let Some(place) = speedups.iter().position(|&speedup| speedup == common)
                {
                    // For this speed-up the first estimate had more windows.
                    rows[place] = std::mem::take(&mut answers[at].1[0]);
                }
                answers[at] = (speedups.clone(), rows);
            }
        }
        let answers = same.iter().map(|&at| answers[at].clone()).collect();
        Screened { answers, fidelity, bare, baseline: baseline(recordings, defaults, points) }
    }

    pub(super) fn candidates(&self, cases: &[TargetResults<'_>]) -> Vec<String> {
        let names =
            |cases: &mut dyn Iterator<Item = &TargetResults<'_>>| cases.map(|case| case.target.name.clone()).collect();
        if self.request.targets.is_empty() {
            // A function and the callee that does nearly all of its work have equal gains: confirm only the innermost.
            let mut distinct: Vec<&TargetResults<'_>> = Vec::new();
            let is_worth_pauses = |case: &&TargetResults<'_>| {
                case.target.folded.is_none() && (case.target.share > 0.0 || case.target.weights.calls.is_some())
            };
            for case in cases.iter().filter(is_worth_pauses) {
                let is_alike = |other: &&mut &TargetResults<'_>| {
                    (other.gain - case.gain).abs()
                        <= CANDIDATES_GAIN_ALIKE * case.gain.abs().max(CANDIDATES_ALIKE_FLOOR)
                        && (other.target.share - case.target.share).abs()
                            <= CANDIDATES_SHARE_ALIKE * case.target.share.max(CANDIDATES_ALIKE_FLOOR)
                };
                match distinct.iter_mut().find(is_alike) {
                    // The innermost function has the smaller share.
                    Some(other) if case.target.share < other.target.share => *other = case,
                    Some(_) => {}
                    None => distinct.push(case),
                }
            }
            names(&mut distinct.into_iter().take(CANDIDATES_OFFERED_MAX))
        } else {
            names(&mut cases.iter().take(CANDIDATES_OFFERED_MAX))
        }
    }
}

pub(super) struct Screened {
    /// By target: the replayed speed-ups, and for each the answers by point.
    pub(super) answers: Vec<(Vec<f64>, Vec<Vec<ScreenResult>>)>,
    pub(super) fidelity: ScreenResult,
    /// By point.
    pub(super) bare: Vec<ScreenResult>,
    /// By point.
    pub(super) baseline: Vec<Baseline>,
}

pub(super) fn is_same(a: &Weights, b: &Weights) -> bool {
    a.calls == b.calls && a.parts == b.parts
}

//! Merging: the reports of several programs that share a load, profiled at the same time by the same schedule.
//!
//! Their common rate counts. With rates r_i and gains S_i, the time per unit of all programs is 1 / Σ r_i, and with the
//! target faster 1 / Σ r_i/(1 − S_i). Latencies are averaged.

use std::collections::HashSet;

use crate::constants::NORMAL_QUANTILE;

use super::{
    CurvePoint, GAIN_ENDS, GainSource, LoadKind, OtherCurve, Progress, Quantity, Reason, ReasonCode, Report,
    TargetReport,
};

impl Report {
    /// Merges reports; `None` without any. The originals are kept in `parts`. A merged interval includes the programs'
    /// own uncertainty and their spread.
    #[must_use]
    pub fn merged(reports: Vec<Self>) -> Option<Self> {
        if reports.len() < 2 {
            return reports.into_iter().next();
        }
        let mut reports: Vec<Self> = reports.iter().map(Self::finite).collect();
        let rates: Vec<f64> = reports.iter().map(rate).collect();
        let weights = weights(&rates);
        let mut merged = Self {
            program: names(&reports),
            speech: reports[0].speech.clone(),
            began: reports.iter().map(|report| report.began).min().unwrap_or(0),
            seconds: mean(&weights, reports.iter().map(|report| report.seconds)),
            targets: targets(&reports, &weights),
            progress: progress(&reports),
            load: reports[0].load.clone(),
            perturbation: reports[0].perturbation.clone(),
            reasons: Vec::new(),
            stacks: Vec::new(),
            parts: Vec::new(),
        };
        merged.load.utilisation = reports.iter().map(|report| report.load.utilisation).fold(0.0, f64::max);
        let known: Vec<f64> = reports.iter().filter_map(|report| report.load.elasticity).collect();
        merged.load.elasticity = (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64);
        // Programs with different kinds of load have no common kind, and no common limit.
        if reports.iter().any(|report| report.load.kind != merged.load.kind) {
            merged.load.kind = LoadKind::Mixed;
        }
        if reports.iter().any(|report| report.load.limit != merged.load.limit) {
            merged.load.limit = None;
        }
        merged.rank();
        let cost = &mut merged.perturbation;
        cost.paused = mean(&weights, reports.iter().map(|report| report.perturbation.paused));
        cost.recording = mean(&weights, reports.iter().map(|report| report.perturbation.recording));
        cost.own = mean(&weights, reports.iter().map(|report| report.perturbation.own));
        cost.budget = reports.iter().map(|report| report.perturbation.budget).fold(0.0, f64::max);
        cost.windows = [0, 1].map(|at| reports.iter().map(|report| report.perturbation.windows[at]).sum());
        cost.aborted = reports.iter().map(|report| report.perturbation.aborted).sum();
        for report in &mut reports {
            for mut stack in std::mem::take(&mut report.stacks) {
                // The program's name becomes the outermost frame.
                stack.frames.insert(0, report.program.clone());
                merged.stacks.push(stack);
            }
            let told = report
                .reasons
                .iter()
                .map(|reason| Reason { text: format!("{}: {}", report.program, reason.text), ..reason.clone() });
            merged.reasons.extend(told);
        }
        for target in &merged.targets {
            let seen = reports.iter().filter(|report| report.find(target).is_some()).count();
            if seen < reports.len() {
                merged.reasons.push(Reason {
                    target: target.name.clone(),
                    code: ReasonCode::TooFew,
                    text: format!("found in {seen} of {} programs; its gain in the others counts as 0", reports.len()),
                });
            }
        }
        merged.parts = reports;
        Some(merged)
    }

    /// Returns the target of this name and kind.
    pub(super) fn find(&self, target: &TargetReport) -> Option<&TargetReport> {
        self.targets.iter().find(|it| it.name == target.name && it.kind == target.kind)
    }
}

fn rate(report: &Report) -> f64 {
    report.progress.first().map_or(0.0, |progress| progress.baseline_rate)
}

/// Weights by rate, with sum 1; equal ones if no program has a rate.
fn weights(rates: &[f64]) -> Vec<f64> {
    let sum: f64 = rates.iter().sum();
    let part = |rate: &f64| if sum > 0.0 { rate / sum } else { 1.0 / rates.len() as f64 };
    rates.iter().map(part).collect()
}

fn mean(weights: &[f64], values: impl Iterator<Item = f64>) -> f64 {
    weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
}

fn names(reports: &[Report]) -> String {
    reports.iter().map(|report| &*report.program).collect::<Vec<_>>().join(", ")
}

fn progress(reports: &[Report]) -> Vec<Progress> {
    let mut merged: Vec<Progress> = Vec::new();
    for progress in reports.iter().flat_map(|report| &report.progress) {
        match merged.iter_mut().find(|it| it.name == progress.name) {
            Some(sum) => {
                // The mean of the known times, weighted by the number of units.
                let (before, more) = (sum.count as f64, progress.count as f64);
                let mean = |sum: f64, one: f64| (sum * before + one * more) / (before + more).max(1.0);
                sum.baseline_ns = match (sum.baseline_ns, progress.baseline_ns) {
                    (Some(sum), Some(one)) => Some(mean(sum, one)),
                    (sum, one) => sum.or(one),
                };
                sum.baseline_rate += progress.baseline_rate;
                sum.count += progress.count;
            }
            None => merged.push(progress.clone()),
        }
    }
    merged
}

fn targets(reports: &[Report], weights: &[f64]) -> Vec<TargetReport> {
    let mut seen = HashSet::new();
    reports
        .iter()
        .flat_map(|report| &report.targets)
        .filter(|target| seen.insert((target.name.clone(), target.kind)))
        .map(|target| merge_target(target, reports, weights))
        .collect()
}

fn merge_target(like: &TargetReport, reports: &[Report], weights: &[f64]) -> TargetReport {
    let found: Vec<Option<&TargetReport>> = reports.iter().map(|report| report.find(like)).collect();
    let curves = |measure: Quantity, of: &dyn Fn(&TargetReport) -> Vec<CurvePoint>| {
        let curves: Vec<Vec<CurvePoint>> = found.iter().map(|target| target.map(of).unwrap_or_default()).collect();
        merge_curves(measure, &curves, weights)
    };
    let mut others: Vec<OtherCurve> = Vec::new();
    for other in found.iter().flatten().flat_map(|target| &target.others) {
        if others.iter().any(|it| it.progress == other.progress) {
            continue;
        }
        let of = |target: &TargetReport| target.others.iter().find(|it| it.progress == other.progress).cloned();
        // A program without this progress point has rate 0, so it does not count.
        let rates: Vec<f64> = reports
            .iter()
            .map(|report| {
                report.progress.iter().find(|it| it.name == other.progress).map_or(0.0, |it| it.baseline_rate)
            })
            .collect();
        let weights = self::weights(&rates);
        let of_each = |measure: Quantity, pick: &dyn Fn(OtherCurve) -> Vec<CurvePoint>| {
            let curves: Vec<_> = found.iter().map(|it| it.and_then(of).map(pick).unwrap_or_default()).collect();
            merge_curves(measure, &curves, &weights)
        };
        others.push(OtherCurve {
            progress: other.progress.clone(),
            curve: of_each(Quantity::TimePerUnit, &|other| other.curve),
            latency: of_each(Quantity::Latency, &|other| other.latency),
        });
    }
    let share = mean(weights, found.iter().map(|target| target.map_or(0.0, |target| target.share)));
    let is_confirmed = found.iter().flatten().all(|target| target.mode == GainSource::Confirmed);
    TargetReport {
        name: like.name.clone(),
        kind: like.kind,
        share,
        curve: curves(Quantity::TimePerUnit, &|target| target.curve.clone()),
        latency: curves(Quantity::Latency, &|target| target.latency.clone()),
        mode: if is_confirmed { GainSource::Confirmed } else { GainSource::Screened },
        samples: found.iter().flatten().map(|target| target.samples).sum(),
        confirmed: curves(Quantity::TimePerUnit, &|target| target.confirmed.clone()),
        others,
        // A target that is an answer for one program stays one.
        folded: if found.iter().flatten().all(|target| target.folded.is_some()) { like.folded.clone() } else { None },
    }
}

/// Merges point by point. A program without the curve has gain 0; a speed-up that one of the others lacks is left out.
fn merge_curves(measure: Quantity, curves: &[Vec<CurvePoint>], weights: &[f64]) -> Vec<CurvePoint> {
    let Some(first) = curves.iter().find(|curve| !curve.is_empty()) else { return Vec::new() };
    let merge = |speedup: f64| {
        let mut points = Vec::with_capacity(curves.len());
        for (curve, weight) in curves.iter().zip(weights) {
            let point = match &**curve {
                [] => CurvePoint { speedup, ..CurvePoint::default() },
                curve => *super::at(curve, speedup)?,
            };
            points.push((point, *weight));
        }
        Some(merge_points(measure, speedup, &points))
    };
    first.iter().filter_map(|point| merge(point.speedup)).collect()
}

fn merge_points(measure: Quantity, speedup: f64, points: &[(CurvePoint, f64)]) -> CurvePoint {
    // Rates add up, gains do not. Near a gain of 1 the rate has no bound, so there gains are averaged.
    let bounded = measure == Quantity::TimePerUnit && points.iter().all(|(point, _)| point.gain < 0.95);
    let rate: f64 = points.iter().map(|(point, weight)| weight / (1.0 - point.gain)).sum();
    let average: f64 = points.iter().map(|(point, weight)| weight * point.gain).sum();
    let gain = if bounded && rate > 0.0 { 1.0 - 1.0 / rate } else { average };
    // The programs' own variances, and the variance of the mean from their spread.
    let own: f64 = points.iter().map(|(point, weight)| (weight * point.half_width() / NORMAL_QUANTILE).powi(2)).sum();
    let counted = points.iter().filter(|(_, weight)| *weight > 0.0).count() as f64;
    let correction = if counted > 1.0 { counted / (counted - 1.0) } else { 0.0 };
    let spread: f64 = points.iter().map(|(point, weight)| (weight * (point.gain - average)).powi(2)).sum();
    let half = NORMAL_QUANTILE * (own + correction * spread).sqrt();
    let expected = points.iter().map(|(point, weight)| weight * point.expected).sum();
    CurvePoint { speedup, gain, low: gain - half, high: (gain + half).min(GAIN_ENDS.1), expected }
}

#[cfg(test)]
mod tests {
    use super::super::at;
    use super::super::sample::{curve, report};
    use super::*;

    fn with_rate(program: &str, rate: f64) -> Report {
        let mut report = report();
        report.program = program.into();
        report.progress[0].baseline_rate = rate;
        report
    }

    #[test]
    fn merge_equal_reports() {
        let merged = Report::merged(vec![with_rate("a", 1000.0), with_rate("b", 3000.0)]).unwrap();
        assert_eq!((&*merged.program, merged.parts.len(), merged.progress[0].baseline_rate), ("a, b", 2, 4000.0));
        let (one, all) = (&report().targets[0], &merged.targets[0]);
        assert_eq!((&all.name, all.samples), (&one.name, 2 * one.samples));
        let (one, all) = (one.curve[3], all.curve[3]);
        assert!((one.gain - all.gain).abs() < 1e-12);
        // Two measurements of the same gain, with weights 1/4 and 3/4.
        let want = 0.008 * (1.0_f64 / 16.0 + 9.0 / 16.0).sqrt();
        assert!(((all.high - all.low) / 2.0 - want).abs() < 1e-6, "{all:?}");
        assert_eq!(merged.stacks[0].frames[0], "a");
        assert_eq!(merged.reasons[0].text, format!("a: {}", report().reasons[0].text));
        assert_eq!(Report::from_json(&merged.to_json()).unwrap(), merged.finite());
    }

    // One half of the work takes half the time, the second half is unchanged: 1 + 1 becomes 2 + 1 units, so a third is
    // saved.
    #[test]
    fn rates_are_added() {
        let (mut a, mut b) = (with_rate("a", 500.0), with_rate("b", 500.0));
        a.targets.truncate(1);
        a.targets[0].curve = curve(0.5, 1.0, 0.0, 0.5);
        b.targets.truncate(1);
        b.targets[0].curve = curve(0.0, 1.0, 0.0, 0.0);
        let merged = Report::merged(vec![a, b]).unwrap();
        let point = at(&merged.targets[0].curve, 1.0).unwrap();
        assert!((point.gain - 1.0 / 3.0).abs() < 1e-12, "{point:?}");
        // The programs differ by 50 points, and the interval includes that spread.
        assert!(point.low < 0.0 && point.high > 0.5, "{point:?}");
    }

    // Under an open load throughput cannot gain, so its noise must not decide the rank.
    #[test]
    fn targets_are_ranked_by_the_relevant_gain() {
        let mut report = with_rate("a", 500.0);
        report.targets.truncate(2);
        let curves = [(0.01, 0.1), (0.0, 0.4)];
        for (target, (pace, latency)) in report.targets.iter_mut().zip(curves) {
            (target.curve, target.latency) = (curve(pace, 1.0, 0.0, 0.5), curve(latency, 1.0, 0.0, 0.5));
        }
        let names: Vec<String> = report.targets.iter().map(|target| target.name.clone()).collect();
        for (load, first) in [(LoadKind::Closed, 0), (LoadKind::Limited, 1)] {
            report.load.kind = load;
            let merged = Report::merged(vec![report.clone(), report.clone()]).unwrap();
            assert_eq!(merged.targets[0].name, names[first], "{load:?}");
        }
    }

    #[test]
    fn targets_in_one_report_only() {
        let (a, mut b) = (with_rate("a", 100.0), with_rate("b", 300.0));
        b.targets.remove(0);
        let merged = Report::merged(vec![a, b]).unwrap();
        let write = merged.targets.iter().find(|target| target.name == "tls write").unwrap();
        let gain = at(&write.curve, 0.5).unwrap().gain;
        assert!(gain > 0.03 && gain < 0.05, "{gain}");
        assert!(merged.reasons.iter().any(|reason| reason.target == "tls write" && reason.text.contains("1 of 2")));
    }

    #[test]
    fn no_report_one_report_and_idle_reports() {
        assert_eq!(Report::merged(Vec::new()), None);
        assert_eq!(Report::merged(vec![report()]), Some(report()));
        let merged = Report::merged(vec![Report::default(), Report::default()]).unwrap();
        assert_eq!((merged.targets.len(), merged.parts.len()), (0, 2));
        let idle = Report::merged(vec![report(), Report { program: "idle".into(), ..Report::default() }]).unwrap();
        let (one, all) = (report().targets[0].curve[3].gain, idle.targets[0].curve[3].gain);
        assert!((one - all).abs() < 1e-12);
    }
}

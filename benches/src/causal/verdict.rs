//! Judges predictions by the truth. A prediction passes if it is close to the truth and its interval is narrow.
//! Coverage is judged over all intervals: of three 95 % intervals for one truth, at least one misses it by chance in
//! every seventh case.

use causal::report::GainSource;
use serde::{Deserialize, Serialize};

use super::cases::{CausalCase, Quantity};
use super::coz::CozResult;
use super::prediction::{PredictedGain, Prediction};
use super::truth::Truth;

/// Largest absolute error of a prediction: two percentage points.
const OFF_MAX: f64 = 0.02;
/// Or this share of the gain.
const OFF_PART: f64 = 0.1;
/// Largest half-width of an interval: two percentage points, or this share of the gain.
const HALF_PART: f64 = 0.2;
/// The share of all intervals that must cover the truth.
pub const COVERED: f64 = 0.9;

/// A row of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerdictRow {
    /// The case's name.
    pub case: String,
    /// The case's title.
    pub title: String,
    /// The target's share of samples in an ordinary profile.
    pub share: Option<f64>,
    /// The measured gain.
    pub truth: Truth,
    /// The prediction of the first profiler run.
    pub answer: Option<PredictedGain>,
    /// The method of that prediction.
    pub mode: Option<GainSource>,
    /// The result of pauses, if the prediction is not from pauses.
    pub confirmed: Option<PredictedGain>,
    /// Coz's result, if it was run.
    pub coz: Option<CozResult>,
    /// The number of runs whose interval covers the truth, and the number of runs.
    pub covered: (usize, usize),
    /// Reasons for failing; empty for a pass.
    pub faults: Vec<String>,
}

/// Returns the largest allowed error for this gain.
fn off_max(gain: f64) -> f64 {
    OFF_MAX.max(OFF_PART * gain.abs())
}

/// Judges the profiler's runs by one truth.
pub fn judge(case: &CausalCase, truth: &Truth, predictions: &[Prediction], coz: Option<&CozResult>) -> VerdictRow {
    let answers: Vec<_> =
        predictions.iter().map(|prediction| prediction.answer(case, truth.quantity, truth.speedup)).collect();
    let covers =
        |answer: &PredictedGain| answer.low <= truth.gain + truth.half && truth.gain - truth.half <= answer.high;
    let covered = answers.iter().filter(|answer| answer.as_ref().is_ok_and(|(answer, _, _)| covers(answer))).count();
    let mut faults = Vec::new();
    let (mut answer, mut mode, mut confirmed) = (None, None, None);
    match answers.first() {
        Some(Ok((first, how, other))) => {
            (answer, mode, confirmed) = (Some(*first), Some(*how), *other);
            let off = first.gain - truth.gain;
            if off.abs() > off_max(truth.gain) || !off.is_finite() {
                faults.push(format!("off by {:+.1} pp", 100.0 * off));
            }
            if first.half() > OFF_MAX.max(HALF_PART * truth.gain.abs()) {
                faults.push(format!("± {:.1} pp is too wide", 100.0 * first.half()));
            }
        }
        Some(Err(why)) => faults.push(format!("no answer: {why}")),
        None => faults.push("no answer: the profiler was not run".to_owned()),
    }
    let share = predictions.first().and_then(|prediction| prediction.target(case.target)).map(|target| target.share);
    VerdictRow {
        case: case.name.to_owned(),
        title: case.title.to_owned(),
        share,
        truth: truth.clone(),
        answer,
        mode,
        confirmed,
        coz: coz.filter(|_| truth.quantity == Quantity::Throughput).cloned(),
        covered: (covered, answers.len()),
        faults,
    }
}

impl VerdictRow {
    /// Whether the prediction passes.
    pub fn passes(&self) -> bool {
        self.faults.is_empty()
    }

    /// Whether Coz is within the allowed error; `None` without a result of Coz.
    pub fn coz_is_near(&self) -> Option<bool> {
        let gain = self.coz.as_ref()?.gain?;
        Some((gain - self.truth.gain).abs() <= off_max(self.truth.gain))
    }
}

#[cfg(test)]
mod tests {
    use causal::report::{CurvePoint, Report, TargetReport};
    use causal::target::TargetKind;

    use super::super::cases::CASES;
    use super::*;

    fn prediction(gain: f64, half: f64) -> Prediction {
        let point = CurvePoint { speedup: 0.5, gain, low: gain - half, high: gain + half, expected: 0.3 };
        let target = TargetReport {
            name: CASES[0].target.to_owned(),
            kind: TargetKind::Function,
            share: 0.6,
            curve: vec![point],
            latency: Vec::new(),
            mode: GainSource::Screened,
            samples: 100,
            confirmed: Vec::new(),
            others: Vec::new(),
            folded: None,
        };
        let report = Report { targets: vec![target], ..Report::default() };
        Prediction { case: "1".to_owned(), repetition: 0, report: Some(report), why: None, disturbed: 0.0 }
    }

    #[track_caller]
    fn check(cases: &[(&str, f64, f64, f64, &[&str])]) {
        for (why, truth, gain, half, faults) in cases {
            let truth = Truth {
                quantity: Quantity::Throughput,
                speedup: 50,
                gain: *truth,
                half: 0.002,
                baseline_ns: 1e5,
                pairs: vec![*truth],
                disturbed: 0.0,
            };
            let row = judge(&CASES[0], &truth, &[prediction(*gain, *half)], None);
            let got: Vec<&str> = row.faults.iter().map(|fault| fault.split(' ').next().unwrap()).collect();
            assert_eq!(got, *faults, "{why}: {:?}", row.faults);
        }
    }

    /// |predicted − actual| ≤ max(2 pp, a tenth); half-width ≤ max(2 pp, a fifth).
    #[test]
    fn a_row_passes_by_the_rule() {
        check(&[
            ("as it is", 0.30, 0.30, 0.01, &[]),
            ("a tenth off", 0.30, 0.329, 0.03, &[]),
            ("more than a tenth off", 0.30, 0.335, 0.05, &["off"]),
            ("two points off, small gain", 0.01, 0.029, 0.02, &[]),
            ("more than two points off", 0.0, 0.03, 0.01, &["off"]),
            ("too wide", 0.10, 0.10, 0.05, &["±"]),
            ("backwards", 0.05, -0.05, 0.01, &["off"]),
        ]);
    }

    /// Intervals may overlap at their ends only; every run counts, not only the displayed one.
    #[test]
    fn intervals_that_meet_the_truths_are_counted() {
        let truth = Truth {
            quantity: Quantity::Throughput,
            speedup: 50,
            gain: 0.30,
            half: 0.01,
            baseline_ns: 1e5,
            pairs: Vec::new(),
            disturbed: 0.0,
        };
        let runs = [prediction(0.30, 0.01), prediction(0.319, 0.01), prediction(0.279, 0.01), prediction(0.33, 0.01)];
        assert_eq!(judge(&CASES[0], &truth, &runs, None).covered, (2, 4));
    }

    #[test]
    fn no_answer_is_missed() {
        let truth = Truth {
            quantity: Quantity::Latency,
            speedup: 50,
            gain: 0.0,
            half: 0.0,
            baseline_ns: 1.0,
            pairs: Vec::new(),
            disturbed: 0.0,
        };
        assert!(!judge(&CASES[0], &truth, &[prediction(0.0, 0.0)], None).passes());
        assert!(!judge(&CASES[0], &truth, &[], None).passes());
    }
}

//! Predictions against truth: who passes. A prediction is near the truth and its interval is narrow. Whether intervals meet the truth's is
//! judged over all of them: of three 95 % intervals about the same truth one misses it by chance in every seventh case.

use causal::report::Mode;
use serde::{Deserialize, Serialize};

use super::cases::{Case, Quantity};
use super::coz::Said;
use super::prediction::{Answer, Prediction};
use super::truth::Truth;

/// How far a prediction may be off, whatever the gain: two points.
const OFF_MAX: f64 = 0.02;
/// Or this part of the gain.
const OFF_PART: f64 = 0.1;
/// How wide half of an interval may be: two points, or this part of the gain.
const HALF_PART: f64 = 0.2;
/// The part of all intervals that has to cover the truth.
pub const COVERED: f64 = 0.9;

/// One line of the table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// The case.
    pub case: String,
    /// In a line.
    pub title: String,
    /// The target's share of samples: what an ordinary profile has it at.
    pub share: Option<f64>,
    /// What really happens.
    pub truth: Truth,
    /// What the first run of the profiler said.
    pub answer: Option<Answer>,
    /// How it came to that.
    pub mode: Option<Mode>,
    /// What pauses found, where they were not the answer.
    pub confirmed: Option<Answer>,
    /// What Coz said, where it was asked.
    pub coz: Option<Said>,
    /// In how many of the profiler's runs the interval covers the truth, and how many there were.
    pub covered: (usize, usize),
    /// What is wrong; empty: it passes.
    pub faults: Vec<String>,
}

/// How much a prediction may differ from this gain.
fn off_max(gain: f64) -> f64 {
    OFF_MAX.max(OFF_PART * gain.abs())
}

/// Holds the runs of the profiler against one truth.
pub fn judge(case: &Case, truth: &Truth, predictions: &[Prediction], coz: Option<&Said>) -> Row {
    let answers: Vec<_> =
        predictions.iter().map(|prediction| prediction.answer(case, truth.quantity, truth.speedup)).collect();
    let covers = |answer: &Answer| answer.low <= truth.gain + truth.half && truth.gain - truth.half <= answer.high;
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
    Row {
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

impl Row {
    /// Whether it passes.
    pub fn passes(&self) -> bool {
        self.faults.is_empty()
    }

    /// Whether Coz is as near as ours has to be; `None` where it was not asked or said nothing.
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
            mode: Mode::A,
            samples: 100,
            confirmed: Vec::new(),
            others: Vec::new(),
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

    /// The intervals' ends may just meet; every run counts, not only the one that is shown.
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

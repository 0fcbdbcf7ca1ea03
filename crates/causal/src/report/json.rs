//! A report as JSON: its fields as they are called here, and beside them its sentences (`words`).

use serde::Serialize;

use super::{CurvePoint, Report};

/// What a gain's interval ends at where it is not known: all the time saved, and ten times as much taken.
const ENDS: (f64, f64) = (-10.0, 1.0);

#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    report: &'a Report,
    words: Vec<String>,
}

impl Report {
    /// As JSON, on one line. No number of it is without a value: JSON has no name for those.
    #[must_use]
    pub fn to_json(&self) -> String {
        let report = self.finite();
        let written = Written { words: report.words(), report: &report };
        serde_json::to_string(&written).expect("a report has string keys only")
    }

    /// The report that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// When the text is none: with line, column, and what was expected there.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The same without its stacks, which may be large.
    #[must_use]
    pub fn without_stacks(&self) -> Self {
        Self {
            stacks: Vec::new(),
            program: self.program.clone(),
            speech: self.speech.clone(),
            targets: self.targets.clone(),
            progress: self.progress.clone(),
            load: self.load.clone(),
            perturbation: self.perturbation.clone(),
            reasons: self.reasons.clone(),
            parts: self.parts.clone(),
            ..*self
        }
    }

    /// The same with values for all numbers, to nine digits behind the point: a point of a curve without a gain is left out, an interval without an end is as wide
    /// as can be.
    pub(super) fn finite(&self) -> Self {
        let mut report = self.clone();
        for target in &mut report.targets {
            known(&mut target.share);
            for curve in [&mut target.curve, &mut target.latency, &mut target.confirmed] {
                curve.retain_mut(point);
            }
            for other in &mut target.others {
                other.curve.retain_mut(point);
                other.latency.retain_mut(point);
            }
        }
        for progress in &mut report.progress {
            known(&mut progress.baseline_rate);
            known(&mut progress.baseline_ns);
        }
        let (load, cost) = (&mut report.load, &mut report.perturbation);
        load.elasticity = load.elasticity.filter(|elasticity| elasticity.is_finite());
        let numbers = [
            &mut report.seconds,
            &mut load.utilisation,
            &mut cost.budget,
            &mut cost.paused,
            &mut cost.recording,
            &mut cost.own,
        ];
        numbers.into_iter().chain(&mut load.elasticity).for_each(known);
        report.parts = report.parts.iter().map(Self::finite).collect();
        report
    }
}

/// 0 where there is no value; else without the digits that nobody measured.
fn known(number: &mut f64) {
    *number = if number.is_finite() { (*number * 1e9).round() / 1e9 } else { 0.0 };
}

fn point(point: &mut CurvePoint) -> bool {
    let is_known = point.gain.is_finite() && point.speedup.is_finite();
    let end = |end: f64, bound: f64| if end.is_finite() { end } else { bound };
    (point.low, point.high) = (end(point.low, ENDS.0), end(point.high, ENDS.1));
    for number in [&mut point.speedup, &mut point.gain, &mut point.low, &mut point.high, &mut point.expected] {
        known(number);
    }
    is_known
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::sample::report;
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let report = report();
        assert_eq!(Report::from_json(&report.to_json()).unwrap(), report.finite());
        assert_eq!(Report::from_json(&Report::default().to_json()).unwrap(), Report::default());
        let error = Report::from_json("{\"program\": 1}").unwrap_err().to_string();
        assert!(error.contains("expected a string"), "{error}");
    }

    /// The interface that programs read.
    #[test]
    fn names() {
        let value: Value = serde_json::from_str(&report().to_json()).unwrap();
        let target = &value["targets"][0];
        assert_eq!(
            (&target["name"], &target["kind"], &target["mode"]),
            (&"tls write".into(), &"span".into(), &"B".into())
        );
        for key in ["speedup", "gain", "low", "high", "expected"] {
            assert!(target["curve"][0][key].is_f64(), "{key}");
        }
        assert!(target["share"].is_f64() && target["samples"].is_u64());
        assert_eq!(value["progress"][0]["name"], "request");
        assert!(value["progress"][0]["baseline_rate"].is_f64() && value["progress"][0]["baseline_ns"].is_f64());
        assert_eq!(value["load"]["kind"], "closed");
        assert_eq!(value["reasons"][0]["code"], "imprecise");
        assert!(value["perturbation"]["budget"].is_f64());
        assert_eq!(value["words"].as_array().unwrap().len(), report().words().len());
    }

    #[test]
    fn numbers_without_a_value() {
        let mut report = report();
        report.targets[0].curve[0].gain = f64::NAN;
        report.targets[0].curve[1].low = f64::NEG_INFINITY;
        report.targets[0].curve[1].high = f64::INFINITY;
        report.targets[1].share = f64::NAN;
        report.progress[0].baseline_ns = f64::INFINITY;
        report.load.elasticity = Some(f64::NAN);
        let written = report.to_json();
        let read = Report::from_json(&written).unwrap();
        assert_eq!(read.targets[0].curve.len(), report.targets[0].curve.len() - 1);
        assert_eq!((read.targets[0].curve[0].low, read.targets[0].curve[0].high), ENDS);
        assert_eq!((read.targets[1].share, read.progress[0].baseline_ns, read.load.elasticity), (0.0, 0.0, None));
    }
}

//! A report as JSON: its fields under their Rust names, and its sentences as `words`.

use serde::Serialize;

use super::{CurvePoint, GAIN_ENDS, Report};

#[derive(Serialize)]
struct JsonReport<'a> {
    #[serde(flatten)]
    report: &'a Report,
    words: Vec<String>,
}

impl Report {
    /// The report as JSON, on one line. Numbers that are not finite, which JSON cannot represent, are replaced.
    #[must_use]
    pub fn to_json(&self) -> String {
        // serde_json writes a number that is not finite as `null`, which no reader of this type accepts.
        let report = self.finite();
        let written = JsonReport { words: report.words(), report: &report };
        serde_json::to_string(&written).expect("a report has string keys only")
    }

    /// Reads a report that [`to_json`](Self::to_json) wrote.
    ///
    /// # Errors
    /// If the text is no such report: the error has the line, the column, and the expected value.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// A copy without stacks, which may be large.
    #[must_use]
    pub fn without_stacks(&self) -> Self {
        Self {
            // Field by field: a clone of the whole would copy the stacks first.
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

    /// A copy with finite numbers, rounded to nine decimal places. A curve's point without a gain is removed, a missing
    /// end of an interval becomes its bound.
    pub(super) fn finite(&self) -> Self {
        let mut report = self.clone();
        for target in &mut report.targets {
            known(&mut target.share);
            // A curve may get empty here: then the target has a share and no gain.
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
            progress.baseline_ns = progress.baseline_ns.filter(|time| time.is_finite());
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
        // A part is a report of another process, with a depth of one.
        report.parts = report.parts.iter().map(Self::finite).collect();
        report
    }
}

/// Replaces a number that is not finite by 0, and rounds others to nine decimal places.
fn known(number: &mut f64) {
    *number = if number.is_finite() { (*number * 1e9).round() / 1e9 } else { 0.0 };
}

fn point(point: &mut CurvePoint) -> bool {
    let is_known = point.gain.is_finite() && point.speedup.is_finite();
    let end = |end: f64, bound: f64| if end.is_finite() { end } else { bound };
    (point.low, point.high) = (end(point.low, GAIN_ENDS.0), end(point.high, GAIN_ENDS.1));
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
    use crate::target::{FoldReason, Folded};

    #[test]
    fn reports_round_trip() {
        let report = report();
        assert_eq!(Report::from_json(&report.to_json()).unwrap(), report.finite());
        assert_eq!(Report::from_json(&Report::default().to_json()).unwrap(), Report::default());
        let error = Report::from_json("{\"program\": 1}").unwrap_err().to_string();
        assert!(error.contains("expected a string"), "{error}");
    }

    /// Folded targets are last, with their reason; in a merged report a target is folded if all reports fold it.
    #[test]
    fn folded_targets_are_marked() {
        let mut report = report();
        report.targets[0].folded = Some(Folded { why: FoldReason::Callee, into: "encode".into() });
        report.rank();
        let value: Value = serde_json::from_str(&report.to_json()).unwrap();
        let last = value["targets"].as_array().unwrap().last().unwrap();
        assert_eq!(
            (&last["name"], &last["folded"]["why"], &last["folded"]["into"]),
            (&"tls write".into(), &"callee".into(), &"encode".into())
        );
        assert!(value["targets"][0]["folded"].is_null());
        assert_eq!(Report::from_json(&report.to_json()).unwrap(), report.finite());
        let folded = |reports: Vec<Report>| Report::merged(reports).unwrap().subsumed().count();
        assert_eq!(folded(vec![report.clone(), report.clone()]), 1);
        assert_eq!(folded(vec![report, super::super::sample::report()]), 0);
    }

    /// The field names are an interface for programs.
    #[test]
    fn names() {
        let value: Value = serde_json::from_str(&report().to_json()).unwrap();
        let target = &value["targets"][0];
        assert_eq!(
            (&target["name"], &target["kind"], &target["mode"]),
            (&"tls write".into(), &"span".into(), &"confirmed".into())
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
        report.progress[0].baseline_ns = Some(f64::INFINITY);
        report.load.elasticity = Some(f64::NAN);
        let written = report.to_json();
        let read = Report::from_json(&written).unwrap();
        assert_eq!(read.targets[0].curve.len(), report.targets[0].curve.len() - 1);
        assert_eq!((read.targets[0].curve[0].low, read.targets[0].curve[0].high), GAIN_ENDS);
        assert_eq!((read.targets[1].share, read.progress[0].baseline_ns, read.load.elasticity), (0.0, None, None));
    }
}

//! The profiler's predictions.

use anyhow::{Context, Result, bail};
use causal::report::{self, CurvePoint, GainSource, Report, TargetReport};
use causal::target::TargetKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cases::{CausalCase, Quantity};
use super::program::RunningProgram;
use crate::workshop::Workshop;

/// The prediction of one profiler run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The case's name.
    pub case: String,
    /// The index of the repetition.
    pub repetition: usize,
    /// The report; `None` when the profiler failed.
    pub report: Option<Report>,
    /// The reason why there is no report.
    pub why: Option<String>,
    /// The share of the program's time that it waited for its cores.
    pub disturbed: f64,
}

/// A prediction at one speed-up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub struct PredictedGain {
    /// The gain.
    pub gain: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
}

/// The profiler's parameters.
#[derive(Clone, Copy)]
pub struct ProfileParameters {
    /// Duration in seconds.
    pub seconds: f64,
    /// `both`, `screen` or `confirm`.
    pub mode: &'static str,
}

/// Runs the profiler in a new process of the case's program, under the case's load.
pub fn predict(
    shop: &Workshop,
    case: &CausalCase,
    steps_per_ms: u64,
    asking: ProfileParameters,
    repetition: usize,
) -> Result<Prediction> {
    let mut running = RunningProgram::start(shop, case, steps_per_ms)?;
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mark = running.mark()?;
    let said = running.profile(&json!({
        "seconds": asking.seconds, "mode": asking.mode, "targets": [case.target], "seed": repetition + 1,
    }))?;
    let disturbed = running.since(&mark).map_or(f64::NAN, |stretch| stretch.disturbed);
    let (report, why) = match understood(said) {
        Ok(report) => (Some(report), None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    Ok(Prediction { case: case.name.to_owned(), repetition, report, why, disturbed })
}

/// Parses the report in a program's reply, and drops its stacks, which the record does not need.
pub fn understood(mut said: Value) -> Result<Report> {
    if let Some(error) = said["error"].as_str() {
        bail!("{error}");
    }
    let report: Report = serde_json::from_value(said["report"].take()).context("a report of another shape")?;
    Ok(report.without_stacks())
}

impl Prediction {
    /// Returns the target of that name; else a function, then any target, whose name contains it: names include their
    /// paths.
    pub fn target(&self, name: &str) -> Option<&TargetReport> {
        let targets = &self.report.as_ref()?.targets;
        let mut parts = targets.iter().filter(|target| target.name.contains(name));
        let exact = targets.iter().find(|target| target.name == name);
        exact.or_else(|| parts.clone().find(|target| target.kind == TargetKind::Function)).or_else(|| parts.next())
    }

    /// Returns the prediction, its method, and the result of pauses if they were tried; or the reason for a missing
    /// prediction.
    pub fn answer(
        &self,
        case: &CausalCase,
        quantity: Quantity,
        speedup: u32,
    ) -> Result<(PredictedGain, GainSource, Option<PredictedGain>), String> {
        let Some(report) = &self.report else {
            return Err(self.why.clone().unwrap_or_default());
        };
        let Some(target) = self.target(case.target) else {
            let reasons: Vec<_> = report.reasons.iter().map(|reason| reason.text.as_str()).collect();
            return Err(format!("no target '{}': {}", case.target, reasons.join("; ")));
        };
        let curve = match quantity {
            Quantity::Throughput => &target.curve,
            Quantity::Latency => &target.latency,
        };
        let Some(answer) = at(curve, speedup) else { return Err(format!("no point at {speedup} %")) };
        let confirmed = if quantity == Quantity::Throughput { at(&target.confirmed, speedup) } else { None };
        Ok((answer, target.mode, confirmed))
    }
}

/// Returns the curve's point at this speed-up in percent.
pub fn at(curve: &[CurvePoint], speedup: u32) -> Option<PredictedGain> {
    let point = report::at(curve, f64::from(speedup) / 100.0)?;
    Some(PredictedGain { gain: point.gain, low: point.low, high: point.high })
}

impl PredictedGain {
    /// Returns half of the interval's width.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

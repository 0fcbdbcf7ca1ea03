//! What the profiler says beforehand.

use anyhow::{Context, Result, bail};
use causal::report::{self, CurvePoint, Mode, Report, TargetReport};
use causal::target::TargetKind;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::cases::{Case, Quantity};
use super::program::Running;
use crate::workshop::Workshop;

/// One run of the profiler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prediction {
    /// The case's name.
    pub case: String,
    /// Which of the repetitions.
    pub repetition: usize,
    /// What it said; why there is nothing otherwise.
    pub report: Option<Report>,
    /// Why there is no report.
    pub why: Option<String>,
    /// The part of its time that the program waited while others had its cores.
    pub disturbed: f64,
}

/// An answer at one speed-up.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq)]
pub struct Answer {
    /// The gain.
    pub gain: f64,
    /// Its 95 % interval.
    pub low: f64,
    /// See `low`.
    pub high: f64,
}

/// How the profiler is asked.
#[derive(Clone, Copy)]
pub struct Asking {
    /// How long it may take.
    pub seconds: f64,
    /// `both`, `screen` or `confirm`.
    pub mode: &'static str,
}

/// Runs the profiler in a fresh process of the case's program, under the case's load.
pub fn predict(
    shop: &Workshop,
    case: &Case,
    steps_per_ms: u64,
    asking: Asking,
    repetition: usize,
) -> Result<Prediction> {
    let mut running = Running::start(shop, case, steps_per_ms)?;
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

/// The report in what a program said, without its stacks: a record need not keep these.
pub fn understood(mut said: Value) -> Result<Report> {
    if let Some(error) = said["error"].as_str() {
        bail!("{error}");
    }
    let report: Report = serde_json::from_value(said["report"].take()).context("a report of another shape")?;
    Ok(report.without_stacks())
}

impl Prediction {
    /// The target of that name; else a function, then anything that has it as a part: names come with their paths.
    pub fn target(&self, name: &str) -> Option<&TargetReport> {
        let targets = &self.report.as_ref()?.targets;
        let mut parts = targets.iter().filter(|target| target.name.contains(name));
        let exact = targets.iter().find(|target| target.name == name);
        exact.or_else(|| parts.clone().find(|target| target.kind == TargetKind::Function)).or_else(|| parts.next())
    }

    /// What it answers, what pauses found where they were tried, or why there is no answer.
    pub fn answer(
        &self,
        case: &Case,
        quantity: Quantity,
        speedup: u32,
    ) -> Result<(Answer, Mode, Option<Answer>), String> {
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

/// The curve's point at so many percent.
pub fn at(curve: &[CurvePoint], speedup: u32) -> Option<Answer> {
    let point = report::at(curve, f64::from(speedup) / 100.0)?;
    Some(Answer { gain: point.gain, low: point.low, high: point.high })
}

impl Answer {
    /// Half of the interval.
    pub fn half(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

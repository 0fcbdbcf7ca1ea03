//! `./bench causal`: compares the causal profiler's predictions with measured effects.
//!
//! - [`cases`]: programs with a planted cost, and their loads
//! - [`program`]: a case's program while it runs; [`load`]: its load generator
//! - [`prediction`]: the profiler's prediction; [`truth`]: the measured effect; [`coz`]: Coz's result for the programs
//! - [`verdict`]: which predictions pass; [`page`]: the table and the picture
//! - [`worthless`]: case 9, false alarms; [`cost`]: case 10, the overhead of a profile

mod cases;
mod cost;
mod coz;
mod load;
mod page;
mod prediction;
mod program;
mod truth;
mod verdict;
mod worthless;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine, Ticks};
use crate::progress::Progress;
use crate::record;
use crate::server::Cores;
use crate::workshop::Workshop;
use cases::{CASES, CausalCase, SPEEDUPS};
use coz::{Coz, CozResult};
use prediction::{Prediction, ProfileParameters};
use verdict::VerdictRow;

/// Durations and repetitions.
pub struct CausalSettings {
    /// Names of the cases to run; empty for all.
    pub only: Vec<String>,
    /// Whether Coz is run.
    pub coz: bool,
    /// Whether the profiler is run.
    pub predict: bool,
    arguments: String,
    asking: ProfileParameters,
    repetitions: usize,
    blocks: usize,
    stretch: Duration,
    coz_seconds: u64,
    worthless: (usize, f64),
    cost: (usize, u64, &'static [f64]),
}

impl CausalSettings {
    /// The usual settings, or quick ones.
    pub fn of(quick: bool, arguments: String) -> Self {
        let (only, coz, predict) = (Vec::new(), true, true);
        if quick {
            let asking = ProfileParameters { seconds: 8.0, mode: "both" };
            return Self {
                only,
                coz,
                predict,
                arguments,
                asking,
                repetitions: 1,
                blocks: 4,
                stretch: Duration::from_millis(250),
                coz_seconds: 6,
                worthless: (10, 2.0),
                cost: (4, 10, &[5.0, 10.0]),
            };
        }
        let asking = ProfileParameters { seconds: 30.0, mode: "both" };
        Self {
            only,
            coz,
            predict,
            arguments,
            asking,
            repetitions: 3,
            blocks: 16,
            stretch: Duration::from_millis(250),
            coz_seconds: 15,
            worthless: (100, 3.0),
            cost: (10, 20, &[5.0, 10.0, 20.0, 40.0, 80.0]),
        }
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }

    /// Returns the approximate duration of a case in ms.
    fn planned_ms(&self, case: &CausalCase) -> u64 {
        let predictions = if self.predict { self.repetitions as f64 * (self.asking.seconds + 1.0) } else { 0.0 };
        let truth = (self.blocks * SPEEDUPS.len() * 4) as f64 * (self.stretch.as_secs_f64() + 0.15);
        let coz = if self.coz && case.coz.is_some() { (SPEEDUPS.len() + 1) as u64 * (self.coz_seconds + 1) } else { 0 };
        ((predictions + truth) * 1e3) as u64 + 1000 * coz
    }
}

/// The recorded results of a run.
#[derive(Serialize, Deserialize)]
pub struct Results {
    /// YYYY-MM-DD, UTC.
    pub date: String,
    /// Short commit id, with the suffix `-dirty` for a modified tree.
    pub commit: String,
    /// The machine that ran the bench.
    pub machine: Machine,
    /// The share of processor time that the host took during the run, from 0 to 1.
    pub stolen: f64,
    /// The arguments that affect the results.
    pub arguments: String,
    /// Versions of the tools.
    pub versions: BTreeMap<String, String>,
    /// Steps of a planted cost per millisecond.
    pub steps_per_ms: u64,
    /// One row per case, quantity and speed-up.
    pub rows: Vec<VerdictRow>,
    /// The result of case 9.
    pub worthless: Option<worthless::Worthless>,
    /// The result of case 10.
    pub cost: Option<cost::Cost>,
    /// Skipped parts, with reasons.
    pub skipped: Vec<String>,
}

/// Runs the cases, writing results to a new directory under `parent` after each; returns the directory.
pub fn run(shop: &mut Workshop, settings: &CausalSettings, parent: &Path) -> Result<PathBuf> {
    let names: Vec<&str> = CASES.iter().map(|case| case.name).chain(["worthless", "cost"]).collect();
    for only in &settings.only {
        ensure!(names.contains(&only.as_str()), "unknown case '{only}'; expected one of {}", names.join(", "));
    }
    let cases: Vec<&CausalCase> = CASES.iter().filter(|case| settings.wants(case.name)).collect();
    let mut skipped = Vec::new();
    let coz = match settings.coz && cases.iter().any(|case| case.coz.is_some()) {
        true => Coz::obtain(shop).map_err(|error| skipped.push(format!("Coz: {error:#}"))).ok(),
        false => None,
    };
    let steps_per_ms = program::calibrate(shop)?;
    let mut results = Results {
        date: machine::date()?,
        commit: machine::commit(&shop.root)?,
        machine: Machine::here()?,
        stolen: 0.0,
        arguments: settings.arguments.clone(),
        versions: shop.versions.clone(),
        steps_per_ms,
        rows: Vec::new(),
        worthless: None,
        cost: None,
        skipped,
    };
    let begun = Ticks::now()?;
    let directory = record::create_directory(parent, "causal", &results.date, &results.commit)?;
    let samples = shop.samples.join(directory.file_name().context("a record without a name")?);
    fs::create_dir_all(samples.join("predictions"))?;
    // The load runs in this process; the programs are started on cores of their own.
    Cores::One(1).pin_self()?;
    let (worthless, cost) = (settings.worthless, settings.cost);
    let beside = settings.predict;
    let planned: u64 = cases.iter().map(|case| settings.planned_ms(case)).sum();
    let nine =
        if beside && settings.wants("worthless") { worthless.0 as u64 * (worthless.1 * 1e3 + 500.0) as u64 } else { 0 };
    let ten = if beside && settings.wants("cost") {
        (4 * cost.0 as u64 + 2) * cost.1 * 1000 + (cost.2.iter().sum::<f64>() * 1e3) as u64
    } else {
        0
    };
    let progress = Progress::new(planned + nine + ten);
    for case in cases {
        progress.at(case.title);
        match run_case(shop, settings, case, steps_per_ms, coz.as_ref(), &samples, &progress) {
            Ok(rows) => results.rows.extend(rows),
            // A case that fails is skipped; the remaining cases still run.
            Err(error) => {
                progress.say(&format!("{}: {error:#}", case.name));
                results.skipped.push(format!("{}: {error:#}", case.name));
            }
        }
        write(&mut results, &begun, &directory, &samples)?;
        progress.done(settings.planned_ms(case));
    }
    if nine > 0 {
        progress.at("a target that does nothing");
        match worthless::run(shop, steps_per_ms, worthless.0, worthless.1, &progress) {
            Ok(found) => results.worthless = Some(found),
            Err(error) => results.skipped.push(format!("9: {error:#}")),
        }
    }
    if ten > 0 {
        progress.at("the overhead of a profile");
        match cost::run(shop, steps_per_ms, cost.0, cost.1, cost.2, &progress) {
            Ok(found) => results.cost = Some(found),
            Err(error) => results.skipped.push(format!("10: {error:#}")),
        }
    }
    results.skipped = results.skipped.iter().map(|line| shop.shown(line)).collect();
    write(&mut results, &begun, &directory, &samples)?;
    progress.end();
    Ok(directory)
}

/// Writes down the predictions first; then measures the truth; then runs Coz.
fn run_case(
    shop: &Workshop,
    settings: &CausalSettings,
    case: &CausalCase,
    steps_per_ms: u64,
    coz: Option<&Coz>,
    samples: &Path,
    progress: &Progress,
) -> Result<Vec<VerdictRow>> {
    let mut predictions: Vec<Prediction> = Vec::new();
    if settings.predict {
        for repetition in 0..settings.repetitions {
            let prediction = prediction::predict(shop, case, steps_per_ms, settings.asking, repetition)?;
            let file = samples.join("predictions").join(format!("{}-{}.json", case.name, repetition + 1));
            fs::write(file, serde_json::to_string_pretty(&prediction)? + "\n")?;
            predictions.push(prediction);
        }
    }
    let truths = truth::measure(shop, case, steps_per_ms, &SPEEDUPS, settings.blocks, settings.stretch)?;
    let said: Vec<CozResult> = match (coz, case.coz) {
        (Some(coz), Some(_)) => coz.ask(case, &shop.scratch, steps_per_ms, &SPEEDUPS, settings.coz_seconds)?,
        _ => Vec::new(),
    };
    let rows = truths.iter().map(|truth| {
        // A row without a figure of Coz is judged without it.
        let coz = said.iter().find(|said| said.speedup == truth.speedup);
        verdict::judge(case, truth, &predictions, coz)
    });
    let rows: Vec<VerdictRow> = rows.collect();
    for row in &rows {
        let percent = |answer: Option<f64>| answer.map_or("–".to_owned(), |gain| format!("{:.1}", 100.0 * gain));
        progress.say(&format!(
            "{:>4} {:>10} {:>3} %: truth {:.1} ± {:.1}, predicted {}, pauses {}, Coz {}{}{}",
            row.case,
            format!("{:?}", row.truth.quantity),
            row.truth.speedup,
            100.0 * row.truth.gain,
            100.0 * row.truth.half,
            percent(row.answer.map(|answer| answer.gain)),
            percent(row.confirmed.map(|answer| answer.gain)),
            percent(row.coz.as_ref().and_then(|said| said.gain)),
            if row.truth.disturbed > 0.05 { ", disturbed" } else { "" },
            if row.passes() { String::new() } else { format!("  [{}]", row.faults.join("; ")) },
        ));
    }
    Ok(rows)
}

/// Writes the page and the picture to the record, and all measured pairs to the directory of samples.
fn write(results: &mut Results, begun: &Ticks, directory: &Path, samples: &Path) -> Result<()> {
    results.stolen = Ticks::now()?.stolen_since(begun);
    fs::write(samples.join("results.json"), serde_json::to_string_pretty(&*results)? + "\n")?;
    fs::write(directory.join("README.md"), page::page(results))?;
    if let Some(svg) = page::picture(&results.rows) {
        fs::write(directory.join("predictions.svg"), svg)?;
    }
    Ok(())
}

//! The results of a bench: a directory under `benches/record/` with the figures as JSON, tables and charts. A record is
//! committed, so it holds medians and spreads only; the samples stay in `benches/target/samples/`.
//!
//! - [`table`]: the figures as markdown
//! - [`chart`]: the figures as SVG
//! - [`compare`]: compares two records, and lists changes beyond the noise

pub mod chart;
pub mod compare;
pub mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::machine::{self, Machine};
use crate::stats;
use crate::workshop::Workshop;

/// A run of a bench.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// `peers`, `sources`, …
    pub bench: String,
    /// YYYY-MM-DD, UTC.
    pub date: String,
    /// Short commit id, with the suffix `-dirty` for a modified tree.
    pub commit: String,
    /// The machine that ran the bench.
    pub machine: Machine,
    /// The arguments that affect the results.
    pub arguments: String,
    /// Versions of all peers and tools.
    pub versions: BTreeMap<String, String>,
    /// Skipped parts, with reasons.
    pub skipped: Vec<String>,
    /// The results.
    pub tables: Vec<Table>,
}

impl Record {
    /// Begins a run, and records the current commit, which may change during the run.
    pub fn begin(bench: &str, shop: &Workshop, arguments: String) -> Result<Self> {
        Ok(Self {
            bench: bench.to_owned(),
            date: machine::date()?,
            commit: machine::commit(&shop.root)?,
            machine: Machine::here()?,
            arguments,
            versions: BTreeMap::new(),
            skipped: Vec::new(),
            tables: Vec::new(),
        })
    }

    /// Adds the tables, versions and skipped parts.
    pub fn finish(self, shop: &Workshop, tables: Vec<Table>) -> Self {
        Self { versions: shop.versions.clone(), skipped: shop.skipped.clone(), tables, ..self }
    }
}

/// The results of a scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// Short and stable: `compare` matches tables by it, and files are named after it.
    pub name: String,
    /// The title for readers.
    pub title: String,
    /// The method of measurement, in a sentence or two.
    pub how: String,
    /// The chart's content; `None` for no chart.
    pub chart: Option<Chart>,
    /// One row per peer.
    pub rows: Vec<Row>,
}

/// The metrics that a chart draws, by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// Metrics that are stacked in one bar.
    pub bars: Vec<String>,
    /// The metric displayed after the bar.
    pub label: Option<String>,
}

/// The results of a peer in a scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The peer's name.
    pub name: String,
    /// Notes for reading this row.
    pub notes: Vec<String>,
    /// The figures, in column order.
    pub metrics: Vec<Metric>,
}

/// A figure with its uncertainty.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metric {
    /// The column's name.
    pub name: String,
    /// The unit: `µs`, `1/s`, …; empty for a plain number.
    pub unit: String,
    /// The method of measurement, which determines the typical drift between runs.
    pub kind: MetricKind,
    /// Whether lower or higher is better.
    pub better: Better,
    /// Median of the samples.
    pub median: f64,
    /// Standard error of the median.
    pub spread: f64,
    /// The number of samples; 0 in records that were written before this field existed.
    #[serde(default)]
    pub count: usize,
    /// One sample per round. Empty in a record that was read from its directory.
    #[serde(skip)]
    pub samples: Vec<f64>,
}

/// The method by which a figure was measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub enum MetricKind {
    /// A ratio to an adjacent measurement.
    Paired,
    /// A time or rate on its own, which drifts with the machine.
    Timed,
    /// A count or nearly one: system calls, bytes, objects.
    Counted,
}

/// The direction of improvement.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub enum Better {
    /// Costs.
    Lower,
    /// Rates.
    Higher,
}

impl Metric {
    /// Creates a metric from samples.
    pub fn new(name: &str, unit: &str, kind: MetricKind, better: Better, samples: Vec<f64>) -> Self {
        let (median, spread) = (stats::median(&samples), stats::spread(&samples));
        let count = samples.len();
        Self { name: name.to_owned(), unit: unit.to_owned(), kind, better, median, spread, count, samples }
    }

    /// A cost that drifts with the machine.
    pub fn time(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        Self::new(name, unit, MetricKind::Timed, Better::Lower, samples)
    }

    /// A rate that drifts with the machine.
    pub fn rate(name: &str, samples: Vec<f64>) -> Self {
        Self::new(name, "1/s", MetricKind::Timed, Better::Higher, samples)
    }

    /// A count.
    pub fn count(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        Self::new(name, unit, MetricKind::Counted, Better::Lower, samples)
    }

    /// A paired ratio.
    pub fn ratio(name: &str, samples: Vec<f64>) -> Self {
        Self::new(name, "", MetricKind::Paired, Better::Lower, samples)
    }
}

/// Prefix of the note that other processes had the server's core.
const DISTURBED: &str = "waited for its core";

impl Row {
    /// Notes that another process had the server's core for `percent` of the time.
    pub fn note_disturbed(&mut self, percent: f64) {
        self.notes.push(format!("{DISTURBED} {percent:.0} % of the time because of other processes"));
    }

    /// Whether that note was added.
    pub fn is_disturbed(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with(DISTURBED))
    }

    /// Creates a row without metrics.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), notes: Vec::new(), metrics: Vec::new() }
    }

    /// Returns the metric of that name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

impl Record {
    /// Writes `results.json`, `README.md` and a chart for each table to a new directory under `parent`; returns it.
    /// The samples are written to a file of the same name under `samples`.
    pub fn save(&self, parent: &Path, samples: &Path) -> Result<PathBuf> {
        let directory = create_directory(parent, &self.bench, &self.date, &self.commit)?;
        // People read README.md; this file is for `compare`, so it is without spaces.
        fs::write(directory.join("results.json"), serde_json::to_string(self)? + "\n")?;
        fs::write(directory.join("README.md"), table::page(self))?;
        for table in &self.tables {
            if let Some(svg) = chart::svg(table) {
                fs::write(directory.join(chart::file(table)), svg)?;
            }
        }
        fs::create_dir_all(samples).with_context(|| format!("creating {}", samples.display()))?;
        let file = samples.join(directory.file_name().context("a record without a name")?).with_extension("json");
        fs::write(file, serde_json::to_string(&self.samples())? + "\n")?;
        Ok(directory)
    }

    /// Lists the samples of every figure.
    fn samples(&self) -> Vec<serde_json::Value> {
        let rows = self.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        let figures = rows.flat_map(|(table, row)| row.metrics.iter().map(move |metric| (table, row, metric)));
        figures
            .map(|(table, row, metric)| {
                let Metric { name, unit, samples, .. } = metric;
                json!({ "table": table.name, "row": row.name, "metric": name, "unit": unit, "samples": samples })
            })
            .collect()
    }

    /// Reads a record from its directory or its `results.json`.
    pub fn load(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join("results.json") } else { path.to_owned() };
        let json = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_str(&json).with_context(|| format!("{} is not a bench record", file.display()))
    }
}

/// Creates a directory for a record under `parent`, named after the bench, the date and the commit.
pub fn create_directory(parent: &Path, bench: &str, date: &str, commit: &str) -> Result<PathBuf> {
    let name = format!("{bench}-{date}-{commit}");
    let directory = (1..)
        .map(|count| parent.join(if count == 1 { name.clone() } else { format!("{name}-{count}") }))
        .find(|directory| !directory.exists())
        .context("no free name")?;
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    Ok(directory)
}

/// Returns a record for tests.
#[cfg(test)]
pub fn sample(ratios: Vec<f64>) -> Record {
    let mut row = Row::new("hyper <1>");
    row.metrics = vec![
        Metric::time("user", "µs", vec![1.0, 1.2, 1.1]),
        Metric::time("system", "µs", vec![4.0, 4.2, 4.1]),
        Metric::ratio("ratio", ratios),
    ];
    row.notes.push("only a test".to_owned());
    let mut limit = Row::new("limit");
    limit.metrics = vec![Metric::time("user", "µs", vec![0.1]), Metric::time("system", "µs", vec![3.0])];
    Record {
        bench: "peers".to_owned(),
        date: "2026-11-21".to_owned(),
        commit: "abc1234".to_owned(),
        machine: Machine { cpu: "a CPU".to_owned(), cores: 2, kernel: "6.1".to_owned(), memory_gib: 4 },
        arguments: String::new(),
        versions: BTreeMap::from([("hyper".to_owned(), "1.0".to_owned())]),
        skipped: vec!["caddy: not there".to_owned()],
        tables: vec![Table {
            name: "minimal".to_owned(),
            title: "Minimal".to_owned(),
            how: "In a test.".to_owned(),
            chart: Some(Chart { bars: vec!["user".to_owned(), "system".to_owned()], label: Some("ratio".to_owned()) }),
            rows: vec![limit, row],
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_as_it_went_and_never_overwrites() {
        let parent = std::env::temp_dir().join(format!("causeway-bench-record-{}", std::process::id()));
        let samples = parent.join("samples");
        let record = sample(vec![1.3, 1.4, 1.35]);
        let first = record.save(&parent, &samples).unwrap();
        let second = record.save(&parent, &samples).unwrap();
        assert_ne!(first, second);
        let back = Record::load(&first).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&record).unwrap());
        assert!(first.join("minimal.svg").is_file() && first.join("README.md").is_file());
        let ratio = &back.tables[0].rows[1].metrics[2];
        assert!(ratio.count == 3 && ratio.samples.is_empty(), "{ratio:?}");
        let raw = fs::read_to_string(samples.join("peers-2026-11-21-abc1234-2.json")).unwrap();
        let raw: serde_json::Value = serde_json::from_str(&raw).unwrap();
        assert_eq!(raw[4]["samples"], json!([1.3, 1.4, 1.35]), "{raw}");
        fs::remove_dir_all(parent).unwrap();
    }

    #[test]
    fn every_committed_record_loads() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("record");
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.join("results.json").exists() {
                let record = Record::load(&path).unwrap();
                assert!(record.tables.iter().all(|table| !table.rows.is_empty()), "{}", path.display());
            }
        }
    }
}

//! What a bench leaves behind: one directory under `benches/record/` with the figures as JSON, as tables and as charts.
//!
//! - [`table`]: the figures as markdown
//! - [`chart`]: the figures as SVG
//! - [`compare`]: two records side by side, and what moved beyond the noise

pub mod chart;
pub mod compare;
pub mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::machine::{self, Machine};
use crate::stats;
use crate::workshop::Workshop;

/// One run of one bench.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// `peers`, `sources`, …
    pub bench: String,
    /// YYYY-MM-DD, UTC.
    pub date: String,
    /// Short id, with `-dirty` behind it if the tree differed.
    pub commit: String,
    /// The machine measured on.
    pub machine: Machine,
    /// The arguments that change what is measured.
    pub arguments: String,
    /// Every peer's and tool's version.
    pub versions: BTreeMap<String, String>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
}

impl Record {
    /// A run that begins now. What is measured is what stands there at this moment, whatever happens to the repository later.
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

    /// The run with its figures, and what it took to get them.
    pub fn finish(self, shop: &Workshop, tables: Vec<Table>) -> Self {
        Self { versions: shop.versions.clone(), skipped: shop.skipped.clone(), tables, ..self }
    }
}

/// One scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Table {
    /// Short and stable: `compare` matches by it, files are named by it.
    pub name: String,
    /// What a reader sees.
    pub title: String,
    /// How it was measured, in a sentence or two.
    pub how: String,
    /// What the chart shows; none without.
    pub chart: Option<Chart>,
    /// One a peer.
    pub rows: Vec<Row>,
}

/// Which metrics a chart draws, by name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Chart {
    /// Metrics that are stacked to one bar.
    pub bars: Vec<String>,
    /// A metric written behind the bar.
    pub label: Option<String>,
}

/// One peer in one scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    /// The peer.
    pub name: String,
    /// What to know when reading this row.
    pub notes: Vec<String>,
    /// The figures, in column order.
    pub metrics: Vec<Metric>,
}

/// One figure and how far to trust it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Metric {
    /// The column.
    pub name: String,
    /// `µs`, `1/s`, …; empty for a plain number.
    pub unit: String,
    /// How it came to be, which says how far it may wander by itself.
    pub kind: Kind,
    /// What a lower or higher figure means.
    pub better: Better,
    /// Median of the samples.
    pub median: f64,
    /// Standard error of the median.
    pub spread: f64,
    /// One a round.
    pub samples: Vec<f64>,
}

/// How a figure came to be.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub enum Kind {
    /// A ratio to what was measured right beside it.
    Paired,
    /// A time or a rate by itself: drifts with the machine.
    Timed,
    /// Counted or nearly so: system calls, octets, objects.
    Counted,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, PartialEq, Eq)]
pub enum Better {
    /// Costs.
    Lower,
    /// Rates.
    Higher,
}

impl Metric {
    /// A metric of some samples.
    pub fn new(name: &str, unit: &str, kind: Kind, better: Better, samples: Vec<f64>) -> Self {
        let (median, spread) = (stats::median(&samples), stats::spread(&samples));
        Self { name: name.to_owned(), unit: unit.to_owned(), kind, better, median, spread, samples }
    }

    /// A cost that drifts with the machine.
    pub fn time(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        Self::new(name, unit, Kind::Timed, Better::Lower, samples)
    }

    /// A rate that drifts with the machine.
    pub fn rate(name: &str, samples: Vec<f64>) -> Self {
        Self::new(name, "1/s", Kind::Timed, Better::Higher, samples)
    }

    /// A count.
    pub fn count(name: &str, unit: &str, samples: Vec<f64>) -> Self {
        Self::new(name, unit, Kind::Counted, Better::Lower, samples)
    }

    /// A paired ratio.
    pub fn ratio(name: &str, samples: Vec<f64>) -> Self {
        Self::new(name, "", Kind::Paired, Better::Lower, samples)
    }
}

/// How a note begins that says another process had the server's core.
const DISTURBED: &str = "waited for its core";

impl Row {
    /// Notes that another process had the server's core for `percent` of the time.
    pub fn note_disturbed(&mut self, percent: f64) {
        self.notes.push(format!("{DISTURBED} {percent:.0} % of the time: other processes disturbed it"));
    }

    /// Whether that was noted.
    pub fn is_disturbed(&self) -> bool {
        self.notes.iter().any(|note| note.starts_with(DISTURBED))
    }

    /// A row to be filled.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), notes: Vec::new(), metrics: Vec::new() }
    }

    /// The metric of that name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

impl Record {
    /// Writes `results.json`, `README.md` and a chart for each table to a new directory under `parent`; returns it.
    pub fn save(&self, parent: &Path) -> Result<PathBuf> {
        let directory = create_directory(parent, &self.bench, &self.date, &self.commit)?;
        fs::write(directory.join("results.json"), serde_json::to_string_pretty(self)? + "\n")?;
        fs::write(directory.join("README.md"), table::page(self))?;
        for table in &self.tables {
            if let Some(svg) = chart::svg(table) {
                fs::write(directory.join(chart::file(table)), svg)?;
            }
        }
        Ok(directory)
    }

    /// Reads a record from its directory or its `results.json`.
    pub fn load(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join("results.json") } else { path.to_owned() };
        let json = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        serde_json::from_str(&json).with_context(|| format!("{} is not a bench record", file.display()))
    }
}

/// A new directory for a record under `parent`: its name says what was measured, when and of which commit.
pub fn create_directory(parent: &Path, bench: &str, date: &str, commit: &str) -> Result<PathBuf> {
    let name = format!("{bench}-{date}-{commit}");
    let directory = (1..)
        .map(|count| parent.join(if count == 1 { name.clone() } else { format!("{name}-{count}") }))
        .find(|directory| !directory.exists())
        .context("no free name")?;
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    Ok(directory)
}

/// A record for tests.
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
        let record = sample(vec![1.3, 1.4, 1.35]);
        let first = record.save(&parent).unwrap();
        let second = record.save(&parent).unwrap();
        assert_ne!(first, second);
        let back = Record::load(&first).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), serde_json::to_string(&record).unwrap());
        assert!(first.join("minimal.svg").is_file() && first.join("README.md").is_file());
        fs::remove_dir_all(parent).unwrap();
    }
}

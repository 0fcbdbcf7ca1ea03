//! `./bench inprocess`: measures pieces of the request path separately. The binary `inprocess`
//! (`src/bin/inprocess/main.rs`) measures and counts its own allocations; this file runs it in rounds and records its
//! output.

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::machine;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::server::Cores;
use crate::workshop::{self, Workshop};

/// One measured case, as printed by the binary.
#[derive(Debug, Deserialize)]
pub struct CaseLine {
    /// The piece of the path.
    pub table: String,
    /// The name of its input.
    pub input: String,
    /// The name of the implementation.
    pub name: String,
    /// Nanoseconds per turn.
    pub ns: f64,
    /// Bytes allocated per turn.
    pub bytes: f64,
    /// Allocations per turn.
    pub allocations: f64,
    /// Time divided by that of the table's first case, block by block.
    pub ratio: f64,
}

/// Runs all cases, or those of one table, once on core 0, each for `seconds`.
pub fn lines(shop: &Workshop, seconds: f64, table: Option<&str>) -> Result<Vec<CaseLine>> {
    said_by(shop, "inprocess", seconds, table)
}

/// Runs one of our programs that print such lines, and parses its output.
pub fn said_by(shop: &Workshop, program: &str, seconds: f64, table: Option<&str>) -> Result<Vec<CaseLine>> {
    let command = shop.binaries.join(program);
    let said = machine::output(Cores::One(0).command().arg(command).arg(seconds.to_string()).args(table))?;
    said.lines().map(|line| serde_json::from_str(line).with_context(|| format!("{program} said {line:?}"))).collect()
}

/// Runs all cases in rounds.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("inprocess", shop, arguments)?;
    let (rounds, seconds) = if quick { (3, 0.1) } else { (7, 0.5) };
    let lock = std::fs::read_to_string(shop.bench.join("Cargo.lock"))?;
    shop.versions.insert("httparse".to_owned(), workshop::locked(&lock, "httparse"));
    let progress = Progress::new(rounds);
    let mut measured: Vec<Vec<CaseLine>> = Vec::new();
    for round in 0..rounds {
        progress.at(&format!("round {} of {rounds}", round + 1));
        measured.push(lines(shop, seconds, None)?);
        progress.done(1);
    }
    let tables = tables(&measured);
    for table in &tables {
        progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(table)));
    }
    progress.end();
    Ok(record.finish(shop, tables))
}

/// Returns one table per piece and input, in order of first appearance.
pub fn tables(rounds: &[Vec<CaseLine>]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for (place, line) in rounds.first().into_iter().flatten().enumerate() {
        let each = |figure: fn(&CaseLine) -> f64| {
            rounds.iter().filter_map(|round| round.get(place)).map(figure).collect::<Vec<_>>()
        };
        let row = Row {
            name: line.name.clone(),
            notes: Vec::new(),
            metrics: vec![
                Metric::time("time", "ns", each(|line| line.ns)),
                Metric::count("allocations", "", each(|line| line.allocations)),
                Metric::count("allocated", "bytes", each(|line| line.bytes)),
                Metric::ratio("ratio to the first", each(|line| line.ratio)),
            ],
        };
        let name = format!("{}-{}", line.table, line.input).replace(' ', "-");
        match tables.iter_mut().find(|table| table.name == name) {
            Some(table) => table.rows.push(row),
            None => tables.push(Table {
                name,
                title: format!("{}, {}", line.table, line.input),
                how: "One thread on core 0. The cases alternate in blocks of 0.1 ms; a ratio is between adjacent blocks. Medians over the blocks of a round, then over the rounds.".to_owned(),
                chart: Some(Chart { bars: vec!["time".to_owned()], label: None }),
                rows: vec![row],
            }),
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_of_one_piece_share_a_table() {
        let round = |ns: f64| {
            let line = |table: &str, input: &str, name: &str| CaseLine {
                table: table.to_owned(),
                input: input.to_owned(),
                name: name.to_owned(),
                ns,
                bytes: 0.0,
                allocations: 0.0,
                ratio: 1.0,
            };
            vec![line("parse", "six lines", "a"), line("parse", "six lines", "b"), line("respond", "hello", "a")]
        };
        let tables = tables(&[round(1.0), round(3.0), round(2.0)]);
        let shape: Vec<_> = tables.iter().map(|table| (table.name.as_str(), table.rows.len())).collect();
        assert_eq!(shape, [("parse-six-lines", 2), ("respond-hello", 1)]);
        assert_eq!(tables[0].rows[0].metrics[0].median, 2.0);
    }
}

//! `./bench progress`: the cost of the causal profiler's hooks, compared with std's locks, channels and threads. The
//! binary `hooks` does the measurement; this file runs it in rounds, and once more under callgrind, which counts
//! instructions.

use anyhow::{Context, Result};

use crate::inprocess;
use crate::machine;
use crate::progress::Progress;
use crate::record::{Metric, Record, Row, Table};
use crate::server::Cores;
use crate::workshop::{self, Workshop};

/// The target for a request's hooks without a profile, in ns.
const TARGET_NS: f64 = 15.0;

/// Runs all cases in rounds.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let record = Record::begin("progress", shop, arguments)?;
    let (rounds, seconds) = if quick { (3, 0.05) } else { (7, 0.2) };
    let progress = Progress::new(rounds + 1);
    let mut measured = Vec::new();
    for round in 0..rounds {
        progress.at(&format!("round {} of {rounds}", round + 1));
        measured.push(inprocess::said_by(shop, "hooks", seconds, None)?);
        progress.done(1);
    }
    let mut tables = inprocess::tables(&measured);
    // `hooks` counts no allocations.
    for row in tables.iter_mut().flat_map(|table| &mut table.rows) {
        row.metrics.retain(|metric| !metric.name.starts_with("allocat"));
    }
    note_target(&mut tables);
    progress.at("counting instructions");
    match shop.packaged("valgrind", "valgrind") {
        Ok(valgrind) => {
            shop.versions.insert("valgrind".to_owned(), workshop::version(&valgrind, "--version"));
            tables.push(instructions(shop, &valgrind)?);
        }
        Err(missing) => shop.skipped.push(format!("instructions: {missing:#}")),
    }
    progress.done(1);
    for table in &tables {
        progress.show(table);
    }
    progress.end();
    Ok(record.finish(shop, tables))
}

/// Adds the target to the row.
fn note_target(tables: &mut [Table]) {
    for row in
        tables.iter_mut().filter(|table| table.name == "hooks-the-20-of-a-request").flat_map(|table| &mut table.rows)
    {
        if row.name == "off" {
            let time = row.metric("time").map_or(f64::NAN, |time| time.median);
            let verdict = if time <= TARGET_NS { "kept" } else { "missed" };
            row.notes.push(format!("wanted: at most {TARGET_NS} ns a request; {verdict}"));
        }
    }
}

/// Returns the instructions per request: the difference of a longer and a shorter run.
fn instructions(shop: &Workshop, valgrind: &std::path::Path) -> Result<Table> {
    const LESS: u64 = 10_000;
    const MORE: u64 = 30_000;
    let mut rows = Vec::new();
    for which in ["none", "off"] {
        let count = |requests: u64| -> Result<u64> {
            let mut command = Cores::One(0).command();
            command.arg(valgrind).args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
            command.arg(shop.binaries.join("hooks")).args(["count", which, &requests.to_string()]);
            let said = machine::output(&mut command)?;
            collected(&said).with_context(|| format!("callgrind said {said:?}"))
        };
        let each = (count(MORE)? - count(LESS)?) as f64 / (MORE - LESS) as f64;
        let mut row = Row::new(which);
        row.metrics = vec![Metric::count("instructions", "", vec![each])];
        rows.push(row);
    }
    Ok(Table {
        name: "instructions".to_owned(),
        title: "Instructions, the 20 hooks of a request".to_owned(),
        how: format!(
            "Callgrind: the instructions of {MORE} requests minus those of {LESS}, divided by the difference."
        ),
        chart: None,
        rows,
    })
}

/// Parses the sum that callgrind prints at its end.
fn collected(said: &str) -> Option<u64> {
    said.lines().find_map(|line| line.split_once("Collected : "))?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callgrind_says_what_it_collected() {
        let said = "==7== Events    : Ir\n==7== Collected : 1234567\n==7==\n==7== I   refs:      1,234,567\n";
        assert_eq!(collected(said), Some(1_234_567));
        assert_eq!(collected("==7== no figure"), None);
    }
}

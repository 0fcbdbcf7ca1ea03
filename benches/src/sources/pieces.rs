//! Single functions: a source's function in its own language, and ours from the binary `inprocess`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::Extent;
use crate::inprocess;
use crate::machine;
use crate::peers;
use crate::placeholders;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::server::Cores;
use crate::side_by_side::skip;
use crate::workshop::{self, Workshop};

/// A line that a measuring program prints.
#[derive(Deserialize)]
struct PieceLine {
    name: String,
    ns: f64,
    bytes: Option<f64>,
    #[serde(alias = "objects")]
    allocations: Option<f64>,
}

/// The figures by name, in the order of first appearance.
#[derive(Default)]
struct Pieces(Vec<(String, [Vec<f64>; 3])>);

impl Pieces {
    fn add(&mut self, line: PieceLine) {
        let place = self.0.iter().position(|(name, _)| *name == line.name).unwrap_or_else(|| {
            self.0.push((line.name.clone(), Default::default()));
            self.0.len() - 1
        });
        let figures = [Some(line.ns), line.bytes, line.allocations];
        for (samples, figure) in self.0[place].1.iter_mut().zip(figures) {
            samples.extend(figure);
        }
    }

    /// Adds the figures of `inprocess` for `table` and `input`, under names converted by `named`.
    fn add_ours(&mut self, shop: &Workshop, table: &str, input: &str, named: impl Fn(&str) -> String) -> Result<()> {
        for line in inprocess::lines(shop, 0.2, Some(table))?.into_iter().filter(|line| line.input == input) {
            let (bytes, allocations) = (Some(line.bytes), Some(line.allocations));
            self.add(PieceLine { name: named(&line.name), ns: line.ns, bytes, allocations });
        }
        Ok(())
    }

    /// Adds the figures that another program printed, under names converted by `named`.
    fn add_theirs(&mut self, said: &str, named: impl Fn(&str) -> String) -> Result<()> {
        for line in said.lines() {
            let line: PieceLine = serde_json::from_str(line)?;
            self.add(PieceLine { name: named(&line.name), ..line });
        }
        Ok(())
    }

    /// As [`table`](Self::table), but each row after the first with the same name up to the colon gets its ratio to
    /// that first row, round by round.
    fn table_of_pairs(mut self, name: &str, title: &str, how: &str) -> Table {
        let what = |name: &str| name.split_once(':').map_or(String::new(), |(what, _)| what.to_owned());
        let mut order = Vec::new();
        for (name, _) in &self.0 {
            if !order.contains(&what(name)) {
                order.push(what(name));
            }
        }
        // Rows with equal prefixes become adjacent. The sort is stable, so the reference stays first.
        self.0.sort_by_key(|(name, _)| order.iter().position(|known| *known == what(name)));
        let times: Vec<_> = self.0.iter().map(|(name, [ns, ..])| (what(name), ns.clone())).collect();
        let mut table = self.table(name, title, how);
        for (place, row) in table.rows.iter_mut().enumerate() {
            let (what, ours) = &times[place];
            let first = times.iter().position(|(other, _)| other == what).unwrap_or(place);
            if first != place {
                let ratios = ours.iter().zip(&times[first].1).map(|(ours, theirs)| ours / theirs).collect();
                row.metrics.push(Metric::ratio("ratio to the other", ratios));
            }
        }
        table.chart = Some(Chart { bars: vec!["time".to_owned()], label: Some("ratio to the other".to_owned()) });
        table
    }

    fn table(self, name: &str, title: &str, how: &str) -> Table {
        let rows = self.0.into_iter().map(|(name, [ns, bytes, allocations])| {
            let mut metrics = vec![Metric::time("time", "ns", ns)];
            if !bytes.is_empty() {
                metrics.push(Metric::count("allocated", "bytes", bytes));
            }
            if !allocations.is_empty() {
                metrics.push(Metric::count("allocations", "", allocations));
            }
            Row { name, notes: Vec::new(), metrics }
        });
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            how: how.to_owned(),
            chart: Some(Chart { bars: vec!["time".to_owned()], label: None }),
            rows: rows.collect(),
        }
    }
}

/// Measures Crystal's own benchmark: one request of six lines, from a file and from memory.
pub(super) fn parser(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let crystal = match peers::obtain_crystal(shop, "from_io") {
        Ok(tool) => tool,
        Err(error) => {
            skip(shop, "Crystal's from_io", &error);
            return Ok(None);
        }
    };
    shop.versions.insert("crystal".to_owned(), crystal.version);
    let file = shop.scratch.join("six-lines.http");
    std::fs::write(&file, request::SIX_LINES)?;
    let mut pieces = Pieces::default();
    for round in 0..extent.rounds {
        progress.at(&format!("parsing six lines, round {}", round + 1));
        let said = machine::output(Cores::One(0).command().arg(&crystal.program).arg(&file).arg("0.5"))?;
        pieces.add_theirs(&said, |name| format!("Crystal from_io, {name}"))?;
        pieces.add_ours(shop, "parse", "six lines", str::to_owned)?;
        progress.done(2500);
    }
    Ok(Some(pieces.table(
        "from-io",
        "Parsing a six-line request",
        "Crystal's HTTP::Request.from_io from a file and from memory, as its pull request 8002 measures it, and parsers in this process; \
         all on core 0 in alternation.",
    )))
}

/// Builds our program that links Caddy's code. Its version is that of the module.
fn obtain_caddy(shop: &mut Workshop) -> Result<PathBuf> {
    let directory = shop.bench.join("peers/caddy");
    let sources = ["main.go", "go.mod", "go.sum"].map(|file| directory.join(file));
    let output = shop.tools.join("caddy-pieces");
    let go = shop.packaged("go", "golang-go")?;
    let mut build = Command::new(go);
    build.current_dir(&directory).args(["build", "-o"]).arg(output).arg(".");
    let program = shop.built("caddy-pieces", &sources, &mut build)?;
    let module = std::fs::read_to_string(&sources[1])?;
    let version = module.lines().find_map(|line| line.strip_prefix("require github.com/caddyserver/caddy/v2 "));
    shop.versions.insert("caddy".to_owned(), version.unwrap_or("unknown").to_owned());
    Ok(program)
}

/// Measures Caddy's PrepareRequest and our preparation of an exchange's context: one request, and twenty workers with
/// five each.
pub(super) fn prepare(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let program = match obtain_caddy(shop) {
        Ok(program) => program,
        Err(error) => {
            skip(shop, "Caddy's PrepareRequest", &error);
            return Ok(None);
        }
    };
    let file = shop.scratch.join("browser.http");
    std::fs::write(&file, request::browser("/articles/2026/11/a-page.html?page=2"))?;
    let mut pieces = Pieces::default();
    for round in 0..extent.rounds {
        progress.at(&format!("Caddy's PrepareRequest, round {}", round + 1));
        let said = machine::output(Cores::One(0).command().arg(&program).arg("prepare").arg(&file))?;
        pieces.add_theirs(&said, |name| format!("{name}: Caddy"))?;
        let one = |name: &str| format!("one: {}", name.replacen("causeway, prepared", "causeway", 1));
        pieces.add_ours(shop, "prepare", "browser-like", one)?;
        pieces.add_ours(shop, "prepare by 20", "browser-like", |name| format!("{name}: causeway"))?;
        progress.done(2500);
    }
    Ok(Some(pieces.table_of_pairs(
        "prepare-request",
        "Preparing a request for its handlers",
        "Caddy's PrepareRequest with a new replacer for each request, as its server calls it; on core 0, with the heads already parsed. \
         One request (ours also recycled), and, as Caddy's pull request 4649 measures it, 20 workers that prepare 5 requests each: \
         goroutines for Caddy and connection tasks for ours, in both cases either started each time or existing and woken.",
    )))
}

/// Measures Caddy's replacer and our templates, each for a request in flight.
pub(super) fn placeholders(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let program = match obtain_caddy(shop) {
        Ok(program) => program,
        Err(error) => {
            skip(shop, "Caddy's replacer", &error);
            return Ok(None);
        }
    };
    let file = shop.scratch.join("fifteen-fields.http");
    std::fs::write(&file, placeholders::request())?;
    let cases = serde_json::to_vec(&placeholders::json())?;
    let mut pieces = Pieces::default();
    for round in 0..extent.rounds {
        progress.at(&format!("Caddy's replacer, round {}", round + 1));
        let mut child = Cores::One(0).command();
        child.arg(&program).arg("placeholders").arg(&file).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.stderr(Stdio::piped()).spawn()?;
        child.stdin.take().context("a piped input")?.write_all(&cases)?;
        let done = child.wait_with_output()?;
        ensure!(done.status.success(), "caddy-pieces: {}", String::from_utf8_lossy(&done.stderr).trim());
        pieces.add_theirs(std::str::from_utf8(&done.stdout)?, |name| format!("{name}: Caddy"))?;
        pieces.add_ours(shop, "placeholders", "15 fields and variables", |name| {
            match name.split_once(", to a chunk") {
                Some((name, _)) => format!("{name}: causeway, to a chunk"),
                None => format!("{name}: causeway"),
            }
        })?;
        progress.done(6000);
    }
    Ok(Some(pieces.table_of_pairs(
        "placeholders",
        "Evaluating placeholders",
        "A request in flight with 15 fields and 15 variables; on core 0. Caddy's Replacer.ReplaceAll, which returns a string; ours \
         rendered to a text in the exchange's storage, as for fields and matchers, or to a chunk of the worker's pool, as for a body.",
    )))
}

/// Measures new, write and finish of Rack::Response; ours builds and encodes a response.
pub(super) fn rack_response(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let mut pieces = Pieces::default();
    for round in 0..extent.rounds {
        progress.at(&format!("Rack::Response, round {}", round + 1));
        match rack_line(shop, extent) {
            Ok(line) => pieces.add(line),
            Err(error) => {
                skip(shop, "Rack::Response", &error);
                return Ok(None);
            }
        }
        pieces.add_ours(shop, "respond", "hello", str::to_owned)?;
        progress.done((extent.seconds * 1000.0) as u64);
    }
    Ok(Some(pieces.table(
        "rack-response",
        "One response: new, write, finish",
        "Rack::Response.new, write, finish, as Rack's pull request 1325 measures it, on core 0; allocations are objects of Ruby's heap.",
    )))
}

fn rack_line(shop: &mut Workshop, extent: &Extent) -> Result<PieceLine> {
    let ruby = shop.packaged("ruby", "ruby")?;
    let script = shop.bench.join("peers/ruby/rack_response.rb");
    let mut command = Cores::One(0).command();
    let done = command.arg(&ruby).arg(&script).arg(extent.seconds.to_string()).stdin(Stdio::null()).output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("LoadError") {
            bail!("Ruby cannot load rack: run `apt-get install -y ruby-rack`, or `gem install rack`");
        }
        bail!("rack_response.rb: {}", said.trim());
    }
    shop.versions.insert("ruby".to_owned(), workshop::version(&ruby, "--version"));
    let line: serde_json::Value = serde_json::from_slice(&done.stdout)?;
    shop.versions.insert("rack".to_owned(), line["version"].as_str().unwrap_or("unknown").to_owned());
    Ok(serde_json::from_value(line)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_all_programs_gather_by_name() {
        let mut pieces = Pieces::default();
        for line in [
            "{\"name\":\"a\",\"ns\":10,\"bytes\":848}",
            "{\"name\":\"b\",\"ns\":5,\"objects\":11,\"version\":\"2\"}",
            "{\"name\":\"a\",\"ns\":12,\"bytes\":848}",
        ] {
            pieces.add(serde_json::from_str(line).unwrap());
        }
        let table = pieces.table("t", "T", "");
        let shape: Vec<_> = table.rows.iter().map(|row| (row.name.as_str(), row.metrics[0].samples.len())).collect();
        assert_eq!(shape, [("a", 2), ("b", 1)]);
        assert_eq!(table.rows[1].metric("allocations").unwrap().median, 11.0);
        assert!(table.rows[0].metric("allocations").is_none());
    }

    #[test]
    fn rows_that_do_the_same_are_paired() {
        let mut pieces = Pieces::default();
        for (name, ns) in [("path: x", 100.0), ("host: x", 10.0), ("path: ours", 5.0), ("host: ours", 1.0)] {
            pieces.add(PieceLine { name: name.to_owned(), ns, bytes: None, allocations: None });
        }
        let table = pieces.table_of_pairs("t", "T", "");
        let ratio = |row: &Row| row.metric("ratio to the other").map(|ratio| ratio.median);
        let shape: Vec<_> = table.rows.iter().map(|row| (row.name.as_str(), ratio(row))).collect();
        let want = [("path: x", None), ("path: ours", Some(0.05)), ("host: x", None), ("host: ours", Some(0.1))];
        assert_eq!(shape, want);
    }
}

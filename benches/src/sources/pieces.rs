//! Pieces by themselves: one source's function in its own language, ours beside it from the binary `inprocess`.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use serde::Deserialize;

use super::Extent;
use crate::inprocess;
use crate::machine;
use crate::peers;
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::request;
use crate::server::Cores;
use crate::side_by_side::skip;
use crate::workshop::{self, Workshop};

/// One line of a measuring program.
#[derive(Deserialize)]
struct Line {
    name: String,
    ns: f64,
    bytes: Option<f64>,
    #[serde(alias = "objects")]
    allocations: Option<f64>,
}

/// What was measured so far, by name in the order first seen.
#[derive(Default)]
struct Pieces(Vec<(String, [Vec<f64>; 3])>);

impl Pieces {
    fn add(&mut self, line: Line) {
        let place = self.0.iter().position(|(name, _)| *name == line.name).unwrap_or_else(|| {
            self.0.push((line.name.clone(), Default::default()));
            self.0.len() - 1
        });
        let figures = [Some(line.ns), line.bytes, line.allocations];
        for (samples, figure) in self.0[place].1.iter_mut().zip(figures) {
            samples.extend(figure);
        }
    }

    /// Adds what `inprocess` measures of ours in `table` on `input`.
    fn add_ours(&mut self, shop: &Workshop, table: &str, input: &str) -> Result<()> {
        for line in inprocess::lines(shop, 0.2)?.into_iter().filter(|line| line.table == table && line.input == input) {
            let (bytes, allocations) = (Some(line.bytes), Some(line.allocations));
            self.add(Line { name: line.name, ns: line.ns, bytes, allocations });
        }
        Ok(())
    }

    fn table(self, name: &str, title: &str, how: &str) -> Table {
        let rows = self.0.into_iter().map(|(name, [ns, bytes, allocations])| {
            let mut metrics = vec![Metric::time("time", "ns", ns)];
            if !bytes.is_empty() {
                metrics.push(Metric::count("allocated", "octets", bytes));
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

/// Crystal's own benchmark: one six-line request, from a file and from memory.
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
        for line in said.lines() {
            let line: Line = serde_json::from_str(line)?;
            pieces.add(Line { name: format!("Crystal from_io, {}", line.name), ..line });
        }
        pieces.add_ours(shop, "parse", "six lines")?;
        progress.done(2500);
    }
    Ok(Some(pieces.table(
        "from-io",
        "Parsing a six-line request",
        "Crystal's HTTP::Request.from_io from a file and from memory, as its pull request 8002 measures it, beside parsers in this process; \
         all on core 0 in turns.",
    )))
}

/// Caddy's PrepareRequest; ours is an exchange's context made ready.
pub(super) fn prepare(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let folder = shop.bench.join("peers/caddy");
    let sources = ["main.go", "go.mod", "go.sum"].map(|file| folder.join(file));
    let output = shop.tools.join("caddy-prepare");
    let program = shop.packaged("go", "golang-go").and_then(|go| {
        let mut build = Command::new(go);
        shop.built("caddy-prepare", &sources, build.current_dir(&folder).args(["build", "-o"]).arg(output).arg("."))
    });
    let program = match program {
        Ok(program) => program,
        Err(error) => {
            skip(shop, "Caddy's PrepareRequest", &error);
            return Ok(None);
        }
    };
    let module = std::fs::read_to_string(&sources[1])?;
    let version = module.lines().find_map(|line| line.strip_prefix("require github.com/caddyserver/caddy/v2 "));
    shop.versions.insert("caddy".to_owned(), version.unwrap_or("unknown").to_owned());
    let mut pieces = Pieces::default();
    for round in 0..extent.rounds {
        progress.at(&format!("Caddy's PrepareRequest, round {}", round + 1));
        let said = machine::output(Cores::One(0).command().arg(&program))?;
        pieces.add(serde_json::from_str(&said)?);
        pieces.add_ours(shop, "prepare", "browser-like")?;
        progress.done(2500);
    }
    Ok(Some(pieces.table(
        "prepare-request",
        "Preparing a request for its handlers",
        "Caddy's PrepareRequest with a new replacer for each request, as its server calls it and its pull request 4649 measures it; on core 0.",
    )))
}

/// Rack::Response by itself: new, write, finish; ours is a response built and encoded.
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
        pieces.add_ours(shop, "respond", "hello")?;
        progress.done((extent.seconds * 1000.0) as u64);
    }
    Ok(Some(pieces.table(
        "rack-response",
        "One response: new, write, finish",
        "Rack::Response.new, write, finish, as Rack's pull request 1325 measures it, on core 0; allocations are objects of Ruby's heap.",
    )))
}

fn rack_line(shop: &mut Workshop, extent: &Extent) -> Result<Line> {
    let ruby = shop.packaged("ruby", "ruby")?;
    let script = shop.bench.join("peers/ruby/rack_response.rb");
    let mut command = Cores::One(0).command();
    let done = command.arg(&ruby).arg(&script).arg(extent.seconds.to_string()).stdin(Stdio::null()).output()?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        if said.contains("LoadError") {
            bail!("Ruby has no rack: `apt-get install -y ruby-rack`, or `gem install rack`");
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
}

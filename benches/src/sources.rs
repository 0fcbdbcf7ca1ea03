//! `./bench sources`: the benchmarks that the projects we learnt from ran themselves, their code beside ours in one run.
//!
//! Three of them stand here: Crystal's request parser (pull request 8002), hello under `ab` and `wrk` as the articles on
//! Go's server measure it, and Rack's response (pull request 1325) alone and under Puma.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::inprocess;
use crate::machine::{self, Machine};
use crate::peers::{self, Launch, Recipe, Tool};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Record, Row, Table};
use crate::request;
use crate::sample::Usage;
use crate::server::{Cores, Server};
use crate::side_by_side::skip;
use crate::tools::{self, Rates};
use crate::workshop::{self, Workshop};

/// How long each part runs, and how often.
struct Extent {
    rounds: usize,
    seconds: f64,
}

/// Runs all sources' benchmarks.
pub fn run(shop: &mut Workshop, quick: bool, arguments: String) -> Result<Record> {
    let extent = if quick { Extent { rounds: 2, seconds: 0.5 } } else { Extent { rounds: 5, seconds: 2.0 } };
    // A round: the parsers, four servers under two tools, Rack alone, and two servers under wrk.
    let planned = extent.rounds as f64 * 1000.0 * (2.5 + 11.0 * extent.seconds);
    let progress = Progress::new(planned as u64);
    let mut tables = Vec::new();
    for part in [parser, hello, rack_response, puma] {
        if let Some(table) = part(shop, &extent, &progress)? {
            progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(&table)));
            tables.push(table);
        }
    }
    progress.end();
    Ok(Record {
        bench: "sources".to_owned(),
        date: machine::date()?,
        commit: machine::commit(&shop.root)?,
        machine: Machine::here()?,
        arguments,
        versions: shop.versions.clone(),
        skipped: shop.skipped.clone(),
        tables,
    })
}

/// One line of a measuring script.
#[derive(Deserialize)]
struct Line {
    name: String,
    ns: f64,
    bytes: Option<f64>,
    objects: Option<f64>,
}

/// Crystal's own benchmark: one six-line request, from a file and from memory.
fn parser(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
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
    let mut rows: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
    let mut keep = |name: String, ns: f64, bytes: f64| match rows.iter_mut().find(|row| row.0 == name) {
        Some(row) => {
            row.1.push(ns);
            row.2.push(bytes);
        }
        None => rows.push((name, vec![ns], vec![bytes])),
    };
    for round in 0..extent.rounds {
        progress.at(&format!("parsing six lines, round {}", round + 1));
        let said = machine::output(Cores::One(0).command().arg(&crystal.program).arg(&file).arg("0.5"))?;
        for line in said.lines() {
            let line: Line = serde_json::from_str(line)?;
            keep(format!("Crystal from_io, {}", line.name), line.ns, line.bytes.context("no bytes")?);
        }
        for line in
            inprocess::lines(shop, 0.2)?.into_iter().filter(|line| line.table == "parse" && line.input == "six lines")
        {
            keep(line.name, line.ns, line.bytes);
        }
        progress.done(2500);
    }
    let rows = rows.into_iter().map(|(name, ns, bytes)| Row {
        name,
        notes: Vec::new(),
        metrics: vec![Metric::time("a request", "ns", ns), Metric::count("allocated", "octets", bytes)],
    });
    Ok(Some(Table {
        name: "from-io".to_owned(),
        title: "Parsing a six-line request".to_owned(),
        how: "Crystal's HTTP::Request.from_io from a file and from memory, as its pull request 8002 measures it, beside parsers in this process; \
              all on core 0 in turns."
            .to_owned(),
        chart: Some(Chart { bars: vec!["a request".to_owned()], label: None }),
        rows: rows.collect(),
    }))
}

/// Hello under ab with 100 connections and wrk with 12 threads and 400.
fn hello(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let all = std::thread::available_parallelism()?.get();
    let mut servers = Vec::new();
    for (name, workers) in [("go", 1), ("go", all), ("causeway", 1), ("causeway", 2)] {
        let recipe = peers::recipe(name)?;
        let started = peers::obtain(shop, recipe)
            .and_then(|tool| Server::start(shop, recipe, &tool, workers, Cores::First(all), None));
        match started {
            Ok(server) => servers.push((format!("{name}, {workers}"), server)),
            Err(error) => skip(shop, &format!("{name} with {workers} workers"), &error),
        }
    }
    let ab = shop.packaged("ab", "apache2-utils");
    let wrk = shop.packaged("wrk", "wrk");
    let mut rows = Vec::new();
    for (label, server) in &servers {
        let url = format!("http://{}{}", server.address, server.launch.path);
        let seconds = format!("{}", extent.seconds.ceil());
        let mut measure =
            |name: &str, tool: &Result<std::path::PathBuf>, arguments: &[&str], read: fn(&str) -> Option<Rates>| {
                let mut figures = Figures::default();
                for round in 0..extent.rounds {
                    progress.at(&format!("{name} on {label}, round {}", round + 1));
                    let said = tool.as_ref().map_err(|error| anyhow::anyhow!("{error:#}")).and_then(|tool| {
                        let before = Usage::read(&server.processes)?;
                        let said = machine::output(Command::new(tool).args(arguments).arg(&url))?;
                        let used = Usage::read(&server.processes)?.since(&before);
                        Ok((read(&said).with_context(|| format!("{name} met errors: {said}"))?, used))
                    });
                    match said {
                        Ok((rates, used)) => figures.add(&rates, &used),
                        Err(error) => skip(shop, &format!("{name} on {label}"), &error),
                    }
                    progress.done((extent.seconds * 1000.0) as u64);
                }
                if !figures.requests.is_empty() {
                    rows.push(figures.row(&format!("{label}: {name}")));
                }
            };
        // A count far beyond what the time allows: ab ends by -t.
        measure("ab -k -c 100", &ab, &["-q", "-k", "-c", "100", "-t", &seconds, "-n", "10000000"], tools::ab_rates);
        measure("wrk -t12 -c400", &wrk, &["-t12", "-c400", "--latency", "-d", &seconds], tools::wrk_rates);
    }
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Table {
        name: "hello".to_owned(),
        title: "Hello under ab and wrk".to_owned(),
        how: format!(
            "As the sources run them: `ab -k -c 100` and `wrk -t12 -c400`, nothing pinned, tool and server on the same {all} cores. Behind the name \
             stands the number of workers (Go: GOMAXPROCS). ab counts latency in whole milliseconds."
        ),
        chart: Some(Chart { bars: vec!["requests".to_owned()], label: None }),
        rows,
    }))
}

#[derive(Default)]
struct Figures {
    requests: Vec<f64>,
    p50: Vec<f64>,
    p99: Vec<f64>,
    cpu: Vec<f64>,
}

impl Figures {
    fn add(&mut self, rates: &Rates, used: &Usage) {
        self.requests.push(rates.requests);
        self.p50.push(rates.p50_us);
        self.p99.push(rates.p99_us);
        self.cpu.push(used.cpu_ns as f64 / 1e3 / rates.total as f64);
    }

    fn row(self, name: &str) -> Row {
        let mut row = Row::new(name);
        row.metrics = vec![
            Metric::rate("requests", self.requests),
            Metric::time("p50", "µs", self.p50),
            Metric::time("p99", "µs", self.p99),
            Metric::time("CPU per request", "µs", self.cpu),
        ];
        row
    }
}

/// Rack::Response by itself: new, write, finish; ours is a response built and encoded.
fn rack_response(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let (mut ns, mut objects) = (Vec::new(), Vec::new());
    let mut ours: Vec<(String, Vec<f64>, Vec<f64>)> = Vec::new();
    for round in 0..extent.rounds {
        progress.at(&format!("Rack::Response, round {}", round + 1));
        match rack_line(shop, extent) {
            Ok(line) => {
                ns.push(line.ns);
                objects.push(line.objects.context("no objects")?);
            }
            Err(error) => {
                skip(shop, "Rack::Response", &error);
                return Ok(None);
            }
        }
        for line in inprocess::lines(shop, 0.2)?.into_iter().filter(|line| line.table == "respond") {
            match ours.iter_mut().find(|row| row.0 == line.name) {
                Some(row) => {
                    row.1.push(line.ns);
                    row.2.push(line.allocations);
                }
                None => ours.push((line.name, vec![line.ns], vec![line.allocations])),
            }
        }
        progress.done((extent.seconds * 1000.0) as u64);
    }
    let row = |name: String, ns, objects| Row {
        name,
        notes: Vec::new(),
        metrics: vec![Metric::time("a response", "ns", ns), Metric::count("allocations", "", objects)],
    };
    let mut rows = vec![row("Rack::Response".to_owned(), ns, objects)];
    rows.extend(ours.into_iter().map(|(name, ns, allocations)| row(name, ns, allocations)));
    Ok(Some(Table {
        name: "rack-response".to_owned(),
        title: "One response: new, write, finish".to_owned(),
        how: "Rack::Response.new, write, finish, as Rack's pull request 1325 measures it; allocations are objects of Ruby's heap.".to_owned(),
        chart: Some(Chart { bars: vec!["a response".to_owned()], label: None }),
        rows,
    }))
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

/// Puma as a recipe: it has no table of its own in `peers`, since nobody compares a Ruby server with these.
static PUMA: Recipe = Recipe {
    name: "puma",
    about: "Puma with Rack::Response",
    workers_max: 1,
    worker_threads: None,
    obtain: |shop| {
        let program = shop.packaged("puma", "puma")?;
        Ok(Tool { version: workshop::version(&program, "--version"), program })
    },
    launch: |shop, tool, want| {
        let bind = format!("tcp://127.0.0.1:{}", want.port);
        let rackup = shop.bench.join("peers/ruby/hello.ru");
        // -C -: whatever configuration lies in the working folder is not read.
        let command =
            [tool.program.clone().into(), "-C".into(), "-".into(), "-q".into(), "-e".into(), "production".into()];
        let rest = ["-t".into(), "5:5".into(), "-b".into(), bind.into(), rackup.into()];
        Ok(Launch { command: command.into_iter().chain(rest).collect(), path: "/".to_owned(), ..Launch::default() })
    },
};

/// Puma and ours under `wrk -t2`.
fn puma(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let all = std::thread::available_parallelism()?.get();
    let wrk = match shop.packaged("wrk", "wrk") {
        Ok(wrk) => wrk,
        Err(error) => {
            skip(shop, "wrk -t2", &error);
            return Ok(None);
        }
    };
    let mut rows = Vec::new();
    for recipe in [&PUMA, peers::recipe("causeway")?] {
        let started =
            peers::obtain(shop, recipe).and_then(|tool| Server::start(shop, recipe, &tool, 1, Cores::First(all), None));
        let server = match started {
            Ok(server) => server,
            Err(error) => {
                skip(shop, recipe.name, &error);
                continue;
            }
        };
        let mut figures = Figures::default();
        for round in 0..extent.rounds {
            progress.at(&format!("wrk -t2 on {}, round {}", recipe.name, round + 1));
            let url = format!("http://{}{}", server.address, server.launch.path);
            let before = Usage::read(&server.processes)?;
            let seconds = extent.seconds.ceil().to_string();
            let said = machine::output(Command::new(&wrk).args(["-t2", "--latency", "-d", &seconds]).arg(url))?;
            let rates = tools::wrk_rates(&said);
            ensure!(rates.is_some(), "wrk met errors on {}: {said}", recipe.name);
            figures.add(&rates.context("just asked")?, &Usage::read(&server.processes)?.since(&before));
            progress.done((extent.seconds * 1000.0) as u64);
        }
        rows.push(figures.row(recipe.name));
    }
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Table {
        name: "puma".to_owned(),
        title: "Rack's hello under wrk -t2".to_owned(),
        how: "`wrk -t2` with its 10 connections, nothing pinned; Puma with one process and five threads, Causeway with one worker.".to_owned(),
        chart: Some(Chart { bars: vec!["requests".to_owned()], label: None }),
        rows,
    }))
}

//! Hello as in the sources' articles: whole servers under `ab` and `wrk`, not pinned.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Extent;
use crate::machine;
use crate::peers::{self, Launch, PeerScope, Recipe, Tool};
use crate::progress::Progress;
use crate::record::{Chart, Metric, Row, Table};
use crate::sample::Usage;
use crate::server::{Cores, PeerServer};
use crate::side_by_side::skip;
use crate::tools::{self, Rates};
use crate::workshop::{self, Workshop};

/// Measures hello under ab with 100 connections, and under wrk with 12 threads and 400 connections.
pub(super) fn hello(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let all = std::thread::available_parallelism()?.get();
    let mut servers = Vec::new();
    for (name, workers) in [("go", 1), ("go", all), ("causeway", 1), ("causeway", 2)] {
        let recipe = peers::recipe(name)?;
        let started = peers::obtain(shop, recipe)
            .and_then(|tool| PeerServer::start(shop, recipe, &tool, workers, Cores::First(all), None));
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
                        Ok((read(&said).with_context(|| format!("{name} reported errors: {said}"))?, used))
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
        // A count that is never reached: `-t` ends ab.
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
            "`ab -k -c 100` and `wrk -t12 -c400` as in the sources, not pinned, tool and server on the same {all} cores. The number of workers \
             follows the name (Go: GOMAXPROCS). ab reports latency in whole milliseconds."
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

/// The recipe of Puma. It is not in `peers`, whose tables do not compare with a Ruby server.
static PUMA: Recipe = Recipe {
    name: "puma",
    about: "Puma with Rack::Response",
    part: PeerScope::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |shop| {
        let program = shop.packaged("puma", "puma")?;
        Ok(Tool { version: workshop::version(&program, "--version"), program })
    },
    launch: |shop, tool, want| {
        let bind = format!("tcp://127.0.0.1:{}", want.port);
        let rackup = shop.bench.join("peers/ruby/hello.ru");
        // `-C -` ignores any configuration in the working directory.
        let command =
            [tool.program.clone().into(), "-C".into(), "-".into(), "-q".into(), "-e".into(), "production".into()];
        let rest = ["-t".into(), "5:5".into(), "-b".into(), bind.into(), rackup.into()];
        Ok(Launch { command: command.into_iter().chain(rest).collect(), path: "/".to_owned(), ..Launch::default() })
    },
};

/// Measures Puma and Causeway under `wrk -t2`.
pub(super) fn puma(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
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
        let started = peers::obtain(shop, recipe)
            .and_then(|tool| PeerServer::start(shop, recipe, &tool, 1, Cores::First(all), None));
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
            ensure!(rates.is_some(), "wrk reported errors on {}: {said}", recipe.name);
            figures.add(&rates.context("checked above")?, &Usage::read(&server.processes)?.since(&before));
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
        how: "`wrk -t2` with its 10 connections, not pinned; Puma with one process and five threads, Causeway with one worker.".to_owned(),
        chart: Some(Chart { bars: vec!["requests".to_owned()], label: None }),
        rows,
    }))
}

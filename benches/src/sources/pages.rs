//! The measurement from the article on causal profiling of Go's HTTP/2 server: one connection with ten concurrent
//! requests for a page of 48 KiB, and the time of a request in the server, from its dispatch to its last byte. Compares
//! Go's unmodified server with one that keeps a writer where Go starts a goroutine per frame, as the article's author
//! proposed.

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Extent;
use crate::http2::load::{self, H2loadRun};
use crate::http2::{self, servers};
use crate::machine;
use crate::peers::{self, Launch, PeerBody, PeerScope, Recipe, Tool, Want};
use crate::progress::Progress;
use crate::record::{Better, Chart, Metric, MetricKind, Row, Table};
use crate::server::{Cores, PeerServer, free_port};
use crate::side_by_side::skip;
use crate::workshop::Workshop;

/// Number of concurrent requests.
const STREAMS: usize = 10;
/// Number of requests in the first run, which fills pools and measures the server's rate.
const FIRST: usize = 500;

/// A server that reports the time of its requests.
struct Timed {
    row: &'static str,
    /// A second row to compare with: the same server with a writer per frame.
    beside: Option<&'static str>,
    program: fn(&Workshop) -> Result<PathBuf>,
    options: &'static [&'static str],
}

const NET_HTTP: &str = "Go, net/http";
const XNET: &str = "Go, x/net";
const EACH: &str = "our machine, a task per frame";

const TIMED: [Timed; 6] = [
    Timed { row: NET_HTTP, beside: None, program: article, options: &["net/http"] },
    Timed { row: XNET, beside: None, program: article, options: &["xnet"] },
    Timed { row: "Go, x/net, one writer", beside: Some(XNET), program: rewritten, options: &["xnet"] },
    Timed { row: "causeway's engine", beside: None, program: |shop| ours(shop, "engine_http2"), options: &[] },
    Timed { row: EACH, beside: None, program: |shop| ours(shop, "h2_writers"), options: &["each"] },
    Timed {
        row: "our machine, one writer",
        beside: Some(EACH),
        program: |shop| ours(shop, "h2_writers"),
        options: &["one"],
    },
];

/// The recipe of all these servers; the launch selects the program.
static RECIPE: Recipe = Recipe {
    name: "page",
    about: "a page, and how long it took",
    part: PeerScope::Whole,
    workers_max: 1,
    worker_threads: None,
    obtain: |_| anyhow::bail!("each server has its own program"),
    launch: |_, _, _| anyhow::bail!("each server has its own launch"),
};

fn ours(shop: &Workshop, binary: &str) -> Result<PathBuf> {
    Ok(peers::ours(shop, binary, "of this commit")?.program)
}

/// Returns the article's server in Go.
fn article(shop: &Workshop) -> Result<PathBuf> {
    Ok(servers::obtain_go(shop, "article")?.program)
}

/// The edits of x/net's server, as (before, after), that make one goroutine write all frames of a connection.
const ONE_WRITER: [(&str, &str); 5] = [
    ("\t\tgo sc.writeFrameAsync(wr, wd)\n", "\t\tsc.framesToWrite <- frameToWrite{wr, wd}\n"),
    ("\t\tgo sc.writeFrameAsync(wr, nil)\n", "\t\tsc.framesToWrite <- frameToWrite{wr, nil}\n"),
    (
        "\twroteFrameCh     chan frameWriteResult ",
        "\tframesToWrite    chan frameToWrite\n\twroteFrameCh     chan frameWriteResult ",
    ),
    (
        "\t\twroteFrameCh:                make(chan frameWriteResult, 1),",
        "\t\tframesToWrite:               make(chan frameToWrite, 1),\n\t\twroteFrameCh:                make(chan frameWriteResult, 1),",
    ),
    (
        "\tgo sc.readFrames() ",
        "\tgo func() {\n\t\tfor next := range sc.framesToWrite {\n\t\t\tsc.writeFrameAsync(next.wr, next.wd)\n\t\t}\n\t}()\n\tdefer close(sc.framesToWrite)\n\tgo sc.readFrames() ",
    ),
];
const FRAME_TO_WRITE: &str = "\ntype frameToWrite struct {\n\twr FrameWriteRequest\n\twd *writeData\n}\n";

/// Returns the article's server with a copy of x/net that keeps its writer.
fn rewritten(shop: &Workshop) -> Result<PathBuf> {
    let go = shop.packaged("go", "golang-go")?;
    let directory = shop.bench.join("peers/go-http2/article");
    let sources = [directory.join("main.go"), directory.join("go.mod"), directory.join("go.sum")];
    let said = machine::output(Command::new(&go).current_dir(&directory).args([
        "mod",
        "download",
        "-json",
        "golang.org/x/net",
    ]))?;
    let module: serde_json::Value = serde_json::from_str(&said)?;
    let original = module["Dir"].as_str().context("go printed no directory of golang.org/x/net")?;
    let copy = shop.tools.join("x-net-one-writer");
    if !copy.join("http2/server.go").is_file() {
        copy_all(Path::new(original), &copy)?;
        let file = copy.join("http2/server.go");
        let server = keep_writer(&fs::read_to_string(&file)?)?;
        fs::write(&file, server)?;
    }
    // A separate go.mod, so that the repository is not modified.
    let modfile = shop.tools.join("go-http2-one-writer.mod");
    let text = fs::read_to_string(&sources[1])?;
    fs::write(&modfile, format!("{text}\nreplace golang.org/x/net => {}\n", copy.display()))?;
    fs::copy(&sources[2], modfile.with_extension("sum"))?;
    let output = "go-http2-one-writer";
    let mut build = Command::new(&go);
    build.current_dir(&directory).arg("build").arg("-modfile").arg(&modfile);
    build.arg("-o").arg(shop.tools.join(output)).arg(".");
    shop.built(output, &sources, &mut build)
}

/// Returns x/net's server with one writer per connection.
fn keep_writer(server: &str) -> Result<String> {
    let mut text = server.to_owned();
    for (there, then) in ONE_WRITER {
        let count = text.matches(there).count();
        ensure!(count == 1, "x/net's server contains {:?} {count} times instead of once", there.trim());
        text = text.replacen(there, then, 1);
    }
    Ok(text + FRAME_TO_WRITE)
}

/// Copies a directory's files as writable: those in Go's cache are read-only.
fn copy_all(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_all(&entry.path(), &target)?;
        } else {
            fs::write(target, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

/// The figures that a server reports.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Times {
    count: u64,
    mean_us: f64,
    p50_us: f64,
    p99_us: f64,
}

/// The measurements of one slot.
struct PageSlot {
    times: Times,
    cpu_us: f64,
    rate: f64,
}

/// A running server, and the port at which it reports its times.
struct PageServer {
    row: &'static str,
    beside: Option<&'static str>,
    server: PeerServer,
    told: u16,
    requests: usize,
    slots: Vec<PageSlot>,
}

pub(super) fn clear(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, false)
}

pub(super) fn over_tls(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    table(shop, extent, progress, true)
}

fn table(shop: &mut Workshop, extent: &Extent, progress: &Progress, tls: bool) -> Result<Option<Table>> {
    let h2load = load::obtain(shop)?;
    let asking = H2loadRun {
        program: h2load.clone(),
        cores: Cores::One(1),
        under: Vec::new(),
        connections: 1,
        streams: STREAMS,
        tls,
    };
    let mut running = Vec::new();
    for timed in &TIMED {
        progress.at(&format!("starting {}", timed.row));
        match start(shop, timed, &asking, extent, tls) {
            Ok(started) => running.push(started),
            Err(error) => skip(shop, &format!("{}, a page{}", timed.row, if tls { " over TLS" } else { "" }), &error),
        }
    }
    for round in 0..extent.rounds {
        let count = running.len();
        for place in 0..count {
            // Rotate the order each round.
            let one = &mut running[(place + round) % count];
            progress.at(&format!("pages, round {}: {}", round + 1, one.row));
            // Discard the figures of earlier requests.
            one.told()?;
            let slot = asking.run(&one.server, one.requests, answer::PAGE_BYTES)?;
            let times = one.told()?;
            let answered = slot.said.answered;
            ensure!(times.count == answered, "{} timed {} of {answered} requests", one.row, times.count);
            let cpu_us = slot.usage.cpu_ns as f64 / 1e3 / answered as f64;
            one.slots.push(PageSlot { times, cpu_us, rate: slot.said.rate });
            progress.done((extent.seconds * 500.0) as u64);
        }
    }
    let means = |row: &str| {
        let row = running.iter().find(|running| running.row == row)?;
        Some(row.slots.iter().map(|slot| slot.times.mean_us).collect::<Vec<_>>())
    };
    let over = |slots: &[PageSlot], others: Vec<f64>| {
        slots.iter().zip(others).map(|(slot, other)| slot.times.mean_us / other).collect::<Vec<_>>()
    };
    let rows: Vec<_> = running.iter().map(|one| row(one, &means, &over)).collect();
    if rows.is_empty() {
        return Ok(None);
    }
    Ok(Some(Table {
        name: if tls { "page-tls" } else { "page" }.to_owned(),
        title: format!("A page of 48 KiB, ten concurrent requests{}", if tls { ", over TLS" } else { ", HTTP/2 without TLS" }),
        how: "`h2load -c1 -m10` with a browser's fields on core 1, the server with one worker (GOMAXPROCS=1) on core 0. The server measures times, \
              from the read that received a request's head to the return of the write of its response's last byte. The ratios are of the means \
              of one round. x/net is the same code as in net/http; with one writer it starts no goroutine per frame. Our machine with two \
              writers is a program of the bench: one call for all frames, or a task per larger frame, which starts like a new goroutine."
            .to_owned(),
        chart: Some(Chart { bars: vec!["mean".to_owned()], label: Some("ratio to net/http".to_owned()) }),
        rows,
    }))
}

fn row(
    one: &PageServer,
    means: &impl Fn(&str) -> Option<Vec<f64>>,
    over: &impl Fn(&[PageSlot], Vec<f64>) -> Vec<f64>,
) -> Row {
    let mut row = Row::new(one.row);
    let each = |figure: fn(&PageSlot) -> f64| one.slots.iter().map(figure).collect::<Vec<_>>();
    row.metrics.push(Metric::time("mean", "µs", each(|slot| slot.times.mean_us)));
    row.metrics.push(Metric::time("p50", "µs", each(|slot| slot.times.p50_us)));
    row.metrics.push(Metric::time("p99", "µs", each(|slot| slot.times.p99_us)));
    row.metrics.push(Metric::time("CPU per request", "µs", each(|slot| slot.cpu_us)));
    row.metrics.push(Metric::new("requests", "1/s", MetricKind::Timed, Better::Higher, each(|slot| slot.rate)));
    if let Some(others) = means(NET_HTTP) {
        row.metrics.push(Metric::ratio("ratio to net/http", over(&one.slots, others)));
    }
    if let Some(others) = one.beside.and_then(means) {
        row.metrics.push(Metric::ratio("ratio to a writer per frame", over(&one.slots, others)));
    }
    row
}

fn start(shop: &Workshop, timed: &Timed, asking: &H2loadRun, extent: &Extent, tls: bool) -> Result<PageServer> {
    let program = (timed.program)(shop)?;
    let (port, told) = (free_port()?, free_port()?);
    let keys = tls.then(|| servers::keys(shop)).transpose()?;
    let mut command: Vec<std::ffi::OsString> = vec![program.into()];
    command.extend(timed.options.iter().map(Into::into));
    command.extend([port.to_string().into(), told.to_string().into()]);
    if timed.row.contains("engine") {
        command.push("page".into());
    }
    if let Some(keys) = keys {
        command.extend([keys.certificate.into(), keys.key.into()]);
    }
    let environment = vec![("GOMAXPROCS".to_owned(), "1".into())];
    let launch = Launch { command, environment, path: "/".to_owned(), ..Launch::default() };
    let server = http2::start(shop, &RECIPE, launch, port, &asking.program, PeerBody::Page, tls)?;
    let first = asking.run(&server, FIRST, answer::PAGE_BYTES)?;
    let requests = ((first.said.rate * extent.seconds / 2.0) as usize).max(FIRST);
    Ok(PageServer { row: timed.row, beside: timed.beside, server, told, requests, slots: Vec::new() })
}

impl PageServer {
    /// Returns the figures of the requests since the previous call.
    fn told(&self) -> Result<Times> {
        let mut said = String::new();
        TcpStream::connect((Ipv4Addr::LOCALHOST, self.told))?.read_to_string(&mut said)?;
        serde_json::from_str(&said).with_context(|| format!("{} reported {said:?}", self.row))
    }
}

/// Measures Caddy and Causeway under h2load as whole servers, not pinned.
pub(super) fn under_h2load(shop: &mut Workshop, extent: &Extent, progress: &Progress) -> Result<Option<Table>> {
    let all = std::thread::available_parallelism()?.get();
    let program = load::obtain(shop)?;
    let cores = Cores::First(all);
    let asking = H2loadRun { program, cores, under: Vec::new(), connections: 100, streams: 10, tls: false };
    let bytes = answer::BODY.len();
    let mut servers = Vec::new();
    for (name, workers) in [("caddy", all), ("causeway", 1), ("causeway", all)] {
        let recipe = servers::recipe_of(name)?;
        let begun = peers::obtain(shop, recipe).and_then(|tool| begin(shop, recipe, &tool, workers, &asking));
        match begun {
            Ok(server) => servers.push((format!("{name}, {workers}"), server, Vec::new())),
            Err(error) => skip(shop, &format!("{name} with {workers} workers under h2load"), &error),
        }
    }
    for round in 0..extent.rounds {
        for (label, server, slots) in &mut servers {
            progress.at(&format!("h2load on {label}, round {}", round + 1));
            let first = asking.run(server, 10_000, bytes)?;
            let requests = ((first.said.rate * extent.seconds) as usize).max(10_000);
            slots.push(asking.run(server, requests, bytes)?);
            progress.done((extent.seconds * 1000.0) as u64);
        }
    }
    if servers.is_empty() {
        return Ok(None);
    }
    let caddys: Option<Vec<_>> = servers
        .first()
        .filter(|first| first.0.starts_with("caddy"))
        .map(|(_, _, slots)| slots.iter().map(cpu_us).collect());
    let rows = servers.iter().map(|(label, _, slots)| {
        let mut row = Row::new(label);
        row.metrics.push(Metric::rate("requests", slots.iter().map(|slot| slot.said.rate).collect()));
        row.metrics.push(Metric::time("mean", "µs", slots.iter().map(|slot| slot.said.mean_us).collect()));
        row.metrics.push(Metric::time("CPU per request", "µs", slots.iter().map(cpu_us).collect()));
        if let Some(caddys) = &caddys {
            let ratios = slots.iter().zip(caddys).map(|(slot, caddy)| cpu_us(slot) / caddy).collect();
            row.metrics.push(Metric::ratio("CPU to Caddy's", ratios));
        }
        row
    });
    Ok(Some(Table {
        name: "h2load".to_owned(),
        title: "Hello over HTTP/2 under h2load".to_owned(),
        how: format!(
            "Whole servers on one Caddyfile with a `respond` and eight fields, `h2load -c100 -m10` without TLS, not pinned, tool and server on the \
             same {all} cores; the number of workers follows the name (Caddy: GOMAXPROCS). The cost of connecting is included."
        ),
        chart: Some(Chart { bars: vec!["CPU per request".to_owned()], label: Some("CPU to Caddy's".to_owned()) }),
        rows: rows.collect(),
    }))
}

fn cpu_us(slot: &load::H2loadSlot) -> f64 {
    slot.usage.cpu_ns as f64 / 1e3 / slot.said.answered as f64
}

fn begin(
    shop: &Workshop,
    recipe: &'static Recipe,
    tool: &Tool,
    workers: usize,
    asking: &H2loadRun,
) -> Result<PeerServer> {
    let port = free_port()?;
    let launch = (recipe.launch)(shop, tool, &Want { port, workers, ..Want::default() })?;
    let once = H2loadRun { connections: 1, streams: 1, ..asking.clone() };
    PeerServer::start_asked(shop, recipe, launch, port, asking.cores, &|address, launch| {
        once.said(address.port(), &launch.path, 1, answer::BODY.len()).map(|_| crate::server::Answered::Right)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_kept_or_the_source_is_refused() {
        let server: String = ONE_WRITER.iter().map(|(there, _)| format!("{there}\n")).collect();
        let kept = keep_writer(&server).unwrap();
        assert!(!kept.contains("go sc.writeFrameAsync") && kept.contains("type frameToWrite"));
        for (there, _) in ONE_WRITER {
            assert!(keep_writer(&server.replacen(there, "", 1)).is_err(), "{there}");
        }
    }

    #[test]
    fn what_is_held_beside_is_there() {
        for timed in &TIMED {
            assert!(timed.beside.is_none_or(|beside| TIMED.iter().any(|other| other.row == beside)), "{}", timed.row);
        }
    }
}

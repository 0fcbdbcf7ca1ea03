//! `./bench peers`: Causeway beside other servers, what a request costs each, and how it compares with a server that
//! only does what the kernel asks of any.
//!
//! - [`throughput`]: minimal, browser-like and pipelined requests on one core, each server between two slots of the limit
//! - [`workers`]: two workers on two cores beside one on one
//! - [`idle`]: memory of connections that are open and quiet
//! - [`isolation`]: what one burning route or one cold file does to all other requests

pub mod idle;
mod isolation;
mod throughput;
mod workers;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::load::{Plan, Report};
use crate::machine;
use crate::peers::{self, LIMIT, RECIPES, Recipe, Tool};
use crate::progress::Progress;
use crate::record::{Metric, Record, Row};
use crate::server::{Cores, Server};
use crate::workshop::Workshop;

/// How much is measured.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Rounds of each throughput scenario.
    pub rounds: usize,
    /// Load before each slot, in ms.
    pub warm_ms: u64,
    /// A slot, in ms.
    pub run_ms: u64,
    /// Idle connections held.
    pub idle: usize,
    /// An isolation measurement, in ms.
    pub isolation_ms: u64,
    /// Octets of the cold file.
    pub cold_bytes: u64,
    /// Peers asked for; all if empty. The limit server always runs.
    pub only: Vec<String>,
    /// Scenarios asked for; all if empty.
    pub scenarios: Vec<String>,
    /// Whether wrk has its word too.
    pub cross_check: CrossCheck,
    /// What was given, for the record.
    pub arguments: String,
}

/// Whether wrk repeats the minimal scenario, as another program's word on the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossCheck {
    /// It does.
    Yes,
    /// It does not.
    No,
}

impl Settings {
    /// The whole bench, under ten minutes.
    pub fn whole() -> Self {
        Self {
            rounds: 7,
            warm_ms: 150,
            run_ms: 700,
            idle: 10_000,
            isolation_ms: 4000,
            cold_bytes: 1 << 30,
            only: Vec::new(),
            scenarios: Vec::new(),
            cross_check: CrossCheck::Yes,
            arguments: String::new(),
        }
    }

    /// A look, under two minutes.
    pub fn quick() -> Self {
        Self {
            rounds: 3,
            warm_ms: 60,
            run_ms: 160,
            cross_check: CrossCheck::No,
            idle: 2000,
            isolation_ms: 700,
            cold_bytes: 1 << 28,
            ..Self::whole()
        }
    }
}

/// The scenarios by name, in their order.
pub const SCENARIOS: &[&str] = &["minimal", "browser", "pipelined", "workers", "idle", "isolation"];

/// A peer that was obtained.
pub type Ready = (&'static Recipe, Tool);

/// Everything a scenario needs.
struct Bench<'a> {
    shop: &'a mut Workshop,
    settings: &'a Settings,
    progress: Progress,
    peers: Vec<Ready>,
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &Settings) -> Result<Record> {
    let record = Record::begin("peers", shop, settings.arguments.clone())?;
    for scenario in &settings.scenarios {
        ensure!(SCENARIOS.contains(&scenario.as_str()), "no scenario is called {scenario:?}: {}", SCENARIOS.join(", "));
    }
    crate::load::idle::raise_descriptors(settings.idle as u64 + 2000)?;
    let peers = obtain(shop, &settings.only)?;
    let chosen =
        |name: &&&str| settings.scenarios.is_empty() || settings.scenarios.iter().any(|wanted| wanted == **name);
    let chosen: Vec<&str> = SCENARIOS.iter().filter(chosen).copied().collect();
    let planned = chosen.iter().map(|name| planned_ms(name, settings, &peers)).sum();
    let mut bench = Bench { shop, settings, progress: Progress::new(planned), peers };
    let mut tables = Vec::new();
    for name in chosen {
        let measured = match name {
            "workers" => vec![workers::run(&mut bench)?],
            "idle" => vec![idle::run(&mut bench)?],
            "isolation" => isolation::run(&mut bench)?,
            _ => vec![throughput::run(&mut bench, name)?],
        };
        for table in &measured {
            bench.progress.say(&format!("\n{}\n{}", table.title, crate::record::table::markdown(table)));
        }
        tables.extend(measured);
    }
    bench.progress.end();
    Ok(record.finish(shop, tables))
}

fn planned_ms(scenario: &str, settings: &Settings, peers: &[Ready]) -> u64 {
    match scenario {
        "workers" => workers::planned_ms(settings, peers),
        "idle" => idle::planned_ms(settings, peers),
        "isolation" => isolation::planned_ms(settings, peers),
        _ => throughput::planned_ms(scenario, settings, peers),
    }
}

/// Obtains the wanted peers; who cannot be had is skipped with a line.
pub fn obtain(shop: &mut Workshop, only: &[String]) -> Result<Vec<Ready>> {
    for name in only {
        peers::recipe(name)?;
    }
    let mut ready = Vec::new();
    for recipe in RECIPES {
        if recipe.name != LIMIT && !only.is_empty() && only.iter().all(|name| name != recipe.name) {
            continue;
        }
        match peers::obtain(shop, recipe) {
            Ok(tool) => ready.push((recipe, tool)),
            Err(error) => skip(shop, recipe.name, &error),
        }
    }
    ensure!(
        ready.first().is_some_and(|(recipe, _)| recipe.name == LIMIT),
        "without the limit server nothing is compared"
    );
    Ok(ready)
}

/// Notes that something is left out, on the terminal and in the record.
pub fn skip(shop: &mut Workshop, what: &str, error: &anyhow::Error) {
    let line = shop.shown(&format!("{what}: {error:#}"));
    eprintln!("left out: {line}");
    shop.skipped.push(line);
}

/// Starts those peers that come up; the others are skipped with a line.
fn start_all(
    shop: &mut Workshop,
    peers: &[Ready],
    workers: usize,
    cores: Cores,
    wanted: fn(&Recipe) -> bool,
) -> Vec<Server> {
    let mut servers = Vec::new();
    for (recipe, tool) in peers.iter().filter(|(recipe, _)| wanted(recipe)) {
        match Server::start(shop, recipe, tool, workers, cores, None) {
            Ok(server) => servers.push(server),
            Err(error) => skip(shop, recipe.name, &error),
        }
    }
    servers
}

/// Runs the load generator on `cores`, under `tool` if one is given, and returns what it measured.
pub fn generate(cores: Cores, plan: &Plan, tool: &[&str]) -> Result<Report> {
    let mut command = cores.command();
    command.args(tool).arg(std::env::current_exe()?).arg("load");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    serde_json::to_writer(child.stdin.take().context("a piped input")?, plan)?;
    let done = child.wait_with_output()?;
    ensure!(done.status.success(), "load: {}", String::from_utf8_lossy(&done.stderr).trim());
    serde_json::from_slice(&done.stdout).context("what the load generator says")
}

/// System calls of the server over a short load, per request: by the kernel's own count where tracepoints can be had,
/// else by strace, which slows the server down but counts the same.
pub fn system_calls(shop: &Workshop, server: &Server, plan: &Plan) -> Result<f64> {
    let file = shop.scratch.join("calls");
    let shown = file.to_string_lossy().into_owned();
    let ids = server.processes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    if crate::workshop::find("perf").is_some() {
        let perf = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o", &shown, "-p", &ids, "--"];
        let counted = generate(Cores::One(1), plan, &perf).and_then(|report| {
            Ok((report, perf_count(&std::fs::read_to_string(&file)?).context("perf counted nothing")?))
        });
        if let Ok((report, calls)) = counted {
            return Ok(calls as f64 / report.requests_all as f64);
        }
    }
    let strace = shop.packaged("strace", "strace")?;
    let mut command = Command::new(strace);
    command.args(["-c", "-f", "-o", &shown]);
    for process in &server.processes {
        command.args(["-p", &process.to_string()]);
    }
    let mut tracer = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let report = generate(Cores::One(1), plan, &[]);
    let pid = rustix::process::Pid::from_child(&tracer);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    tracer.wait()?;
    let calls = strace_count(&std::fs::read_to_string(&file)?).context("strace counted nothing: may it trace?")?;
    Ok(calls as f64 / report?.requests_all as f64)
}

/// The count in `perf stat -x,` output.
pub fn perf_count(said: &str) -> Option<u64> {
    said.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?.split(',').next()?.parse().ok()
}

/// The calls in the last line of `strace -c` output.
fn strace_count(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// A closed-loop plan against a server.
fn plan(server: &Server, request: String, connections: usize, depth: usize, settings: &Settings) -> Plan {
    Plan {
        address: server.address,
        request,
        hosts: Vec::new(),
        connections,
        depth,
        warm_ms: settings.warm_ms,
        run_ms: settings.run_ms,
        rate: None,
        processes: server.processes.clone(),
        disturb: None,
    }
}

/// CPU µs per request over all rounds, with user and system apart; rates and latencies.
pub fn cost_metrics(reports: &[Report]) -> Vec<Metric> {
    let each = |figure: fn(&Report) -> f64| reports.iter().map(figure).collect::<Vec<_>>();
    let cost = each(cpu_us);
    // The split is by tick samples: pooled over all rounds, then applied to each round's exact sum.
    let user: u64 = reports.iter().map(|report| report.usage.user_ms).sum();
    let system: u64 = reports.iter().map(|report| report.usage.system_ms).sum();
    let share = user as f64 / (user + system).max(1) as f64;
    vec![
        Metric::time("CPU per request", "µs", cost.clone()),
        Metric::time("user", "µs", cost.iter().map(|cost| cost * share).collect()),
        Metric::time("system", "µs", cost.iter().map(|cost| cost * (1.0 - share)).collect()),
        Metric::rate("requests", each(|report| report.requests as f64 / report.seconds)),
        Metric::time("p50", "µs", each(|report| report.p50_us)),
        Metric::time("p99", "µs", each(|report| report.p99_us)),
    ]
}

/// CPU µs per request in one slot.
pub fn cpu_us(report: &Report) -> f64 {
    report.usage.cpu_ns as f64 / 1e3 / report.requests as f64
}

/// Says so in the row when another process had the server's core for more than a twentieth of the time.
pub fn note_disturbance(row: &mut Row, reports: &[Report]) {
    let delays: Vec<_> = reports.iter().map(|report| report.usage.delayed_ns as f64 / 1e9 / report.seconds).collect();
    let delay = crate::stats::median(&delays);
    if delay > 0.05 {
        row.note_disturbed(100.0 * delay);
    }
}

/// Requests per second as wrk sees them.
pub fn wrk(wrk: &Path, cores: Cores, arguments: &[&str], server: &Server) -> Result<crate::tools::Rates> {
    let url = format!("http://{}{}", server.address, server.launch.path);
    let said = machine::output(cores.command().arg(wrk).args(arguments).arg(url))?;
    crate::tools::wrk_rates(&said).with_context(|| format!("wrk said {said:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_are_read_from_both_tools() {
        let perf = "# started on Sat\n\n1234,,raw_syscalls:sys_enter,1000,100.00,,\n";
        assert_eq!(perf_count(perf), Some(1234));
        assert_eq!(perf_count("<not supported>,,raw_syscalls:sys_enter,0,0,,"), None);
        let with_errors = "% time     seconds  usecs/call     calls    errors syscall\n\
             ------ ----------- ----------- --------- --------- ----------------\n \
             60.00    0.000060           1        60         1 recvfrom\n\
             ------ ----------- ----------- --------- --------- ----------------\n\
             100.00    0.000100           1       100         1 total\n";
        assert_eq!(strace_count(with_errors), Some(100));
        assert_eq!(strace_count(&with_errors.replace("         1 total", "           total")), Some(100));
        assert_eq!(strace_count(""), None);
    }
}

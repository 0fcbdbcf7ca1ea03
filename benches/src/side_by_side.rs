//! `./bench peers`: the cost of a request in Causeway and other servers, relative to a reference server that only makes
//! the necessary system calls.
//!
//! - [`throughput`]: minimal, browser-like and pipelined requests on one core; each slot is between two slots of the
//!   limit server
//! - [`workers`]: two workers on two cores compared with one on one
//! - [`idle`]: memory per idle connection
//! - [`isolation`]: the effect of a CPU-bound route or a cold file on all other requests

pub mod idle;
mod isolation;
mod throughput;
mod workers;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::load::{LoadPlan, Report};
use crate::machine;
use crate::peers::{self, LIMIT, RECIPES, Recipe, Tool};
use crate::progress::Progress;
use crate::record::{Metric, Record, Row};
use crate::server::{Cores, PeerServer};
use crate::workshop::Workshop;

/// The amount of measurement.
#[derive(Debug, Clone)]
pub struct SlotSettings {
    /// Rounds of each throughput scenario.
    pub rounds: usize,
    /// Duration of the load before each slot, in ms.
    pub warm_ms: u64,
    /// Duration of a slot, in ms.
    pub run_ms: u64,
    /// Number of idle connections.
    pub idle: usize,
    /// Duration of an isolation measurement, in ms.
    pub isolation_ms: u64,
    /// Size of the cold file in bytes.
    pub cold_bytes: u64,
    /// Selected peers; all if empty. The limit server always runs.
    pub only: Vec<String>,
    /// Selected scenarios; all if empty.
    pub scenarios: Vec<String>,
    /// Whether wrk measures too.
    pub cross_check: CrossCheck,
    /// The command line's arguments, for the record.
    pub arguments: String,
}

/// Whether wrk repeats the minimal scenario, to check the rate with an independent program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CrossCheck {
    /// wrk measures too.
    Yes,
    /// wrk does not measure.
    No,
}

impl SlotSettings {
    /// Returns the settings of the whole bench, which takes less than ten minutes.
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

    /// Returns the settings of a quick run, which takes less than two minutes.
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

/// Names of the scenarios, in order.
pub const SCENARIOS: &[&str] = &["minimal", "browser", "pipelined", "workers", "idle", "isolation"];

/// A peer with its program.
pub type Ready = (&'static Recipe, Tool);

/// The context of a scenario.
struct SideBySideBench<'a> {
    shop: &'a mut Workshop,
    settings: &'a SlotSettings,
    progress: Progress,
    peers: Vec<Ready>,
}

/// Runs the bench and returns its record.
pub fn run(shop: &mut Workshop, settings: &SlotSettings) -> Result<Record> {
    let record = Record::begin("peers", shop, settings.arguments.clone())?;
    for scenario in &settings.scenarios {
        ensure!(
            SCENARIOS.contains(&scenario.as_str()),
            "unknown scenario {scenario:?}; expected one of {}",
            SCENARIOS.join(", ")
        );
    }
    crate::load::idle::raise_descriptors(settings.idle as u64 + 2000)?;
    let peers = obtain(shop, &settings.only)?;
    let chosen =
        |name: &&&str| settings.scenarios.is_empty() || settings.scenarios.iter().any(|wanted| wanted == **name);
    let chosen: Vec<&str> = SCENARIOS.iter().filter(chosen).copied().collect();
    let planned = chosen.iter().map(|name| planned_ms(name, settings, &peers)).sum();
    let mut bench = SideBySideBench { shop, settings, progress: Progress::new(planned), peers };
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

fn planned_ms(scenario: &str, settings: &SlotSettings, peers: &[Ready]) -> u64 {
    match scenario {
        "workers" => workers::planned_ms(settings, peers),
        "idle" => idle::planned_ms(settings, peers),
        "isolation" => isolation::planned_ms(settings, peers),
        _ => throughput::planned_ms(scenario, settings, peers),
    }
}

/// Obtains the selected peers. Skips unavailable ones with a message.
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
        "the limit server is required as the reference"
    );
    Ok(ready)
}

/// Records a skipped part, and prints it.
pub fn skip(shop: &mut Workshop, what: &str, error: &anyhow::Error) {
    let line = shop.shown(&format!("{what}: {error:#}"));
    eprintln!("skipped: {line}");
    shop.skipped.push(line);
}

/// Starts the peers. Skips those that fail with a message.
fn start_all(
    shop: &mut Workshop,
    peers: &[Ready],
    workers: usize,
    cores: Cores,
    wanted: fn(&Recipe) -> bool,
) -> Vec<PeerServer> {
    let mut servers = Vec::new();
    for (recipe, tool) in peers.iter().filter(|(recipe, _)| wanted(recipe)) {
        match PeerServer::start(shop, recipe, tool, workers, cores, None) {
            Ok(server) => servers.push(server),
            Err(error) => skip(shop, recipe.name, &error),
        }
    }
    servers
}

/// Runs the load generator on `cores`, under `tool` if it is not empty, and returns its report.
pub fn generate(cores: Cores, plan: &LoadPlan, tool: &[&str]) -> Result<Report> {
    let mut command = cores.command();
    command.args(tool).arg(std::env::current_exe()?).arg("load");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    serde_json::to_writer(child.stdin.take().context("a piped input")?, plan)?;
    let done = child.wait_with_output()?;
    ensure!(done.status.success(), "load: {}", String::from_utf8_lossy(&done.stderr).trim());
    serde_json::from_slice(&done.stdout).context("parsing the load generator's report")
}

/// Returns the server's number of system calls per request over a short load: counted by the kernel where tracepoints
/// are available, else by strace, which slows the server down but counts the same calls.
pub fn system_calls(shop: &Workshop, server: &PeerServer, plan: &LoadPlan) -> Result<f64> {
    let file = shop.scratch.join("calls");
    let shown = file.to_string_lossy().into_owned();
    let ids = server.processes.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    if crate::workshop::find("perf").is_some() {
        let perf = ["perf", "stat", "-x,", "-e", "raw_syscalls:sys_enter", "-o", &shown, "-p", &ids, "--"];
        let counted = generate(Cores::One(1), plan, &perf).and_then(|report| {
            Ok((report, perf_count(&std::fs::read_to_string(&file)?).context("perf has no count")?))
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
    // Give strace time to attach to all threads.
    std::thread::sleep(std::time::Duration::from_millis(300));
    let report = generate(Cores::One(1), plan, &[]);
    let pid = rustix::process::Pid::from_child(&tracer);
    rustix::process::kill_process(pid, rustix::process::Signal::INT)?;
    tracer.wait()?;
    let calls = strace_count(&std::fs::read_to_string(&file)?).context("strace has no count: is tracing permitted?")?;
    Ok(calls as f64 / report?.requests_all as f64)
}

/// Parses the count in the output of `perf stat -x,`.
pub fn perf_count(said: &str) -> Option<u64> {
    said.lines().find(|line| line.contains("raw_syscalls:sys_enter"))?.split(',').next()?.parse().ok()
}

/// Parses the number of calls in the last line of `strace -c`.
fn strace_count(said: &str) -> Option<u64> {
    let line = said.lines().rev().find(|line| line.trim_end().ends_with(" total"))?;
    line.split_ascii_whitespace().nth(3)?.parse().ok()
}

/// Returns a closed-loop plan against a server.
fn plan(server: &PeerServer, request: String, connections: usize, depth: usize, settings: &SlotSettings) -> LoadPlan {
    LoadPlan {
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

/// Returns the CPU time per request, also split into user and system, and rates and latencies.
pub fn cost_metrics(reports: &[Report]) -> Vec<Metric> {
    let each = |figure: fn(&Report) -> f64| reports.iter().map(figure).collect::<Vec<_>>();
    let cost = each(cpu_us);
    // The split into user and system time is sampled: it is pooled over all rounds, then applied to each round's exact
    // sum.
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

/// Returns the CPU time per request of a slot in µs.
pub fn cpu_us(report: &Report) -> f64 {
    report.usage.cpu_ns as f64 / 1e3 / report.requests as f64
}

/// Adds a note to the row when other processes had the server's core for more than 5 % of the time.
pub fn note_disturbance(row: &mut Row, reports: &[Report]) {
    let delays: Vec<_> = reports.iter().map(|report| report.usage.delayed_ns as f64 / 1e9 / report.seconds).collect();
    let delay = crate::stats::median(&delays);
    if delay > 0.05 {
        row.note_disturbed(100.0 * delay);
    }
}

/// Returns the requests per second that wrk measured.
pub fn wrk(wrk: &Path, cores: Cores, arguments: &[&str], server: &PeerServer) -> Result<crate::tools::Rates> {
    let url = format!("http://{}{}", server.address, server.launch.path);
    let said = machine::output(cores.command().arg(wrk).args(arguments).arg(url))?;
    crate::tools::wrk_rates(&said).with_context(|| format!("wrk printed {said:?}"))
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

//! Case 10: the overhead of a running profile, and the time until the first five targets are known to one percentage
//! point.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use causal::report::Perturbation;
use causal::statistics::t_quantile;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::prediction::{at, understood};
use super::program::RunningProgram;
use crate::machine::output;
use crate::progress::Progress;
use crate::sample::{Usage, children_cpu_ns};
use crate::server::Cores;
use crate::stats;
use crate::workshop::Workshop;

/// The overhead budget given to the profiler, which it must keep.
pub const BUDGET: f64 = 0.03;
/// Number of wrk's connections.
const CONNECTIONS: usize = 64;
/// A target counts as known when half its interval is at most this.
const KNOWN: f64 = 0.01;

/// Duration of the handler's work per request in µs. Without it wrk would be as busy as the server, and would hide the
/// server's loss.
pub const WORK: u32 = 5;
/// Upper bound of wrk's share of its core.
const WRK_BUSY_MAX: f64 = 0.95;

/// A server of small responses under wrk, with and without a profile.
///
/// The speed of virtual machines varies by far more than the measured overhead, and it varies for wrk too. The server
/// is therefore compared with wrk in one slot: its CPU time with wrk's, and its rate with the share of its core that
/// wrk used, since wrk's work per response is constant. The raw measurements are reported too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Requests per second without a profile.
    pub rate: f64,
    /// The server's CPU time per request in µs.
    pub cpu_us: f64,
    /// wrk's CPU time per request in µs.
    pub wrk_us: f64,
    /// All slots in order.
    pub slots: Vec<WrkRun>,
    /// The overhead per mode.
    pub modes: Vec<ModeCost>,
    /// For profiles of all targets: their duration in seconds, and the widest half interval at 50 % of their first five
    /// targets.
    pub precision: Vec<(f64, Option<f64>)>,
}

/// The overhead of one mode.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModeCost {
    /// `screen` or `confirm`.
    pub mode: String,
    /// The lost share of the rate, relative to wrk's CPU time: the median over pairs, and half of its interval.
    pub rate_lost: (f64, f64),
    /// The lost share of the rate as measured.
    pub rate_lost_raw: (f64, f64),
    /// The relative growth of the server's CPU time, relative to wrk's.
    pub cpu_more: (f64, f64),
    /// The profiler's own figures: pauses and holds; recording and its own threads.
    pub said: Vec<(f64, f64)>,
}

/// One run of wrk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrkRun {
    /// The mode of the concurrent profile; `None` without one.
    pub mode: Option<String>,
    /// Requests per second.
    pub rate: f64,
    /// The server's CPU time per request in µs.
    pub cpu_us: f64,
    /// wrk's CPU time per request in µs.
    pub wrk_us: f64,
}

impl WrkRun {
    /// Returns the rate relative to wrk's CPU time, the raw rate, and the CPU time relative to wrk's.
    fn figures(&self) -> [f64; 3] {
        [self.rate * self.wrk_us, self.rate, self.cpu_us / self.wrk_us]
    }
}

/// Measures `rounds` rounds. Each alternates slots: no profile, screening, no profile, confirming.
pub fn run(
    shop: &Workshop,
    steps_per_ms: u64,
    rounds: usize,
    seconds: u64,
    spans: &[f64],
    progress: &Progress,
) -> Result<Cost> {
    let wrk = shop.packaged("wrk", "wrk")?;
    let (mut server, port) = RunningProgram::start_server(shop, &format!("/={WORK}+0"), steps_per_ms)?;
    let slot = |server: &RunningProgram, mode: Option<&str>| -> Result<WrkRun> {
        let (before, children) = (Usage::read(&[server.process()])?, children_cpu_ns()?);
        let mut command = Cores::One(1).command();
        command.arg(&wrk).args(["-t1", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s")]);
        let said = output(command.arg(format!("http://127.0.0.1:{port}/")))?;
        let used = Usage::read(&[server.process()])?.since(&before);
        ensure!(!said.contains("Non-2xx") && !said.contains("Socket errors"), "wrk: {said}");
        let number = |name: &str| {
            let line = said.lines().find(|line| line.contains(name))?;
            line.split_whitespace().find_map(|word| word.parse::<f64>().ok())
        };
        let rate = number("Requests/sec").context("wrk printed no rate")?;
        let requests = number("requests in").context("wrk printed no number of requests")?;
        progress.done(seconds * 1000);
        let wrk_us = (children_cpu_ns()? - children) as f64 / 1e3 / requests;
        let busy = rate * wrk_us / 1e6;
        ensure!(
            busy < WRK_BUSY_MAX,
            "wrk used {:.0} % of its core: it is not the server that was measured",
            busy * 100.0
        );
        Ok(WrkRun { mode: mode.map(str::to_owned), rate, cpu_us: used.cpu_ns as f64 / 1e3 / requests, wrk_us })
    };
    // Warm-up; its result is discarded.
    slot(&server, None)?;
    let (mut slots, mut said) = (vec![slot(&server, None)?], Vec::new());
    for _ in 0..rounds {
        for mode in ["screen", "confirm"] {
            let asked =
                // The profile is longer than the slot, so it covers the whole slot.
                json!({ "seconds": seconds as f64 + 1.0, "mode": mode, "targets": [], "seed": 1, "budget": BUDGET });
            server.begin_profile(&asked)?;
            std::thread::sleep(Duration::from_millis(300));
            slots.push(slot(&server, Some(mode))?);
            let Perturbation { paused, recording, own, .. } = understood(server.end_profile()?)?.perturbation;
            said.push((mode, (paused, recording + own)));
            slots.push(slot(&server, None)?);
        }
    }
    let of = |mode: &str| {
        let ratios = |at: usize| -> Vec<f64> {
            let pairs = slots.array_windows::<3>().filter(|[_, with, _]| with.mode.as_deref() == Some(mode));
            pairs
                .map(|slots| slots.each_ref().map(|slot| slot.figures()[at]))
                // The reference is the mean of the adjacent slots without a profile.
                .map(|[before, with, behind]| with / f64::midpoint(before, behind))
                .collect()
        };
        let change = |at: usize, sign: f64| {
            let changes: Vec<_> = ratios(at).iter().map(|ratio| sign * (ratio - 1.0)).collect();
            // A t quantile, since there are few changes.
            (stats::median(&changes), t_quantile(changes.len() as f64 - 1.0) * stats::spread(&changes))
        };
        ModeCost {
            mode: mode.to_owned(),
            rate_lost: change(0, -1.0),
            rate_lost_raw: change(1, -1.0),
            cpu_more: change(2, 1.0),
            said: said.iter().filter(|(of, _)| *of == mode).map(|(_, said)| *said).collect(),
        }
    };
    let modes = vec![of("screen"), of("confirm")];
    let median = |of: fn(&WrkRun) -> f64| {
        stats::median(&slots.iter().filter(|slot| slot.mode.is_none()).map(of).collect::<Vec<_>>())
    };
    let (rate, cpu_us, wrk_us) = (median(|slot| slot.rate), median(|slot| slot.cpu_us), median(|slot| slot.wrk_us));
    drop(server);
    Ok(Cost { rate, cpu_us, wrk_us, slots, modes, precision: precision(shop, steps_per_ms, spans, progress)? })
}

/// Runs profiles of all targets in case 1's server, with increasing duration.
fn precision(
    shop: &Workshop,
    steps_per_ms: u64,
    spans: &[f64],
    progress: &Progress,
) -> Result<Vec<(f64, Option<f64>)>> {
    let hot = &super::cases::CASES[0];
    let mut found = Vec::new();
    for &seconds in spans {
        let mut running = RunningProgram::start(shop, hot, steps_per_ms)?;
        std::thread::sleep(Duration::from_millis(300));
        let asked = json!({ "seconds": seconds, "mode": "both", "targets": [], "seed": 1, "budget": BUDGET });
        let report = understood(running.profile(&asked)?)?;
        let halves = report.targets.iter().take(5).map(|target| at(&target.curve, 50).map(|answer| answer.half()));
        // No result with fewer than five targets, or with a curve that has no point at 50 %.
        let widest = (report.targets.len() >= 5).then(|| halves.collect::<Option<Vec<_>>>()).flatten();
        let widest = widest.map(|halves| halves.into_iter().fold(0.0, f64::max));
        found.push((seconds, widest));
        progress.done((seconds * 1e3) as u64);
        if widest.is_some_and(|half| half <= KNOWN) {
            break;
        }
    }
    Ok(found)
}

impl Cost {
    /// Whether each mode kept the budget, within the measurement's uncertainty.
    pub fn passes(&self) -> bool {
        self.modes.iter().all(|mode| mode.rate_lost.0 - mode.rate_lost.1 <= BUDGET)
    }

    /// Returns the duration in seconds after which the first five targets were known to one percentage point.
    pub fn known_after(&self) -> Option<f64> {
        self.precision.iter().find(|(_, half)| half.is_some_and(|half| half <= KNOWN)).map(|(seconds, _)| *seconds)
    }
}

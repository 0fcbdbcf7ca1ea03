//! Case 10: what a profile costs the server while it runs, and how long it takes until the first five targets are known to a point.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use causal::report::Perturbation;
use causal::statistics::t_quantile;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::prediction::{at, understood};
use super::program::Running;
use crate::machine::output;
use crate::progress::Progress;
use crate::sample::{Usage, children_cpu_ns};
use crate::server::Cores;
use crate::stats;
use crate::workshop::Workshop;

/// The budget that the profiler is given and has to keep.
pub const BUDGET: f64 = 0.03;
/// Connections of wrk.
const CONNECTIONS: usize = 64;
/// The half of an interval at which a target is known.
const KNOWN: f64 = 0.01;

/// What the server's work takes a request, µs: without it wrk is as busy as the server, and hides what that loses.
pub const WORK: u32 = 5;
/// No more of its core may wrk use.
const WRK_BUSY_MAX: f64 = 0.95;

/// A server of small answers under wrk, without a profile and with one.
///
/// Hosts of virtual machines are fast and slow by turns, by far more than what is looked for, and then are so for wrk, too. So the server is
/// compared with wrk in the same slot: its CPU time with wrk's, and for the rate how much of its core wrk could use, who has always the same
/// to do for an answer. What was measured is told besides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cost {
    /// Requests a second without a profile.
    pub rate: f64,
    /// CPU time a request, µs: the server's.
    pub cpu_us: f64,
    /// And wrk's.
    pub wrk_us: f64,
    /// All slots in their order.
    pub slots: Vec<Slot>,
    /// By mode.
    pub modes: Vec<ModeCost>,
    /// How long profiles of everything had to be: seconds, and the widest half interval at 50 % among their first five targets.
    pub precision: Vec<(f64, Option<f64>)>,
}

/// What one mode costs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModeCost {
    /// `screen` or `confirm`.
    pub mode: String,
    /// The part of the rate that is lost, by what wrk takes: the median of pairs, and half of its interval.
    pub rate_lost: (f64, f64),
    /// The same as it was measured.
    pub rate_lost_raw: (f64, f64),
    /// The part by which the server's CPU time grows, by wrk's.
    pub cpu_more: (f64, f64),
    /// What the profiler says of itself: pauses and holds; recording and its own threads.
    pub said: Vec<(f64, f64)>,
}

/// One run of wrk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Slot {
    /// The mode of the profile that ran, if one did.
    pub mode: Option<String>,
    /// Requests a second.
    pub rate: f64,
    /// CPU time a request, µs: the server's.
    pub cpu_us: f64,
    /// And wrk's.
    pub wrk_us: f64,
}

impl Slot {
    /// The rate by what wrk takes, the rate, and CPU time by wrk's.
    fn figures(&self) -> [f64; 3] {
        [self.rate * self.wrk_us, self.rate, self.cpu_us / self.wrk_us]
    }
}

/// Measures so many rounds, each of slots without, screening, without, confirming.
pub fn run(
    shop: &Workshop,
    steps_per_ms: u64,
    rounds: usize,
    seconds: u64,
    spans: &[f64],
    progress: &Progress,
) -> Result<Cost> {
    let wrk = shop.packaged("wrk", "wrk")?;
    let (mut server, port) = Running::start_server(shop, &format!("/={WORK}+0"), steps_per_ms)?;
    let slot = |server: &Running, mode: Option<&str>| -> Result<Slot> {
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
        let rate = number("Requests/sec").context("wrk says no rate")?;
        let requests = number("requests in").context("wrk says no number of requests")?;
        progress.done(seconds * 1000);
        let wrk_us = (children_cpu_ns()? - children) as f64 / 1e3 / requests;
        let busy = rate * wrk_us / 1e6;
        ensure!(
            busy < WRK_BUSY_MAX,
            "wrk used {:.0} % of its core: it is not the server that was measured",
            busy * 100.0
        );
        Ok(Slot { mode: mode.map(str::to_owned), rate, cpu_us: used.cpu_ns as f64 / 1e3 / requests, wrk_us })
    };
    slot(&server, None)?;
    let (mut slots, mut said) = (vec![slot(&server, None)?], Vec::new());
    for _ in 0..rounds {
        for mode in ["screen", "confirm"] {
            let asked =
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
                .map(|[before, with, behind]| with / f64::midpoint(before, behind))
                .collect()
        };
        let change = |at: usize, sign: f64| {
            let changes: Vec<_> = ratios(at).iter().map(|ratio| sign * (ratio - 1.0)).collect();
            // There are few of them.
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
    let median = |of: fn(&Slot) -> f64| {
        stats::median(&slots.iter().filter(|slot| slot.mode.is_none()).map(of).collect::<Vec<_>>())
    };
    let (rate, cpu_us, wrk_us) = (median(|slot| slot.rate), median(|slot| slot.cpu_us), median(|slot| slot.wrk_us));
    drop(server);
    Ok(Cost { rate, cpu_us, wrk_us, slots, modes, precision: precision(shop, steps_per_ms, spans, progress)? })
}

/// Profiles of everything in case 1's server, longer and longer.
fn precision(
    shop: &Workshop,
    steps_per_ms: u64,
    spans: &[f64],
    progress: &Progress,
) -> Result<Vec<(f64, Option<f64>)>> {
    let hot = &super::cases::CASES[0];
    let mut found = Vec::new();
    for &seconds in spans {
        let mut running = Running::start(shop, hot, steps_per_ms)?;
        std::thread::sleep(Duration::from_millis(300));
        let asked = json!({ "seconds": seconds, "mode": "both", "targets": [], "seed": 1, "budget": BUDGET });
        let report = understood(running.profile(&asked)?)?;
        let halves = report.targets.iter().take(5).map(|target| at(&target.curve, 50).map(|answer| answer.half()));
        // Fewer than five are no answer; neither is one without a point at 50 %.
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
    /// Whether each mode kept the budget, give or take what the measuring is unsure of.
    pub fn passes(&self) -> bool {
        self.modes.iter().all(|mode| mode.rate_lost.0 - mode.rate_lost.1 <= BUDGET)
    }

    /// After how many seconds the first five targets were known to a point.
    pub fn known_after(&self) -> Option<f64> {
        self.precision.iter().find(|(_, half)| half.is_some_and(|half| half <= KNOWN)).map(|(seconds, _)| *seconds)
    }
}

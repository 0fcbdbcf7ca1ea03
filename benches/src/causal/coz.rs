//! Runs Coz on the programs, compiled with the standard library's threads and locks.
//!
//! Programs that generate their own load share their source; the server is a small one with equal planted costs and
//! load (`benches/causal/served.rs`), whose own cost is lower by a few microseconds of a hundred. Coz gets the best
//! conditions: DWARF 4 (it aborts on DWARF 5, Rust's default), a program that is not position-independent (else it sees
//! no samples in the program's lines), costs on one line of one file each, the line and the speed-up to test, and a
//! progress point.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::cases::{CausalCase, Program};
use super::load::{Protocol, RunningLoad};
use super::program::wait_for;
use crate::machine::output;
use crate::server::{Cores, free_port};
use crate::stats;
use crate::workshop::Workshop;

/// The source file of the planted costs.
const PLANTED: &str = "src/bin/causal_case/planted.rs";

/// Coz, with the programs compiled for it.
pub struct Coz {
    coz: PathBuf,
    twin: PathBuf,
    lines: Vec<(String, usize)>,
}

/// Coz's result at one speed-up.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CozResult {
    /// The speed-up in percent.
    pub speedup: u32,
    /// The gain 1 − p(v)/p(0), computed like Coz's viewer.
    pub gain: Option<f64>,
    /// The reason for a missing gain.
    pub why: Option<String>,
    /// Half of the 95 % interval over the experiments.
    pub half: f64,
}

impl Coz {
    /// Installs Coz and compiles the programs for it.
    pub fn obtain(shop: &mut Workshop) -> Result<Self> {
        let coz = shop.packaged("coz", "coz-profiler")?;
        let twin = shop.tools.join("coz_twin");
        let source = shop.bench.join("causal/coz_twin.rs");
        let arguments = ["--edition", "2024", "-O", "-g", "-C", "codegen-units=1", "-C", "force-frame-pointers=yes"];
        output(
            Command::new("rustc")
                .args(arguments)
                .args(["-C", "dwarf-version=4", "-C", "relocation-model=static", "-A", "warnings", "-o"])
                .arg(&twin)
                .arg(&source),
        )?;
        let planted = fs::read_to_string(shop.bench.join(PLANTED))?;
        let version = output(Command::new("dpkg-query").args(["-W", "-f", "${Version}", "coz-profiler"]));
        shop.versions.insert("coz".to_owned(), version.unwrap_or_else(|_| "unknown".to_owned()));
        Ok(Self { coz, twin, lines: lines(&planted) })
    }

    /// Tests one line at each speed-up: one run for each, and one without.
    pub fn ask(
        &self,
        case: &CausalCase,
        scratch: &Path,
        steps_per_ms: u64,
        speedups: &[u32],
        seconds: u64,
    ) -> Result<Vec<CozResult>> {
        let program = case.coz.context("a program that Coz gets")?;
        let (_, line) = self.lines.iter().find(|(name, _)| name == case.knob).context("a planted function")?;
        let run = |speedup: u32| -> Result<Vec<f64>> {
            let file = scratch.join(format!("coz-{}-{speedup}.coz", case.name));
            // The profile of an earlier run must not be read as this one's.
            let _ = fs::remove_file(&file);
            let cores = if matches!(case.program, Program::Alone(_)) { Cores::First(2) } else { Cores::One(0) };
            let mut command = cores.command();
            command
                .args(["timeout", &(seconds + 60).to_string()])
                .arg(&self.coz)
                .args(["run", "--source-scope", "%planted.rs", "--fixed-line", &format!("planted.rs:{line}")])
                .args(["--fixed-speedup", &speedup.to_string(), "-o"])
                .arg(&file)
                .arg("---")
                .arg(&self.twin)
                .args([program, &seconds.to_string()])
                .env("STEPS_PER_MS", steps_per_ms.to_string())
                .env("KNOB", "0")
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::piped());
            let mut load = None;
            let child = match case.program {
                Program::Serve { routes, load: client } => {
                    let port = free_port()?;
                    let (hot, cold) = costs(routes).context("one route, '/'")?;
                    let mut child = command.args([port.to_string(), hot, cold]).spawn().context("running coz")?;
                    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                    let started =
                        wait_for(address).and_then(|()| RunningLoad::start(address, Protocol::One, client, None));
                    match started {
                        Ok(started) => load = Some(started),
                        Err(error) => {
                            child.kill()?;
                            child.wait()?;
                            return Err(error);
                        }
                    }
                    child
                }
                _ => command.spawn().context("running coz")?,
            };
            let done = child.wait_with_output()?;
            // The server exits at the end of a run, which breaks the load's connections.
            drop(load);
            if !done.status.success() {
                let said = String::from_utf8_lossy(&done.stderr);
                bail!("{}: {}", done.status, said.trim().lines().last().unwrap_or("no output"));
            }
            periods(&fs::read_to_string(&file).context("coz wrote no profile")?)
        };
        let without = run(0);
        let said = speedups.iter().map(|&speedup| {
            let both = without
                .as_ref()
                .map_err(|error| format!("{error:#}"))
                .and_then(|without| run(speedup).map(|with| (without, with)).map_err(|error| format!("{error:#}")));
            match both {
                Ok((without, with)) => {
                    let ratio = stats::median(&with) / stats::median(without);
                    let part = |periods: &[f64]| stats::spread(periods) / stats::median(periods);
                    // Relative errors of independent medians add in quadrature.
                    let half = 1.96 * ratio * part(without).hypot(part(&with));
                    CozResult { speedup, gain: Some(1.0 - ratio), why: None, half }
                }
                Err(error) => CozResult { speedup, gain: None, why: Some(error), half: 0.0 },
            }
        });
        Ok(said.collect())
    }
}

/// Returns the two costs of the only route, `/=HOT+COLD`.
fn costs(routes: &str) -> Option<(String, String)> {
    let (hot, cold) = routes.strip_prefix("/=")?.split_once('+')?;
    Some((hot.to_owned(), cold.to_owned()))
}

/// Returns the line of each planted function's cost: the one after its signature.
fn lines(planted: &str) -> Vec<(String, usize)> {
    let found = planted.lines().enumerate().filter_map(|(index, line)| {
        let name = line.strip_prefix("pub(crate) fn ")?.split('(').next()?;
        // Lines count from 1, and the cost is on the next line.
        Some((name.to_owned(), index + 2))
    });
    found.collect()
}

/// Returns the time per unit of each experiment in a Coz profile, whose durations already exclude the pauses.
fn periods(profile: &str) -> Result<Vec<f64>> {
    let (mut periods, mut experiment) = (Vec::new(), None);
    for line in profile.lines() {
        let field = |name: &str| line.split('\t').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        match line.split('\t').next() {
            Some("experiment") => {
                let duration = field("duration").and_then(|text| text.parse::<f64>().ok());
                let samples = field("selected-samples").and_then(|text| text.parse::<u64>().ok());
                experiment = duration.zip(samples);
            }
            Some("throughput-point") => {
                let units = field("delta").and_then(|text| text.parse::<f64>().ok()).filter(|units| *units > 0.0);
                if let (Some((duration, samples)), Some(units)) = (experiment.take(), units) {
                    periods.push((duration / units, samples));
                }
            }
            _ => {}
        }
    }
    ensure!(!periods.is_empty(), "no experiment with progress");
    ensure!(periods.iter().any(|&(_, samples)| samples > 0), "no samples in the line");
    Ok(periods.into_iter().map(|(period, _)| period).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The viewer's formula: the time of a unit is the experiment's duration divided by its units.
    #[test]
    fn periods_are_durations_by_units() {
        let profile = "startup\ttime=1\nexperiment\tselected=a.rs:1\tspeedup=0.50\tduration=1000\tselected-samples=3\n\
                       throughput-point\tname=unit\tdelta=10\nexperiment\tselected=a.rs:1\tspeedup=0.50\tduration=900\tselected-samples=0\n\
                       throughput-point\tname=unit\tdelta=0\nruntime\ttime=5\n";
        assert_eq!(periods(profile).unwrap(), [100.0]);
        assert!(periods("startup\ttime=1\n").is_err());
        assert!(periods(&profile.replace("samples=3", "samples=0")).is_err());
    }

    #[test]
    fn every_knob_of_a_program_for_coz_has_a_line_that_costs() {
        let planted = include_str!("../bin/causal_case/planted.rs");
        let lines = lines(planted);
        for case in super::super::cases::CASES.iter().filter(|case| case.coz.is_some()) {
            let (_, line) = lines.iter().find(|(name, _)| name == case.knob).expect(case.name);
            assert!(planted.lines().nth(line - 1).unwrap().contains("spin!"), "{}", case.name);
        }
    }
}

//! The context of a record: machine, date and commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The machine's properties that affect figures. Host names and paths are not recorded.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// Number of online cores.
    pub cores: usize,
    /// The kernel's release.
    pub kernel: String,
    /// Memory in GiB, rounded.
    pub memory_gib: u64,
}

impl Machine {
    /// Reads the properties of this machine.
    pub fn here() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown CPU").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            // The release without suffixes of a distribution or host.
            kernel: release.trim().split('-').next().unwrap_or_default().to_owned(),
            memory_gib: field(&meminfo, "MemTotal")
                .and_then(|total| total.trim_end_matches(" kB").parse::<u64>().ok())
                .map_or(0, |kib| (kib + (1 << 19)) >> 20),
        })
    }
}

/// Processor time since the machine started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticks {
    all: u64,
    /// Time that a virtual machine's host gave to others although this machine had work: `steal` of proc_stat(5).
    stolen: u64,
}

impl Ticks {
    /// Reads the current values.
    pub fn now() -> Result<Self> {
        Self::of(&fs::read_to_string("/proc/stat")?).context("/proc/stat has no line of all processors")
    }

    fn of(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        // Guest time is included in `user` and `nice`.
        let ticks: Option<Vec<u64>> = line.split_whitespace().take(8).map(|ticks| ticks.parse().ok()).collect();
        let ticks = ticks?;
        Some(Self { all: ticks.iter().sum(), stolen: *ticks.get(7)? })
    }

    /// Returns the share of time that the host took since `then`, from 0 to 1.
    pub fn stolen_since(&self, then: &Self) -> f64 {
        self.stolen.saturating_sub(then.stolen) as f64 / self.all.saturating_sub(then.all).max(1) as f64
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Returns today's date, UTC.
pub fn date() -> Result<String> {
    output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

/// Returns the commit of the repository at `root`, with the suffix `-dirty` when tracked files differ from it.
pub fn commit(root: &Path) -> Result<String> {
    let id = output(Command::new("git").current_dir(root).args(["rev-parse", "--short=9", "HEAD"]))?;
    let differs = Command::new("git").current_dir(root).args(["diff", "--quiet", "HEAD"]).status()?;
    Ok(if differs.success() { id } else { format!("{id}-dirty") })
}

/// Runs a command and returns its standard output, or its standard error if that is empty, trimmed.
pub fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("running {name}"))?;
    anyhow::ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    let said = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    Ok(String::from_utf8_lossy(&said).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_files() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n";
        assert_eq!(field(text, "model name"), Some("Some CPU @ 2 GHz"));
        assert_eq!(field(text, "flags"), None);
    }

    #[test]
    fn the_hosts_part_of_the_time() {
        let at = |line: &str| Ticks::of(&format!("{line}\ncpu0 1 1 1 1 1 1 1 1 1 1\nintr 5\n"));
        let then = at("cpu  100 0 20 300 5 0 1 10 50 0").unwrap();
        let now = at("cpu  160 0 40 310 5 0 1 20 90 0").unwrap();
        assert_eq!((then, now.stolen_since(&then)), (Ticks { all: 436, stolen: 10 }, 0.1));
        assert_eq!(then.stolen_since(&then), 0.0);
        assert_eq!((at("cpu  1 2 3"), at("cpu  1 2 3 x 5 6 7 8"), Ticks::of("cpu0 1")), (None, None, None));
        let now = Ticks::now().unwrap();
        assert!(now.all > 0 && now.stolen <= now.all, "{now:?}");
    }

    #[test]
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::here().unwrap();
        assert!(machine.cores > 0 && !machine.kernel.is_empty() && !machine.cpu.is_empty(), "{machine:?}");
    }
}

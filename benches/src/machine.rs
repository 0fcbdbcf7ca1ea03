//! Where and of what a record was taken: the machine, the date, the commit.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What the figures depend on besides the code. No name of the machine and no path is kept.
#[derive(Debug, Clone, Serialize, Deserialize, PartialEq, Eq)]
pub struct Machine {
    /// Model name.
    pub cpu: String,
    /// Cores online.
    pub cores: usize,
    /// Kernel release.
    pub kernel: String,
    /// Memory, rounded.
    pub memory_gib: u64,
}

impl Machine {
    /// This machine.
    pub fn here() -> Result<Self> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown CPU").to_owned(),
            cores: std::thread::available_parallelism()?.get(),
            // The release without what a distribution or host appends to it.
            kernel: release.trim().split('-').next().unwrap_or_default().to_owned(),
            memory_gib: field(&meminfo, "MemTotal")
                .and_then(|total| total.trim_end_matches(" kB").parse::<u64>().ok())
                .map_or(0, |kib| (kib + (1 << 19)) >> 20),
        })
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// Today, UTC.
pub fn date() -> Result<String> {
    output(Command::new("date").args(["-u", "+%Y-%m-%d"]))
}

/// The commit of the repository at `root`; `-dirty` when tracked files differ from it.
pub fn commit(root: &Path) -> Result<String> {
    let id = output(Command::new("git").current_dir(root).args(["rev-parse", "--short=9", "HEAD"]))?;
    let differs = Command::new("git").current_dir(root).args(["diff", "--quiet", "HEAD"]).status()?;
    Ok(if differs.success() { id } else { format!("{id}-dirty") })
}

/// The first words a command says, standard error included, trimmed.
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
    fn this_machine_has_cores_and_a_kernel() {
        let machine = Machine::here().unwrap();
        assert!(machine.cores > 0 && !machine.kernel.is_empty() && !machine.cpu.is_empty(), "{machine:?}");
    }
}

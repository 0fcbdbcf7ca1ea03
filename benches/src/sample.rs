//! Resource usage of a process: exact CPU time, its split into user and system, its threads, its memory.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// CPU time of some processes. The sum is the kernel's exact run time. The split comes from tick samples (250 per
/// second here): after a few seconds it is accurate to about 1 % of the sum, so it is only shown for whole runs.
#[derive(Debug, Clone, Default, Serialize, Deserialize, PartialEq)]
pub struct Usage {
    /// Exact CPU time in ns.
    pub cpu_ns: u64,
    /// User time in ms, by ticks.
    pub user_ms: u64,
    /// System time in ms, by ticks.
    pub system_ms: u64,
    /// Time in ns that threads were ready while another process had the core. Above a few percent, the run was
    /// disturbed.
    pub delayed_ns: u64,
    /// Each live thread's CPU time in ns, by name and id.
    pub threads: BTreeMap<String, u64>,
}

impl Usage {
    /// Reads the usage of `processes` since their start.
    pub fn read(processes: &[u32]) -> Result<Self> {
        let mut sum = Self::default();
        for &process in processes {
            sum.cpu_ns += clock(process)?;
            let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
            let (user, system) = ticks(&stat, OWN).context("an unknown shape of /proc/PID/stat")?;
            sum.user_ms += user * 10;
            sum.system_ms += system * 10;
            for task in fs::read_dir(format!("/proc/{process}/task"))? {
                let task = task?.path();
                // A thread may end between the listing and the reading.
                let (Ok(name), Ok(sched)) =
                    (fs::read_to_string(task.join("comm")), fs::read_to_string(task.join("schedstat")))
                else {
                    continue;
                };
                let mut figures = sched.split_ascii_whitespace().map(str::parse::<u64>);
                let (Some(Ok(run)), Some(Ok(delayed))) = (figures.next(), figures.next()) else { continue };
                sum.delayed_ns += delayed;
                let id = task.file_name().unwrap_or_default().to_string_lossy().into_owned();
                sum.threads.insert(format!("{}/{id}", name.trim()), run);
            }
        }
        Ok(sum)
    }

    /// Returns the usage since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        let threads = self.threads.iter().map(|(name, run)| {
            (name.clone(), run.saturating_sub(earlier.threads.get(name).copied().unwrap_or_default()))
        });
        Self {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            user_ms: self.user_ms.saturating_sub(earlier.user_ms),
            system_ms: self.system_ms.saturating_sub(earlier.system_ms),
            delayed_ns: self.delayed_ns.saturating_sub(earlier.delayed_ns),
            threads: threads.collect(),
        }
    }

    /// Returns the CPU times in ns of the threads whose name starts with `prefix`, in descending order.
    pub fn threads_named(&self, prefix: &str) -> Vec<u64> {
        let mut times: Vec<_> =
            self.threads.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, run)| *run).collect();
        times.sort_unstable_by(|one, other| other.cmp(one));
        times
    }
}

/// Returns the CPU time in ns of this process's ended children, in steps of 20 ms.
pub fn children_cpu_ns() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let (user, system) = ticks(&stat, CHILDREN).context("an unknown shape of /proc/self/stat")?;
    Ok((user + system) * 10_000_000)
}

/// Index of the process's own ticks in a stat line, counted after the second field; [`CHILDREN`] is that of its
/// children.
const OWN: usize = 11;
const CHILDREN: usize = 13;

/// Returns the user and system ticks (10 ms: USER_HZ is 100 on every Linux) of a stat line, whose second field may
/// contain spaces.
fn ticks(stat: &str, at: usize) -> Option<(u64, u64)> {
    let mut fields = stat[stat.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.nth(at)?.parse().ok()?, fields.next()?.parse().ok()?))
}

/// Returns a process's CPU clock in ns. It is exact while the process runs, and includes ended threads.
fn clock(process: u32) -> Result<u64> {
    let mut id = 0;
    // SAFETY: `id` is a valid pointer to a clock id for the duration of the call, which does not retain it.
    #[expect(unsafe_code, reason = "no safe wrapper of clock_getcpuclockid in our dependencies")]
    let status = unsafe { libc::clock_getcpuclockid(i32::try_from(process)?, &raw mut id) };
    if status != 0 {
        return Err(std::io::Error::from_raw_os_error(status)).with_context(|| format!("process {process}"));
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid pointer to a `timespec` for the duration of the call, which does not retain it.
    #[expect(unsafe_code, reason = "no safe wrapper that takes a process's clock in our dependencies")]
    let status = unsafe { libc::clock_gettime(id, &raw mut time) };
    if status != 0 {
        return Err(std::io::Error::last_os_error()).with_context(|| format!("the CPU clock of process {process}"));
    }
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}

/// Returns the resident memory in bytes.
pub fn resident(processes: &[u32]) -> Result<u64> {
    memory(processes, "VmRSS:")
}

/// Returns the peak of resident memory, in bytes.
pub fn resident_peak(processes: &[u32]) -> Result<u64> {
    memory(processes, "VmHWM:")
}

fn memory(processes: &[u32], name: &'static str) -> Result<u64> {
    let mut sum = 0;
    for process in processes {
        let status = fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context(name)?;
        sum += line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024;
    }
    Ok(sum)
}

/// Returns a process and its descendants.
pub fn family(root: u32) -> Vec<u32> {
    let mut family = vec![root];
    let mut next = 0;
    // The list grows while it is walked, breadth first.
    while let Some(&parent) = family.get(next) {
        next += 1;
        let Ok(tasks) = fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            family.extend(children.split_ascii_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
    }
    family
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_stand_behind_a_name_with_spaces() {
        let stat = "42 (a b) c) S 1 42 42 0 -1 4194304 121 0 0 0 17 4 5 6 20 0 1 0 82627";
        assert_eq!((ticks(stat, OWN), ticks(stat, CHILDREN)), (Some((17, 4)), Some((5, 6))));
        assert_eq!(ticks("42 (short) S 1", OWN), None);
    }

    #[test]
    fn our_own_usage_grows() {
        let me = [std::process::id()];
        let before = Usage::read(&me).unwrap();
        let sum: u64 = (0..5_000_000u64).map(std::hint::black_box).sum();
        assert!(sum > 0);
        let spent = Usage::read(&me).unwrap().since(&before);
        assert!(spent.cpu_ns > 0, "{spent:?}");
        assert!(!spent.threads.is_empty());
        assert!(resident(&me).unwrap() > 100_000);
    }

    #[test]
    fn children_belong_to_the_family() {
        let mut child = std::process::Command::new("sleep").arg("30").spawn().unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

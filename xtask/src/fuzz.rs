//! Runs every fuzz target for a few seconds.
//!
//! This is a smoke test, not a search: it takes a minute in total, shared by the targets. The binaries are built
//! directly with the flags for coverage and AddressSanitizer, so that neither cargo-fuzz nor a nightly toolchain is
//! required. `RUSTC_BOOTSTRAP` lets the stable compiler accept `-Zsanitizer`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use serde_json::Value;

use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::{Workspace, metadata};
use crate::tools;

const SECONDS_TOTAL: u64 = 60;
/// Lower bound per target: in less time a target hardly gets past its seeds. With very many targets the total is
/// exceeded.
const SECONDS_MIN: u64 = 2;

/// The profile in fuzz/Cargo.toml.
const PROFILE: &str = "smoke";

/// The flags of cargo-fuzz that this platform needs. They include the frame pointers of `.cargo/config.toml`, which
/// `RUSTFLAGS` overrides.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cdebug-assertions -Cforce-frame-pointers=yes \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let manifest = workspace.side_workspace("fuzz")?;
    let meta = metadata(Some(&manifest))?;
    let targets = targets(&meta);
    undeclared(&manifest, &targets)?;
    tools::CPLUSPLUS.need(stage, workspace)?;

    let host = host()?;
    let mut build = workspace.cargo(&["build", "--profile", PROFILE, "--bins", "--target", &host, "--manifest-path"]);
    build.arg(&manifest).env("RUSTFLAGS", RUSTFLAGS).env("RUSTC_BOOTSTRAP", "1");
    stage.run(build)?;

    let built = Path::new(meta["target_directory"].as_str().context("no target_directory")?).join(host).join(PROFILE);
    // `targets` is not empty: `undeclared` has refused that.
    let seconds = (SECONDS_TOTAL / targets.len() as u64).max(SECONDS_MIN);
    let mut executed = 0;
    let mut failures = Vec::new();
    for FuzzTarget { name, .. } in &targets {
        match run(stage, &workspace.root.join("fuzz"), &built.join(name), name, seconds) {
            Ok(count) => executed += count,
            Err(StepError::Failed(output)) => failures.push(output),
            Err(other) => return Err(other),
        }
    }
    if !failures.is_empty() {
        return Err(StepError::Failed(failures.join("\n")));
    }
    Ok(Done::with_detail(format!("{} targets, {seconds} s each, {executed} inputs", targets.len())))
}

/// Runs one target and returns the number of inputs that it executed.
fn run(stage: &mut Stage, fuzz: &Path, binary: &Path, name: &str, seconds: u64) -> Result<u64, StepError> {
    let corpus = fuzz.join("corpus").join(name);
    let artifacts = fuzz.join("artifacts").join(name);
    for directory in [&corpus, &artifacts] {
        std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    }
    let mut command = Command::new(binary);
    // One seed: two runs on a fresh checkout try the same inputs, as far as each gets in the time.
    command.arg(format!("-max_total_time={seconds}")).args([
        "-seed=1",
        "-timeout=10",
        "-rss_limit_mb=2048",
        "-print_final_stats=1",
    ]);
    // The leak checker traces the process, which containers may forbid; leaks in safe Rust are not the subject here.
    // libdeflate, in C, has the same constant in several of its objects, which AddressSanitizer would report as a
    // violation of C's one-definition rule.
    command.args(["-detect_leaks=0"]).env("ASAN_OPTIONS", "detect_leaks=0:detect_odr_violation=0");
    command.arg(format!("-artifact_prefix={}/", artifacts.display())).arg(&corpus);
    // Committed inputs are only read: libFuzzer writes to the first directory.
    let seeds = fuzz.join("seeds").join(name);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    let output = stage.run(command)?;
    match executed(&output) {
        Some(count @ 1..) => Ok(count),
        _ => Err(StepError::Failed(format!("{name} ended well but tried no input:\n{output}"))),
    }
}

struct FuzzTarget {
    name: String,
    source: PathBuf,
}

fn targets(meta: &Value) -> Vec<FuzzTarget> {
    let packages = meta["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|package| package["targets"].as_array().into_iter().flatten());
    let bins = targets.filter(|target| target["kind"][0] == "bin");
    bins.filter_map(|target| {
        Some(FuzzTarget { name: target["name"].as_str()?.to_owned(), source: target["src_path"].as_str()?.into() })
    })
    .collect()
}

/// Returns an error for source files that no `[[bin]]` declares: they would silently never run.
fn undeclared(manifest: &Path, targets: &[FuzzTarget]) -> Result<(), StepError> {
    let directory = manifest.with_file_name("fuzz_targets");
    let files = std::fs::read_dir(&directory).with_context(|| format!("cannot read {}", directory.display()))?;
    let mut forgotten = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "rs") && !targets.iter().any(|t| t.source == path) {
            forgotten.push(format!("{} is no [[bin]] of {}\n", path.display(), manifest.display()));
        }
    }
    if targets.is_empty() {
        forgotten.push(format!("{} has no target\n", manifest.display()));
    }
    if forgotten.is_empty() { Ok(()) } else { Err(StepError::Failed(forgotten.concat())) }
}

fn host() -> anyhow::Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc -vV names no host")?;
    Ok(host.to_owned())
}

/// Parses libFuzzer's final statistics: `stat::number_of_executed_units: 12345`.
fn executed(output: &str) -> Option<u64> {
    output.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_statistics_are_read() {
        assert_eq!(executed("INFO: x\nstat::number_of_executed_units: 12345\nstat::peak_rss_mb: 40\n"), Some(12345));
        assert_eq!(executed("INFO: Done 12345 runs in 2 second(s)\n"), None);
    }
}

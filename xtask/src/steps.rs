//! The steps of `./test`: their order, and the commands that each runs.

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::report::{Done, StepError, SummaryRow, Tally, Verdict, reason, total};
use crate::stage::Stage;
use crate::{
    conformance, crates, dependents, differential, fuzz, h2spec, interop, layering, package, pages, prose, tools,
};

/// One step of `./test`.
struct TestStep {
    name: &'static str,
    says: &'static str,
    part: StepList,
    run: fn(&mut Stage, &Workspace) -> Result<Done, StepError>,
}

/// The list that a step belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StepList {
    /// `./test` and `./test quick`.
    Both,
    /// `./test quick` only: `./test` has a longer step that includes it.
    Quick,
    /// `./test` only.
    Whole,
}

/// The cheap steps come first, so that mistakes are reported early.
const STEPS: &[TestStep] = &[
    TestStep { name: "format", says: "cargo fmt, of benches/ and fuzz/ too", part: StepList::Both, run: format },
    TestStep {
        name: "layering",
        says: "allowed dependencies between crates",
        part: StepList::Whole,
        run: layering::step,
    },
    TestStep {
        name: "prose",
        says: "limits for unclear wording, missing comments, repeated type names",
        part: StepList::Whole,
        run: prose::step,
    },
    TestStep { name: "clippy", says: "all targets, a warning fails", part: StepList::Both, run: clippy },
    TestStep { name: "unit", says: "the unit tests alone", part: StepList::Quick, run: unit },
    TestStep { name: "test", says: "unit and integration tests", part: StepList::Whole, run: test },
    TestStep {
        name: "docs",
        says: "rustdoc, a warning fails, and the examples in it",
        part: StepList::Whole,
        run: docs,
    },
    TestStep {
        name: "crates",
        says: "the crates as published, compiled from their archives",
        part: StepList::Whole,
        run: crates::step,
    },
    TestStep {
        name: "dependents",
        says: "programs outside the workspace that use ours",
        part: StepList::Whole,
        run: dependents::step,
    },
    TestStep {
        name: "bench",
        says: "the bench workspace's own tests; measures nothing",
        part: StepList::Whole,
        run: bench,
    },
    TestStep {
        name: "package",
        says: "the Debian package in a clean Debian and under systemd; the container",
        part: StepList::Whole,
        run: package::step,
    },
    TestStep {
        name: "conformance",
        says: "other systems' HTTP/1.1 cases",
        part: StepList::Whole,
        run: conformance::step,
    },
    TestStep {
        name: "h2spec",
        says: "h2spec's HTTP/2 cases, the strict ones too",
        part: StepList::Whole,
        run: h2spec::step,
    },
    TestStep {
        name: "interop",
        says: "gRPC, httpgrpc and ACME with Go peers; php-fpm",
        part: StepList::Whole,
        run: interop::step,
    },
    TestStep {
        name: "differential",
        says: "random Caddyfiles and requests, compared with Caddy",
        part: StepList::Whole,
        run: differential::step,
    },
    TestStep {
        name: "pages",
        says: "the server's pages in headless Chromium",
        part: StepList::Whole,
        run: pages::step,
    },
    TestStep { name: "fuzz", says: "every fuzz target, a minute in total", part: StepList::Whole, run: fuzz::step },
];

/// The project's directories, and the caller's permissions.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    /// Cargo's target directory, which the caller may have moved.
    pub(crate) target: PathBuf,
    /// Whether system packages may be installed without being root.
    pub(crate) install: bool,
}

impl Workspace {
    pub(crate) fn find(install: bool) -> anyhow::Result<Self> {
        let meta = metadata(None)?;
        let path =
            |name: &str| meta[name].as_str().map(PathBuf::from).with_context(|| format!("cargo metadata: no {name}"));
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, install })
    }

    /// Returns a `cargo` command that runs in the workspace root. Property tests that it runs use one seed unless the
    /// caller of xtask set another, so that two runs on the same code have the same result.
    pub(crate) fn cargo(&self, words: &[&str]) -> Command {
        const SEED: &str = "PROPTEST_RNG_SEED";
        let mut command = Command::new("cargo");
        command.args(words).current_dir(&self.root);
        if std::env::var_os(SEED).is_none() {
            command.env(SEED, "1");
        }
        command
    }

    /// Returns the manifest of `benches` or `fuzz`: workspaces of their own, so that their dependencies stay out of
    /// ours.
    pub(crate) fn side_workspace(&self, directory: &str) -> Result<PathBuf, StepError> {
        let manifest = self.root.join(directory).join("Cargo.toml");
        if manifest.exists() {
            Ok(manifest)
        } else {
            Err(StepError::MissingTool(format!("there is no {directory}/Cargo.toml")))
        }
    }

    /// Creates an empty directory for a step's files; files of earlier runs are removed.
    pub(crate) fn scratch(&self, name: &str) -> anyhow::Result<PathBuf> {
        let directory = self.target.join("scratch").join(name);
        if directory.exists() {
            std::fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
        }
        std::fs::create_dir_all(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        Ok(directory)
    }
}

/// Returns `cargo metadata` without dependencies, of our workspace or of another manifest.
pub(crate) fn metadata(manifest: Option<&std::path::Path>) -> anyhow::Result<Value> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(manifest) = manifest {
        command.arg("--manifest-path").arg(manifest);
    }
    let output = command.output().context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata: not JSON")
}

/// Runs `cargo xtask test …`.
pub(crate) fn main(words: &[String]) -> anyhow::Result<ExitCode> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        help();
        return Ok(ExitCode::SUCCESS);
    }
    let ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let (options, names): (Vec<&String>, Vec<&String>) = words.iter().partition(|word| word.starts_with('-'));
    if let Some(unknown) = options.iter().find(|option| **option != "--install") {
        bail!("unknown option {unknown}; see ./test --help");
    }
    let chosen = choose(&names)?;
    let workspace = Workspace::find(ci || !options.is_empty())?;
    let rows: Vec<SummaryRow> = chosen.into_iter().map(|step| run(step, &workspace, ci)).collect();

    println!();
    rows.iter().for_each(|row| println!("{row}"));
    let Tally { passed, failed, skipped } = total(&rows);
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn choose(names: &[&String]) -> anyhow::Result<Vec<&'static TestStep>> {
    let of = |left_out: StepList| STEPS.iter().filter(|step| step.part != left_out).collect();
    match names {
        [] => return Ok(of(StepList::Quick)),
        [only] if *only == "quick" => return Ok(of(StepList::Whole)),
        _ => {}
    }
    let step = |name: &&String| {
        let known = STEPS.iter().find(|step| step.name == **name);
        known.with_context(|| format!("no step is called {name}; ./test --help lists them"))
    };
    names.iter().map(step).collect()
}

fn help() {
    println!("./test                every step below except the quick-only ones");
    println!("./test quick          the inner loop");
    println!("./test STEP…          these steps, in this order");
    println!("./test --install …    installs missing system packages (root and CI=true do so anyway)");
    println!("CI=true ./test …      a missing tool is a failure instead of a skipped step\n");
    for TestStep { name, says, part, .. } in STEPS {
        let mark = match part {
            StepList::Both => " (quick too)",
            StepList::Quick => " (quick only)",
            StepList::Whole => "",
        };
        println!("  {name:<12} {says}{mark}");
    }
}

fn run(step: &'static TestStep, workspace: &Workspace, ci: bool) -> SummaryRow {
    let mut stage = Stage::begin(step.name);
    let result = (step.run)(&mut stage, workspace);
    stage.clear();
    let (verdict, tally) = match result {
        Ok(done) => (Verdict::Passed(done.detail), done.tally),
        Err(StepError::Failed(output)) => {
            println!("{}", output.trim_end());
            (Verdict::Failed(reason(&output)), Tally::of(&output))
        }
        Err(StepError::MissingTool(why)) if ci => {
            println!("{why}; with CI=true that is a failure");
            (Verdict::Failed(why), Tally::default())
        }
        Err(StepError::MissingTool(why) | StepError::MissingOptional(why)) => (Verdict::Skipped(why), Tally::default()),
    };
    let row = SummaryRow { step: step.name, verdict, took: stage.took(), tally };
    println!("{row}");
    row
}

fn format(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    tools::need_component(stage, "rustfmt")?;
    stage.run(workspace.cargo(&["fmt", "--all", "--check"]))?;
    for directory in ["benches", "fuzz"] {
        // Their own steps report a missing workspace.
        if let Ok(manifest) = workspace.side_workspace(directory) {
            let mut command = workspace.cargo(&["fmt", "--all", "--check", "--manifest-path"]);
            command.arg(manifest);
            stage.run(command)?;
        }
    }
    Ok(Done::default())
}

fn clippy(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    tools::need_component(stage, "clippy")?;
    stage.run(workspace.cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    Ok(Done::default())
}

/// Installs the programs without which tests are skipped, if that is allowed; CI must not skip tests.
fn peers_of_tests(stage: &mut Stage, workspace: &Workspace) -> Result<(), StepError> {
    if workspace.install {
        for tool in [&tools::CERTBOT, &tools::NGINX, &tools::REDIS] {
            tool.need(stage, workspace)?;
        }
    }
    Ok(())
}

fn unit(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    peers_of_tests(stage, workspace)?;
    let output = stage.run(workspace.cargo(&["test", "--workspace", "--lib", "--bins"]))?;
    Ok(Done::counted(&output))
}

fn test(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    peers_of_tests(stage, workspace)?;
    // Tests run the examples as programs.
    stage.run(workspace.cargo(&["build", "--workspace", "--examples"]))?;
    let output =
        stage.run(workspace.cargo(&["test", "--workspace", "--lib", "--bins", "--tests", "--no-fail-fast"]))?;
    Ok(Done::counted(&output))
}

fn docs(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let mut command = workspace.cargo(&["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    stage.run(command)?;
    let output = stage.run(workspace.cargo(&["test", "--workspace", "--doc", "--no-fail-fast"]))?;
    Ok(Done::counted(&output))
}

fn bench(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let mut command = workspace.cargo(&["test", "--workspace", "--no-fail-fast", "--manifest-path"]);
    // A shared target directory: the step `test` has compiled most dependencies.
    command.arg(workspace.side_workspace("benches")?).env("CARGO_TARGET_DIR", &workspace.target);
    let output = stage.run(command)?;
    Ok(Done::counted(&output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn chosen(names: &[&str]) -> Option<Vec<&'static str>> {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let steps = choose(&names.iter().collect::<Vec<_>>()).ok()?;
        Some(steps.into_iter().map(|step| step.name).collect())
    }

    #[test]
    fn names_choose_steps() {
        assert_eq!(chosen(&["quick"]), Some(vec!["format", "clippy", "unit"]));
        assert_eq!(chosen(&["docs", "format"]), Some(vec!["docs", "format"]));
        assert_eq!(chosen(&["dcos"]), None);
        let all = chosen(&[]).unwrap();
        assert!(all.contains(&"pages") && !all.contains(&"unit"), "{all:?}");
    }
}

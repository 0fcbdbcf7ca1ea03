//! Go, and programs built with it. Debian's stable Go may be too old for them; a newer toolchain is downloaded as a Go
//! module.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use super::GO;
use crate::report::StepError;
use crate::stage::Stage;
use crate::steps::Workspace;

/// From this version on, Go fetches the version that a module requires by itself.
const MINOR_MIN: u32 = 21;
/// The toolchain to fetch if the installed Go is older.
const FETCHED: &str = "v0.0.1-go1.26.0";

/// Builds a Go program into the tools directory, from a module under tests/peers whose go.mod pins all versions.
pub(crate) fn go_built(
    stage: &mut Stage,
    workspace: &Workspace,
    program: &str,
    module: &str,
    package: &str,
) -> Result<PathBuf, StepError> {
    let go = go(stage, workspace)?;
    let output = workspace.target.join("tools").join(program);
    let mut build = Command::new(go);
    build.current_dir(workspace.root.join("tests/peers").join(module)).env("GOFLAGS", "-mod=readonly");
    build.args(["build", "-o"]).arg(&output).arg(package);
    run(stage, build, || format!("needs {program}, and building it failed")).map(|_| output)
}

/// Returns a Go that is new enough, after installing or fetching it if allowed.
fn go(stage: &mut Stage, workspace: &Workspace) -> Result<PathBuf, StepError> {
    let installed = GO.need(stage, workspace)?;
    let version = env(stage, &installed, "GOVERSION")?;
    if minor(&version).is_none_or(|minor| minor >= MINOR_MIN) {
        return Ok(installed);
    }
    let fetched = workspace.target.join("tools").join("go");
    let program = fetched.join("bin/go");
    if !program.exists() {
        let (cache, arch) = (env(stage, &installed, "GOMODCACHE")?, env(stage, &installed, "GOARCH")?);
        let module = format!("golang.org/toolchain@{FETCHED}.linux-{arch}");
        let mut download = Command::new(&installed);
        // Outside of any module: go.mod files here may require more than this Go can parse.
        download.current_dir(&workspace.target).args(["mod", "download", &module]);
        run(stage, download, || format!("needs Go 1.{MINOR_MIN} or later, and fetching {module} failed"))?;
        fs::create_dir_all(workspace.target.join("tools")).context("making the tools directory")?;
        let mut copy = Command::new("cp");
        // The module cache is read-only; a copy that preserved modes could not be replaced later.
        copy.args(["-r", "--no-preserve=mode"]).arg(Path::new(&cache).join(&module)).arg(&fetched);
        stage.run(copy)?;
        // Files of a module are not executable.
        for directory in ["bin", &format!("pkg/tool/linux_{arch}")] {
            for entry in fs::read_dir(fetched.join(directory)).context("looking at Go's programs")? {
                let path = entry.context("looking at Go's programs")?.path();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).context("making Go's programs run")?;
            }
        }
    }
    Ok(program)
}

fn env(stage: &mut Stage, go: &Path, name: &str) -> Result<String, StepError> {
    let mut command = Command::new(go);
    command.args(["env", name]);
    Ok(stage.run(command)?.trim().to_owned())
}

/// Runs a command that may fail without a network; the program is then missing, which is not a failure.
fn run(stage: &mut Stage, command: Command, lacks: impl Fn() -> String) -> Result<String, StepError> {
    match stage.run(command) {
        Err(StepError::Failed(said)) => {
            stage.clear();
            println!("{said}");
            Err(StepError::MissingTool(format!("{}, as shown above", lacks())))
        }
        other => other,
    }
}

/// Parses the minor version: 26 of `go1.26.8`; `None` for versions that are not releases.
fn minor(version: &str) -> Option<u32> {
    version.strip_prefix("go1.")?.split(['.', '-', 'r', 'b']).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_go() {
        for (version, want) in
            [("go1.26.8", Some(26)), ("go1.19", Some(19)), ("go1.27rc1", Some(27)), ("devel +abc", None), ("", None)]
        {
            assert_eq!(minor(version), want, "{version}");
        }
    }
}

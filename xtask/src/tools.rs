//! External programs that steps need: found or installed.
//!
//! A component of the Rust toolchain belongs to the user and is installed without asking. A system package is installed
//! by root, with `--install`, or with CI=true; otherwise the step is skipped, and the reason shows the installation
//! command.

mod go;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::report::StepError;
use crate::stage::Stage;
use crate::steps::Workspace;
pub(crate) use go::go_built;

/// A program from Debian packages.
pub(crate) struct Tool {
    program: &'static str,
    packages: &'static [&'static str],
}

/// Without any font a page has no text to lay out, hence the second package.
pub(crate) const CHROMIUM: Tool = Tool { program: "chromium", packages: &["chromium", "fonts-dejavu-core"] };
/// libFuzzer's runtime is written in C++ and compiled during the build.
pub(crate) const CPLUSPLUS: Tool = Tool { program: "c++", packages: &["g++"] };
/// Builds the programs under tests/peers.
const GO: Tool = Tool { program: "go", packages: &["golang-go", "ca-certificates"] };
pub(crate) const PYTHON: Tool = Tool { program: "python3", packages: &["python3"] };
/// A FastCGI server. Debian's program has PHP's version in its name.
pub(crate) const PHP_FPM: Tool = Tool { program: "php-fpm", packages: &["php-fpm", "php-cli"] };
/// A peer of the tests of storage.
pub(crate) const REDIS: Tool = Tool { program: "redis-server", packages: &["redis-server"] };
/// A client of the tests of the ACME server.
pub(crate) const CERTBOT: Tool = Tool { program: "certbot", packages: &["certbot"] };
/// Makes the clean Debian that the package is installed into.
pub(crate) const MMDEBSTRAP: Tool = Tool { program: "mmdebstrap", packages: &["mmdebstrap"] };
/// Builds the container's image without a daemon.
pub(crate) const BUILDAH: Tool = Tool { program: "buildah", packages: &["buildah"] };
/// Debian's own checks of packages.
pub(crate) const LINTIAN: Tool = Tool { program: "lintian", packages: &["lintian"] };
/// The peer of the tests that move configurations over, and a front of Unix sockets.
pub(crate) const NGINX: Tool = Tool { program: "nginx", packages: &["nginx-light"] };

/// Patient with a mirror that fails now and then, and with another apt that runs on a fresh machine.
const APT: &[&str] = &["apt-get", "-o", "Acquire::Retries=5", "-o", "DPkg::Lock::Timeout=120"];

impl Tool {
    /// Returns the program's path, after installing it if allowed.
    pub(crate) fn need(&self, stage: &mut Stage, workspace: &Workspace) -> Result<PathBuf, StepError> {
        if let Some(path) = find(self.program) {
            return Ok(path);
        }
        let root = find("id").is_some_and(|id| {
            Command::new(id).arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
        });
        let prefix: &[&str] = if root { &[] } else { &["sudo"] };
        let commands = [
            [prefix, APT, &["update"]].concat(),
            [prefix, APT, &["install", "-y", "--no-install-recommends"], self.packages].concat(),
        ];
        if find("apt-get").is_none() {
            return Err(StepError::MissingTool(format!(
                "needs {}, and there is no apt-get to install it with",
                self.program
            )));
        }
        if !(root || workspace.install) {
            let line = commands.map(|words| words.join(" ")).join(" && ");
            return Err(StepError::MissingTool(format!("needs {}: run ./test --install, or: {line}", self.program)));
        }
        for words in commands {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]).env("DEBIAN_FRONTEND", "noninteractive");
            if let Err(StepError::Failed(output)) = stage.run(command) {
                stage.clear();
                println!("{output}");
                return Err(StepError::MissingTool(format!(
                    "needs {}, and installing it failed, as shown above",
                    self.program
                )));
            }
        }
        find(self.program).ok_or_else(|| {
            StepError::MissingTool(format!(
                "installed {}, but {} is still missing",
                self.packages.join(" "),
                self.program
            ))
        })
    }
}

/// Adds `rustfmt` or `clippy`, which a minimal toolchain lacks.
pub(crate) fn need_component(stage: &mut Stage, name: &str) -> Result<(), StepError> {
    let subcommand = if name == "rustfmt" { "fmt" } else { name };
    let there = Command::new("cargo").args([subcommand, "--version"]).output()?.status.success();
    if there {
        return Ok(());
    }
    if find("rustup").is_none() {
        return Err(StepError::MissingTool(format!("needs cargo {subcommand}, and there is no rustup to add it with")));
    }
    let mut command = Command::new("rustup");
    command.args(["component", "add", name]);
    stage.run(command).map(drop)
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut directories = std::env::split_paths(&path);
    let exact = std::env::split_paths(&path).map(|directory| directory.join(program)).find(|path| is_program(path));
    exact.or_else(|| directories.find_map(|directory| find_with_version(&directory, program)))
}

/// Returns a program whose name continues with a version, such as `php-fpm8.2`.
fn find_with_version(directory: &Path, program: &str) -> Option<PathBuf> {
    let paths = directory.read_dir().ok()?.flatten().map(|entry| entry.path());
    let is_version = |rest: &str| rest.chars().all(|ch| ch.is_ascii_digit() || ch == '.');
    let has_name = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix(program)).is_some_and(is_version)
    };
    paths.filter(|path| has_name(path)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

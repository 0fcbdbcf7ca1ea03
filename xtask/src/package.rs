//! Packages: a `.deb`, and a tarball with a static program for each architecture.
//!
//! - [`deb`]: the files of the Debian package, and `dpkg-deb` on them. Debian's own tool is on every machine that could
//!   install the result; `cargo-deb` would be one more program to install, with a description of the package in its own
//!   format
//! - [`check`]: the step `package` of `./test`

mod check;
mod deb;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};

use crate::steps::Workspace;
use crate::tools;
pub(crate) use check::step;

const USAGE: &str = "usage: cargo xtask package [--binary FILE] [--out DIRECTORY]";

/// The targets of the static programs.
const STATIC_TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// Runs `cargo xtask package`.
pub(crate) fn main(words: &[String]) -> anyhow::Result<ExitCode> {
    let (mut binary, mut out) = (None, None);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let place = match &**word {
            "--binary" => &mut binary,
            "--out" => &mut out,
            _ => bail!("found {word}; {USAGE}"),
        };
        *place = Some(PathBuf::from(words.next().with_context(|| format!("{word} has no value; {USAGE}"))?));
    }
    let workspace = Workspace::find(false)?;
    let out = out.unwrap_or_else(|| workspace.target.join("package"));
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let program = match binary {
        Some(binary) => binary,
        None => {
            run(&mut workspace.cargo(&[
                "build",
                "--locked",
                "--profile",
                "dist",
                "--package",
                "causeway-server",
                "--bin",
                "causeway",
            ]))?;
            workspace.target.join("dist/causeway")
        }
    };
    println!("{}", deb::build(&workspace, &program, &out, deb::Compression::Small)?.display());
    for target in STATIC_TARGETS {
        match tarball(&workspace, target, &program, &out)? {
            Ok(path) => println!("{}", path.display()),
            Err(lack) => println!("no tarball for {target}: {lack}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a tarball with the static program, the units, the pages and the scripts. `native` is a program for this
/// machine, which writes the pages. The inner error names a tool that is absent.
fn tarball(workspace: &Workspace, target: &str, native: &Path, out: &Path) -> anyhow::Result<Result<PathBuf, String>> {
    let library = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output()?;
    if !Path::new(String::from_utf8_lossy(&library.stdout).trim()).is_dir() {
        return Ok(Err(format!("`rustup target add {target}` installs its standard library")));
    }
    // The libraries in C need a compiler for musl. That of zig is one for each architecture.
    let build = if tools::find("cargo-zigbuild").is_some() {
        "zigbuild"
    } else if target.starts_with(std::env::consts::ARCH) && tools::find("musl-gcc").is_some() {
        "build"
    } else {
        return Ok(Err("`pip install ziglang cargo-zigbuild` installs a C compiler for it".to_owned()));
    };
    run(&mut workspace.cargo(&[
        build,
        "--locked",
        "--profile",
        "dist",
        "--package",
        "causeway-server",
        "--bin",
        "causeway",
        "--target",
        target,
    ]))?;
    let name = format!("causeway-{}-{target}", version(workspace)?);
    let directory = workspace.scratch("tarball")?.join(&name);
    let program = workspace.target.join(target).join("dist/causeway");
    install(&program, &directory.join("causeway"), 0o755)?;
    for file in ["causeway.service", "causeway-api.service", "Caddyfile", "index.html"] {
        install(&workspace.root.join("packaging").join(file), &directory.join(file), 0o644)?;
    }
    for license in ["LICENSE-MIT", "LICENSE-APACHE"] {
        install(&workspace.root.join(license), &directory.join(license), 0o644)?;
    }
    pages(native, &directory.join("man"), &directory.join("completions"))?;
    guides(workspace, &directory.join("docs"))?;
    let path = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--create", "--gzip", "--file"]).arg(&path);
    run(tar
        .arg("--mtime")
        .arg(format!("@{}", epoch(workspace)?))
        .arg("--directory")
        .arg(out_of(&directory)?)
        .arg(&name)
        .current_dir(&workspace.root))?;
    Ok(Ok(path))
}

/// Installs the guides, which messages of the program refer to, such as `docs/refused.md`, and beside them the files
/// for Prometheus and Grafana to which docs/operations.md has links.
fn guides(workspace: &Workspace, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(workspace.root.join("docs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            install(&path, &to.join(path.file_name().context("a file has a name")?), 0o644)?;
        }
    }
    let monitoring = out_of(to)?.join("packaging/monitoring");
    for file in ["grafana-dashboard.json", "prometheus-alerts.yml"] {
        install(&workspace.root.join("packaging/monitoring").join(file), &monitoring.join(file), 0o644)?;
    }
    Ok(())
}

fn out_of(directory: &Path) -> anyhow::Result<&Path> {
    directory.parent().context("the directory has no parent")
}

/// Writes the manual pages and the completion scripts of the program.
fn pages(program: &Path, manual: &Path, completions: &Path) -> anyhow::Result<()> {
    run(Command::new(program).arg("manpage").arg("--directory").arg(manual))?;
    fs::create_dir_all(completions)?;
    for (shell, file) in [("bash", "causeway"), ("zsh", "_causeway"), ("fish", "causeway.fish")] {
        let script = run(Command::new(program).args(["completion", shell]))?;
        write(&completions.join(file), &script, 0o644)?;
    }
    Ok(())
}

/// Returns the version of the workspace.
fn version(workspace: &Workspace) -> anyhow::Result<String> {
    let text = fs::read_to_string(workspace.root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    let line = text.lines().find_map(|line| line.strip_prefix("version = \""));
    let version = line.and_then(|line| line.strip_suffix('"'));
    Ok(version.context("Cargo.toml: found no line version = \"…\"")?.to_owned())
}

/// Returns the time of the files in packages, in seconds since 1970: `SOURCE_DATE_EPOCH`, or else that of the last
/// commit, so that one commit always gives the same package.
fn epoch(workspace: &Workspace) -> anyhow::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            run(git.args(["log", "-1", "--format=%ct"]).current_dir(&workspace.root))?
        }
    };
    text.trim().parse().with_context(|| format!("found '{}' for a time, expected seconds", text.trim()))
}

/// Runs a command and returns its standard output.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!("{command:?} ({}):\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Copies a file with these permissions, and creates its directory.
fn install(from: &Path, to: &Path, mode: u32) -> anyhow::Result<()> {
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    write(to, bytes, mode)
}

fn write(to: &Path, bytes: impl AsRef<[u8]>, mode: u32) -> anyhow::Result<()> {
    let fault = || format!("cannot write {}", to.display());
    fs::create_dir_all(out_of(to)?).with_context(fault)?;
    fs::write(to, bytes).with_context(fault)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(fault)
}

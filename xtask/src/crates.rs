//! The step `crates`: makes the archives that `cargo publish` would upload, and compiles the crates from their content.
//!
//! A crate that reads a file outside of its directory, or needs a test helper, compiles in the workspace and fails
//! here.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::Context as _;
use serde_json::Value;

use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::{Workspace, metadata};

/// Files that each archive must contain.
const FILES: &[&str] = &["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];
/// Fields of the manifest that must not be empty.
const FIELDS: &[&str] = &["description", "license", "readme", "categories", "keywords", "rust_version"];

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let meta = metadata(None)?;
    let packages = meta["packages"].as_array().context("cargo metadata: no packages")?;
    // `publish = false` is an empty list of registries.
    let (private, public): (Vec<_>, Vec<_>) =
        packages.iter().partition(|package| package["publish"].as_array().is_some_and(Vec::is_empty));
    let faults: Vec<_> = public.iter().flat_map(|package| empty_fields(package)).collect();
    if !faults.is_empty() {
        return Err(StepError::Failed(faults.join("\n")));
    }

    let mut archive = workspace.cargo(&["package", "--workspace", "--no-verify", "--allow-dirty", "--quiet"]);
    for package in private {
        archive.args(["--exclude", text(package, "name")?]);
    }
    stage.run(archive)?;

    let directory = workspace.scratch("crates")?;
    let (mut members, mut patches) = (String::new(), String::new());
    for package in &public {
        let (name, version) = (text(package, "name")?, text(package, "version")?);
        let unpacked = format!("{name}-{version}");
        let mut unpack = Command::new("tar");
        // With the present time: all files of an archive have one fixed time, by which cargo would not see that they
        // have changed.
        unpack
            .arg("-xmzf")
            .arg(workspace.target.join("package").join(format!("{unpacked}.crate")))
            .arg("-C")
            .arg(&directory);
        stage.run(unpack)?;
        let missing: Vec<_> = FILES.iter().filter(|file| !is_filled(&directory.join(&unpacked).join(file))).collect();
        if !missing.is_empty() {
            return Err(StepError::Failed(format!("{name}: the archive lacks {missing:?}")));
        }
        // Writing to a string cannot fail.
        let _ = writeln!(members, "    \"{unpacked}\",");
        let _ = writeln!(patches, "{name} = {{ path = \"{unpacked}\" }}");
    }
    let manifest = directory.join("Cargo.toml");
    let manifest_text =
        format!("[workspace]\nresolver = \"3\"\nmembers = [\n{members}]\n\n[patch.crates-io]\n{patches}");
    fs::write(&manifest, manifest_text).context("cannot write the manifest of the unpacked crates")?;
    fs::copy(workspace.root.join("Cargo.lock"), directory.join("Cargo.lock")).context("cannot copy Cargo.lock")?;

    let mut check = workspace.cargo(&["check", "--workspace", "--manifest-path"]);
    // A shared target directory: the step `clippy` has compiled the dependencies.
    check.arg(&manifest).env("CARGO_TARGET_DIR", &workspace.target);
    stage.run(check)?;
    Ok(Done::with_detail(format!("{} crates", public.len())))
}

/// Names each empty field of a package's manifest.
fn empty_fields(package: &Value) -> Vec<String> {
    let is_empty = |value: &Value| match value {
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => true,
    };
    let name = package["name"].as_str().unwrap_or_default();
    FIELDS.iter().filter(|field| is_empty(&package[**field])).map(|field| format!("{name}: no {field}")).collect()
}

fn is_filled(path: &Path) -> bool {
    // A link of the repository is a file in the archive.
    fs::symlink_metadata(path).is_ok_and(|file| file.is_file() && file.len() > 0)
}

fn text<'a>(package: &'a Value, field: &str) -> anyhow::Result<&'a str> {
    package[field].as_str().with_context(|| format!("cargo metadata: a package without {field}"))
}

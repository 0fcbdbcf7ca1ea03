//! Builds and runs programs outside the workspace that depend on our crates.
//!
//! They are in tests/dependents and use tokio and axum like typical users.

use anyhow::Context as _;

use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::Workspace;

/// Each package, with the features of our crates that it is built with.
const VARIANTS: [(&str, &[&str]); 5] = [
    ("dependent-embeds", &[]),
    ("dependent-serves", &[]),
    ("dependent-serves", &["axum"]),
    ("dependent-serves", &["upgrade"]),
    ("dependent-serves", &["axum", "upgrade"]),
];

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let manifest = workspace.side_workspace("tests/dependents")?;
    // Use the versions of our own lock file; cargo adds packages that only a dependent needs, such as parts of axum.
    let (ours, theirs) = (workspace.root.join("Cargo.lock"), manifest.with_file_name("Cargo.lock"));
    std::fs::copy(&ours, &theirs).with_context(|| format!("cannot copy {}", ours.display()))?;
    for (package, features) in VARIANTS {
        let mut run = workspace.cargo(&["run", "--manifest-path"]);
        run.arg(&manifest).args(["--package", package]);
        if !features.is_empty() {
            run.args(["--features", &features.join(",")]);
        }
        // A shared target directory: packages that do not depend on the features are already built.
        run.env("CARGO_TARGET_DIR", &workspace.target);
        stage.run(run)?;
    }
    Ok(Done::with_detail(format!("{} builds", VARIANTS.len())))
}

//! Runs independent HTTP/1.1 conformance cases against the built server, directly and as a proxy in
//! several ways.
//!
//! The cases are not part of this repository. The step looks for them in ../shared/peer-suite, or in `$PEER_SUITE`.

use std::path::PathBuf;
use std::process::Command;

use crate::report::{Done, StepError};
use crate::server::{ChildServer, binary, free_address};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;

/// Severities that must pass. SHOULD cases are not run.
const SEVERITIES: &str = "sec,must";

/// The ways to the script's server, and the variables of `conformance/Caddyfile` with the ports of their sites.
const WAYS: [(&str, &str); 5] = [
    ("proxied", "PROXIED"),
    ("with buffers and retries", "BUFFERS_AND_RETRIES"),
    ("over a Unix socket", "UNIX_SOCKET"),
    ("after a PROXY header", "PROXY_PROTOCOL"),
    ("over h2c", "H2C"),
];

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let suite =
        std::env::var_os("PEER_SUITE").map_or_else(|| workspace.root.join("../shared/peer-suite"), PathBuf::from);
    let script = suite.join("h1cases.py");
    if !script.exists() {
        return Err(StepError::MissingOptional("no h1cases.py in ../shared/peer-suite or $PEER_SUITE".into()));
    }
    let python = tools::PYTHON.need(stage, workspace)?;
    let causeway = binary(stage, workspace)?;

    let directory = workspace.scratch("conformance")?;
    std::fs::write(directory.join("Caddyfile"), include_str!("conformance/Caddyfile"))?;
    let mut run = Command::new(causeway);
    run.args(["run", "--config", "Caddyfile"]).env("SOCKET", directory.join("second.sock"));
    let mut port = |name: &str| {
        let address = free_address()?;
        run.env(name, address.port().to_string());
        anyhow::Ok(address)
    };
    let (direct, origin) = (port("DIRECT")?, port("ORIGIN")?);
    for name in ["PROXY_PROTOCOL_2", "H2C_2"] {
        port(name)?;
    }
    let mut ways = vec![("direct", direct, vec![])];
    for (way, name) in WAYS {
        ways.push((way, port(name)?, vec!["--backend".to_owned(), origin.port().to_string()]));
    }
    let server = ChildServer::start(run, &directory, direct)?;

    let mut says = Vec::new();
    for (way, address, more) in ways {
        let mut cases = Command::new(&python);
        cases.arg(&script).arg(address.ip().to_string()).arg(address.port().to_string()).args(["--sev", SEVERITIES]);
        let output = stage.run({
            cases.args(more);
            cases
        });
        let output = output.map_err(|halt| match halt {
            StepError::Failed(output) => StepError::Failed(format!("{way}: {output}server log:\n{}", server.log())),
            other => other,
        })?;
        let score = output.lines().rfind(|line| line.starts_with("SCORE ")).unwrap_or_default();
        says.push(format!("{way} {}", score.trim_start_matches("SCORE ")));
    }
    Ok(Done::with_detail(says.join("; ")))
}

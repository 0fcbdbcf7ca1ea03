//! Runs independent HTTP/1.1 conformance cases against the built server, directly and as a proxy.
//!
//! The cases are not part of this repository. The step looks for them in ../shared/peer-suite, or in `$PEER_SUITE`.

use std::path::PathBuf;
use std::process::Command;

use crate::report::{Done, Halt};
use crate::server::{ChildServer, binary, free_address};
use crate::stage::Stage;
use crate::steps::House;
use crate::tools;

/// Severities that must pass. SHOULD cases are not run.
const SEVERITIES: &str = "sec,must";

pub(crate) fn step(stage: &mut Stage, house: &House) -> Result<Done, Halt> {
    let suite = std::env::var_os("PEER_SUITE").map_or_else(|| house.root.join("../shared/peer-suite"), PathBuf::from);
    let script = suite.join("h1cases.py");
    if !script.exists() {
        return Err(Halt::Nothing("no h1cases.py in ../shared/peer-suite or $PEER_SUITE".into()));
    }
    let python = tools::PYTHON.need(stage, house)?;
    let causeway = binary(stage, house)?;

    let folder = house.scratch("conformance")?;
    let (direct, proxy, origin) = (free_address()?, free_address()?, free_address()?);
    // Off, since the admin endpoint has a fixed default port, which may be in use on a developer's machine.
    let caddyfile = format!(
        "{{\n\tadmin off\n}}\n:{} {{\n\trespond 200\n}}\n:{} {{\n\treverse_proxy {origin}\n}}\n",
        direct.port(),
        proxy.port()
    );
    std::fs::write(folder.join("Caddyfile"), caddyfile)?;
    let mut run = Command::new(causeway);
    run.args(["run", "--config", "Caddyfile"]);
    let server = ChildServer::start(run, &folder, direct)?;

    let mut says = Vec::new();
    for (what, address, more) in
        [("direct", direct, vec![]), ("proxied", proxy, vec!["--backend".to_owned(), origin.port().to_string()])]
    {
        let mut cases = Command::new(&python);
        cases.arg(&script).arg(address.ip().to_string()).arg(address.port().to_string()).args(["--sev", SEVERITIES]);
        let output = stage.run({
            cases.args(more);
            cases
        });
        let output = output.map_err(|halt| match halt {
            Halt::Failed(output) => Halt::Failed(format!("{what}: {output}server log:\n{}", server.log())),
            other => other,
        })?;
        let score = output.lines().rfind(|line| line.starts_with("SCORE ")).unwrap_or_default();
        says.push(format!("{what} {}", score.trim_start_matches("SCORE ")));
    }
    Ok(Done::saying(says.join("; ")))
}

//! Runs h2spec's HTTP/2 conformance cases against the built server.
//!
//! h2spec is a Go program. tests/peers/h2spec pins its version and its dependencies; `go` fetches and builds them once.

use std::path::Path;
use std::process::Command;

use crate::report::{Done, StepError};
use crate::server::{ChildServer, binary, free_address};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;

/// The expected summary: the cases of RFC 9113 and RFC 7541, including the strict ones. Fewer cases would prove less.
const CASES: &str = "146 tests, 146 passed, 0 skipped, 0 failed";
const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";

/// The kind of connection.
#[derive(Clone, Copy)]
enum ConnectionKind {
    Clear,
    Tls,
}

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    let h2spec = tools::go_built(stage, workspace, "h2spec", "h2spec", PACKAGE)?;
    let causeway = binary(stage, workspace)?;
    for way in [ConnectionKind::Clear, ConnectionKind::Tls] {
        run(stage, workspace, &causeway, &h2spec, way)?;
    }
    Ok(Done::with_detail("146 cases in the clear and over TLS"))
}

fn run(
    stage: &mut Stage,
    workspace: &Workspace,
    causeway: &Path,
    h2spec: &Path,
    way: ConnectionKind,
) -> Result<(), StepError> {
    let address = free_address()?;
    let port = address.port();
    let (name, caddyfile) = match way {
        // A port that also serves HTTP/1 answers an invalid preface as a bad HTTP/1 request, which h2spec does not
        // expect.
        ConnectionKind::Clear => {
            ("h2spec-clear", format!("{{\n\tadmin off\n\tservers {{\n\t\tprotocols h2c\n\t}}\n}}\n:{port} {{\n"))
        }
        ConnectionKind::Tls => (
            "h2spec-tls",
            format!(
                "{{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}}\nhttps://localhost:{port} {{\n\ttls internal\n"
            ),
        ),
    };
    let directory = workspace.scratch(name)?;
    std::fs::write(directory.join("Caddyfile"), caddyfile + "\trespond \"an answer with some bytes of content\"\n}\n")?;
    let mut serve = Command::new(causeway);
    serve.args(["run", "--config", "Caddyfile"]);
    let server = ChildServer::start(serve, &directory, address)?;

    let mut cases = Command::new(h2spec);
    cases.args(["--strict", "--host", "localhost", "--port", &port.to_string()]);
    if let ConnectionKind::Tls = way {
        cases.args(["--tls", "--insecure"]);
    }
    let output = match stage.run(cases) {
        Ok(output) if output.contains(CASES) => return Ok(()),
        Ok(output) | Err(StepError::Failed(output)) => output,
        Err(other) => return Err(other),
    };
    // Omit the passed cases, which are listed before the failures.
    let failures = output.find("\nFailures:").map_or(&*output, |at| &output[at..]);
    Err(StepError::Failed(format!("{name}, expected {CASES}\n{failures}\nserver log:\n{}", server.log())))
}

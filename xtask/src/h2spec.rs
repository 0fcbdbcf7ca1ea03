//! Does the built server keep every rule of HTTP/2 that h2spec knows?
//!
//! h2spec is a Go program. Its version and those of what it needs stand in tests/peers/h2spec; `go` fetches and builds them once.

use std::path::Path;
use std::process::Command;

use crate::report::{Done, Halt};
use crate::server::{Server, binary, free_address};
use crate::stage::Stage;
use crate::steps::House;
use crate::tools;

/// Those of RFC 9113 and RFC 7541, the strict ones among them. A run of fewer has proved less.
const CASES: &str = "146 tests, 146 passed, 0 skipped, 0 failed";
const PACKAGE: &str = "github.com/summerwind/h2spec/cmd/h2spec";

/// How a connection begins.
#[derive(Clone, Copy)]
enum Way {
    Clear,
    Tls,
}

pub(crate) fn step(stage: &mut Stage, house: &House) -> Result<Done, Halt> {
    let h2spec = tools::go_built(stage, house, "h2spec", "h2spec", PACKAGE)?;
    let causeway = binary(stage, house)?;
    for way in [Way::Clear, Way::Tls] {
        run(stage, house, &causeway, &h2spec, way)?;
    }
    Ok(Done::saying("146 cases in the clear and over TLS"))
}

fn run(stage: &mut Stage, house: &House, causeway: &Path, h2spec: &Path, way: Way) -> Result<(), Halt> {
    let address = free_address()?;
    let port = address.port();
    let (name, caddyfile) = match way {
        // Where HTTP/1 is spoken too, what is no preface is a bad request of HTTP/1, and answered so; h2spec knows no such port.
        Way::Clear => {
            ("h2spec-clear", format!("{{\n\tadmin off\n\tservers {{\n\t\tprotocols h2c\n\t}}\n}}\n:{port} {{\n"))
        }
        Way::Tls => (
            "h2spec-tls",
            format!(
                "{{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}}\nhttps://localhost:{port} {{\n\ttls internal\n"
            ),
        ),
    };
    let folder = house.scratch(name)?;
    std::fs::write(folder.join("Caddyfile"), caddyfile + "\trespond \"an answer with some octets of content\"\n}\n")?;
    let mut serve = Command::new(causeway);
    serve.args(["run", "--config", "Caddyfile"]);
    let server = Server::start(serve, &folder, address)?;

    let mut cases = Command::new(h2spec);
    cases.args(["--strict", "--host", "localhost", "--port", &port.to_string()]);
    if let Way::Tls = way {
        cases.args(["--tls", "--insecure"]);
    }
    let output = match stage.run(cases) {
        Ok(output) if output.contains(CASES) => return Ok(()),
        Ok(output) | Err(Halt::Failed(output)) => output,
        Err(other) => return Err(other),
    };
    // What passed is told at length before.
    let failures = output.find("\nFailures:").map_or(&*output, |at| &output[at..]);
    Err(Halt::Failed(format!("{name}, expected {CASES}\n{failures}\nserver log:\n{}", server.log())))
}

//! Do Go's gRPC and the httpgrpc libraries in Go understand the server, and it them?
//!
//! What is tested stands in crates/causeway/tests/command_line/interop; here the programs in Go that it needs are built, from tests/peers, once.

use std::process::Command;

use anyhow::Context as _;

use crate::report::{Done, Halt};
use crate::stage::Stage;
use crate::steps::House;
use crate::tools;

/// Programs, each with its module under tests/peers and its package.
const PROGRAMS: [(&str, &str, &str); 6] = [
    ("grpc-interop-client", "grpc", "google.golang.org/grpc/interop/client"),
    ("grpc-interop-server", "grpc", "google.golang.org/grpc/interop/server"),
    ("grpc-reflecting-server", "grpc", "./server"),
    ("grpcurl", "grpc", "github.com/fullstorydev/grpcurl/cmd/grpcurl"),
    ("httpgrpc-dskit", "httpgrpc/dskit", "."),
    ("httpgrpc-weaveworks", "httpgrpc/weaveworks", "."),
];
/// Since then Go fetches the version that a module asks for by itself.
const GO_MINOR_MIN: u32 = 21;

pub(crate) fn step(stage: &mut Stage, house: &House) -> Result<Done, Halt> {
    let go = tools::GO.need(stage, house)?;
    let said = stage.run({
        let mut version = Command::new(&go);
        version.args(["env", "GOVERSION"]);
        version
    })?;
    let minor = minor(said.trim()).with_context(|| format!("go env GOVERSION says {said:?}"))?;
    if minor < GO_MINOR_MIN {
        return Err(Halt::Lacks(format!("needs Go 1.{GO_MINOR_MIN} or later, here is {}", said.trim())));
    }
    for (program, module, package) in PROGRAMS {
        tools::go_built(stage, house, program, module, package)?;
    }
    let mut test =
        house.cargo(&["test", "--package", "causeway", "--test", "command_line", "--no-fail-fast", "--", "interop::"]);
    // So that a program that is not there is a failure.
    test.env("INTEROP_TOOLS", house.target.join("tools"));
    let output = stage.run(test)?;
    let done = Done::counted(&output);
    if done.tally.passed == 0 {
        return Err(Halt::Failed(format!("{output}\nno test ran\n")));
    }
    Ok(done)
}

/// 26 of `go1.26.8`; nothing of what is no release.
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

//! Do Go's gRPC and the httpgrpc libraries in Go understand the server, and it them?
//!
//! What is tested stands in crates/causeway/tests/command_line/interop; here the programs in Go that it needs are built, from tests/peers, once.

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
pub(crate) fn step(stage: &mut Stage, house: &House) -> Result<Done, Halt> {
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

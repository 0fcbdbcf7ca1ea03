//! Tests the server against Go's gRPC, against the httpgrpc libraries in Go, against the ACME authority Pebble, and
//! against php-fpm.
//!
//! The tests are in crates/causeway/tests/command_line/interop. This step builds the Go programs that they need from
//! tests/peers, once.

use crate::report::{Done, StepError};
use crate::stage::Stage;
use crate::steps::Workspace;
use crate::tools;

/// The programs, each with its module under tests/peers and its package.
const PROGRAMS: [(&str, &str, &str); 9] = [
    ("caddy", "caddy", "github.com/caddyserver/caddy/v2/cmd/caddy"),
    ("grpc-interop-client", "grpc", "google.golang.org/grpc/interop/client"),
    ("grpc-interop-server", "grpc", "google.golang.org/grpc/interop/server"),
    ("grpc-reflecting-server", "grpc", "./server"),
    ("grpcurl", "grpc", "github.com/fullstorydev/grpcurl/cmd/grpcurl"),
    ("httpgrpc-dskit", "httpgrpc/dskit", "."),
    ("httpgrpc-weaveworks", "httpgrpc/weaveworks", "."),
    ("pebble", "pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble"),
    ("pebble-challtestsrv", "pebble", "github.com/letsencrypt/pebble/v2/cmd/pebble-challtestsrv"),
];

pub(crate) fn step(stage: &mut Stage, workspace: &Workspace) -> Result<Done, StepError> {
    tools::PHP_FPM.need(stage, workspace)?;
    for (program, module, package) in PROGRAMS {
        tools::go_built(stage, workspace, program, module, package)?;
    }
    let mut test = workspace.cargo(&[
        "test",
        "--package",
        "causeway-server",
        "--test",
        "command_line",
        "--no-fail-fast",
        "--",
        "interop::",
    ]);
    // Makes a missing program a failure instead of a skipped test.
    test.env("INTEROP_TOOLS", workspace.target.join("tools"));
    let output = stage.run(test)?;
    let done = Done::counted(&output);
    if done.tally.passed == 0 {
        return Err(StepError::Failed(format!("{output}\nno test ran\n")));
    }
    Ok(done)
}

//! gRPC through our proxy: grpc-go's interop programs at both ends, and grpcurl with reflection.

use std::net::SocketAddr;
use std::path::Path;

use super::peer::{GoServer, output, tool};
use crate::process::{Directory, ServerProcess};

/// The cases of grpc-go's interop client that need one server and no cloud, described in grpc's
/// doc/interop-test-descriptions.md. Load-balancing cases are left out: they fail against the plain server even without
/// a proxy. This client has no cases with compressed messages.
const CASES: [&str; 16] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "rpc_soak",
    "channel_soak",
];

fn serve_proxy(proxied: SocketAddr) -> (Directory, ServerProcess) {
    let text = format!(":0 {{\n\treverse_proxy h2c://{proxied}\n}}\n");
    let directory = Directory::with(&[("Caddyfile", &text)]);
    let server = directory.start(&["run"]);
    (directory, server)
}

/// In this case grpc-go's client cancels and closes concurrently. Sometimes the close is sent first, even without a
/// proxy; the client then reports the result of a closed call as a failure.
const RACE: &str = "cancel_after_begin";
const RACE_TRIES: usize = 5;

/// Runs every case and reports all failures together.
#[track_caller]
fn check(client: &Path, port: u16, more: &[&str]) {
    let port = format!("-server_port={port}");
    // Fewer and smaller iterations than by default, and a latency limit that a loaded machine does not exceed.
    let soak = ["-soak_iterations=20", "-soak_per_iteration_max_acceptable_latency_ms=10000"];
    let run = |case: &str| {
        let case = format!("-test_case={case}");
        let done = output(client, &[&["-server_host=127.0.0.1", &port, &case, soak[0], soak[1]], more].concat());
        let stderr = String::from_utf8_lossy(&done.stderr);
        let failure = || format!("{case} ({}): {}", done.status, stderr.lines().last().unwrap_or_default());
        (!done.status.success()).then(failure)
    };
    let tries = |case: &str| if case == RACE { RACE_TRIES } else { 1 };
    // A case fails only if all of its tries fail.
    let failed = |case: &&str| {
        let failures: Vec<String> = (0..tries(case)).map_while(|_| run(case)).collect();
        (failures.len() == tries(case)).then(|| failures.join("; "))
    };
    let wrong: Vec<String> = CASES.iter().filter_map(failed).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn interop_server(program: &Path) -> GoServer {
    GoServer::start_on(program, |port| vec![format!("-port={port}")])
}

#[test]
fn interop_from_go_to_go() {
    let (Some(client), Some(server)) = (tool("grpc-interop-client"), tool("grpc-interop-server")) else { return };
    check(&client, interop_server(&server).address.port(), &[]);
}

#[test]
fn interop_through_the_proxy() {
    let (Some(client), Some(server)) = (tool("grpc-interop-client"), tool("grpc-interop-server")) else { return };
    let server = interop_server(&server);
    let (_directory, proxy) = serve_proxy(server.address);
    check(&client, proxy.port(), &[]);
}

#[test]
fn interop_over_tls_through_the_proxy() {
    let (Some(client), Some(server)) = (tool("grpc-interop-client"), tool("grpc-interop-server")) else { return };
    let server = interop_server(&server);
    let options = "{\n\tskip_install_trust\n\tauto_https disable_redirects\n}";
    let site = format!("https://localhost:0 {{\n\ttls internal\n\treverse_proxy h2c://{}\n}}", server.address);
    let directory = Directory::with(&[("Caddyfile", &format!("{options}\n{site}\n"))]);
    let proxy = directory.start(&["run"]);
    let root = directory.path(".local/share/causeway/pki/authorities/local/root.crt");
    let root = format!("-ca_file={}", root.display());
    check(&client, proxy.port(), &["-use_tls", "-use_test_ca", "-server_host_override=localhost", &root]);
}

/// Reflection uses a separate stream; the upstream of the proxy serves it.
#[track_caller]
fn check_reflection(grpcurl: &Path, address: SocketAddr) {
    let address = address.to_string();
    let stderr = |words: &[&str]| {
        let done = output(grpcurl, &[&["-plaintext"], words].concat());
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(done.status.success(), "{words:?}: {done:?}");
        text
    };
    let services = stderr(&[&address, "list"]);
    assert!(services.lines().any(|line| line == "grpc.testing.TestService"), "{services}");
    let described = stderr(&[&address, "describe", "grpc.testing.TestService.UnaryCall"]);
    assert!(described.contains("rpc UnaryCall ( .grpc.testing.SimpleRequest )"), "{described}");
    let answer = stderr(&["-d", r#"{"response_size": 5}"#, &address, "grpc.testing.TestService/UnaryCall"]);
    assert!(answer.contains("\"body\": \"AAAAAAA=\""), "{answer}");
    let failed = output(
        grpcurl,
        &[
            "-plaintext",
            "-d",
            r#"{"response_status": {"code": 2, "message": "test status message"}}"#,
            &address,
            "grpc.testing.TestService/UnaryCall",
        ],
    );
    let text = String::from_utf8_lossy(&failed.stderr);
    assert!(text.contains("Code: Unknown") && text.contains("Message: test status message"), "{failed:?}");
}

#[test]
fn grpcurl_with_reflection_of_go() {
    let (Some(grpcurl), Some(server)) = (tool("grpcurl"), tool("grpc-reflecting-server")) else { return };
    check_reflection(&grpcurl, GoServer::start(&server, &[]).address);
}

#[test]
fn grpcurl_with_reflection_through_the_proxy() {
    let (Some(grpcurl), Some(server)) = (tool("grpcurl"), tool("grpc-reflecting-server")) else { return };
    let server = GoServer::start(&server, &[]);
    let (_directory, proxy) = serve_proxy(server.address);
    check_reflection(&grpcurl, SocketAddr::from(([127, 0, 0, 1], proxy.port())));
}

//! httpgrpc: our server with Go clients, Go servers as upstreams of our proxy, and both combined.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::calls::{ExpectedBody, InteropCase, Want, cases, check, judge, shown};
use super::peer::{GoServer, make, output, tool};
use crate::http2::{program, stdout_of};
use crate::process::{Directory, ServerProcess};

/// Returns both libraries: grafana/dskit with current gRPC, weaveworks/common with the gRPC of its time.
fn peers() -> Option<[PathBuf; 2]> {
    Some([tool("httpgrpc-dskit")?, tool("httpgrpc-weaveworks")?])
}

fn serve(site: &str) -> (Directory, ServerProcess) {
    let directory = Directory::with(&[("Caddyfile", &format!(":0 {{\n{site}\n}}\n"))]);
    let server = directory.start(&["run"]);
    (directory, server)
}

fn at(server: &ServerProcess) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], server.port()))
}

/// The expectations are verified with Go on both sides.
#[test]
fn go_calls_go() {
    let Some(peers) = peers() else { return };
    for server in &peers {
        let server = GoServer::start(server, &["serve"]);
        for client in &peers {
            check(client, &[], server.address, &cases());
        }
    }
}

/// Our server decodes a call and our proxy encodes it again; no part of it may change.
#[test]
fn go_calls_go_through_server_and_proxy() {
    let Some(peers) = peers() else { return };
    for server in &peers {
        let backend = GoServer::start(server, &["serve"]);
        let (_directory, ours) = serve(&format!(
            "\thttpgrpc\n\treverse_proxy direct://{} {{\n\t\ttransport httpgrpc\n\t}}",
            backend.address
        ));
        for client in &peers {
            check(client, &[], at(&ours), &cases());
        }
    }
}

/// A call that the client cancels is cancelled on the upstream too.
#[test]
fn cancellation_is_propagated() {
    let Some([dskit, _]) = peers() else { return };
    let backend = GoServer::start(&dskit, &["serve"]);
    let (_directory, ours) =
        serve(&format!("\thttpgrpc\n\treverse_proxy direct://{} {{\n\t\ttransport httpgrpc\n\t}}", backend.address));
    let slow = json!({ "method": "GET", "url": "/slow/20000", "timeout_ms": 300, "times": 5, "at_once": 5 });
    let outcomes = make(&dskit, &[], at(&ours), &[slow]);
    assert_eq!(outcomes[0]["code"], 4, "{}", outcomes[0]);
    let begun = std::time::Instant::now();
    loop {
        let outcomes = make(&dskit, &[], backend.address, &[json!({ "method": "GET", "url": "/given-up" })]);
        if outcomes[0]["body"] == "5" {
            return;
        }
        assert!(begun.elapsed().as_secs() < 10, "given up behind the proxy: {}", outcomes[0]["body"]);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// An HTTP client in front: our proxy must give the responses that dskit's own client gives.
#[test]
fn http_in_front_of_go() {
    let (Some(peers), Some(curl)) = (peers(), program("curl")) else { return };
    for server in &peers {
        let backend = GoServer::start(server, &["serve"]);
        let address = backend.address.to_string();
        for client in &peers {
            let front = GoServer::start(client, &["front", &address]);
            check_http(&curl, front.address);
        }
        let (_directory, ours) = serve(&format!("\treverse_proxy direct://{address} {{\n\t\ttransport httpgrpc\n\t}}"));
        check_http(&curl, at(&ours));
    }
}

/// Makes the calls as HTTP/1.1 requests.
#[track_caller]
fn check_http(curl: &Path, address: SocketAddr) {
    let directory = Directory::new();
    let mut wrong = Vec::new();
    for case in cases() {
        let status = match case.want {
            Want::Answer(status) | Want::Error(status) => status,
            Want::Failed(_) => continue,
        };
        let case = InteropCase { want: Want::Answer(status), ..case };
        let outcome = by_http(curl, &directory, address, &case);
        if let Some(why) = judge(&case, &outcome) {
            wrong.push(format!("{}: {why}\n  {}", case.name, shown(&outcome)));
        }
    }
    assert!(wrong.is_empty(), "curl asks {address}:\n{}", wrong.join("\n"));
}

/// Makes a call by HTTP, and describes its outcome in the format of the Go clients.
#[track_caller]
fn by_http(curl: &Path, directory: &Directory, address: SocketAddr, case: &InteropCase) -> Value {
    let call = &case.call;
    let (head, body, sent) = (directory.path("head"), directory.path("body"), directory.path("sent"));
    let bytes = call["bytes"].as_u64().unwrap_or_default() as usize;
    let content = call["body"].as_str().map_or_else(|| pattern(bytes), |text| text.as_bytes().to_vec());
    let has_content = !content.is_empty();
    std::fs::write(&sent, content).unwrap();
    std::fs::write(&body, "").unwrap();
    let mut words: Vec<String> = vec!["-s".into(), "-X".into(), call["method"].as_str().unwrap().into()];
    words.extend(["-D".into(), head.display().to_string(), "-o".into(), body.display().to_string()]);
    if has_content {
        words.extend(["--data-binary".into(), format!("@{}", sent.display())]);
    }
    for field in call["fields"].as_array().into_iter().flatten() {
        // The semicolon makes curl send an empty value.
        let (name, value) = (field[0].as_str().unwrap(), field[1].as_str().unwrap());
        words.extend(["-H".into(), if value.is_empty() { format!("{name};") } else { format!("{name}: {value}") }]);
    }
    words.push(format!("http://{address}{}", call["url"].as_str().unwrap()));
    stdout_of(curl, &words.iter().map(String::as_str).collect::<Vec<_>>());
    let (head, body) = (std::fs::read_to_string(head).unwrap(), std::fs::read(body).unwrap());
    // Skip the head of a 100 Continue.
    let head = head.trim_end().rsplit("\r\n\r\n").next().unwrap();
    let mut fields = serde_json::Map::new();
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(':')) {
        let values = fields.entry(name.to_ascii_lowercase()).or_insert(json!([]));
        values.as_array_mut().unwrap().push(json!(value.trim()));
    }
    let status: u16 = head.split(' ').nth(1).unwrap().trim().parse().unwrap();
    json!({
        "code": 0,
        "status": status,
        "fields": fields,
        "length": body.len(),
        "pattern": body == pattern(body.len()),
        "body": String::from_utf8_lossy(&body[..body.len().min(300)]),
    })
}

/// Returns the bytes that the peers' site generates.
fn pattern(count: usize) -> Vec<u8> {
    (0..count as u32).map(|place| (place.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

const OWN_SITE: &str = "
	httpgrpc
	root files
	header /two-values X-Two \"one\"
	header /two-values +X-Two \"two\"
	respond /two-values two
	respond /hello \"hello, {http.request.method} {http.request.uri}\"
	respond /echo {http.request.body}
	respond /field {header.X-One}
	respond /not-found \"nothing\" 404
	respond /broken \"broken\" 503
	header /quiet X-DoNotLogError true
	respond /quiet \"quiet\" 500
	error /error 502
	handle_errors {
		respond \"handled {err.status_code}\"
	}
	redir /away /elsewhere
	file_server
";

/// Calls to our own site with their outcomes.
fn own_cases() -> Vec<InteropCase> {
    let case = |name, call: Value, want, body| InteropCase { name, call, want, body, fields: &[] };
    let get = |url: &str| json!({ "method": "GET", "url": url });
    let mut cases = vec![
        case("a text", get("/hello?a=b"), Want::Answer(200), ExpectedBody::Text("hello, GET /hello?a=b")),
        case("a file", get("/large"), Want::Answer(200), ExpectedBody::Bytes(1_000_000)),
        case("a listing that is not there", get("/"), Want::Answer(404), ExpectedBody::Text("handled 404")),
        case("not found", get("/not-found"), Want::Answer(404), ExpectedBody::Text("nothing")),
        case("an answer of 5xx", get("/broken"), Want::Error(503), ExpectedBody::Text("broken")),
        case("a fault", get("/error"), Want::Error(502), ExpectedBody::Text("handled 502")),
        case("a redirect", get("/away"), Want::Answer(302), ExpectedBody::Any),
        case(
            "a body that comes back",
            json!({ "method": "POST", "url": "/echo", "body": "some text" }),
            Want::Answer(200),
            ExpectedBody::Text("some text"),
        ),
        case(
            "a large body that comes back, many times at once",
            json!({ "method": "POST", "url": "/echo", "bytes": 300_000, "times": 100, "at_once": 20 }),
            Want::Answer(200),
            ExpectedBody::Bytes(300_000),
        ),
        case(
            "a compressed message",
            json!({ "method": "POST", "url": "/echo", "bytes": 300_000, "gzip": true }),
            Want::Answer(200),
            ExpectedBody::Bytes(300_000),
        ),
        case(
            "a field",
            json!({ "method": "GET", "url": "/field", "fields": [["x-one", "its value"]] }),
            Want::Answer(200),
            ExpectedBody::Text("its value"),
        ),
        case(
            "a range",
            json!({ "method": "GET", "url": "/large", "fields": [["Range", "bytes=0-99"]] }),
            Want::Answer(206),
            ExpectedBody::Bytes(100),
        ),
        case(
            "a request over the limit",
            json!({ "method": "POST", "url": "/echo", "bytes": 5_000_000 }),
            Want::Failed(8),
            ExpectedBody::Any,
        ),
    ];
    cases.push(InteropCase {
        fields: &[("X-Two", &["one", "two"])],
        ..case("two values of a field", get("/two-values"), Want::Answer(200), ExpectedBody::Text("two"))
    });
    cases.push(InteropCase {
        fields: &[("X-DoNotLogError", &[])],
        ..case("an error that is not to be logged", get("/quiet"), Want::Error(500), ExpectedBody::Text("quiet"))
    });
    cases
}

#[test]
fn go_calls_our_site() {
    let Some(peers) = peers() else { return };
    let (directory, server) = serve(OWN_SITE);
    directory.write("files/large", pattern(1_000_000));
    for client in &peers {
        check(client, &[], at(&server), &own_cases());
    }
}

/// A call that is not a valid HTTP request fails with a gRPC error, and the connection remains usable.
#[test]
fn invalid_requests_are_refused() {
    let Some(peers) = peers() else { return };
    let (_directory, server) = serve(OWN_SITE);
    let bad = |method: &str, url: &str| json!({ "method": method, "url": url });
    let field = |name: &str, value: &str| json!({ "method": "GET", "url": "/hello", "fields": [[name, value]] });
    let mut calls = vec![
        bad("G T", "/hello"),
        bad("GET", "/hel lo"),
        bad("GET", "/hello\r\nX: y"),
        bad("GET", "http://[::1"),
        field("X One", "1"),
        field("X-One", "1\r\nX-Two: 2"),
        field("X-One", "\u{0}"),
        field("", "1"),
    ];
    calls.push(json!({ "method": "GET", "url": "/hello" }));
    for client in &peers {
        let outcomes = make(client, &[], at(&server), &calls);
        let (good, refused) = outcomes.split_last().unwrap();
        for (call, outcome) in calls.iter().zip(refused) {
            assert!(outcome["code"] != 0 && outcome["status"] == 0, "{call}: {outcome}");
        }
        assert_eq!(good["status"], 200, "{good}");
    }
}

/// grpcurl needs the protocol file: a httpgrpc server offers no reflection.
#[test]
fn grpcurl_calls_our_site() {
    let Some(grpcurl) = tool("grpcurl") else { return };
    let (_directory, server) = serve(OWN_SITE);
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../httpgrpc/proto");
    let (directory, address) = (directory.display().to_string(), at(&server).to_string());
    let send_request = |method: &str, request: &str| {
        let words =
            ["-plaintext", "-import-path", &directory, "-proto", "httpgrpc.proto", "-d", request, &address, method];
        output(&grpcurl, &words)
    };
    let done = send_request("httpgrpc.HTTP/Handle", r#"{"method":"GET","url":"/hello"}"#);
    let answer: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    // "hello, GET /hello" in base64.
    assert_eq!((&answer["Code"], &answer["body"]), (&json!(200), &json!("aGVsbG8sIEdFVCAvaGVsbG8=")), "{answer}");
    let done = send_request("httpgrpc.HTTP/Handle", r#"{"method":"GET","url":"/broken"}"#);
    let text = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && text.contains("503") && text.contains("broken"), "{done:?}");
}

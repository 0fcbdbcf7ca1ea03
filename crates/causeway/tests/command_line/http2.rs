//! HTTP/2 with independent clients: curl, nghttp, h2load and Go's net/http. Without its client a test is skipped with a
//! message. HTTP/2 through the proxy, frame by frame.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use causeway_testkit::http2::{Wire, flag, get, kind, literal, never_indexed};

use crate::process::{Directory, ServerProcess};

const LARGE_BYTES: usize = 4 << 20;

const ROUTES: &str = "
	respond / hello
	respond /echo {http.request.body}
	respond /early early
	respond /refused 403
	respond /field {header.X-Large}
	respond /protocol \"{http.request.proto} {http.request.scheme}\"
	root files
	file_server
";

/// Starts a server without TLS, with its default protocols.
fn serve() -> (Directory, ServerProcess) {
    serve_with("")
}

/// Starts a server without TLS; `options` are those of `servers`.
fn serve_with(options: &str) -> (Directory, ServerProcess) {
    let directory =
        Directory::with(&[("Caddyfile", &format!("{{\n\tservers {{\n{options}\n\t}}\n}}\n:0 {{{ROUTES}}}\n"))]);
    directory.write("files/large", "x".repeat(LARGE_BYTES));
    let server = directory.start(&["run"]);
    (directory, server)
}

/// Starts a server over TLS, with a certificate of its local authority; `tls` are the options of that directive.
fn serve_tls(tls: &str) -> (Directory, ServerProcess) {
    let options = "\tskip_install_trust\n\tauto_https disable_redirects\n";
    let site = format!("https://localhost:0 {{\n\ttls internal {{\n{tls}\n\t}}{ROUTES}}}\n");
    let directory = Directory::with(&[("Caddyfile", &format!("{{\n{options}}}\n{site}"))]);
    directory.write("files/large", "x".repeat(LARGE_BYTES));
    let server = directory.start(&["run"]);
    (directory, server)
}

/// Finds an external program. Without it, prints that the test is skipped.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file());
    if found.is_none() {
        eprintln!("skipped: there is no {name} here");
    }
    found
}

/// Runs a program that must succeed, and returns its output.
#[track_caller]
pub(crate) fn stdout_of(program: &Path, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    assert!(output.status.success(), "{} {arguments:?}: {output:?}", program.display());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn output(program: &Path, arguments: &[&str]) -> Output {
    // A program that hangs is ended, so that the test fails.
    Command::new("timeout").arg("60").arg(program).args(arguments).output().expect("timeout, of coreutils")
}

// RFC 9113 §8.1: a response that is complete before the request. When curl stops an upload because of the status,
// version 7.88 waits for the stream's reset, without a time limit.
#[test]
fn curl_stops_an_upload() {
    let Some(curl) = program("curl") else { return };
    let (directory, server) = serve_tls("");
    let (url, file) = (format!("https://localhost:{}/refused", server.port()), directory.path("files/large"));
    let file = file.to_str().unwrap();
    let common = ["-sk", "--http2", "-H", "Expect:", "-w", "%{http_version} %{http_code}", &url];
    let (form, sized) = (format!("part=@{file}"), format!("@{file}"));
    for upload in [["-T", file], ["-F", &form], ["--data-binary", &sized]] {
        for _ in 0..3 {
            assert_eq!(stdout_of(&curl, &[&common[..], &upload].concat()), "2 403", "{upload:?}");
        }
    }
    // Without a Content-Length.
    for _ in 0..3 {
        let piped = format!(
            "cat {file} | timeout 60 {} {} -T -",
            curl.display(),
            common.map(|word| format!("'{word}'")).join(" ")
        );
        assert_eq!(stdout_of(Path::new("/bin/sh"), &["-c", &piped]), "2 403");
    }
}

#[test]
fn curl() {
    let Some(curl) = program("curl") else { return };
    let (directory, server) = serve();
    let at = |path: &str| format!("http://localhost:{}{path}", server.port());
    let version = "%{http_version} %{http_code}";
    let prior = ["-s", "--http2-prior-knowledge", "-w", version];
    let send_request = |more: &[&str]| stdout_of(&curl, &[&prior[..], more].concat());
    assert_eq!(send_request(&[&at("/")]), "hello2 200");
    assert_eq!(send_request(&[&at("/protocol")]), "HTTP/2.0 http2 200");
    assert_eq!(send_request(&[&at("/nowhere")]), "2 404");
    assert_eq!(send_request(&["-d", "some text", &at("/echo")]), "some text2 200");
    assert_eq!(send_request(&["-r", "5-9", &at("/large")]), "xxxxx2 206");
    let head = send_request(&["-I", &at("/large")]);
    assert!(
        head.starts_with("HTTP/2 200 \r\n") && head.contains(&format!("content-length: {LARGE_BYTES}\r\n")),
        "{head}"
    );
    // An upload larger than every window, and its echo.
    let (large, back) = (directory.path("files/large"), directory.path("back"));
    let upload = format!("@{}", large.display());
    let (upload, back) = (upload.as_str(), back.to_str().unwrap());
    assert_eq!(send_request(&["-o", back, "--data-binary", upload, &at("/echo")]), "2 200");
    assert!(std::fs::read(back).unwrap() == std::fs::read(large).unwrap(), "the echo differs");
}

// RFC 7540 §3.2: the upgrade works only if the configuration enables it.
#[test]
fn curl_upgrades_when_enabled() {
    let Some(curl) = program("curl") else { return };
    for (options, want) in [("", "HTTP/1.1 http1.1 200"), ("\t\tprotocols h1 h2c", "HTTP/2.0 http2 200")] {
        let (_directory, server) = serve_with(options);
        let url = format!("http://localhost:{}/protocol", server.port());
        assert_eq!(stdout_of(&curl, &["-s", "--http2", "-w", "%{http_version} %{http_code}", &url]), want, "{options}");
    }
}

#[test]
fn nghttp() {
    let Some(nghttp) = program("nghttp") else { return };
    let (_directory, server) = serve();
    let url = format!("http://localhost:{}/", server.port());
    let text = stdout_of(&nghttp, &["-nv", &url]);
    assert!(text.contains("recv (stream_id=13) :status: 200") && !text.contains("RST_STREAM"), "{text}");
    // Windows of one byte (2^N - 1) and larger.
    for (bits, path) in [("1", ""), ("2", ""), ("10", "large"), ("16", "large"), ("30", "large")] {
        let text = stdout_of(&nghttp, &["-ns", "-w", bits, "-W", bits, &format!("{url}{path}")]);
        assert!(text.contains(" 200 "), "{bits}: {text}");
    }
    let text = stdout_of(&nghttp, &["-nv", "-m", "100", &url]);
    assert_eq!(text.matches(":status: 200").count(), 100, "{text}");
}

#[test]
fn nghttp_upgrades() {
    let Some(nghttp) = program("nghttp") else { return };
    let (_directory, server) = serve_with("\t\tprotocols h1 h2c");
    let text = stdout_of(&nghttp, &["-nvu", &format!("http://localhost:{}/", server.port())]);
    assert!(text.contains("recv (stream_id=1) :status: 200") && !text.contains("RST_STREAM"), "{text}");
}

#[test]
fn h2load() {
    let Some(h2load) = program("h2load") else { return };
    let (_directory, server) = serve();
    for (clients, streams, count, path) in [("10", "10", 2000, "/"), ("64", "32", 8192, "/"), ("8", "8", 64, "/large")]
    {
        check_load(&h2load, clients, streams, count, &format!("http://localhost:{}{path}", server.port()));
    }
}

/// Checks that every request gets a 2xx response.
#[track_caller]
fn check_load(h2load: &Path, clients: &str, streams: &str, count: u32, url: &str) {
    let text = stdout_of(h2load, &["-c", clients, "-m", streams, "-n", &count.to_string(), url]);
    let want = format!(
        "requests: {count} total, {count} started, {count} done, {count} succeeded, 0 failed, 0 errored, 0 timeout"
    );
    assert!(text.contains(&want), "{text}");
    assert!(text.contains(&format!("status codes: {count} 2xx, 0 3xx, 0 4xx, 0 5xx")), "{text}");
}

/// Builds Go's client from tests/peers/go, once.
fn go() -> Option<&'static Path> {
    static BUILT: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
        let go = program("go")?;
        let version = stdout_of(&go, &["env", "GOVERSION"]);
        let minor = version.trim().strip_prefix("go1.").and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
        if minor.is_none_or(|minor| minor < 24) {
            eprintln!("skipped: Go 1.24 has the client that is wanted, here is {version}");
            return None;
        }
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-http2");
        let mut build = Command::new(go);
        build.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/go"));
        build.env("GOTOOLCHAIN", "local").args(["build", "-o"]).arg(&program).arg(".");
        let output = build.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(program)
    });
    BUILT.as_deref()
}

/// Go's client has equal results over TLS and without TLS.
#[test]
fn go_over_tls() {
    let Some(go) = go() else { return };
    let (_directory, server) = serve_tls("");
    check_go(go, &format!("https://localhost:{}", server.port()));
}

#[test]
fn go_without_tls() {
    let Some(go) = go() else { return };
    let (_directory, server) = serve();
    check_go(go, &format!("http://localhost:{}", server.port()));
}

#[track_caller]
fn check_go(go: &Path, base: &str) {
    let output = output(go, &[base]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.matches("ok ").count() == 10, "{text}{output:?}");
}

// RFC 7301, RFC 9113 §3.2: the client selects the version by ALPN.
#[test]
fn curl_over_tls() {
    let Some(curl) = program("curl") else { return };
    let (directory, server) = serve_tls("");
    let url = |path: &str| format!("https://localhost:{}{path}", server.port());
    let version = "%{http_version} %{http_code}";
    let send_request = |more: &[&str]| stdout_of(&curl, &[&["-sk", "-w", version], more].concat());
    assert_eq!(send_request(&[&url("/protocol")]), "HTTP/2.0 https2 200");
    assert_eq!(send_request(&["--http1.1", &url("/protocol")]), "HTTP/1.1 https1.1 200");
    assert_eq!(send_request(&["--http2-prior-knowledge", &url("/protocol")]), "HTTP/2.0 https2 200");
    assert_eq!(send_request(&["--no-alpn", &url("/protocol")]), "HTTP/1.1 https1.1 200");
    // Fifty sequential requests use one connection.
    let range = format!("{}?[1-50]", url("/"));
    let text = stdout_of(&curl, &["-sk", "-w", "%{http_version} %{num_connects} ", &range]);
    assert_eq!((text.matches("hello2 1").count(), text.matches("hello2 0").count()), (1, 49), "{text}");
    let back = directory.path("back");
    let upload = format!("@{}", directory.path("files/large").display());
    assert_eq!(send_request(&["-o", back.to_str().unwrap(), "--data-binary", &upload, &url("/echo")]), "2 200");
    assert!(std::fs::read(back).unwrap() == std::fs::read(directory.path("files/large")).unwrap(), "the echo differs");
}

#[test]
fn nghttp_and_h2load_over_tls() {
    let (Some(nghttp), Some(h2load)) = (program("nghttp"), program("h2load")) else { return };
    let (_directory, server) = serve_tls("");
    let url = format!("https://localhost:{}/", server.port());
    let text = stdout_of(&nghttp, &["-nv", "--no-verify-peer", &url]);
    assert!(text.contains(":status: 200") && !text.contains("RST_STREAM"), "{text}");
    check_load(&h2load, "64", "32", 4096, &url);
    check_load(&h2load, "8", "8", 64, &format!("{url}large"));
}

/// Reads the field blocks of a stream up to its end.
#[track_caller]
fn blocks(wire: &mut Wire, stream: u32) -> Vec<Vec<u8>> {
    let mut blocks = Vec::new();
    loop {
        let frame = wire.receive().unwrap().expect("a message up to its end");
        if frame.stream != stream {
            continue;
        }
        let ends = matches!(frame.kind, kind::HEADERS | kind::DATA) && frame.flags & flag::END_STREAM != 0;
        if frame.kind == kind::HEADERS {
            blocks.push(frame.payload);
        }
        if ends {
            return blocks;
        }
    }
}

/// Asserts that each block has its field as one that is never indexed.
#[track_caller]
fn check_never_indexed(blocks: &[Vec<u8>], fields: &[(&str, &str)]) {
    assert_eq!(blocks.len(), fields.len());
    for (block, (name, value)) in blocks.iter().zip(fields) {
        let mut want = Vec::new();
        never_indexed(&mut want, name.as_bytes(), value.as_bytes());
        assert!(block.windows(want.len()).any(|part| part == want), "{name}: {}", block.escape_ascii());
    }
}

// RFC 7541 §6.2.3: a field that arrives as never indexed is forwarded as one, also if `header_up` or `header_down`
// replaces a part of it.
#[test]
fn fields_that_are_never_indexed() {
    for (options, secret, token) in
        [("", "a-secret", "a-token"), ("header_up X-Secret a- b-\nheader_down X-Token a- c-", "b-secret", "c-token")]
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let upstream = listener.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut wire = Wire::accept(listener.accept().unwrap().0).unwrap();
            let request = blocks(&mut wire, 1);
            // Entry 8 of the static table is `:status: 200`; here its name has another value.
            let mut interim = vec![8, 3];
            interim.extend_from_slice(b"103");
            never_indexed(&mut interim, b"x-early", b"a-hint");
            let (mut head, mut trailers) = (vec![0x88], Vec::new());
            literal(&mut head, b"x-plain", b"1");
            never_indexed(&mut head, b"x-token", b"a-token");
            never_indexed(&mut trailers, b"x-sum", b"a-sum");
            wire.put(kind::HEADERS, flag::END_HEADERS, 1, &interim);
            wire.put(kind::HEADERS, flag::END_HEADERS, 1, &head);
            wire.put(kind::DATA, flag::NONE, 1, b"hello");
            wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers);
            wire.flush().unwrap();
            (request, wire)
        });
        let site = format!(":0 {{\n\treverse_proxy h2c://{upstream} {{\n{options}\n\t}}\n}}\n");
        let directory = Directory::with(&[("Caddyfile", &site)]);
        let server = directory.start(&["run"]);
        let mut wire = Wire::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, server.port())), &[]).unwrap();
        let (mut head, mut trailers) = (get("/"), Vec::new());
        literal(&mut head, b"trailer", b"x-last");
        never_indexed(&mut head, b"x-secret", b"a-secret");
        never_indexed(&mut trailers, b"x-last", b"z");
        wire.put(kind::HEADERS, flag::END_HEADERS, 1, &head);
        wire.put(kind::DATA, flag::NONE, 1, b"hello");
        wire.put(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &trailers);
        wire.flush().unwrap();
        check_never_indexed(&blocks(&mut wire, 1), &[("x-early", "a-hint"), ("x-token", token), ("x-sum", "a-sum")]);
        let (request, _wire) = thread.join().unwrap();
        check_never_indexed(&request, &[("x-secret", secret), ("x-last", "z")]);
    }
}

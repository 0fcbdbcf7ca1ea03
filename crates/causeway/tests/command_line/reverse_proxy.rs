//! `reverse-proxy`, in front of servers of our own.

use std::process::{Command, Stdio};

use causeway_testkit::ports::{free_port, free_ports};

use crate::client::{get, send};
use crate::process::{Directory, ServerProcess};

/// The response of the upstream: parts of the request.
const BODY: &str = "{http.request.hostport} {http.request.header.X-Up} {http.request.header.X-Two}";

/// Starts an upstream that responds with these parts of its requests.
fn upstream(directory: &Directory) -> ServerProcess {
    directory.start(&["respond", "-l", "127.0.0.1:0", "-H", "X-Down: upstream", BODY])
}

// Caddy, `reverse-proxy`: a `--from` without a host is served over HTTP.
#[test]
fn a_proxy() {
    let directory = Directory::new();
    let upstream = upstream(&directory);
    let (from, to) = (free_port(), format!("127.0.0.1:{}", upstream.port()));
    let listen = format!(":{from}");
    let start = |flags: &[&str]| directory.start(&[&["reverse-proxy", "--from", &listen, "--to", &to], flags].concat());
    {
        let server = start(&[]);
        let line = format!("Causeway serves a proxy to {to} on http://localhost:{from} with ");
        assert!(server.first_line.starts_with(&line), "{}", server.first_line);
        assert_eq!(send(from, "GET /", &["Host: a.example"]).body, "a.example  ");
    }
    let up = ["-H", "X-Up: first", "--header-up", "x-up: last", "--header-up", "X-Two:{http.request.method}"];
    let server = start(&[&["-c", "-d", "X-Down: proxy", "--access-log"], &up[..]].concat());
    let answer = get(from, "/");
    assert_eq!(answer.body, format!("{to} last GET"));
    assert_eq!(answer.field("X-Down").as_deref(), Some("proxy"));
    let mut server = server;
    assert!(server.line_with("handled request").contains("\"status\":200"));
}

// Several upstreams, by repetition, by commas, and as a range of ports: requests go to each of them.
#[test]
fn several_upstreams() {
    let directory = Directory::new();
    let ports: [u16; 3] = free_ports();
    let listen = |port: u16| format!("127.0.0.1:{port}");
    let _upstreams = ports.map(|port| directory.start(&["respond", "-l", &listen(port), "{{.Port}}"]));
    let from = free_port();
    let (first, others) = (listen(ports[0]), format!("{},{}", listen(ports[1]), listen(ports[2])));
    let _server = directory.start(&["reverse-proxy", "-f", &format!("http://:{from}"), "-t", &first, "-t", &others]);
    let mut missing = ports.map(|port| port.to_string()).to_vec();
    // The default policy is random, so that each upstream gets a request sooner or later.
    for _ in 0..10_000 {
        let body = get(from, "/").body;
        missing.retain(|port| *port != body);
        if missing.is_empty() {
            return;
        }
    }
    panic!("{missing:?} got no request");
}

// Caddy: a host is served over HTTPS; `--internal-certs` takes the local authority, and `--disable-redirects` needs no
// port 80. `--insecure` accepts any certificate of the upstream.
#[test]
fn https_on_both_sides() {
    let is_installed = Command::new("curl").arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_installed {
        return;
    }
    let directory = Directory::new();
    let [behind, front]: [u16; 2] = free_ports();
    let upstream = upstream(&directory);
    let start = |from: u16, to: &str, flags: &[&str]| {
        let from = format!("localhost:{from}");
        let shared = ["reverse-proxy", "--from", &from, "--to", to, "--internal-certs", "--disable-redirects"];
        directory.start(&[&shared[..], flags].concat())
    };
    let _behind = start(behind, &format!("127.0.0.1:{}", upstream.port()), &[]);
    let to = format!("https://localhost:{behind}");
    for (flags, want) in [(&["--insecure"][..], "200"), (&[], "502")] {
        let server = start(front, &to, flags);
        assert!(server.first_line.contains(&format!("https://localhost:{front}")), "{}", server.first_line);
        let url = format!("https://localhost:{front}/");
        let output =
            Command::new("curl").args(["-sk", "-o", "/dev/null", "-w", "%{http_code}", &url]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), want, "{flags:?}");
    }
}

#[test]
fn mistakes() {
    let directory = Directory::new();
    for (arguments, want) in [
        (&["--to", "a"][..0], "the following required arguments were not provided: --to <ADDRESS>"),
        (
            &["--to", "http://a:443"],
            "--to http://a:443: upstream address has conflicting scheme (http://) and port (:443",
        ),
        (&["--to", "a:9-8"], "--to a:9-8: "),
        (&["--to", ""], "--to: found no address, expected at least one"),
        (&["--to", "a", "--from", "a/b"], "--from a/b: found the path '/b', expected an address without a path"),
        (
            &["--to", "a", "--from", "ftp://a"],
            "--from ftp://a: unsupported URL scheme ftp://; expected http:// or https://",
        ),
        (
            &["--to", "a", "--from", "https://:1"],
            "--from https://:1: found no host, which a certificate needs; expected a host",
        ),
        (&["--to", "a", "--from", ":1", "-H", "x"], "--header-up: found 'x', expected \"Name: value\""),
        (&["--to", "a", "--from", ":1", "-d", "x: "], "--header-down: found 'x: ', expected \"Name: value\""),
    ] {
        let output = directory.output(&[&["reverse-proxy"], arguments].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.starts_with(&format!("Error: {want}")), "{arguments:?} {error}");
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    }
    let server = directory.start(&["respond", "-l", "0.0.0.0:0"]);
    let from = format!(":{}", server.port());
    let error = String::from_utf8(directory.output(&["reverse-proxy", "-f", &from, "-t", "a"]).stderr).unwrap();
    let want = "the port is in use already; choose another with --from, as in `causeway reverse-proxy --from :8081`\n";
    assert!(error.ends_with(want), "{error}");
}

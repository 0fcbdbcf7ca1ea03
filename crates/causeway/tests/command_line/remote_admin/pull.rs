//! `admin.config.load`: a server pulls its configuration from another one, which may be slow, gone, or send garbage.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::client::{get, send, send_body};
use crate::process::{Directory, ServerProcess};

const TIMEOUT: Duration = Duration::from_secs(20);

/// A server of configurations: answers every request with the current response, and records the requests' heads.
struct ConfigServer {
    url: String,
    response: Arc<Mutex<Vec<u8>>>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl ConfigServer {
    fn new(kind: &str, body: &str) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}/config?key=secret", listener.local_addr().unwrap());
        let server = Self { url, response: Arc::default(), heads: Arc::default() };
        server.answer(kind, body);
        let (response, heads) = (Arc::clone(&server.response), Arc::clone(&server.heads));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = Vec::new();
                let mut bytes = [0; 1024];
                while !head.windows(4).any(|window| window == b"\r\n\r\n") {
                    match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => head.extend_from_slice(&bytes[..count]),
                    }
                }
                heads.lock().unwrap().push(String::from_utf8(head).unwrap());
                let response = response.lock().unwrap().clone();
                if response.is_empty() {
                    // A server that is slow: it holds the connection.
                    std::thread::spawn(move || {
                        std::thread::sleep(TIMEOUT);
                        drop(stream);
                    });
                    continue;
                }
                let _ = stream.write_all(&response);
            }
        });
        server
    }

    fn answer(&self, kind: &str, body: &str) {
        let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        self.answer_raw(&format!(
            "HTTP/1.1 200 OK\r\n{kind}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
    }

    fn answer_raw(&self, response: &str) {
        *self.response.lock().unwrap() = response.as_bytes().to_vec();
    }

    fn requests(&self) -> usize {
        self.heads.lock().unwrap().len()
    }
}

/// A configuration with one site that responds with `body`, on this port.
fn config(port: u16, body: &str) -> Value {
    json!({ "apps": { "http": { "servers": { "s": {
        "listen": [format!("127.0.0.1:{port}")],
        "routes": [{ "handle": [{ "handler": "static_response", "body": body }] }],
    } } } } })
}

/// The same with a loader.
fn pulling(port: u16, body: &str, url: &str, delay: Option<&str>) -> Value {
    let mut config = config(port, body);
    config["admin"] = json!({ "config": { "load": { "module": "http", "url": url } } });
    if let Some(delay) = delay {
        config["admin"]["config"]["load_delay"] = delay.into();
    }
    config
}

#[track_caller]
fn start(directory: &Directory, config: &Value) -> ServerProcess {
    directory.write("config.json", config.to_string());
    directory.start(&["run", "--config", "config.json", "--workers", "1"])
}

/// Waits until the site responds with `body`.
#[track_caller]
fn until(port: u16, body: &str) {
    let begun = Instant::now();
    while get(port, "/").body != body {
        assert!(begun.elapsed() < TIMEOUT, "the site has no '{body}'");
        std::thread::sleep(Duration::from_millis(20));
    }
}

// Caddy's documentation of `load`: the pulled configuration replaces the current one, like any other load. It is not
// persisted.
#[test]
fn a_pull_at_the_start() {
    let (directory, port) = (Directory::new(), free_port());
    let theirs = ConfigServer::new("", &config(port, "pulled").to_string());
    let mut first = pulling(port, "first", &theirs.url, None);
    first["admin"]["config"]["load"]["header"] = json!({ "X-Key": ["one", "two"], "User-Agent": ["tester"] });
    first["admin"]["config"]["load"]["method"] = json!("POST");
    let mut server = start(&directory, &first);
    let admin = server.admin_port();
    until(port, "pulled");
    let head = theirs.heads.lock().unwrap()[0].to_lowercase();
    assert!(head.starts_with("post /config?key=secret http/1.1\r\n"), "{head}");
    assert!(head.contains("x-key: one\r\n") && head.contains("x-key: two\r\n") && head.contains("user-agent: tester"));
    let current = send(admin, "GET /config/admin", &[&format!("Host: localhost:{admin}")]);
    assert_eq!(current.body, "null\n", "the pulled configuration as a whole has replaced the first one");
    let kept = std::fs::read_to_string(directory.path(".config/causeway/autosave.json")).unwrap();
    assert!(kept.contains("first") && !kept.contains("pulled"), "{kept}");
    assert_eq!(theirs.requests(), 1);
}

// Caddy's documentation of the loader: the Content-Type selects the adapter as for /load, and `adapter` has precedence
// over it.
#[test]
fn adapters() {
    let caddyfile =
        |port: u16| format!("{{\n\tadmin off\n}}\nhttp://:{port} {{\n\tbind 127.0.0.1\n\trespond adapted\n}}\n");
    for (kind, adapter) in [("text/caddyfile; charset=utf-8", ""), ("text/plain", "caddyfile")] {
        let (directory, port) = (Directory::new(), free_port());
        let theirs = ConfigServer::new(kind, &caddyfile(port));
        let mut first = pulling(port, "first", &theirs.url, None);
        first["admin"]["config"]["load"]["adapter"] = adapter.into();
        let _server = start(&directory, &first);
        until(port, "adapted");
    }
}

// Without `load_delay` the pull is a part of the load, so a configuration that cannot pull is refused.
#[test]
fn a_pull_at_once_that_fails_refuses_its_configuration() {
    let (directory, port) = (Directory::new(), free_port());
    let theirs = ConfigServer::new("", "{");
    let url = theirs.url.split('?').next().unwrap().to_owned();
    let mut server = start(&directory, &config(port, "old"));
    let admin = server.admin_port();
    let load = |config: &Value| {
        let fields = [&*format!("Host: localhost:{admin}"), "Content-Type: application/json"];
        send_body(admin, "POST /load", &fields, &config.to_string())
    };
    let found = |response: &str, want: &str| {
        theirs.answer_raw(response);
        let answer = load(&pulling(port, "new", &theirs.url, None));
        assert_eq!(answer.status, 400, "{}", answer.body);
        let error: Value = serde_json::from_str(&answer.body).unwrap();
        assert_eq!(
            error["error"],
            format!("loading config: loading new config: pulling a configuration from {url}: {want}")
        );
        assert_eq!(get(port, "/").body, "old");
    };
    let ok = "HTTP/1.1 200 OK\r\nConnection: close\r\n";
    found(
        &format!("{ok}Content-Length: 1\r\n\r\n{{"),
        &format!("{url}:1:1: EOF while parsing an object, expected JSON"),
    );
    found(&format!("{ok}\r\n"), "found an empty response, expected a configuration");
    found(&format!("{ok}\r\nnull"), "found JSON that is not an object, expected a configuration");
    found(&format!("{ok}Content-Type: text/yaml\r\n\r\n{{}}"), "unrecognized config adapter 'yaml'");
    found(&format!("{ok}Content-Type: x\r\n\r\n{{}}"), "malformed Content-Type");
    found(
        &format!("{ok}Content-Length: {}\r\n\r\n{{", (64 << 20) + 1),
        &format!("the response is longer than {} bytes", 64 << 20),
    );
    found("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "found status 404, expected a configuration");
    found(
        "HTTP/1.1 302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n",
        "found status 302, expected a configuration: redirects are not followed",
    );
    // Caddy makes up to ten attempts after statuses outside of 200 to 499.
    let before = theirs.requests();
    found(
        "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        "found status 503, expected a configuration",
    );
    assert_eq!(theirs.requests() - before, 10);
    // A server that is slow: the attempts end after the first that begins 5 s later.
    theirs.answer_raw("");
    let mut slow = pulling(port, "new", &theirs.url, None);
    slow["admin"]["config"]["load"]["timeout"] = json!("3s");
    let answer = load(&slow);
    assert!(answer.body.contains("no complete response after 3 s"), "{}", answer.body);
    let mut gone = pulling(port, "new", &format!("http://127.0.0.1:{}/", free_port()), None);
    let answer = load(&gone);
    assert!(answer.status == 400 && answer.body.contains("refused"), "{}", answer.body);
    gone["admin"]["config"]["load"]["tls"] = json!({ "root_ca_pem_files": ["absent.pem"] });
    let answer = load(&gone);
    assert!(answer.body.contains("absent.pem: found no root certificates, expected a PEM file"), "{}", answer.body);
    // The files hold no PEM.
    gone["admin"]["config"]["load"]["tls"] =
        json!({ "client_certificate_file": "config.json", "client_certificate_key_file": "config.json" });
    let answer = load(&gone);
    assert!(
        answer.body.contains("config.json: found text that is not PEM, expected a certificate as PEM"),
        "{}",
        answer.body
    );
    gone["admin"]["config"]["load"]["adapter"] = json!("yaml");
    let answer = load(&gone);
    assert!(
        answer.body.contains("admin.config.load.adapter: found 'yaml', expected caddyfile or json"),
        "{}",
        answer.body
    );
    assert_eq!(get(port, "/").body, "old");
}

// Caddy's documentation of `load_delay`: the next configuration is pulled after this time, also after an error and
// while it is unchanged; a configuration without `load` ends the loop.
#[test]
fn polling() {
    let (directory, port) = (Directory::new(), free_port());
    let theirs = ConfigServer::new("", "");
    let with = |body: &str| pulling(port, body, &theirs.url, Some("100ms"));
    let mut server = start(&directory, &with("first"));
    let line = server.line_with("pulling a configuration from");
    let want = "found an empty response, expected a configuration; keeping the current configuration";
    assert!(line.contains(want) && !line.contains("secret"), "{line}");
    theirs.answer("", &with("second").to_string());
    until(port, "second");
    // The same cause is logged once, however often it occurs; another one is logged too.
    theirs.answer("text/caddyfile", ":0 {\n\trespnd\n}\n");
    server.line_with("unrecognized directive: respnd");
    let before = theirs.requests();
    while theirs.requests() < before + 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut refused = with("third");
    refused["apps"]["http"]["servers"]["s"]["routes"][0]["handle"][0]["handler"] = json!("teapot");
    theirs.answer("application/json", &refused.to_string());
    let line = server.next_line();
    assert!(line.contains("handler module 'teapot' is not supported"), "{line}");
    // A pulled configuration that would pull again at once.
    theirs.answer("", &pulling(port, "third", &theirs.url, None).to_string());
    let line = server.next_line();
    assert!(line.contains("found a `load` without `load_delay` in a pulled configuration"), "{line}");
    assert_eq!(get(port, "/").body, "second");
    theirs.answer("", &with("second").to_string());
    server.line_with("has a configuration that can be served again");
    // Unchanged: polled, and neither loaded nor logged.
    let before = theirs.requests();
    while theirs.requests() < before + 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.unread_lines(), Vec::<String>::new());
    // A warning is logged with the load, and not at each poll.
    let mut warned = with("third");
    let handlers = &mut warned["apps"]["http"]["servers"]["s"]["routes"][0]["handle"];
    handlers.as_array_mut().unwrap().insert(0, json!({ "handler": "vars", "root": "/absent" }));
    theirs.answer("", &warned.to_string());
    server.line_with("found the root '/absent', expected a directory that can be read");
    let before = theirs.requests();
    while theirs.requests() < before + 3 {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(server.unread_lines(), Vec::<String>::new());
    theirs.answer("", &config(port, "last").to_string());
    until(port, "last");
    std::thread::sleep(Duration::from_millis(300));
    let after = theirs.requests();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(theirs.requests(), after, "the last configuration pulls no more");
}

/// The end of a server does not wait for a pull.
#[test]
fn a_stop_while_a_pull_hangs() {
    let (directory, port) = (Directory::new(), free_port());
    let theirs = ConfigServer::new("", "");
    theirs.answer_raw("");
    let server = start(&directory, &pulling(port, "first", &theirs.url, Some("100ms")));
    while theirs.requests() == 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.signal(rustix::process::Signal::TERM);
    assert!(server.status().success());
}

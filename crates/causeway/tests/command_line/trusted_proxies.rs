//! `trusted_proxies cloudflare`: networks of proxies that the server fetches. Another Causeway server, with HTTPS, is
//! the double of Cloudflare's. The PROXY protocol gives requests their peers.

use std::io::{Read as _, Write as _};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::client::connect;
use crate::https::ROOT;
use crate::process::{Directory, ServerProcess, wait_until};

/// A server that publishes lists, as files of its directory.
struct Publisher {
    directory: Directory,
    port: u16,
}

impl Publisher {
    /// A publisher that is down. The certificate of its authority exists.
    fn new() -> Self {
        let it = Self { directory: Directory::new(), port: free_port() };
        let site = "bind 127.0.0.1\ntls internal\nredir /moved /v4\nredir /insecure http://localhost/v4\nredir /loop /loop\n\
                    root lists\nfile_server";
        let options = "auto_https disable_redirects\nskip_install_trust";
        it.directory.write("Caddyfile", format!("{{\n{options}\n}}\nhttps://localhost:{} {{\n{site}\n}}\n", it.port));
        it.directory.write("lists/v4", "192.0.2.0/24\n");
        it.directory.write("lists/v6", "2001:db8::/32");
        drop(it.start());
        it
    }

    fn start(&self) -> ServerProcess {
        self.directory.start(&["run"])
    }

    fn urls(&self, paths: &[&str]) -> Value {
        paths.iter().map(|path| format!("https://localhost:{}/{path}", self.port)).collect()
    }

    /// Writes a configuration whose site shows the address of the client.
    fn write(&self, directory: &Directory, sources: Value, greeting: &str) {
        let body = format!("{greeting} {{http.vars.client_ip}}");
        let server = json!({
            "listen": ["127.0.0.1:0"],
            "automatic_https": { "disable": true },
            "listener_wrappers": [{ "wrapper": "proxy_protocol", "allow": ["127.0.0.0/8"] }],
            "trusted_proxies": sources,
            "routes": [{ "handle": [{ "handler": "static_response", "body": body }] }],
        });
        directory.write("config.json", json!({ "apps": { "http": { "servers": { "s": server } } } }).to_string());
    }

    /// Starts a server that trusts the publisher's authority.
    fn client(&self, directory: &Directory) -> ServerProcess {
        let mut command = directory.command(&["run", "--config", "config.json"]);
        command.env("SSL_CERT_FILE", self.directory.path(ROOT));
        ServerProcess::start(command)
    }
}

/// Returns the response to a request from this peer, which reports the client 203.0.113.9.
fn response(server: &ServerProcess, peer: &str) -> String {
    let (family, own) = if peer.contains(':') { ("TCP6", "::1") } else { ("TCP4", "127.0.0.1") };
    let mut stream = connect(server.port());
    let header = format!("PROXY {family} {peer} {own} 4321 80\r\n");
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.9\r\nConnection: close\r\n\r\n";
    stream.write_all(format!("{header}{request}").as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.rsplit("\r\n").next().unwrap().to_owned()
}

/// Whether the client that this peer reports counts.
#[track_caller]
fn trusts(server: &ServerProcess, peer: &str) -> bool {
    match response(server, peer) {
        text if text.ends_with(" 203.0.113.9") => true,
        text if text.ends_with(&format!(" {peer}")) => false,
        text => panic!("{text}"),
    }
}

const CLOUDFLARE: &str = "173.245.48.1";

// docs/caddyfile.md, Trusted proxies: the networks of this version count until a list is fetched. A failed fetch keeps
// the former list.
#[test]
fn lists_are_fetched() {
    let publisher = Publisher::new();
    let directory = Directory::new();
    let cloudflare = json!({ "source": "cloudflare", "interval": "1s", "urls": publisher.urls(&["v4", "v6"]) });
    let fixed = json!({ "source": "static", "ranges": ["10.0.0.0/8"] });
    publisher.write(&directory, json!({ "source": "combine", "parts": [fixed, cloudflare] }), "hello");
    let mut server = publisher.client(&directory);
    let line = server.line_with("fetching the list of trusted proxies");
    assert!(line.contains(&format!("https://localhost:{}/v4: ", publisher.port)), "{line}");
    assert!(
        line.contains(r#""level":"warn""#) && line.contains("refused") && line.contains("keeping the former list"),
        "{line}"
    );
    let trusted = |server: &ServerProcess| {
        let peers = [CLOUDFLARE, "2606:4700::1", "192.0.2.1", "2001:db8::1", "198.51.100.1", "10.0.0.1", "203.0.113.1"];
        peers.into_iter().filter(|peer| trusts(server, peer)).collect::<Vec<_>>()
    };
    assert_eq!(trusted(&server), [CLOUDFLARE, "2606:4700::1", "10.0.0.1"]);
    let running = publisher.start();
    let line = server.line_with("has 2 networks now");
    assert!(line.contains(&format!("https://localhost:{0}/v4 and https://localhost:{0}/v6", publisher.port)), "{line}");
    assert_eq!(trusted(&server), ["192.0.2.1", "2001:db8::1", "10.0.0.1"]);
    // A list is taken as a whole or not at all.
    for (list, want) in [
        ("198.51.100.0/24\n<html>\n".to_owned(), "/v4: found '<html>' in line 2"),
        (String::new(), "/v4: found an empty list"),
        ("0.0.0.0/0\n".to_owned(), "/v4: found '0.0.0.0/0' in line 1"),
        ("198.51.100.7\n".repeat(1000), "/v6: found more than 1000 networks"),
        ("198.51.100.0/24\n".repeat(3000), "/v4: the response is longer than"),
    ] {
        publisher.directory.write("lists/v4", list);
        server.line_with(want);
        assert_eq!(trusted(&server), ["192.0.2.1", "2001:db8::1", "10.0.0.1"], "{want}");
    }
    drop(running);
    server.line_with("refused");
    assert_eq!(trusted(&server), ["192.0.2.1", "2001:db8::1", "10.0.0.1"]);
    publisher.directory.write("lists/v4", "198.51.100.0/24");
    let _running = publisher.start();
    wait_until("the next list is taken", || trusts(&server, "198.51.100.1"));
    assert_eq!(trusted(&server), ["2001:db8::1", "198.51.100.1", "10.0.0.1"]);
}

// A reload with the same URLs keeps the list, also if the interval differs. Other URLs begin with the networks of this
// version.
#[test]
fn reloads_keep_lists() {
    let publisher = Publisher::new();
    let running = publisher.start();
    let directory = Directory::new();
    let source = |interval: &str, path: &str| json!({ "source": "cloudflare", "interval": interval, "urls": publisher.urls(&[path]) });
    publisher.write(&directory, source("1h", "v4"), "one");
    let mut server = publisher.client(&directory);
    let admin = server.admin_port();
    let reload = |source: Value, greeting: &str| {
        publisher.write(&directory, source, greeting);
        let address = format!("localhost:{admin}");
        let output = directory.output(&["reload", "--config", "config.json", "--address", &address]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    wait_until("the list is taken", || response(&server, "192.0.2.1") == "one 203.0.113.9");
    drop(running);
    reload(source("1h", "v4"), "two");
    assert_eq!(response(&server, "192.0.2.1"), "two 203.0.113.9");
    assert_eq!(response(&server, CLOUDFLARE), format!("two {CLOUDFLARE}"));
    assert!(!server.unread_lines().iter().any(|line| line.contains("fetching")), "the fetch continues, and is not due");
    reload(source("2h", "v4"), "three");
    server.line_with("refused");
    assert_eq!(response(&server, "192.0.2.1"), "three 203.0.113.9");
    reload(source("2h", "v6"), "four");
    server.line_with("refused");
    assert_eq!(response(&server, CLOUDFLARE), "four 203.0.113.9");
    assert_eq!(response(&server, "192.0.2.1"), "four 192.0.2.1");
}

// Cloudflare has once moved its lists to URLs with a slash at their end. A list over plain HTTP could be forged, and so
// could one of a server that is not authenticated.
#[test]
fn redirects_and_certificates() {
    let publisher = Publisher::new();
    let _running = publisher.start();
    let directory = Directory::new();
    let source = |path: &str| json!({ "source": "cloudflare", "urls": publisher.urls(&[path]) });
    publisher.write(&directory, source("moved"), "hello");
    let server = publisher.client(&directory);
    wait_until("the list is taken", || trusts(&server, "192.0.2.1"));
    for (path, want) in [
        ("insecure", "found a redirect to http://localhost/v4, expected HTTPS"),
        ("loop", "found more than 3 redirects"),
        ("none", "found the status 404"),
    ] {
        publisher.write(&directory, source(path), "hello");
        let mut server = publisher.client(&directory);
        server.early_line_with(want);
        assert!(trusts(&server, CLOUDFLARE) && !trusts(&server, "192.0.2.1"), "{path}");
    }
    publisher.write(&directory, source("v4"), "hello");
    let mut server = directory.start(&["run", "--config", "config.json"]);
    let line = server.early_line_with("fetching the list of trusted proxies");
    assert!(line.contains("certificate"), "{line}");
    assert!(trusts(&server, CLOUDFLARE) && !trusts(&server, "192.0.2.1"));
}

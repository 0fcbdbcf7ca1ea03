//! `get_certificate`: handshakes with a certificate of a server, or of Tailscale's daemon. curl is the client; without
//! it the tests are skipped.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread;

use super::https::{caddyfile, curl, is_installed};
use super::process::{Directory, ServerProcess};

/// The content of a response: the status line's rest, and the body.
type DoubleResponse = (&'static str, String);

/// A server in this process, which records the targets of its requests.
struct Double {
    targets: Arc<Mutex<Vec<String>>>,
}

impl Double {
    fn tcp(answer: impl Fn(&str) -> DoubleResponse + Send + 'static) -> (Self, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        (Self::new(move || listener.accept().unwrap().0, answer), port)
    }

    fn unix(path: &std::path::Path, answer: impl Fn(&str) -> DoubleResponse + Send + 'static) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        Self::new(move || listener.accept().unwrap().0, answer)
    }

    fn new<S: Read + Write>(
        accept: impl Fn() -> S + Send + 'static,
        answer: impl Fn(&str) -> DoubleResponse + Send + 'static,
    ) -> Self {
        let targets = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&targets);
        thread::spawn(move || {
            loop {
                let mut stream = BufReader::new(accept());
                let mut line = String::new();
                let mut field = String::new();
                let _ = stream.read_line(&mut line);
                while field.trim_end() != "" || field.is_empty() {
                    field.clear();
                    if stream.read_line(&mut field).unwrap_or_default() == 0 {
                        break;
                    }
                }
                let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next()).unwrap_or_default();
                log.lock().unwrap().push(target.to_owned());
                let (head, body) = answer(target);
                let text =
                    format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
                let _ = stream.get_mut().write_all(text.as_bytes());
            }
        });
        Self { targets }
    }

    fn targets(&self) -> Vec<String> {
        self.targets.lock().unwrap().clone()
    }
}

/// A directory whose local authority has signed certificates for `names`, and for each a PEM text with the chain and
/// the key.
fn signed(names: &[&str]) -> (Directory, Vec<String>) {
    let sites: Vec<_> = names.iter().map(|name| format!("{name}:0")).collect();
    let directory = caddyfile("auto_https disable_redirects", &format!("{} {{\n\ttls internal\n}}", sites.join(", ")));
    drop(directory.start(&["run"]));
    let read = |name: &str, extension: &str| {
        let at = format!(".local/share/causeway/certificates/local/{name}/{name}.{extension}");
        std::fs::read_to_string(directory.path(&at)).unwrap()
    };
    let bundles = names.iter().map(|name| read(name, "crt") + &read(name, "key")).collect();
    (directory, bundles)
}

// Caddy's documentation of `get_certificate http`: the server gets the handshake's facts in the query and answers with
// a chain and its key; with 204 it has no certificate, and the site's issuer signs one. Each handshake sends a query;
// concurrent ones for one name share an answer.
#[test]
fn a_server_supplies_certificates() {
    if !is_installed("curl") {
        return;
    }
    let (directory, bundles) = signed(&["a.example"]);
    let (double, port) = Double::tcp(move |target| {
        if target.contains("server_name=a.example") {
            ("200 OK", bundles[0].clone())
        } else {
            ("204 No Content", String::new())
        }
    });
    let sites = format!(
        "a.example:0, b.example:0 {{\n\ttls {{\n\t\tget_certificate http http://127.0.0.1:{port}/get?key=1\n\t\tissuer internal\n\t}}\n\t\
         respond \"hello {{host}}\"\n}}"
    );
    directory.write("Caddyfile", format!("{{\n\tauto_https disable_redirects\n}}\n{sites}\n"));
    let _ = std::fs::remove_dir_all(directory.path(".local/share/causeway/certificates"));
    let server = directory.start(&["run"]);
    let port = server.port();
    assert!(double.targets().is_empty(), "no handshake yet");
    for _ in 0..2 {
        assert_eq!(curl(&directory, "a.example", port, &[]).as_deref(), Ok("hello a.example"));
    }
    let targets = double.targets();
    assert_eq!(targets.len(), 2, "{targets:?}");
    let facts: Vec<_> = targets[0].split(['?', '&']).collect();
    assert_eq!(facts[..2], ["/get", "key=1"]);
    assert!(facts.contains(&"server_name=a.example") && facts.contains(&"local_ip=127.0.0.1"), "{facts:?}");
    // TLS_AES_128_GCM_SHA256 and ecdsa_secp256r1_sha256, which every client offers.
    for (list, number) in [("cipher_suites=", "1301"), ("signature_schemes=", "403")] {
        let numbers = facts.iter().find_map(|fact| fact.strip_prefix(list)).unwrap();
        assert!(numbers.split("%2C").any(|found| found == number), "{list}{numbers}");
    }
    assert_eq!(curl(&directory, "b.example", port, &[]).as_deref(), Ok("hello b.example"), "the authority signs");
    assert_eq!(double.targets().len(), 3);
    let stored = |name: &str| directory.path(&format!(".local/share/causeway/certificates/local/{name}")).exists();
    assert_eq!([stored("a.example"), stored("b.example")], [false, true]);
}

// certmagic: if a source fails, the next one is queried; if the last one fails, the handshake fails without an order.
// The log has the first of several faults.
#[test]
fn faults_of_a_server() {
    if !is_installed("curl") {
        return;
    }
    let (directory, bundles) = signed(&["a.example", "b.example"]);
    let bundle = bundles[0].clone();
    let (bad, bad_port) = Double::tcp(move |target| {
        if target.contains("server_name=c.") {
            ("200 OK", "no PEM".to_owned())
        } else if target.contains("server_name=d.") {
            ("200 OK", "x".repeat(300 * 1024))
        } else {
            ("500 Internal Server Error", String::new())
        }
    });
    let (good, good_port) = Double::tcp(move |_| ("200 OK", bundle.clone()));
    let closed = causeway_testkit::ports::free_port();
    let site = |names: &str, ports: &[u16]| {
        let getters: String = ports
            .iter()
            .map(|port| format!("\t\tget_certificate http http://127.0.0.1:{port}/{names}?secret=1\n"))
            .collect();
        format!("{names}.example:0 {{\n\ttls {{\n{getters}\t\tissuer internal\n\t}}\n\trespond hi\n}}\n")
    };
    let sites = [
        site("a", &[bad_port, good_port]),
        site("b", &[bad_port]),
        site("c", &[bad_port]),
        site("d", &[bad_port]),
        site("e", &[closed]),
    ];
    directory.write("Caddyfile", format!("{{\n\tauto_https disable_redirects\n}}\n{}\n", sites.join("")));
    let mut server = directory.start(&["run"]);
    let port = server.port();
    assert_eq!(curl(&directory, "a.example", port, &[]).as_deref(), Ok("hi"));
    let line = server.line_with("a.example: no certificate");
    let place = format!("get_certificate http://127.0.0.1:{bad_port}/a");
    assert!(line.contains(&format!("{place}: found the status 500; further")), "{line}");
    assert_eq!((bad.targets().len(), good.targets().len()), (1, 1));
    for (name, want) in [
        ("b.example", "found the status 500"),
        ("c.example", "its answer: found text that is not PEM, expected a certificate as PEM"),
        ("d.example", "the response is longer than 262144 bytes"),
        ("e.example", "refused"),
    ] {
        for _ in 0..2 {
            let refused = curl(&directory, name, port, &[]).unwrap_err();
            assert!(refused.contains("alert internal error"), "{refused}");
        }
        let line = server.line_with(&format!("{name}: no certificate"));
        assert!(line.contains(want) && !line.contains("secret"), "{line}");
    }
    let more = server.unread_lines();
    assert!(!more.iter().any(|line| line.contains("no certificate")), "{more:?}");
}

// Caddy's documentation of `get_certificate tailscale`, and of automatic HTTPS: names below `.ts.net` get certificates
// of Tailscale's daemon, which lists the names that it has in its status. The Local API: `GET
// /localapi/v0/cert/NAME?type=pair` answers with the key and the chain.
#[test]
fn tailscale_supplies_certificates() {
    if !is_installed("curl") {
        return;
    }
    let (directory, bundles) = signed(&["a.tail.ts.net"]);
    let socket = directory.path("tailscaled.sock");
    let double = Double::unix(&socket, move |target| match target {
        "/localapi/v0/status" => ("200 OK", r#"{"CertDomains":["a.tail.ts.net","c.tail.ts.net"]}"#.to_owned()),
        "/localapi/v0/cert/a.tail.ts.net?type=pair" => ("200 OK", bundles[0].clone()),
        _ => ("500 Internal Server Error", r#"{"error":"no such domain"}"#.to_owned()),
    });
    let _ = std::fs::remove_dir_all(directory.path(".local/share/causeway/certificates"));
    let start = |sites: &str| {
        directory.write("Caddyfile", format!("{{\n\tauto_https disable_redirects\n}}\n{sites}\n"));
        let mut command = directory.command(&["run"]);
        command.env("TS_SOCKET", &socket);
        ServerProcess::start(command)
    };
    let server = start("a.tail.ts.net:0 {\n\trespond hi\n}");
    assert_eq!(curl(&directory, "a.tail.ts.net", server.port(), &[]).as_deref(), Ok("hi"));
    assert_eq!(double.targets(), ["/localapi/v0/status", "/localapi/v0/cert/a.tail.ts.net?type=pair"]);
    drop(server);
    let own = "{\n\ttls {\n\t\tget_certificate tailscale\n\t\tissuer internal\n\t}\n\trespond own\n}";
    let mut server = start(&format!("c.tail.ts.net:0, d.tail.ts.net:0 {own}"));
    let port = server.port();
    // The daemon lists the name, and then fails.
    assert!(curl(&directory, "c.tail.ts.net", port, &[]).is_err());
    let line = server.line_with("c.tail.ts.net: no certificate");
    assert!(line.contains("tailscaled.sock: found the status 500: no such domain"), "{line}");
    // It does not list the name, so the issuer signs.
    assert_eq!(curl(&directory, "d.tail.ts.net", port, &[]).as_deref(), Ok("own"));
}

// An authority with a root alone needs the root's key, to sign its intermediate with.
#[test]
fn a_root_without_a_key_and_an_intermediate_is_refused() {
    let (directory, _) = signed(&["a.example"]);
    let root = directory.path(".local/share/causeway/pki/authorities/local/root.crt");
    let text = format!(
        "{{\n\tpki {{\n\t\tca own {{\n\t\t\troot {{\n\t\t\t\tcert {}\n\t\t\t}}\n\t\t}}\n\t}}\n}}\n:0\n",
        root.display()
    );
    directory.write("Caddyfile", text);
    let want = format!(
        "Error: Caddyfile:5:10: found '{}', expected a key too, to sign the intermediate with, or an intermediate\n",
        root.display()
    );
    for command in ["validate", "run"] {
        assert_eq!(String::from_utf8(directory.output(&[command]).stderr).unwrap(), want);
    }
}

//! `reverse_proxy` to Unix sockets, with peers of our own.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_testkit::http2::{flag, kind};

use crate::client::{get, send};
use crate::process::Directory;

/// A socket's path; the file is removed when dropped.
struct SocketPath(PathBuf);

impl SocketPath {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Not in the test's directory, whose path may be longer than a socket's.
        let name = format!("causeway-cli-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    /// Serves this many connections, one request each, with a copy of the request's head as the body.
    fn echo(&self, connections: usize) -> std::thread::JoinHandle<()> {
        let _ = std::fs::remove_file(&self.0);
        let listener = UnixListener::bind(&self.0).unwrap();
        std::thread::spawn(move || {
            for _ in 0..connections {
                let mut stream = listener.accept().unwrap().0;
                let head = head(&mut stream);
                let answer =
                    format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{head}", head.len());
                stream.write_all(answer.as_bytes()).unwrap();
            }
        })
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn head(stream: &mut UnixStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}

// Caddy, conventions, network addresses: `unix/` and the path, also with placeholders.
#[test]
fn an_upstream() {
    let socket = SocketPath::new();
    let peer = socket.echo(3);
    let path = socket.0.display().to_string();
    let name = socket.0.file_stem().unwrap().to_str().unwrap();
    let site = format!(
        ":0 {{\n\thandle /placeholder/* {{\n\t\treverse_proxy unix/{}/{{query.socket}}.sock\n\t}}\n\treverse_proxy \
         unix/{path} {{\n\t\theader_up X-Upstream \"{{upstream_hostport}} {{http.reverse_proxy.upstream.address}}\"\n\t}}\n}}\n",
        socket.0.parent().unwrap().display()
    );
    let directory = Directory::with(&[("Caddyfile", &site)]);
    let mut server = directory.start(&["run"]);
    let seen = send(server.port(), "GET /a?b", &["Host: a.test"]).body;
    assert!(seen.starts_with("GET /a?b HTTP/1.1\r\nHost: a.test\r\n"), "{seen}");
    assert!(seen.contains(&format!("\r\nX-Upstream: {path} unix/{path}\r\n")), "{seen}");
    assert!(get(server.port(), &format!("/placeholder/x?socket={name}")).body.starts_with("GET /placeholder/x?"));
    assert_eq!(get(server.port(), "/").status, 200);
    peer.join().unwrap();
    // The server ends and leaves its socket file; then the file is removed, and a new server starts.
    assert_eq!(get(server.port(), "/").status, 502);
    let line = server.line_with("an upstream cannot be reached");
    assert!(line.contains(&format!("unix/{path}")) && line.contains("connection refused"), "{line}");
    std::fs::remove_file(&socket.0).unwrap();
    assert_eq!(get(server.port(), "/").status, 502);
    let peer = socket.echo(1);
    assert_eq!(get(server.port(), "/").status, 200);
    peer.join().unwrap();
}

#[test]
fn a_socket_that_is_absent() {
    let site =
        ":0 {\n\treverse_proxy unix//nowhere/app.sock\n\thandle_errors {\n\t\trespond \"{err.message}\"\n\t}\n}\n";
    let directory = Directory::with(&[("Caddyfile", site)]);
    let mut server = directory.start(&["run"]);
    let answer = get(server.port(), "/");
    let want = "upstream unix//nowhere/app.sock: connecting: the socket does not exist";
    assert_eq!((answer.status, &*answer.body), (502, want));
    let line = server.line_with("an upstream cannot be reached");
    assert!(line.contains("unix//nowhere/app.sock"), "{line}");
    assert!(line.contains("connecting: the socket does not exist"), "{line}");
}

// Caddy: `unix+h2c/` is HTTP/2 with prior knowledge (RFC 9113 §3.3).
#[test]
fn http2() {
    let socket = SocketPath::new();
    let listener = UnixListener::bind(&socket.0).unwrap();
    let peer = std::thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        let mut preface = [0; 24];
        stream.read_exact(&mut preface).unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
            let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
            [&[len[1], len[2], len[3], kind, flags], &stream.to_be_bytes()[..], payload].concat()
        };
        stream.write_all(&frame(kind::SETTINGS, flag::NONE, 0, &[])).unwrap();
        for _ in 0..2 {
            let id = loop {
                let mut header = [0; 9];
                stream.read_exact(&mut header).unwrap();
                let mut payload = vec![0; u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize];
                stream.read_exact(&mut payload).unwrap();
                if header[3] == kind::HEADERS {
                    break u32::from_be_bytes(header[5..].try_into().unwrap());
                }
            };
            // Index 8 of HPACK's table is status 200.
            stream.write_all(&frame(kind::HEADERS, flag::END_HEADERS, id, &[0x88])).unwrap();
            stream.write_all(&frame(kind::DATA, flag::END_STREAM, id, b"two")).unwrap();
        }
    });
    let site = format!(":0 {{\n\treverse_proxy unix+h2c/{}\n}}\n", socket.0.display());
    let directory = Directory::with(&[("Caddyfile", &site)]);
    let server = directory.start(&["run", "--workers", "1"]);
    for _ in 0..2 {
        assert_eq!(get(server.port(), "/").body, "two");
    }
    peer.join().unwrap();
}

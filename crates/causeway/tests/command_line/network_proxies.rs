//! `network_proxy url`: upstreams that are reached through an HTTP or a SOCKS5 proxy.

use std::io::{Read as _, Write as _, copy};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use causeway_testkit::ports::free_port;

use crate::client::get;
use crate::process::{Directory, ServerProcess};

/// A proxy, and the requests for tunnels and in absolute form that it got. `user:secret` are its credentials.
struct ProxyDouble {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ProxyDouble {
    /// The thread ends with the test's process.
    fn start(serve: fn(TcpStream, &Mutex<Vec<String>>) -> Option<()>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, log) = (stream.unwrap(), Arc::clone(&log));
                thread::spawn(move || serve(stream, &log));
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }
}

/// Copies the bytes of both directions until both have ended.
fn relay(client: TcpStream, upstream: TcpStream) {
    let (mut from, mut to) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
    let upload = thread::spawn(move || {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (upstream, client);
    let _ = copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    upload.join().unwrap();
}

/// An HTTP proxy. It answers requests in absolute form itself.
fn http(mut stream: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).ok()?;
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        let line = head.lines().next().unwrap().to_owned();
        log.lock().unwrap().push(line.clone());
        if !head.contains("\r\nProxy-Authorization: Basic dXNlcjpzZWNyZXQ=\r\n") {
            stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n").ok()?;
        } else if let Some(target) = line.strip_prefix("CONNECT ").and_then(|rest| rest.strip_suffix(" HTTP/1.1")) {
            let upstream = TcpStream::connect(target).ok()?;
            stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").ok()?;
            relay(stream, upstream);
            return None;
        } else {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nforwarded").ok()?;
        }
    }
}

/// A SOCKS5 proxy with names as addresses (RFC 1928, RFC 1929).
fn socks(mut stream: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    let bytes = |stream: &mut TcpStream, len: usize| {
        let mut bytes = vec![0; len];
        stream.read_exact(&mut bytes).ok().map(|()| bytes)
    };
    let greeting = bytes(&mut stream, 2)?;
    let methods = bytes(&mut stream, greeting[1].into())?;
    assert!(greeting[0] == 5 && methods.contains(&2), "{methods:?}");
    stream.write_all(&[5, 2]).ok()?;
    let len = bytes(&mut stream, 2)?[1];
    let user = bytes(&mut stream, len.into())?;
    let len = bytes(&mut stream, 1)?[0];
    let password = bytes(&mut stream, len.into())?;
    let is_known = (&*user, &*password) == (&b"user"[..], &b"secret"[..]);
    stream.write_all(&[1, u8::from(!is_known)]).ok()?;
    let head = bytes(&mut stream, 5)?;
    assert_eq!(head[..4], [5, 1, 0, 3], "CONNECT to a name");
    let name = String::from_utf8(bytes(&mut stream, head[4].into())?).unwrap();
    let port = bytes(&mut stream, 2)?;
    let target = format!("{name}:{}", u16::from_be_bytes([port[0], port[1]]));
    log.lock().unwrap().push(target.clone());
    let upstream = TcpStream::connect(target).ok()?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).ok()?;
    relay(stream, upstream);
    None
}

/// A server that proxies to `upstream` through the proxy at `url`.
fn proxy(url: &str, upstream: &str, options: &str) -> ServerProcess {
    let site = format!(
        ":0 {{\n\treverse_proxy {upstream} {{\n\t\ttransport http {{\n\t\t\tnetwork_proxy url {url}\n{options}\t\t}}\n\t}}\n}}\n"
    );
    // Another worker would have connections of its own.
    Directory::with(&[("Caddyfile", &site)]).start(&["run", "--workers", "1"])
}

// Caddy, `network_proxy url`, and Go's http.Transport.Proxy: CONNECT for an upstream with TLS, requests in absolute
// form for one in cleartext.
#[test]
fn an_http_proxy() {
    let double = ProxyDouble::start(http);
    let with = |credentials: &str| format!("http://{credentials}localhost:{}", double.port);
    let site = "{\n\tskip_install_trust\n\tauto_https disable_redirects\n}\nhttps://localhost:0 {\n\ttls internal\n\trespond secure\n}\n";
    let upstream = Directory::with(&[("Caddyfile", site)]).start(&["run"]);
    let address = format!("localhost:{}", upstream.port());
    for (versions, rounds) in [("1.1", 2), ("2", 2)] {
        let options = format!("\t\t\tversions {versions}\n\t\t\ttls_insecure_skip_verify\n");
        let server = proxy(&with("user:secret@"), &format!("https://{address}"), &options);
        for _ in 0..rounds {
            let answer = get(server.port(), "/");
            assert_eq!((answer.status, &*answer.body), (200, "secure"));
        }
        // One tunnel: the connection is used again.
        assert_eq!(double.requests(), [format!("CONNECT {address} HTTP/1.1")], "{versions}");
    }
    let server = proxy(&with("user:secret@"), "http://up.test:8000", "");
    for _ in 0..2 {
        let answer = get(server.port(), "/a?b=c");
        assert_eq!((answer.status, &*answer.body), (200, "forwarded"));
    }
    assert_eq!(double.requests(), ["GET http://up.test:8000/a?b=c HTTP/1.1"; 2]);
    // Without credentials: the proxy's response to a tunnel's request is no response of the upstream.
    let server = proxy(&with(""), &format!("https://{address}"), "");
    assert_eq!(get(server.port(), "/").status, 502);
    assert_eq!(double.requests(), [format!("CONNECT {address} HTTP/1.1")]);
}

#[test]
fn a_socks5_proxy() {
    let double = ProxyDouble::start(socks);
    let upstream = Directory::with(&[("Caddyfile", ":0 {\n\trespond plain\n}\n")]).start(&["run"]);
    let address = format!("localhost:{}", upstream.port());
    let server = proxy(&format!("socks5://user:secret@localhost:{}", double.port), &address, "");
    for _ in 0..2 {
        assert_eq!(get(server.port(), "/").body, "plain");
    }
    assert_eq!(double.requests(), [&*address]);
    let server = proxy(&format!("socks5://user:wrong@localhost:{}", double.port), &address, "");
    assert_eq!(get(server.port(), "/").status, 502);
}

/// The message names the proxy, as the upstream itself may be in order.
#[test]
fn a_proxy_that_is_down() {
    let upstream = Directory::with(&[("Caddyfile", ":0 {\n\trespond plain\n}\n")]).start(&["run"]);
    let down = format!("127.0.0.1:{}", free_port());
    let mut server = proxy(&format!("http://{down}"), &format!("https://localhost:{}", upstream.port()), "");
    assert_eq!(get(server.port(), "/").status, 502);
    let line = server.line_with("the network proxy");
    assert!(line.contains(&format!("the network proxy: {down}: connecting: connection refused")), "{line}");
}

//! WebSockets through the proxy.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use causeway_testkit::ports::free_port;
use rustix::process::Signal;

use crate::client::{connect, send, send_body};
use crate::process::Directory;

/// An upstream that switches protocols and echoes, as a WebSocket's does.
pub(crate) fn echo_upstream() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let (mut head, mut byte) = (Vec::new(), [0]);
                while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
                    head.push(byte[0]);
                }
                let _ = stream.write_all(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
                );
                let mut some = [0; 64];
                while let Ok(len @ 1..) = stream.read(&mut some) {
                    let _ = stream.write_all(&some[..len]);
                }
            });
        }
    });
    port
}

/// Opens a tunnel through the server.
pub(crate) fn tunnel(port: u16) -> TcpStream {
    let mut stream = connect(port);
    let head = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let (mut answer, mut byte) = (Vec::new(), [0]);
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream
}

pub(crate) fn echoes(stream: &mut TcpStream) -> bool {
    let mut back = [0; 5];
    stream.write_all(b"hello").is_ok() && stream.read_exact(&mut back).is_ok() && &back == b"hello"
}

/// Reads to the end. Returns whether there was only a close frame of the status 1001, Going Away (RFC 6455 §5.5.1,
/// §7.4.1).
pub(crate) fn is_closed_by_frame(stream: &mut TcpStream) -> bool {
    let mut frame = [0; 4];
    let is_right = stream.read_exact(&mut frame).is_ok() && frame == [0x88, 2, 0x03, 0xe9];
    // The client's own close frame, masked with zeros.
    let _ = stream.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe9]);
    is_right && matches!(stream.read(&mut frame), Ok(0) | Err(_))
}

// A stop closes WebSockets, as in Caddy, so that it does not last for the grace period. With `stream_close_delay` they
// have that time, at most until the grace period is over.
#[test]
fn at_a_stop() {
    let upstream = echo_upstream();
    for (grace, delay, waits) in
        [("1h", "", false), ("1h", "stream_close_delay 1s", true), ("1s", "stream_close_delay 1h", true)]
    {
        let directory = Directory::with(&[(
            "Caddyfile",
            &format!(
                "{{\n\tadmin off\n\tgrace_period {grace}\n}}\n:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{upstream} \
                 {{\n\t\t{delay}\n\t}}\n}}\n"
            ),
        )]);
        let server = directory.start(&["run"]);
        let mut stream = tunnel(server.port());
        assert!(echoes(&mut stream));
        server.signal(Signal::TERM);
        assert!(!waits || echoes(&mut stream), "{delay}");
        assert!(is_closed_by_frame(&mut stream), "{grace}, {delay}");
        assert_eq!(server.status().code(), Some(0));
    }
}

// RFC 6455 §5.5.1: both sides get a close frame at the stop, the upstream a masked one (§5.3). Caddy sends both at
// once, also while the client is silent.
#[test]
fn at_a_stop_with_a_silent_client() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let upstream = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut head, mut byte, mut rest) = (Vec::new(), [0], Vec::new());
        while !head.ends_with(b"\r\n\r\n") && stream.read_exact(&mut byte).is_ok() {
            head.push(byte[0]);
        }
        stream
            .write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            .unwrap();
        stream.read_to_end(&mut rest).map(|_| rest)
    });
    let text = format!("{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{port}\n}}\n");
    let directory = Directory::with(&[("Caddyfile", &text)]);
    let server = directory.start(&["run"]);
    let mut client = tunnel(server.port());
    server.signal(Signal::TERM);
    assert_eq!(upstream.join().unwrap().expect("an end without a reset"), b"\x88\x82\0\0\0\0\x03\xe9");
    let mut frame = Vec::new();
    client.read_to_end(&mut frame).unwrap();
    assert_eq!(frame, b"\x88\x02\x03\xe9");
    assert_eq!(server.status().code(), Some(0));
}

// Caddy's documentation of `forward_auth`: a response of 2xx lets the request through. The WebSocket is the one of the
// second proxy.
#[test]
fn after_forward_auth() {
    let upstream = echo_upstream();
    let directory = Directory::with(&[(
        "Caddyfile",
        &format!(
            "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\thandle /auth {{\n\t\t@out header Cookie out\n\t\trespond @out 401\n\t\trespond \
             204\n\t}}\n\thandle {{\n\t\tforward_auth {{http.request.local}} {{\n\t\t\turi /auth\n\t\t}}\n\t\treverse_proxy \
             127.0.0.1:{upstream}\n\t}}\n}}\n"
        ),
    )]);
    let server = directory.start(&["run"]);
    let mut stream = tunnel(server.port());
    for _ in 0..3 {
        assert!(echoes(&mut stream));
    }
    assert_eq!(send(server.port(), "GET /ws", &["Host: localhost", "Cookie: out"]).status, 401);
}

// An upstream that cannot be reached, and one that closes without a response: error routes may have another proxy.
#[test]
fn of_the_upstream_of_error_routes() {
    let upstream = echo_upstream();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let closing = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // After a part of the request, so that it was sent.
            let _ = stream.unwrap().read(&mut [0; 16]);
        }
    });
    for first in [free_port(), closing] {
        let directory = Directory::with(&[(
            "Caddyfile",
            &format!(
                "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{first}\n\thandle_errors {{\n\t\treverse_proxy \
                 127.0.0.1:{upstream}\n\t}}\n}}\n"
            ),
        )]);
        let server = directory.start(&["run"]);
        assert!(echoes(&mut tunnel(server.port())));
    }
}

// Caddy's documentation of `handle_response`: its routes may have another proxy, also for a request that the first
// upstream did not upgrade.
#[test]
fn of_a_second_upstream() {
    let upstream = echo_upstream();
    let directory = Directory::with(&[(
        "Caddyfile",
        &format!(
            "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\thandle /none {{\n\t\trespond 404\n\t}}\n\thandle {{\n\t\treverse_proxy \
             {{http.request.local}} {{\n\t\t\trewrite /none\n\t\t\t@none status 404\n\t\t\thandle_response @none {{\n\t\t\t\treverse_proxy \
             127.0.0.1:{upstream}\n\t\t\t}}\n\t\t}}\n\t}}\n}}\n"
        ),
    )]);
    let server = directory.start(&["run"]);
    assert!(echoes(&mut tunnel(server.port())));
}

// RFC 9110 §7.8: the other protocol begins after the request's content, as in the Docker API. A limit on the body does
// not concern the other protocol.
#[test]
fn after_content() {
    let upstream = echo_upstream();
    for option in ["", "header X-Body \"<{http.request.body}>\"", "request_buffers 1KiB"] {
        let (site, proxy) = if option.starts_with("request") { ("", option) } else { (option, "") };
        let directory = Directory::with(&[(
            "Caddyfile",
            &format!(
                "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\t{site}\n\trequest_body {{\n\t\tmax_size 4\n\t}}\n\treverse_proxy \
                 127.0.0.1:{upstream} {{\n\t\t{proxy}\n\t}}\n}}\n"
            ),
        )]);
        let server = directory.start(&["run"]);
        let mut stream = connect(server.port());
        let head = "POST /exec HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 4\r\n\r\n";
        // Bytes of the other protocol may follow before the response.
        stream.write_all(format!("{head}bodyearly").as_bytes()).unwrap();
        let (mut answer, mut byte) = (Vec::new(), [0]);
        while !answer.ends_with(b"bodyearly") && stream.read_exact(&mut byte).is_ok() {
            answer.push(byte[0]);
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("\r\n\r\nbodyearly"), "{option}: {answer}");
        assert!(echoes(&mut stream), "{option}");
        assert!(echoes(&mut stream), "{option}");
    }
}

// Content that a handler replaces without reading the client's, an operation that removes the field, and an upstream
// that cannot take the request over: the request is an ordinary one, or that of the second proxy.
#[test]
fn ordinary_requests_with_content() {
    let directory = Directory::with(&[(
        "Caddyfile",
        "{\n\tadmin off\n}\n:0 {\n\tbind 127.0.0.1\n\thandle /upstream {\n\t\trespond \"<{header.Upgrade}> {http.request.body}\"\n\t}\n\
         \thandle /plain {\n\t\trewrite /upstream\n\t\treverse_proxy {http.request.local}\n\t}\n\
         \thandle /set {\n\t\trequest_body {\n\t\t\tset new\n\t\t}\n\t\trewrite /upstream\n\t\treverse_proxy {http.request.local}\n\t}\n\
         \thandle /removed {\n\t\trewrite /upstream\n\t\treverse_proxy {http.request.local} {\n\t\t\theader_up -Upgrade\n\t\t}\n\t}\n\
         \thandle /kept {\n\t\treverse_proxy 127.0.0.1:1 {\n\t\t\theader_up -Upgrade\n\t\t}\n\t}\n\
         \thandle /h2c {\n\t\treverse_proxy h2c://127.0.0.1:1\n\t}\n\
         \thandle /none {\n\t\treverse_proxy {header.X-None}\n\t}\n\
         \thandle_errors {\n\t\trewrite /upstream\n\t\treverse_proxy {http.request.local}\n\t}\n}\n",
    )]);
    let server = directory.start(&["run"]);
    let fields = ["Host: localhost", "Connection: Upgrade", "Upgrade: tcp"];
    for (path, content, want) in [
        ("/plain", "body", "<tcp> body"),
        ("/set", "body", "<> new"),
        ("/removed", "body", "<> body"),
        ("/removed", "", "<> "),
        ("/h2c", "body", "<> body"),
        ("/kept", "", "<tcp> "),
        ("/none", "body", "<tcp> body"),
    ] {
        let answer = send_body(server.port(), &format!("POST {path}"), &fields, content);
        assert_eq!((answer.status, &*answer.body), (200, want), "{path}");
    }
}

// `request_body` limits content, and not the other protocol.
#[test]
fn after_forward_auth_with_a_limit() {
    let upstream = echo_upstream();
    let directory = Directory::with(&[(
        "Caddyfile",
        &format!(
            "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\thandle /auth {{\n\t\trespond 204\n\t}}\n\thandle {{\n\t\tforward_auth \
             {{http.request.local}} {{\n\t\t\turi /auth\n\t\t}}\n\t\thandle {{\n\t\t\trequest_body {{\n\t\t\t\tmax_size \
             4\n\t\t\t}}\n\t\t\treverse_proxy 127.0.0.1:{upstream}\n\t\t}}\n\t}}\n}}\n"
        ),
    )]);
    let server = directory.start(&["run"]);
    let mut stream = tunnel(server.port());
    assert!(echoes(&mut stream) && echoes(&mut stream));
}

// An upgrade without content: the placeholder of the body reads nothing of the tunnel.
#[test]
fn together_with_a_body_placeholder() {
    let upstream = echo_upstream();
    let site = format!(
        "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\theader X-Body \"<{{http.request.body}}>\"\n\treverse_proxy 127.0.0.1:{upstream}\n}}\n"
    );
    let directory = Directory::with(&[("Caddyfile", &site)]);
    let server = directory.start(&["run"]);
    assert!(echoes(&mut tunnel(server.port())));
}

//! The PROXY protocol: from proxies in front, and to upstreams.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use crate::client::{connect, get};
use crate::process::Directory;

/// A header of version 2 with a source and a destination in IPv6.
fn binary(source: u16) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
    bytes.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    bytes.extend([0; 16]);
    bytes.extend(source.to_be_bytes());
    bytes.extend([0, 80]);
    bytes
}

/// Sends a header and a request on one connection; returns the response, or nothing if the connection is closed.
fn through(port: u16, header: &[u8]) -> String {
    let mut stream = connect(port);
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    // The server may have reset the connection already.
    let _ = stream.write_all(&[header, request].concat());
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    text
}

// Caddy, listener wrapper `proxy_protocol`: the addresses of the header are those of the connection, for matchers,
// placeholders and logs; `deny` and `fallback_policy` select the peers whose header applies.
#[test]
fn from_a_proxy() {
    let text = "PROXY TCP4 192.0.2.7 198.51.100.1 4321 80\r\n".as_bytes();
    let six = binary(77);
    for (options, header, want) in [
        ("allow 127.0.0.0/8", text, Some("inner 192.0.2.7:4321")),
        ("allow 127.0.0.0/8", &*six, Some("outer 2001:db8::9:77")),
        ("allow 127.0.0.0/8", &b""[..], Some("outer 127.0.0.1")),
        ("allow 127.0.0.0/8", b"PROXY UNKNOWN\r\n", Some("outer 127.0.0.1")),
        ("allow 127.0.0.0/8", b"PROXY TCP4 a b 1 2\r\n", None),
        ("", text, Some("outer 127.0.0.1")),
        ("fallback_policy use", text, Some("inner 192.0.2.7:4321")),
        ("fallback_policy require", text, Some("inner 192.0.2.7:4321")),
        ("fallback_policy require", b"", None),
        ("allow 127.0.0.0/8\ndeny 127.0.0.1/32", text, None),
        ("deny 127.0.0.1/32", b"", Some("outer 127.0.0.1")),
        ("fallback_policy skip", text, Some("400")),
    ] {
        let directory = Directory::new();
        directory.write(
            "Caddyfile",
            format!(
                "{{\nservers {{\nlistener_wrappers {{\nproxy_protocol {{\n{options}\n}}\n}}\n}}\n}}\n\
                 http://:0 {{\nbind 127.0.0.1\n@inner remote_ip 192.0.2.0/24\n\
                 respond @inner \"inner {{remote_host}}:{{remote_port}}\"\nrespond \"outer {{remote_host}}:{{remote_port}}\"\n}}\n"
            ),
        );
        let server = directory.start(&["run"]);
        let got = through(server.port(), header);
        match want {
            Some(want) => assert!(got.contains(want), "{options}: {got}"),
            None => assert_eq!(got, "", "{options}"),
        }
    }
}

// Caddy, `timeout`: after it the connection is one without a header.
#[test]
fn an_incomplete_header_ends_with_its_time() {
    let directory = Directory::new();
    directory.write(
        "Caddyfile",
        "{\nservers {\nlistener_wrappers {\nproxy_protocol {\nallow 127.0.0.0/8\ntimeout 200ms\n}\n}\n}\n}\n\
         http://:0 {\nbind 127.0.0.1\nrespond ok\n}\n",
    );
    let server = directory.start(&["run"]);
    let mut stream = connect(server.port());
    // The begin of a header of version 2. As a request it is malformed, without another byte.
    stream.write_all(b"\r\n\r\n\0\r\nQ").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 400 "), "{text:?}");
}

// Caddy, transport `proxy_protocol`: each connection begins with the client's address, without a port.
#[test]
fn to_an_upstream() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    for (version, want) in [
        ("v1", &b"PROXY TCP4 127.0.0.1 0.0.0.0 0 0\r\n"[..]),
        ("v2", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\0\0\0\0\0\0\0\0"),
    ] {
        let directory = Directory::new();
        let site = format!(
            "http://:0 {{\nbind 127.0.0.1\nreverse_proxy 127.0.0.1:{port} {{\ntransport http {{\nproxy_protocol {version}\n}}\n}}\n}}\n"
        );
        directory.write("Caddyfile", site);
        let server = directory.start(&["run", "--workers", "1"]);
        let own = server.port();
        std::thread::scope(|scope| {
            let clients = scope.spawn(move || [get(own, "/"), get(own, "/")].map(|it| it.status));
            let mut stream = BufReader::new(listener.accept().unwrap().0);
            let mut header = vec![0; want.len()];
            stream.read_exact(&mut header).unwrap();
            assert_eq!(header, want, "{version}");
            // The second request is of the same client, so it uses the connection, which has one header.
            for _ in 0..2 {
                let mut line = String::new();
                stream.read_line(&mut line).unwrap();
                assert_eq!(line, "GET / HTTP/1.1\r\n");
                while line != "\r\n" {
                    line.clear();
                    stream.read_line(&mut line).unwrap();
                }
                stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
            }
            assert_eq!(clients.join().unwrap(), [200, 200]);
        });
    }
}

// Caddy, `http_redirect`: a request in cleartext at a port with TLS is redirected, also after a proxy's header.
#[test]
fn a_request_in_cleartext() {
    let directory = Directory::new();
    directory.write(
        "Caddyfile",
        "{\nskip_install_trust\nauto_https disable_redirects\nservers {\nlistener_wrappers {\nproxy_protocol\nhttp_redirect\ntls\n}\n}\n}\n\
         https://localhost:0 {\nbind 127.0.0.1\ntls internal\nrespond hi\n}\n",
    );
    let server = directory.start(&["run"]);
    for header in [&b""[..], b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 80\r\n"] {
        let got = through(server.port(), header);
        assert!(got.starts_with("HTTP/1.1 308 ") && got.contains("\r\nLocation: https://localhost/\r\n"), "{got}");
    }
}

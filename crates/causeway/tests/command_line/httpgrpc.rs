//! httpgrpc between two Causeway servers: in messages, in frames, without and over TLS. `interop` has the tests with
//! other implementations.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::process::{Directory, ServerProcess};

/// Returns a pattern whose period differs from the length of every frame and message.
fn pattern(bytes: usize) -> String {
    (0u32..).map(|n| char::from(b'a' + (n.wrapping_mul(2_654_435_761) >> 28) as u8)).take(bytes).collect()
}

const LARGE: usize = 3_000_001;

const SITE: &str = "
	httpgrpc {
		max_message_size 16MiB
		stream on
	}
	root files
	respond /echo {http.request.body}
	respond /down \"back soon\" 503
	handle_errors {
		respond \"{err.status_code} {path}\" {err.status_code}
	}
	file_server
";

fn serve(caddyfile: &str) -> (Directory, ServerProcess) {
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    directory.write("files/large", pattern(LARGE));
    directory.write("files/empty", "");
    let server = directory.start(&["run"]);
    (directory, server)
}

/// Sends one request and returns the status and content of its response.
fn send_request(server: &ServerProcess, head: &str, content: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
    let request = format!("{head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    let mut request = request.replace(" chunked HTTP/1.1\r\n", " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
    if request.contains("chunked") {
        request += "\r\n";
        for piece in content.as_bytes().chunks(50_000) {
            let _ = write!(request, "{:x}\r\n{}\r\n", piece.len(), std::str::from_utf8(piece).unwrap());
        }
        request += "0\r\n\r\n";
    } else {
        let _ = write!(request, "Content-Length: {}\r\n\r\n{content}", content.len());
    }
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = Vec::new();
    let read = stream.read_to_end(&mut answer);
    assert!(
        read.is_ok(),
        "{head}: {read:?} after {} bytes: {}",
        answer.len(),
        String::from_utf8_lossy(&answer[..answer.len().min(300)])
    );
    let answer = String::from_utf8(answer).expect("text");
    let (head, content) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, if head.contains("Transfer-Encoding: chunked") { unchunked(content) } else { content.to_owned() })
}

fn unchunked(mut rest: &str) -> String {
    let mut content = String::new();
    loop {
        let (length, backend) = rest.split_once("\r\n").expect("a chunk");
        let length = usize::from_str_radix(length, 16).expect("a length");
        if length == 0 {
            return content;
        }
        content += &backend[..length];
        rest = backend[length..].strip_prefix("\r\n").expect("a chunk's end");
    }
}

#[track_caller]
fn check(front: &ServerProcess) {
    let large = pattern(LARGE);
    for (head, content, want) in [
        ("GET /large", "", (200, &*large)),
        ("GET /empty", "", (200, "")),
        ("GET /down", "", (503, "back soon")),
        ("GET /none", "", (404, "404 /none")),
        ("POST /echo", "small", (200, "small")),
        ("POST /echo", &*large, (200, &*large)),
        ("POST /echo chunked", "small", (200, "small")),
        ("POST /echo chunked", &*large, (200, &*large)),
    ] {
        let (status, content) = send_request(front, head, content);
        assert_eq!((status, content.len()), (want.0, want.1.len()), "{head}");
        assert!(content == want.1, "{head}: the content");
    }
}

// Both sides accept messages of 16 MiB.
#[test]
fn in_messages() {
    let (_directory, backend) = serve(&format!(":0 {{{SITE}}}"));
    let to = format!("direct://127.0.0.1:{}", backend.port());
    let transport = "transport httpgrpc {\n\t\tmax_message_size 16MiB\n\t\ttimeout 30s\n\t}";
    let (_directory, front) = serve(&format!(":0 {{\n\treverse_proxy {to} {{\n\t{transport}\n\t}}\n}}"));
    check(&front);
    // Content longer than a message gets 413, and the upstream connection remains usable.
    let (_directory, front) = serve(&format!(
        ":0 {{\n\treverse_proxy {to} {{\n\ttransport httpgrpc {{\n\tmax_message_size 1KiB\n\t}}\n\t}}\n}}"
    ));
    assert_eq!(send_request(&front, "POST /echo", &pattern(2000)).0, 413);
    assert_eq!(send_request(&front, "POST /echo chunked", &pattern(2000)).0, 413);
    assert_eq!(send_request(&front, "POST /echo", "small"), (200, "small".to_owned()));
}

// Messages of up to 1 MiB, and frames for longer content; the upstream is given by name.
#[test]
fn in_frames() {
    let (_directory, backend) = serve(&format!(":0 {{{SITE}}}"));
    let to = format!("dns:///localhost:{}", backend.port());
    let transport = "transport httpgrpc {\n\t\tmax_message_size 1MiB\n\t\tstream on\n\t}";
    let (_directory, front) = serve(&format!(":0 {{\n\treverse_proxy {to} {{\n\t{transport}\n\t}}\n}}"));
    check(&front);
}

#[test]
fn over_tls() {
    let options = "{\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n";
    let (_directory, backend) = serve(&format!("{options}https://localhost:0 {{\n\ttls internal\n{SITE}}}"));
    let to = format!("dns:///localhost:{}", backend.port());
    let transport = "transport httpgrpc {\n\t\tmax_message_size 16MiB\n\t\ttls_insecure_skip_verify\n\t}";
    let (_directory, front) = serve(&format!(":0 {{\n\treverse_proxy {to} {{\n\t{transport}\n\t}}\n}}"));
    check(&front);
}

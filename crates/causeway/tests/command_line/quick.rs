//! `file-server` and `respond`.

use std::io::{Read as _, Write as _};
use std::process::Stdio;

use causeway_testkit::ports::free_port;
use rustix::process::Signal;

use crate::client::{connect, get, send};
use crate::process::{Directory, ServerProcess};

/// Creates two files, a directory with an index file, one without, and a symbolic link.
fn site() -> Directory {
    let directory = Directory::with(&[
        ("site/hello.txt", "hello\n"),
        ("site/notes/index.html", "<p>notes"),
        ("site/pictures/one.txt", "1"),
        ("site/pictures/two.txt", "2"),
    ]);
    std::os::unix::fs::symlink("one.txt", directory.path("site/pictures/alias")).unwrap();
    directory
}

#[test]
fn files_of_a_root() {
    let directory = site();
    let server = directory.start(&["file-server", "--root", "site", "--listen", "127.0.0.1:0"]);
    assert!(server.first_line.starts_with("Causeway serves site on http://127.0.0.1:"), "{}", server.first_line);
    for (path, status, body) in [
        ("/hello.txt", 200, "hello\n"),
        ("/notes/", 200, "<p>notes"),
        ("/notes", 308, ""),
        ("/pictures/", 404, ""),
        ("/nope", 404, ""),
        ("/../Caddyfile", 404, ""),
    ] {
        let answer = get(server.port(), path);
        assert_eq!((answer.status, &*answer.body), (status, body), "{path}");
    }
    let answer = get(server.port(), "/hello.txt");
    assert_eq!(answer.field("Content-Type").as_deref(), Some("text/plain; charset=utf-8"));
}

#[test]
fn the_working_directory_is_the_default_root() {
    let directory = Directory::with(&[("a.txt", "a")]);
    let server = directory.start(&["file-server", "-l", "127.0.0.1:0", "--no-compress"]);
    assert_eq!(get(server.port(), "/a.txt").body, "a");
}

/// Braces and backslashes in --root are part of the directory's name.
#[test]
fn a_root_is_used_literally() {
    for name in ["{http.request.host}", "back\\slash", "\\{both\\}"] {
        let directory = Directory::with(&[(&format!("{name}/a.txt"), "a")]);
        let server = directory.start(&["file-server", "--root", name, "--listen", "127.0.0.1:0"]);
        assert_eq!(get(server.port(), "/a.txt").body, "a", "{name}");
    }
}

#[test]
fn listings() {
    let directory = site();
    let names = |flags: &[&str]| {
        let server = directory.start(&[&["file-server", "-r", "site", "-l", "127.0.0.1:0"], flags].concat());
        let answer = send(server.port(), "GET /pictures/", &["Host: localhost", "Accept: application/json"]);
        assert_eq!(answer.status, 200, "{flags:?}");
        let listing: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
        let names = listing.as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), answer.body.contains("symlink_path"))
    };
    assert_eq!(names(&["--browse"]), (vec!["alias".into(), "one.txt".into(), "two.txt".into()], false));
    assert_eq!(names(&["-b", "--reveal-symlinks"]).0.len(), 3);
    assert!(names(&["-b", "--reveal-symlinks"]).1, "where the link leads");
    assert_eq!(names(&["-b", "--file-limit", "2"]).0.len(), 2);
    // As in Caddy, options of listings have no effect without one.
    let server = directory.start(&[
        "file-server",
        "-r",
        "site/pictures",
        "-l",
        "127.0.0.1:0",
        "--file-limit",
        "2",
        "--reveal-symlinks",
    ]);
    assert_eq!((get(server.port(), "/one.txt").status, get(server.port(), "/").status), (200, 404));
}

// Caddy, `file-server`: Zstandard and gzip by default, Zstandard first; `--precompressed` sends compressed files next
// to the original;
// `--no-compress` neither.
#[test]
fn compression() {
    let text = "compressible ".repeat(200);
    let directory = Directory::with(&[("a.txt", &text), ("a.txt.gz", "gz"), ("a.txt.br", "br")]);
    for (flags, accepted, want) in [
        (&[][..], "gzip, zstd", Some("zstd")),
        (&[], "gzip", Some("gzip")),
        (&[], "identity", None),
        (&["--no-compress"], "gzip, zstd", None),
        (&["--no-compress", "--precompressed", "br,gzip"], "gzip, br", Some("br")),
        (&["--no-compress", "-p", "gzip", "-p", "br"], "gzip, br", Some("gzip")),
        (&["--no-compress", "-p", "gzip"], "br", None),
    ] {
        let server = directory.start(&[&["file-server", "-l", "127.0.0.1:0"], flags].concat());
        let mut stream = connect(server.port());
        write!(stream, "HEAD /a.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {accepted}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut head = String::new();
        stream.read_to_string(&mut head).unwrap();
        let found = head.lines().find_map(|line| line.strip_prefix("Content-Encoding: "));
        assert_eq!(found, want, "{flags:?} {accepted}");
    }
    let output = directory.output(&["file-server", "-l", "127.0.0.1:0", "-p", "lzma"]);
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("lzma"), "{error}");
}

/// Caddy, `file-server --templates`: files are templates, which read files of the same directory.
#[test]
fn templates() {
    let directory = site();
    directory.write("site/page.html", "{{.Host}} {{readFile \"hello.txt\"}}{{.Req.URL.Query.Get \"a\"}}");
    let server = directory.start(&["file-server", "-r", "site", "-l", "127.0.0.1:0", "--templates"]);
    let answer = send(server.port(), "GET /page.html?a=b%20c", &["Host: example.com"]);
    assert_eq!(answer.body, "example.com hello\nb c");
}

#[test]
fn one_host_only() {
    let directory = site();
    let server = directory.start(&["file-server", "-r", "site", "--domain", "example.com", "-l", "127.0.0.1:0"]);
    for (host, body) in [("example.com", "hello\n"), ("other.example", "")] {
        let answer = send(server.port(), "GET /hello.txt", &[&format!("Host: {host}")]);
        assert_eq!(answer.body, body, "{host}");
    }
}

/// The format in docs/commands.md: JSON, as standard error is no terminal.
#[test]
fn access_log() {
    for arguments in [
        &["file-server", "--access-log", "--listen", "127.0.0.1:0"][..],
        &["respond", "--access-log", "--listen", "127.0.0.1:0", "hello\n"],
    ] {
        let directory = Directory::with(&[("a\"b.txt", "hello\n")]);
        let mut server = directory.start(arguments);
        send(server.port(), "GET /a%22b.txt?q=1", &["Host: example.com:8080"]);
        let line = server.line_with("handled request");
        let record: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&record["level"], &record["logger"]), (&"info".into(), &"http.log.access".into()));
        assert_eq!(record["msg"], "handled request");
        assert!(record["ts"].as_f64().is_some_and(|seconds| seconds > 1.7e9), "{record}");
        let request = &record["request"];
        assert_eq!((&request["remote_ip"], &request["proto"]), (&"127.0.0.1".into(), &"HTTP/1.1".into()));
        assert_eq!((&request["method"], &request["host"]), (&"GET".into(), &"example.com:8080".into()));
        assert_eq!(request["uri"], "/a%22b.txt?q=1");
        assert!(request["remote_port"].as_str().is_some_and(|port| port.parse::<u16>().is_ok()), "{record}");
        assert_eq!((&record["status"], &record["size"], &record["bytes_read"]), (&200.into(), &6.into(), &0.into()));
        assert!(record["duration"].as_f64().is_some_and(|seconds| seconds < 20.0), "{record}");
    }
}

/// Without the flag no request is logged.
#[test]
fn no_access_log_without_the_flag() {
    let directory = Directory::new();
    let mut server = directory.start(&["respond", "--listen", "127.0.0.1:0"]);
    get(server.port(), "/");
    server.signal(Signal::TERM);
    assert!(server.next_line().contains("Stopping"), "no line before it");
}

#[test]
fn one_response() {
    let directory = Directory::new();
    for (arguments, status, body) in [
        (&[][..], 200, ""),
        (&["hello"], 200, "hello"),
        (&["404"], 404, ""),
        (&["40"], 200, "40"),
        (&["--status", "200", "404"], 200, "404"),
        (&["--status", "503"], 503, ""),
        (&["-s", "503", "-b", "later"], 503, "later"),
        (&["--body", "no", "404"], 404, "no"),
        // RFC 9110 §15.3.6: a 205 has no content. DEVIATES Caddy, which sends it.
        (&["--body", "no", "205"], 205, ""),
        (&["--body", "this", "not this"], 200, "this"),
        (&["{http.request.method} {http.request.uri.path}"], 200, "GET /"),
    ] {
        let server = directory.start(&[&["respond", "-l", "127.0.0.1:0"], arguments].concat());
        let answer = get(server.port(), "/");
        assert_eq!((answer.status, &*answer.body), (status, body), "{arguments:?}");
    }
}

#[test]
fn fields_of_the_response() {
    let directory = Directory::new();
    let fields = ["-H", "X-A: 1", "--header", "X-A:2", "--header", "Content-Type: text/html"];
    let server = directory.start(&[&["respond", "-l", "127.0.0.1:0"], &fields[..]].concat());
    let answer = get(server.port(), "/");
    assert_eq!(answer.field("X-A").as_deref(), Some("1, 2"));
    assert_eq!(answer.field("Content-Type").as_deref(), Some("text/html"));
}

#[test]
fn a_body_from_a_pipe() {
    let directory = Directory::new();
    for (arguments, status, body) in
        [(&[][..], 200, "piped\n"), (&["404"], 404, "piped\n"), (&["argument"], 200, "argument")]
    {
        let (reader, mut writer) = std::io::pipe().unwrap();
        writer.write_all(b"piped\n").unwrap();
        drop(writer);
        let mut command = directory.command(&[&["respond", "-l", "127.0.0.1:0"], arguments].concat());
        command.stdin(Stdio::from(reader));
        let server = ServerProcess::start(command);
        let answer = get(server.port(), "/");
        assert_eq!((answer.status, &*answer.body), (status, body), "{arguments:?}");
    }
}

/// A range of ports starts a server per port, and each server has another body. The addresses are printed for programs.
#[test]
fn a_range_of_ports() {
    let directory = Directory::new();
    let first = pair_of_free_ports();
    let listen = format!("127.0.0.1:{first}-{}", first + 1);
    let mut server = directory.start(&["respond", "--listen", &listen, "{{.N}} {{.Port}} {{ .Address }}"]);
    let addresses = [first, first + 1].map(|port| format!("127.0.0.1:{port}"));
    assert_eq!(server.take_stdout_lines(2), addresses.each_ref().map(|address| format!("Server address: {address}")));
    for (number, address) in addresses.iter().enumerate() {
        let port = first + number as u16;
        assert_eq!(get(port, "/").body, format!("{number} {port} {address}"));
    }
}

/// Returns the first of two adjacent free ports.
fn pair_of_free_ports() -> u16 {
    let mut pairs = std::iter::repeat_with(|| (free_port(), free_port()));
    pairs.find(|(first, second)| first + 1 == *second).expect("there is always a next pair").0
}

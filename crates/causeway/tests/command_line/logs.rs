//! The directives `log` and `encode`, as an operator uses them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::client::{connect, get, send, send_body};
use crate::process::Directory;

// Caddy's documentation of `log`: `output file`. Every answered request is in the file when the process has ended.
#[test]
fn records_are_written_before_the_server_ends() {
    let caddyfile = "{\n\tadmin off\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\tlog {\n\t\toutput file logs/access.log\n\t}\n\tlog_skip /health\n\t\
                     respond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let server = directory.start(&["run"]);
    let port = server.port();
    for number in 0..200 {
        assert_eq!(get(port, &format!("/{number}")).body, "hello");
    }
    get(port, "/health");
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let text = std::fs::read_to_string(directory.path("logs/access.log")).unwrap();
    let targets = text.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(record["duration"].as_f64().is_some_and(|seconds| seconds > 0.0), "{line}");
        record["request"]["uri"].as_str().unwrap().to_owned()
    });
    assert_eq!(targets.collect::<Vec<_>>(), (0..200).map(|number| format!("/{number}")).collect::<Vec<_>>());
}

// Caddy, `journald`: the console format has no time of its own there, as the journal has it.
#[test]
fn lines_for_the_journal() {
    for (wrapped, want) in
        [("console", "<6>INFO\thttp.log.access.log0\thandled request\t{"), ("json", "<6>{\"level\":\"info\",\"ts\":")]
    {
        let log = format!("log {{\noutput file a.log\nformat journald {{\nwrap {wrapped}\n}}\n}}");
        let site = format!("{{\nadmin off\n}}\nhttp://:0 {{\nbind 127.0.0.1\n{log}\nrespond hi\n}}\n");
        let directory = Directory::with(&[("Caddyfile", &*site)]);
        let server = directory.start(&["run"]);
        assert_eq!(get(server.port(), "/").body, "hi");
        server.signal(Signal::TERM);
        assert!(server.status().success());
        let line = std::fs::read_to_string(directory.path("a.log")).unwrap();
        assert!(line.starts_with(want), "{line}");
    }
}

#[test]
fn errors_contain_their_position() {
    for (line, want) in [
        (
            "output net udp/localhost",
            "Caddyfile:5:14: found 'udp/localhost', expected host:port, udp/host:port, unix//path or unixgram//path",
        ),
        (
            "format json {\n\t\t\tduration_format years\n\t\t}",
            "Caddyfile:6:20: found 'years', expected s, ms, ns or string",
        ),
        (
            "output file /dev/null/none/a.log",
            "Caddyfile:5:15: found '/dev/null/none/a.log: Not a directory (os error 20)', expected a file that can be written",
        ),
    ] {
        let directory = Directory::with(&[(
            "Caddyfile",
            &*format!("http://:0 {{\n\tbind 127.0.0.1\n\trespond hi\n\tlog {{\n\t\t{line}\n\t}}\n}}\n"),
        )]);
        let output = directory.output(&["validate"]);
        assert_eq!(String::from_utf8(output.stderr).unwrap(), format!("Error: {want}\n"), "{line}");
    }
}

// RFC 9110 §8.4, §12.5.3, through a proxy too: the content decodes to the original, and the response names its coding.
#[test]
fn responses_are_compressed() {
    let caddyfile =
        "{\n\tadmin off\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\troot files\n\tencode zstd br gzip\n\tfile_server\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(10_000);
    std::fs::create_dir(directory.path("files")).unwrap();
    directory.write("files/long.txt", &text);
    let server = directory.start(&["run"]);
    let port = server.port();
    for coding in ["gzip", "zstd", "br"] {
        let mut stream = connect(port);
        let request =
            format!("GET /long.txt HTTP/1.1\r\nHost: a\r\nAccept-Encoding: {coding}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("\r\nContent-Encoding: {coding}\r\n")), "{head}");
        assert!(head.contains("\r\nVary: Accept-Encoding\r\n"), "{head}");
        assert!(body.len() < text.len() / 10, "{coding}: {}", body.len());
    }
    assert!(get(port, "/long.txt").body == text);
}

// Caddy: `{http.reverse_proxy.upstream.latency_ms}` ends with the response's head, `.upstream.duration_ms` with its
// content, and `.duration_ms` begins with the first attempt. They are numbers, and null without a response.
#[test]
fn times_of_the_proxy() {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = upstream.local_addr().unwrap().port();
    let caddyfile = format!(
        "{{\n\tadmin off\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\tlog {{\n\t\toutput file a.log\n\t}}\n\
         \tlog_append upstream {{rp.upstream.duration_ms}}\n\tlog_append whole {{rp.duration_ms}}\n\
         \tlog_append span {{rp.duration}}\n\tlog_append latency {{rp.upstream.latency_ms}}\n\tlog_append retries {{rp.retries}}\n\
         \thandle /up {{\n\t\treverse_proxy 127.0.0.1:{to}\n\t}}\n\treverse_proxy unix//nowhere/a.sock\n}}\n"
    );
    let directory = Directory::with(&[("Caddyfile", &*caddyfile)]);
    let server = directory.start(&["run"]);
    let port = server.port();
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = upstream.accept().unwrap();
        let mut head = [0; 4096];
        let read = stream.read(&mut head).unwrap();
        assert!(head[..read].ends_with(b"\r\n\r\n"));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        stream.write_all(b"b").unwrap();
    });
    assert_eq!(get(port, "/up").body, "ab");
    answering.join().unwrap();
    assert_eq!(get(port, "/").status, 502);
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let records = records(&directory.path("a.log"));
    let [answered, failed] = &*records else { panic!("{records:?}") };
    let number = |name: &str| answered[name].as_f64().unwrap_or_else(|| panic!("{name}: {answered}"));
    assert!(number("latency") <= number("upstream") && number("upstream") >= 20.0, "{answered}");
    assert!(number("upstream") <= number("whole") && number("span") < number("whole"), "{answered}");
    assert!(failed["whole"].is_number() && failed["upstream"].is_null() && failed["latency"].is_null(), "{failed}");
    assert_eq!([&answered["retries"], &failed["retries"]], [0, 0]);
}

// Caddy: `resp_headers` has a response's trailers, which for gRPC are its result: after the prefix `Trailer:`, or under
// their names if the head announced them.
#[test]
fn trailers_of_the_upstream() {
    let upstream = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let to = upstream.local_addr().unwrap().port();
    let caddyfile = format!(
        "{{\n\tadmin off\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\tlog {{\n\t\toutput file a.log\n\t}}\n\treverse_proxy 127.0.0.1:{to}\n}}\n"
    );
    let directory = Directory::with(&[("Caddyfile", &*caddyfile)]);
    let server = directory.start(&["run"]);
    let answering = std::thread::spawn(move || {
        for announcement in ["", "Trailer: grpc-status, x-other\r\n", ""] {
            let (mut stream, _) = upstream.accept().unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            assert!(head[..read].ends_with(b"\r\n\r\n"));
            let head =
                format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n{announcement}\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let trailers = "grpc-status: 9\r\nx-other: 1\r\nx-other: 2\r\nset-cookie: secret\r\n";
            stream.write_all(format!("2\r\nab\r\n0\r\n{trailers}\r\n").as_bytes()).unwrap();
        }
    });
    for _ in 0..3 {
        assert_eq!(get(server.port(), "/").body, "ab");
    }
    answering.join().unwrap();
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let records = records(&directory.path("a.log"));
    let headers: Vec<_> = records.iter().map(|record| &record["resp_headers"]).collect();
    for unannounced in [headers[0], headers[2]] {
        assert_eq!(unannounced["Trailer:Grpc-Status"], json!(["9"]), "{unannounced}");
        assert_eq!(unannounced["Trailer:X-Other"], json!(["1", "2"]), "{unannounced}");
        assert!(!unannounced.to_string().contains("secret"), "{unannounced}");
    }
    assert_eq!([&headers[1]["Grpc-Status"], &headers[1]["X-Other"]], [&json!(["9"]), &json!(["1", "2"])]);
    assert!(headers[1].get("Trailer:X-Other").is_none(), "{}", headers[1]);
}

// Caddy, server option `trace`: each handler that a request enters is a message of level debug with the name of the
// module.
#[test]
fn handlers_are_traced() {
    let caddyfile = "{\n\tadmin off\n\tservers {\n\t\ttrace\n\t}\n\tlog {\n\t\toutput file own.log\n\t\tlevel DEBUG\n\t}\n}\nhttp://:0 {\n\t\
                     bind 127.0.0.1\n\trequest_header Authorization secret\n\trewrite /a /x\n\thandle /x {\n\t\trespond hello\n\t}\n\terror /err 503\n\t\
                     handle_errors {\n\t\trespond fault\n\t}\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let server = directory.start(&["run"]);
    let port = server.port();
    assert_eq!(get(port, "/a").body, "hello");
    assert_eq!(get(port, "/err").body, "fault");
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let records = records(&directory.path("own.log"));
    let traced = records.iter().filter(|record| record["logger"] == "http.log.trace");
    let traced: Vec<_> = traced.map(|record| (record["msg"].as_str().unwrap(), record["module"].to_string())).collect();
    let header = ("headers", r#"{"request":{"set":{"Authorization":"REDACTED"}}}"#);
    let want = [
        ("rewrite", r#"{"uri":"/x"}"#),
        header,
        ("subroute", r#"{"routes":[{}]}"#),
        ("static_response", r#"{"body":"hello"}"#),
        header,
        ("error", r#"{"status_code":503}"#),
        ("subroute", r#"{"routes":[{}]}"#),
        ("static_response", r#"{"body":"fault"}"#),
    ];
    assert_eq!(traced, want.map(|(name, module)| (name, module.to_owned())));
}

// Caddy, level debug: the message about an attempt has the request to the upstream, and the headers of the response or
// the error. Credentials are redacted.
#[test]
fn attempts_are_in_the_debug_log() {
    let upstream = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = upstream.local_addr().unwrap().port();
    let caddyfile = format!(
        "{{\n\tadmin off\n\tlog {{\n\t\toutput file own.log\n\t\tlevel DEBUG\n\t\tformat filter {{\n\t\t\trequest>headers>X-Api-Key \
         delete\n\t\t\trequest>remote_ip ip_mask 8\n\t\t}}\n\t}}\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\turi \
         strip_prefix /api\n\treverse_proxy 127.0.0.1:{port}\n}}\n"
    );
    let directory = Directory::with(&[("Caddyfile", &caddyfile)]);
    let server = directory.start(&["run"]);
    let site = server.port();
    let answer = std::thread::spawn(move || {
        let (mut connection, _) = upstream.accept().unwrap();
        let mut head = [0; 4096];
        let _ = connection.read(&mut head).unwrap();
        connection
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nSet-Cookie: secret\r\nConnection: close\r\n\r\n")
            .unwrap();
    });
    assert_eq!(
        send(site, "GET /api/a", &["Host: a.test", "Cookie: secret", "X-Api-Key: secret", "X_Under: 1"]).status,
        201
    );
    answer.join().unwrap();
    assert_eq!(send(site, "GET /api/b", &["Host: a.test"]).status, 502);
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let records = records(&directory.path("own.log"));
    let with = |message: &str| records.iter().filter(|record| record["msg"] == message).collect::<Vec<_>>();
    let attempts = with("upstream roundtrip");
    let [answered, failed] = attempts[..] else { panic!("{attempts:?}") };
    assert_eq!((&answered["status"], &answered["headers"]["Set-Cookie"][0]), (&json!(201), &json!("REDACTED")));
    assert_eq!((&answered["request"]["uri"], &answered["request"]["host"]), (&json!("/a"), &json!("a.test")));
    assert_eq!(answered["request"]["headers"]["Cookie"], json!(["REDACTED"]));
    assert_eq!(answered["request"]["headers"]["X-Forwarded-Proto"], json!(["http"]));
    // The filters apply to these fields too.
    assert_eq!(answered["request"]["headers"].get("X-Api-Key"), None);
    assert_eq!(answered["request"]["remote_ip"], "127.0.0.0");
    assert_eq!(failed["request"]["uri"], "/b");
    assert!(failed["error"].as_str().is_some_and(|error| error.contains("refused")), "{failed}");
    assert_eq!(with("selected upstream")[0]["total_upstreams"], 1);
    assert_eq!(with("rewrote request")[0]["request"]["uri"], "/a");
    let dropped = with("dropping a header that a backend could confuse with another");
    assert!(dropped[0]["header"].as_str().is_some_and(|name| name.eq_ignore_ascii_case("x_under")), "{dropped:?}");
}

// Caddy's logger `http.log.error`: failed requests, at level error for 5xx that no error routes handled, else at level
// debug. A method that is too long is a mistake of the client, although its status is 501 (RFC 9110 §15.6.2). A request
// that no handler responds to has the message NOP and the status 0 in the access log.
#[test]
fn failed_requests_are_errors() {
    let caddyfile = "{\n\tadmin off\n\tlog {\n\t\toutput file own.log\n\t\tlevel DEBUG\n\t}\n\tlog access {\n\t\toutput file access.log\n\t\t\
                     include http.log.access\n\t}\n}\nhttp://a.test:0 {\n\tbind 127.0.0.1\n\tlog named\n\terror /fault \"why\" 503\n\terror /no \
                     404\n\trespond /ok ok\n\trespond /code x {query.code}\n}\nhttp://b.test:0 {\n\tbind 127.0.0.1\n\terror \"why\" 503\n\t\
                     handle_errors {\n\t\trespond /handled {err.id}\n\t\terror / \"again\" 501\n\t}\n}\nhttp://c.test:0 {\n\tbind 127.0.0.1\n\tlog_name audit\n\tintercept \
                     /x {\n\t\thandle_response {\n\t\t\trespond x\n\t\t}\n\t}\n\tintercept /204 {\n\t\treplace_status 204\n\t}\n\terror /fault \
                     500\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let server = directory.start(&["run"]);
    let port = server.port();
    let send_request = |target: &str, host: &str| send(port, &format!("GET {target}"), &[&format!("Host: {host}")]);
    for (target, host, status) in [
        ("/fault", "a.test", 503),
        ("/no", "a.test", 404),
        ("/ok", "a.test", 200),
        ("/code?code=abc", "a.test", 500),
        ("/nothing", "a.test", 200),
        ("/", "b.test", 503),
        ("/x", "c.test", 200),
        ("/204", "c.test", 204),
        ("/fault", "c.test", 500),
    ] {
        assert_eq!(send_request(target, host).status, status, "{target}");
    }
    let id = send_request("/handled", "b.test").body;
    let long = format!("{} /long", "A".repeat(33));
    assert_eq!(send(port, &long, &["Host: a.test"]).status, 501);
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let own = records(&directory.path("own.log"));
    let errors: Vec<_> = own
        .iter()
        .filter(|record| record["logger"].as_str().is_some_and(|name| name.starts_with("http.log.error")))
        .collect();
    let part = |record: &Value| {
        let text = |name: &str| record[name].as_str().unwrap_or_default().to_owned();
        let uri = record["request"]["uri"].as_str().unwrap_or_default().to_owned();
        (text("level"), text("logger"), text("msg"), uri, record["status"].as_u64())
    };
    let want = |level: &str, logger: &str, message: &str, uri: &str, status| {
        (level.to_owned(), logger.to_owned(), message.to_owned(), uri.to_owned(), status)
    };
    let code = "the status code's placeholder did not expand to a status code";
    assert_eq!(
        errors.iter().map(|record| part(record)).collect::<Vec<_>>(),
        [
            want("error", "http.log.error.named", "why", "/fault", Some(503)),
            want("debug", "http.log.error.named", "", "/no", Some(404)),
            want("error", "http.log.error.named", code, "/code?code=abc", Some(500)),
            want("error", "http.log.error", "error handling handler error", "/", None),
            want("error", "http.log.error.audit", "", "/fault", Some(500)),
            want("debug", "http.log.error", "why", "/handled", Some(503)),
            want("debug", "http.log.error.named", "the method is longer than 32 bytes", "/long", Some(501)),
        ]
    );
    assert_eq!(errors[0]["err_id"].as_str().map(str::len), Some(9));
    assert!(errors[0]["duration"].as_f64().is_some_and(|seconds| seconds > 0.0));
    assert_eq!((errors[3]["error"].as_str(), errors[3]["first_error"]["msg"].as_str()), (Some("again"), Some("why")));
    assert_eq!(errors[3]["first_error"]["status"], 503);
    assert_eq!(errors[5]["err_id"], id);
    let access = records(&directory.path("access.log"));
    let unanswered = access.iter().find(|record| record["request"]["uri"] == "/nothing").unwrap();
    assert_eq!((unanswered["msg"].as_str(), unanswered["status"].as_u64()), (Some("NOP"), Some(0)));
    // A response in place of the empty one is a response.
    for (uri, status) in [("/x", 200), ("/204", 204)] {
        let replaced = access.iter().find(|record| record["request"]["uri"] == uri).unwrap();
        assert_eq!((replaced["msg"].as_str(), replaced["status"].as_u64()), (Some("handled request"), Some(status)));
    }
}

/// Parses each line of a file as JSON.
#[track_caller]
fn records(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

// Caddy's documentation of the global option `log`: the log `default` takes the server's own messages, and `include`
// selects loggers.
#[test]
fn messages_of_the_server_are_written_to_the_logs() {
    let caddyfile = "{\n\tadmin 127.0.0.1:0\n\tlog {\n\t\toutput file own.log\n\t\tformat json {\n\t\t\tlevel_format upper\n\t\t}\n\t\tlevel \
                     DEBUG\n\t}\n\tlog quiet {\n\t\toutput file quiet.log\n\t\tinclude admin\n\t}\n}\nhttp://:0 {\n\tbind \
                     127.0.0.1\n\tlog\n\trespond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let mut server = directory.start(&["run"]);
    let (port, admin) = (server.port(), server.admin_port());
    get(port, "/");
    get(admin, "/config/");
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let own = records(&directory.path("own.log"));
    let of = |logger: &str| own.iter().filter(|record| record["logger"] == logger).count();
    assert_eq!((of("http.log.access"), of("admin.api")), (1, 0), "{own:?}");
    assert!(own.iter().all(|record| record["ts"].is_f64() && record["level"] != "info"), "{own:?}");
    let quiet = records(&directory.path("quiet.log"));
    assert!(quiet.iter().all(|record| record["logger"] == "admin.api"), "{quiet:?}");
}

// Caddy's documentation of `level`: it is the minimum, for messages of the server too; `--debug` lowers it.
#[test]
fn the_level_of_the_default_log() {
    let caddyfile = "{\n\tadmin 127.0.0.1:0\n\tlog {\n\t\toutput file own.log\n\t\tlevel ERROR\n\t}\n}\nhttp://:0 {\n\trespond hello\n}\n";
    for (flags, is_written) in [(&["run"][..], false), (&["run", "--debug"], true)] {
        let directory = Directory::with(&[("Caddyfile", caddyfile)]);
        let mut server = directory.start(flags);
        let admin = server.admin_port();
        let again = caddyfile.replace("hello", "again");
        let loaded = send_body(
            admin,
            "POST /load",
            &[&format!("Host: 127.0.0.1:{admin}"), "Content-Type: text/caddyfile"],
            &again,
        );
        assert_eq!(loaded.status, 200, "{loaded:?}");
        server.signal(Signal::TERM);
        assert!(server.status().success());
        assert_eq!(!records(&directory.path("own.log")).is_empty(), is_written, "{flags:?}");
    }
}

// As logrotate does, the test moves the file and sends SIGUSR1. No record is lost, and none is in two files.
#[test]
fn moved_files_are_followed() {
    let caddyfile =
        "{\n\tadmin off\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\tlog {\n\t\toutput file a.log\n\t}\n\trespond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let server = directory.start(&["run"]);
    let port = server.port();
    for round in 0..5 {
        for number in 0..20 {
            get(port, &format!("/{round}/{number}"));
        }
        std::fs::rename(directory.path("a.log"), directory.path(&format!("a.log.{round}"))).unwrap();
        server.signal(Signal::USR1);
        // The file exists again without a request.
        while !directory.path("a.log").exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
    server.signal(Signal::TERM);
    assert!(server.status().success());
    let mut targets = Vec::new();
    for file in ["a.log.0", "a.log.1", "a.log.2", "a.log.3", "a.log.4", "a.log"] {
        let uri = |record: &Value| record["request"]["uri"].as_str().unwrap().to_owned();
        targets.extend(records(&directory.path(file)).iter().map(uri));
    }
    let wanted: Vec<_> = (0..5).flat_map(|round| (0..20).map(move |number| format!("/{round}/{number}"))).collect();
    assert_eq!(targets, wanted);
}

// Linux, full(4): each write to /dev/full fails for lack of space. Requests go on, and the number of lost lines is
// reported.
#[test]
fn requests_succeed_with_a_full_disk() {
    let caddyfile = "{\n\tadmin off\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\tlog {\n\t\toutput file /dev/full\n\t}\n\trespond hello\n}\n";
    let directory = Directory::with(&[("Caddyfile", caddyfile)]);
    let mut server = directory.start(&["run"]);
    let port = server.port();
    for _ in 0..50 {
        assert_eq!(get(port, "/").body, "hello");
    }
    let line = server.line_with("log output /dev/full: could not write");
    assert!(
        line.contains(r#""level":"error""#)
            && line.contains(r#""logger":"log""#)
            && line.contains("No space left on device"),
        "{line}"
    );
}

// At the end of the process lines wait no longer for a collector that is absent: they are lost, and counted.
#[test]
fn an_absent_collector_at_the_end() {
    let directory = Directory::new();
    let caddyfile = format!(
        "{{\n\tadmin off\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\tlog {{\n\t\toutput net unix/{} {{\n\t\t\tsoft_start\n\t\t}}\n\t}}\n\trespond \
         hello\n}}\n",
        directory.path("none.sock").display()
    );
    directory.write("Caddyfile", &caddyfile);
    let mut server = directory.start(&["run"]);
    for _ in 0..3 {
        assert_eq!(get(server.port(), "/").body, "hello");
    }
    server.signal(Signal::TERM);
    let mut lost = 0;
    while lost < 3 {
        let line = server.line_with("none.sock: could not write ");
        let count = line.split("could not write ").nth(1).and_then(|rest| rest.split(' ').next());
        lost += count.and_then(|count| count.parse::<u32>().ok()).unwrap_or_else(|| panic!("{line}"));
    }
    assert_eq!(lost, 3);
    assert!(server.status().success());
}

// Caddy's documentation of `output net`: the collector may be absent at the start with `soft_start`, and may go away
// and come back.
#[test]
fn a_collector_that_restarts() {
    let directory = Directory::new();
    let socket = directory.path("collector.sock");
    let caddyfile = format!(
        "{{\n\tadmin off\n}}\nhttp://:0 {{\n\tbind 127.0.0.1\n\tlog {{\n\t\toutput net unix/{} {{\n\t\t\tsoft_start\n\t\t}}\n\t}}\n\trespond \
         hello\n}}\n",
        socket.display()
    );
    directory.write("Caddyfile", &caddyfile);
    let server = directory.start(&["run"]);
    let port = server.port();
    let mut sent = 0;
    let mut received = Vec::new();
    for _ in 0..3 {
        for _ in 0..10 {
            assert_eq!(get(port, &format!("/{sent}")).body, "hello");
            sent += 1;
        }
        let collector = UnixListener::bind(&socket).unwrap();
        let (stream, _) = collector.accept().unwrap();
        let mut lines = BufReader::new(stream).lines();
        while received.len() < sent {
            let record: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
            received.push(record["request"]["uri"].as_str().unwrap().to_owned());
        }
        drop((lines, collector));
        std::fs::remove_file(&socket).unwrap();
    }
    assert_eq!(received, (0..sent).map(|number| format!("/{number}")).collect::<Vec<_>>());
}

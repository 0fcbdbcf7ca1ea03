//! The causal profiler from an operator's view: the API, and `causeway profile`. The crate `causal` tests its results.
//! These tests check that every request gets a response, and that the server keeps working.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::client::{ReceivedResponse, connect, get, send, send_body};
use crate::process::{Directory, ServerProcess};

const TIMEOUT: Duration = Duration::from_secs(20);
const CADDYFILE: &str = "{\n\tadmin localhost:0\n\tgrace_period 1s\n}\nhttp://:0 {\n\tbind 127.0.0.1\n\trespond /api/* api\n\trespond hello\n}\n";

/// A server, and a client that sends its next request one millisecond after each response.
struct ProfiledSite {
    directory: Directory,
    server: Option<ServerProcess>,
    site: u16,
    admin: u16,
    ends: Arc<AtomicBool>,
    load: Option<JoinHandle<u64>>,
}

impl ProfiledSite {
    #[track_caller]
    fn start() -> Self {
        let directory = Directory::with(&[("Caddyfile", CADDYFILE)]);
        let mut server = directory.start(&["run"]);
        let (site, admin) = (server.port(), server.admin_port());
        let ends = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&ends);
        let load = std::thread::spawn(move || {
            let mut stream = connect(site);
            let (mut block, mut count_responses) = ([0; 4096], 0);
            while !end.load(Ordering::Relaxed) {
                let written = stream.write_all(b"GET /api/x HTTP/1.1\r\nHost: localhost\r\n\r\n");
                if written.is_err() || stream.read(&mut block).unwrap_or(0) == 0 {
                    break;
                }
                assert!(block.starts_with(b"HTTP/1.1 200 OK\r\n"));
                count_responses += 1;
                // A debug build computes the profile slowly, so keep the recorded load small.
                std::thread::sleep(Duration::from_millis(1));
            }
            count_responses
        });
        Self { directory, server: Some(server), site, admin, ends, load: Some(load) }
    }

    #[track_caller]
    fn call(&self, line: &str) -> ReceivedResponse {
        send(self.admin, line, &[&format!("Host: localhost:{}", self.admin)])
    }

    #[track_caller]
    fn status(&self) -> Value {
        serde_json::from_str(&self.call("GET /causal/status").body).unwrap()
    }

    #[track_caller]
    fn until_ended(&self) {
        self.until("it runs on", |status| status["running"] == false);
    }

    /// Polls the status until the condition holds.
    #[track_caller]
    fn until(&self, otherwise: &str, is_installed: impl Fn(&Value) -> bool) {
        let begun = Instant::now();
        while !is_installed(&self.status()) {
            assert!(begun.elapsed() < TIMEOUT, "{otherwise}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn address(&self) -> String {
        format!("localhost:{}", self.admin)
    }

    /// Ends the load and returns the number of responses that it received.
    #[track_caller]
    fn count_responses(&mut self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.load.take().unwrap().join().unwrap()
    }
}

impl Drop for ProfiledSite {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
    }
}

/// Returns the status and message of an error response.
#[track_caller]
fn refusal(answer: &ReceivedResponse) -> (u16, String) {
    let value: Value = serde_json::from_str(&answer.body).unwrap();
    (answer.status, value["error"].as_str().unwrap().to_owned())
}

#[test]
fn a_profile_by_the_api() {
    let mut site = ProfiledSite::start();
    assert_eq!(
        site.status(),
        json!({ "number": 0, "running": false, "phase": "idle", "elapsed": 0.0, "seconds": 0.0, "report": null })
    );
    let none = (404, "there is no report yet; POST /causal/start begins a profile".to_owned());
    assert_eq!(refusal(&site.call("GET /causal/report")), none);
    assert_eq!(refusal(&site.call("POST /causal/stop")), (404, "no profile is running".into()));
    let started = site.call("POST /causal/start?seconds=60");
    assert_eq!(started.status, 200, "{}", started.body);
    let status = site.status();
    assert_eq!((&status["running"], &status["seconds"]), (&json!(true), &json!(60.0)));
    let second = (409, "a profile is running already; POST /causal/stop ends it".to_owned());
    for line in ["POST /causal/start", "GET /causal?seconds=1"] {
        assert_eq!(refusal(&site.call(line)), second);
    }
    std::thread::sleep(Duration::from_millis(700));
    let stopped = site.call("POST /causal/stop");
    let stopped: Value = serde_json::from_str(&stopped.body).unwrap();
    assert_eq!(stopped["running"], false);
    let report: Value = serde_json::from_str(&site.call("GET /causal/report").body).unwrap();
    let codes: Vec<_> = report["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
    assert!(codes.contains(&&json!("stopped")), "{codes:?}");
    assert_eq!(report["progress"][0]["name"], "request");
    assert!(report["progress"][0]["count"].as_u64().unwrap() > 0, "{}", report["progress"]);
    assert!(!report["words"].as_array().unwrap().is_empty());
    for (form, media_type) in [
        ("json", "application/json"),
        ("html", "text/html; charset=utf-8"),
        ("coz", "text/plain; charset=utf-8"),
        ("folded", "text/plain; charset=utf-8"),
    ] {
        let answer = site.call(&format!("GET /causal/report?format={form}"));
        assert_eq!((answer.status, answer.field("Content-Type").as_deref()), (200, Some(media_type)), "{form}");
    }
    assert!(site.count_responses() > 0);
}

/// Requests to the API run on the sites' kind of engine, and a client polls a profile often. They must not count as
/// progress of the sites.
#[test]
fn polling_a_profile_is_no_progress() {
    let mut site = ProfiledSite::start();
    // The site gets no requests from here on.
    site.count_responses();
    assert_eq!(site.call("POST /causal/start?seconds=1.5").status, 200);
    site.until_ended();
    let report: Value = serde_json::from_str(&site.call("GET /causal/report").body).unwrap();
    assert_eq!(report["progress"], json!([]));
    let codes: Vec<_> = report["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
    assert!(codes.contains(&&json!("no-progress")), "{codes:?}");
    assert!(report["perturbation"]["windows"][0].as_u64().unwrap() > 0, "{}", report["perturbation"]);
}

/// The request blocks until the profile is done. A client that disconnects ends its profile.
#[test]
fn a_profile_in_one_call() {
    let site = ProfiledSite::start();
    let whole = site.call("GET /causal?seconds=1&mode=screen&progress=route%20/api");
    assert_eq!(whole.status, 200, "{}", whole.body);
    let report: Value = serde_json::from_str(&whole.body).unwrap();
    let unknown = report["reasons"].as_array().unwrap().iter().find(|reason| reason["code"] == "unknown-progress");
    let text = unknown.unwrap()["text"].as_str().unwrap();
    assert!(text.starts_with("no progress point is called `route /api`; there are `route /api/*`"), "{text}");
    assert!(report["seconds"].as_f64().unwrap() > 0.5, "{}", report["seconds"]);
    // The same for `go tool pprof`: a gzipped message (RFC 1952 §2.3.1).
    let mut stream = connect(site.admin);
    let request = "GET /debug/pprof/profile?seconds=1&mode=screen HTTP/1.1\r\nConnection: close\r\nHost: ";
    stream.write_all(format!("{request}{}\r\n\r\n", site.address()).as_bytes()).unwrap();
    let mut samples = Vec::new();
    stream.read_to_end(&mut samples).unwrap();
    assert!(samples.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", samples.escape_ascii());
    let head = samples.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    assert!(samples[head..].starts_with(&[0x1f, 0x8b]), "{}", samples.escape_ascii());
    let mut stream = connect(site.admin);
    stream
        .write_all(format!("GET /causal?seconds=60 HTTP/1.1\r\nHost: {}\r\n\r\n", site.address()).as_bytes())
        .unwrap();
    site.until("it does not begin", |status| status["running"] == true);
    drop(stream);
    site.until_ended();
}

/// The end of the API ends the profile of a waiting request, which gets the results so far.
#[test]
fn a_stop_ends_a_profile_in_one_call() {
    let off = CADDYFILE.replace("admin localhost:0", "admin off");
    for (line, body) in [("POST /stop", ""), ("POST /load", &*off)] {
        let site = ProfiledSite::start();
        let (admin, host) = (site.admin, format!("Host: {}", site.address()));
        let whole = std::thread::spawn({
            let host = host.clone();
            move || send(admin, "GET /causal?seconds=600&mode=screen", &[&host])
        });
        site.until("it does not begin", |status| status["phase"] == "screening");
        assert_eq!(send_body(admin, line, &[&host, "Content-Type: text/caddyfile"], body).status, 200, "{line}");
        let whole = whole.join().unwrap();
        assert_eq!(whole.status, 200, "{line}: {}", whole.body);
        let report: Value = serde_json::from_str(&whole.body).unwrap();
        let codes: Vec<&Value> = report["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
        assert!(codes.contains(&&json!("stopped")), "{line}: {codes:?}");
    }
}

/// A request that waits for a profile waits for that one, even if another client starts the next one at once.
#[test]
fn one_profile_after_the_other() {
    let site = ProfiledSite::start();
    let (admin, host) = (site.admin, format!("Host: {}", site.address()));
    let whole = std::thread::spawn({
        let host = host.clone();
        move || send(admin, "GET /causal?seconds=1&mode=screen", &[&host])
    });
    site.until("it does not begin", |status| status["running"] == true);
    let begun = Instant::now();
    while site.call("POST /causal/start?seconds=600").status != 200 {
        assert!(begun.elapsed() < TIMEOUT, "it does not end");
        std::thread::sleep(Duration::from_millis(5));
    }
    let whole = whole.join().unwrap();
    assert_eq!(whole.status, 200, "{}", whole.body);
    assert_eq!((&site.status()["number"], &site.status()["running"]), (&json!(2), &json!(true)));
    assert_eq!(site.call("GET /causal/report?number=1").body, whole.body);
    let none = (404, "there is no profile 3, or another one ended after it".to_owned());
    assert_eq!(refusal(&site.call("GET /causal/report?number=3")), none);
    let other = (409, "profile 2 is running, not 1".to_owned());
    assert_eq!(refusal(&site.call("POST /causal/stop?number=1")), other);
    let stopped: Value = serde_json::from_str(&site.call("POST /causal/stop?number=2").body).unwrap();
    assert_eq!((&stopped["number"], &stopped["running"]), (&json!(2), &json!(false)));
    assert_eq!(refusal(&site.call("GET /causal/report?number=1")).0, 404);
}

#[test]
fn refused_requests() {
    let site = ProfiledSite::start();
    for (line, status, want) in [
        ("POST /causal/start?seconds=x", 400, "seconds: found 'x', expected a number of seconds from 0.5 to 3600"),
        ("GET /causal?second=1", 400, "found 'second', expected one of seconds, budget, mode, targets, progress, seed"),
        ("GET /causal/report?format=svg", 400, "format: found 'svg', expected one of json, html, coz, folded, pprof"),
        ("POST /causal/start?seconds=1&seconds=2", 400, "seconds: found twice, expected once"),
        ("GET /causal/start", 405, "method not allowed"),
        ("DELETE /causal", 405, "method not allowed"),
    ] {
        assert_eq!(refusal(&site.call(line)), (status, want.to_owned()), "{line}");
    }
    let host = format!("Host: {}", site.address());
    let answer = send_body(site.admin, "POST /causal/start", &[&host], "{\"mode\": \"fast\"}");
    assert_eq!(refusal(&answer), (400, "mode: found 'fast', expected one of both, screen, confirm".into()));
    let answer = send_body(site.admin, "POST /causal/start?seconds=1", &[&host], "{\"seconds\": 2}");
    assert_eq!(refusal(&answer), (400, "found a query and a body, expected one of them".into()));
    let answer = send_body(site.admin, "POST /causal/start", &[&host], &" ".repeat((64 << 10) + 1));
    assert_eq!(refusal(&answer), (413, "reading request body: more than 64 KiB".into()));
    // A chunked body has no declared length, so it is counted.
    let (chunk, head) = (format!("5000\r\n{}\r\n", " ".repeat(0x5000)), "Transfer-Encoding: chunked\r\n\r\n");
    let mut stream = connect(site.admin);
    let request =
        format!("POST /causal/start HTTP/1.1\r\n{host}\r\nConnection: close\r\n{head}{}0\r\n\r\n", chunk.repeat(4));
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 413");
    let answer = send_body(site.admin, "POST /causal/start", &[&host], &format!("[{}0]", "0,".repeat(30_000)));
    let (status, words) = refusal(&answer);
    assert!(status == 400 && words.len() < 250 && words.starts_with("found [0,0,"), "{status} {words}");
    assert_eq!(site.call("GET /causal/nope").status, 404);
    assert_eq!(site.status()["running"], false);
}

/// The checks of Host and Origin apply here too, but a browser may open a page directly.
#[test]
fn checks_of_host_and_origin() {
    let site = ProfiledSite::start();
    let host = format!("Host: {}", site.address());
    let typed = ["Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: none"];
    let linked = ["Sec-Fetch-Mode: navigate", "Sec-Fetch-Site: cross-site"];
    let origin = ["Origin: http://evil.example", "Sec-Fetch-Mode: cors"];
    let evil = ["Host: evil.example", typed[0], typed[1]];
    for (line, fields, want) in [
        ("GET /causal", &[&*host, typed[0], typed[1]][..], 200),
        ("GET /causal/report", &[&*host, typed[0], typed[1]], 404),
        ("GET /causal", &[&*host, linked[0], linked[1]], 403),
        ("GET /causal", &evil, 403),
        ("GET /causal?seconds=1", &[&*host, typed[0], typed[1]], 403),
        ("POST /causal/start", &[&*host, origin[0], origin[1]], 403),
        ("POST /causal/start", &[&*host, typed[0], typed[1]], 403),
        ("GET /causal/status", &["Host: evil.example"], 403),
    ] {
        assert_eq!(send(site.admin, line, fields).status, want, "{line} {fields:?}");
    }
    assert_eq!(site.status()["running"], false);
    let page = site.call("GET /causal");
    assert_eq!(page.field("Content-Security-Policy").as_deref(), Some("frame-ancestors 'none'"));
    assert!(page.body.contains("default-src 'none'"));
}

#[test]
fn a_reload_during_a_profile() {
    let mut site = ProfiledSite::start();
    assert_eq!(site.call("POST /causal/start?seconds=60").status, 200);
    std::thread::sleep(Duration::from_millis(300));
    let host = format!("Host: {}", site.address());
    let config = CADDYFILE.replace("hello", "other");
    let loaded = send_body(site.admin, "POST /load", &[&host, "Content-Type: text/caddyfile"], &config);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    assert_eq!(get(site.site, "/").body, "other");
    assert_eq!(site.status()["running"], true);
    assert_eq!(site.call("POST /causal/stop").status, 200);
    let report: Value = serde_json::from_str(&site.call("GET /causal/report").body).unwrap();
    let changed = report["reasons"].as_array().unwrap().iter().find(|reason| reason["code"] == "changed");
    assert!(changed.unwrap()["text"].as_str().unwrap().starts_with("the configuration was replaced "), "{changed:?}");
    assert_eq!(get(site.site, "/").body, "other");
    assert!(site.count_responses() > 0);
}

/// A response in flight is still sent from the API's old address.
#[test]
fn a_reload_that_moves_the_api() {
    let site = ProfiledSite::start();
    let (admin, host) = (site.admin, format!("Host: {}", site.address()));
    let whole = std::thread::spawn({
        let host = host.clone();
        move || send(admin, "GET /causal?seconds=3&mode=screen", &[&host])
    });
    site.until("it does not begin", |status| status["phase"] == "screening");
    let config = CADDYFILE.replace("admin localhost:0", "admin 127.0.0.2:0");
    let loaded = send_body(admin, "POST /load", &[&host, "Content-Type: text/caddyfile"], &config);
    assert_eq!(loaded.status, 200, "{}", loaded.body);
    let whole = whole.join().unwrap();
    assert_eq!(whole.status, 200, "{}", whole.body);
    let report: Value = serde_json::from_str(&whole.body).unwrap();
    let codes: Vec<_> = report["reasons"].as_array().unwrap().iter().map(|reason| &reason["code"]).collect();
    assert!(codes.contains(&&json!("changed")) && !codes.contains(&&json!("stopped")), "{codes:?}");
}

#[test]
fn the_command() {
    let site = ProfiledSite::start();
    let address = site.address();
    let arguments =
        ["profile", "--address", &address, "--for", "1s", "--out", "found.html", "--formats", "coz,folded,pprof"];
    let output = site.directory.output(&arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(out.contains("request: ") && out.contains("The load "), "{out}");
    assert!(err.starts_with("Profiling for 1 s\n"), "{err}");
    assert!(err.ends_with("The report is in found.html, found.json, found.coz, found.folded, found.pb.gz\n"), "{err}");
    let read = |name: &str| std::fs::read(site.directory.path(name)).unwrap();
    assert!(read("found.html").starts_with(b"<!DOCTYPE html>"));
    let report: Value = serde_json::from_slice(&read("found.json")).unwrap();
    assert_eq!(report["speech"]["subject"], "this server");
    assert!(out.ends_with(&format!("{}\n", report["words"].as_array().unwrap().last().unwrap().as_str().unwrap())));
    assert!(read("found.coz").starts_with(b"startup\ttime="));
    assert!(read("found.pb.gz").starts_with(b"\x1f\x8b"));
}

/// The command follows its own profile, not the next one that another client starts.
#[test]
fn the_command_and_the_profile_of_another_client() {
    let site = ProfiledSite::start();
    let address = site.address();
    let mut command = site.directory.command(&["profile", "--address", &address, "--for", "60s", "--out", "own.html"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.until("it does not begin", |status| status["elapsed"].as_f64().unwrap() >= 0.5);
    assert_eq!(site.call("POST /causal/stop?number=1").status, 200);
    let started: Value = serde_json::from_str(&site.call("POST /causal/start?seconds=600").body).unwrap();
    assert_eq!(started["number"], 2);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let own: Value = serde_json::from_slice(&std::fs::read(site.directory.path("own.json")).unwrap()).unwrap();
    let first: Value = serde_json::from_str(&site.call("GET /causal/report?number=1").body).unwrap();
    assert_eq!(own, first);
    assert_eq!((&site.status()["number"], &site.status()["running"]), (&json!(2), &json!(true)));
}

#[test]
fn the_command_and_several_servers() {
    let sites = [ProfiledSite::start(), ProfiledSite::start()];
    let address = sites.each_ref().map(ProfiledSite::address).join(",");
    let output = sites[0].directory.output(&["profile", "--address", &address, "--for", "1s", "--out", "both.html"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&std::fs::read(sites[0].directory.path("both.json")).unwrap()).unwrap();
    let parts: Vec<_> =
        report["parts"].as_array().unwrap().iter().map(|part| part["program"].as_str().unwrap()).collect();
    assert_eq!(parts, sites.each_ref().map(ProfiledSite::address));
    let rate = |report: &Value| report["progress"][0]["baseline_rate"].as_f64().unwrap();
    let sum: f64 = report["parts"].as_array().unwrap().iter().map(rate).sum();
    assert!((rate(&report) - sum).abs() < 1e-6 * sum, "{report}");
    // When one server is absent, the profiles on all others are stopped.
    let output = sites[0].directory.output(&["profile", "--address", &format!("{},localhost:1", sites[0].address())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("Error: no server listens on localhost:1;"));
    sites[0].until_ended();
    // A site has no profiles, although it responds.
    let site = format!("127.0.0.1:{}", sites[1].site);
    let output = sites[0].directory.output(&["profile", "--address", &site]);
    let want = format!("Error: {site} is not the address of an admin API (HTTP 200)\n");
    assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(1), &*want));
    // Nor has one without this path. Another error, as of a proxy before the API, contains its reason.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let other = listener.local_addr().unwrap().to_string();
    for (status, want) in [
        ("404", format!("Error: {other} is not the address of an admin API (HTTP 404)\n")),
        ("403", format!("Error: the server on {other} did not start a profile: not from here (HTTP 403)\n")),
    ] {
        let output = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = listener.accept().unwrap().0;
                // Until the end of the body, so that the close does not reset the connection.
                let mut request = Vec::new();
                while !request.ends_with(b"}") {
                    let mut byte = [0];
                    client.read_exact(&mut byte).unwrap();
                    request.extend(byte);
                }
                write!(
                    client,
                    "HTTP/1.1 {status} Error\r\nContent-Length: 13\r\nConnection: close\r\n\r\nnot from here"
                )
                .unwrap();
            });
            sites[0].directory.output(&["profile", "--address", &other])
        });
        assert_eq!((output.status.code(), &*String::from_utf8_lossy(&output.stderr)), (Some(1), &*want));
    }
}

#[test]
fn an_interrupt_keeps_the_results() {
    let site = ProfiledSite::start();
    let address = site.address();
    let mut command = site.directory.command(&["profile", "--address", &address, "--for", "60s", "--out", "part.html"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    site.until("it does not begin", |status| status["elapsed"].as_f64().unwrap() >= 0.5);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("Stopping: keeping the results so far\n"), "{err}");
    assert!(site.directory.path("part.json").is_file() && site.directory.path("part.html").is_file());
    assert_eq!(site.status()["running"], false);
}

#[test]
fn a_server_that_is_killed() {
    let mut site = ProfiledSite::start();
    let address = site.address();
    let command = site.directory.command(&["profile", "--address", &address, "--for", "60s", "--out", "gone.html"]);
    let mut profile = ServerProcess::spawn(command);
    assert_eq!(profile.next_line(), "Profiling for 60 s");
    drop(site.server.take());
    let line = profile.line_with("Error: ");
    assert!(
        line.starts_with(&format!("Error: the server on {address} stopped responding while it was profiled: ")),
        "{line}"
    );
    assert_eq!(profile.status().code(), Some(1));
    assert!(!site.directory.path("gone.html").exists());
}

/// Stopping the server during a profile stops both.
#[test]
fn the_server_stops_during_a_profile() {
    let mut site = ProfiledSite::start();
    assert_eq!(site.call("POST /causal/start?seconds=60").status, 200);
    std::thread::sleep(Duration::from_millis(300));
    let server = site.server.take().unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.status().code(), Some(0));
}

#[test]
fn mistakes_on_the_command_line() {
    let directory = Directory::new();
    for (arguments, want) in [
        (&["--for", "2x"][..], "--for: found '2x', expected a time from 0.5s to 1h, as in 30s or 2m"),
        (&["--out", "a.txt"], "--out: found 'a.txt', expected a file's name that ends in .html"),
        (&["--out", "none/a.html"], "--out: there is no directory none"),
        (
            &["--formats", "coz"],
            "the following required arguments were not provided: --out <FILE.html>; see `causeway profile --help`",
        ),
        (
            &["--mode", "fast"],
            "invalid value 'fast' for '--mode <MODE>'; [possible values: both, screen, confirm]; see `causeway profile --help`",
        ),
        (
            &["--address", "localhost:1,127.0.0.1:1"],
            "--address: found 'localhost:1' and '127.0.0.1:1', which are one server, expected each once",
        ),
        (
            &["--address", "localhost:1"],
            "no server listens on localhost:1; is it running with its admin API there? set another address with --address",
        ),
    ] {
        let output = directory.output(&[&["profile"], arguments].concat());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), format!("Error: {want}\n"), "{arguments:?}");
    }
}

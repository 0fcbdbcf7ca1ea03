//! Upstreams that fail and return: retries, health checks, and circuit breakers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::client::{connect, get, send, send_body};
use crate::process::{Directory, ServerProcess};

/// Timeout after which a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Starts an upstream that responds with its name.
fn upstream(directory: &Directory, name: &str, port: u16) -> ServerProcess {
    let file = format!("{name}/Caddyfile");
    directory.write(&file, format!("http://:{port} {{\n\tbind 127.0.0.1\n\trespond {name}\n}}\n"));
    directory.start(&["run", "--config", &file])
}

fn proxy(directory: &Directory, upstreams: [u16; 2], options: &str) -> ServerProcess {
    let [a, b] = upstreams;
    let site =
        format!("http://:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{a} 127.0.0.1:{b} {{\n{options}\n}}\n}}\n");
    directory.write("Caddyfile", site);
    directory.start(&["run", "--workers", "2"])
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// docs/limits.md: applications send more header lines than clients do.
#[test]
fn a_response_of_many_header_lines() {
    let application = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = application.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for count in [500, 2000] {
            let (mut stream, _) = application.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let lines = "A: b\r\n".repeat(count);
            let head = format!("HTTP/1.1 200 OK\r\n{lines}Connection: close\r\nContent-Length: 2\r\n\r\nhi");
            stream.write_all(head.as_bytes()).unwrap();
        }
    });
    let directory = Directory::with(&[(
        "Caddyfile",
        &*format!("http://:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{port}\n}}\n"),
    )]);
    let server = directory.start(&["run"]);
    let response = get(server.port(), "/");
    let values = response.field("A").unwrap_or_default();
    assert_eq!((response.status, &*response.body, values.matches('b').count()), (200, "hi", 500));
    assert_eq!(get(server.port(), "/").status, 502, "beyond the limit");
}

// Caddy, `max_response_header`: the bound of a response's head, which may be above that of requests.
#[test]
fn a_response_head_longer_than_a_request_may_have() {
    let application = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = application.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for bytes in [33_000, 200_000, 600_000] {
            let (mut stream, _) = application.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let value = "v".repeat(bytes);
            let head = format!("HTTP/1.1 200 OK\r\nA: {value}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
            // The proxy may close before it has read all of a head beyond the limit.
            let _ = stream.write_all(head.as_bytes());
        }
    });
    let proxy = format!(
        "reverse_proxy 127.0.0.1:{port} {{\n\t\ttransport http {{\n\t\t\tmax_response_header 512KiB\n\t\t}}\n\t}}"
    );
    let directory = Directory::with(&[("Caddyfile", &*format!("http://:0 {{\n\tbind 127.0.0.1\n\t{proxy}\n}}\n"))]);
    let server = directory.start(&["run"]);
    for bytes in [33_000, 200_000] {
        let response = get(server.port(), "/");
        let length = response.field("A").map(|value| value.len());
        assert_eq!((response.status, &*response.body, length), (200, "hi", Some(bytes)));
    }
    assert_eq!(get(server.port(), "/").status, 502, "beyond the limit");
}

// Caddy, `round_robin`: each upstream in turn, whichever worker has the client's connection.
#[test]
fn each_in_turn() {
    let (directory, ports) = (Directory::new(), [free_port(), free_port()]);
    let _upstreams = [upstream(&directory, "a", ports[0]), upstream(&directory, "b", ports[1])];
    let server = proxy(&directory, ports, "lb_policy round_robin");
    let names: Vec<_> = (0..40).map(|_| get(server.port(), "/").body).collect();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
}

// Caddy, `lb_retries` and `fail_duration`: of two upstreams one is killed under load and returns. No client sees a
// failure.
#[test]
fn an_upstream_that_is_killed_under_load() {
    let (directory, ports) = (Directory::new(), [free_port(), free_port()]);
    let first = upstream(&directory, "a", ports[0]);
    let _second = upstream(&directory, "b", ports[1]);
    let server = proxy(&directory, ports, "lb_policy round_robin\nlb_retries 2\nfail_duration 200ms");
    let (port, is_over) = (server.port(), AtomicBool::new(false));
    let of = |name: &str| get(port, "/").body == name;
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut count = 0;
                    while !is_over.load(Ordering::Relaxed) {
                        let response = get(port, "/");
                        assert_eq!(response.status, 200, "{}", response.body);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        until("the first upstream responds", || of("a"));
        drop(first);
        // The failures are forgotten and repeated several times.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(700) {
            assert!(of("b"));
        }
        let _first = upstream(&directory, "a", ports[0]);
        until("the first upstream responds again", || of("a"));
        is_over.store(true, Ordering::Relaxed);
        assert!(clients.into_iter().all(|client| client.join().unwrap() > 0));
    });
}

// Caddy, `health_uri`: an upstream that fails its checks gets no requests, without a client noticing, until it passes
// again.
#[test]
fn an_upstream_that_is_checked() {
    let (directory, ports) = (Directory::new(), [free_port(), free_port()]);
    let first = upstream(&directory, "a", ports[0]);
    let _second = upstream(&directory, "b", ports[1]);
    let mut server = proxy(&directory, ports, "lb_policy first\nhealth_uri /\nhealth_interval 50ms\nhealth_timeout 5s");
    let (port, admin) = (server.port(), server.admin_port());
    assert_eq!(get(port, "/").body, "a");
    drop(first);
    let address = format!("127.0.0.1:{}", ports[0]);
    let line = server.line_with("an upstream gets no requests: its active health check fails");
    assert!(line.contains(&address) && line.contains("connection refused"), "{line}");
    assert_eq!(get(port, "/").body, "b");
    let send_request = |path: &str| send(admin, &format!("GET {path}"), &[&format!("Host: localhost:{admin}")]).body;
    let shown: Value = serde_json::from_str(&send_request("/reverse_proxy/upstreams")).unwrap();
    let entry = |port: u16| json!({ "address": format!("127.0.0.1:{port}"), "num_requests": 0, "fails": 0 });
    assert_eq!(shown, json!([entry(ports[0]), entry(ports[1])]));
    let metrics = send_request("/metrics");
    let metric = format!("caddy_reverse_proxy_upstreams_healthy{{upstream=\"{address}\"}} 0");
    assert!(metrics.contains(&metric), "{metrics}");
    let _first = upstream(&directory, "a", ports[0]);
    server.line_with("an upstream is healthy again");
    assert_eq!(get(port, "/").body, "a");
}

// Caddy, `lb_try_duration`: a request waits for an upstream that is being restarted.
#[test]
fn a_request_that_waits_for_its_upstream() {
    let (directory, ports) = (Directory::new(), [free_port(), free_port()]);
    let server = proxy(&directory, ports, "lb_try_duration 15s\nlb_try_interval 20ms");
    let port = server.port();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| get(port, "/"));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished());
        let _first = upstream(&directory, "a", ports[0]);
        assert_eq!(waiting.join().unwrap().body, "a");
    });
}

/// An upstream that counts its requests, and responds with 500 until it is well.
struct CountingUpstream {
    port: u16,
    requests: Arc<AtomicUsize>,
    is_well: Arc<AtomicBool>,
}

impl CountingUpstream {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, is_well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let upstream = Self { port, requests: Arc::clone(&requests), is_well: Arc::clone(&is_well) };
        // Ends with the process of the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let head = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
                // A connection without a request is none.
                if head.take_while(|line| !line.is_empty()).count() > 0 {
                    requests.fetch_add(1, Ordering::Relaxed);
                    let status = if is_well.load(Ordering::Relaxed) { "200 OK" } else { "500 Internal Server Error" };
                    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                }
            }
        });
        upstream
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

// Ours: a circuit breaker opens after failures, whichever worker has seen them; then no request reaches the upstream,
// also after a reload. After the trip a request probes the upstream: a failure opens the breaker again, a success
// closes it.
#[test]
fn a_circuit_breaker() {
    let (directory, upstream) = (Directory::new(), CountingUpstream::start());
    let address = format!("127.0.0.1:{}", upstream.port);
    let site = |trip: &str| {
        let breaker = format!("error_ratio 0.5\nmin_requests 10\nwindow 1h\ntrip_duration {trip}");
        format!("http://:0 {{\nbind 127.0.0.1\nreverse_proxy {address} {{\ncircuit_breaker {{\n{breaker}\n}}\n}}\n}}\n")
    };
    directory.write("Caddyfile", site("1h"));
    let mut server = directory.start(&["run", "--workers", "2"]);
    let (port, admin) = (server.port(), server.admin_port());
    let host = format!("Host: localhost:{admin}");
    let send_request = |path: &str| send(admin, &format!("GET {path}"), &[&host]).body;
    let phase = || {
        let shown: Value = serde_json::from_str(&send_request("/reverse_proxy/upstreams")).unwrap();
        shown[0]["circuit_breaker"].as_str().unwrap().to_owned()
    };
    let load = |trip: &str| {
        let answer = send_body(admin, "POST /load", &[&host, "Content-Type: text/caddyfile"], &site(trip));
        assert_eq!(answer.status, 200, "{}", answer.body);
    };
    const OPEN: &str = "an upstream gets no requests: its circuit breaker is open";
    let fail = || (0..10).for_each(|_| assert_eq!(get(port, "/").status, 500));
    assert_eq!(phase(), "closed");
    fail();
    let line = server.line_with(OPEN);
    assert!(line.contains(&address) && line.contains(r#""requests":10,"failures":10"#), "{line}");
    // Both workers, before and after a reload that keeps the settings.
    for _ in 0..2 {
        (0..20).for_each(|_| assert_eq!(get(port, "/").status, 503));
        assert_eq!((upstream.count(), phase().as_str()), (10, "open"));
        let metric = format!("caddy_reverse_proxy_upstreams_healthy{{upstream=\"{address}\"}} 0");
        assert!(send_request("/metrics").contains(&metric));
        load("1h");
    }
    // Other settings begin with a closed breaker.
    load("100ms");
    assert_eq!(phase(), "closed");
    fail();
    server.line_with(OPEN);
    until("a request probes the upstream", || get(port, "/").status == 500);
    server.line_with("its circuit breaker is half-open");
    server.line_with("an upstream gets no requests: the request that probed it has failed");
    upstream.is_well.store(true, Ordering::Relaxed);
    until("a request probes the upstream", || get(port, "/").status == 200);
    server.line_with("an upstream gets requests again: its circuit breaker is closed");
    assert_eq!(phase(), "closed");
    let before = upstream.count();
    (0..20).for_each(|_| assert_eq!(get(port, "/").status, 200));
    assert_eq!(upstream.count(), before + 20);
}

// Caddy's documentation of `keepalive off`: one request for each connection; RFC 9112 §9.6: the request has the option
// `close`. And of `read_timeout`: without a response in time it is 504.
#[test]
fn one_request_for_each_connection() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let upstream = listener.local_addr().unwrap();
    let directory = Directory::with(&[(
        "Caddyfile",
        &format!(
            "{{\n\tadmin off\n}}\n:0 {{\n\tbind 127.0.0.1\n\treverse_proxy {upstream} {{\n\t\ttransport http {{\n\t\t\tkeepalive off\n\t\t\tread_timeout \
             3s\n\t\t}}\n\t}}\n}}\n"
        ),
    )]);
    let server = directory.start(&["run"]);
    let heads = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for response in ["HTTP/1.1 204 No Content\r\n\r\n", ""] {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            stream.write_all(response.as_bytes()).unwrap();
            heads.push(String::from_utf8(head).unwrap());
            // The server closes the connection, in the second case since there is no response.
            assert!(matches!(stream.read(&mut byte), Ok(0) | Err(_)));
        }
        heads
    });
    assert_eq!(get(server.port(), "/a").status, 204);
    assert_eq!(get(server.port(), "/b").status, 504);
    for head in heads.join().unwrap() {
        assert!(head.contains("\r\nConnection: close\r\n"), "{head}");
    }
}

// Caddy's pattern of a fallback, `handle_errors` with another `reverse_proxy`: a body that the first upstream has not
// received goes to the second one. Without a second one the rest of the body is discarded, and the connection serves
// the next request.
#[test]
fn a_body_after_an_upstream_that_cannot_be_reached() {
    let directory = Directory::with(&[(
        "Caddyfile",
        "{\n\tadmin off\n}\n:0 {\n\tbind 127.0.0.1\n\thandle /second {\n\t\trespond \"{http.request.body}\"\n\t}\n\
         \thandle /fallback {\n\t\treverse_proxy 127.0.0.1:1\n\t}\n\
         \thandle /retries {\n\t\treverse_proxy 127.0.0.1:1 127.0.0.1:2 {\n\t\t\tlb_retries 3\n\t\t}\n\t}\n\
         \thandle /none {\n\t\treverse_proxy 127.0.0.1:1\n\t}\n\
         \thandle /fastcgi {\n\t\treverse_proxy 127.0.0.1:1 {\n\t\t\ttransport fastcgi\n\t\t}\n\t}\n\
         \thandle /root {\n\t\treverse_proxy 127.0.0.1:1 {\n\t\t\ttransport fastcgi {\n\t\t\t\troot /none/here\n\
         \t\t\t\tresolve_root_symlink\n\t\t\t}\n\t\t}\n\t}\n\
         \thandle /taken {\n\t\treverse_proxy {http.request.local} {\n\t\t\trewrite /second\n\t\t\t@ok status 200\n\
         \t\t\thandle_response @ok {\n\t\t\t\trewrite /second\n\t\t\t\treverse_proxy {http.request.local}\n\t\t\t}\n\t\t}\n\t}\n\
         \thandle_errors {\n\t\t@fallback path /fallback /retries /fastcgi /root\n\t\thandle @fallback {\n\t\t\trewrite /second\n\
         \t\t\treverse_proxy {http.request.local}\n\t\t}\n\t}\n}\n",
    )]);
    let server = directory.start(&["run"]);
    let body = "0123456789".repeat(10_000);
    for path in ["/fallback", "/retries", "/root"] {
        let answer = send_body(server.port(), &format!("POST {path}"), &["Host: localhost"], &body);
        assert_eq!((answer.status, answer.body.len()), (200, body.len()), "{path}");
    }
    // Content of unknown length that is too long for FastCGI.
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    let head = "POST /fastcgi HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut stream = connect(server.port());
    stream.write_all(format!("{head}{chunked}").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with(&body), "{}", &answer[..100]);
    // Caddy: a body that an upstream has received is not there any more. Without it the request would be another one.
    assert_eq!(send_body(server.port(), "POST /taken", &["Host: localhost"], "body").status, 502);
    let mut stream = connect(server.port());
    let head = format!("POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    let next = "POST /second HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnext";
    stream.write_all(head.as_bytes()).unwrap();
    // The response to the first request comes before its body.
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 502");
    stream.write_all(format!("{body}{next}").as_bytes()).unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("HTTP/1.1 200 OK\r\n") && rest.ends_with("next"), "{rest}");
}

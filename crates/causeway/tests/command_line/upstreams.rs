//! Upstreams that fail and return: retries, and health checks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;
use serde_json::{Value, json};

use crate::client::{get, send};
use crate::process::{Folder, ServerProcess};

/// Timeout after which a test fails instead of hanging.
const PATIENCE: Duration = Duration::from_secs(20);

/// Starts an upstream that responds with its name.
fn upstream(folder: &Folder, name: &str, port: u16) -> ServerProcess {
    let file = format!("{name}/Caddyfile");
    folder.write(&file, format!("http://:{port} {{\n\tbind 127.0.0.1\n\trespond {name}\n}}\n"));
    folder.start(&["run", "--config", &file])
}

fn proxy(folder: &Folder, upstreams: [u16; 2], options: &str) -> ServerProcess {
    let [a, b] = upstreams;
    let site =
        format!("http://:0 {{\n\tbind 127.0.0.1\n\treverse_proxy 127.0.0.1:{a} 127.0.0.1:{b} {{\n{options}\n}}\n}}\n");
    folder.write("Caddyfile", site);
    folder.start(&["run", "--workers", "2"])
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// Caddy, `lb_retries` and `fail_duration`: of two upstreams one is killed under load and returns. No client sees a failure.
#[test]
fn an_upstream_that_is_killed_under_load() {
    let (folder, ports) = (Folder::new(), [free_port(), free_port()]);
    let first = upstream(&folder, "a", ports[0]);
    let _second = upstream(&folder, "b", ports[1]);
    let server = proxy(&folder, ports, "lb_policy round_robin\nlb_retries 2\nfail_duration 200ms");
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
        let _first = upstream(&folder, "a", ports[0]);
        until("the first upstream responds again", || of("a"));
        is_over.store(true, Ordering::Relaxed);
        assert!(clients.into_iter().all(|client| client.join().unwrap() > 0));
    });
}

// Caddy, `health_uri`: an upstream that fails its checks gets no requests, without a client noticing, until it passes again.
#[test]
fn an_upstream_that_is_checked() {
    let (folder, ports) = (Folder::new(), [free_port(), free_port()]);
    let first = upstream(&folder, "a", ports[0]);
    let _second = upstream(&folder, "b", ports[1]);
    let mut server = proxy(&folder, ports, "lb_policy first\nhealth_uri /\nhealth_interval 50ms\nhealth_timeout 5s");
    let (port, admin) = (server.port(), server.admin_port());
    assert_eq!(get(port, "/").body, "a");
    drop(first);
    let address = format!("127.0.0.1:{}", ports[0]);
    let line = server.line_with("an upstream gets no requests: its active health check fails");
    assert!(line.contains(&address) && line.contains("connection refused"), "{line}");
    assert_eq!(get(port, "/").body, "b");
    let ask = |path: &str| send(admin, &format!("GET {path}"), &[&format!("Host: localhost:{admin}")]).body;
    let shown: Value = serde_json::from_str(&ask("/reverse_proxy/upstreams")).unwrap();
    let entry = |port: u16| json!({ "address": format!("127.0.0.1:{port}"), "num_requests": 0, "fails": 0 });
    assert_eq!(shown, json!([entry(ports[0]), entry(ports[1])]));
    let metrics = ask("/metrics");
    let metric = format!("caddy_reverse_proxy_upstreams_healthy{{upstream=\"{address}\"}} 0");
    assert!(metrics.contains(&metric), "{metrics}");
    let _first = upstream(&folder, "a", ports[0]);
    server.line_with("an upstream is healthy again");
    assert_eq!(get(port, "/").body, "a");
}

// Caddy, `lb_try_duration`: a request waits for an upstream that is being restarted.
#[test]
fn a_request_that_waits_for_its_upstream() {
    let (folder, ports) = (Folder::new(), [free_port(), free_port()]);
    let server = proxy(&folder, ports, "lb_try_duration 15s\nlb_try_interval 20ms");
    let port = server.port();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| get(port, "/"));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!waiting.is_finished());
        let _first = upstream(&folder, "a", ports[0]);
        assert_eq!(waiting.join().unwrap().body, "a");
    });
}

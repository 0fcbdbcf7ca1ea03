//! Limits of several servers in Redis.

use std::process::Command;

use causeway_testkit::ports::free_port;
use rustix::process::Signal;

use crate::client::{get, send};
use crate::http2::program;
use crate::process::{Directory, ServerProcess, wait_until};
use crate::redis::RedisProcess;

/// A site that allows this number of requests to each path and field `Key`, in a window that outlasts the test.
fn caddyfile(redis: &str, events: u32, window: &str) -> String {
    format!(
        "{{\n\tauto_https off\n}}\nhttp://localhost:0 {{\n\trate_limit {{\n\t\tredis {redis}\n\t\tzone z {{\n\t\t\tkey {{path}}{{header.Key}}\n\
         \t\t\twindow {window}\n\t\t\tevents {events}\n\t\t}}\n\t}}\n\trespond ok\n}}\n"
    )
}

struct Fleet {
    _directory: Directory,
    servers: [ServerProcess; 2],
}

impl Fleet {
    fn start(caddyfile: &str) -> Self {
        let directory = Directory::with(&[("Caddyfile", caddyfile)]);
        let servers = [(); 2].map(|()| directory.start(&["run"]));
        Self { _directory: directory, servers }
    }

    #[track_caller]
    fn get(&self, server: usize, path: &str) -> u16 {
        get(self.servers[server].port(), path).status
    }

    /// Sends requests to a server until it refuses one. Returns how many it has served.
    #[track_caller]
    fn fill(&self, server: usize, path: &str) -> usize {
        std::iter::repeat_with(|| self.get(server, path)).take(10_000).take_while(|status| *status == 200).count()
    }
}

/// The sum of all counters in Redis.
fn counted(redis: &RedisProcess) -> u32 {
    let value = |key: &String| redis.run_command(&format!("GET {key}")).nth(1).unwrap().parse::<u32>().unwrap();
    redis.keys("causeway/rate_limit/*").iter().map(value).sum()
}

// docs/caddyfile.md, Rate limits: servers with the same zone in one Redis share the limit.
#[test]
fn two_servers_share_a_limit() {
    let Some(redis) = RedisProcess::start() else { return };
    let fleet = Fleet::start(&caddyfile(&format!("127.0.0.1:{}", redis.port), 5, "1h"));
    assert_eq!(fleet.fill(0, "/a"), 5, "exact for one server");
    wait_until("the events are in Redis", || counted(&redis) == 5);
    // The first request is admitted without knowledge of the others, and leads to it.
    assert_eq!(fleet.get(1, "/a"), 200);
    wait_until("the other server knows", || fleet.get(1, "/a") == 429);
    let retry_after: u64 = get(fleet.servers[1].port(), "/a").field("Retry-After").unwrap().parse().unwrap();
    assert!((1..=7200).contains(&retry_after), "{retry_after}");
    assert!(counted(&redis) <= 10, "a server never admits more than the limit of its own");
    assert_eq!(fleet.get(1, "/b"), 200, "another key");
    assert!(
        redis.keys("*").iter().all(|key| key.starts_with("causeway/rate_limit/z/3600000/")),
        "{:?}",
        redis.keys("*")
    );
    let key = &redis.keys("*")[0];
    let left: u64 =
        redis.run_command(&format!("PTTL {key}")).next().unwrap().strip_prefix(':').unwrap().parse().unwrap();
    assert!(left <= 7_200_000, "{left}");
}

// Keys are any bytes: those of a field, with bytes that are no UTF-8 and with a line's end of Redis's protocol in
// percent signs.
#[test]
fn keys_of_any_bytes() {
    let Some(redis) = RedisProcess::start() else { return };
    let fleet = Fleet::start(&caddyfile(&format!("redis://127.0.0.1:{}/2", redis.port), 1, "1000h"));
    let port = |server: usize| fleet.servers[server].port();
    let long = "x".repeat(4000);
    for (number, key) in ["a\u{e9}\u{fffd} *$ \\x00", "%0D%0A*1", "{path}", &long].iter().enumerate() {
        let status = |server| send(port(server), "GET /%00%ff", &["Host: localhost", &format!("Key: {key}")]).status;
        assert_eq!(status(0), 200, "{key}");
        let keys = || redis.run_command("SELECT 2\r\nDBSIZE").nth(1).unwrap();
        wait_until("the key is in Redis", || keys() == format!(":{}", number + 1));
        status(1);
        wait_until("the other server knows", || status(1) == 429);
    }
}

// Without Redis each server has the limit for itself, and logs one line. When Redis is back, each logs one line, and
// both share the limit.
#[test]
fn redis_restarts() {
    let Some(mut redis) = RedisProcess::start() else { return };
    let mut fleet = Fleet::start(&caddyfile(&format!("127.0.0.1:{}", redis.port), 5, "1h"));
    let admin = fleet.servers[0].admin_port();
    let is_up = |number: u8| {
        let line = format!("causeway_rate_limit_redis_up{{server=\"redis://127.0.0.1:{}/0\"}} {number}\n", redis.port);
        move || send(admin, "GET /metrics", &[&format!("Host: localhost:{admin}")]).body.contains(&line)
    };
    let (is_up, is_down) = (is_up(1), is_up(0));
    assert_eq!(fleet.fill(0, "/a"), 5);
    wait_until("the events are in Redis", || counted(&redis) == 5);
    assert!(is_up());
    redis.kill();
    assert_eq!([fleet.fill(0, "/b"), fleet.fill(1, "/b")], [5, 5], "each for itself");
    assert_eq!(fleet.fill(0, "/b"), 0);
    let place = format!("redis://127.0.0.1:{}/0: limits are not shared: ", redis.port);
    for server in &mut fleet.servers {
        let line = server.line_with("limits are");
        assert!(line.contains(&place) && line.contains("; each server limits for itself"), "{line}");
    }
    wait_until("the metric is 0", is_down);
    redis.resume();
    for server in &mut fleet.servers {
        let line = server.line_with("limits are");
        assert!(line.contains(": limits are shared again"), "said once: {line}");
    }
    wait_until("the metric is 1", is_up);
    // The events of the time without Redis are sent, as they are still in the window.
    wait_until("the events are in Redis", || counted(&redis) >= 10);
    assert_eq!(fleet.fill(0, "/c"), 5);
    wait_until("the events are in Redis", || counted(&redis) >= 15);
    fleet.get(1, "/c");
    wait_until("the other server knows", || fleet.get(1, "/c") == 429);
}

// A Redis that is frozen with an open connection, as in a suspended virtual machine: requests do not wait for it.
#[test]
fn redis_is_frozen() {
    let Some(redis) = RedisProcess::start() else { return };
    let mut fleet = Fleet::start(&caddyfile(&format!("127.0.0.1:{}", redis.port), 5, "1h"));
    fleet.get(0, "/a");
    wait_until("the event is in Redis", || counted(&redis) == 1);
    redis.signal(Signal::STOP);
    assert_eq!([fleet.fill(0, "/b"), fleet.fill(1, "/b")], [5, 5], "each for itself");
    let line = fleet.servers[0].line_with("limits are");
    assert!(line.contains("limits are not shared: no response within 2 s"), "{line}");
    redis.signal(Signal::CONT);
    let line = fleet.servers[0].line_with("limits are");
    assert!(line.contains(": limits are shared again"), "{line}");
    // A round that Redis received before and after the freeze may count twice.
    wait_until("the events are in Redis", || counted(&redis) >= 11);
}

// With a password that Redis refuses, each server has the limit for itself. The log does not contain the password.
#[test]
fn a_bad_password() {
    let Some(redis) = RedisProcess::start_with(&["--requirepass", "s3cret"]) else { return };
    let mut fleet = Fleet::start(&caddyfile(&format!("redis://:wr0ng@127.0.0.1:{}", redis.port), 2, "1h"));
    assert_eq!([fleet.fill(0, "/"), fleet.fill(1, "/")], [2, 2]);
    let line = fleet.servers[0].line_with("limits are not shared");
    assert!(line.contains("WRONGPASS") || line.contains("assword"), "{line}");
    assert!(!line.contains("wr0ng"), "{line}");
    let good = Fleet::start(&caddyfile(&format!("redis://default:s3cret@127.0.0.1:{}", redis.port), 2, "1h"));
    assert_eq!(good.fill(0, "/"), 2);
    good.get(1, "/");
    wait_until("the other server knows", || good.get(1, "/") == 429);
}

// `rediss://`: the certificate of Redis is checked against the system's roots, which SSL_CERT_FILE replaces.
#[test]
fn redis_with_tls() {
    let Some(openssl) = program("openssl") else { return };
    let directory = Directory::new();
    let mut make = Command::new(openssl);
    make.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key"]);
    make.args(["-out", "certificate", "-subj", "/CN=redis", "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1"]);
    make.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    let made = make.current_dir(directory.path("")).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let (port, certificate, key) = (free_port(), directory.path("certificate"), directory.path("key"));
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let arguments = ["--tls-port", &port.to_string(), "--tls-auth-clients", "no", "--tls-cert-file", certificate];
    let Some(redis) = RedisProcess::start_with(&[&arguments[..], &["--tls-key-file", key]].concat()) else { return };
    directory.write("Caddyfile", caddyfile(&format!("rediss://127.0.0.1:{port}"), 2, "1h"));
    let mut trusting = directory.command(&["run"]);
    trusting.env("SSL_CERT_FILE", certificate);
    let trusting = ServerProcess::start(trusting);
    assert_eq!(get(trusting.port(), "/").status, 200);
    wait_until("the event is in Redis", || counted(&redis) == 1);
    let mut other = directory.start(&["run"]);
    assert_eq!(get(other.port(), "/").status, 200);
    let line = other.line_with("limits are not shared");
    assert!(line.contains("certificate"), "{line}");
}

// A server that restarts, as after an upgrade: the events that its predecessor counted are in Redis. A reload keeps
// them too.
#[test]
fn events_outlive_a_server() {
    let Some(redis) = RedisProcess::start() else { return };
    let directory = Directory::with(&[("Caddyfile", &*caddyfile(&format!("127.0.0.1:{}", redis.port), 3, "1h"))]);
    let mut former = directory.start(&["run"]);
    let admin = former.admin_port();
    assert_eq!([(); 3].map(|()| get(former.port(), "/").status), [200; 3]);
    let address = format!("localhost:{admin}");
    let reloaded = directory.output(&["reload", "--config", "Caddyfile", "--force", "--address", &address]);
    assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
    assert_eq!(get(former.port(), "/").status, 429);
    wait_until("the events are in Redis", || counted(&redis) == 3);
    drop(former);
    let next = directory.start(&["run"]);
    get(next.port(), "/");
    wait_until("the events are known", || get(next.port(), "/").status == 429);
}

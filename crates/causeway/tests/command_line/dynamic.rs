//! Dynamic upstreams of `reverse_proxy`, with a DNS server of our own.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use causeway_testkit::ports::free_port;

use crate::client::get;
use crate::process::{Directory, ServerProcess};

/// Timeout after which a test fails instead of hanging.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The addresses that `app.test` has.
type Addresses = Arc<Mutex<Vec<[u8; 4]>>>;

/// Serves DNS (RFC 1035): addresses for `app.test`, one service at `_http._tcp.test` with this port. Without addresses
/// it answers SERVFAIL.
fn dns(addresses: &Addresses, service_port: u16) -> u16 {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = socket.local_addr().unwrap().port();
    let addresses = Arc::clone(addresses);
    std::thread::spawn(move || {
        let mut bytes = [0; 512];
        while let Ok((len, client)) = socket.recv_from(&mut bytes) {
            let end = 12 + bytes[12..len].iter().position(|&byte| byte == 0).unwrap() + 5;
            let kind = bytes[end - 3];
            let found = addresses.lock().unwrap().clone();
            let records: Vec<Vec<u8>> = match kind {
                1 => found.iter().map(|ip| ip.to_vec()).collect(),
                33 if !found.is_empty() => {
                    let target = b"\x03app\x04test\0";
                    vec![[&[0, 1, 0, 1], &service_port.to_be_bytes()[..], target].concat()]
                }
                _ => Vec::new(),
            };
            let code = if found.is_empty() { 2 } else { 0 };
            let mut answer = [&bytes[..2], &[0x81, 0x80 | code, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]].concat();
            answer.extend(&bytes[12..end]);
            for record in records {
                answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 1, 0, record.len() as u8]);
                answer.extend(record);
            }
            socket.send_to(&answer, client).unwrap();
        }
    });
    port
}

fn upstream(directory: &Directory, host: &str, port: u16) -> ServerProcess {
    let file = format!("{host}/Caddyfile");
    directory.write(&file, format!("http://:{port} {{\n\tbind {host}\n\trespond {host}\n}}\n"));
    directory.start(&["run", "--config", &file])
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// Caddy, `dynamic a` and `dynamic srv`: the upstreams follow DNS; one that is killed is left out; a failure of DNS is
// 503, or with `grace_period` has no effect.
#[test]
fn upstreams_follow_dns() {
    let (directory, port) = (Directory::new(), free_port());
    let addresses: Addresses = Arc::default();
    let dns = dns(&addresses, port);
    let set = |found: &[u8]| *addresses.lock().unwrap() = found.iter().map(|&last| [127, 0, 0, last]).collect();
    let mut two = Some(upstream(&directory, "127.0.0.2", port));
    let _three = upstream(&directory, "127.0.0.3", port);
    directory.write(
        "Caddyfile",
        format!(
            "http://:0 {{\nbind 127.0.0.1\n\
             reverse_proxy /a {{\ndynamic a {{\nname app.test\nport {port}\nrefresh 10ms\nresolvers 127.0.0.1:{dns}\n}}\n\
             lb_policy round_robin\nlb_retries 2\nfail_duration 10s\n}}\n\
             reverse_proxy /srv {{\ndynamic srv _http._tcp.test {{\nrefresh 10ms\ngrace_period 1h\nresolvers 127.0.0.1:{dns}\n}}\n\
             transport http {{\nresolvers 127.0.0.1:{dns}\n}}\n}}\n}}\n"
        ),
    );
    let server = directory.start(&["run", "--workers", "2"]);
    let body = |path: &str| get(server.port(), path).body;
    assert_eq!(get(server.port(), "/a").status, 503, "DNS fails");
    set(&[2]);
    until("the upstream is found", || body("/a") == "127.0.0.2");
    set(&[3]);
    until("the upstreams follow DNS", || body("/a") == "127.0.0.3");
    assert_eq!(body("/srv"), "127.0.0.3");
    set(&[2, 3]);
    until("both get requests", || body("/a") == "127.0.0.2");
    drop(two.take());
    for _ in 0..10 {
        assert_eq!(body("/a"), "127.0.0.3", "the killed one is left out");
    }
    set(&[]);
    until("DNS fails", || get(server.port(), "/a").status == 503);
    // The service is cached; the name of its host is resolved only for a new connection, which a worker may need or
    // not.
    until("the grace period", || body("/srv") == "127.0.0.3");
}

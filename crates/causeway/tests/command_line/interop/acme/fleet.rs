//! A fleet: three servers with one storage. A load balancer spreads the connections to one address over them. Pebble
//! verifies each challenge by three connections, so each server has to answer it.

use std::io;
use std::net::{Shutdown, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::redis::RedisProcess;

/// Forwards connections to `port` to the backends in turn, until the test program ends. Returns the number of
/// connections so far.
fn balance(port: u16, backends: [u16; 3]) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for client in listener.incoming().map(Result::unwrap) {
            let backend = backends[counted.fetch_add(1, Ordering::Relaxed) % 3];
            let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, backend)) else { continue };
            for (mut from, mut to) in [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
            }
        }
    });
    count
}

/// Starts three servers with this storage, which obtain one certificate for a site with these properties of its issuer,
/// and serve it.
#[track_caller]
fn check(pebble: &Pebble, properties: &str, storage: &str) {
    let dir = Directory::new();
    let ports = [(); 3].map(|()| free_ports());
    let balanced =
        [balance(pebble.http, ports.map(|[http, _]| http)), balance(pebble.https, ports.map(|[_, https]| https))];
    // Pebble responds to no server before all of them listen.
    pebble.signal(Signal::STOP);
    let servers: Vec<_> = (0..3)
        .map(|number| {
            let text = pebble.caddyfile(&dir, ports[number], "", &site_with(FIRST, properties));
            let own = format!("storage file_system {}", dir.path("data").display());
            assert!(text.contains(&own));
            let name = format!("{number}/Caddyfile");
            dir.write(&name, text.replace(&own, if storage.is_empty() { &own } else { storage }));
            dir.start(&["run", "--config", &name])
        })
        .collect();
    pebble.signal(Signal::CONT);
    let begun = Instant::now();
    for [_, https] in ports {
        while pebble.get(FIRST, https) != hello(FIRST) {
            assert!(begun.elapsed() < 2 * TIMEOUT, "no certificate for all servers: {}", pebble.log());
            thread::sleep(Duration::from_millis(50));
        }
    }
    let connections = balanced.map(|count| count.load(Ordering::Relaxed));
    assert!(connections.iter().sum::<usize>() >= 3, "{connections:?}");
    drop(servers);
    assert_eq!((pebble.orders(), pebble.accounts()), (1, 1), "{}", pebble.log());
    if storage.is_empty() {
        // RFC 8555 §8: the challenge was removed when it closed.
        let tokens = dir.path(&format!("data/acme/localhost-{}-dir/challenge_tokens", pebble.directory));
        assert!(!tokens.exists());
    }
}

fn http_only() -> Option<Pebble> {
    Pebble::start(Settings { is_tls_open: false, ..Settings::default() })
}

fn tls_only() -> Option<Pebble> {
    Pebble::start(Settings { is_http_open: false, ..Settings::default() })
}

// CertMagic's `distributedSolver`: any instance with the storage answers the challenge that one of them has begun.
#[test]
fn http_01_with_a_dir() {
    let Some(pebble) = http_only() else { return };
    check(&pebble, "disable_tlsalpn_challenge", "");
}

#[test]
fn tls_alpn_01_with_a_dir() {
    let Some(pebble) = tls_only() else { return };
    check(&pebble, "disable_http_challenge", "");
}

#[test]
fn http_01_with_redis() {
    let (Some(pebble), Some(redis)) = (http_only(), RedisProcess::start()) else { return };
    check(&pebble, "disable_tlsalpn_challenge", &redis.caddyfile());
    assert_eq!(redis.keys("*challenge_tokens*"), [""; 0]);
}

#[test]
fn tls_alpn_01_with_redis() {
    let (Some(pebble), Some(redis)) = (tls_only(), RedisProcess::start()) else { return };
    check(&pebble, "disable_http_challenge", &redis.caddyfile());
    assert_eq!(redis.keys("*challenge_tokens*"), [""; 0]);
}

// A Causeway answers the challenge of a Caddy with the same directory, in acmez's JSON: Caddy's ports are not those
// that Pebble verifies.
#[test]
fn a_challenge_of_caddy() {
    let (Some(caddy), Some(pebble)) = (caddy(), http_only()) else { return };
    // Causeway places no order: no handshake requires the certificate.
    let [ports @ .., permission_port] = free_ports::<3>();
    let options = format!("on_demand_tls {{\n\t\task http://localhost:{permission_port}/\n\t}}");
    let site = site_with(FIRST, "disable_tlsalpn_challenge").replacen("tls {", "tls {\n\t\ton_demand", 1);
    let dir = pebble.dir(&options, &site);
    let other = pebble.dir("", "");
    let text = pebble.caddyfile(&dir, ports, "admin off", &site_with(FIRST, "disable_tlsalpn_challenge"));
    other.write("Caddyfile", text);
    let server = dir.start(&["run"]);
    let mut command = Command::new(caddy);
    command.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]).current_dir(other.path(""));
    command.env("HOME", other.path("")).env_remove("XDG_CONFIG_HOME").env_remove("XDG_DATA_HOME");
    let log = File::create(other.path("caddy.log")).unwrap();
    let _caddy = Caddy(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    let begun = Instant::now();
    while pebble.get(FIRST, ports[1]) != hello(FIRST) {
        let log = || std::fs::read_to_string(other.path("caddy.log")).unwrap();
        assert!(begun.elapsed() < 2 * TIMEOUT, "Caddy does not serve {FIRST}: {}", log());
        thread::sleep(Duration::from_millis(50));
    }
    drop(server);
    assert_eq!(pebble.orders(), 1);
}

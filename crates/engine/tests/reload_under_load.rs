//! Two hundred reloads while clients send requests without pause: no request fails, and no memory of replaced plans
//! remains. In a process of its own, so that no further test changes its memory.

mod support;

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use causeway_pipeline::ListenAddress;

use support::server::{States, loopback};
use support::{TestClient, TestServer};

const RELOADS: usize = 200;
const WORKERS: usize = 2;
/// Clients that keep their connection (`KEEPING`), and clients that open one for each request (`CONNECTING`).
const KEEPING: usize = 4;
const CONNECTING: usize = 2;
/// Names of the plans, in turn.
const NAMES: [&str; 3] = ["one", "two", "three"];

/// Returns the process's resident memory in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux reports it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") * 1024
}

#[derive(Default)]
struct Clients {
    stop: AtomicBool,
    answered: AtomicU64,
    /// Descriptions of wrong responses.
    failed: Mutex<Vec<String>>,
}

impl Clients {
    /// Sends requests until the test stops it. A failure panics and surfaces when the thread is joined.
    fn send_request(&self, address: SocketAddr, keeps: bool) {
        let mut kept = keeps.then(|| TestClient::connect(address));
        while !self.stop.load(Ordering::Relaxed) {
            let mut fresh;
            let client = match &mut kept {
                Some(client) => client,
                None => {
                    fresh = TestClient::connect(address);
                    &mut fresh
                }
            };
            // Unobserved, since the test's own records would grow with every request.
            let target = if keeps { "/plan" } else { "/yield" };
            client.send(format!("GET {target} HTTP/1.1\r\nHost: test\r\nX-Unobserved: 1\r\n\r\n"));
            let answer = client.answer();
            let is_right = if keeps { NAMES.contains(&answer.text()) } else { answer.text() == "yielded" };
            if answer.status != 200 || answer.closes() || !is_right {
                self.failed.lock().unwrap().push(format!("{answer:?}"));
            }
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn two_hundred_reloads_under_load_fail_no_request() {
    let stable = loopback();
    let passing = ListenAddress { host: Some([127, 0, 0, 2].into()), port: 0, zone: 0 };
    let mut server = TestServer::start(|setup| {
        setup.workers = WORKERS;
        (setup.name, setup.states) = (NAMES[0], States::Ballast);
    });
    let address = server.address();
    let clients = Clients::default();
    std::thread::scope(|scope| {
        let clients = &clients;
        let threads: Vec<_> = (0..KEEPING + CONNECTING)
            .map(|number| scope.spawn(move || clients.send_request(address, number < KEEPING)))
            .collect();
        let mut idle = TestClient::connect(address);
        let mut held = server.client();
        let mut settled = (0, server.pools());
        let start = Instant::now();
        for round in 1..=RELOADS {
            // Each plan has different numbers; every second one has one more listener and larger heads.
            let name = NAMES[round % NAMES.len()];
            held.send_request("/outlive");
            server.probe.await_held(1);
            server
                .reload(|setup| {
                    (setup.name, setup.servers_before, setup.states) = (name, round % 5, States::Ballast);
                    if round % 2 == 0 {
                        setup.listen = vec![passing, stable];
                        setup.head.head_bytes_max *= 2;
                    }
                })
                .unwrap();
            assert_eq!(idle.get("/plan").text(), name, "round {round}");
            server.probe.release();
            assert_eq!(held.answer().text(), NAMES[(round - 1) % NAMES.len()], "round {round}");
            if round == RELOADS / 4 {
                settled = (resident_bytes(), server.pools());
            }
        }
        let took = start.elapsed();
        clients.stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().expect("every request was answered");
        }
        server.await_plans(1);
        let answered = clients.answered.load(Ordering::Relaxed);
        let (pools, resident) = (server.pools(), resident_bytes());
        println!("{RELOADS} reloads in {took:?} with {answered} requests; {settled:?}, then {resident}, {pools:?}");
        assert!(answered > RELOADS as u64, "{answered} requests are no load");
        // Requests that coincide by chance may need one more slot or block; reloads themselves need none.
        let (first, then) = (settled.1, pools);
        let most = (KEEPING + CONNECTING + 2) as u64 * 4;
        assert!(then.iter().zip(first).all(|(then, first)| then - first <= most), "{first:?}, then {then:?}");
        let grown = resident.saturating_sub(settled.0);
        assert!(grown < 12 * 1024 * 1024, "{grown} bytes more than after {} reloads", RELOADS / 4);
    });
    assert_eq!(*clients.failed.lock().unwrap(), Vec::<String>::new());
    assert_eq!(server.probe.ballasts(), WORKERS, "the states of older plans are freed with them");
}

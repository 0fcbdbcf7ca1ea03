//! A large answer to a slow reader: memory stays bounded. In a process of its own, whose memory nothing else moves.

mod support;

use std::io::Read;

use causeway_pipeline::Ending;

use support::{Client, Server, octet_at};

const LARGE: u64 = 50 * 1024 * 1024;

/// Octets of memory that this process holds: peak since the last [`forget_peak`].
fn peak_octets() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux tells it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") * 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Reads a large streamed answer slowly: in small pieces through a small receive buffer.
#[track_caller]
fn read_slowly(client: &mut Client, len: u64) {
    let mut octets = vec![0; 16 * 1024];
    let mut at = 0;
    while at < len {
        let read = client.stream.read(&mut octets).expect("the answer goes on");
        assert!(read > 0, "the answer ends at {at}");
        for octet in &octets[..read] {
            assert_eq!(*octet, octet_at(at), "at {at}");
            at += 1;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_slow_reader_of_a_large_answer_costs_no_memory() {
    let server = Server::start(|_| ());
    forget_peak();
    let before = peak_octets();
    let mut client = server.client();
    client.ask(&format!("/octets/{LARGE}"));
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.stream.read_exact(&mut octet).unwrap();
        head.push(octet[0]);
    }
    read_slowly(&mut client, LARGE);
    let grown = peak_octets() - before;
    assert!(grown < 8 * 1024 * 1024, "{grown} octets more than before");
    let outcome = server.probe.outcome(&format!("/octets/{LARGE}"));
    assert_eq!((outcome.sent, outcome.ending), (LARGE, Ending::Complete));
}

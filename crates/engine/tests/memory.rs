//! Memory stays bounded while a slow client reads a large response. In a process of its own, so that no further test
//! changes its memory.

mod support;

use std::io::Read;

use causeway_pipeline::Ending;

use support::{TestClient, TestServer, byte_at};

const LARGE: u64 = 50 * 1024 * 1024;

/// Returns the process's peak resident memory in bytes since the last [`forget_peak`].
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux reports it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") * 1024
}

fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

/// Reads a large streamed response slowly: in small pieces through a small receive buffer.
#[track_caller]
fn read_slowly(client: &mut TestClient, len: u64) {
    let mut bytes = vec![0; 16 * 1024];
    let mut at = 0;
    while at < len {
        let read = client.stream.read(&mut bytes).expect("the response continues");
        assert!(read > 0, "the response ends at {at}");
        for byte in &bytes[..read] {
            assert_eq!(*byte, byte_at(at), "at {at}");
            at += 1;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_slow_reader_of_a_large_response_needs_no_memory() {
    let server = TestServer::start(|_| ());
    forget_peak();
    let before = peak_bytes();
    let mut client = server.client();
    client.send_request(&format!("/bytes/{LARGE}"));
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    read_slowly(&mut client, LARGE);
    let grown = peak_bytes() - before;
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes more than before");
    let outcome = server.probe.outcome(&format!("/bytes/{LARGE}"));
    assert_eq!((outcome.sent, outcome.ending), (LARGE, Ending::Complete));
}

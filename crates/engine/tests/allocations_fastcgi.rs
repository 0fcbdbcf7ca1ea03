//! A request over FastCGI has a connection of its own, which allocates; this bounds by how much. The request, its
//! content and its response allocate nothing: a hundred times the content takes no more.

mod support;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use causeway_pipeline::FastCgi;
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread};
use support::TestServer;
use support::forward::override_transport;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// The most allocations of one request: its connection's task, link, machine and buffers.
const ALLOCATIONS_MAX: u64 = 16;
const ROUND: u64 = 20;

/// Reads a request up to the end of STDIN, and responds with the requested number of records of 1000 bytes.
fn serve(mut stream: TcpStream) {
    let mut bytes = [0; 70_000];
    let mut len = 0;
    while !bytes[..len].ends_with(&[1, 5, 0, 1, 0, 0, 0, 0]) {
        let read = stream.read(&mut bytes[len..]).unwrap();
        assert!(read > 0, "a whole request");
        len += read;
    }
    stream.write_all(b"\x01\x06\x00\x01\x00\x09\x00\x00X-A: 1\n\n\n").unwrap();
    // As many records as the request has kilobytes.
    for _ in 0..=len / 1024 {
        let mut record = [b'x'; 1008];
        record[..8].copy_from_slice(&[1, 6, 0, 1, 0x03, 0xe8, 0, 0]);
        stream.write_all(&record).unwrap();
    }
    stream.write_all(&[1, 3, 0, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap();
}

#[test]
fn a_connection_for_each_request() {
    exempt_this_thread();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        exempt_this_thread();
        listener.incoming().for_each(|stream| serve(stream.unwrap()));
    });
    override_transport(address.port(), &address.to_string(), |transport| {
        transport.fastcgi = Some(FastCgi::default());
        transport.idle_timeout = Duration::ZERO;
    });
    let server = TestServer::start(|_| {});
    let mut client = server.client();
    let target = format!("/forward/{}", address.port());
    let mut fewest = |content: usize| {
        let content = support::bytes(content);
        let mut round = || {
            for _ in 0..ROUND {
                let head = format!("POST {target} HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\nContent-Length: ");
                client.send(format!("{head}{}\r\n\r\n", content.len()));
                client.send(&content);
                let answer = client.answer();
                assert_eq!(answer.status, 200);
            }
        };
        // The pools grow at first, and later depending on timing.
        let counts: Vec<u64> = (0..20).map(|_| allocations_during(&mut round)).collect();
        println!("{} bytes: {counts:?}", content.len());
        *counts.iter().min().unwrap()
    };
    let (small, large) = (fewest(500), fewest(50_000));
    assert!(small > 0, "the allocator is counting");
    assert!(small <= ROUND * ALLOCATIONS_MAX, "{small} in {ROUND} requests");
    assert!(large <= small + ROUND, "{large} in {ROUND} requests with a hundred times the content, {small} without");
}

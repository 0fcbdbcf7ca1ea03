//! Steady-state forwarded requests and their responses allocate no memory.

mod support;

use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};

use support::origin::Origin;
use support::scribe::SCRIBE;
use support::{TestClient, TestServer};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

fn http1(client: &mut TestClient, target: &str, bytes: &[u8]) {
    client.send(format!("GET {target}/fixed HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\n\r\n"));
    assert_eq!(client.answer().text(), "fixed");
    client.send(format!("GET {target}/chunk/{} HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\n\r\n", bytes.len()));
    assert_eq!(client.answer().body.len(), bytes.len());
    let len = bytes.len();
    // The handler responds after reading the content: an earlier response may close the connection.
    client
        .send(format!("POST {target}/collect HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\nContent-Length: {len}\r\n\r\n"));
    client.send(bytes);
    assert_eq!(client.answer().status, 200);
}

/// Runs rounds, and asserts that five in a row allocate no memory: the pools' growth depends on timing.
#[track_caller]
fn settles(why: &str, mut round: impl FnMut()) {
    let counts: Vec<u64> = (0..30).map(|_| allocations_during(&mut round)).collect();
    println!("{why}: {counts:?}");
    assert!(
        counts.windows(5).any(|five| five.iter().all(|count| *count == 0)),
        "{why}: {counts:?}; from {:#?}",
        sites()
    );
}

#[test]
fn proxied_requests() {
    exempt_this_thread();
    let (proxy, origin) = (TestServer::start(|_| {}), TestServer::start(|_| {}));
    let port = origin.address().port();
    let rounds = [("forward", false), ("forward2", false), ("forward", true), ("forward2", true)];
    for (way, is_profiled) in rounds {
        if is_profiled {
            let _ = progress::install(&SCRIBE);
            progress::set_attention(progress::Attention::Everything);
        }
        let target = format!("/{way}/{port}");
        let mut client = proxy.client();
        // Checks that the counter covers the workers: a streamed response boxes its stream.
        let seen = allocations_during(|| drop(client.get(&format!("{target}/chunks/1"))));
        assert!(seen > 0, "the allocator is not counting");
        settles(&format!("HTTP/1.1 to {way}, a profile: {is_profiled}"), || {
            (0..50).for_each(|number| http1(&mut client, &target, &support::bytes(number * 487 % 20_000)));
        });
    }
    let target = format!("/forward/{port}");
    let mut client = proxy.client();
    let long = support::bytes(200_000);
    settles("long uploads", || {
        for _ in 0..4 {
            let len = long.len();
            let head = format!(
                "POST {target}/collect HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\nContent-Length: {len}\r\n\r\n"
            );
            client.send(head);
            client.send(&long);
            assert_eq!(client.answer().status, 200);
        }
    });
    // From a script: a handler of these tests allocates a chunk that is longer than a block.
    let content = long.clone();
    let script = Origin::with(vec![Box::new(move |peer| {
        exempt_this_thread();
        while peer.try_head().is_some() {
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", content.len()));
            peer.send(&content);
        }
    })]);
    settles("long downloads", || {
        for _ in 0..4 {
            client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\nX-Unobserved: 1\r\n\r\n", script.target()));
            assert!(client.answer().body == long);
        }
    });
    assert!(SCRIBE.hook_calls() > 1000);
    progress::set_attention(progress::Attention::Nothing);
    let target = format!("/forward/{port}/fixed");
    let mut wire = causeway_testkit::http2::Wire::connect(proxy.address(), &[]).unwrap();
    let mut stream = 1;
    settles("HTTP/2 to forward", || {
        use causeway_testkit::http2::{flag, get, kind, literal};
        for number in 0..50_usize {
            let mut block = get(&target);
            literal(&mut block, b"x-unobserved", b"1");
            let content = support::bytes(number * 61 % 10_000);
            block[0] = 0x83;
            wire.put(kind::HEADERS, flag::END_HEADERS, stream, &block);
            wire.put(kind::DATA, flag::END_STREAM, stream, &content);
            wire.flush().unwrap();
            loop {
                let frame = wire.receive().unwrap().expect("the connection continues");
                if frame.stream == stream && frame.flags & flag::END_STREAM != 0 && frame.kind < 2 {
                    break;
                }
            }
            // Returns the received bytes to the connection's window.
            wire.put(kind::WINDOW_UPDATE, flag::NONE, 0, &5_u32.to_be_bytes());
            stream += 2;
        }
    });
}

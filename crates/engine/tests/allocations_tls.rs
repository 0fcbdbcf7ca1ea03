//! Steady-state requests over TLS allocate no memory.

mod support;

use std::sync::Arc;

use causeway_pipeline::{TlsPolicy, TlsSpec};
use causeway_testkit::counting::CountingAllocator;
use causeway_testkit::counting::everywhere::{allocations_during, exempt_this_thread, sites};

use support::TestServer;
use support::tls::{Authority, Store, VERSIONS, connect};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[test]
fn requests_over_tls() {
    exempt_this_thread();
    let authority = Authority::new();
    let store = Arc::new(Store::default());
    store.put("test", "", authority.sign(&["test"]));
    let server = TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    for version in VERSIONS {
        let config = Arc::new(authority.client(&[version]));
        let mut client = connect(server.address(), &config, "test");
        // Checks that the counter covers the worker: a streamed response boxes its stream.
        let seen = allocations_during(|| drop(client.get("/chunks/1")));
        assert!(seen > 0, "the allocator is not counting");
        // A request that arrives before the previous exchange is recycled needs a second slot. Which requests do
        // depends on the machine's load, so both slots are made now.
        client.send("GET /chunk/59999 HTTP/1.1\r\nHost: test\r\n\r\n".repeat(2));
        for _ in 0..2 {
            assert_eq!(client.answer().body.len(), 59_999);
        }
        let mut round = |count: usize| {
            for number in 0..count {
                client.send("GET /fixed HTTP/1.1\r\nHost: test\r\nX-Unobserved: 1\r\n\r\n");
                assert_eq!(client.answer().text(), "fixed");
                let len = number * 97 % 60_000;
                client.send(format!("GET /chunk/{len} HTTP/1.1\r\nHost: test\r\nX-Unobserved: 1\r\n\r\n"));
                assert_eq!(client.answer().body.len(), len);
                client.send(format!(
                    "POST /fixed HTTP/1.1\r\nHost: test\r\nX-Unobserved: 1\r\nContent-Length: {len}\r\n\r\n"
                ));
                client.send(support::bytes(len));
                assert_eq!(client.answer().text(), "fixed");
            }
        };
        round(300);
        let count = allocations_during(|| round(300));
        assert_eq!(count, 0, "{version:?}; allocated by {:#?}", sites());
    }
}

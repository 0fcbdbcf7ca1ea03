//! Over TLS too, a request allocates nothing once its worker has served its like.

mod support;

use std::sync::Arc;

use causeway_pipeline::{TlsPolicy, TlsSpec};
use causeway_testkit::counting::everywhere::{Counting, allocations_during, exempt_this_thread, sites};

use support::Server;
use support::tls::{Authority, Store, VERSIONS, connect};

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn requests_over_tls() {
    exempt_this_thread();
    let authority = Authority::new();
    let store = Arc::new(Store::default());
    store.put("test", "", authority.sign(&["test"]));
    let server = Server::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    for version in VERSIONS {
        let config = Arc::new(authority.client(&[version]));
        let mut client = connect(server.address(), &config, "test");
        // The counter sees the worker: a streamed answer boxes its stream.
        let seen = allocations_during(|| drop(client.get("/chunks/1")));
        assert!(seen > 0, "the allocator is not counting");
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
                client.send(support::octets(len));
                assert_eq!(client.answer().text(), "fixed");
            }
        };
        round(300);
        let count = allocations_during(|| round(300));
        assert_eq!(count, 0, "{version:?}; they came from {:#?}", sites());
    }
}

//! Exchanges that end early: disconnects, faults, aborts, full pools.

use causeway_engine::BlockingSpec;
use causeway_pipeline::Ending;

use crate::support::{ProbeEvent, TestClient, TestServer, bytes};

#[test]
fn a_half_closed_peer_gets_its_response() {
    let server = TestServer::start(|_| ());
    for target in ["/fixed", "/chunks/3000000", "/bytes/3000000"] {
        let mut client = server.client();
        client.send_request(target);
        client.end();
        assert_eq!(client.answer().status, 200, "{target}");
        client.closed();
        assert_eq!(server.probe.outcome(target).ending, Ending::Complete, "{target}");
    }
}

#[track_caller]
fn check_dropped(leave: impl FnOnce(TestClient)) {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send_request("/hold");
    server.probe.await_held(1);
    leave(client);
    server.probe.await_seen(&ProbeEvent::Dropped("hold"));
    let outcome = server.probe.outcome("/hold");
    assert_eq!((outcome.ending, outcome.status, outcome.sent), (Ending::PeerGone, None, 0));
    server.await_connections(0);
}

#[test]
fn a_wait_is_dropped_when_its_peer_closes() {
    check_dropped(drop);
}

#[test]
fn a_wait_is_dropped_when_its_peer_resets() {
    check_dropped(TestClient::reset);
}

#[test]
fn a_wait_is_dropped_when_its_peer_closes_after_pipelining() {
    check_dropped(|mut client| client.send_request("/fixed"));
}

#[test]
fn a_disconnect_during_the_request_body_is_noticed() {
    let server = TestServer::start(|_| ());
    for target in ["/collect", "/echo"] {
        let mut client = server.client();
        client.send(format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nabc"));
        client.end();
        // The body's reader gets an error, and may still respond to a peer that has only closed its sending side.
        let outcome = server.probe.outcome(target);
        assert_eq!(outcome.received, 3, "{target}");
        match target {
            "/collect" => assert_eq!(client.answer().status, 500, "the handler's status for a peer that is gone"),
            _ => assert_eq!(outcome.ending, Ending::BodyFailed),
        }
        server.await_connections(0);
    }
}

#[test]
fn a_disconnect_during_the_response_is_noticed() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send_request("/bytes/100000000");
    assert_eq!(client.head().status, 200);
    client.reset();
    let outcome = server.probe.outcome("/bytes/100000000");
    assert_eq!(outcome.ending, Ending::PeerGone);
    assert!(outcome.sent < 100_000_000);
}

#[test]
fn an_abort_closes_without_a_response() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send_request("/abort");
    client.closed();
    let outcome = server.probe.outcome("/abort");
    assert_eq!((outcome.ending, outcome.status), (Ending::Aborted, None));
}

#[test]
fn a_panic_ends_its_connection_only() {
    let server = TestServer::start(|_| ());
    let mut other = server.client();
    other.send_request("/hold");
    server.probe.await_held(1);
    for target in ["/panic-enter", "/panic-wait", "/panic-leave"] {
        let mut client = server.client();
        client.post(target, &bytes(100_000));
        assert_eq!(client.answer().status, 500, "{target}");
        client.closed();
        assert_eq!(server.probe.outcome(target).ending, Ending::Panicked, "{target}");
    }
    server.probe.release();
    assert_eq!(other.answer().text(), "released");
}

#[test]
fn a_full_pool_is_503() {
    let server = TestServer::start(|setup| setup.blocking = BlockingSpec { threads_max: 1, queue_max: 1 });
    let mut clients: Vec<_> = (0..8).map(|_| server.client()).collect();
    clients.iter_mut().for_each(|client| client.send_request("/block"));
    // One job runs, one or two wait (the thread may not have taken the first job when the second was queued), and the
    // remaining ones are refused.
    let mut refused = 0;
    for _ in 0..5 {
        refused += usize::from(server.probe.outcome("/block").status.is_some_and(|status| status.as_u16() == 503));
    }
    assert_eq!(refused, 5, "only refused ones end while the job blocks");
    server.probe.release_blocking();
    let served = clients.iter_mut().map(TestClient::answer).filter(|answer| answer.status == 200);
    assert!((1..=3).contains(&served.count()));
}

#[test]
fn a_malformed_chunk_reaches_the_reader() {
    let server = TestServer::start(|_| ());
    let head = |target| format!("POST {target} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n");
    let mut client = server.client();
    client.send(head("/collect"));
    client.send("3\r\nabc\r\nnonsense\r\n");
    let answer = client.answer();
    assert_eq!(answer.status, 400);
    client.closed();
    let outcome = server.probe.outcome("/collect");
    assert_eq!((outcome.received, outcome.read), (3, 3));

    // A response that has already begun is aborted.
    let mut client = server.client();
    client.send(head("/echo"));
    client.send("3\r\nabc\r\n");
    assert_eq!(client.head().status, 200);
    client.send("nonsense\r\n");
    let (bytes, _) = client.rest();
    assert!(!bytes.ends_with(b"0\r\n\r\n"), "the answer looks whole");
    assert_eq!(server.probe.outcome("/echo").ending, Ending::BodyFailed);

    // Without a reader the response is complete, then the connection ends.
    let mut client = server.client();
    client.send(head("/fixed"));
    client.send("3\r\nabc\r\nnonsense\r\n");
    assert_eq!(client.answer().text(), "fixed");
    client.closed();
}

#[test]
fn no_state_of_a_request_reaches_the_next_one() {
    // Two exchanges share a slot, a hostile one first. The second response must equal that of a fresh server.
    let strange = [
        "GET /fail/500 HTTP/1.1\r\nHost: a\r\nX-Left: over\r\n\r\n",
        "GET /hints HTTP/1.1\r\nHost: b\r\n\r\n",
        "GET /f%69xed?x HTTP/1.1\r\nHost: c\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: d\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nX-Trailer: t\r\n\r\n",
        "POST /drop-body HTTP/1.1\r\nHost: e\r\nContent-Length: 3\r\n\r\nabc",
        "GET /chain/1 HTTP/1.1\r\nHost: f\r\n\r\n",
        "GET /empty/304 HTTP/1.1\r\nHost: g\r\n\r\n",
        "GET /chunks/100000 HTTP/1.1\r\nHost: h\r\n\r\n",
    ];
    let plain = |bytes: &str, client: &mut TestClient| {
        client.send(bytes);
        let mut answer = client.answer();
        answer.fields.retain(|(name, _)| name != "Date");
        answer
    };
    for b in strange {
        let fresh = plain(b, &mut TestServer::start(|_| ()).client());
        let server = TestServer::start(|_| ());
        for a in strange {
            let mut client = server.client();
            plain(a, &mut client);
            assert_eq!(plain(b, &mut client), fresh, "{b} after {a}");
        }
    }
}

// RFC 9110 §15.2: a 1xx response is not final. After a 1xx from a handler the engine adds a 200, as Go does. A 101
// without a tunnel becomes 500.
#[test]
fn a_final_response_is_not_an_interim_one() {
    let server = TestServer::start(|_| ());
    let mut client = server.client();
    for (target, interim, status) in
        [("/empty/103", Some(103), 200), ("/empty/199", Some(199), 200), ("/empty/101", None, 500)]
    {
        client.send_request(target);
        let answer = client.answer();
        let informed = answer.interims.first().map(|(status, _)| *status);
        assert_eq!((informed, answer.status), (interim, status), "{target}");
        assert_eq!(server.probe.outcome(target).status.map(|status| status.as_u16()), Some(status), "{target}");
    }
    client.send_request("/fixed");
    assert_eq!(client.answer().status, 200, "the connection continues");
}

//! Connections after the handshake: content, key updates, and the end.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{ClientAuthentication, ClientAuthenticationMode as Mode, Ending, TlsPolicy};

use super::support::tls::{VERSIONS, connect};
use super::support::{Close, byte_at, bytes};
use super::{SHORT, TlsServerFixture, named, serves};

/// RFC 8446 §4.6.3: either side may update its keys at any time, and request an update from its peer.
#[test]
fn keys_change_during_a_connection() {
    let bench = TlsServerFixture::new(|_| ());
    let mut client = bench.connect(&Arc::new(bench.authority.client(&[&rustls::version::TLS13])));
    serves(&mut client);
    for _ in 0..3 {
        client.stream.conn.refresh_traffic_keys().unwrap();
        client.post("/echo", &bytes(50_000));
        assert_eq!(client.answer().body, bytes(50_000));
    }
}

/// Too many key updates without content end the connection.
#[test]
fn keys_that_change_all_the_time_end_the_connection() {
    let bench = TlsServerFixture::new(|_| ());
    let mut client = bench.connect(&Arc::new(bench.authority.client(&[&rustls::version::TLS13])));
    serves(&mut client);
    for _ in 0..100 {
        client.stream.conn.refresh_traffic_keys().unwrap();
    }
    let _ = client.stream.flush();
    let error = client.stream.read(&mut [0]).unwrap_err().to_string();
    assert_eq!(error, "received fatal alert: UnexpectedMessage");
}

/// docs/limits.md: "a response without progress after its client has closed", while nothing is read.
#[test]
fn a_client_that_is_gone_is_noticed_beside_its_unread_bytes() {
    let bench = TlsServerFixture::new(|_| ());
    let mut client = bench.connect(&Arc::new(bench.authority.client(&[&rustls::version::TLS13])));
    client.send([&b"GET /hold HTTP/1.1\r\nHost: test\r\n\r\n"[..], &bytes(200_000)].concat());
    bench.server.probe.await_held(1);
    socket2::SockRef::from(&client.stream.sock).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(bench.server.probe.outcome("/hold").ending, Ending::PeerGone);
}

#[test]
fn handlers_see_the_negotiated_parameters() {
    let policy = TlsPolicy {
        client: Some(ClientAuthentication { mode: Mode::Request, authorities: vec![], leaves: vec![] }),
        matchers: named(&["named.test"]),
        ..TlsPolicy::default()
    };
    let bench = TlsServerFixture::with_policies(vec![policy, TlsPolicy::default()], |_| ());
    bench.store.put("named.test", "", bench.authority.sign(&["named.test"]));
    let mut config = bench.authority.client(&[&rustls::version::TLS13]);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let config = Arc::new(config);
    for resumed in [false, true] {
        let want = format!("https tls1.3 TLS_AES_256_GCM_SHA384 http/1.1 Some(\"test\") {resumed} None");
        assert_eq!(bench.connect(&config).get("/tls").text(), want);
    }
    let own = bench.authority.sign(&["client"]);
    let len = own.chain[0].len();
    let config = Arc::new(bench.authority.client_with(&[&rustls::version::TLS12], Some(own)));
    let mut client = connect(bench.server.address(), &config, "Named.test");
    let suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let want = format!("https tls1.2 {suite}  Some(\"named.test\") false Some({len})");
    assert_eq!(client.get("/tls").text(), want);
}

#[test]
fn a_peer_that_reads_nothing_is_reset() {
    let bench = TlsServerFixture::new(|setup| setup.timeouts.write.idle = SHORT);
    let mut client = bench.connect(&bench.config());
    client.send_request("/bytes/100000000");
    assert_eq!(bench.server.probe.outcome("/bytes/100000000").ending, Ending::TimedOut);
    let (bytes, close) = client.rest();
    assert!(bytes.len() < 100_000_000);
    assert_eq!(close, Close::Reset);
}

#[test]
fn large_bodies_arrive_complete() {
    const LARGE: usize = 8 * 1024 * 1024;
    let bench = TlsServerFixture::new(|_| ());
    for version in VERSIONS {
        let config = Arc::new(bench.authority.client(&[version]));
        let mut client = bench.connect(&config);
        client.post("/collect", &bytes(LARGE));
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        // The download direction.
        let mut client = bench.connect(&config);
        client.send_request(&format!("/bytes/{LARGE}"));
        client.head();
        let mut at = 0;
        while at < LARGE {
            let piece = client.exactly(50_000.min(LARGE - at));
            assert!(piece.iter().zip(at as u64..).all(|(byte, at)| *byte == byte_at(at)), "at {at}");
            at += piece.len();
            std::thread::yield_now();
        }
        assert_eq!(bench.server.probe.outcome(&format!("/bytes/{LARGE}")).sent, LARGE as u64);
    }
}

/// RFC 8446 §6.1: the server sends close_notify, so that a truncation is not mistaken for the end.
#[test]
fn the_server_sends_close_notify() {
    let bench = TlsServerFixture::new(|_| ());
    let mut client = bench.connect(&bench.config());
    client.send("GET /fixed HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    assert_eq!(client.answer().text(), "fixed");
    assert_eq!(client.rest(), (vec![], Close::End));
    // A large response fills the socket's send buffer, so the close_notify must wait for room.
    let mut client = bench.connect(&bench.config());
    client.send("GET /bytes/8000000 HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
    client.head();
    std::thread::sleep(SHORT);
    let (body, close) = client.rest();
    assert_eq!((body.len(), close), (8_000_000, Close::End));
    // An idle connection ends with close_notify, too.
    let bench = TlsServerFixture::new(|setup| setup.timeouts.keep_alive = SHORT);
    let mut client = bench.connect(&bench.config());
    serves(&mut client);
    assert_eq!(client.rest(), (vec![], Close::End));
}

#[test]
fn a_peer_that_closes_gets_its_pending_response() {
    let bench = TlsServerFixture::new(|_| ());
    // With close_notify, and without.
    for is_notified in [true, false] {
        let mut client = bench.connect(&bench.config());
        client.send_request("/fixed");
        if is_notified {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.answer().text(), "fixed", "{is_notified}");
        assert_eq!(client.rest().1, Close::End);
    }
}

#[test]
fn a_truncated_body_is_incomplete() {
    let bench = TlsServerFixture::new(|_| ());
    for is_notified in [true, false] {
        let mut client = bench.connect(&bench.config());
        client.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nabc");
        if is_notified {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        client.rest();
        let outcome = bench.server.probe.outcome("/collect");
        assert_eq!(outcome.received, 3);
        assert_ne!((outcome.ending, outcome.status.map(|status| status.as_u16())), (Ending::Complete, Some(200)));
    }
}

/// A tunnel's bytes have no framing: only close_notify distinguishes their end from a truncation.
#[test]
fn a_truncated_tunnel_is_reset() {
    let bench = TlsServerFixture::new(|_| ());
    for (is_notified, want) in [(true, Close::End), (false, Close::Reset)] {
        let mut client = bench.connect(&bench.config());
        client.send("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n");
        assert_eq!(client.head().status, 101);
        client.send("hello");
        assert_eq!(client.exactly(5), b"hello");
        if is_notified {
            client.stream.conn.send_close_notify();
            client.stream.flush().unwrap();
        }
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.rest(), (vec![], want), "{is_notified}");
    }
}

#[test]
fn modified_bytes_end_the_connection() {
    let bench = TlsServerFixture::new(|_| ());
    for version in VERSIONS {
        let mut client = bench.connect(&Arc::new(bench.authority.client(&[version])));
        serves(&mut client);
        // A record that was not sealed with the keys.
        client.stream.sock.write_all(&[23, 3, 3, 0, 40]).unwrap();
        client.stream.sock.write_all(&[7; 40]).unwrap();
        let error = client.stream.read(&mut [0]).unwrap_err().to_string();
        assert_eq!(error, "received fatal alert: BadRecordMac", "{version:?}");
        let mut client = bench.connect(&Arc::new(bench.authority.client(&[version])));
        serves(&mut client);
        client.stream.sock.write_all(&[23, 3, 3, 0xff, 0xff]).unwrap();
        let error = client.stream.read(&mut [0]).unwrap_err().to_string();
        assert_eq!(error, "received fatal alert: RecordOverflow", "{version:?}");
    }
    bench.server.await_connections(0);
}

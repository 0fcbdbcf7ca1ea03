//! Handshakes in pieces, with delays, without an end, and bytes that are no handshake.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::support::tls::{ON_DEMAND, VERSIONS, connect, over};
use super::support::{Close, PATIENCE, TestClient, bytes};
use super::{SHORT, TlsServerFixture, client_hello, refused, serves};

/// The response is that of Go's server.
#[test]
fn plain_http_gets_an_explanatory_400() {
    let bench = TlsServerFixture::new(|_| ());
    for start in ["GET / HTTP/1.1\r\n", "POST /a HTTP/1.1\r\n", "OPTIONS * HTTP/1.1\r\n"] {
        let mut client = bench.server.client();
        client.send(format!("{start}Host: test\r\n\r\n"));
        client.end();
        let (bytes, close) = client.rest();
        let want = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";
        assert_eq!((std::str::from_utf8(&bytes), close), (Ok(want), Close::End));
    }
}

#[test]
fn nonsense_is_refused() {
    let bench = TlsServerFixture::new(|_| ());
    let hello = client_hello(&bench.authority, &[&rustls::version::TLS13]);
    let mut cases: Vec<Vec<u8>> = vec![
        vec![0; 100],
        vec![0xff; 40_000],
        b"SSH-2.0-OpenSSH_9.9\r\n".to_vec(),
        // A record without an end, with a message above the length limit.
        [&[22, 3, 1, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &[0; 17_000]].concat(),
        // A message that is not a ClientHello.
        [&[22, 3, 1, 0, 4][..], &[2, 0, 0, 0]].concat(),
    ];
    // A ClientHello with one of its first 60 bytes changed.
    cases.extend((0..60).map(|at| {
        let mut bytes = hello.clone();
        bytes[at] ^= 0xff;
        bytes
    }));
    for bytes in cases {
        let mut client = bench.server.client();
        // The server may have closed before it read everything.
        let _ = client.stream.write_all(&bytes);
        let _ = client.stream.shutdown(Shutdown::Write);
        client.rest();
    }
    bench.server.await_connections(0);
    serves(&mut bench.connect(&bench.config()));
    assert_eq!(bench.server.counts().panics, 0);
}

// RFC 5246 Appendix E.1: a server without a version of the client's sends protocol_version. Clients without TLS 1.2
// send no signature_algorithms (RFC 5246 §7.4.1.4.1).
#[test]
fn a_client_without_tls_1_2() {
    let bench = TlsServerFixture::new(|_| ());
    let hello = |version: u8| {
        let body = [&[3, version][..], &[7; 32], &[0], &[0, 4, 0xc0, 0x14, 0xc0, 0x13], &[1, 0]].concat();
        let len = u8::try_from(body.len()).unwrap();
        [&[22, 3, 1, 0, len + 4, 1, 0, 0, len][..], &body].concat()
    };
    const HANDSHAKE_FAILURE: u8 = 40;
    const PROTOCOL_VERSION: u8 = 70;
    for (version, want) in [(1, PROTOCOL_VERSION), (2, PROTOCOL_VERSION), (3, HANDSHAKE_FAILURE)] {
        let mut client = bench.server.client();
        client.send(hello(version));
        assert_eq!(client.rest().0, [21, 3, 3, 0, 2, 2, want], "{version}");
    }
}

// RFC 8737 §3: an authority offers `acme-tls/1` only. Its handshake waits until the challenge of another server is
// found. A client that offers another protocol too is no authority, and gets the usual certificate.
#[test]
fn a_challenge_of_another_server() {
    let bench = TlsServerFixture::new(|_| ());
    let challenge = bench.authority.sign(&["test"]);
    let (usual, other) = (bench.authority.sign(&["test"]), challenge.chain[0].clone());
    bench.store.put("test", "", usual);
    bench.store.share_challenge("test", challenge);
    for version in VERSIONS {
        for (offered, want) in
            [(&["acme-tls/1"][..], true), (&["acme-tls/1", "http/1.1"], false), (&["http/1.1", "acme-tls/1"], false)]
        {
            let mut config = bench.authority.client(&[version]);
            config.alpn_protocols = offered.iter().map(|name| name.as_bytes().to_vec()).collect();
            let mut client = bench.connect(&Arc::new(config));
            if want {
                // The handshake succeeds, and the connection then ends without a response.
                while client.stream.conn.is_handshaking() {
                    client.stream.conn.complete_io(&mut client.stream.sock).unwrap();
                }
                assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"acme-tls/1"[..]));
            } else {
                serves(&mut client);
            }
            let served = client.stream.conn.peer_certificates().unwrap()[0] == other;
            assert_eq!(served, want, "{version:?} {offered:?}");
        }
        // No server has opened a challenge for this name.
        bench.store.put("none", "", bench.authority.sign(&["none"]));
        let mut config = bench.authority.client(&[version]);
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let error = refused(connect(bench.server.address(), &Arc::new(config), "none"));
        assert!(error.contains("NoApplicationProtocol") || error.contains("no application protocol"), "{error}");
    }
    bench.server.await_connections(0);
}

// docs/limits.md: a handshake that waits for a certificate holds no block, and ends within a second when its
// client is gone.
#[test]
fn clients_that_leave_during_the_wait_for_a_certificate() {
    let bench = TlsServerFixture::new(|_| ());
    let config = Arc::new(bench.authority.client(&VERSIONS));
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = connect(bench.server.address(), &config, ON_DEMAND);
            client.stream.conn.write_tls(&mut client.stream.sock).unwrap();
            client
        })
        .collect();
    let end = Instant::now() + PATIENCE;
    while bench.store.waiting() < 20 || bench.server.counts().blocks_in_use > 0 {
        assert!(Instant::now() < end, "{} wait, {:?}", bench.store.waiting(), bench.server.counts());
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut patient = clients.pop().unwrap();
    // Some close, some only end their side, which a client does not do during a handshake.
    let ended = clients.split_off(10);
    ended.iter().for_each(|client| client.stream.sock.shutdown(Shutdown::Write).unwrap());
    drop(clients);
    bench.server.await_connections(1);
    bench.store.obtain(bench.authority.sign(&[ON_DEMAND]));
    serves(&mut patient);
}

/// A client that sends its ClientHello in two parts, split at `at`.
struct Split {
    tcp: TcpStream,
    at: Option<usize>,
}

impl Read for Split {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.tcp.read(bytes)
    }
}

impl Write for Split {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if let Some(at) = self.at.take() {
            let (first, rest) = bytes.split_at(at.min(bytes.len()));
            self.tcp.write_all(first)?;
            // With this pause the server usually reads the parts separately.
            std::thread::sleep(Duration::from_millis(1));
            self.tcp.write_all(rest)?;
            return Ok(bytes.len());
        }
        self.tcp.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_client_hello_may_arrive_in_parts() {
    let bench = TlsServerFixture::new(|setup| setup.workers = 1);
    let config = Arc::new(bench.authority.client(&[&rustls::version::TLS12]));
    let len = client_hello(&bench.authority, &[&rustls::version::TLS12]).len();
    for at in 1..len {
        let tcp = TestClient::connect(bench.server.address()).stream;
        let tls = rustls::ClientConnection::new(Arc::clone(&config), "test".try_into().unwrap()).unwrap();
        let mut client = TestClient::with(rustls::StreamOwned::new(tls, Split { tcp, at: Some(at) }));
        assert_eq!(client.get("/fixed").text(), "fixed", "split at {at}");
    }
}

#[test]
fn handshake_bytes_may_arrive_one_by_one() {
    struct Drip(TcpStream);
    impl Read for Drip {
        fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
            self.0.read(bytes)
        }
    }
    impl Write for Drip {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.write(&bytes[..bytes.len().min(1)])
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let bench = TlsServerFixture::new(|_| ());
    for version in VERSIONS {
        let tcp = TestClient::connect(bench.server.address()).stream;
        let config = Arc::new(bench.authority.client(&[version]));
        let tls = rustls::ClientConnection::new(config, "test".try_into().unwrap()).unwrap();
        let mut client = TestClient::with(rustls::StreamOwned::new(tls, Drip(tcp)));
        client.post("/echo", &bytes(20_000));
        assert_eq!(client.answer().body, bytes(20_000));
        assert_eq!(client.get("/fixed").text(), "fixed");
    }
}

#[test]
fn an_incomplete_handshake_times_out() {
    let bench = TlsServerFixture::new(|setup| setup.timeouts.head = SHORT);
    let hello = client_hello(&bench.authority, &VERSIONS);
    // No bytes; a part of a ClientHello; a whole one, and no reply to the server's flight.
    for bytes in [&hello[..0], &hello[..20], &hello[..]] {
        let mut client = bench.server.client();
        client.send(bytes);
        client.rest();
    }
    bench.server.await_connections(0);
}

#[test]
fn a_slow_handshake_delays_no_other_client() {
    let bench = TlsServerFixture::new(|_| ());
    let hello = client_hello(&bench.authority, &VERSIONS);
    let mut held: Vec<_> = (0..50).map(|_| bench.server.client()).collect();
    held.iter_mut().for_each(|client| client.send(&hello[..100]));
    let mut client = bench.connect(&bench.config());
    serves(&mut client);
    assert_eq!(bench.server.counts().connections, 51);
}

// A process that another one replaces has accepted the connection of a client whose ClientHello is on its way.
#[test]
fn a_patient_drain_waits_for_a_client_hello() {
    let mut bench = TlsServerFixture::new(|_| ());
    let tcp = bench.server.client();
    bench.server.await_connections(1);
    let (address, config) = (bench.server.address(), bench.config());
    let drained = bench.server.drain_with_idle_grace(PATIENCE);
    // The drain has begun when the socket is closed.
    while TcpStream::connect(address).is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = over(tcp.stream, &config, "test");
    client.send_request("/fixed");
    assert_eq!(client.answer().text(), "fixed");
    drop(client);
    drained.join().unwrap();
}

#[test]
fn a_drain_ends_handshakes_and_connections() {
    let mut bench = TlsServerFixture::new(|_| ());
    let config = bench.config();
    let hello = client_hello(&bench.authority, &VERSIONS);
    let mut silent = bench.server.client();
    let mut idle = bench.connect(&config);
    serves(&mut idle);
    let mut busy = bench.connect(&config);
    busy.send_request("/hold");
    bench.server.probe.await_held(1);
    // This handshake is running when the drain begins, and continues.
    let mut late = bench.server.client();
    late.send(&hello[..50]);
    bench.server.await_connections(4);
    let probe = Arc::clone(&bench.server.probe);
    let drained = bench.server.drain(PATIENCE);
    silent.closed();
    assert_eq!(idle.rest(), (vec![], Close::End));
    probe.release();
    assert_eq!(busy.answer().status, 200);
    assert_eq!(busy.rest().1, Close::End);
    drop(late);
    drained.join().unwrap();
}

//! Tunnels through the proxy: each direction ends independently, a reset ends both, and every tunnel ends eventually.
//!
//! RFC 9110 §7.8, §9.3.6 leave the tunnel's bytes to the tunnelled protocol. It may use TCP's half-close (RFC 9293
//! §3.6), over TLS close_notify (RFC 8446 §6.1), and over HTTP/2 END_STREAM (RFC 8441 §5).

mod support;

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::{TlsPolicy, TlsSpec};
use support::client::RequestKind;
use support::http2::exactly;
use support::origin::{Deed, Origin, OriginConnection};
use support::tls::{Authority, Store, connect};
use support::{Close, Setup, TestClient, TestServer};

const SWITCH: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n";

/// The protocol between the client and the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Clear,
    Tls,
}

/// A client's end of a tunnel.
trait TunnelEnd {
    fn send(&mut self, bytes: &[u8]);
    /// Ends the sending side.
    fn finish(&mut self);
    /// Reads all bytes until the end. Returns them with the kind of end.
    fn rest(&mut self) -> (Vec<u8>, Close);
    /// Resets the connection or the stream.
    fn reset(self: Box<Self>);
}

impl TunnelEnd for TestClient {
    fn send(&mut self, bytes: &[u8]) {
        TestClient::send(self, bytes);
    }

    fn finish(&mut self) {
        self.end();
    }

    fn rest(&mut self) -> (Vec<u8>, Close) {
        TestClient::rest(self)
    }

    fn reset(self: Box<Self>) {
        TestClient::reset(*self);
    }
}

impl TunnelEnd for support::tls::TlsClient {
    fn send(&mut self, bytes: &[u8]) {
        TestClient::send(self, bytes);
        self.stream.flush().unwrap();
    }

    // No FIN: the close_notify alone is the end.
    fn finish(&mut self) {
        self.stream.conn.send_close_notify();
        self.stream.flush().unwrap();
    }

    fn rest(&mut self) -> (Vec<u8>, Close) {
        TestClient::rest(self)
    }

    fn reset(self: Box<Self>) {
        // Without close_notify, which is a truncation.
        self.stream.sock.shutdown(Shutdown::Write).unwrap();
    }
}

struct TunnelFixture {
    clear: TestServer,
    protected: TestServer,
    authority: Authority,
}

impl TunnelFixture {
    fn new(tweak: fn(&mut Setup)) -> Self {
        let (store, authority) = (Arc::new(Store::default()), Authority::new());
        store.put("a.test", "", authority.sign(&["a.test"]));
        let protected = TestServer::start(|setup| {
            setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
            setup.certificates = Some(store);
            tweak(setup);
        });
        Self { clear: TestServer::start(tweak), protected, authority }
    }

    /// Opens a tunnel to the origin. Returns the client's end.
    fn open(&self, by: By, origin: &Origin) -> Box<dyn TunnelEnd> {
        self.open_for("x", by, origin)
    }

    /// As [`open`](Self::open), with this protocol.
    fn open_for(&self, protocol: &str, by: By, origin: &Origin) -> Box<dyn TunnelEnd> {
        let target = origin.target();
        let upgrade =
            format!("GET {target} HTTP/1.1\r\nHost: a.test\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
        match by {
            By::Clear => {
                let mut client = self.clear.client();
                client.send(&upgrade);
                assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
                Box::new(client)
            }
            By::Tls => {
                let config = Arc::new(self.authority.client(&[&rustls::version::TLS13]));
                let mut client = connect(self.protected.address(), &config, "a.test");
                client.send(&upgrade);
                assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
                Box::new(client)
            }
        }
    }
}

/// Accepts the tunnel.
fn switched(peer: &mut OriginConnection) {
    peer.head();
    peer.send(SWITCH);
}

/// Reads all bytes until the end, which must not be a reset.
#[track_caller]
fn whole(peer: &mut OriginConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    peer.0.read_to_end(&mut bytes).expect("an end, and no reset");
    bytes
}

fn origin(act: impl FnOnce(&mut OriginConnection) + Send + 'static) -> Origin {
    Origin::with(vec![Box::new(move |peer: &mut OriginConnection| {
        switched(peer);
        act(peer);
    }) as Deed])
}

const BOTH: [By; 2] = [By::Clear, By::Tls];

#[test]
fn the_clients_half_ends_first() {
    let bench = TunnelFixture::new(|_| {});
    for by in BOTH {
        let origin = origin(|peer| {
            assert_eq!(whole(peer), b"data");
            std::thread::sleep(Duration::from_millis(50));
            peer.send("answer");
        });
        let mut client = bench.open(by, &origin);
        client.send(b"data");
        client.finish();
        assert_eq!(client.rest(), (b"answer".to_vec(), Close::End), "{by:?}");
        origin.end();
    }
}

#[test]
fn the_upstreams_half_ends_first() {
    let bench = TunnelFixture::new(|_| {});
    for by in BOTH {
        // Together with the 101, and after a pause, so that the response's reader exists already or not.
        for pause in [0, 20] {
            let origin = origin(move |peer| {
                std::thread::sleep(Duration::from_millis(pause));
                peer.send("hello");
                peer.half_close();
                assert_eq!(whole(peer), b"late");
            });
            let mut client = bench.open(by, &origin);
            assert_eq!(client.rest(), (b"hello".to_vec(), Close::End), "{by:?}");
            std::thread::sleep(Duration::from_millis(20));
            client.send(b"late");
            client.finish();
            origin.end();
        }
    }
}

#[test]
fn large_halves_arrive_complete() {
    let bench = TunnelFixture::new(|_| {});
    let bytes = support::bytes(4_000_000);
    for by in BOTH {
        let sent = bytes.clone();
        let origin = origin(move |peer| {
            let got = whole(peer);
            assert!(got == sent, "{} bytes", got.len());
            peer.send(sent);
        });
        let mut client = bench.open(by, &origin);
        client.send(&bytes);
        client.finish();
        let (got, close) = client.rest();
        assert_eq!((got.len(), got == bytes, close), (bytes.len(), true, Close::End), "{by:?}");
        origin.end();
    }
}

// A tunnel over an upstream's TLS connection: its close_notify, and ours.
#[test]
fn halves_to_an_upstream_by_tls() {
    let store = Arc::new(Store::default());
    store.put("<none>", "", Authority::new().sign(&["127.0.0.1"]));
    let origin = TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    let server = TestServer::start(|_| {});
    for (name, want) in [("switch", &b"data"[..]), ("farewell", b"farewell")] {
        let mut client = server.client();
        let target = format!("/forwards/{}/{name}", origin.address().port());
        client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n"));
        assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
        if name == "switch" {
            client.send("data");
            client.end();
        }
        assert_eq!(client.rest(), (want.to_vec(), Close::End), "{name}");
    }
}

// The request's end may arrive before the tunnel exists.
#[test]
fn a_request_and_its_end_at_once() {
    let bench = TunnelFixture::new(|_| {});
    let origin = origin(|peer| {
        assert_eq!(whole(peer), b"");
        peer.send("answer");
    });
    let mut client = bench.clear.client();
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", origin.target()));
    client.end();
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
    assert_eq!(client.rest(), (b"answer".to_vec(), Close::End));
    origin.end();
}

// A reset in one direction must not look like a normal end in the opposite direction.
#[test]
fn a_broken_connection_is_not_a_regular_end() {
    let bench = TunnelFixture::new(|_| {});
    for by in BOTH {
        let origin = origin(move |peer| {
            // The reset may arrive before these bytes are sent; the error is reported once.
            let sent = peer.0.write_all(b"hello");
            let mut bytes = Vec::new();
            let is_broken = sent.is_err() || peer.0.read_to_end(&mut bytes).is_err();
            assert!(is_broken, "{by:?}: {} bytes and an end", bytes.len());
        });
        let mut client = bench.open(by, &origin);
        client.send(b"data");
        client.reset();
        origin.end();
    }
    for by in BOTH {
        let origin = origin(|peer| {
            assert_eq!(peer.exactly(4), b"data");
            peer.reset();
        });
        let mut client = bench.open(by, &origin);
        client.send(b"data");
        let (_, close) = client.rest();
        assert_ne!(close, Close::End, "{by:?}");
        origin.end();
    }
}

// When only one direction is open and idle, the connection's idle timeout ends it.
#[test]
fn a_half_without_an_end_times_out() {
    let bench = TunnelFixture::new(|setup| setup.timeouts.keep_alive = Duration::from_millis(300));
    for by in BOTH {
        let silent = origin(|peer| {
            assert_eq!(whole(peer), b"");
            std::thread::sleep(Duration::from_millis(800));
        });
        let mut client = bench.open(by, &silent);
        // With both directions open there is no timeout.
        std::thread::sleep(Duration::from_millis(600));
        client.finish();
        assert_ne!(client.rest().1, Close::End, "{by:?}");
        silent.end();

        let first = origin(|peer| {
            peer.half_close();
            assert_eq!(peer.rest(), b"");
        });
        let mut client = bench.open(by, &first);
        assert_eq!(client.rest().1, Close::End, "{by:?}");
        first.end();

        // While bytes are transferred, the tunnel continues.
        let slow = origin(|peer| {
            assert_eq!(whole(peer), b"");
            for _ in 0..8 {
                std::thread::sleep(Duration::from_millis(100));
                peer.send("x");
            }
        });
        let mut client = bench.open(by, &slow);
        client.finish();
        assert_eq!(client.rest(), (b"xxxxxxxx".to_vec(), Close::End), "{by:?}");
        slow.end();
    }
}

/// Returns whether the stream ends without further content, and not by a reset.
async fn is_ended(body: &mut h2::RecvStream) -> bool {
    while let Some(bytes) = body.data().await {
        match bytes {
            Ok(bytes) => assert!(bytes.is_empty()),
            Err(_) => return false,
        }
    }
    true
}

#[test]
fn halves_of_a_stream() {
    let bench = TunnelFixture::new(|setup| {
        setup.timeouts.keep_alive = Duration::from_millis(300);
        setup.timeouts.body.idle = Duration::from_millis(100);
    });
    let mut client = bench.clear.http2();
    let mut open = |origin: &Origin| {
        let connect = client.connect_to("x", &origin.target());
        let response = client.wait(connect.response).unwrap();
        assert_eq!(response.status(), 200);
        (connect.content, response.into_body())
    };

    // The client's direction ends first.
    let one = origin(|peer| {
        assert_eq!(whole(peer), b"data");
        std::thread::sleep(Duration::from_millis(50));
        peer.send("answer");
    });
    // The upstream's direction ends first, after a pause beyond a body's timeout.
    let other = origin(|peer| {
        std::thread::sleep(Duration::from_millis(400));
        peer.send("hello");
        peer.half_close();
        assert_eq!(whole(peer), b"late");
    });
    // Neither direction ends, and the upstream resets.
    let reset = origin(|peer| {
        assert_eq!(peer.exactly(4), b"data");
        assert!(peer.0.read_to_end(&mut Vec::new()).is_err(), "a reset is no end");
    });
    // One direction that neither peer ends.
    let silent = origin(|peer| {
        assert_eq!(whole(peer), b"");
        std::thread::sleep(Duration::from_millis(800));
    });

    let (mut content, mut body) = open(&one);
    content.send_data("data".into(), true).unwrap();
    let (mut late, mut hello) = open(&other);
    let (mut broken, _) = open(&reset);
    broken.send_data("data".into(), false).unwrap();
    let (mut ended, mut nothing) = open(&silent);
    ended.send_data("".into(), true).unwrap();

    assert_eq!(client.wait(exactly(&mut body, 6)), b"answer");
    assert!(client.wait(is_ended(&mut body)));
    assert_eq!(client.wait(exactly(&mut hello, 5)), b"hello");
    assert!(client.wait(is_ended(&mut hello)));
    late.send_data("late".into(), true).unwrap();
    broken.send_reset(h2::Reason::CANCEL);
    assert!(!client.wait(is_ended(&mut nothing)));
    for origin in [one, other, reset, silent] {
        client.settle();
        origin.end();
    }
}

// RFC 8441 §5: END_STREAM is the end of TCP's stream, also with the head of the request.
#[test]
fn a_stream_that_ends_with_its_request() {
    let bench = TunnelFixture::new(|_| {});
    let origin = origin(|peer| {
        assert_eq!(whole(peer), b"");
        peer.send("answer");
    });
    let mut client = bench.clear.http2();
    let connect = client.connect_and_end("x", &origin.target());
    let response = client.wait(connect.response).unwrap();
    assert_eq!(response.status(), 200);
    let mut body = response.into_body();
    assert_eq!(client.wait(exactly(&mut body, 6)), b"answer");
    assert!(client.wait(is_ended(&mut body)));
    client.settle();
    origin.end();
}

// RFC 6455 §7.1.1: the server of a WebSocket closes the connection, and the client waits for it. A client that then
// leaves its own direction open must not hold the upstream's connection, or its stream, for as long as it likes.
#[test]
fn a_websocket_ends_after_its_server_closes() {
    let bench = TunnelFixture::new(|setup| setup.timeouts.linger = Duration::from_millis(300));
    let closing = || {
        origin(|peer| {
            peer.send("bye");
            peer.half_close();
            // Until then the client's bytes still arrive.
            assert_eq!(peer.exactly(4), b"late");
            assert!(peer.0.read_to_end(&mut Vec::new()).is_err(), "a reset is no end");
        })
    };
    for by in BOTH {
        let origin = closing();
        let mut client = bench.open_for("WebSocket", by, &origin);
        assert_eq!(client.rest().0, b"bye", "{by:?}");
        client.send(b"late");
        origin.end();
    }
    let mut client = bench.clear.http2();
    let origin = closing();
    let connect = client.connect_to("websocket", &origin.target());
    let response = client.wait(connect.response).unwrap();
    let (mut content, mut body) = (connect.content, response.into_body());
    assert_eq!(client.wait(exactly(&mut body, 3)), b"bye");
    assert!(client.wait(is_ended(&mut body)));
    content.send_data("late".into(), false).unwrap();
    let reset = client.wait(std::future::poll_fn(|poll_cx| content.poll_reset(poll_cx)));
    assert!(reset.is_ok(), "{reset:?}");
    origin.end();
}

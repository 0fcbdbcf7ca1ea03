//! Upstreams at Unix sockets: HTTP/1.1, HTTP/2, TLS, the abstract namespace, sockets that are absent, full or replaced.

mod support;

use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use causeway_pipeline::{NetworkProxy, NetworkProxyProtocol, Roots, TlsClient, TlsPolicy, TlsSpec, Versions};
use causeway_testkit::ports::free_port;
use socket2::{Domain, SockAddr, Socket, Type};
use support::TestServer;
use support::forward::override_transport;
use support::origin::{Act, on_socket};
use support::tls::{Authority, Store};

/// A path for a socket; the file is removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        // Not in the target directory, whose path may be longer than a socket's.
        let name = format!("causeway-{}-{}.sock", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }

    fn listen(&self) -> UnixListener {
        let _ = std::fs::remove_file(&self.0);
        UnixListener::bind(&self.0).unwrap()
    }

    fn address(&self) -> String {
        format!("unix/{}", self.0.display())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns a target that the server forwards to this address, which a port without a listener represents.
fn target(way: &str, address: &str, tweak: impl FnOnce(&mut causeway_pipeline::UpstreamTransport)) -> String {
    let port = free_port();
    override_transport(port, address, tweak);
    format!("/{way}/{port}")
}

#[test]
fn requests_on_one_connection_after_another() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let origin = on_socket(
        place.listen(),
        vec![|peer| {
            for _ in 0..3 {
                let head = peer.head();
                assert!(head.starts_with("GET ") && head.contains("\r\nHost: "), "{head}");
                peer.answer("hello");
            }
        }],
    );
    let target = target("forward", &place.address(), |_| {});
    let mut client = server.client();
    for _ in 0..3 {
        assert_eq!(client.get(&target).text(), "hello");
    }
    origin.join().unwrap();
}

// unix(7): a name in the abstract namespace begins with a zero byte, which Caddy writes as `@`.
// A network proxy is for connections over TCP; its credentials are not for the application at the socket.
#[test]
fn without_the_network_proxy() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let origin = on_socket(
        place.listen(),
        vec![|peer| {
            let head = peer.head();
            assert!(head.starts_with("GET /") && !head.contains("Proxy-Authorization"), "{head}");
            peer.answer("direct");
        }],
    );
    let target = target("forward", &place.address(), |transport| {
        transport.network_proxy = Some(Arc::new(NetworkProxy {
            protocol: NetworkProxyProtocol::Http,
            address: "192.0.2.1:3128".to_owned(),
            credentials: Some(("user".to_owned(), "secret".to_owned())),
            tls: None,
        }));
    });
    assert_eq!(server.client().get(&target).text(), "direct");
    origin.join().unwrap();
}

#[test]
fn the_abstract_namespace() {
    use std::os::linux::net::SocketAddrExt as _;
    let name = format!("causeway-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let listener = UnixListener::bind_addr(&address).unwrap();
    let origin = on_socket(
        listener,
        vec![|peer| {
            peer.head();
            peer.answer("abstract");
        }],
    );
    let server = TestServer::start(|_| {});
    let target = target("forward", &format!("unix/@{name}"), |_| {});
    assert_eq!(server.client().get(&target).text(), "abstract");
    origin.join().unwrap();
}

#[test]
fn http2() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let origin = on_socket(
        place.listen(),
        vec![|peer| {
            peer.preface(&[]);
            for text in ["one", "two"] {
                let stream = peer.request();
                peer.respond(stream, text);
            }
        }],
    );
    let target = target("forward2", &place.address(), |transport| transport.versions = Versions::Http2);
    let mut client = server.client();
    assert_eq!(client.get(&target).text(), "one");
    assert_eq!(client.get(&target).text(), "two");
    origin.join().unwrap();
}

// An absent socket, one without a listener, and a file that is no socket; then a server starts.
#[test]
fn a_socket_that_is_absent_and_returns() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let target =
        target("forward", &place.address(), |transport| transport.idle_timeout = std::time::Duration::from_secs(60));
    assert_eq!(server.client().get(&target).status, 502);
    drop(place.listen());
    assert_eq!(server.client().get(&target).status, 502);
    std::fs::remove_file(&place.0).unwrap();
    std::fs::write(&place.0, "").unwrap();
    assert_eq!(server.client().get(&target).status, 502);
    let first: Act = |peer| {
        peer.head();
        peer.answer("first");
    };
    let second: Act = |peer| {
        peer.head();
        peer.answer("second");
    };
    for text in ["first", "second"] {
        // The second server replaces the file after the first has closed its connection, which was idle.
        let act: Act = if text == "first" { first } else { second };
        let origin = on_socket(place.listen(), vec![act]);
        let mut client = server.client();
        assert_eq!(client.get(&target).text(), text);
        origin.join().unwrap();
    }
}

/// Connects until the queue of the socket is full.
#[track_caller]
fn fill_queue(place: &Place) -> Vec<Socket> {
    let address = SockAddr::unix(&place.0).unwrap();
    let connect = |_| {
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
        socket.connect(&address).is_ok().then_some(socket)
    };
    let waiting: Vec<_> = (0..8).map_while(connect).collect();
    assert!((1..8).contains(&waiting.len()), "the queue is full after {} connections", waiting.len());
    waiting
}

// unix(7): connecting to a socket whose queue is full fails with EAGAIN at once; the server tries again.
#[test]
fn connecting_waits_for_a_full_backlog() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let listener = place.listen();
    rustix::net::listen(&listener, 0).unwrap();
    let waiting = fill_queue(&place);
    let target = target("forward", &place.address(), |_| {});
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    std::thread::sleep(std::time::Duration::from_millis(50));
    let mut acts: Vec<Act> = waiting.iter().map(|_| -> Act { |_| {} }).collect();
    acts.push(|peer| {
        peer.head();
        peer.answer("at last");
    });
    let origin = on_socket(listener, acts);
    assert_eq!(client.answer().text(), "at last");
    origin.join().unwrap();

    // It ends with the time for connecting.
    let place = Place::new();
    let listener = place.listen();
    rustix::net::listen(&listener, 0).unwrap();
    let _waiting = fill_queue(&place);
    let limit = std::time::Duration::from_millis(50);
    let target = self::target("forward", &place.address(), |transport| transport.connect_timeout = limit);
    assert_eq!(server.client().get(&target).status, 504);
}

// An upgrade's bytes in both directions, and the end of each.
#[test]
fn a_tunnel() {
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    let origin = on_socket(
        place.listen(),
        vec![|peer| {
            peer.head();
            peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
            assert_eq!(peer.exactly(5), b"hello");
            peer.send("world");
            peer.half_close();
            assert_eq!(peer.rest(), b"bye");
        }],
    );
    let target = target("forward", &place.address(), |_| {});
    let mut client = server.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"));
    assert_eq!(client.head().status, 101);
    client.send("hello");
    assert_eq!(client.exactly(5), b"world");
    client.send("bye");
    client.end();
    origin.join().unwrap();
}

/// Forwards each connection to a Unix socket to `address`, as long as the process runs.
fn relay(listener: UnixListener, address: SocketAddr) {
    std::thread::spawn(move || {
        for inbound in listener.incoming() {
            let (mut inbound, mut outbound) = (inbound.unwrap(), TcpStream::connect(address).unwrap());
            let (mut from, mut to) = (outbound.try_clone().unwrap(), inbound.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut inbound, &mut outbound);
                let _ = outbound.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
}

// A socket has no name, so the configuration has to name the upstream, or to do without verification.
#[test]
fn tls() {
    let (store, authority) = (Arc::new(Store::default()), Authority::new());
    store.put("<none>", "", authority.sign(&["127.0.0.1"]));
    store.put("a.test", "", authority.sign(&["a.test"]));
    let protected = TestServer::start(|setup| {
        setup.tls = Some(TlsSpec { policies: vec![TlsPolicy::default()] });
        setup.certificates = Some(store);
    });
    let (server, place) = (TestServer::start(|_| {}), Place::new());
    relay(place.listen(), protected.address());
    let verified = |server_name: Option<&str>| TlsClient {
        server_name: server_name.map(str::to_owned),
        roots: Roots::These(vec![authority.certificate.clone()]),
        ..TlsClient::default()
    };
    for (why, tls, status) in [
        ("a name", verified(Some("a.test")), 200),
        ("no verification", TlsClient { insecure: true, ..TlsClient::default() }, 200),
        ("another name", verified(Some("b.test")), 502),
        ("no name", verified(None), 502),
    ] {
        let target = target("forward", &place.address(), |transport| transport.tls = Some(Arc::new(tls)));
        let answer = server.client().get(&format!("{target}/fixed"));
        assert_eq!(answer.status, status, "{why}");
    }
}

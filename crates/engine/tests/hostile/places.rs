//! Upstream connections while their pools appear and disappear: reload, drain, pools dropped after one call, and
//! connections at their stream limit.

use std::sync::Arc;
use std::time::Duration;

use causeway_pipeline::Versions;
use causeway_pipeline::upstream::ConnectionLimits;

use causeway_testkit::http2::{flag, kind};

use crate::support::TestServer;
use crate::support::forward::override_transport;
use crate::support::origin::{Act, Origin};
use crate::support::server::States;
use crate::{PATIENCE, assert_all_returned, read, send_request, whole};

// A connection whose pool is dropped closes after its last call.
#[test]
fn a_pool_without_a_holder() {
    let server = TestServer::start(|_| {});
    let one: Act = |peer| {
        peer.head();
        std::thread::sleep(Duration::from_millis(20));
        peer.answer("one");
        peer.end();
    };
    let origin = Origin::new(vec![one, one]);
    let target = origin.target().replace("forward", "forward-once");
    assert_eq!(send_request(&server, &target), whole(200, "one"));
    assert_eq!(send_request(&server, &target), whole(200, "one"));
    origin.end();
    assert_all_returned(&server);
}

// The calls that wait for a connection of a dropped pool are sent all the same.
#[test]
fn a_pool_without_a_holder_whose_calls_wait() {
    let server = TestServer::start(|setup| setup.workers = 1);
    let (go, held) = std::sync::mpsc::channel::<()>();
    let origin = Origin::with(vec![Box::new(move |peer| {
        peer.head();
        peer.step();
        held.recv().unwrap();
        peer.answer("first");
        peer.head();
        peer.answer("second");
        peer.end();
    })]);
    override_transport(origin.port, &format!("127.0.0.1:{}", origin.port), |transport| {
        transport.connection_limits = Some(Arc::new(ConnectionLimits::new(1)));
    });
    let mut clients = [server.client(), server.client()];
    clients[0].send_request(&origin.target());
    origin.await_step();
    clients[1].send_request(&origin.target());
    // The worker has read that request when it has answered these.
    (0..2).for_each(|_| assert_eq!(send_request(&server, "/fixed").status(), 200));
    assert_eq!(send_request(&server, &format!("/forget/{}", origin.port)), whole(200, "forgotten"));
    go.send(()).unwrap();
    for (client, text) in clients.iter_mut().zip(["first", "second"]) {
        assert_eq!(read(client), whole(200, text));
    }
    origin.end();
    drop(clients);
    assert_all_returned(&server);
}

// A running call finishes under the plan with which it started, which is freed after it; the connection pool is kept.
#[test]
fn a_reload_while_a_call_runs() {
    let mut server = TestServer::start(|setup| setup.states = States::Ballast);
    let (go, held) = std::sync::mpsc::channel::<()>();
    let origin = Origin::with(vec![Box::new(move |peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsome");
        held.recv().unwrap();
        peer.send("more");
        // The next request reuses this connection.
        peer.head();
        peer.answer("again");
    })]);
    let mut client = server.client();
    client.send_request(&origin.target());
    assert_eq!(client.head().status, 200);
    server.reload(|setup| setup.states = States::Ballast).unwrap();
    assert_eq!(server.engine().live_plans(), 2);
    go.send(()).unwrap();
    assert_eq!(client.exactly(8), b"somemore");
    server.await_plans(1);
    assert_eq!(send_request(&server, &origin.target()), whole(200, "again"));
    origin.end();
}

// A running call completes during a drain. Idle upstream connections do not delay it, and close with the worker.
#[test]
fn a_drain_with_idle_and_busy_connections() {
    let mut server = TestServer::start(|_| {});
    let idle = Origin::new(vec![|peer| {
        peer.head();
        peer.answer("idle");
        peer.end();
    }]);
    assert_eq!(send_request(&server, &idle.target()), whole(200, "idle"));
    let (go, held) = std::sync::mpsc::channel::<()>();
    let busy = Origin::with(vec![Box::new(move |peer| {
        peer.head();
        peer.step();
        held.recv().unwrap();
        peer.answer("busy");
        peer.end();
    })]);
    let mut client = server.client();
    client.send_request(&busy.target());
    busy.await_step();
    let drained = server.drain(PATIENCE);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!drained.is_finished(), "the call is running");
    go.send(()).unwrap();
    assert_eq!(read(&mut client), whole(200, "busy"));
    drop(client);
    drained.join().unwrap();
    idle.end();
    busy.end();
    // With a grace period of zero, running calls are aborted.
    let mut server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.step();
        peer.end();
    }]);
    let mut client = server.client();
    client.send_request(&origin.target());
    origin.await_step();
    server.drain(Duration::ZERO).join().unwrap();
    client.rest();
    origin.end();
}

// RFC 9113 §5.1.2: calls queued for a new connection open further ones when it allows only few streams.
#[test]
fn calls_beyond_the_stream_limit_use_another_connection() {
    let server = TestServer::start(|_| {});
    let few: Act = |peer| {
        peer.preface(&[(3, 1)]);
        let stream = peer.request();
        // The queued calls must not wait for the end of the first.
        peer.0.set_read_timeout(Some(Duration::from_millis(400))).unwrap();
        while let Some(frame) = peer.try_frame() {
            if frame.kind == kind::HEADERS {
                peer.frame(kind::RST_STREAM, flag::NONE, frame.stream, &7_u32.to_be_bytes());
            }
        }
        peer.0.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.respond(stream, "few");
        peer.frames_to_the_end();
    };
    // `Origin` serves one connection after another, so this test accepts its concurrent connections itself.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    override_transport(port, &format!("127.0.0.1:{port}"), |transport| {
        transport.versions = Versions::Http2;
        transport.idle_timeout = Duration::from_millis(200);
    });
    let origins = std::thread::spawn(move || {
        let served = (0..3).map(|_| {
            let peer = crate::support::origin::OriginConnection::new(listener.accept().unwrap().0);
            std::thread::spawn(move || {
                let mut peer = peer;
                few(&mut peer);
            })
        });
        let served: Vec<_> = served.collect();
        served.into_iter().for_each(|served| served.join().unwrap());
    });
    let target = format!("/forward2/{port}");
    let mut first = server.client();
    first.send_request(&target);
    // After this pause the origin's SETTINGS have arrived.
    std::thread::sleep(Duration::from_millis(50));
    let mut others = [server.client(), server.client()];
    others.iter_mut().for_each(|client| client.send_request(&target));
    assert_eq!(read(&mut first), whole(200, "few"));
    for client in &mut others {
        assert_eq!(read(client), whole(200, "few"));
    }
    origins.join().unwrap();
}

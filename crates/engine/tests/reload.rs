//! Reloads of the plan and the listeners while the engine serves: exchanges and listeners that remain are not
//! disturbed.

mod support;

use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::pin::pin;
use std::task::{Context as PollContext, Waker};
use std::time::Duration;

use causeway_engine::StartError;
use causeway_pipeline::{Ending, ListenAddress};

use support::client::RequestKind;
use support::server::{Setup, States, loopback};
use support::{PATIENCE, TestClient, TestServer, bytes};

/// Returns the address 127.0.0.`last`, with a port that the kernel chooses.
fn host(last: u8) -> ListenAddress {
    ListenAddress { host: Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))), port: 0, zone: 0 }
}

/// Sets up a plan whose server has this name and a different index.
fn named(name: &'static str) -> impl FnOnce(&mut Setup) {
    move |setup| {
        setup.name = name;
        setup.servers_before = name.len();
    }
}

#[track_caller]
fn refused(address: SocketAddr) {
    match TcpStream::connect(address) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        Ok(_) => panic!("a socket listens on {address}"),
    }
}

#[track_caller]
fn in_use(result: Result<(), StartError>) -> String {
    match result {
        Err(StartError::Bind(error)) if error.error.kind() == ErrorKind::AddrInUse => error.to_string(),
        other => panic!("{other:?}"),
    }
}

fn has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn an_idle_connection_survives_and_uses_the_next_plan() {
    for workers in [1, 2] {
        let mut server = TestServer::start(|setup| setup.workers = workers);
        let address = server.address();
        let mut idle: Vec<_> = (0..4).map(|_| server.client()).collect();
        let mut silent = server.client();
        for client in &mut idle {
            assert_eq!(client.get("/plan").text(), "test");
        }
        server.await_connections(5);
        for name in ["a", "bb", "ccc", "a"] {
            server.reload(named(name)).unwrap();
            assert_eq!(server.engine().addresses(), [address]);
            for client in &mut idle {
                assert_eq!(client.get("/plan").text(), name);
            }
            assert_eq!(server.client().get("/plan").text(), name);
            server.await_plans(1);
        }
        assert_eq!(silent.get("/plan").text(), "a", "a connection without a request under an older plan");
    }
}

#[test]
fn a_partial_request_uses_the_plan_at_its_completion() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("GET /plan HTTP/1.1\r\nHo");
    server.await_connections(1);
    server.reload(named("next")).unwrap();
    server.await_plans(1);
    client.send("st: test\r\n\r\n");
    assert_eq!(client.answer().text(), "next");
}

#[test]
fn a_waiting_exchange_completes_under_its_own_plan() {
    for workers in [1, 2] {
        let mut server = TestServer::start(|setup| setup.workers = workers);
        let mut old = server.client();
        old.send_request("/outlive");
        server.probe.await_held(1);
        server.reload(named("next")).unwrap();
        let mut new = server.client();
        assert_eq!(new.get("/plan").text(), "next", "further requests are served");
        assert_eq!(server.engine().live_plans(), 2);
        server.reload(named("third")).unwrap();
        assert_eq!(new.get("/plan").text(), "third");
        // The second plan has no exchanges and is freed.
        server.await_plans(2);
        server.probe.release();
        let answer = old.answer();
        assert_eq!((answer.text(), answer.closes()), ("test", false));
        server.await_plans(1);
        assert_eq!(old.get("/plan").text(), "third");
    }
}

#[test]
fn pipelined_requests_each_have_the_plan_of_their_start() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send_request("/outlive");
    client.send_request("/plan");
    server.probe.await_held(1);
    server.reload(named("next")).unwrap();
    server.probe.release();
    assert_eq!((client.answer().text(), client.answer().text()), ("test", "next"));
}

#[test]
fn an_upload_continues_across_a_reload() {
    let mut server = TestServer::start(|_| ());
    let body = bytes(300_000);
    let mut client = server.client();
    client.send(format!("POST /echo HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len()));
    client.send(&body[..1000]);
    let head = client.head();
    assert_eq!(head.field("Transfer-Encoding"), Some("chunked"));
    server.reload(named("next")).unwrap();
    assert_eq!(server.engine().live_plans(), 2);
    let writer = {
        let mut stream = client.stream.try_clone().unwrap();
        let rest = body[1000..].to_vec();
        std::thread::spawn(move || std::io::Write::write_all(&mut stream, &rest).unwrap())
    };
    let mut answer = head;
    client.chunked(&mut answer);
    writer.join().unwrap();
    assert!(answer.body == body);
    assert_eq!(server.probe.outcome("/echo").ending, Ending::Complete);
    server.await_plans(1);
    assert_eq!(client.get("/plan").text(), "next");
}

#[test]
fn a_response_continues_across_a_reload() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    // More than the sockets' buffers, so the response is unfinished until the client reads it.
    client.send_request("/bytes/30000000");
    let mut answer = client.head();
    server.reload(named("next")).unwrap();
    assert_eq!(server.engine().live_plans(), 2);
    answer.body = client.exactly(30_000_000);
    assert!(answer.body == bytes(30_000_000));
    server.await_plans(1);
    assert_eq!(client.get("/plan").text(), "next");
}

#[test]
fn a_tunnel_continues_across_a_reload() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send("GET /switch HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
    client.send("before");
    assert_eq!(client.exactly(6), b"before");
    // Neither a reload nor the end of its listener ends it.
    server.reload(named("next")).unwrap();
    server.reload(|setup| setup.listen = vec![host(2)]).unwrap();
    client.send("after");
    assert_eq!(client.exactly(5), b"after");
    server.await_plans(2);
    client.end();
    assert_eq!(client.rest().0, b"");
    server.await_plans(1);
}

#[test]
fn listeners_are_added_and_removed() {
    for workers in [1, 2] {
        let mut server = TestServer::start(|setup| (setup.workers, setup.listen) = (workers, vec![host(1)]));
        let first = server.address();
        server.reload(|setup| setup.listen = vec![host(2), host(1)]).unwrap();
        let [second, kept] = server.engine().addresses() else { panic!("two addresses") };
        let second = *second;
        assert_eq!((*kept, second.ip()), (first, host(2).host.unwrap()));
        let mut on_first = TestClient::connect(first);
        let mut fresh = TestClient::connect(first);
        let mut busy = TestClient::connect(first);
        let mut begun = TestClient::connect(first);
        let mut on_second = TestClient::connect(second);
        assert_eq!(on_first.get("/fixed").text(), "fixed");
        assert_eq!(on_second.get("/fixed").text(), "fixed");
        busy.send_request("/outlive");
        begun.send("GET /plan HTTP/1.1\r\nHo");
        server.probe.await_held(1);
        server.await_connections(5);

        server.reload(|setup| (setup.listen, setup.name, setup.servers_before) = (vec![host(2)], "next", 7)).unwrap();
        assert_eq!(server.engine().addresses(), [second]);
        refused(first);
        on_first.closed();
        fresh.closed();
        assert_eq!(on_second.get("/plan").text(), "next");
        assert_eq!(server.engine().live_plans(), 2);
        begun.send("st: test\r\n\r\n");
        server.probe.release();
        for client in [&mut busy, &mut begun] {
            let answer = client.answer();
            assert_eq!((answer.text(), answer.closes()), ("test", true), "its own plan has its server");
            client.closed();
        }
        server.await_plans(1);

        server.reload(|setup| setup.listen = Vec::new()).unwrap();
        assert_eq!(server.engine().addresses(), []);
        on_second.closed();
        refused(second);
        server.reload(|setup| setup.listen = vec![ListenAddress { port: first.port(), ..host(1) }]).unwrap();
        assert_eq!(TestClient::connect(first).get("/fixed").text(), "fixed");
    }
}

#[test]
fn a_port_in_use_leaves_the_server_unchanged() {
    let mut server = TestServer::start(|setup| setup.workers = 2);
    let address = server.address();
    let mut idle = server.client();
    assert_eq!(idle.get("/plan").text(), "test");
    let other = TestServer::start(|_| ());
    let taken = ListenAddress { port: other.address().port(), ..loopback() };
    let free =
        ListenAddress { port: TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap().port(), ..host(3) };
    for round in 0..3 {
        let result = server.reload(|setup| {
            named("next")(setup);
            setup.listen = vec![free, taken];
        });
        let words = in_use(result);
        assert_eq!(words, format!("listening on {taken}: the port is in use already"), "round {round}");
        assert_eq!(server.engine().addresses(), [address]);
        assert_eq!(server.engine().live_plans(), 1);
        assert_eq!(idle.get("/plan").text(), "test");
        assert_eq!(server.client().get("/plan").text(), "test");
        refused((Ipv4Addr::new(127, 0, 0, 3), free.port).into());
    }
    drop(other);
    server.reload(|setup| setup.listen = vec![free, taken]).unwrap();
    idle.closed();
}

#[test]
fn a_state_that_cannot_be_built_leaves_the_server_unchanged() {
    let mut server = TestServer::start(|setup| setup.workers = 2);
    let mut idle = server.client();
    assert_eq!(idle.get("/plan").text(), "test");
    let free =
        ListenAddress { port: TcpListener::bind("127.0.0.3:0").unwrap().local_addr().unwrap().port(), ..host(3) };
    let result = server.reload(|setup| {
        (setup.states, setup.name) = (States::Panicking, "next");
        setup.listen.push(free);
    });
    let Err(error @ StartError::System(_)) = result else { panic!("{result:?}") };
    assert_eq!(error.to_string(), "preparing the workers: a module panicked while it created its state");
    server.await_plans(1);
    assert_eq!(server.engine().addresses().len(), 1);
    refused((Ipv4Addr::new(127, 0, 0, 3), free.port).into());
    assert_eq!(idle.get("/plan").text(), "test");
    server.reload(named("next")).unwrap();
    assert_eq!(idle.get("/plan").text(), "next");
}

#[test]
fn an_abandoned_reload_leaves_one_complete_plan() {
    let mut server = TestServer::start(|setup| setup.workers = 2);
    let mut idle = server.client();
    for _ in 0..20 {
        {
            let reloading = pin!(server.reloading(|setup| {
                setup.name = "given up";
                setup.listen.push(host(2));
            }));
            let _ = reloading.poll(&mut PollContext::from_waker(Waker::noop()));
        }
        let name = idle.get("/plan").text().to_owned();
        assert!(name == "test" || name == "given up", "{name}");
        server.reload(|setup| setup.servers_before = 1).unwrap();
        assert_eq!(idle.get("/plan").text(), "test");
        assert_eq!(server.engine().addresses().len(), 1);
        server.await_plans(1);
    }
}

// The kernel refuses a wildcard and a specific address on one port, unless all their sockets have SO_REUSEPORT: ours
// do.
#[test]
fn a_listener_may_reuse_the_port_of_a_removed_one() {
    for workers in [1, 2] {
        let any = |port| ListenAddress { host: None, port, zone: 0 };
        let mut server = TestServer::start(|setup| (setup.workers, setup.listen) = (workers, vec![any(0)]));
        let port = server.address().port();
        let narrow = ListenAddress { port, ..loopback() };
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let far = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), port));
        let mut idle = TestClient::connect(local);
        assert_eq!(idle.get("/plan").text(), "test");
        // The port that the kernel chose, written out, keeps the socket.
        server.reload(|setup| (setup.listen, setup.name) = (vec![any(port)], "named")).unwrap();
        assert_eq!(idle.get("/plan").text(), "named");
        for round in 0..10 {
            server.reload(|setup| (setup.listen, setup.name) = (vec![narrow], "narrow")).unwrap();
            idle.closed();
            refused(far);
            idle = TestClient::connect(local);
            assert_eq!(idle.get("/plan").text(), "narrow", "round {round}");
            server.reload(|setup| (setup.listen, setup.name) = (vec![any(port)], "wide")).unwrap();
            idle.closed();
            assert_eq!(TestClient::connect(far).get("/plan").text(), "wide", "round {round}");
            idle = TestClient::connect(local);
            assert_eq!(idle.get("/plan").text(), "wide", "round {round}");
        }
        // Both addresses together, then one alone; and a duplicate is refused.
        server.reload(|setup| setup.listen = vec![narrow, any(port)]).unwrap();
        assert_eq!(idle.get("/fixed").text(), "fixed", "the wide one stays");
        let words = in_use(server.reload(|setup| setup.listen = vec![narrow, any(port), narrow]));
        assert_eq!(words, format!("listening on {narrow}: the server is to listen on this address twice"));
        server.reload(|setup| setup.listen = vec![narrow]).unwrap();
        refused(far);
        if has_ipv6() {
            refused((Ipv6Addr::LOCALHOST, port).into());
        }
    }
}

#[test]
fn a_port_may_be_released_and_reused_repeatedly() {
    let mut server = TestServer::start(|setup| (setup.workers, setup.listen) = (2, vec![host(1), host(2)]));
    let [_, second] = *server.engine().addresses() else { panic!("two addresses") };
    let again = ListenAddress { port: second.port(), ..host(2) };
    for round in 0..30 {
        // A connection in the backlog of a removed listener is still answered.
        let mut waiting = TestClient::connect(second);
        waiting.send_request("/fixed");
        server.reload(|setup| setup.listen = vec![host(1)]).unwrap();
        assert_eq!(waiting.answer().text(), "fixed", "round {round}");
        waiting.closed();
        refused(second);
        server.reload(|setup| setup.listen = vec![again, host(1)]).unwrap();
        assert_eq!(TestClient::connect(second).get("/fixed").text(), "fixed", "round {round}");
    }
}

#[test]
fn the_next_limits_apply_to_the_next_request() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    let mut begun = server.client();
    let long = |bytes: usize| format!("GET /plan HTTP/1.1\r\nHost: test\r\nX: {}\r\n\r\n", "x".repeat(bytes));
    client.send(long(20_000));
    assert_eq!(client.answer().status, 200);
    // A partly received head in a block of the old size is completed under the new limit.
    begun.send(&long(30_000)[..29_000]);
    let larger = |setup: &mut Setup| {
        setup.head.head_bytes_max = 300_000;
        setup.name = "larger";
    };
    server.reload(larger).unwrap();
    begun.send(&long(30_000)[29_000..]);
    assert_eq!(begun.answer().text(), "larger");
    for client in [&mut client, &mut begun] {
        client.send(long(250_000));
        assert_eq!(client.answer().text(), "larger");
    }
    begun.send(&long(250_000)[..200_000]);
    server.await_connections(2);
    let smaller = |setup: &mut Setup| {
        setup.head.head_bytes_max = 10_000;
        setup.name = "smaller";
    };
    // The server may have read a part of the head by now; then the old limit applies to it.
    server.reload(smaller).unwrap();
    begun.send(&long(250_000)[200_000..]);
    let status = begun.head().status;
    assert!(status == 200 || status == 431, "{status}");
    client.send(long(9_000));
    assert_eq!(client.answer().text(), "smaller");
    client.send(long(20_000));
    assert_eq!(client.answer().status, 431);
}

#[test]
fn the_next_timeouts_apply_only_to_idle_connections() {
    let mut server = TestServer::start(|_| ());
    let mut idle = server.client();
    assert_eq!(idle.get("/fixed").text(), "fixed");
    let mut uploading = server.client();
    uploading.send("POST /collect HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nsix");
    server.await_connections(2);
    let mut began = server.client();
    began.send_request("/outlive");
    server.probe.await_held(1);
    server
        .reload(|setup| {
            setup.timeouts.keep_alive = Duration::from_millis(100);
            setup.timeouts.body.idle = Duration::from_millis(100);
        })
        .unwrap();
    idle.closed();
    std::thread::sleep(Duration::from_millis(400));
    uploading.send("six");
    assert!(uploading.answer().text().starts_with("6 bytes"));
    server.probe.release();
    assert_eq!(began.answer().text(), "test");
    began.closed();
}

#[test]
fn draining_ends_connections_of_earlier_plans() {
    let mut server = TestServer::start(|setup| (setup.workers, setup.listen) = (2, vec![host(1), host(2)]));
    let [first, second] = *server.engine().addresses() else { panic!("two addresses") };
    let mut idle = TestClient::connect(first);
    assert_eq!(idle.get("/fixed").text(), "fixed");
    let mut busy = TestClient::connect(second);
    busy.send_request("/outlive");
    server.probe.await_held(1);
    server.reload(|setup| setup.listen = vec![host(1)]).unwrap();
    let probe = server.probe.clone();
    let drained = server.drain(PATIENCE);
    idle.closed();
    let refused = TcpStream::connect(first).map(|mut stream| stream.read(&mut [0]));
    assert!(!matches!(refused, Ok(Ok(1..))), "{refused:?}");
    assert!(!drained.is_finished());
    probe.release();
    let answer = busy.answer();
    assert_eq!((answer.text(), answer.closes()), ("test", true));
    drained.join().unwrap();
}

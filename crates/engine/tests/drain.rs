//! Listening, distribution of connections over workers, and graceful shutdown.

mod support;

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use causeway_engine::StartError;
use causeway_pipeline::{Ending, ListenAddress};

use support::server::loopback;
use support::{PATIENCE, ProbeEvent, TestClient, TestServer};

#[test]
fn draining_closes_idle_connections_and_completes_exchanges() {
    let mut server = TestServer::start(|setup| setup.workers = 2);
    let address = server.address();
    let probe = server.probe.clone();
    let mut idle: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut idle {
        assert_eq!(client.get("/fixed").text(), "fixed");
    }
    let mut fresh = server.client();
    let mut busy: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut busy {
        client.send_request("/hold");
    }
    probe.await_held(4);
    server.await_connections(9);
    let drained = server.drain(PATIENCE);
    idle.iter_mut().for_each(TestClient::closed);
    fresh.closed();
    // The listener is closed while exchanges are still running.
    let refused = TcpStream::connect(address).map(|mut stream| stream.read(&mut [0]));
    assert!(!matches!(refused, Ok(Ok(1..))), "{refused:?}");
    assert!(!drained.is_finished());
    probe.release();
    for client in &mut busy {
        let answer = client.answer();
        assert_eq!((answer.text(), answer.closes()), ("released", true));
        client.closed();
    }
    drained.join().unwrap();
}

#[test]
fn draining_drops_what_exceeds_the_grace() {
    let mut server = TestServer::start(|_| ());
    let probe = server.probe.clone();
    let mut client = server.client();
    client.send_request("/hold");
    probe.await_held(1);
    server.drain(Duration::from_millis(100)).join().unwrap();
    client.closed();
    probe.await_seen(&ProbeEvent::Dropped("hold"));
    assert_ne!(probe.outcome("/hold").ending, Ending::Complete);
}

#[test]
fn a_streamed_response_completes_while_draining() {
    let mut server = TestServer::start(|_| ());
    let mut client = server.client();
    client.send_request("/chunks/20000000");
    assert_eq!(client.exactly(9), b"HTTP/1.1 ");
    let drained = server.drain(PATIENCE);
    let (rest, _) = client.rest();
    assert!(rest.len() > 20_000_000 && rest.ends_with(b"0\r\n\r\n"), "{} bytes", rest.len());
    drained.join().unwrap();
}

#[test]
fn a_second_engine_on_the_port_is_refused() {
    for workers in [1, 2] {
        let first = TestServer::start(|setup| setup.workers = workers);
        let port = first.address().port();
        let second = TestServer::try_start(|setup| setup.listen = vec![ListenAddress { port, ..loopback() }]);
        let Err(StartError::Bind(error)) = second else { panic!("two engines on one port") };
        assert_eq!(error.error.kind(), ErrorKind::AddrInUse);
        let words = StartError::Bind(error).to_string();
        assert_eq!(words, format!("listening on 127.0.0.1:{port}: the port is in use already"));
        for _ in 0..8 {
            assert_eq!(first.client().get("/fixed").text(), "fixed", "the first engine still serves");
        }
    }
}

#[test]
fn a_port_is_free_once_its_engine_has_ended() {
    let mut first = TestServer::start(|setup| setup.workers = 2);
    let listen = ListenAddress { port: first.address().port(), ..loopback() };
    let mut client = first.client();
    assert_eq!(client.get("/fixed").text(), "fixed");
    first.drain(PATIENCE).join().unwrap();
    let second = TestServer::start(|setup| setup.listen = vec![listen]);
    assert_eq!(second.client().get("/fixed").text(), "fixed");
}

fn has_ipv6() -> bool {
    std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn addresses() {
    let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
    let any4 = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let mut cases = vec![(Some(v4), vec![v4]), (Some(any4), vec![v4]), (None, vec![v4])];
    // On a machine without IPv6 the wildcard `None` falls back to IPv4's.
    if has_ipv6() {
        cases.extend([(Some(v6), vec![v6]), (None, vec![v4, v6])]);
    }
    for (host, reach) in cases {
        let server = TestServer::start(|setup| {
            setup.workers = 2;
            setup.listen = vec![ListenAddress { host, port: 0, zone: 0 }];
        });
        let port = server.address().port();
        for ip in reach {
            let mut client = TestClient::connect(SocketAddr::new(ip, port));
            assert_eq!(client.get("/fixed").text(), "fixed", "{host:?} by {ip}");
        }
    }
}

#[test]
fn several_listeners_of_one_engine() {
    let server = TestServer::start(|setup| setup.listen = vec![loopback(), loopback()]);
    let [first, second] = server.engine().addresses() else { panic!("two addresses") };
    assert_ne!(first, second);
    for address in [first, second] {
        assert_eq!(TestClient::connect(*address).get("/fixed").text(), "fixed");
    }
}

#[test]
fn connections_are_spread_evenly() {
    let server = TestServer::start(|setup| setup.workers = 2);
    let mut clients = Vec::new();
    let mut carried = BTreeMap::new();
    for _ in 0..64 {
        let mut client = server.client();
        *carried.entry(client.get("/whoami").text().to_owned()).or_insert(0) += 1;
        clients.push(client);
    }
    let wanted = [("worker-0".to_owned(), 32), ("worker-1".to_owned(), 32)];
    assert_eq!(carried, BTreeMap::from(wanted));
    drop(clients);
    server.await_connections(0);
}

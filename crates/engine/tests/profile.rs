//! The profiler's hooks while requests are served: messages and the wakeups that they cause, and the begin and end of
//! requests. In a process of its own, since a process has one policy.

mod support;

use std::io::{Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use causeway_testkit::http2::{Wire, kind};
use support::client::RequestKind;
use support::origin::Origin;
use support::recorder::{Recording, alone};
use support::{ProbeEvent, TestClient, TestServer};

/// The delay in tests of holds, far longer than a turn of the reactor.
const PAUSE: Duration = Duration::from_millis(4);

#[track_caller]
fn assert_hooks(lines: &[String], want: &[&str]) {
    assert_eq!(lines, want, "{lines:#?}");
}

/// Returns the lines of a served request, in order.
fn request(connection: usize, visit: usize, route: &str) -> [String; 5] {
    [
        format!("arrived c{connection}"),
        format!("visit v{visit}"),
        format!("written c{connection}"),
        format!("end v{visit} request"),
        format!("end v{visit} route at {route}"),
    ]
}

/// Returns a connection after its first exchange, so that a recording has no hooks of the connection's start.
fn settled(server: &TestServer) -> TestClient {
    let mut client = server.client();
    assert_eq!(client.get("/fixed").status, 200);
    std::thread::sleep(Duration::from_millis(20));
    client
}

/// Repeats `send_request` until the kernel reports timestamps: it turns them on asynchronously for the first socket
/// that enables them.
#[track_caller]
fn until_known(recording: &Recording<'_>, mut send_request: impl FnMut()) {
    let end = Instant::now() + support::PATIENCE;
    while recording.times().last().is_none_or(|at| *at == 0) {
        assert!(Instant::now() < end, "the kernel reports no timestamps");
        send_request();
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn requests_on_a_connection() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    assert_eq!(client.get("/fixed").text(), "fixed");
    assert_eq!(client.get("/nowhere").status, 404);
    let lines = recording.after(2);
    let mut want = request(1, 1, "fixed").to_vec();
    want.extend(request(1, 2, "x"));
    // The last route of the test server matches every request.
    want[9] = "end v2 route *".into();
    assert_eq!(lines, want);
    assert_eq!(client.get("/fixed").text(), "fixed");
    let recording = Recording::new(&alone);
    assert_hooks(&recording.stop(), &[]);
}

#[test]
fn two_requests_at_once_are_one_message() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send("GET /fixed HTTP/1.1\r\nHost: a\r\n\r\nGET /empty/204 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!((client.answer().status, client.answer().status), (200, 204));
    let lines = recording.after(2);
    let ends = |visit: usize, route: &str| [format!("end v{visit} request"), format!("end v{visit} route at {route}")];
    let mut want = vec!["arrived c1".to_owned()];
    // HTTP/1 runs one exchange at a time; one write or two may send both responses.
    match lines.iter().filter(|line| line.starts_with("written")).count() {
        1 => {
            want.extend(["visit v1".into(), "visit v2".into(), "written c1".into()]);
            want.extend(ends(1, "fixed"));
        }
        _ => {
            want.extend(["visit v1".into(), "written c1".into()]);
            want.extend(ends(1, "fixed"));
            want.extend(["visit v2".into(), "written c1".into()]);
        }
    }
    want.extend(ends(2, "empty"));
    assert_eq!(lines, want);
}

#[test]
fn two_streams_of_one_connection() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut wire = Wire::connect(server.address(), &[]).unwrap();
    wire.flush().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let recording = Recording::new(&alone);
    wire.put_get(1, "/fixed");
    wire.put_get(3, "/empty/204");
    wire.flush().unwrap();
    let lines = recording.after(2);
    let first = lines.iter().position(|line| line == "visit v1").expect("a request");
    // One read may also contain the acknowledgement of our SETTINGS, which counts as an arrival.
    assert_eq!(lines[first - 1], "arrived c1", "{lines:#?}");
    assert_hooks(
        &lines[first..],
        &[
            "visit v1",
            "visit v2",
            "written c1",
            "end v1 request",
            "end v1 route at fixed",
            "end v2 request",
            "end v2 route at empty",
        ],
    );
    let heads = std::iter::from_fn(|| wire.receive().unwrap()).filter(|frame| frame.kind == kind::HEADERS);
    assert_eq!(heads.take(2).count(), 2);
}

#[test]
fn a_sleeping_handler_resumes_with_its_timer() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    assert_eq!(client.get("/sleep/5").text(), "slept");
    assert_hooks(
        &recording.after(1),
        &["arrived c1", "visit v1", "sleep t1", "slept t1", "written c1", "end v1 request", "end v1 route at sleep"],
    );
}

#[test]
fn work_on_another_thread_is_two_messages() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    assert_eq!(client.get("/compute").status, 200);
    assert_hooks(
        &recording.after(1),
        &[
            "arrived c1",
            "visit v1",
            "sent m1",
            "blocking: took m1",
            "blocking: sent m2",
            "took m2",
            "written c1",
            "end v1 request",
            "end v1 route at compute",
        ],
    );
}

#[test]
fn waiting_for_a_body_is_a_message() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send("POST /collect HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n");
    std::thread::sleep(Duration::from_millis(20));
    client.send("body");
    assert_eq!(client.answer().status, 200);
    let lines = recording.after(1);
    assert_hooks(
        &lines,
        &[
            "arrived c1",
            "visit v1",
            "arrived c1",
            // The content, and its end.
            "sent m1",
            "took m1",
            "sent m2",
            "took m2",
            "written c1",
            "end v1 request",
            "end v1 route at collect",
        ],
    );
}

#[test]
fn a_proxied_request() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    for is_http2 in [false, true] {
        let origin = Origin::new(vec![|peer| {
            for _ in 0..2 {
                peer.head();
                peer.answer("hello");
            }
        }]);
        let target = origin.target();
        // The connection to the origin exists already.
        let mut wire = is_http2.then(|| Wire::connect(server.address(), &[]).unwrap());
        let mut client = settled(&server);
        assert_eq!(client.get(&target).text(), "hello");
        if let Some(wire) = &mut wire {
            wire.flush().unwrap();
        }
        std::thread::sleep(Duration::from_millis(50));
        let recording = Recording::new(&alone);
        match &mut wire {
            Some(wire) => {
                wire.put_get(1, &target);
                wire.flush().unwrap();
            }
            None => assert_eq!(client.get(&target).text(), "hello"),
        }
        let lines = recording.after(1);
        let first = lines.iter().position(|line| line == "visit v1").expect("a request");
        assert_eq!(lines[first - 1], "arrived c1", "{lines:#?}");
        let upstream = format!("called u1 upstream 127.0.0.1:{}", origin.port);
        assert_hooks(
            &lines[first..],
            &[
                "visit v1",
                "sent m1",
                "took m1",
                &upstream,
                "answered u1",
                "sent m2",
                "took m2",
                "written c1",
                "end v1 request",
                "end v1 route at forward",
            ],
        );
        origin.end();
    }
}

/// A response in two parts, and a missing one: each wait for the upstream has an end hook.
#[test]
fn each_wait_for_an_upstream_has_an_end() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nsome");
        std::thread::sleep(Duration::from_millis(50));
        peer.send("more");
        peer.head();
    }]);
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    assert_eq!(client.get(&origin.target()).text(), "somemore");
    let lines = recording.after(1);
    let calls: Vec<_> =
        lines.iter().filter(|line| line.starts_with("called") || line.starts_with("answered")).collect();
    let upstream = |wait: usize| format!("called u{wait} upstream 127.0.0.1:{}", origin.port);
    assert_eq!(calls, [&upstream(1), "answered u1", &upstream(2), "answered u2"], "{lines:#?}");
    let recording = Recording::new(&alone);
    // The connection closes without a response. The request is retried, but the origin does not listen any more.
    assert_eq!(client.get(&origin.target()).status, 502);
    let lines = recording.after(1);
    let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert!(count("called") >= 1 && count("called") == count("answered"), "{lines:#?}");
    origin.end();
}

#[test]
fn responses_of_upstreams_are_held_and_complete() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let origin = TestServer::start(|_| {});
    let target = format!("/forward/{}", origin.address().port());
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    recording.hold(PAUSE);
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(client.get(&format!("{target}/fixed")).text(), "fixed");
        assert!(began.elapsed() >= PAUSE);
    }
    let body = support::bytes(300_000);
    client.post(&format!("{target}/echo"), &body);
    assert_eq!(client.answer().body, body);
    recording.stop();
    assert_eq!(client.get(&format!("{target}/bytes/100000")).body.len(), 100_000);
}

/// An idle tunnel does not count as a wait for the upstream.
#[test]
fn a_tunnel_is_not_a_wait_for_an_upstream() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let origin = Origin::new(vec![|peer| {
        peer.head();
        peer.send("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n");
        for _ in 0..3 {
            let bytes = peer.exactly(3);
            peer.send(bytes);
        }
        peer.rest();
    }]);
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send(format!("GET {} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n", origin.target()));
    assert_eq!(client.answer_to(RequestKind::Tunnel).status, 101);
    for _ in 0..3 {
        client.send("one");
        assert_eq!(client.exactly(3), b"one");
    }
    let lines = recording.stop();
    let calls: Vec<_> =
        lines.iter().filter(|line| line.starts_with("called") || line.starts_with("answered")).collect();
    assert_eq!(calls, [&format!("called u1 upstream 127.0.0.1:{}", origin.port), "answered u1"], "{lines:#?}");
    client.reset();
    origin.end();
}

#[test]
fn a_tls_handshake_is_the_first_exchange_of_a_connection() {
    let alone = alone();
    use support::tls::{Authority, Store, VERSIONS, connect};
    let authority = Authority::new();
    let store = Store::default();
    store.put("test", "", authority.sign(&["test"]));
    let server = TestServer::start(|setup| {
        setup.tls = Some(causeway_pipeline::TlsSpec { policies: vec![causeway_pipeline::TlsPolicy::default()] });
        setup.certificates = Some(std::sync::Arc::new(store));
    });
    let config = std::sync::Arc::new(authority.client(&VERSIONS));
    let recording = Recording::new(&alone);
    let mut client = connect(server.address(), &config, "test");
    assert_eq!(client.get("/fixed").text(), "fixed");
    assert_eq!(client.get("/fixed").text(), "fixed");
    let lines = recording.after(2);
    // The accept counts as a write to which the peer's first bytes react.
    let mut want: Vec<String> = ["written c1", "arrived c1", "written c1"].map(str::to_owned).to_vec();
    let first = lines.iter().position(|line| line == "visit v1").expect("a request");
    assert_eq!(lines[..3], want, "{lines:#?}");
    // The client's last flight and its request may arrive in one read or in two.
    assert!(lines[3..first].iter().all(|line| line.ends_with(" c1")), "one connection throughout: {lines:#?}");
    want = request(1, 1, "fixed")[1..].to_vec();
    want.extend(request(1, 2, "fixed"));
    assert_eq!(lines[first..], want, "{lines:#?}");
    // Content has the timestamp of its sealed bytes.
    let recording = Recording::new(&alone);
    until_known(&recording, || assert_eq!(client.get("/fixed").text(), "fixed"));
}

#[test]
fn spans_of_a_request() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::with_spans(&alone);
    assert_eq!(client.get("/fixed").text(), "fixed");
    let lines = recording.after(1);
    let spans: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("in ")).collect();
    assert_eq!(
        spans,
        [
            "read",
            "parse",
            "route",
            "route at fixed",
            "observe",
            "route at fixed",
            "fixed",
            "route at fixed",
            "observe",
            "encode",
            "write",
            "read"
        ],
        "each handler within its route, on the way in and on the way back"
    );
    let count = |what: &str| lines.iter().filter(|line| line.starts_with(what)).count();
    assert_eq!(count("in "), count("out "));
}

#[test]
fn a_reload_during_an_exchange() {
    let alone = alone();
    let mut server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send_request("/hold");
    server.probe.await_held(1);
    let listen = causeway_pipeline::ListenAddress { port: server.address().port(), ..support::server::loopback() };
    server.reload(|setup| setup.listen = vec![listen]).unwrap();
    server.probe.release();
    assert_eq!(client.answer().status, 200);
    assert_eq!(client.get("/fixed").text(), "fixed");
    let lines = recording.after(2);
    let ends: Vec<_> = lines.iter().filter(|line| line.starts_with("end ")).collect();
    assert_eq!(
        ends,
        ["end v1 request", "end v1 route at hold", "end v2 request", "end v2 route at fixed"],
        "names are stable across plans: {lines:#?}"
    );
}

/// A server whose requests do not count as progress: hooks are called, but no unit of progress ends.
#[test]
fn responses_of_an_internal_server_are_no_progress() {
    let alone = alone();
    let server = TestServer::start(|setup| setup.is_progress = false);
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    assert_eq!(client.get("/fixed").text(), "fixed");
    assert_eq!(client.get("/nowhere").status, 404);
    let want = ["arrived c1", "visit v1", "written c1", "arrived c1", "visit v2", "written c1"];
    assert_hooks(&recording.stop(), &want);
}

#[test]
fn an_aborted_request_is_no_progress() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send_request("/hold");
    server.probe.await_held(1);
    client.reset();
    server.await_connections(0);
    assert_eq!(server.client().get("/fixed").text(), "fixed");
    let lines = recording.after(1);
    let ends: Vec<_> = lines.iter().filter(|line| line.starts_with("end ")).collect();
    assert_eq!(ends, ["end v2 request", "end v2 route at fixed"], "{lines:#?}");
}

#[test]
fn kernel_timestamps_are_between_send_and_now() {
    let alone = alone();
    let now = || u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    until_known(&recording, || assert_eq!(client.get("/fixed").text(), "fixed"));
    // A request while the worker is busy with a second connection.
    let mut other = server.client();
    other.send_request("/burn/20000000");
    std::thread::sleep(Duration::from_millis(2));
    let before = now();
    client.send_request("/fixed");
    let sent = now();
    assert_eq!(client.answer().text(), "fixed");
    let answered = now();
    assert_eq!(other.answer().text(), "burnt");
    let at = *recording.times().last().unwrap();
    recording.stop();
    assert!(before <= at && at <= answered, "{before} {at} {answered}");
    // Loopback delivers within the sending call; the worker reads much later.
    assert!(at <= sent + 1_000_000, "sent at {sent}, arrived at {at}, answered at {answered}");
}

#[test]
fn held_requests_are_delayed_and_complete() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    recording.hold(PAUSE);
    for _ in 0..5 {
        let began = Instant::now();
        assert_eq!(client.get("/fixed").text(), "fixed");
        assert!(began.elapsed() >= PAUSE, "{:?}", began.elapsed());
    }
    // A body in many pieces, each of them held.
    let body = support::bytes(300_000);
    client.post("/collect", &body);
    assert_eq!(client.answer().status, 200);
    // Many requests on one connection; running exchanges continue while later bytes are held.
    let requests = "GET /fixed HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50);
    client.send(requests);
    (0..50).for_each(|_| assert_eq!(client.answer().text(), "fixed"));
    assert!(recording.held() >= 14, "{}", recording.held());
    let mut http2 = server.http2();
    let answers = http2.exchange_all(&[("GET", "/fixed", None), ("GET", "/bytes/200000", None)]);
    assert_eq!((answers[0].text(), answers[1].body.len()), ("fixed", 200_000));
    recording.stop();
    assert_eq!(client.get("/fixed").text(), "fixed", "the connection continues after the profile");
}

/// Each byte of the head is held, and the holds do not extend the head's timeout.
#[test]
fn holds_do_not_extend_the_head_timeout() {
    let alone = alone();
    let server = TestServer::start(|setup| setup.timeouts.head = 50 * PAUSE);
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    recording.hold(PAUSE);
    client.stream.set_nonblocking(true).unwrap();
    let (mut answer, end) = ([0; 12], Instant::now() + support::PATIENCE);
    client.send("GET /fixed HTTP/1.1\r\nX: ");
    loop {
        assert!(Instant::now() < end, "no timeout for the head");
        std::thread::sleep(2 * PAUSE);
        // The write may fail when the server has closed; then the response has already arrived.
        let _ = client.stream.write(b"x");
        if client.stream.read_exact(&mut answer).is_ok() {
            break;
        }
    }
    assert_eq!(&answer, b"HTTP/1.1 408");
    assert!(recording.held() > 4, "{}", recording.held());
}

#[test]
fn responses_are_sent_while_requests_are_held() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let mut client = settled(&server);
    let recording = Recording::new(&alone);
    client.send_request("/bytes/3000000");
    client.head();
    recording.hold(PAUSE);
    // This request is held while the response before it is still being sent.
    client.send_request("/fixed");
    assert_eq!(client.exactly(3_000_000), support::bytes(3_000_000));
    assert_eq!(client.answer().text(), "fixed");
    recording.stop();
}

#[test]
fn a_server_stops_while_requests_are_held() {
    let alone = alone();
    for grace in [Duration::from_secs(10), Duration::ZERO] {
        let mut server = TestServer::start(|_| {});
        let mut clients: Vec<_> = (0..5).map(|_| settled(&server)).collect();
        let recording = Recording::new(&alone);
        recording.hold(4 * PAUSE);
        clients.iter_mut().for_each(|client| client.send_request("/fixed"));
        let end = Instant::now() + support::PATIENCE;
        while recording.held() < 5 {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_micros(100));
        }
        // One client disconnects while its request is held.
        clients.pop().unwrap().reset();
        let drained = server.drain(grace);
        if !grace.is_zero() {
            for client in &mut clients {
                assert_eq!(client.answer().text(), "fixed", "it had arrived before the end");
            }
        }
        drained.join().unwrap();
        recording.stop();
    }
}

#[test]
fn a_hold_ends_with_its_connection() {
    let alone = alone();
    let server = TestServer::start(|_| {});
    let recording = Recording::new(&alone);
    recording.hold(PAUSE);
    for _ in 0..20 {
        let mut client = server.client();
        client.send_request("/fixed");
        client.reset();
    }
    server.await_connections(0);
    drop(recording);
    assert_eq!(server.client().get("/fixed").text(), "fixed");
    server.probe.report(ProbeEvent::Happened("over"));
}

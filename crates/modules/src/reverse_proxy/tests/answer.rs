use std::task::Waker;
use std::time::Duration;

use causeway_message::{FieldMap, FieldValue, NameRef, StatusCode};
use causeway_pipeline::worker::Families;
use causeway_pipeline::{BodyError, CallError, Fault, Frame};
use causeway_testkit::{Kit, Request};
use serde_json::json;

use super::{exchange, kit, proxy, registry, start_call};

// Caddy, finalizeResponse: hop-by-hop fields are removed, Server is the upstream's, Via is added; fields set by earlier
// handlers are kept in addition to the upstream's.
#[test]
fn fields_of_the_response() {
    let before = json!({ "handler": "headers", "response": { "set": { "X-A": ["ours"], "Server": ["ours"] } } });
    let routes = json!([{ "handle": [before, proxy(json!({}))] }]);
    let mut kit = Kit::new(&registry(), &routes);
    for (theirs, want) in [
        (&[][..], &[][..]),
        (&[("Server", "theirs"), ("X-A", "1"), ("X-A", "2")], &[("Server", "theirs"), ("X-A", "1"), ("X-A", "2")]),
        (
            &[("Connection", "keep-alive"), ("Keep-Alive", "1"), ("Transfer-Encoding", "chunked"), ("Upgrade", "h2c")],
            &[],
        ),
        (&[("Connection", "X-Hop, close"), ("X-Hop", "1"), ("X-B", "2")], &[("X-B", "2")]),
        (&[("Alt-Svc", "x"), ("Proxy-Authenticate", "x"), ("TE", "x"), ("Proxy-Connection", "x")], &[]),
        (
            &[("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Trailer", "T")],
            &[("Set-Cookie", "a"), ("Set-Cookie", "b"), ("Trailer", "T")],
        ),
        (
            &[("Date", "then"), ("Content-Length", "2"), ("Via", "1.0 x")],
            &[("Date", "then"), ("Content-Length", "2"), ("Via", "1.0 x")],
        ),
    ] {
        let answer = exchange(&mut kit, &Request::get("/"), theirs);
        let mut all = vec![("X-A", "ours")];
        all.extend_from_slice(want);
        all.push(("Via", "1.1 Causeway"));
        let got: Vec<_> = answer.fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!((got, answer.text(), answer.length), (all, "ok", Some(2)), "{theirs:?}");
    }
}

// RFC 9110 §7.6.1: fields that Connection names are not forwarded. Each name is compared with each field, so there are
// at most 100 of them, as in requests; an interim response with more is dropped.
#[test]
fn names_in_connection_have_a_bound() {
    let named = |count: usize| (0..count).map(|number| format!("x-{number}")).collect::<Vec<_>>().join(", ");
    for options in [json!({}), json!({ "headers": { "response": { "set": { "X-A": ["a"] } } } })] {
        let mut kit = kit(options);
        for (count, status, seen) in [(100, 200, 1), (101, 502, 0)] {
            let fields = [("Connection", &*named(count)), ("X-0", "0"), ("X-99", "99"), ("X-B", "b")];
            let (call, pending) = start_call(&mut kit, &Request::get("/"));
            let mut interim = FieldMap::new();
            for (name, value) in fields {
                interim.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
            }
            call.engine.put_interim(StatusCode::new(103).unwrap(), interim);
            let pending = pending.poll(&mut kit).expect_err("the answer is not there");
            call.answer(200, &fields, Some(0));
            call.end();
            let answer = pending.finish(&mut kit);
            let interims: Vec<_> = answer.interims.iter().map(|(_, fields)| fields.len()).collect();
            assert_eq!(
                (answer.status, answer.values("X-B").count(), interims),
                (status, seen, vec![1; seen]),
                "{count}"
            );
            assert_eq!(answer.values("X-0").count() + answer.values("X-99").count(), 0);
        }
    }
}

// RFC 9110 §15.5.22: a 426 has Upgrade. The field of other responses concerns the upstream's connection (§7.8).
#[test]
fn upgrade_of_a_426() {
    for headers in [json!({}), json!({ "headers": { "response": { "set": { "X-A": ["a"] } } } })] {
        let mut kit = kit(headers);
        for (status, want) in [(426, Some("HTTP/3.0")), (200, None)] {
            let (call, pending) = start_call(&mut kit, &Request::get("/"));
            call.answer(status, &[("Connection", "upgrade"), ("Upgrade", "HTTP/3.0")], Some(0));
            call.end();
            assert_eq!(pending.finish(&mut kit).field("Upgrade"), want, "{status}");
        }
    }
}

// Caddy, headers.response: applies to the upstream's response, and sees its placeholders.
#[test]
fn operations_on_the_response() {
    let ops = json!({ "response": {
        "delete": ["Server", "X-Gone"],
        "set": { "X-Seen": ["{http.reverse_proxy.status_code}|{http.reverse_proxy.status_text}|{http.reverse_proxy.header.x-two}|{http.reverse_proxy.upstream.address}|{http.reverse_proxy.upstream.host}|{http.reverse_proxy.upstream.port}|{http.reverse_proxy.upstream.requests}|{http.reverse_proxy.upstream.max_requests}|{http.reverse_proxy.upstream.latency}|{http.reverse_proxy.header.None}"], "Alt-Svc": ["h3"] },
        "require": { "status_code": [2], "headers": { "X-Two": ["b"] } },
    } });
    let mut kit = kit(json!({ "headers": ops, "upstreams": [{ "dial": "10.0.0.1:80", "max_requests": 5 }] }));
    let theirs =
        [("Server", "s"), ("X-Two", "a"), ("X-Two", "b"), ("X-Gone", "x"), ("Connection", "X-Hop"), ("X-Hop", "h")];
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    kit.worker().advance(Duration::from_millis(1500));
    call.answer(200, &theirs, Some(0));
    call.end();
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.field("Server"), answer.field("X-Gone"), answer.field("X-Hop")), (None, None, None));
    assert_eq!(
        answer.field("X-Seen"),
        Some("200|200 OK|a,b|tcp/10.0.0.1:80|10.0.0.1|80|0|5|1.5s|{http.reverse_proxy.header.None}")
    );
    assert_eq!(answer.field("Alt-Svc"), Some("h3"), "a configured field is not hop-by-hop");
    // The operations are skipped if the response does not match their conditions; no placeholder of the previous
    // request remains.
    let answer = exchange(&mut kit, &Request::get("/"), &[("Server", "s"), ("X-Two", "c")]);
    assert_eq!((answer.field("Server"), answer.field("X-Seen")), (Some("s"), None));
}

// Caddy, network addresses: `tcp4/` and `tcp6/` before an upstream. Handlers whose upstreams differ in it alone share
// no connections.
#[test]
fn networks_of_upstreams() {
    let route = |network: &str| {
        let seen = json!({ "set": { "X-Seen": ["{http.reverse_proxy.upstream.address} {http.reverse_proxy.upstream.hostport}"] } });
        let dial = format!("{network}a.test:80");
        let handler = proxy(json!({ "upstreams": [{ "dial": dial }], "headers": { "response": seen } }));
        json!({ "match": [{ "path": [format!("/{network}")] }], "handle": [handler] })
    };
    let mut kit = Kit::new(&registry(), &json!([route("tcp4/"), route("tcp6/"), route("tcp/")]));
    for (network, families) in [("tcp4/", Families::Ipv4), ("tcp6/", Families::Ipv6), ("tcp/", Families::Both)] {
        let (call, pending) = start_call(&mut kit, &Request::get(&format!("/{network}")));
        assert_eq!((&*call.address, call.transport.families), ("a.test:80", families));
        call.answer(200, &[], Some(0));
        call.end();
        let want = format!("{network}a.test:80 a.test:80");
        assert_eq!(pending.finish(&mut kit).field("X-Seen"), Some(&*want));
    }
}

// RFC 9110 §15.2: 1xx responses are forwarded in order; §9.3.2: HEAD has the Content-Length that GET would have.
#[test]
fn interim_responses_and_head() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &Request::new("HEAD", "/"));
    let mut link = FieldMap::new();
    link.append(NameRef::parse(b"Link").unwrap(), FieldValue::from_static("</a>"));
    link.append(NameRef::parse(b"Connection").unwrap(), FieldValue::from_static("close"));
    call.engine.put_interim(StatusCode::new(103).unwrap(), link);
    call.engine.put_interim(StatusCode::new(102).unwrap(), FieldMap::new());
    let pending = pending.poll(&mut kit).expect_err("the answer is not there");
    call.answer(200, &[("Content-Length", "5")], None);
    call.end();
    let answer = pending.finish(&mut kit);
    let interims: Vec<_> = answer.interims.iter().map(|(status, fields)| (status.as_u16(), fields.len())).collect();
    assert_eq!(interims, [(103, 1), (102, 0)]);
    assert_eq!((answer.status, answer.length, answer.field("Content-Length")), (200, Some(0), Some("5")));
    // An upstream that sends interim responses without end.
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    for _ in 0..65 {
        call.engine.put_interim(StatusCode::new(102).unwrap(), FieldMap::new());
    }
    assert_eq!(pending.finish(&mut kit).status, 502);
}

// Caddy's documentation of passive health checks: `max_fails` counts upstreams that send no response.
#[test]
fn endless_interim_responses_are_a_failure() {
    let mut kit = kit(json!({ "health_checks": { "passive": { "fail_duration": "1h", "max_fails": 1 } } }));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    for _ in 0..65 {
        call.engine.put_interim(StatusCode::new(102).unwrap(), FieldMap::new());
    }
    assert_eq!(pending.finish(&mut kit).status, 502);
    assert_eq!(kit.send(&Request::get("/")).status, 503);
}

// Trailers and aborts are forwarded.
#[test]
fn bodies_to_their_end() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[("Content-Type", "application/grpc")], None);
    call.send(b"one");
    call.send(b"two");
    let mut trailers = FieldMap::new();
    trailers.append(NameRef::parse(b"grpc-status").unwrap(), FieldValue::from_static("0"));
    call.trail(trailers);
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.text(), answer.length), ("onetwo", None));
    assert_eq!(answer.trailers.expect("trailers").get(NameRef::parse(b"grpc-status").unwrap()), Some(&b"0"[..]));
    // gRPC responses without content.
    let (call, pending) = start_call(&mut kit, &Request::get("/").field("TE", "trailers"));
    call.answer(200, &[("grpc-status", "12")], Some(0));
    call.end();
    assert_eq!(pending.finish(&mut kit).field("grpc-status"), Some("12"));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[], Some(10));
    call.send(b"one");
    drop(call);
    assert_eq!(pending.finish(&mut kit).broken, Some(BodyError::PeerGone));
}

// Caddy, statusError: 502; 504 if the head takes too long. Mistakes in the request's own body are the client's.
#[test]
fn faults() {
    let errors = json!([{ "handle": [{ "handler": "static_response", "status_code": "{http.error.status_code}", "body": "{http.error.message}" }] }]);
    let routes = json!([{ "handle": [proxy(json!({}))] }]);
    let mut kit = Kit::with_errors(&registry(), &routes, &errors);
    for (error, status, words) in [
        (
            CallError::from_lookup(&std::io::Error::other(
                "failed to lookup address information: Name or service not known",
            )),
            502,
            "upstream 10.0.0.1:80: looking up the address: Name or service not known",
        ),
        (
            CallError::Connect(std::io::ErrorKind::ConnectionRefused),
            502,
            "upstream 10.0.0.1:80: connecting: connection refused",
        ),
        (CallError::ConnectTimedOut, 502, "upstream 10.0.0.1:80: connecting took too long"),
        (CallError::Tls("unknown issuer".into()), 502, "upstream 10.0.0.1:80: TLS handshake: unknown issuer"),
        (CallError::Closed, 502, "upstream 10.0.0.1:80: the connection closed before the response"),
        (CallError::Reset("HTTP_1_1_REQUIRED"), 502, "upstream 10.0.0.1:80: the stream was reset: HTTP_1_1_REQUIRED"),
        (
            CallError::Unprocessed,
            502,
            "upstream 10.0.0.1:80: the upstream ended the connection without processing the request",
        ),
        (
            CallError::Malformed("an invalid status line"),
            502,
            "upstream 10.0.0.1:80: the upstream violated the protocol: an invalid status line",
        ),
        (CallError::Request, 502, "upstream 10.0.0.1:80: the request cannot be expressed in the upstream's protocol"),
        (CallError::Busy, 503, "upstream 10.0.0.1:80: too many connections and waiting calls"),
        (CallError::QueueTimedOut, 503, "upstream 10.0.0.1:80: no connection became free in time"),
        (CallError::NoDescriptors, 503, "upstream 10.0.0.1:80: this server has too many files and connections open"),
        (CallError::HeadTimedOut, 504, "upstream 10.0.0.1:80: the response did not start in time"),
        (CallError::RequestBody(BodyError::TooLarge), 413, "reading the request body: the body is too large"),
        (CallError::RequestBody(BodyError::TimedOut), 408, "reading the request body: no data arrived in time"),
        (
            CallError::RequestBody(BodyError::Malformed),
            Fault::from_body_error(BodyError::Malformed).status.as_u16(),
            "reading the request body: invalid framing",
        ),
    ] {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        call.engine.fail(error.clone());
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.text()), (status, words), "{error:?}");
        assert_eq!(answer.field("Server"), Some("Causeway"), "the answer is ours");
    }
    // A closed connection is a 502 at any time, since plain HTTP does not send the time limit to the upstream.
    let transport = json!({ "transport": { "protocol": "http", "response_header_timeout": "1s" } });
    let mut kit = Kit::with_errors(&registry(), &json!([{ "handle": [proxy(transport)] }]), &errors);
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    kit.worker().advance(Duration::from_secs(2));
    call.engine.fail(CallError::Closed);
    assert_eq!(pending.finish(&mut kit).status, 502);
    // A response with more fields than a map can hold.
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    let many = vec![("A", "b"); 60_001];
    call.answer(200, &many, Some(0));
    assert_eq!(pending.finish(&mut kit).status, 502);
}

// A client's disconnect cancels its call; a client that does not read the whole response cancels it too.
#[test]
fn a_call_is_cancelled_when_the_client_disconnects() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    assert!(!call.engine.is_given_up());
    pending.cancel(&mut kit);
    assert!(call.engine.is_given_up());
    drop(call);
    assert_eq!(kit.worker().idle_calls(), 1, "the record goes home");
}

// A slow client: the unread data fills the mailbox, which then exerts backpressure.
#[test]
fn a_slow_reader_slows_down_the_upstream() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[], None);
    for _ in 0..16 {
        assert!(call.engine.mailbox().has_room_or_register(Waker::noop()));
        call.engine.mailbox().push(Frame::Chunk(vec![0; 16].into()));
    }
    assert!(!call.engine.mailbox().has_room_or_register(Waker::noop()));
    call.end();
    assert_eq!(pending.finish(&mut kit).body.len(), 256);
    assert!(call.engine.mailbox().has_room_or_register(Waker::noop()));
}

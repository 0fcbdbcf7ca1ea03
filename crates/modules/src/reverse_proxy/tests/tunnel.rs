use std::task::{Context as PollContext, Poll, Waker};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use causeway_message::Version;
use causeway_pipeline::{Body, BodyError, Frame, ShutdownPhase, Worker as _};
use causeway_testkit::{FakeCall, Kit, Pending, Request};
use serde_json::{Value, json};
use sha1::{Digest as _, Sha1};

use super::{kit, proxy, registry, start_call};

fn websocket() -> Request {
    Request::get("/chat")
        .upgrade("WebSocket")
        .field("Connection", "keep-alive")
        .field("Sec-WebSocket-Key", "k")
        .body_open()
}

/// As the h2 machine produces it (RFC 8441 §4).
fn extended_connect(protocol: &str) -> Request {
    let request = Request::new("CONNECT", "/chat").version(Version::Http2).upgrade(protocol).body_open();
    request.field("Sec-WebSocket-Version", "13")
}

#[track_caller]
fn next(body: &mut Body) -> Vec<u8> {
    let mut poll_cx = PollContext::from_waker(Waker::noop());
    let Body::Tunnel(tunnel) = body else { panic!("a tunnel, not {body:?}") };
    match tunnel.stream.poll_frame(&mut poll_cx) {
        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => chunk.as_slice().to_vec(),
        other => panic!("a piece of content, not {other:?}"),
    }
}

fn is_over(body: &mut Body) -> bool {
    let Body::Tunnel(tunnel) = body else { panic!("a tunnel, not {body:?}") };
    matches!(tunnel.stream.poll_frame(&mut PollContext::from_waker(Waker::noop())), Poll::Ready(None))
}

// RFC 9110 §7.8, Caddy's handleUpgradeResponse: the upstream receives the protocol that the client requested; then
// bytes are forwarded in both directions.
#[test]
fn an_upgrade_becomes_a_tunnel() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &websocket());
    let text = call.request_text();
    assert!(text.starts_with("GET /chat\nHost: localhost\nSec-WebSocket-Key: k\nUpgrade: websocket\n"), "{text}");
    assert!(!text.contains("Connection:"), "that is the machine's: {text}");
    let mut outbound = call.take_body().expect("the outbound content");
    call.switch(&[("Upgrade", "WebSocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "a"), ("X-A", "1")]);
    pending.context().mailbox().push(Frame::Chunk(b"to the upstream".to_vec().into()));
    assert_eq!(next(&mut outbound), b"to the upstream");
    call.send(b"to the client");
    call.end();
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.status, answer.tunnel, answer.text()), (101, true, "to the client"));
    assert_eq!((answer.field("Upgrade"), answer.field("Sec-WebSocket-Accept")), (Some("WebSocket"), Some("a")));
    assert_eq!((answer.field("X-A"), answer.field("Connection")), (Some("1"), None));
}

// RFC 8441 §5: HTTP/1.1 uses Upgrade, HTTP/2 uses CONNECT; the proxy converts between them.
#[test]
fn an_extended_connect_becomes_an_upgrade() {
    let mut kit = kit(json!({}));
    let (call, pending) = start_call(&mut kit, &extended_connect("websocket"));
    let text = call.request_text();
    assert!(text.starts_with("GET /chat\n") && text.contains("\nUpgrade: websocket\n"), "{text}");
    let key = text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
    assert_eq!(key.len(), 24, "16 bytes in Base64 (RFC 6455 §4.1)");
    let accept = accept(key);
    call.switch(&[
        ("Upgrade", "websocket"),
        ("Connection", "Upgrade"),
        ("Sec-WebSocket-Accept", &accept),
        ("Sec-WebSocket-Protocol", "p"),
    ]);
    call.end();
    // The engine converts it to the response to CONNECT.
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.status, answer.tunnel, answer.field("Sec-WebSocket-Protocol")), (101, true, Some("p")));
    // RFC 9220 §3; RFC 9110 §9.3.6.
    assert_eq!(kit.send(&extended_connect("connect-udp")).status, 501);
    assert_eq!(kit.send(&Request::new("CONNECT", "a.test:443")).status, 501);
}

/// Returns the answer to a key (RFC 6455 §4.2.2).
fn accept(key: &str) -> String {
    BASE64_STANDARD.encode(Sha1::digest(format!("{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11")))
}

// RFC 6455 §4.1: a client fails a WebSocket whose handshake has no Upgrade in Connection, or another answer to its key.
// One of HTTP/2 has no key (RFC 8441 §5), so the proxy checks the handshake in its place.
#[test]
fn the_handshake_is_checked_for_clients_of_http2() {
    assert_eq!(accept("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", "RFC 6455 §1.3");
    let mut kit = kit(json!({}));
    for (fields, own_accept, status) in [
        (&[("Connection", "Upgrade")][..], true, 101),
        (&[("Connection", "keep-alive, upgrade")], true, 101),
        (&[("Connection", "Upgrade")], false, 502),
        (&[("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")], false, 502),
        (&[], true, 502),
    ] {
        let (call, pending) = start_call(&mut kit, &extended_connect("websocket"));
        let text = call.request_text();
        let key = text.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).expect("a key");
        let accept = accept(key);
        let mut answer = [&[("Upgrade", "websocket")], fields].concat();
        if own_accept {
            answer.push(("Sec-WebSocket-Accept", &accept));
        }
        call.switch(&answer);
        call.end();
        assert_eq!(pending.finish(&mut kit).status, status, "{fields:?} {own_accept}");
    }
}

// RFC 9110 §7.8: the upstream chooses from the protocols of the list. docs/reverse-proxy.md: `Server` is the
// upstream's.
#[test]
fn the_upstream_chooses_the_protocol() {
    let mut kit = kit(json!({}));
    for (chosen, status) in [("websocket", 101), ("foo", 101), ("FOO, WebSocket", 101), ("bar", 502), ("foo, bar", 502)]
    {
        let request = Request::get("/").upgrade("foo, websocket");
        let (call, pending) = start_call(&mut kit, &request);
        call.switch(&[("Upgrade", chosen), ("Connection", "Upgrade"), ("Server", "up")]);
        call.end();
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.tunnel), (status, status == 101), "{chosen}");
        if answer.tunnel {
            assert_eq!(answer.field("Server"), Some("up"));
        }
    }
}

// Caddy, `request_header -Connection`: without the field that requests it there is no Upgrade (RFC 9110 §7.8).
#[test]
fn a_handler_may_remove_the_request_for_an_upgrade() {
    for name in ["Connection", "Upgrade"] {
        for (request, is_http2) in [(websocket(), false), (extended_connect("websocket"), true)] {
            let remove = json!({ "handler": "headers", "request": { "delete": [name] } });
            let mut kit = Kit::new(&registry(), &json!([{ "handle": [remove, proxy(json!({}))] }]));
            let (call, pending) = start_call(&mut kit, &request);
            let text = call.request_text();
            assert!(!text.contains("Upgrade"), "{text}");
            let body = call.take_body();
            assert!(!matches!(body, Some(Body::Tunnel(_))));
            // The content of the stream may never end.
            assert!(!is_http2 || matches!(body, None | Some(Body::Empty)));
            pending.cancel(&mut kit);
        }
    }
}

#[test]
fn no_tunnel_without_an_agreed_upgrade() {
    let mut kit = kit(json!({}));
    // An ordinary response stays one.
    for (request, status) in [(websocket(), 200), (websocket(), 426), (extended_connect("websocket"), 403)] {
        let (call, pending) = start_call(&mut kit, &request);
        call.answer(status, &[], Some(0));
        call.end();
        assert_eq!(pending.finish(&mut kit).status, status);
    }
    // A protocol other than the requested one, and a switch without a request.
    let (call, pending) = start_call(&mut kit, &websocket());
    call.switch(&[("Upgrade", "gopher")]);
    assert_eq!(pending.finish(&mut kit).status, 502);
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(101, &[("Upgrade", "websocket")], None);
    assert_eq!(pending.finish(&mut kit).status, 502);
}

// Caddy, handle_response: the first matching entry decides about a 101, too. Without `copy_response` no tunnel begins.
#[test]
fn routes_for_a_switch() {
    let switches =
        |routes: Value| json!({ "handle_response": [{ "match": { "status_code": [101] }, "routes": routes }] });
    let respond = json!([{ "handle": [{ "handler": "static_response", "status_code": 403, "body": "no" }] }]);
    let copy = json!([{ "handle": [{ "handler": "copy_response" }] }]);
    let replace = json!({ "handle_response": [{ "match": { "status_code": [101] }, "status_code": 410 }] });
    let other = json!({ "handle_response": [{ "match": { "status_code": [200] }, "routes": respond }] });
    for (options, want) in [
        (switches(respond.clone()), (403, false, "no")),
        (switches(copy), (101, true, "to the client")),
        (replace, (410, false, "")),
        (other, (101, true, "to the client")),
    ] {
        let mut kit = kit(options.clone());
        let (call, pending) = start_call(&mut kit, &websocket());
        drop(call.take_body().expect("the outbound content"));
        call.switch(&[("Upgrade", "websocket"), ("Connection", "Upgrade")]);
        call.send(b"to the client");
        call.end();
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.tunnel, answer.text()), want, "{options}");
        assert_eq!(answer.field("Upgrade").is_some(), want.1, "{options}");
        assert!(call.engine.is_given_up(), "the call was dropped");
    }
}

/// Starts a call whose request's content is read first.
#[track_caller]
pub(super) fn start_after_content(kit: &mut Kit, request: &Request) -> (FakeCall, Pending) {
    let Err(pending) = kit.send_pending(request) else { panic!("it waits for the content") };
    let Err(pending) = pending.poll(kit) else { panic!("it waits for the upstream") };
    (kit.worker().take_call().expect("a call"), pending)
}

// RFC 9110 §7.8: the other protocol begins after the request's content. The Docker API starts processes in this way.
#[test]
fn an_upgrade_after_content() {
    let mut kit = kit(json!({}));
    let request = |content: &[u8]| {
        let length = content.len().to_string();
        Request::new("POST", "/exec").upgrade("tcp").field("Content-Length", &length).content(content)
    };
    let longest = [b'x'; 64 * 1024];
    for content in [b"{}".as_slice(), &longest] {
        let (call, pending) = start_after_content(&mut kit, &request(content));
        let text = call.request_text();
        assert!(text.starts_with("POST /exec\n") && text.contains("\nUpgrade: tcp\n"), "{text}");
        let mut outbound = call.take_body().expect("the outbound content");
        let Body::Tunnel(tunnel) = &outbound else { panic!("a tunnel, not {outbound:?}") };
        assert_eq!(tunnel.content.as_slice(), content);
        call.switch(&[("Upgrade", "tcp"), ("Connection", "Upgrade")]);
        pending.context().mailbox().reopen();
        pending.context().mailbox().push(Frame::Chunk(b"to the upstream".to_vec().into()));
        assert_eq!(next(&mut outbound), b"to the upstream");
        call.send(b"to the client");
        call.end();
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.tunnel, answer.text()), (101, true, "to the client"));
    }
    // An upstream may decline.
    let (call, pending) = start_after_content(&mut kit, &request(b"{}"));
    call.answer(409, &[], Some(0));
    call.end();
    assert_eq!(pending.finish(&mut kit).status, 409);
    // Content that breaks off.
    let broken = Request::new("POST", "/").upgrade("tcp").field("Content-Length", "2").body_open();
    let Err(pending) = kit.send_pending(&broken) else { panic!("it waits for the content") };
    pending.context().mailbox().fail(BodyError::Malformed);
    assert_eq!(pending.finish(&mut kit).status, 400);
}

// `request_body` with `set` replaces content, and a WebSocket's request has none (RFC 6455 §4.1): as in Caddy, the
// tunnel has the client's bytes.
#[test]
fn a_replaced_body_is_none_of_the_tunnel() {
    let replace = json!({ "handler": "request_body", "set": "replaced" });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [replace, proxy(json!({}))] }]));
    for request in [websocket(), extended_connect("websocket")] {
        let (call, pending) = start_call(&mut kit, &request);
        let mut outbound = call.take_body().expect("the outbound content");
        call.switch(&[("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "a")]);
        pending.context().mailbox().push(Frame::Chunk(b"to the upstream".to_vec().into()));
        assert_eq!(next(&mut outbound), b"to the upstream");
        pending.cancel(&mut kit);
    }
}

// h2c smuggling: a protocol that concerns one hop is not forwarded. Nor is an Upgrade with content that is not held.
#[test]
fn upgrades_that_are_ignored() {
    let mut kit = kit(json!({}));
    let h2c =
        Request::get("/").upgrade("h2c").field("Connection", "Upgrade, HTTP2-Settings").field("HTTP2-Settings", "x");
    let long = Request::new("POST", "/").upgrade("tcp").field("Content-Length", "65537").content([b'x'; 65537]);
    let chunked = Request::new("POST", "/").upgrade("tcp").field("Transfer-Encoding", "chunked").content("x");
    let connect = extended_connect("websocket").field("Content-Length", "1");
    // RFC 9110 §7.8: a list of names, each with an optional version.
    let listed = Request::get("/").upgrade("websocket, H2C/1").field("Connection", "Upgrade");
    for request in [h2c, listed, long, chunked, connect] {
        let (call, pending) = start_call(&mut kit, &request);
        let text = call.request_text();
        assert!(!text.contains("Upgrade") && !text.contains("HTTP2-Settings"), "{text}");
        assert!(!matches!(call.take_body(), Some(Body::Tunnel(_))));
        pending.cancel(&mut kit);
    }
}

// RFC 9113 §8.6: HTTP/2 has no Upgrade. Forwarded as one, the request would wait for content that never arrives.
#[test]
fn no_upgrade_for_http2_only_upstreams() {
    let mut kit = kit(json!({ "transport": { "protocol": "http", "versions": ["h2c"] } }));
    let (call, pending) = start_call(&mut kit, &websocket());
    let text = call.request_text();
    assert!(text.starts_with("GET /chat\n") && !text.contains("Upgrade"), "{text}");
    assert!(!matches!(call.take_body(), Some(Body::Tunnel(_))));
    call.answer(426, &[], Some(0));
    call.end();
    assert_eq!(pending.finish(&mut kit).status, 426);
}

// Caddy, `stream_close_delay`: a tunnel of a plan that was replaced is closed after this time. As long as the plan is
// in use, the option has no effect.
#[test]
fn a_tunnel_of_a_replaced_plan() {
    for (is_replaced, seconds) in [(true, 5), (false, 60)] {
        let mut kit = kit(json!({ "stream_close_delay": "5s", "stream_timeout": "60s" }));
        let (call, pending) = start_call(&mut kit, &websocket());
        let _outbound = call.take_body().expect("the outbound content");
        call.switch(&[("Upgrade", "WebSocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "a")]);
        call.send(b"to the client");
        if is_replaced {
            kit.reload(&registry(), &json!([]), &Value::Null);
        }
        let before = kit.worker().now();
        let answer = pending.finish(&mut kit);
        // RFC 6455 §5.5.1, §7.4.1: a close frame with the status 1001.
        assert_eq!((&*answer.body, answer.broken), (&b"to the client\x88\x02\x03\xe9"[..], None));
        // The upstream does not close, so that the tunnel lasts for 2 s after the frame.
        assert_eq!((kit.worker().now() - before).as_secs(), seconds + 2);
    }
}

// A shutdown closes WebSockets, as in Caddy; with `stream_close_delay` after this time, but not after the grace period.
#[test]
fn a_shutdown() {
    for (options, phase, seconds) in [
        (json!({}), ShutdownPhase::Stopping, 0),
        (json!({}), ShutdownPhase::GraceOver, 0),
        (json!({ "stream_close_delay": "5s" }), ShutdownPhase::Stopping, 5),
        (json!({ "stream_close_delay": "5s" }), ShutdownPhase::GraceOver, 0),
    ] {
        for is_closed in [true, false] {
            let mut kit = kit(options.clone());
            let (call, pending) = start_call(&mut kit, &websocket());
            let mut outbound = call.take_body().expect("the outbound content");
            call.switch(&[("Upgrade", "WebSocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "a")]);
            kit.worker().enter_phase(phase);
            let before = kit.worker().now();
            if seconds == 0 {
                // After the close frame there is nothing more for the client, although the upstream sends until it
                // closes.
                call.send(b"more");
                if is_closed {
                    call.end();
                }
            }
            let answer = pending.finish(&mut kit);
            assert_eq!((&*answer.body, answer.broken), (&b"\x88\x02\x03\xe9"[..], None), "{options} {phase:?}");
            // The upstream gets a frame of its own, masked (RFC 6455 §5.3), also if the client is silent. Then its
            // content ends.
            assert_eq!(next(&mut outbound), b"\x88\x82\0\0\0\0\x03\xe9");
            assert!(is_over(&mut outbound));
            let rest = if is_closed && seconds == 0 { 0 } else { 2 };
            assert_eq!((kit.worker().now() - before).as_secs(), seconds + rest, "{options} {phase:?}");
        }
    }
    // Other protocols have no such frame: their tunnels go on.
    let mut kit = kit(json!({ "stream_close_delay": "5s" }));
    let request = Request::get("/").upgrade("other").field("Connection", "Upgrade").body_open();
    let (call, pending) = start_call(&mut kit, &request);
    let _outbound = call.take_body().expect("the outbound content");
    call.switch(&[("Upgrade", "other"), ("Connection", "Upgrade")]);
    kit.worker().enter_phase(ShutdownPhase::GraceOver);
    call.send(b"to the client");
    call.end();
    assert_eq!(pending.finish(&mut kit).text(), "to the client");
}

// Caddy, `stream_timeout`: a tunnel is closed after this time, even if it is in use.
#[test]
fn a_tunnel_that_lasts_too_long() {
    let mut kit = kit(json!({ "stream_timeout": "10s" }));
    for is_late in [false, true] {
        let (call, pending) = start_call(&mut kit, &websocket());
        let _outbound = call.take_body().expect("the outbound content");
        call.switch(&[("Upgrade", "WebSocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", "a")]);
        call.send(b"to the client");
        if !is_late {
            call.end();
        }
        // Timers run if nothing else is left.
        let answer = pending.finish(&mut kit);
        let want = if is_late { &b"to the client\x88\x02\x03\xe9"[..] } else { b"to the client" };
        assert_eq!((&*answer.body, answer.broken), (want, None));
    }
    // Another protocol has no such frame.
    let request = Request::get("/").upgrade("other").field("Connection", "Upgrade").body_open();
    let (call, pending) = start_call(&mut kit, &request);
    let _outbound = call.take_body().expect("the outbound content");
    call.switch(&[("Upgrade", "other"), ("Connection", "Upgrade")]);
    call.send(b"to the client");
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.text(), answer.broken), ("to the client", Some(BodyError::TimedOut)));
}

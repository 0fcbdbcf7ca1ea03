//! The transport httpgrpc: the request that the upstream receives, and the handling of its messages.

use std::time::Duration;

use causeway_httpgrpc::stream::{
    RequestStreamDecoder, StreamPart, encode_chunk, encode_response_head, encode_trailers,
};
use causeway_httpgrpc::{
    Code, DecodeProgress, Encoding, ErrorEncoder, Limits, RequestDecoder, STREAM_PATH, Status, UNARY_PATH,
    encode_response,
};
use causeway_message::{BlockMut, Chunk, FieldMap, FieldValue, NameRef, StatusCode, names};
use causeway_pipeline::{Body, BodyError, BodyPart, CallError, Frame, Worker as _};
use causeway_testkit::{FakeCall, FakeWorker, Kit, Request, TestResponse};
use serde_json::{Value, json};

use super::{kit, proxy, registry, start_call};
use crate::httpgrpc::tests::skipped_frame;

fn transport(mut options: Value) -> Value {
    options["protocol"] = json!("httpgrpc");
    json!({ "transport": options, "upstreams": [{ "dial": "direct://10.0.0.1:95" }] })
}

fn grpc(options: Value) -> Kit {
    kit(transport(options))
}

fn blocks() -> BlockMut {
    FakeWorker::new().take_block()
}

/// Reads the call's request content to its end.
fn sent(call: &FakeCall) -> Result<Vec<u8>, BodyError> {
    let mut bytes = Vec::new();
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let mut read = |mut stream: Box<dyn causeway_pipeline::BodyStream>| {
        while let std::task::Poll::Ready(Some(frame)) = stream.poll_frame(&mut task) {
            let Frame::Chunk(chunk) = frame? else { continue };
            bytes.extend_from_slice(chunk.as_slice());
        }
        Ok(())
    };
    let parts = match call.take_body().expect("a body") {
        Body::Chunk(chunk) => return Ok(chunk.as_slice().to_vec()),
        Body::Stream(stream) => vec![BodyPart::Stream(stream)],
        Body::Parts(parts) => parts.into(),
        other => panic!("{other:?}"),
    };
    for part in parts {
        match part {
            BodyPart::Chunk(chunk) => read(Box::new(Once(Some(chunk))))?,
            BodyPart::Incoming(body) => read(Box::new(body))?,
            BodyPart::Stream(stream) => read(stream)?,
            other => panic!("{other:?}"),
        }
    }
    Ok(bytes)
}

struct Once(Option<Chunk>);

impl causeway_pipeline::BodyStream for Once {
    fn poll_frame(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        std::task::Poll::Ready(self.0.take().map(|chunk| Ok(Frame::Chunk(chunk))))
    }
}

/// Decodes the call's message: method, target, fields except those that the proxy adds, and content.
#[track_caller]
fn request_in(call: &FakeCall) -> (String, Vec<(String, String)>, String) {
    let mut decoder = RequestDecoder::new(Limits::default());
    let mut bytes = Chunk::from(sent(call).expect("a body"));
    assert_eq!(decoder.push(&mut bytes, &mut blocks), Ok(DecodeProgress::Done));
    decoder.finish().unwrap();
    let message = decoder.message_mut();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let added = [names::VIA, names::X_FORWARDED_FOR, names::X_FORWARDED_HOST, names::X_FORWARDED_PROTO];
    let fields =
        message.head.fields().iter().filter(|(name, _)| !added.iter().any(|added| NameRef::Known(*added) == *name));
    let fields = fields.map(|(name, value)| (name.as_str().to_owned(), text(value))).collect();
    let line = format!("{} {}", message.head.method().as_str(), message.head.target().as_str());
    (line, fields, message.body.drain().map(|chunk| text(chunk.as_slice())).collect())
}

fn fields(list: &[(&str, &str)]) -> FieldMap {
    let mut fields = FieldMap::new();
    for (name, value) in list {
        fields.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
    }
    fields
}

const GRPC: &[(&str, &str)] = &[("Content-Type", "application/grpc")];

/// Responds with a message.
fn answer(call: &FakeCall, status: u16, list: &[(&str, &str)], body: &str) {
    let mut out = Vec::new();
    encode_response(StatusCode::new(status).unwrap(), &fields(list), body.len() as u64, &mut out).unwrap();
    out.extend_from_slice(body.as_bytes());
    call.answer(200, GRPC, None);
    // In small pieces, so that they split the message at many positions.
    for piece in out.chunks(7) {
        call.send(piece);
    }
    call.trail(fields(&[("grpc-status", "0")]));
}

/// Ends the call without a message.
fn end(call: &FakeCall, trailers: &FieldMap) {
    let list: Vec<(&str, &str)> = GRPC
        .iter()
        .copied()
        .chain(trailers.iter().map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap())))
        .collect();
    call.answer(200, &list, Some(0));
    call.end();
}

fn status(code: u32, message: &'static str) -> FieldMap {
    let mut trailers = FieldMap::new();
    Status::new(Code::new(code), message).put(&mut trailers, &mut Vec::new());
    trailers
}

#[track_caller]
fn exchange(kit: &mut Kit, request: &Request, answer: impl FnOnce(&FakeCall)) -> TestResponse {
    let (call, pending) = start_call(kit, request);
    answer(&call);
    drop(call);
    pending.finish(kit)
}

// gRPC over HTTP/2, "Requests"; httpgrpc.proto; dskit, AppendRequestMetadataToContext.
#[test]
fn a_request_in_a_message() {
    let mut kit = grpc(json!({}));
    let request = Request::new("POST", "/a%20b?c=d")
        .field("Content-Length", "7")
        .field("X-Scope-OrgID", "tenant")
        .field("Connection", "X-Hop")
        .field("X-Hop", "1")
        .content("con")
        .content("tent");
    let (call, pending) = start_call(&mut kit, &request);
    assert_eq!(&*call.address, "10.0.0.1:95");
    assert_eq!(
        call.request_text(),
        format!(
            "POST {UNARY_PATH}\nHost: 10.0.0.1:95\nContent-Type: application/grpc\nTe: trailers\nUser-Agent: grpc-causeway\n\
             Grpc-Accept-Encoding: gzip\nhttpgrpc-method: POST\nhttpgrpc-url: /a%20b?c=d\nX-Scope-OrgID: tenant"
        )
        .replace("Te: ", "TE: ")
        .replace("TE: ", &te())
    );
    let (line, fields, body) = request_in(&call);
    assert_eq!((&*line, &*body), ("POST /a%20b?c=d", "content"));
    let want = [("X-Scope-Orgid", "tenant"), ("Content-Length", "7")];
    assert_eq!(fields.iter().map(|(name, value)| (&**name, &**value)).collect::<Vec<_>>(), want.map(|pair| pair));
    answer(&call, 201, &[("X-B", "b1"), ("X-B", "b2"), ("Content-Type", "text/plain")], "answer");
    drop(call);
    let answer = pending.finish(&mut kit);
    assert_eq!((answer.status, answer.text(), answer.length), (201, "answer", Some(6)));
    assert_eq!(answer.values("X-B").collect::<Vec<_>>(), ["b1", "b2"]);
    assert_eq!((answer.field("Content-Type"), answer.field("Via")), (Some("text/plain"), Some("1.1 Causeway")));
    assert_eq!(kit.worker().idle_calls(), 1, "the record is home");
}

/// `TE: ` in this library's spelling.
fn te() -> String {
    format!("{}: ", names::TE.as_str())
}

// dskit's servers read the trace from the call's metadata (otelgrpc), which has the fields of W3C Trace Context and
// Baggage.
#[test]
fn the_trace_is_metadata_too() {
    let mut kit = grpc(json!({}));
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let request = Request::get("/").field("traceparent", trace).field("tracestate", "a=b").field("tracestate", "c=d");
    // Of a field that is no list the first value counts, as for Go's Header.Get.
    let request = request.field("X-Scope-OrgID", "a").field("X-Scope-OrgID", "b");
    let (call, _pending) = start_call(&mut kit, &request.field("baggage", "k=v"));
    let text = call.request_text().to_ascii_lowercase();
    let want = format!("\nhttpgrpc-url: /\nx-scope-orgid: a\ntraceparent: {trace}\ntracestate: a=b,c=d\nbaggage: k=v");
    assert!(text.ends_with(&want), "{text}");
    let (_, fields, _) = request_in(&call);
    assert!(fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("traceparent")), "for other handlers");
}

// Content of unknown length is collected; content that exceeds a message is 413.
#[test]
fn content_of_unknown_length_and_too_long() {
    let mut kit = grpc(json!({ "max_message_size": 100 }));
    let (call, pending) = start_call(
        &mut kit,
        &Request::new("POST", "/").field("Transfer-Encoding", "chunked").content("con").content("tent"),
    );
    assert_eq!(request_in(&call).2, "content");
    answer(&call, 200, &[], "");
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 200);
    let long = "x".repeat(101);
    let known = Request::new("POST", "/").field("Content-Length", "101").content(&*long);
    assert_eq!(kit.send(&known).status, 413);
    let (call, pending) = start_call(&mut kit, &Request::new("POST", "/").content("x").content(&*long).body_open());
    assert_eq!(sent(&call), Err(BodyError::TooLarge));
    call.engine.fail(CallError::RequestBody(BodyError::TooLarge));
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 413);
}

// A circuit breaker counts by the status in the message, and by gRPC's status if there is no message.
#[test]
fn circuit_breakers() {
    let unavailable = status(14, "away");
    let mistake = status(3, "no such path");
    type Case<'c> = (&'c str, &'c dyn Fn(&FakeCall), bool);
    let cases: [Case<'_>; 5] = [
        ("500", &|call| answer(call, 500, &[], ""), true),
        ("200", &|call| answer(call, 200, &[], ""), false),
        ("UNAVAILABLE", &|call| end(call, &unavailable), true),
        ("INVALID_ARGUMENT", &|call| end(call, &mistake), false),
        ("no message", &|call| end(call, &status(0, "")), true),
    ];
    for (why, respond, is_open) in cases {
        let mut options = transport(json!({}));
        options["circuit_breaker"] = json!({ "type": "internal", "error_ratio": 1, "min_requests": 1 });
        let mut kit = kit(options);
        exchange(&mut kit, &Request::get("/"), respond);
        let next = kit.send_pending(&Request::get("/"));
        assert_eq!(next.is_ok(), is_open, "{why}");
    }
}

// dskit, HTTPResponseFromError: an error may contain a response.
#[test]
fn errors_that_are_responses() {
    let mut kit = grpc(json!({}));
    let mut trailers = FieldMap::new();
    let body = [Chunk::from_static(b"bo"), Chunk::from_static(b"dy")];
    let encoded = ErrorEncoder::new().encode(
        StatusCode::SERVICE_UNAVAILABLE,
        &fields(&[("X-A", "a")]),
        &body,
        64 * 1024,
        &mut trailers,
    );
    encoded.unwrap();
    for in_head in [true, false] {
        let answer = exchange(&mut kit, &Request::get("/"), |call| {
            if in_head {
                return end(call, &trailers);
            }
            call.answer(200, GRPC, None);
            call.trail(trailers.clone());
        });
        assert_eq!((answer.status, answer.text(), answer.field("X-A")), (503, "body", Some("a")), "{in_head}");
    }
}

// Other errors map to HTTP statuses; dskit's own frontend responds with 500 to all of them.
#[test]
fn errors_mapped_to_http_statuses() {
    let mut kit = grpc(json!({}));
    let with_content = Request::new("POST", "/").field("Content-Length", "1").content("x");
    for (request, code, want) in [
        (Request::get("/"), 1, 502),
        (Request::get("/"), 2, 502),
        (Request::get("/"), 3, 400),
        (Request::get("/"), 4, 504),
        (Request::get("/"), 7, 403),
        (Request::get("/"), 8, 502),
        (with_content, 8, 413),
        (Request::get("/"), 12, 502),
        (Request::get("/"), 13, 502),
        (Request::get("/"), 14, 503),
        (Request::get("/"), 16, 401),
        (Request::get("/"), 399, 502),
        (Request::get("/"), 404, 404),
        (Request::get("/"), 999, 999),
        (Request::get("/"), 1000, 502),
        (Request::get("/"), 5000, 502),
    ] {
        let answer = exchange(&mut kit, &request, |call| end(call, &status(code, "why")));
        assert_eq!(answer.status, want, "{code}");
    }
}

// gRPC, http-grpc-status-mapping.md, and other invalid responses.
#[test]
fn malformed_responses() {
    let mut kit = grpc(json!({ "max_message_size": 10 }));
    let request = Request::get("/");
    type Answering = fn(&FakeCall);
    let cases: &[(&str, u16, Answering)] = &[
        ("not gRPC", 502, |call| {
            call.answer(200, &[("Content-Type", "text/html")], Some(2));
            call.send(b"hi");
            call.end();
        }),
        ("a proxy's 503", 503, |call| {
            call.answer(503, &[], Some(0));
            call.end();
        }),
        ("no message", 502, |call| {
            call.answer(200, GRPC, None);
            call.trail(fields(&[("grpc-status", "0")]));
        }),
        ("no trailers", 502, |call| {
            call.answer(200, GRPC, None);
            call.send(b"\0\0\0\0\x03\x08\xc8\x01");
            call.end();
        }),
        ("cut off", 502, |call| {
            call.answer(200, GRPC, None);
            call.send(b"\0\0\0\0\x03\x08\xc8");
            call.trail(fields(&[("grpc-status", "0")]));
        }),
        ("too long", 502, |call| {
            call.answer(200, GRPC, None);
            call.send(b"\0\0\0\0\x0b");
        }),
        ("broken off", 502, |call| {
            call.answer(200, GRPC, None);
            call.send(b"\0\0\0\0\x03\x08");
            call.engine.mailbox().fail(BodyError::PeerGone);
        }),
        ("not reached", 502, |call| call.engine.fail(CallError::Connect(std::io::ErrorKind::ConnectionRefused))),
    ];
    for (why, want, answering) in cases {
        assert_eq!(exchange(&mut kit, &request, answering).status, *want, "{why}");
    }
    assert_eq!(exchange(&mut kit, &request, |call| answer(call, 200, &[], "")).status, 200, "the next one");
}

// grpc-timeout is the configured limit, or the client's remaining time if shorter; the whole response must arrive by
// then.
#[test]
fn timeouts() {
    let mut kit = grpc(json!({ "timeout": "2s" }));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    assert!(call.request_text().contains("\nGrpc-Timeout: 2000000u"), "{}", call.request_text());
    assert_eq!(call.transport.head_timeout, Some(Duration::from_secs(2)));
    call.answer(200, GRPC, None);
    call.send(b"\0\0\0\0\x03\x08");
    assert_eq!(pending.finish(&mut kit).status, 504);
    assert!(call.engine.is_given_up());
    // The upstream has the limit, and aborts the call at that moment itself: grpc-go resets the stream.
    for (took, want) in [(1999, 502), (2000, 504)] {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        kit.worker().advance(Duration::from_millis(took));
        call.engine.fail(CallError::Closed);
        assert_eq!(pending.finish(&mut kit).status, want, "before the head, after {took} ms");
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        call.answer(200, GRPC, None);
        let pending = pending.poll(&mut kit).expect_err("it waits for the message");
        kit.worker().advance(Duration::from_millis(took));
        call.engine.mailbox().fail(BodyError::PeerGone);
        assert_eq!(pending.finish(&mut kit).status, want, "after the head and {took} ms");
    }
    // A call that arrives over httpgrpc has its own deadline.
    let options = transport(json!({ "timeout": "2s" }));
    let handle = json!([{ "handle": [{ "handler": "httpgrpc" }, proxy(options)] }]);
    let mut kit = Kit::new(&registry(), &handle);
    let mut message = Vec::new();
    let mut head = causeway_message::Head::new();
    head.set_target("/").unwrap();
    causeway_httpgrpc::encode_request(&head, 0, &mut message).unwrap();
    let request = Request::new("POST", UNARY_PATH)
        .field("Content-Type", "application/grpc")
        .field("grpc-timeout", "500m")
        .content(message);
    let pending = kit.send_pending(&request).expect_err("it waits for the message");
    let pending = pending.poll(&mut kit).expect_err("it waits for the answer");
    let call = kit.worker().take_call().expect("a call");
    assert!(call.request_text().contains("\nGrpc-Timeout: 500000u"), "{}", call.request_text());
    assert_eq!(pending.finish(&mut kit).field("grpc-status"), Some("4"));
    assert!(call.engine.is_given_up());
    // The upstream has the limit, and aborts the call.
    for (took, want) in [(499, "502"), (500, "4")] {
        let pending = kit.send_pending(&request).expect_err("it waits for the message");
        let pending = pending.poll(&mut kit).expect_err("it waits for the answer");
        let call = kit.worker().take_call().expect("a call");
        kit.worker().advance(Duration::from_millis(took));
        call.engine.fail(CallError::Closed);
        assert_eq!(pending.finish(&mut kit).field("grpc-status"), Some(want), "after {took} ms");
    }
}

// docs/httpgrpc.md: PINGs find a server that vanished. An error of dskit has its response twice in the trailers,
// encoded.
#[test]
fn limits_and_pings_of_connections() {
    let of = |options: Value| {
        let (call, _pending) = start_call(&mut grpc(options), &Request::get("/"));
        std::sync::Arc::clone(&call.transport)
    };
    let (plain, pings) =
        (of(json!({})), of(json!({ "keep_alive": { "ping_interval": "20s", "ping_timeout": "10s" } })));
    assert_eq!((plain.ping_interval, pings.ping_interval), (None, Some(Duration::from_secs(20))));
    assert_eq!(pings.ping_timeout, Duration::from_secs(10));
    assert_eq!(plain.head_bytes_max, 16 << 20);
    assert_eq!(of(json!({ "max_message_size": 1 << 20 })).head_bytes_max, 6 << 20);
    assert_eq!(of(json!({ "max_message_size": 1 })).head_bytes_max, 1 << 20);
    assert_eq!(of(json!({ "max_message_size": u32::MAX })).head_bytes_max, 16 << 20);
}

// A virtual host elsewhere may be selected by the client's Host.
#[test]
fn the_host_may_be_forwarded() {
    let mut kit = grpc(json!({ "forward_host": true }));
    let (call, _pending) = start_call(&mut kit, &Request::get("/").field("Host", "a.test"));
    assert!(call.request_text().contains("\nHost: a.test\n"), "{}", call.request_text());
}

// RFC 9110 §9.3.2; and a message cannot carry another protocol.
#[test]
fn heads_and_upgrades() {
    let mut kit = grpc(json!({}));
    let answered =
        exchange(&mut kit, &Request::new("HEAD", "/"), |call| answer(call, 200, &[("Content-Length", "7")], ""));
    assert_eq!((answered.status, answered.body.len()), (200, 0));
    let upgrade = Request::get("/").upgrade("websocket");
    assert_eq!(kit.send(&upgrade).status, 501);
}

// gRPC, naming: round-robin over all addresses of a name; resolved again after 30 s, and earlier after a failure.
#[test]
fn names_of_several_places() {
    let options = json!({ "transport": { "protocol": "httpgrpc" }, "upstreams": [{ "dial": "dns:///a.test:95" }] });
    let mut kit = kit(options);
    let worker = kit.worker().clone();
    let at = |last: u8| std::net::SocketAddr::from(([10, 0, 0, last], 95));
    worker.set_addresses("a.test:95", vec![at(1), at(2), at(2)]);
    let go = |kit: &mut Kit| {
        let pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
        kit.worker().drive_spawned();
        let call = kit.worker().take_call().expect("a call");
        let address = call.address.to_string();
        answer(&call, 200, &[], "");
        drop(call);
        assert_eq!(pending.finish(kit).status, 200);
        address
    };
    let mut first = [go(&mut kit), go(&mut kit)];
    first.sort();
    assert_eq!(first, ["10.0.0.1:95", "10.0.0.2:95"]);
    worker.set_addresses("a.test:95", vec![at(3)]);
    assert_ne!(go(&mut kit), "10.0.0.3:95", "resolved addresses are used for 30 s");
    worker.advance(Duration::from_secs(30));
    go(&mut kit);
    assert_eq!(go(&mut kit), "10.0.0.3:95");
    // After a failure.
    worker.set_addresses("a.test:95", vec![at(4)]);
    worker.advance(Duration::from_secs(2));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.engine.fail(CallError::Connect(std::io::ErrorKind::ConnectionRefused));
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 502);
    go(&mut kit);
    assert_eq!(go(&mut kit), "10.0.0.4:95");
}

// gRPC, "Load Balancing in gRPC", round_robin: only addresses that accept connections get calls. One without a server
// fails no call and is no failure of the upstream, unless no address has a server.
#[test]
fn addresses_without_a_server() {
    let options = json!({
        "transport": { "protocol": "httpgrpc" }, "upstreams": [{ "dial": "dns:///a.test:95" }],
        "health_checks": { "passive": { "fail_duration": "100ms" } },
    });
    let mut kit = kit(options);
    let worker = kit.worker().clone();
    let at = |last: u8| std::net::SocketAddr::from(([10, 0, 0, last], 95));
    worker.set_addresses("a.test:95", vec![at(1), at(2), at(3)]);
    let asked = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let live = std::rc::Rc::new(std::cell::Cell::new(Some(3)));
    let (seen, accepting) = (asked.clone(), live.clone());
    worker.answer_calls(move |call| {
        let last = call.address.strip_prefix("10.0.0.").and_then(|rest| rest[..1].parse::<u8>().ok()).expect("ours");
        seen.borrow_mut().push(last);
        match accepting.get() {
            Some(live) if live == last => {
                assert_eq!(request_in(&call).2, "content", "the whole request");
                answer(&call, 200, &[], "");
            }
            _ => call.engine.fail(CallError::Connect(std::io::ErrorKind::ConnectionRefused)),
        }
    });
    let request = Request::new("POST", "/").field("Content-Length", "7").content("content");
    let mut go = |want: u16| {
        asked.borrow_mut().clear();
        let status = match kit.send_pending(&request) {
            Ok(done) => done.status,
            Err(pending) => {
                kit.worker().drive_spawned();
                pending.finish(&mut kit).status
            }
        };
        assert_eq!(status, want, "{asked:?}");
        asked.borrow().clone()
    };
    (0..3).for_each(|_| drop(go(200)));
    for _ in 0..3 {
        assert_eq!(go(200), [3], "the others are left out");
    }
    worker.advance(Duration::from_secs(1));
    let mut tried: Vec<u8> = (0..3).flat_map(|_| go(200)).collect();
    tried.sort_unstable();
    assert_eq!(tried, [1, 2, 3, 3, 3], "each of them was tried once more");
    worker.advance(Duration::from_secs(1));
    assert_eq!((go(200), go(200)), (vec![3], vec![3]), "for twice the time");
    worker.advance(Duration::from_secs(40));
    live.set(None);
    let mut tried = go(502);
    tried.sort_unstable();
    assert_eq!(tried, [1, 2, 3], "each address once");
    assert!(go(503).is_empty(), "fail_duration");
    worker.advance(Duration::from_millis(200));
    live.set(Some(3));
    assert_eq!(go(200).last(), Some(&3), "addresses that refuse are tried although all are left out");
}

// RFC 9113 §8.7: a request that the server did not process is safe to send again. docs/reverse-proxy.md: once, without
// a body.
#[test]
fn unprocessed_calls() {
    for error in [CallError::Reset("REFUSED_STREAM"), CallError::Unprocessed] {
        let mut kit = grpc(json!({}));
        let (call, pending) = start_call(&mut kit, &Request::get("/a"));
        assert_eq!(request_in(&call).0, "GET /a");
        call.engine.fail(error.clone());
        drop(call);
        let pending = pending.poll(&mut kit).expect_err("a second call is in progress");
        let call = kit.worker().take_call().expect("another call");
        assert_eq!(request_in(&call).0, "GET /a");
        call.engine.fail(error.clone());
        drop(call);
        assert_eq!(pending.finish(&mut kit).status, 502, "once");
        let content = Request::new("POST", "/").field("Content-Length", "1").content("x");
        assert_eq!(exchange(&mut kit, &content, |call| call.engine.fail(error)).status, 502);
    }
}

// A name without addresses, which gets one later.
#[test]
fn names_without_addresses() {
    let options = json!({ "transport": { "protocol": "httpgrpc" }, "upstreams": [{ "dial": "dns:///a.test:95" }] });
    let mut kit = kit(options);
    assert_eq!(kit.send(&Request::get("/")).status, 502);
    kit.worker().set_addresses("a.test:95", vec![([10, 0, 0, 1], 95).into()]);
    assert_eq!(kit.send(&Request::get("/")).status, 502, "not looked up again at once");
    kit.worker().advance(Duration::from_secs(1));
    let pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
    kit.worker().drive_spawned();
    let call = kit.worker().take_call().expect("a call");
    answer(&call, 200, &[], "");
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 200);
}

// crates/httpgrpc/proto: frames of an unknown part are skipped. The decoder yields while it decompresses them, and the
// call continues.
#[test]
fn skipped_frames_of_a_stream() {
    let mut kit = grpc(json!({ "stream": true, "max_message_size": 100 }));
    let request = Request::new("POST", "/s").field("Content-Length", "150").content("x".repeat(150));
    let (mut head, mut scratch, mut content) = (Vec::new(), Vec::new(), Vec::new());
    encode_response_head(StatusCode::OK, &fields(&[]), &mut scratch, &mut head).unwrap();
    encode_chunk(3, &mut content).unwrap();
    content.extend_from_slice(b"one");
    let all = [skipped_frame(), head, skipped_frame(), content, skipped_frame()].concat();
    let answered = exchange(&mut kit, &request, |call| {
        call.answer(200, &[("Content-Type", "application/grpc"), ("grpc-encoding", "gzip")], None);
        call.send(&all);
        call.trail(fields(&[("grpc-status", "0")]));
    });
    assert_eq!((answered.status, answered.text()), (200, "one"));
}

// crates/httpgrpc/proto: content that exceeds a message is sent in frames; a server without the service is remembered.
#[test]
fn content_that_streams() {
    let mut kit = grpc(json!({ "stream": true, "max_message_size": 100 }));
    let long = "x".repeat(150);
    let request = Request::new("POST", "/s").field("Content-Length", "150").content(&long[..90]).content(&long[90..]);
    let (call, pending) = start_call(&mut kit, &request);
    assert!(call.request_text().starts_with(&format!("POST {STREAM_PATH}\n")), "{}", call.request_text());
    let mut decoder = RequestStreamDecoder::new(Limits::default());
    decoder.begin(Encoding::Identity);
    let (mut bytes, mut content) = (Chunk::from(sent(&call).unwrap()), Vec::new());
    while let Some(part) = decoder.next(&mut bytes, &mut blocks).unwrap() {
        if let StreamPart::Chunk(chunk) = part {
            content.extend_from_slice(chunk.as_slice());
        }
    }
    decoder.finish().unwrap();
    assert_eq!((decoder.head().target().as_str(), content), ("/s", long.clone().into_bytes()));
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    encode_response_head(StatusCode::new(103).unwrap(), &fields(&[]), &mut scratch, &mut out).unwrap();
    encode_response_head(StatusCode::new(500).unwrap(), &fields(&[("X-A", "a")]), &mut scratch, &mut out).unwrap();
    for piece in [&long[..80], &long[80..]] {
        encode_chunk(piece.len() as u64, &mut out).unwrap();
        out.extend_from_slice(piece.as_bytes());
    }
    encode_trailers(&fields(&[("X-T", "t")]), &mut scratch, &mut out).unwrap();
    call.answer(200, GRPC, None);
    for piece in out.chunks(13) {
        call.send(piece);
    }
    call.trail(fields(&[("grpc-status", "0")]));
    drop(call);
    let answered = pending.finish(&mut kit);
    assert_eq!((answered.status, answered.text(), answered.field("X-A")), (500, &*long, Some("a")));
    let trailers = answered.trailers.expect("trailers");
    assert_eq!(trailers.get(NameRef::Other("X-T")), Some(&b"t"[..]));

    // An aborted response must not appear complete.
    let broken = exchange(&mut kit, &request, |call| {
        call.answer(200, GRPC, None);
        call.send(&out[..60]);
        call.trail(status(13, "broken"));
    });
    assert!(broken.status == 502 || broken.broken.is_some(), "{broken:?}");

    // As over HTTP, the number of interim responses is bounded.
    let (mut head, mut interims) = (Vec::new(), Vec::new());
    encode_response_head(StatusCode::new(103).unwrap(), &fields(&[]), &mut scratch, &mut head).unwrap();
    (0..65).for_each(|_| interims.extend_from_slice(&head));
    interims.extend_from_slice(&out);
    let chatty = exchange(&mut kit, &request, |call| {
        call.answer(200, GRPC, None);
        call.send(&interims);
        call.trail(fields(&[("grpc-status", "0")]));
    });
    assert_eq!(chatty.status, 502);

    let unknown = |call: &FakeCall| end(call, &status(12, "unknown service"));
    assert_eq!(exchange(&mut kit, &request, unknown).status, 413);
    assert_eq!(kit.send(&request).status, 413, "the streaming service is not retried");
    let small = Request::new("POST", "/").content("x");
    let (call, pending) = start_call(&mut kit, &small);
    assert!(call.request_text().starts_with(&format!("POST {UNARY_PATH}\n")));
    answer(&call, 200, &[], "");
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 200);
    kit.worker().advance(Duration::from_secs(60));
    let (call, pending) = start_call(&mut kit, &request);
    assert!(
        call.request_text().starts_with(&format!("POST {STREAM_PATH}\n")),
        "the streaming service is retried after a minute"
    );
    pending.cancel(&mut kit);
    drop(call);

    // A request without content also uses the streaming service, since its response may be long, and falls back to a
    // unary call.
    let (call, pending) = start_call(&mut kit, &Request::get("/long"));
    assert!(call.request_text().starts_with(&format!("POST {STREAM_PATH}\n")));
    unknown(&call);
    drop(call);
    let pending = pending.poll(&mut kit).expect_err("a second call is in progress");
    let pending = pending.poll(&mut kit).expect_err("it waits");
    let call = kit.worker().take_call().expect("another call");
    assert_eq!(request_in(&call).0, "GET /long");
    answer(&call, 200, &[], "short");
    drop(call);
    assert_eq!(pending.finish(&mut kit).text(), "short");
}

// The Caddyfile's `dns:///`; and invalid options.
#[test]
fn configurations() {
    let source = json!({ "source": "a", "name": "a.test", "port": "95" });
    let sources = json!({ "source": "multi", "sources": [source, source] });
    for upstreams in [source, sources] {
        let handler = json!({
            "handler": "reverse_proxy", "transport": { "protocol": "httpgrpc" }, "dynamic_upstreams": upstreams,
        });
        Kit::new(&registry(), &json!([{ "handle": [handler] }]));
    }
    for (options, want) in [
        (
            json!({ "transport": { "protocol": "grpc" } }),
            "transport.protocol: found 'grpc', expected http, fastcgi or httpgrpc",
        ),
        (json!({ "transport": { "protocol": "httpgrpc", "versions": ["2"] } }), "unknown field `versions`"),
        (json!({ "transport": { "protocol": "httpgrpc", "max_message_size": 0 } }), "max_message_size: found '0'"),
        (json!({ "upstreams": [{ "dial": "dns:///a:95" }] }), "expected HOST:PORT"),
        (
            json!({ "transport": { "protocol": "httpgrpc" }, "upstreams": [{ "dial": "dns:///a" }] }),
            "expected HOST:PORT",
        ),
        (
            json!({ "transport": { "protocol": "httpgrpc" }, "dynamic_upstreams": { "source": "srv", "name": "a" } }),
            "source: found 'srv', expected a or multi",
        ),
    ] {
        let routes = json!([{ "handle": [proxy(options)] }]);
        let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("refused").to_string();
        assert!(error.contains(want), "{error}");
    }
}

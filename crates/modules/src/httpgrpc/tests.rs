use std::cell::RefCell;
use std::io::Write as _;
use std::time::Duration;

use causeway_httpgrpc::stream::{ResponseStreamDecoder, StreamPart, encode_chunk, encode_request_head};
use causeway_httpgrpc::{
    Code, DecodeProgress, Encoding, Limits, ResponseDecoder, Status, decode_error, encode_request,
};
use causeway_message::{BlockMut, Chunk, FieldMap, Head, NameRef, StatusCode};
use causeway_pipeline::{
    Body, BodyError, BodyPart, Context, Fault, Frame, Handler, Registry, Response, Sleep, Step, Verdict, Worker as _,
};
use causeway_testkit::{FakeWorker, Kit, Request, TestResponse};
use serde_json::{Value, json};

use super::*;

/// Responds with the received content, by reference.
struct Echo;

impl Handler for Echo {
    fn enter(&self, cx: &mut Context) -> Step {
        match cx.take_body() {
            Some(body) => Step::Respond(Response { status: StatusCode::OK, body: Body::Incoming(body) }),
            None => Step::Fail(Fault::from_status(StatusCode::INTERNAL_SERVER_ERROR)),
        }
    }
}

/// Responds in chunks, without a known length.
struct Pieces(u16, Vec<&'static str>);

impl Handler for Pieces {
    fn enter(&self, _: &mut Context) -> Step {
        struct Stream(std::vec::IntoIter<&'static str>);
        impl causeway_pipeline::BodyStream for Stream {
            fn poll_frame(
                &mut self,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
                std::task::Poll::Ready(
                    self.0.next().map(|piece| Ok(Frame::Chunk(Chunk::from_static(piece.as_bytes())))),
                )
            }
        }
        Step::Respond(Response::stream(StatusCode::new(self.0).unwrap(), Stream(self.1.clone().into_iter())))
    }
}

/// Sleeps before it continues.
struct Slow;

impl Handler for Slow {
    fn enter(&self, cx: &mut Context) -> Step {
        let worker = Rc::clone(cx.worker());
        let until = worker.now() + Duration::from_secs(60);
        cx.wait(Sleep::until(worker, until), |_, ()| Step::Next)
    }
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry.register_handler("echo", |_, _| Ok(Box::new(Echo)));
    registry.register_handler("slow", |_, _| Ok(Box::new(Slow)));
    registry.register_handler("pieces", |value, _| {
        let status = value["status"].as_u64().unwrap_or(200) as u16;
        Ok(Box::new(Pieces(status, vec!["one ", "two"])))
    });
    registry
}

/// A server with `httpgrpc` and these options before the handlers, and with these error routes.
fn kit_with(options: Value, handlers: Value, errors: &Value) -> Kit {
    let mut own = options;
    own["handler"] = json!("httpgrpc");
    let mut handle = vec![own];
    handle.extend(handlers.as_array().unwrap().iter().cloned());
    Kit::with_errors(&registry(), &json!([{ "handle": handle }]), errors)
}

fn kit(handlers: Value) -> Kit {
    kit_with(json!({}), handlers, &Value::Null)
}

fn call_to(path: &str) -> Request {
    Request::new("POST", path).field("Content-Type", "application/grpc").field("TE", "trailers")
}

fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> Head {
    let mut head = Head::new();
    head.set_method(Method::parse(method.as_bytes()).unwrap());
    head.set_target(target).unwrap();
    for (name, value) in fields {
        let value = FieldValue::parse(value.as_bytes()).unwrap();
        head.fields_mut().append(NameRef::parse(name.as_bytes()).unwrap(), value);
    }
    head
}

fn message(method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request(&head(method, target, fields), body.len() as u64, &mut out).unwrap();
    out.extend_from_slice(body.as_bytes());
    out
}

fn call(method: &str, target: &str, fields: &[(&str, &str)], body: &str) -> Request {
    call_to(UNARY_PATH).content(message(method, target, fields, body))
}

fn blocks() -> BlockMut {
    FakeWorker::new().take_block()
}

/// A response as a dskit client decodes it: status, fields, body.
struct DecodedResponse {
    status: u16,
    fields: FieldMap,
    body: String,
    is_error: bool,
}

impl DecodedResponse {
    fn field(&self, name: &str) -> &str {
        std::str::from_utf8(self.fields.get(NameRef::parse(name.as_bytes()).unwrap()).unwrap_or_default()).unwrap()
    }
}

/// The head's fields, as the trailers of a call without a message.
fn trailers_only(answer: &TestResponse) -> FieldMap {
    let mut fields = FieldMap::new();
    for (name, value) in &answer.fields {
        fields.append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
    }
    fields
}

#[track_caller]
fn got(answer: &TestResponse) -> DecodedResponse {
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/grpc")), "{answer:?}");
    let mut decoder = ResponseDecoder::new(Limits::default());
    let only = trailers_only(answer);
    let is_error = only.contains(names::GRPC_STATUS);
    if is_error {
        assert!(decode_error(&only, &mut decoder, &mut blocks), "{}", Status::of(&only));
    } else {
        let trailers = answer.trailers.as_ref().expect("trailers");
        assert_eq!(Status::of(trailers), Status::OK);
        let mut bytes = Chunk::from(answer.body.clone());
        assert_eq!(decoder.push(&mut bytes, &mut blocks), Ok(DecodeProgress::Done));
        decoder.finish().unwrap();
    }
    let message = decoder.message_mut();
    let body = message.body.drain().map(|chunk| String::from_utf8(chunk.as_slice().to_vec()).unwrap()).collect();
    DecodedResponse { status: message.head.status().as_u16(), fields: message.head.fields().clone(), body, is_error }
}

#[track_caller]
fn refused(answer: &TestResponse, http: u16, code: Code) {
    let status = Status::of(&trailers_only(answer));
    assert_eq!((answer.status, status.code), (http, code), "{status}");
    assert_eq!((answer.field("Content-Type"), answer.body.len()), (Some("application/grpc"), 0));
}

const BODY_TEMPLATE: &str =
    "{http.request.method} {http.request.host} {http.request.uri} {http.request.header.X-A} {http.request.body}";

// httpgrpc.proto: a message is a request, and its response is a message; the host is the call's.
#[test]
fn a_request_in_a_call_is_served() {
    let headers = json!({ "X-B": ["b1", "b2"] });
    let respond =
        json!({ "handler": "static_response", "status_code": 201, "body": BODY_TEMPLATE, "headers": headers });
    let mut kit = kit(json!([respond]));
    for (request, want) in [
        (call("PUT", "/p%20q?x=y", &[("X-A", "a")], "content"), "PUT localhost /p%20q?x=y a content"),
        (call("GET", "/", &[("Host", "other.test")], ""), "GET localhost /  "),
        (call("GET", "http://other.test/a?b", &[], ""), "GET localhost /a?b  "),
        (call("GET", "http://other.test", &[], ""), "GET localhost /  "),
    ] {
        let answer = got(&kit.send(&request));
        assert_eq!((answer.status, &*answer.body, answer.is_error), (201, want, false));
        assert_eq!(answer.fields.get_all(NameRef::Other("X-B")).collect::<Vec<_>>(), [b"b1", b"b2"]);
        assert_eq!(answer.field("Server"), "Causeway");
    }
    // Split at any position.
    let message = message("PUT", "/", &[("X-A", "a")], "content");
    for at in 0..=message.len() {
        let request = call_to(UNARY_PATH).content(&message[..at]).content(&message[at..]);
        assert_eq!(got(&kit.send(&request)).body, "PUT localhost / a content", "cut at {at}");
    }
}

// gRPC over HTTP/2, "Requests"; grpc-go's statuses for invalid calls.
#[test]
fn requests_that_are_no_calls() {
    let mut kit = kit(json!([{ "handler": "static_response", "body": "plain" }]));
    for request in [Request::get("/"), call_to("/other.Service/Method"), Request::new("POST", "/httpgrpc.HTTP/handle")]
    {
        assert_eq!(kit.send(&request).text(), "plain");
    }
    let answer = kit.send(&Request::get(UNARY_PATH));
    refused(&answer, 405, Code::INTERNAL);
    // RFC 9110 §15.5.6.
    assert_eq!(answer.field("allow"), Some("POST"));
    refused(&kit.send(&Request::new("POST", UNARY_PATH)), 415, Code::INVALID_ARGUMENT);
    let json = Request::new("POST", UNARY_PATH).field("Content-Type", "application/grpc+json");
    refused(&kit.send(&json), 415, Code::INVALID_ARGUMENT);
    refused(&kit.send(&call("GET", "/", &[], "").field("grpc-timeout", "soon")), 400, Code::INTERNAL);
    refused(&kit.send(&call_to(STREAM_PATH)), 200, Code::UNIMPLEMENTED);
}

// A decoding error ends only its own call.
#[test]
fn malformed_messages() {
    let mut kit = kit_with(json!({ "max_message_size": 100 }), json!([{ "handler": "echo" }]), &Value::Null);
    let long = call("POST", "/", &[], &"x".repeat(100));
    refused(&kit.send(&long), 200, Code::RESOURCE_EXHAUSTED);
    let whole = message("POST", "/", &[], "content");
    refused(&kit.send(&call_to(UNARY_PATH).content(&whole[..whole.len() - 1])), 200, Code::INTERNAL);
    refused(&kit.send(&call_to(UNARY_PATH)), 200, Code::UNIMPLEMENTED);
    refused(&kit.send(&call_to(UNARY_PATH).content([whole.clone(), whole.clone()].concat())), 200, Code::UNIMPLEMENTED);
    refused(&kit.send(&call("GET", UNARY_PATH, &[], "")), 200, Code::INVALID_ARGUMENT);
    let unknown = call_to(UNARY_PATH).field("grpc-encoding", "br").content(b"\x01\0\0\0\x01x".to_vec());
    let answer = kit.send(&unknown);
    refused(&answer, 200, Code::UNIMPLEMENTED);
    assert_eq!(answer.field("grpc-accept-encoding"), Some("gzip"));
    // The prefix already shows that the message is too long: the rest is not awaited.
    let begun = call_to(UNARY_PATH).content(b"\0\0\0\0\x65".to_vec()).body_open();
    refused(&kit.send(&begun), 200, Code::RESOURCE_EXHAUSTED);
    assert_eq!(got(&kit.send(&call_to(UNARY_PATH).content(whole))).body, "content", "the next one is served");
}

// dskit, Server.Handle: 5xx are errors that contain the response; other responses are messages.
#[test]
fn statuses_that_are_errors() {
    for (status, is_error) in [(200, false), (404, false), (499, false), (500, true), (503, true), (599, true)] {
        for body in ["", "why"] {
            let answer = json!({ "handler": "static_response", "status_code": status, "body": body, "headers": { "X-A": ["a"] } });
            let answer = got(&kit(json!([answer])).send(&call("GET", "/", &[], "")));
            assert_eq!((answer.status, &*answer.body, answer.is_error), (status, body, is_error));
            assert_eq!(answer.field("X-A"), "a");
        }
        let answer = got(&kit(json!([{ "handler": "pieces", "status": status }])).send(&call("GET", "/", &[], "")));
        assert_eq!((answer.status, &*answer.body, answer.is_error), (status, "one two", is_error));
    }
    // Too long for trailers: a message, which dskit's clients accept too.
    let long = json!({ "handler": "static_response", "status_code": 500, "body": "x".repeat(100_000) });
    let answer = got(&kit(json!([long])).send(&call("GET", "/", &[], "")));
    assert_eq!((answer.status, answer.body.len(), answer.is_error), (500, 100_000, false));
    // The control fields are not forwarded.
    let headers = json!({ "X-ErrorMessage": ["m"] });
    let failing = json!({ "handler": "static_response", "status_code": 500, "body": "b", "headers": headers });
    let answer = kit(json!([failing])).send(&call("GET", "/", &[], ""));
    assert_eq!(answer.field("grpc-message"), Some("m"));
    assert_eq!(got(&answer).field("X-ErrorMessage"), "");
}

// A fault gets the response that it has without the handler: from the error routes, or its own status.
#[test]
fn error_routes_handle_faults() {
    let fail = json!([{ "handler": "rewrite", "uri": "/changed" }, { "handler": "error", "status_code": 404, "error": "none" }]);
    let request = call("POST", "/asked?q", &[("X-A", "a")], "content");
    let answer = got(&kit(fail.clone()).send(&request));
    assert_eq!((answer.status, &*answer.body), (404, ""));
    let respond = json!([{ "handle": [{
        "handler": "static_response",
        "body": format!("{{http.error.status_code}} {BODY_TEMPLATE}"),
    }] }]);
    let answer = got(&kit_with(json!({}), fail.clone(), &respond).send(&request));
    assert_eq!((answer.status, &*answer.body), (404, "404 POST localhost /asked?q a content"));
    // Error routes that fail: the first fault's status is used.
    let fails = json!([{ "handle": [{ "handler": "error", "status_code": 418 }] }]);
    assert_eq!(got(&kit_with(json!({}), fail, &fails).send(&request)).status, 404);
    // Without a call the handler has no effect.
    let mut plain = kit(json!([{ "handler": "error", "status_code": 404 }]));
    assert_eq!(plain.send(&Request::get("/")).status, 404);
}

// gRPC over HTTP/2, "Timeout": pending work is cancelled.
#[test]
fn deadlines() {
    let mut slow = kit(json!([{ "handler": "slow" }, { "handler": "static_response", "body": "late" }]));
    assert_eq!(got(&slow.send(&call("GET", "/", &[], "").field("grpc-timeout", "61S"))).body, "late");
    refused(&slow.send(&call("GET", "/", &[], "").field("grpc-timeout", "59S")), 200, Code::DEADLINE_EXCEEDED);
    assert_eq!(slow.worker().sleepers(), 0, "the sleep was cancelled");
    // The call's content does not arrive.
    let begun = call_to(UNARY_PATH).field("grpc-timeout", "1S").content(b"\0\0\0\0\x65".to_vec()).body_open();
    refused(&slow.send(&begun), 200, Code::DEADLINE_EXCEEDED);
    // Error routes do not run, because the client no longer waits.
    let errors = json!([{ "handle": [{ "handler": "slow" }] }]);
    let mut slow = kit_with(json!({}), json!([{ "handler": "slow" }]), &errors);
    refused(&slow.send(&call("GET", "/", &[], "").field("grpc-timeout", "1S")), 200, Code::DEADLINE_EXCEEDED);
}

// RFC 9110 §9.3.2, §8.6: no content, but its length.
#[test]
fn head_has_no_content() {
    let mut kit = kit(json!([{ "handler": "static_response", "body": "content" }]));
    let answer = got(&kit.send(&call("HEAD", "/", &[], "")));
    assert_eq!((answer.status, &*answer.body, answer.field("Content-Length")), (200, "", "7"));
}

// Caddy, request_body: the limit applies to the carried request.
#[test]
fn limits_of_the_body_in_a_call() {
    let handlers = json!([{ "handler": "request_body", "max_size": 5 }, { "handler": "static_response", "body": "{http.request.body}" }]);
    assert_eq!(got(&kit(handlers.clone()).send(&call("POST", "/", &[], "12345"))).body, "12345");
    assert_eq!(got(&kit(handlers).send(&call("POST", "/", &[], "123456"))).status, 413);
}

// Two handlers: the first one decodes the call, the second sees an ordinary request.
#[test]
fn nested_calls() {
    let inner = json!({ "handler": "httpgrpc" });
    let respond = json!({ "handler": "static_response", "body": BODY_TEMPLATE });
    let mut nested = kit(json!([inner, respond]));
    assert_eq!(got(&nested.send(&call("GET", "/x", &[], ""))).body, "GET localhost /x  ");
    let to_itself = json!({ "handler": "rewrite", "uri": UNARY_PATH });
    assert_eq!(got(&kit(json!([to_itself, inner])).send(&call("GET", "/x", &[], ""))).status, 508);
}

// An exchange after a call behaves as on fresh storage.
#[test]
fn no_state_of_a_call_remains() {
    let mut kit = kit(json!([{ "handler": "static_response", "status_code": 202, "body": BODY_TEMPLATE }]));
    let plain = Request::get("/plain");
    let fresh = kit.send(&plain);
    drop(kit.send(&call("POST", "/asked?q", &[("X-A", "a")], "content").field("grpc-timeout", "1S")));
    assert_eq!(kit.send(&plain), fresh);
}

thread_local! {
    static SEEN: RefCell<Vec<(usize, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Records the addresses of the chunks that it forwards.
struct Noting(Body);

impl Handler for Noted {
    fn enter(&self, cx: &mut Context) -> Step {
        let body = cx.take_body().map(Body::Incoming).unwrap_or_default();
        Step::Respond(Response { status: StatusCode::OK, body: Body::Stream(Box::new(Noting(body))) })
    }
}

struct Noted;

impl causeway_pipeline::BodyStream for Noting {
    fn poll_frame(
        &mut self,
        poll_cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame, BodyError>>> {
        let Body::Incoming(body) = &mut self.0 else { return std::task::Poll::Ready(None) };
        let polled = body.poll_frame(poll_cx);
        if let std::task::Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) = &polled {
            SEEN.with_borrow_mut(|seen| seen.push((chunk.as_slice().as_ptr().addr(), chunk.len())));
        }
        polled
    }

    fn len(&self) -> Option<u64> {
        self.0.len()
    }
}

// The received bytes are the ones that the handler reads and that are sent: at one address, in both directions.
#[test]
fn content_is_not_copied() {
    let mut registry = registry();
    registry.register_handler("noted", |_, _| Ok(Box::new(Noted)));
    let handle = json!([{ "handle": [{ "handler": "httpgrpc" }, { "handler": "noted" }] }]);
    let mut kit = Kit::new(&registry, &handle);
    let content: String = ('a'..='z').cycle().take(1_000_000).collect();
    let mut whole = Chunk::from(message("POST", "/", &[], &content));
    let from = whole.as_slice().as_ptr().addr();
    let to = from + whole.len();
    let body_at = to - content.len();
    let mut request = call_to(UNARY_PATH);
    while !whole.is_empty() {
        request = request.chunk(whole.split_to(whole.len().min(16 * 1024)));
    }
    let verdict = kit.verdict(&request);
    let Verdict::Respond(Response { body: Body::Parts(parts), .. }) = verdict else { panic!("{verdict:?}") };
    let mut sent = Vec::new();
    let mut poll_cx = std::task::Context::from_waker(std::task::Waker::noop());
    for part in parts {
        let BodyPart::Stream(mut stream) = part else { continue };
        while let std::task::Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) = stream.poll_frame(&mut poll_cx) {
            sent.push((chunk.as_slice().as_ptr().addr(), chunk.len()));
        }
    }
    // The chunks are the content as received.
    let mut at = body_at;
    for &(place, len) in &sent {
        assert_eq!(place, at);
        at += len;
    }
    assert_eq!(at, to, "all of it");
    SEEN.with_borrow(|seen| assert_eq!(*seen, sent));
}

fn stream_call(fields: &[(&str, &str)], pieces: &[&str]) -> Request {
    let (mut out, mut scratch) = (Vec::new(), Vec::new());
    encode_request_head(&head("POST", "/s", fields), &mut scratch, &mut out).unwrap();
    for piece in pieces {
        encode_chunk(piece.len() as u64, &mut out).unwrap();
        out.extend_from_slice(piece.as_bytes());
    }
    call_to(STREAM_PATH).content(out)
}

/// Status, Content-Length and content of a framed response.
#[track_caller]
fn streamed(answer: &TestResponse) -> (u16, Option<u64>, String) {
    assert_eq!((answer.status, answer.field("Content-Type")), (200, Some("application/grpc")), "{answer:?}");
    assert_eq!(Status::of(answer.trailers.as_ref().expect("trailers")), Status::OK);
    let mut decoder = ResponseStreamDecoder::new(Limits::default());
    decoder.begin(Encoding::Identity);
    let (mut bytes, mut content) = (Chunk::from(answer.body.clone()), String::new());
    while let Some(part) = decoder.next(&mut bytes, &mut blocks).unwrap() {
        if let StreamPart::Chunk(chunk) = part {
            content += std::str::from_utf8(chunk.as_slice()).unwrap();
        }
    }
    decoder.finish().unwrap();
    (decoder.head().status().as_u16(), decoder.head().fields().content_length().unwrap(), content)
}

/// Returns a compressed frame whose unknown part inflates to 4 MB. A receiver skips it.
pub(crate) fn skipped_frame() -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(b"\x4a\x80\x92\xf4\x01").unwrap();
    encoder.write_all(&vec![0; 4_000_000]).unwrap();
    let message = encoder.finish().unwrap();
    let mut frame = vec![1];
    frame.extend_from_slice(&(message.len() as u32).to_be_bytes());
    frame.extend_from_slice(&message);
    frame
}

// crates/httpgrpc/proto: frames of an unknown part are skipped. The decoder yields while it decompresses them, and the
// call continues.
#[test]
fn skipped_frames_of_a_stream() {
    let mut echo = kit_with(json!({ "stream": true }), json!([{ "handler": "echo" }]), &Value::Null);
    let (mut head, mut scratch, mut content) = (Vec::new(), Vec::new(), Vec::new());
    encode_request_head(&self::head("POST", "/s", &[]), &mut scratch, &mut head).unwrap();
    encode_chunk(3, &mut content).unwrap();
    content.extend_from_slice(b"one");
    let all = [skipped_frame(), head, skipped_frame(), content, skipped_frame()].concat();
    let answer = echo.send(&call_to(STREAM_PATH).field("grpc-encoding", "gzip").content(all));
    assert_eq!(streamed(&answer), (200, None, "one".to_owned()));
}

// crates/httpgrpc/proto: frames of a head and content, in both directions; a 5xx is an ordinary response.
#[test]
fn exchanges_that_stream() {
    let options = json!({ "stream": true });
    let mut echo = kit_with(options.clone(), json!([{ "handler": "echo" }]), &Value::Null);
    assert_eq!(streamed(&echo.send(&stream_call(&[], &["one ", "two"]))), (200, None, "one two".to_owned()));
    let sized = stream_call(&[("Content-Length", "7")], &["one ", "two"]);
    assert_eq!(streamed(&echo.send(&sized)), (200, Some(7), "one two".to_owned()));
    assert_eq!(streamed(&echo.send(&stream_call(&[], &[]))), (200, None, String::new()));
    let mut pieces = kit_with(options.clone(), json!([{ "handler": "pieces", "status": 503 }]), &Value::Null);
    assert_eq!(streamed(&pieces.send(&stream_call(&[], &[]))), (503, None, "one two".to_owned()));
    let long = "x".repeat(5_000_000);
    let respond = json!({ "handler": "static_response", "body": long });
    let (_, length, content) =
        streamed(&kit_with(options.clone(), json!([respond]), &Value::Null).send(&stream_call(&[], &[])));
    assert_eq!((length, content.len()), (Some(5_000_000), 5_000_000), "more than a frame");
    refused(&echo.send(&call_to(STREAM_PATH)), 200, Code::UNIMPLEMENTED);
    refused(&echo.send(&call_to(STREAM_PATH).content(b"\0\0\0\0\x03\x1a\x01x".to_vec())), 200, Code::INTERNAL);
    // The limit on a body of unknown length.
    let handlers = json!([{ "handler": "request_body", "max_size": 5 }, { "handler": "static_response", "body": "{http.request.body}" }]);
    let mut limited = kit_with(options, handlers, &Value::Null);
    let (status, _, content) = streamed(&limited.send(&stream_call(&[], &["one ", "two"])));
    assert_eq!((status, &*content), (200, "request body: http: request body too large"));
}

#[test]
fn invalid_options() {
    for (options, want) in [
        (json!({ "max_message_size": 0 }), "max_message_size: found '0', expected bytes, from 1 to 4294967295"),
        (json!({ "max_message_size": 1u64 << 32 }), "found '4294967296', expected bytes"),
        (json!({ "streams": true }), "unknown field `streams`"),
    ] {
        let mut handler = options;
        handler["handler"] = json!("httpgrpc");
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &Value::Null).err().expect("refused");
        assert!(error.to_string().contains(want), "{error}");
    }
}

// Caddy, http.handlers.tracing: the request's fields name the new span. It is that of the call, in whose metadata
// dskit's clients send their own (otelgrpc), so the request in the message continues it too.
#[test]
fn the_request_continues_the_call_s_trace() {
    const SENDER: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    const IN_MESSAGE: &str = "00-11111111111111111111111111111111-2222222222222222-01";
    let mut registry = registry();
    registry.set_environment(|name| (name == "OTEL_TRACES_EXPORTER").then(|| "none".to_owned()));
    let show = json!({ "handler": "static_response", "body":
        "{http.request.header.traceparent} {http.request.header.tracestate} {http.vars.span_id}" });
    for fields in [&[("traceparent", IN_MESSAGE), ("tracestate", "old=1")][..], &[]] {
        let request = call("GET", "/", fields, "").field("traceparent", SENDER).field("tracestate", "new=1");
        let handle = json!([{ "handle": [{ "handler": "tracing" }, { "handler": "httpgrpc" }, show] }]);
        let body = got(&Kit::new(&registry, &handle).send(&request)).body;
        let parts: Vec<_> = body.split(' ').collect();
        assert_eq!((&parts[0][..36], parts[1], &parts[0][36..52]), (&SENDER[..36], "new=1", parts[2]));
        // Without the directive the message stays as it is.
        let handle = json!([{ "handle": [{ "handler": "httpgrpc" }, show] }]);
        let body = got(&Kit::new(&registry, &handle).send(&request)).body;
        assert_eq!(body.split(' ').next(), Some(if fields.is_empty() { "" } else { IN_MESSAGE }));
    }
}

// dskit: clients send the tenant in the call's metadata. The message's own has precedence.
#[test]
fn the_tenant_of_the_metadata() {
    let mut kit = kit(json!([{ "handler": "static_response", "body": "{http.request.header.X-Scope-OrgID}" }]));
    for (fields, want) in [(&[][..], "outer"), (&[("X-Scope-OrgID", "inner")], "inner")] {
        let request = call("GET", "/", fields, "").field("X-Scope-OrgID", "outer");
        assert_eq!(got(&kit.send(&request)).body, want);
    }
}

// OpenTelemetry, semantic conventions for HTTP spans: a 5xx is an error. That of the request in the message counts,
// also if the call itself ended with 200.
#[test]
fn the_status_for_metrics_and_traces() {
    thread_local!(static SEEN: RefCell<Vec<Option<u16>>> = RefCell::default());
    struct Statuses;
    impl Handler for Statuses {
        fn enter(&self, _: &mut Context) -> Step {
            Step::Next
        }
        fn end(&self, cx: &Context, _: &causeway_pipeline::Outcome) {
            let status = cx.effective_status(Some(StatusCode::OK));
            SEEN.with(|seen| seen.borrow_mut().push(status.map(StatusCode::as_u16)));
        }
    }
    let mut registry = registry();
    registry.register_handler("statuses", |_, _| Ok(Box::new(Statuses)));
    let answer = json!({ "handler": "static_response", "status_code": "503" });
    let handle = json!([{ "handle": [{ "handler": "statuses" }, { "handler": "httpgrpc" }, answer] }]);
    let mut kit = Kit::new(&registry, &handle);
    kit.send(&call("GET", "/", &[], ""));
    kit.send(&Request::get("/"));
    SEEN.with(|seen| assert_eq!(*seen.borrow(), [Some(503), Some(200)]));
}

//! The cost of an httpgrpc call once a worker has served an equal one: few allocations and few bytes, whatever the
//! content's size. Received and sent content is passed by reference.

use std::sync::atomic::{AtomicU64, Ordering};

use causeway_httpgrpc::{UNARY_PATH, encode_request};
use causeway_message::{Chunk, FieldMap, FieldValue, Head, Method, NameRef, ResponseHead, StatusCode, names};
use causeway_pipeline::{Body, BodyStream as _, Context, Frame, Handler, Registry, Response, Step};
use causeway_testkit::counting::{CountingAllocator, allocations_during, bytes_kept_by};
use causeway_testkit::{FakeCall, Kit, Request};
use serde_json::json;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const SIZES: [usize; 4] = [1024, 100 * 1024, 1024 * 1024, 10 * 1024 * 1024];

/// Responds with bytes that are created once, and consumes the received content.
struct BytesHandler(Chunk);

static TAKEN: AtomicU64 = AtomicU64::new(0);

impl Handler for BytesHandler {
    fn enter(&self, cx: &mut Context) -> Step {
        let mut task = std::task::Context::from_waker(std::task::Waker::noop());
        if let Some(mut body) = cx.take_body() {
            while let std::task::Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) = body.poll_frame(&mut task) {
                TAKEN.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            }
        }
        Step::Respond(Response { status: StatusCode::OK, body: Body::Chunk(self.0.clone()) })
    }
}

/// A call whose message arrives as from a connection: as ranges of blocks.
fn call(bytes: usize) -> Request {
    let mut head = Head::new();
    head.set_method(Method::Post);
    head.set_target("/taken?a=b").unwrap();
    for (name, value) in [("User-Agent", "test"), ("Accept", "*/*"), ("X-Scope-OrgID", "tenant")] {
        head.fields_mut()
            .append(NameRef::parse(name.as_bytes()).unwrap(), FieldValue::parse(value.as_bytes()).unwrap());
    }
    let mut message = Vec::new();
    encode_request(&head, bytes as u64, &mut message).unwrap();
    message.resize(message.len() + bytes, b'x');
    let mut whole = Chunk::from(message);
    let mut request = Request::new("POST", UNARY_PATH).field("Content-Type", "application/grpc");
    while !whole.is_empty() {
        request = request.chunk(whole.split_to(whole.len().min(16 * 1024)));
    }
    request
}

// gRPC's own servers allocate each body at least once. Here: the body's reader, the response's list of parts, and the
// trailers.
#[test]
fn a_call_that_is_served() {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    for bytes in SIZES {
        let mut registry = Registry::default();
        causeway_modules::register(&mut registry);
        let content = Chunk::from(vec![b'y'; bytes]);
        registry.register_handler("bytes", move |_, _| Ok(Box::new(BytesHandler(content.clone()))));
        let handlers = json!([{ "handler": "httpgrpc", "max_message_size": 64 << 20 }, { "handler": "bytes" }]);
        let mut kit = Kit::new(&registry, &json!([{ "handle": handlers }]));
        let request = call(bytes);
        let before = TAKEN.load(Ordering::Relaxed);
        let answer = kit.send(&request);
        assert_eq!(answer.trailers.as_ref().and_then(|fields| fields.get(names::GRPC_STATUS)), Some(&b"0"[..]));
        assert_eq!(TAKEN.load(Ordering::Relaxed) - before, bytes as u64);
        (0..10).for_each(|_| kit.run(&request));
        let count = allocations_during(|| (0..100).for_each(|_| kit.run(&request)));
        assert!(count <= 500, "{count} in 100 calls of {bytes} bytes");
        // No allocation of a call remains.
        assert_eq!(bytes_kept_by(|| (0..10).for_each(|_| kit.run(&request))), 0, "{bytes}");
    }
}

/// Responds to a call with a message of `bytes` bytes, sent at once.
fn answerer(bytes: usize) -> impl FnMut(FakeCall) + 'static {
    let mut message = Vec::new();
    causeway_httpgrpc::encode_response(StatusCode::OK, &FieldMap::new(), bytes as u64, &mut message).unwrap();
    message.resize(message.len() + bytes, b'y');
    let whole = Chunk::from(message);
    let mut head = ResponseHead::new(StatusCode::OK);
    move |call| {
        head.clear();
        head.set_status(StatusCode::OK);
        head.set(names::CONTENT_TYPE, FieldValue::from_static("application/grpc"));
        call.engine.put_head(&mut head, None, false);
        let mut rest = whole.clone();
        while !rest.is_empty() {
            call.engine.mailbox().push(Frame::Chunk(rest.split_to(rest.len().min(16 * 1024))));
        }
        let mut trailers = FieldMap::new();
        trailers.insert(names::GRPC_STATUS, FieldValue::from_static("0"));
        call.engine.mailbox().push(Frame::Trailers(Box::new(trailers)));
        call.engine.mailbox().complete();
    }
}

// Three of the allocations are the trailers that the test makes on behalf of the upstream.
#[test]
fn a_forwarded_call() {
    for bytes in SIZES {
        let mut registry = Registry::default();
        causeway_modules::register(&mut registry);
        let handler = json!({
            "handler": "reverse_proxy", "upstreams": [{ "dial": "10.0.0.1:95" }],
            "transport": { "protocol": "httpgrpc", "max_message_size": 64 << 20, "timeout": "10s" },
        });
        let mut kit = Kit::new(&registry, &json!([{ "handle": [handler] }]));
        kit.worker().answer_calls(answerer(bytes));
        let request = Request::new("POST", "/a?b").field("Content-Length", "7").field("X-A", "a").content("content");
        let answer = kit.send(&request);
        assert_eq!((answer.status, answer.length), (200, Some(bytes as u64)));
        (0..10).for_each(|_| kit.run(&request));
        let count = allocations_during(|| (0..100).for_each(|_| kit.run(&request)));
        assert!(count <= 800, "{count} in 100 calls of {bytes} bytes");
    }
}

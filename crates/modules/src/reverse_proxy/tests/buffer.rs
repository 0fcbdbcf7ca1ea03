//! `request_buffers` and `response_buffers`.

use std::task::{Context as PollContext, Poll, Waker};

use causeway_pipeline::{Body, BodyError, BodyStream as _, CallError, Frame};
use causeway_testkit::{FakeCall, Kit, Pending, Request};
use serde_json::json;

use super::{kit, start_call};

fn post(content: &str) -> Request {
    Request::new("POST", "/").content(content)
}

/// Sends a request; the upstream gets it once its content is read.
#[track_caller]
fn after_reading(kit: &mut Kit, request: &Request) -> (FakeCall, Pending) {
    let pending = kit.send_pending(request).expect_err("it waits");
    let pending = pending.poll(kit).expect_err("it waits for the upstream");
    (kit.worker().take_call().expect("a call"), pending)
}

#[track_caller]
fn content(call: &FakeCall) -> (Option<u64>, Vec<u8>) {
    let mut body = call.take_body().expect("a body");
    let (len, mut bytes) = (body.len(), Vec::new());
    let mut poll_cx = PollContext::from_waker(Waker::noop());
    let mut push = |frame: Poll<Option<Result<Frame, BodyError>>>| match frame {
        Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => {
            bytes.extend_from_slice(chunk.as_slice());
            true
        }
        _ => false,
    };
    match &mut body {
        Body::Incoming(body) => while push(body.poll_frame(&mut poll_cx)) {},
        Body::Stream(body) => while push(body.poll_frame(&mut poll_cx)) {},
        _ => panic!("content that is received"),
    }
    (len, bytes)
}

// Caddy, `request_buffers`: content up to this size is read first, and then has a length; longer content streams on.
#[test]
fn requests() {
    for (buffers, text) in [(10, "ten bytes."), (10, "eleven byte"), (1, "more"), (-1, "any"), (10, "")] {
        let mut kit = kit(json!({ "request_buffers": buffers }));
        let (call, pending) = match text {
            // There is nothing to wait for.
            "" => start_call(&mut kit, &Request::get("/")),
            _ => after_reading(&mut kit, &post(text)),
        };
        if !text.is_empty() {
            assert_eq!(content(&call), (Some(text.len() as u64), text.as_bytes().to_vec()), "{buffers}");
        }
        call.answer(200, &[], Some(0));
        call.end();
        drop(call);
        assert_eq!(pending.finish(&mut kit).status, 200);
    }
}

// A body that is not there yet is waited for, and one that fails fails the request before an upstream sees it.
#[test]
fn requests_that_are_not_complete() {
    let mut kit = kit(json!({ "request_buffers": 10 }));
    let pending = kit.send_pending(&post("a").body_open()).expect_err("it waits");
    let pending = pending.poll(&mut kit).expect_err("it waits for the rest");
    assert!(kit.worker().take_call().is_none());
    pending.cancel(&mut kit);
    let broken = post("a").body_fails(BodyError::TooLarge);
    assert_eq!(kit.send(&broken).status, 413);
    assert!(kit.worker().take_call().is_none());
}

// Caddy, `response_buffers`: content up to this size is read first; longer content streams on.
#[test]
fn responses() {
    for (buffers, parts, length) in [
        (10, &["ten ", "bytes."][..], Some(10)),
        (10, &["ten ", "bytes."], None),
        (5, &["ten ", "bytes."], Some(10)),
        (5, &["ten ", "bytes."], None),
        (-1, &["x"], None),
        (10, &[], Some(0)),
    ] {
        let mut kit = kit(json!({ "response_buffers": buffers }));
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        call.answer(200, &[("A", "b")], length);
        let text = parts.concat();
        let mut pending = Some(pending);
        for part in parts {
            if buffers == 10 {
                let waits = pending.take().unwrap().poll(&mut kit);
                pending = Some(waits.expect_err("the client gets no head before the content is read"));
            }
            call.send(part.as_bytes());
        }
        call.end();
        drop(call);
        let answer = pending.take().unwrap().finish(&mut kit);
        assert_eq!((answer.status, answer.text(), answer.field("a")), (200, &*text, Some("b")), "{buffers} {length:?}");
    }
}

// A response that breaks off within the buffer is an error of the upstream, not a part of a response.
#[test]
fn responses_that_break_off() {
    let mut kit = kit(json!({ "response_buffers": 10 }));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[], Some(10));
    call.send(b"ten");
    call.engine.fail(CallError::Closed);
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 502);
}

// RFC 9110 §9.3.2: a response to HEAD has no content to wait for.
#[test]
fn responses_without_content() {
    let mut kit = kit(json!({ "response_buffers": 10 }));
    for (method, status) in [("HEAD", 200), ("GET", 304), ("GET", 204)] {
        let (call, pending) = start_call(&mut kit, &Request::new(method, "/"));
        call.answer(status, &[], None);
        assert_eq!(pending.poll(&mut kit).unwrap_or_else(|_| panic!("it waits")).status, status);
    }
}

// Caddy: a body that is in memory anyway is sent again, however long it is.
#[test]
fn a_retry_of_a_buffered_request() {
    let mut kit = kit(json!({
        "request_buffers": 1 << 20,
        "load_balancing": { "retries": 1, "retry_match": [{ "method": ["POST"] }] },
    }));
    let text = "x".repeat(300 * 1024);
    let (call, pending) = after_reading(&mut kit, &post(&text));
    assert_eq!(content(&call).1.len(), text.len());
    call.engine.fail(CallError::Closed);
    drop(call);
    let pending = pending.poll(&mut kit).expect_err("the next attempt");
    let call = kit.worker().take_call().expect("a second call");
    assert_eq!(content(&call).1.len(), text.len());
    pending.cancel(&mut kit);
}

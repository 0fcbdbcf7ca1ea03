use std::io;
use std::time::Duration;

use causeway_pipeline::{Body, BodyStream as _, CallError, Frame};
use causeway_testkit::{FakeCall, Kit, Pending, Request, TestResponse};
use serde_json::{Value, json};

use super::tunnel::start_after_content;
use super::{kit, proxy, registry, start_call};

fn three(balancing: Value) -> Kit {
    let mut balancing = balancing;
    balancing["selection_policy"] = json!({ "policy": "round_robin" });
    kit(json!({ "upstreams": [{ "dial": "c:1" }, { "dial": "a:1" }, { "dial": "b:1" }], "load_balancing": balancing }))
}

fn refused() -> CallError {
    CallError::Connect(io::ErrorKind::ConnectionRefused)
}

/// Fails the call, and returns the next one; the response if there is none.
fn fail_attempt(
    kit: &mut Kit,
    call: FakeCall,
    pending: Pending,
    error: CallError,
) -> Result<(FakeCall, Pending), Box<TestResponse>> {
    call.engine.fail(error);
    drop(call);
    match pending.poll(kit) {
        Ok(response) => Err(Box::new(response)),
        Err(pending) => Ok((kit.worker().take_call().expect("another attempt"), pending)),
    }
}

fn text(call: &FakeCall) -> String {
    let mut text = Vec::new();
    let mut task = std::task::Context::from_waker(std::task::Waker::noop());
    let mut push = |frame| {
        if let Frame::Chunk(chunk) = frame {
            text.extend_from_slice(chunk.as_slice());
        }
    };
    match call.take_body().expect("a body") {
        Body::Empty => {}
        Body::Chunk(chunk) => push(Frame::Chunk(chunk)),
        Body::Stream(mut stream) => {
            while let std::task::Poll::Ready(Some(Ok(frame))) = stream.poll_frame(&mut task) {
                push(frame);
            }
        }
        Body::Incoming(mut body) => {
            while let std::task::Poll::Ready(Some(Ok(frame))) = body.poll_frame(&mut task) {
                push(frame);
            }
        }
        other => panic!("{other:?}"),
    }
    String::from_utf8(text).unwrap()
}

// Caddy, `lb_retries`: so many further attempts, each with the next upstream, if the connection failed.
#[test]
fn attempts_are_counted() {
    let mut kit = three(json!({ "retries": 2 }));
    let (first, pending) = start_call(&mut kit, &Request::get("/").field("X-A", "1"));
    assert_eq!(&*first.address, "a:1");
    let wanted = first.request_text();
    let (second, pending) = fail_attempt(&mut kit, first, pending, refused()).unwrap();
    assert_eq!((&*second.address, second.request_text()), ("b:1", wanted));
    let (third, pending) = fail_attempt(&mut kit, second, pending, refused()).unwrap();
    assert_eq!(&*third.address, "c:1");
    assert_eq!(fail_attempt(&mut kit, third, pending, refused()).err().unwrap().status, 502);
    // The second attempt succeeds.
    let (first, pending) = start_call(&mut kit, &Request::get("/"));
    let (second, pending) = fail_attempt(&mut kit, first, pending, refused()).unwrap();
    second.answer(200, &[], Some(0));
    second.end();
    drop(second);
    assert_eq!(pending.finish(&mut kit).status, 200);
    // By default there is one attempt.
    let mut kit = three(json!({}));
    let (first, pending) = start_call(&mut kit, &Request::get("/"));
    assert_eq!(fail_attempt(&mut kit, first, pending, refused()).err().unwrap().status, 502);
}

// Caddy, `lb_try_duration` and `lb_try_interval`, 250 ms by default.
#[test]
fn attempts_are_limited_by_time() {
    let mut kit = three(json!({ "try_duration": "1s" }));
    let (mut call, mut pending) = start_call(&mut kit, &Request::get("/"));
    for attempt in 1.. {
        call.engine.fail(refused());
        drop(call);
        pending = match pending.poll(&mut kit) {
            Ok(response) => {
                assert_eq!((response.status, attempt), (502, 5), "the time is over");
                return;
            }
            Err(pending) => pending,
        };
        assert!(kit.worker().take_call().is_none(), "it pauses");
        kit.worker().advance(Duration::from_millis(250));
        pending = pending.poll(&mut kit).unwrap_err();
        call = kit.worker().take_call().expect("another attempt");
    }
}

// Caddy: while no upstream is available, the request waits for one, for as long as attempts are allowed.
#[test]
fn a_wait_for_an_upstream() {
    let upstreams = json!([{ "dial": "a:1", "max_requests": 1 }]);
    let mut kit =
        kit(json!({ "upstreams": upstreams, "load_balancing": { "try_duration": "1s", "try_interval": "100ms" } }));
    let (held, holder) = start_call(&mut kit, &Request::get("/"));
    let waiting = kit.send_pending(&Request::get("/")).unwrap_err();
    kit.worker().advance(Duration::from_millis(100));
    let waiting = waiting.poll(&mut kit).unwrap_err();
    held.answer(200, &[], Some(0));
    held.end();
    drop(held);
    holder.finish(&mut kit);
    kit.worker().advance(Duration::from_millis(100));
    let waiting = waiting.poll(&mut kit).unwrap_err();
    let call = kit.worker().take_call().expect("its turn has come");
    call.answer(200, &[], Some(0));
    call.end();
    drop(call);
    assert_eq!(waiting.finish(&mut kit).status, 200);
    let (held, holder) = start_call(&mut kit, &Request::get("/"));
    let mut waiting = kit.send_pending(&Request::get("/")).unwrap_err();
    for _ in 0..20 {
        kit.worker().advance(Duration::from_millis(100));
        waiting = match waiting.poll(&mut kit) {
            Ok(response) => {
                assert_eq!(response.status, 503);
                holder.cancel(&mut kit);
                drop(held);
                return;
            }
            Err(waiting) => waiting,
        };
    }
    panic!("it waits for longer than a second");
}

// A request with Upgrade: no upstream has switched, so another one gets its content.
#[test]
fn attempts_of_a_tunnel_after_content() {
    let mut kit = three(json!({ "retries": 1 }));
    let request = Request::new("POST", "/").upgrade("tcp").field("Content-Length", "2").content("{}");
    let (first, pending) = start_after_content(&mut kit, &request);
    let (second, pending) = fail_attempt(&mut kit, first, pending, refused()).unwrap();
    assert!(second.request_text().contains("\nUpgrade: tcp\n"));
    let Some(Body::Tunnel(tunnel)) = second.take_body() else { panic!("a tunnel") };
    assert_eq!(tunnel.content.as_slice(), b"{}");
    pending.cancel(&mut kit);
}

// With `lb_retries` alone there is no pause between attempts, but a wait for an upstream neither spins nor recurses.
#[test]
fn a_wait_without_interval() {
    let options = json!({
        "upstreams": [{ "dial": "a:1" }],
        "load_balancing": { "retries": 500 },
        "health_checks": { "passive": { "fail_duration": "10s" } },
    });
    let mut kit = kit(options);
    let (call, mut pending) = start_call(&mut kit, &Request::get("/"));
    call.engine.fail(refused());
    drop(call);
    for attempts in 0..501 {
        pending = match pending.poll(&mut kit) {
            // The response is that of the attempt that failed.
            Ok(response) => return assert_eq!((response.status, attempts), (502, 499)),
            Err(pending) => pending,
        };
        kit.worker().advance(Duration::from_millis(1));
    }
    panic!("it waits for more than 500 attempts");
}

// A POST of which nothing was sent is never lost; one that an upstream may have acted on is never sent twice.
#[test]
fn requests_with_content() {
    let mut kit = three(json!({ "retries": 2 }));
    let post = Request::new("POST", "/").content("to be kept");
    let (first, pending) = start_call(&mut kit, &post);
    let (second, pending) = fail_attempt(&mut kit, first, pending, refused()).unwrap();
    assert_eq!(text(&second), "to be kept");
    assert_eq!(fail_attempt(&mut kit, second, pending, CallError::Closed).err().unwrap().status, 502);
    for (method, is_again) in [("GET", true), ("HEAD", false), ("PUT", false), ("POST", false)] {
        let (call, pending) = start_call(&mut kit, &Request::new(method, "/"));
        let next = fail_attempt(&mut kit, call, pending, CallError::HeadTimedOut);
        assert_eq!(next.is_ok(), is_again, "{method}");
        if let Ok((_, pending)) = next {
            pending.cancel(&mut kit);
        }
    }
    // The client's own mistake is no reason for another attempt.
    let of_client = [(CallError::RequestBody(causeway_pipeline::BodyError::PeerGone), 400), (CallError::Request, 502)];
    for (error, status) in of_client {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        assert_eq!(fail_attempt(&mut kit, call, pending, error).err().unwrap().status, status);
    }
}

// RFC 9113 §8.7: over HTTP/2 an upstream states that it has not processed a request, so that one of any method is sent
// again.
#[test]
fn requests_that_were_not_processed() {
    let mut kit = kit(json!({
        "upstreams": [{ "dial": "a:1" }],
        "load_balancing": { "retries": 2 },
        "transport": { "protocol": "http", "versions": ["h2c"] },
    }));
    let (first, pending) = start_call(&mut kit, &Request::new("POST", "/").content("to be kept"));
    assert_eq!(text(&first), "to be kept");
    let (second, pending) = fail_attempt(&mut kit, first, pending, CallError::Unprocessed).unwrap();
    assert_eq!(text(&second), "to be kept");
    let (third, pending) = fail_attempt(&mut kit, second, pending, CallError::Reset("REFUSED_STREAM")).unwrap();
    assert_eq!(text(&third), "to be kept");
    assert_eq!(fail_attempt(&mut kit, third, pending, CallError::Reset("CANCEL")).err().unwrap().status, 502);
}

// Caddy, `lb_retry_match`: a request that matches is sent again although an upstream may have acted on it, with its
// content.
#[test]
fn requests_that_may_be_repeated() {
    let matching = json!([{ "method": ["POST"], "path": ["/twice*"] }, { "method": ["DELETE"] }]);
    let mut kit = three(json!({ "retries": 2, "retry_match": matching }));
    for (method, path, is_again) in
        [("POST", "/twice", true), ("POST", "/once", false), ("DELETE", "/", true), ("GET", "/", false)]
    {
        let (call, pending) = start_call(&mut kit, &Request::new(method, path).content("again and again"));
        assert_eq!(text(&call), "again and again");
        match fail_attempt(&mut kit, call, pending, CallError::Closed) {
            Ok((call, pending)) => {
                assert!(is_again, "{method} {path}");
                assert_eq!(text(&call), "again and again");
                let (call, pending) = fail_attempt(&mut kit, call, pending, CallError::Closed).unwrap();
                assert_eq!(text(&call), "again and again");
                pending.cancel(&mut kit);
            }
            Err(response) => assert!(!is_again && response.status == 502, "{method} {path}"),
        }
    }
    // A body that is longer than the bound is sent once.
    let long = "x".repeat(300 * 1024);
    let (call, pending) = start_call(&mut kit, &Request::new("DELETE", "/").content(long.as_str()));
    assert_eq!(text(&call), long);
    assert_eq!(fail_attempt(&mut kit, call, pending, CallError::Closed).err().unwrap().status, 502);
    // But a part that was not read before the failure is still there.
    let (call, pending) = start_call(&mut kit, &Request::new("DELETE", "/").content(long.as_str()));
    let (call, pending) = fail_attempt(&mut kit, call, pending, refused()).unwrap();
    assert_eq!(text(&call), long);
    pending.cancel(&mut kit);
}

// Caddy: the request decides that the upstream got, after the proxy's own `method`, `rewrite` and `header_up`; it may
// have acted on that one.
#[test]
fn rewritten_requests() {
    let of = |matching: Value, rewrite: Value| {
        let mut balancing = json!({ "retries": 1, "selection_policy": { "policy": "first" } });
        if !matching.is_null() {
            balancing["retry_match"] = matching;
        }
        kit(json!({
            "upstreams": [{ "dial": "a:1" }, { "dial": "b:1" }],
            "load_balancing": balancing,
            "rewrite": rewrite,
            "headers": { "request": { "set": { "X-Again": ["yes"] } } },
        }))
    };
    for (method, matching, rewrite, is_again) in [
        ("GET", Value::Null, json!({ "method": "POST" }), false),
        ("POST", Value::Null, json!({ "method": "GET" }), true),
        ("GET", json!([{ "method": ["GET"] }]), json!({ "method": "POST" }), false),
        ("GET", json!([{ "method": ["POST"] }]), json!({ "method": "POST" }), true),
        ("GET", json!([{ "path": ["/"] }]), json!({ "uri": "/new%20path" }), false),
        ("GET", json!([{ "path": ["/new path"] }]), json!({ "uri": "/new%20path" }), true),
        ("GET", json!([{ "header": { "X-Again": ["yes"] } }]), json!({}), true),
        ("GET", json!([{ "header": { "X-Again": ["no"] } }]), json!({}), false),
    ] {
        let mut kit = of(matching.clone(), rewrite.clone());
        let request = Request::new(method, "/").field("X-Again", "no");
        let (call, pending) = start_call(&mut kit, &request);
        let sent = call.request_text();
        let next = fail_attempt(&mut kit, call, pending, CallError::Closed);
        assert_eq!(next.is_ok(), is_again, "{method} {matching} {rewrite}");
        if let Ok((call, pending)) = next {
            assert_eq!(call.request_text(), sent);
            pending.cancel(&mut kit);
        }
    }
    // So does the rule that content is kept.
    let mut kit = of(json!([{ "path": ["/new"] }]), json!({ "uri": "/new" }));
    let (call, pending) = start_call(&mut kit, &Request::new("POST", "/").content("again"));
    assert_eq!(text(&call), "again");
    let (call, pending) = fail_attempt(&mut kit, call, pending, CallError::Closed).unwrap();
    assert_eq!(text(&call), "again");
    pending.cancel(&mut kit);
    // And so do conditions about responses.
    let rejects = "method('POST') && {http.reverse_proxy.status_code} == 503";
    let mut kit = of(expression(rejects), json!({ "method": "POST" }));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    let (_, pending) = after_answer(&mut kit, call, pending, 503, &[]).expect("another attempt");
    pending.cancel(&mut kit);
}

// A retry sets the cookie of the upstream that it selects, and no other.
#[test]
fn one_cookie() {
    let mut kit = kit(json!({
        "upstreams": [{ "dial": "a:1" }, { "dial": "b:1" }],
        "load_balancing": { "retries": 1, "selection_policy": { "policy": "cookie", "fallback": { "policy": "round_robin" } } },
    }));
    let (first, pending) = start_call(&mut kit, &Request::get("/"));
    let (second, pending) = fail_attempt(&mut kit, first, pending, refused()).unwrap();
    second.answer(200, &[], Some(0));
    second.end();
    drop(second);
    let response = pending.finish(&mut kit);
    assert_eq!(response.values("Set-Cookie").count(), 1);
}

/// Answers the call, and returns the next one; the response if there is none.
fn after_answer(
    kit: &mut Kit,
    call: FakeCall,
    pending: Pending,
    status: u16,
    fields: &[(&str, &str)],
) -> Result<(FakeCall, Pending), Box<TestResponse>> {
    call.answer(status, fields, Some(0));
    call.end();
    drop(call);
    match pending.poll(kit) {
        Ok(response) => Err(Box::new(response)),
        Err(pending) => Ok((kit.worker().take_call().expect("another attempt"), pending)),
    }
}

fn expression(text: &str) -> Value {
    json!([{ "expression": text }])
}

// Caddy 2.11, `lb_retry_match`: an expression that reads the response is evaluated for each response. When no attempt
// is left, the error has the response's status.
#[test]
fn responses_that_are_rejected() {
    let text = "{http.reverse_proxy.status_code} in [502, 503] || {http.reverse_proxy.header.X-Again} == 'yes'";
    let mut kit = three(json!({ "retries": 2, "retry_match": expression(text) }));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    assert_eq!(&*call.address, "a:1");
    let (call, pending) = after_answer(&mut kit, call, pending, 503, &[("X-A", "1")]).unwrap();
    assert_eq!(&*call.address, "b:1");
    // The field of an earlier response has no effect on a later one.
    let (call, pending) = after_answer(&mut kit, call, pending, 200, &[("X-Again", "yes")]).unwrap();
    let response = after_answer(&mut kit, call, pending, 200, &[("X-B", "2")]).err().unwrap();
    assert_eq!((response.status, response.values("X-B").count()), (200, 1));
    assert_eq!(response.values("X-A").count(), 0);

    let (mut call, mut pending) = start_call(&mut kit, &Request::get("/"));
    for _ in 0..2 {
        (call, pending) = after_answer(&mut kit, call, pending, 502, &[]).unwrap();
    }
    assert_eq!(after_answer(&mut kit, call, pending, 503, &[("X-A", "1")]).err().unwrap().status, 503);
    // Such an expression does not hold for a failure, which has no response.
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    assert_eq!(fail_attempt(&mut kit, call, pending, CallError::Closed).err().unwrap().status, 502);
}

// Caddy: a set that reads nothing of the response is about failures alone.
#[test]
fn conditions_without_a_response() {
    let mut kit = three(json!({ "retries": 2, "retry_match": [{ "path": ["/*"] }, { "expression": "path('/a')" }] }));
    let (call, pending) = start_call(&mut kit, &Request::get("/a"));
    assert_eq!(after_answer(&mut kit, call, pending, 503, &[]).err().unwrap().status, 503);
}

// Caddy: all matchers of a set must match, and an expression may join conditions about the request and the response.
#[test]
fn conditions_about_both() {
    let matching = json!([
        { "expression": "path('/retry*') && {http.reverse_proxy.status_code} == 502" },
        { "method": ["PUT"], "expression": { "expr": "{http.reverse_proxy.status_code} == 502" } },
    ]);
    let mut kit = three(json!({ "retries": 1, "retry_match": matching }));
    for (method, path, status, is_again) in [
        ("GET", "/retry", 502, true),
        ("GET", "/retry", 500, false),
        ("GET", "/other", 502, false),
        ("PUT", "/other", 502, true),
    ] {
        let (call, pending) = start_call(&mut kit, &Request::new(method, path));
        let next = after_answer(&mut kit, call, pending, status, &[]);
        assert_eq!(next.is_ok(), is_again, "{method} {path} {status}");
        if let Ok((_, pending)) = next {
            pending.cancel(&mut kit);
        }
    }
}

// Caddy: `{rp.is_transport_error}` is true for a failed attempt, and has no value otherwise.
#[test]
fn transport_errors() {
    let text = "{http.reverse_proxy.is_transport_error} || {http.reverse_proxy.status_code} == 503";
    let mut kit = three(json!({ "retries": 3, "retry_match": expression(text) }));
    let post = Request::new("POST", "/").content("kept for each attempt");
    let (call, pending) = start_call(&mut kit, &post);
    assert_eq!(self::text(&call), "kept for each attempt");
    let (call, pending) = fail_attempt(&mut kit, call, pending, CallError::Closed).unwrap();
    assert_eq!(self::text(&call), "kept for each attempt");
    let (call, pending) = after_answer(&mut kit, call, pending, 503, &[]).unwrap();
    assert_eq!(self::text(&call), "kept for each attempt");
    assert_eq!(after_answer(&mut kit, call, pending, 500, &[]).err().unwrap().status, 500);
    // A body that is too long to be kept is sent once: the client gets any response.
    let long = "x".repeat(300 * 1024);
    let (call, pending) = start_call(&mut kit, &Request::new("POST", "/").content(long.as_str()));
    assert_eq!(self::text(&call).len(), long.len());
    assert_eq!(after_answer(&mut kit, call, pending, 503, &[("X-A", "1")]).err().unwrap().values("X-A").count(), 1);
}

// Caddy, tryAgain: the limits come first. Without an attempt left, no condition is evaluated, which here would capture.
#[test]
fn conditions_are_evaluated_for_another_attempt() {
    let condition = json!({ "path_regexp": { "name": "again", "pattern": "^/(.*)" } });
    let options = json!({ "load_balancing": { "try_duration": "1s", "retry_match": [condition] } });
    let errors = json!([{ "handle": [{ "handler": "static_response", "body": "path {http.regexp.again.1}" }] }]);
    for (took, is_evaluated) in [(999, true), (1000, false)] {
        let mut kit = Kit::with_errors(&registry(), &json!([{ "handle": [proxy(options.clone())] }]), &errors);
        let (call, pending) = start_call(&mut kit, &Request::get("/captured"));
        kit.worker().advance(Duration::from_millis(took));
        call.engine.fail(CallError::Closed);
        drop(call);
        let answer = pending.poll(&mut kit).unwrap_or_else(|pending| {
            kit.worker().advance(Duration::from_millis(250));
            let pending = pending.poll(&mut kit).expect_err("the call is under way");
            kit.worker().take_call().expect("another attempt").engine.fail(CallError::Closed);
            pending.finish(&mut kit)
        });
        assert_eq!(answer.text() == "path captured", is_evaluated, "after {took} ms: {}", answer.text());
    }
}

// Caddy, `lb_retry_match` with `file`: a matcher that would have to wait does not hold, and the next set counts. The
// request waits for its upstream alone.
#[test]
fn conditions_that_would_wait() {
    let matching = json!([{ "file": { "root": "/" } }, { "method": ["DELETE"] }]);
    let mut kit = three(json!({ "retries": 1, "retry_match": matching }));
    for (method, is_again) in [("DELETE", true), ("GET", false)] {
        let (call, pending) = start_call(&mut kit, &Request::new(method, "/").content("again"));
        assert_eq!(text(&call), "again");
        let next = fail_attempt(&mut kit, call, pending, CallError::Closed);
        assert_eq!(next.is_ok(), is_again, "{method}");
        if let Ok((call, pending)) = next {
            assert_eq!(text(&call), "again");
            pending.cancel(&mut kit);
        }
    }
}

// RFC 9110 §6.5: trailers end the content. An attempt may fail before it polls for the end, and the next one sends them
// too.
#[test]
fn trailers_are_sent_again() {
    let mut kit = three(json!({ "retries": 1, "retry_match": [{ "method": ["POST"] }] }));
    let request = Request::new("POST", "/").content("again").trailer("X-T", "1");
    let (first, pending) = start_call(&mut kit, &request);
    let frames = |call: &FakeCall, count: usize| {
        let Some(Body::Stream(mut body)) = call.take_body() else { panic!("a stream") };
        let mut task = std::task::Context::from_waker(std::task::Waker::noop());
        let mut frame = || match body.poll_frame(&mut task) {
            std::task::Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => String::from_utf8_lossy(chunk.as_slice()).into(),
            std::task::Poll::Ready(Some(Ok(Frame::Trailers(trailers)))) => format!("{} trailer", trailers.len()),
            std::task::Poll::Ready(None) => "end".to_owned(),
            other => panic!("{other:?}"),
        };
        (0..count).map(|_| frame()).collect::<Vec<_>>()
    };
    assert_eq!(frames(&first, 2), ["again", "1 trailer"]);
    let (second, pending) = fail_attempt(&mut kit, first, pending, CallError::Closed).unwrap();
    assert_eq!(frames(&second, 3), ["again", "1 trailer", "end"]);
    pending.cancel(&mut kit);
}

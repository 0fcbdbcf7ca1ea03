//! The cost of forwarding a request once a worker has forwarded an equal one: no allocation. The test responds on
//! behalf of the upstream, from its own storage.

use causeway_message::{Chunk, FieldValue, NameRef, ResponseHead, StatusCode, names};
use causeway_pipeline::{Frame, Registry};
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{FakeCall, Kit, Request};
use serde_json::{Value, json};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Responds to a call, at once.
fn answerer() -> impl FnMut(FakeCall) + 'static {
    let mut head = ResponseHead::new(StatusCode::OK);
    move |call| {
        head.clear();
        head.set_status(StatusCode::OK);
        head.set(names::SERVER, FieldValue::from_static("theirs"));
        head.set(names::CONNECTION, FieldValue::from_static("keep-alive"));
        head.append(NameRef::Other("X-A"), FieldValue::from_static("1"));
        head.append(NameRef::Other("X-A"), FieldValue::from_static("2"));
        call.engine.put_head(&mut head, Some(2), false);
        call.engine.mailbox().push(Frame::Chunk(Chunk::from_static(b"ok")));
        call.engine.mailbox().complete();
    }
}

#[track_caller]
fn check(options: Value, request: &Request) {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let mut handler = options.clone();
    handler["handler"] = json!("reverse_proxy");
    if handler.get("upstreams").is_none() {
        handler["upstreams"] = json!([{ "dial": "10.0.0.1:80" }]);
    }
    let mut kit = Kit::new(&registry, &json!([{ "handle": [handler] }]));
    kit.worker().answer_calls(answerer());
    let answer = kit.send(request);
    assert_eq!((answer.status, answer.text(), answer.field("Server")), (200, "ok", Some("theirs")), "{options}");
    (0..10).for_each(|_| kit.run(request));
    let count = allocations_during(|| (0..1000).for_each(|_| kit.run(request)));
    assert_eq!(count, 0, "{options}");
}

fn get() -> Request {
    Request::get("/a?b=c").field("User-Agent", "u").field("Accept", "*/*").field("Cookie", "a=b").field("X-Other", "o")
}

#[test]
fn without_options() {
    check(json!({}), &get());
    check(json!({}), &get().field("Connection", "keep-alive").field("TE", "trailers").secure());
    check(json!({}), &Request::get("http://a.test/x?y"));
    check(json!({ "trusted_proxies": ["192.0.2.0/24"] }), &get().field("X-Forwarded-For", "1.2.3.4"));
    check(json!({ "trusted_proxies": ["2001:db8::/32"] }), &get().peer("[2001:db8::1]:1".parse().unwrap()));
}

#[test]
fn with_operations_rewrites_and_placeholders() {
    let headers = json!({
        "request": { "set": { "Host": ["{http.reverse_proxy.upstream.hostport}"], "X-R": ["{http.request.uri}"] }, "delete": ["Cookie"] },
        "response": { "set": { "X-S": ["{http.reverse_proxy.status_code} {http.reverse_proxy.header.X-A}"] }, "delete": ["X-B"] },
    });
    check(json!({ "headers": headers, "rewrite": { "uri": "/new{http.request.uri.path}" } }), &get());
    check(json!({ "upstreams": [{ "dial": "{http.request.header.X-Other}.test:80" }] }), &get());
}

#[test]
fn with_any_policy() {
    let upstreams = json!([{ "dial": "a:1", "max_requests": 9 }, { "dial": "b:1" }, { "dial": "c:1" }]);
    for policy in [
        json!({ "policy": "random" }),
        json!({ "policy": "random_choose" }),
        json!({ "policy": "round_robin" }),
        json!({ "policy": "weighted_round_robin", "weights": [1, 2, 3] }),
        json!({ "policy": "first" }),
        json!({ "policy": "least_conn" }),
        json!({ "policy": "ip_hash" }),
        json!({ "policy": "client_ip_hash" }),
        json!({ "policy": "uri_hash" }),
        json!({ "policy": "header", "field": "X-Other" }),
        json!({ "policy": "query", "key": "b" }),
        json!({ "policy": "cookie", "name": "none" }),
    ] {
        check(json!({ "upstreams": upstreams, "load_balancing": { "selection_policy": policy } }), &get());
        // All of them are new, so their shares still grow.
        let balancing = json!({ "selection_policy": policy, "slow_start": "24h" });
        check(json!({ "upstreams": upstreams, "load_balancing": balancing }), &get());
        // The key is that of the rewritten request.
        let balancing = json!({ "selection_policy": policy });
        let rewrite = json!({ "method": "POST", "uri": "/new{http.request.uri}" });
        check(json!({ "upstreams": upstreams, "load_balancing": balancing, "rewrite": rewrite }), &get());
    }
}

// Armed retries and health checks cost a request nothing.
#[test]
fn with_retries_and_health_checks() {
    let options = json!({
        "upstreams": [{ "dial": "a:1", "max_requests": 9 }, { "dial": "b:1" }],
        "load_balancing": { "retries": 3, "try_duration": "5s", "retry_match": [{ "method": ["GET", "POST"] }] },
        "health_checks": {
            "active": { "uri": "/health" },
            "passive": { "fail_duration": "30s", "max_fails": 2, "unhealthy_status": [5], "unhealthy_latency": "10s", "unhealthy_request_count": 99 },
        },
    });
    check(options, &get());
}

// A closed circuit breaker counts each request in place. With a limit of latency and a status it counts all that it
// can.
#[test]
fn with_a_circuit_breaker() {
    let mut breaker = json!({ "type": "internal", "error_ratio": 1, "latency": { "limit": "1h" } });
    let upstreams = json!([{ "dial": "a:1" }, { "dial": "b:1" }]);
    check(json!({ "upstreams": upstreams, "circuit_breaker": breaker }), &get());
    // Every response is a failure, and there are never enough of them.
    breaker["error_status"] = json!([2]);
    breaker["min_requests"] = json!(1_000_000);
    check(json!({ "upstreams": upstreams, "circuit_breaker": breaker }), &get());
}

// FastCGI: the variables are encoded into the call's own buffer.
#[test]
fn over_fastcgi() {
    let transport = json!({
        "protocol": "fastcgi", "root": "/srv/{http.request.host}", "split_path": [".php"],
        "env": { "A": "{http.request.method}", "HTTP_X_OTHER": "own" },
    });
    let request = Request::get("/a%20b.php/c//d?e").field("Cookie", "a=b").field("Cookie", "c=d").field("X-Own", "1");
    check(json!({ "transport": transport }), &request.field("X-Other", "o"));
    check(json!({ "transport": transport }), &Request::new("POST", "/a.php").secure());
}

// A response that runs routes, one of which forwards it.
#[test]
fn routes_for_responses() {
    let routes = json!([{ "handle": [{ "handler": "headers", "response": { "set": { "X-T": ["t"] } } }, { "handler": "copy_response" }] }]);
    check(json!({ "handle_response": [{ "match": { "status_code": [2] }, "routes": routes }] }), &get());
}

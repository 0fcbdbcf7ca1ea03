//! - `load`: configurations
//! - `request`: the request that the upstream receives
//! - `answer`: the response, and failures
//! - `dynamic`: upstreams that are looked up
//! - `buffer`: content that is read first
//! - `httpgrpc`: requests and responses in gRPC messages
//! - `fastcgi`: the variables and the content of requests over FastCGI
//! - `policy`, `slow_start`: load balancing
//! - `health`: health checks
//! - `breaker`: circuit breakers
//! - `retry`: further attempts
//! - `tunnel`: protocol switches
//! - `routes`: `handle_response`

mod answer;
mod breaker;
mod buffer;
mod dynamic;
mod fastcgi;
mod health;
mod httpgrpc;
mod incremental;
mod load;
mod policy;
mod request;
mod retry;
mod routes;
mod slow_start;
mod tunnel;

use causeway_pipeline::Registry;

use causeway_testkit::{FakeCall, Kit, Pending, Request, TestResponse};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// Returns the handler, with one upstream unless `options` has its own.
fn proxy(mut options: Value) -> Value {
    options["handler"] = json!("reverse_proxy");
    if options.get("upstreams").is_none() {
        options["upstreams"] = json!([{ "dial": "10.0.0.1:80" }]);
    }
    options
}

fn kit(options: Value) -> Kit {
    Kit::new(&registry(), &json!([{ "handle": [proxy(options)] }]))
}

/// Sends a request that the proxy forwards.
#[track_caller]
fn start_call(kit: &mut Kit, request: &Request) -> (FakeCall, Pending) {
    match kit.send_pending(request) {
        Ok(answer) => panic!("it was answered at once: {answer:?}"),
        Err(pending) => (kit.worker().take_call().expect("a call"), pending),
    }
}

/// A complete exchange: the upstream responds with 200 and these fields.
#[track_caller]
fn exchange(kit: &mut Kit, request: &Request, fields: &[(&str, &str)]) -> TestResponse {
    let (call, pending) = start_call(kit, request);
    call.answer(200, fields, Some(2));
    call.send(b"ok");
    call.end();
    drop(call);
    pending.finish(kit)
}

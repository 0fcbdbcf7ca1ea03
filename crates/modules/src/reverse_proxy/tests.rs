//! - `load`: configurations
//! - `request`: what goes to the upstream
//! - `answer`: what comes back, and what may go wrong
//! - `httpgrpc`: the same in messages of gRPC
//! - `policy`: which upstream it is
//! - `tunnel`: other protocols
//! - `routes`: `handle_response`

mod answer;
mod httpgrpc;
mod load;
mod policy;
mod request;
mod routes;
mod tunnel;

use causeway_pipeline::Registry;

use causeway_testkit::{Answer, FakeCall, Kit, Pending, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// The handler, with one upstream where none is said.
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

/// Sends a request that is passed on.
#[track_caller]
fn ask(kit: &mut Kit, request: &Request) -> (FakeCall, Pending) {
    match kit.send_pending(request) {
        Ok(answer) => panic!("it was answered at once: {answer:?}"),
        Err(pending) => (kit.worker().take_call().expect("a call"), pending),
    }
}

/// The whole of it, with an answer of 200 and these fields.
#[track_caller]
fn exchange(kit: &mut Kit, request: &Request, fields: &[(&str, &str)]) -> Answer {
    let (call, pending) = ask(kit, request);
    call.answer(200, fields, Some(2));
    call.send(b"ok");
    call.end();
    drop(call);
    pending.finish(kit)
}

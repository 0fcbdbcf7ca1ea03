use std::thread;
use std::time::Duration;

use causeway_pipeline::metrics::Format;
use causeway_pipeline::upstream::BreakerPhase;
use causeway_pipeline::{CallError, Registry};
use causeway_testkit::{FakeCall, Kit, Pending, Request};
use serde_json::{Value, json};

use super::{kit, proxy, registry, start_call};

const SECOND: Duration = Duration::from_secs(1);

/// Two upstreams, of which the first one is preferred, with a breaker that opens at two failures.
fn two(changes: &Value) -> Value {
    let mut breaker = json!({ "type": "internal", "error_ratio": 0.5, "min_requests": 2, "trip_duration": "5s" });
    for (key, value) in changes.as_object().into_iter().flatten() {
        breaker[key] = value.clone();
    }
    json!({
        "upstreams": [{ "dial": "a:1" }, { "dial": "b:1" }],
        "load_balancing": { "selection_policy": { "policy": "first" } },
        "circuit_breaker": breaker,
    })
}

fn finish(kit: &mut Kit, (call, pending): (FakeCall, Pending), status: u16) -> String {
    call.answer(status, &[], Some(0));
    call.end();
    let address = call.address.to_string();
    drop(call);
    assert_eq!(pending.finish(kit).status, status);
    address
}

/// Sends a request, which the selected upstream answers, and returns that upstream's address.
#[track_caller]
fn selected_address(kit: &mut Kit, status: u16) -> String {
    let held = start_call(kit, &Request::get("/"));
    finish(kit, held, status)
}

#[track_caller]
fn fail(kit: &mut Kit, error: CallError) {
    let (call, pending) = start_call(kit, &Request::get("/"));
    assert_eq!(&*call.address, "a:1");
    call.engine.fail(error);
    drop(call);
    pending.finish(kit);
}

// Ours: an upstream whose breaker is open gets no requests for `trip_duration`. One request then probes it; the others
// go elsewhere until it has succeeded.
#[test]
fn from_closed_to_closed() {
    let mut kit = kit(two(&Value::Null));
    fail(&mut kit, CallError::Closed);
    fail(&mut kit, CallError::HeadTimedOut);
    assert_eq!(selected_address(&mut kit, 200), "b:1");
    kit.worker().advance(5 * SECOND);
    let probe = start_call(&mut kit, &Request::get("/"));
    assert_eq!(&*probe.0.address, "a:1");
    assert_eq!(selected_address(&mut kit, 200), "b:1", "one probe at a time");
    finish(&mut kit, probe, 500);
    assert_eq!(selected_address(&mut kit, 200), "b:1", "the probe has failed");
    kit.worker().advance(5 * SECOND);
    assert_eq!(selected_address(&mut kit, 404), "a:1");
    assert_eq!(selected_address(&mut kit, 200), "a:1", "the probe has succeeded");
}

// Failures: no response, and 5xx, or the statuses of `error_status`. Our own limit of connections, the client's body, a
// client that disconnects, and a request that cannot be sent are none.
#[test]
fn failures() {
    for (changes, status, is_open) in [
        (json!({}), 500, true),
        (json!({}), 599, true),
        (json!({}), 404, false),
        (json!({ "error_status": [429, 503] }), 429, true),
        (json!({ "error_status": [429, 503] }), 500, false),
        (json!({ "error_status": [4] }), 404, true),
    ] {
        let mut kit = kit(two(&changes));
        assert_eq!(
            (selected_address(&mut kit, status), selected_address(&mut kit, status)),
            ("a:1".to_owned(), "a:1".to_owned())
        );
        assert_eq!(selected_address(&mut kit, 200) == "b:1", is_open, "{changes} {status}");
    }
    let mut kit = kit(two(&Value::Null));
    for _ in 0..10 {
        for error in
            [CallError::Busy, CallError::Request, CallError::RequestBody(causeway_pipeline::BodyError::PeerGone)]
        {
            fail(&mut kit, error);
        }
        start_call(&mut kit, &Request::get("/")).1.cancel(&mut kit);
    }
    assert_eq!(selected_address(&mut kit, 200), "a:1");
}

// `latency`: more than the rest of the quantile took longer than the limit, until the head of the response.
#[test]
fn slow_responses() {
    let latency = json!({ "latency": { "limit": "2s", "quantile": 0.5 }, "error_ratio": null, "min_requests": 3 });
    let mut kit = kit(two(&latency));
    for late in [3, 2, 3] {
        let held = start_call(&mut kit, &Request::get("/"));
        kit.worker().advance(late * SECOND);
        assert_eq!(finish(&mut kit, held, 500), "a:1");
    }
    assert_eq!(selected_address(&mut kit, 200), "b:1");
}

// If the client of a probe disconnects, or the probe cannot be sent, the next request becomes the probe.
#[test]
fn probes_without_result() {
    let mut options = two(&Value::Null);
    options["upstreams"] = json!([{ "dial": "{http.request.header.To}:1" }]);
    options["load_balancing"]["retries"] = json!(1);
    let mut kit = kit(options);
    let request = Request::get("/").field("To", "a");
    for _ in 0..2 {
        let held = start_call(&mut kit, &request);
        finish(&mut kit, held, 500);
    }
    assert_eq!(kit.send(&request).status, 503);
    kit.worker().advance(5 * SECOND);
    start_call(&mut kit, &request).1.cancel(&mut kit);
    assert_eq!(kit.send(&Request::get("/").field("To", "a b")).status, 500, "no valid address");
    let (call, pending) = start_call(&mut kit, &request);
    call.engine.fail(CallError::Busy);
    drop(call);
    let pending = pending.poll(&mut kit).expect_err("another attempt probes");
    kit.worker().take_call().expect("another attempt").engine.fail(CallError::Busy);
    assert_eq!(pending.finish(&mut kit).status, 503);
    let held = start_call(&mut kit, &request);
    assert_eq!(kit.send(&request).status, 503, "one at a time");
    finish(&mut kit, held, 200);
    let held = start_call(&mut kit, &request);
    finish(&mut kit, held, 200);
}

// With `lb_retries` a failed probe is retried on another upstream, and with `lb_try_duration` a request waits for the
// trip's end.
#[test]
fn retries() {
    let mut options = two(&json!({ "min_requests": 1 }));
    options["load_balancing"]["retries"] = json!(1);
    let mut kit = kit(options);
    for _ in 0..3 {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        assert_eq!(&*call.address, "a:1");
        call.engine.fail(CallError::Closed);
        drop(call);
        let pending = pending.poll(&mut kit).expect_err("another attempt");
        let call = kit.worker().take_call().expect("another attempt");
        assert_eq!(finish(&mut kit, (call, pending), 200), "b:1");
        assert_eq!(selected_address(&mut kit, 200), "b:1");
        kit.worker().advance(5 * SECOND);
    }

    let mut options = two(&Value::Null);
    options["upstreams"] = json!([{ "dial": "a:1" }]);
    options["load_balancing"]["try_duration"] = json!("10s");
    let mut kit = super::kit(options);
    for _ in 0..2 {
        let held = start_call(&mut kit, &Request::get("/"));
        finish(&mut kit, held, 500);
    }
    let pending = kit.send_pending(&Request::get("/")).expect_err("it waits");
    assert!(kit.worker().take_call().is_none());
    kit.worker().answer_calls(|call| {
        call.answer(200, &[], Some(0));
        call.end();
    });
    assert_eq!(pending.finish(&mut kit).status, 200);
}

fn phase(registry: &Registry) -> Option<BreakerPhase> {
    let upstreams = registry.metrics().upstreams();
    let status = upstreams.iter().find(|status| status.dial() == "a:1").expect("a configured upstream");
    // Before the end of the trip, in real time as in that of the kit.
    status.breaker_phase(std::time::Instant::now())
}

// The state is that of all workers. A reload that keeps the upstream and the settings keeps it, however they are
// written; other settings begin with a closed breaker.
#[test]
fn breakers_are_shared_and_kept() {
    let registry = registry();
    let routes = |changes: Value| json!([{ "handle": [proxy(two(&changes))] }]);
    let mut kits = [(); 2].map(|()| Kit::new(&registry, &routes(json!({ "trip_duration": "60s" }))));
    selected_address(&mut kits[0], 500);
    fail(&mut kits[1], CallError::Closed);
    assert_eq!(phase(&registry), Some(BreakerPhase::Open));
    for kit in &mut kits {
        assert_eq!(selected_address(kit, 200), "b:1");
    }
    let text = registry.metrics().scrape(Format::Text);
    assert!(text.contains("caddy_reverse_proxy_upstreams_healthy{upstream=\"a:1\"} 0"), "{text}");
    kits[1].reload(&registry, &routes(json!({ "trip_duration": 60_000_000_000_i64, "window": "10s" })), &Value::Null);
    assert_eq!(selected_address(&mut kits[1], 200), "b:1");
    kits[1].worker().advance(60 * SECOND);
    let probe = start_call(&mut kits[1], &Request::get("/"));
    kits[0].worker().advance(60 * SECOND);
    assert_eq!(selected_address(&mut kits[0], 200), "b:1", "the other worker's request probes");
    assert_eq!(finish(&mut kits[1], probe, 500), "a:1");
    kits[1].reload(&registry, &routes(json!({ "trip_duration": "30s" })), &Value::Null);
    assert_eq!(selected_address(&mut kits[1], 200), "a:1");
    assert_eq!(selected_address(&mut kits[0], 200), "b:1");
}

// Two handlers with one upstream: a handler without a breaker is not affected by that of the other one.
#[test]
fn a_breaker_affects_only_its_handler() {
    let mut without = two(&Value::Null);
    without["circuit_breaker"] = Value::Null;
    let routes = json!([
        { "match": [{ "path": ["/a"] }], "handle": [proxy(two(&Value::Null))] },
        { "handle": [proxy(without)] },
    ]);
    let mut kit = Kit::new(&registry(), &routes);
    for _ in 0..2 {
        let held = start_call(&mut kit, &Request::get("/a"));
        finish(&mut kit, held, 500);
    }
    assert_eq!(selected_address(&mut kit, 200), "a:1");
    let held = start_call(&mut kit, &Request::get("/a"));
    assert_eq!(finish(&mut kit, held, 200), "b:1");
}

// Workers on threads of their own, whose requests all fail: the upstream gets no more than the failures that open the
// breaker and those that were in progress, one each.
#[test]
fn workers_on_threads() {
    const WORKERS: usize = 4;
    let registry = registry();
    let mut options = two(&json!({ "min_requests": 100, "trip_duration": "1h" }));
    options["upstreams"] = json!([{ "dial": "a:1" }]);
    let routes = json!([{ "handle": [proxy(options)] }]);
    // A plan that lasts until all threads have ended keeps the upstream's state.
    let _kit = Kit::new(&registry, &routes);
    let work = || {
        let mut kit = Kit::new(&registry, &routes);
        let mut count = 0;
        while let Err(pending) = kit.send_pending(&Request::get("/")) {
            let call = kit.worker().take_call().expect("a call");
            finish(&mut kit, (call, pending), 503);
            count += 1;
        }
        count
    };
    let counts: Vec<usize> = thread::scope(|scope| {
        let threads: Vec<_> = (0..WORKERS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let sum: usize = counts.iter().sum();
    assert!((100..100 + WORKERS).contains(&sum), "{counts:?}");
}

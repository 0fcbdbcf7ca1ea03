use std::time::Duration;

use causeway_pipeline::CallError;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{kit, start_call};

const SECOND: Duration = Duration::from_secs(1);

/// A proxy with a policy, and the upstreams a and b. Their first slow start is over.
fn of(policy: &Value, mut options: Value) -> Kit {
    options["upstreams"] = json!([{ "dial": "a:1" }, { "dial": "b:1" }]);
    options["load_balancing"] = json!({ "selection_policy": policy, "slow_start": "100s" });
    let kit = kit(options);
    kit.worker().advance(200 * SECOND);
    kit
}

fn with_passive_checks(policy: &Value) -> Kit {
    of(policy, json!({ "health_checks": { "passive": { "fail_duration": "10s" } } }))
}

/// Sends a request that is answered with this status, and returns whether it went to b.
#[track_caller]
fn is_of_b(kit: &mut Kit, status: u16) -> bool {
    let (call, pending) = start_call(kit, &Request::get("/"));
    call.answer(status, &[], Some(0));
    call.end();
    let is_b = &*call.address == "b:1";
    drop(call);
    assert_eq!(pending.finish(kit).status, status);
    is_b
}

/// Returns the part of requests that go to b, in percent.
fn part(kit: &mut Kit) -> usize {
    (0..2000).filter(|_| is_of_b(kit, 200)).count() / 20
}

/// Sends requests until one is forwarded to b and fails.
fn fail(kit: &mut Kit) {
    loop {
        let (call, pending) = start_call(kit, &Request::get("/"));
        if &*call.address == "b:1" {
            call.engine.fail(CallError::Malformed("a line end"));
            drop(call);
            assert_eq!(pending.finish(kit).status, 502);
            return;
        }
        pending.cancel(kit);
    }
}

/// Policies that distribute requests.
fn distributing() -> [Value; 6] {
    [
        json!({ "policy": "random" }),
        json!({ "policy": "random_choose" }),
        json!({ "policy": "round_robin" }),
        json!({ "policy": "weighted_round_robin", "weights": [3, 3] }),
        json!({ "policy": "least_conn" }),
        json!({ "policy": "header", "field": "X-None", "fallback": { "policy": "round_robin" } }),
    ]
}

#[track_caller]
fn check_growth(kit: &mut Kit, why: &Value) {
    for (seconds, want) in [(0, 0..=1), (10, 2..=12), (40, 20..=36), (49, 45..=55), (1000, 45..=55)] {
        kit.worker().advance(seconds * SECOND);
        let part = part(kit);
        assert!(want.contains(&part), "{why}: {part} %, {seconds} s later");
    }
}

// Ours: the share of an upstream that is back grows from near 0 to its full one over the duration. Here passive checks
// forget its failure.
#[test]
fn after_failures() {
    for policy in distributing() {
        let mut kit = with_passive_checks(&policy);
        assert!((45..=55).contains(&part(&mut kit)), "{policy}");
        fail(&mut kit);
        assert_eq!(part(&mut kit), 0, "{policy}");
        // Also if no request arrives in the meantime.
        kit.worker().advance(10 * SECOND);
        check_growth(&mut kit, &policy);
    }
}

// An upstream whose circuit breaker closes.
#[test]
fn after_a_circuit_breaker() {
    for policy in distributing() {
        let breaker = json!({ "type": "internal", "error_ratio": 1, "min_requests": 1, "trip_duration": "5s" });
        let mut kit = of(&policy, json!({ "circuit_breaker": breaker }));
        fail(&mut kit);
        assert_eq!(part(&mut kit), 0, "{policy}");
        kit.worker().advance(5 * SECOND);
        // The probe, which does not depend on a share.
        assert!((0..20).any(|_| is_of_b(&mut kit, 200)), "{policy}");
        check_growth(&mut kit, &policy);
    }
}

// An upstream that passes its health check again.
#[test]
fn after_a_health_check() {
    let checks = json!({ "active": { "uri": "/", "interval": "1000s", "timeout": "2000s" } });
    let mut kit = of(&json!({ "policy": "random" }), json!({ "health_checks": checks }));
    for (status, seconds) in [(500, 1000), (204, 0)] {
        kit.worker().drive_spawned();
        while let Some(call) = kit.worker().take_call() {
            let is_b = &*call.address == "b:1";
            call.answer(if is_b { status } else { 204 }, &[], Some(0));
            call.end();
            drop(call);
            kit.worker().drive_spawned();
        }
        if status == 500 {
            assert_eq!(part(&mut kit), 0);
        }
        kit.worker().advance(seconds * SECOND);
    }
    check_growth(&mut kit, &json!("health check"));
}

// Requests in progress: with half a share an upstream has half as many.
#[test]
fn requests_in_progress() {
    let mut kit = with_passive_checks(&json!({ "policy": "least_conn" }));
    fail(&mut kit);
    kit.worker().advance(60 * SECOND);
    let held: Vec<_> = (0..150).map(|_| start_call(&mut kit, &Request::get("/"))).collect();
    let of_b = held.iter().filter(|(call, _)| &*call.address == "b:1").count();
    assert!((45..=55).contains(&of_b), "{of_b} of 150");
    held.into_iter().for_each(|(_, pending)| pending.cancel(&mut kit));
}

// A larger weight does not make up for a small share, and the others get the rest by their weights.
#[test]
fn weights() {
    let mut kit = with_passive_checks(&json!({ "policy": "weighted_round_robin", "weights": [1, 99] }));
    fail(&mut kit);
    kit.worker().advance(15 * SECOND);
    let part = part(&mut kit);
    assert!((3..=7).contains(&part), "{part} %");
}

// Policies that keep a key at its upstream, and `first`, are as without a slow start. So is an upstream without others.
#[test]
fn policies_without_slow_start() {
    let request = |number: u32| Request::get(&format!("/{number}")).field("Cookie", format!("lb={number}"));
    let addresses = |kit: &mut Kit, numbers: std::ops::Range<u32>| -> Vec<String> {
        let chosen = |number| {
            let (call, pending) = start_call(kit, &request(number));
            pending.cancel(kit);
            call.address.to_string()
        };
        numbers.map(chosen).collect()
    };
    for policy in ["first", "uri_hash", "ip_hash"] {
        let mut kit = with_passive_checks(&json!({ "policy": policy }));
        let before = addresses(&mut kit, 0..40);
        let failing = (0..40).find(|number| before[*number as usize] == "b:1");
        if let Some(number) = failing {
            let (call, pending) = start_call(&mut kit, &request(number));
            call.engine.fail(CallError::Malformed("a line end"));
            drop(call);
            pending.finish(&mut kit);
            kit.worker().advance(10 * SECOND);
        }
        assert_eq!(addresses(&mut kit, 0..40), before, "{policy}");
    }
    let mut kit = with_passive_checks(&json!({ "policy": "round_robin" }));
    for (call, pending) in [start_call(&mut kit, &Request::get("/")), start_call(&mut kit, &Request::get("/"))] {
        call.engine.fail(CallError::Malformed("a line end"));
        drop(call);
        pending.finish(&mut kit);
    }
    assert_eq!(kit.send(&Request::get("/")).status, 503);
    kit.worker().advance(10 * SECOND);
    let of_b: Vec<_> = (0..6).map(|_| is_of_b(&mut kit, 200)).collect();
    assert!(of_b.windows(2).all(|pair| pair[0] != pair[1]), "both came back at once, so they take turns: {of_b:?}");
}

// A reload keeps the time at which an upstream came back, for any duration of the slow start.
#[test]
fn a_reload_keeps_the_slow_start() {
    let (registry, routes) = (super::registry(), |slow_start: &str| {
        json!([{ "handle": [super::proxy(json!({
            "upstreams": [{ "dial": "a:1" }, { "dial": "b:1" }],
            "load_balancing": { "selection_policy": { "policy": "round_robin" }, "slow_start": slow_start },
            "health_checks": { "passive": { "fail_duration": "10s" } },
        }))] }])
    });
    let mut kit = Kit::new(&registry, &routes("100s"));
    kit.worker().advance(200 * SECOND);
    fail(&mut kit);
    kit.worker().advance(15 * SECOND);
    kit.reload(&registry, &routes("50s"), &Value::Null);
    let parts = part(&mut kit);
    assert!((5..=13).contains(&parts), "five of fifty seconds: {parts} %");
    kit.reload(&registry, &routes("0s"), &Value::Null);
    assert_eq!(part(&mut kit), 50);
}

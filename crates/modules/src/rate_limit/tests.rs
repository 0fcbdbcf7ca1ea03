use std::time::Duration;

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// Routes that limit requests before a response; errors show the zone.
fn routes(mut limits: Value) -> (Value, Value) {
    limits["handler"] = "rate_limit".into();
    let respond = json!({ "handler": "static_response", "body": "served" });
    let errors = json!([{ "handle": [{ "handler": "static_response", "status_code": "{http.error.status_code}",
        "body": "{http.rate_limit.exceeded.name}" }] }]);
    (json!([{ "handle": [limits, respond] }]), errors)
}

fn kit(limits: Value) -> Kit {
    let (routes, errors) = routes(limits);
    Kit::with_errors(&registry(), &routes, &errors)
}

fn get(kit: &mut Kit, path: &str) -> (u16, String, Option<String>) {
    let answer: TestResponse = kit.send(&Request::get(path));
    (answer.status, answer.text().to_owned(), answer.field("Retry-After").map(str::to_owned))
}

fn served() -> (u16, String, Option<String>) {
    (200, "served".to_owned(), None)
}

fn refused(zone: &str, wait: &str) -> (u16, String, Option<String>) {
    (429, zone.to_owned(), Some(wait.to_owned()))
}

// The plugin's documentation: 429 with Retry-After, by the error routes; the placeholder names the zone; each key
// counts apart.
#[test]
fn requests_beyond_the_limit_are_refused() {
    let zone = json!({ "key": "{http.request.uri.path}", "window": "10s", "max_events": 2 });
    let mut kit = kit(json!({ "rate_limits": { "beyond": zone } }));
    assert_eq!([get(&mut kit, "/a"), get(&mut kit, "/a")], [served(), served()]);
    kit.worker().advance(Duration::from_millis(2500));
    assert_eq!(get(&mut kit, "/a"), refused("beyond", "8"), "7.5 s, rounded up");
    assert_eq!(get(&mut kit, "/b"), served());
    kit.worker().advance(Duration::from_millis(7500));
    assert_eq!(get(&mut kit, "/a"), served());
}

// The zones are tried in the order of their rates, the lowest first; those with matchers count only the requests that
// match.
#[test]
fn several_zones() {
    let mut kit = kit(json!({ "rate_limits": {
        "several_all": { "window": "10s", "max_events": 3 },
        "several_posts": { "match": [{ "method": ["POST"] }], "window": "60s", "max_events": 1 },
    } }));
    let post = |kit: &mut Kit| {
        let answer = kit.send(&Request::new("POST", "/"));
        (answer.status, answer.text().to_owned())
    };
    assert_eq!(post(&mut kit).0, 200);
    assert_eq!(post(&mut kit), (429, "several_posts".to_owned()), "not counted for the other zone");
    assert_eq!([get(&mut kit, "/"), get(&mut kit, "/")], [served(), served()]);
    assert_eq!(get(&mut kit, "/"), refused("several_all", "10"));
}

// Jitter only lengthens the wait.
#[test]
fn jitter() {
    let mut kit = kit(json!({ "jitter": 0.5, "rate_limits": { "jitter": { "window": "100s", "max_events": 1 } } }));
    get(&mut kit, "/");
    let waits: Vec<u64> = (0..50).map(|_| get(&mut kit, "/").2.unwrap().parse().unwrap()).collect();
    assert!(
        waits.iter().all(|wait| (100..=150).contains(wait)) && waits.iter().any(|wait| *wait != waits[0]),
        "{waits:?}"
    );
}

// The events outlive a reload, and two handlers that name one zone share it.
#[test]
fn events_outlive_a_reload() {
    let limits = json!({ "rate_limits": { "kept": { "window": "10s", "max_events": 2 } } });
    let mut one = kit(limits.clone());
    assert_eq!(get(&mut one, "/"), served());
    let (routes, errors) = routes(limits.clone());
    one.reload(&registry(), &routes, &errors);
    assert_eq!(get(&mut one, "/"), served());
    assert_eq!(get(&mut one, "/").0, 429);
    assert_eq!(get(&mut kit(limits), "/").0, 429);
}

#[test]
fn bad_configurations_name_the_place() {
    let zone = |zone: Value| json!({ "rate_limits": { "z": zone } });
    for (limits, want) in [
        (zone(json!({ "max_events": 1 })), "rate_limits.z: found 'window 0ns and max_events 1'"),
        (zone(json!({ "window": "1s" })), "rate_limits.z: found 'window 1s and max_events 0'"),
        (zone(json!({ "window": "x", "max_events": 1 })), "rate_limits.z.window: found 'x'"),
        (zone(json!({ "window": "1s", "max_events": 1, "burst": 1 })), "unknown field `burst`"),
        (zone(json!({ "window": "1s", "max_events": 1, "match": [{ "nothing": 1 }] })), "match[0].nothing"),
        (json!({ "distributed": {} }), "distributed: found 'distributed', expected 'redis'"),
        (json!({ "redis": { "address": "a" } }), "redis.address: found 'a', expected HOST:PORT or unix//PATH"),
        (json!({ "redis": { "address": "u:secret@a:1" } }), "redis.address: found 'an address with a login'"),
        (json!({ "redis": { "address": "unix//s", "tls": true } }), "redis.tls: found 'true'"),
        (json!({ "redis": {} }), "missing field `address`"),
        (json!({ "redis": { "address": "a:1", "cluster": true } }), "unknown field `cluster`"),
        (
            json!({ "redis": { "address": "a:1" }, "rate_limits": { "z": { "window": "100ms", "max_events": 1 } } }),
            "rate_limits.z.window: found '100ms', expected at least 1s with redis",
        ),
        (json!({ "jitter": -1.0 }), "jitter: found '-1'"),
        (json!({ "sweep_interval": "often" }), "sweep_interval: found 'often'"),
    ] {
        let (routes, errors) = routes(limits);
        let error = Kit::build(&registry(), &routes, &errors).err().expect("it is refused").to_string();
        assert!(error.contains(want), "{error}");
    }
}

//! A request for a known key of `rate_limit` allocates nothing: neither a served nor a refused one, also if the zone is
//! in Redis.

use causeway_pipeline::Registry;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{Kit, Request};
use serde_json::json;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[test]
fn known_keys() {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    for redis in [json!(null), json!({ "address": "127.0.0.1:1" })] {
        let zone = json!({ "key": "{http.request.uri.path}", "window": "1h", "max_events": 200 });
        let mut limit = json!({ "handler": "rate_limit", "rate_limits": { "z": zone } });
        if redis.is_object() {
            limit["redis"] = redis;
        }
        let respond = json!({ "handler": "static_response", "body": "served" });
        let mut kit = Kit::new(&registry, &json!([{ "handle": [limit, respond] }]));
        let request = Request::get("/a");
        // The memory of a key's events grows to a power of two, here 256.
        (0..150).for_each(|_| kit.run(&request));
        assert_eq!(allocations_during(|| (0..40).for_each(|_| kit.run(&request))), 0, "served");
        (0..20).for_each(|_| kit.run(&request));
        assert_eq!(kit.send(&request).status, 429);
        assert_eq!(allocations_during(|| (0..40).for_each(|_| kit.run(&request))), 0, "refused");
    }
}

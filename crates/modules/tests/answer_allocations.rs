//! Compression, access logs and cached responses allocate nothing once a worker has served an equal request: encoders,
//! blocks and line buffers are pooled.

use std::time::Duration;

use causeway_pipeline::Registry;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[track_caller]
fn check(handlers: &[Value], accept: &str) {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let mut kit = Kit::new(&registry, &json!([{ "handle": handlers }]));
    let request =
        Request::get("/a?b=c").field("Accept-Encoding", accept).field("User-Agent", "test").field("Cookie", "a=b");
    (0..50).for_each(|_| kit.run(&request));
    for _ in 0..10 {
        // The thread of a log's output returns the line buffers.
        causeway_modules::logs::flush_all(Duration::from_secs(10));
        let count = allocations_during(|| (0..20).for_each(|_| kit.run(&request)));
        assert_eq!(count, 0, "{}, {accept}", handlers[0]);
    }
}

fn respond() -> Value {
    json!({ "handler": "static_response", "body": "All human beings are born free and equal. ".repeat(100) })
}

#[test]
fn compressed_responses() {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let encode = json!({ "handler": "encode", "encodings": { "zstd": {}, "gzip": {} } });
    for accept in ["gzip", "zstd", "identity"] {
        check(&[encode.clone(), respond()], accept);
    }
}

#[test]
fn access_records() {
    let filter = json!({
        "format": "filter",
        "wrap": { "format": "append", "fields": { "zone": "eu" }, "wrap": { "format": "json", "time_format": "rfc3339" } },
        "fields": {
            "request>remote_ip": { "filter": "ip_mask", "ipv4_cidr": 16, "ipv6_cidr": 32 },
            "request>uri": { "filter": "query", "actions": [{ "type": "hash", "parameter": "b" }] },
            "request>headers>Cookie": { "filter": "cookie", "actions": [{ "type": "replace", "name": "a", "value": "x" }] },
            "request>headers>User-Agent": { "filter": "regexp", "regexp": "t(.)s", "value": "$1" },
            "request>host": { "filter": "hash" },
            "resp_headers": { "filter": "delete" },
        },
    });
    for encoder in [
        json!({ "format": "json" }),
        json!({ "format": "console" }),
        json!({ "format": "transform", "template": "{combined_log}" }),
        filter,
    ] {
        // Not `discard`, for which no line is formatted.
        let log = json!({ "writer": { "output": "file", "filename": "/dev/null" }, "encoder": encoder, "include": ["http.log.access.l"] });
        let handler = json!({
            "handler": "access_log", "default": "l", "names": { "other.example": ["l"], "*.example": ["l"] }, "credentials": true,
            "logs": { "l": log },
        });
        let append = json!({ "handler": "log_append", "key": "who", "value": "{http.request.method}" });
        check(&[handler, append, respond()], "gzip");
    }
}

// A response from the cache, whose fields are copied to the exchange's: also with fields of handlers before the cache
// that differ from those of the request that filled it.
#[test]
fn cached_responses() {
    let set = |value: &str| json!({ "handler": "headers", "response": { "set": { "X-Id": [value] } } });
    let cache = json!({ "handler": "cache", "memory": 1_234_567 });
    let fields = json!({
        "Cache-Control": ["public, max-age=600"], "Vary": ["Accept-Encoding, User-Agent"], "ETag": ["\"a\""],
    });
    let mut respond = respond();
    respond["headers"] = fields;
    check(&[cache.clone(), respond.clone()], "gzip");
    check(&[set("a"), cache.clone(), respond.clone()], "gzip");
    check(&[set("b"), cache, respond], "gzip");
}

//! `tracing` allocates nothing once a worker has served an equal request: neither for a request that is not sampled,
//! nor for one whose span is queued or dropped.

use std::time::Duration;

use causeway_modules::trace::flush_all;
use causeway_pipeline::Registry;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::ports::free_port;
use causeway_testkit::{Kit, Request};
use serde_json::json;

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0";

fn kit(sampler: &'static str, queue: &'static str) -> Kit {
    let mut registry = Registry::default();
    // No server listens on this address.
    let endpoint = format!("http://127.0.0.1:{}", free_port());
    registry.set_environment(move |name| match name {
        "OTEL_TRACES_SAMPLER" => Some(sampler.into()),
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(endpoint.clone()),
        "OTEL_BSP_MAX_QUEUE_SIZE" => Some(queue.into()),
        "OTEL_BSP_SCHEDULE_DELAY" => Some("80000000".into()),
        "OTEL_BSP_EXPORT_TIMEOUT" => Some("1".into()),
        _ => None,
    });
    causeway_modules::register(&mut registry);
    let tracing = json!({
        "handler": "tracing", "span": "{http.request.method} {http.request.uri.path}",
        "span_attributes": { "answer": "{http.response.header.X-A}", "ids": "{http.vars.trace_id}" },
    });
    let respond =
        json!({ "handler": "static_response", "headers": { "X-A": ["{http.request.method}"] }, "body": "ok" });
    Kit::new(&registry, &json!([{ "handle": [tracing, respond] }]))
}

#[test]
fn requests() {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    for (sampler, queue) in [
        ("always_off", "64"),
        ("parentbased_traceidratio", "64"),
        ("always_on", "64"),
        // Most spans find no room.
        ("always_on", "4"),
    ] {
        let mut kit = kit(sampler, queue);
        for request in [
            Request::get("/a%20b?c=d").field("User-Agent", "test"),
            Request::get("/").field("Traceparent", format!("{PARENT}1")).field("Tracestate", "a=b"),
            Request::get("/").field("Traceparent", format!("{PARENT}0")),
        ] {
            (0..70).for_each(|_| kit.run(&request));
            for _ in 0..3 {
                // The thread of the output returns the storage of spans.
                flush_all(Duration::from_secs(10));
                let count = allocations_during(|| (0..20).for_each(|_| kit.run(&request)));
                assert_eq!(count, 0, "{sampler} {queue} {}", request.target());
            }
        }
    }
}

//! The metrics of requests: labels and counts as of Caddy 2.11, compared with a scrape of it under equal requests.

use std::time::Duration;

use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::metrics::Format;
use causeway_pipeline::{Build, MetricsSpec, Plan, Registry};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

fn plan(registry: &Registry, spec: Option<MetricsSpec>, routes: &Value) -> Plan {
    let errors = json!([{ "handle": [{ "handler": "static_response", "status_code": 418, "body": "error" }] }]);
    let named = json!({ "n": { "handle": [{ "handler": "vars", "a": "b" }] } });
    let server =
        ServerSpec { errors: Some(&errors), named_routes: named.as_object(), ..ServerSpec::new("srv0", routes) };
    let mut build = Build::new(registry);
    if let Some(spec) = spec {
        build.measure(spec);
    }
    build.server(&server).unwrap_or_else(|error| panic!("{error}"));
    build.finish()
}

/// Returns the scrape's lines of these metrics, without the prefix `caddy_http_` and the label of the server.
fn lines(registry: &Registry, names: &[&str]) -> Vec<String> {
    let text = registry.metrics().scrape(Format::Text);
    let shown = text.lines().filter_map(|line| line.strip_prefix("caddy_http_"));
    let named = shown.filter(|line| names.iter().any(|name| line.starts_with(&format!("{name}{{"))));
    named.map(|line| line.replace(",server=\"srv0\"", "").replace('"', "")).collect()
}

fn respond(body: &str) -> Value {
    json!({ "handler": "static_response", "body": body })
}

fn fail(status: u16) -> Value {
    json!({ "handler": "error", "status_code": status })
}

const COUNTS: &[&str] = &[
    "requests_total",
    "request_errors_total",
    "requests_in_flight",
    "request_duration_seconds_count",
    "response_duration_seconds_count",
];

// Caddy 2.11 counts a request once for each route of the server's list that it takes, under the module of the route's
// first handler; routes within routes and error routes are not counted. A fault is an error with the fault's status,
// whatever the error routes respond. A request without a response of a handler has status 200 and no response time. An
// aborted exchange only was in flight. A method that is not the standard's is OTHER.
#[test]
fn routes_of_a_server_are_counted() {
    let subroute = |routes: Value| json!({ "handler": "subroute", "routes": routes });
    let caught = json!({
        "handler": "subroute", "routes": [{ "handle": [fail(404)] }],
        "errors": { "routes": [{ "handle": [{ "handler": "static_response", "status_code": 403 }] }] },
    });
    let on =
        |path: &str, handler: Value| json!({ "match": [{ "path": [path] }], "handle": [handler], "terminal": true });
    for (routes, requests, want) in [
        (
            json!([{ "handle": [{ "handler": "vars" }, respond("one")] }]),
            vec![Request::get("/"), Request::get("/a"), Request::new("POST", "/"), Request::new("BREW", "/")],
            vec![
                "request_duration_seconds_count{code=200,handler=vars,method=GET} 2",
                "request_duration_seconds_count{code=200,handler=vars,method=POST} 1",
                "request_duration_seconds_count{code=200,handler=vars,method=OTHER} 1",
                "requests_in_flight{handler=vars} 0",
                "requests_total{handler=vars} 4",
                "response_duration_seconds_count{code=200,handler=vars,method=GET} 2",
                "response_duration_seconds_count{code=200,handler=vars,method=POST} 1",
                "response_duration_seconds_count{code=200,handler=vars,method=OTHER} 1",
            ],
        ),
        (
            json!([{ "handle": [{ "handler": "vars" }] }, { "handle": [subroute(json!([{ "handle": [fail(503)] }]))] }]),
            vec![Request::get("/")],
            vec![
                "request_duration_seconds_count{code=503,handler=vars,method=GET} 1",
                "request_duration_seconds_count{code=503,handler=subroute,method=GET} 1",
                "request_errors_total{handler=vars} 1",
                "request_errors_total{handler=subroute} 1",
                "requests_in_flight{handler=vars} 0",
                "requests_in_flight{handler=subroute} 0",
                "requests_total{handler=vars} 1",
                "requests_total{handler=subroute} 1",
            ],
        ),
        (
            json!([on("/caught", caught), on("/none", json!({ "handler": "invoke", "name": "n" })), { "match": [{ "path": ["/empty"] }] }]),
            vec![Request::get("/caught"), Request::get("/none"), Request::get("/empty"), Request::get("/unrouted")],
            vec![
                "request_duration_seconds_count{code=200,handler=vars,method=GET} 1",
                "request_duration_seconds_count{code=403,handler=subroute,method=GET} 1",
                "request_duration_seconds_count{code=200,handler=invoke,method=GET} 1",
                "request_duration_seconds_count{code=200,handler=,method=GET} 1",
                "requests_in_flight{handler=vars} 0",
                "requests_in_flight{handler=subroute} 0",
                "requests_in_flight{handler=invoke} 0",
                "requests_in_flight{handler=} 0",
                "requests_total{handler=vars} 1",
                "requests_total{handler=subroute} 1",
                "requests_total{handler=invoke} 1",
                "requests_total{handler=} 1",
                "response_duration_seconds_count{code=403,handler=subroute,method=GET} 1",
            ],
        ),
        (
            json!([{ "handle": [{ "handler": "static_response", "abort": true }] }]),
            vec![Request::get("/")],
            vec!["requests_in_flight{handler=static_response} 0"],
        ),
    ] {
        let registry = registry();
        let mut kit = Kit::of_plan(plan(&registry, Some(MetricsSpec::default()), &routes));
        for request in &requests {
            kit.send(request);
        }
        assert_eq!(lines(&registry, COUNTS), want, "{routes}");
    }
}

// Without the option no request is counted; the scrape has the other metrics.
#[test]
fn nothing_is_counted_without_the_option() {
    let registry = registry();
    let mut kit = Kit::of_plan(plan(&registry, None, &json!([{ "handle": [respond("one")] }])));
    kit.send(&Request::get("/"));
    let text = registry.metrics().scrape(Format::Text);
    assert!(text.contains("caddy_config_last_reload_successful 0\n") && !text.contains("caddy_http"), "{text}");
}

// Caddy: a request's size is that of its parts, without separators: method, target, version, field names and values.
#[test]
fn sizes_and_times() {
    let registry = registry();
    let slow = json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "192.0.2.9:80" }] });
    let routes =
        json!([{ "match": [{ "path": ["/slow"] }], "handle": [slow] }, { "handle": [respond(&"x".repeat(2000))] }]);
    let mut kit = Kit::of_plan(plan(&registry, Some(MetricsSpec::default()), &routes));
    kit.send(&Request::get("/a?b=c").field("X-One", "12345"));
    let size = "/a?b=c".len() + "GET".len() + "HTTP/1.1".len() + "localhost".len() + "X-One12345".len();
    let labels = "{code=200,handler=static_response,method=GET}";
    let all = lines(&registry, &["request_size_bytes_sum", "response_size_bytes_sum", "request_size_bytes_count"]);
    let want = [
        format!("request_size_bytes_sum{labels} {size}"),
        format!("request_size_bytes_count{labels} 1"),
        format!("response_size_bytes_sum{labels} 2000"),
    ];
    assert_eq!(all, want);
    let buckets = lines(&registry, &["response_size_bytes_bucket"]);
    let counts: Vec<_> = buckets.iter().map(|line| line.rsplit(' ').next().unwrap_or_default()).collect();
    assert_eq!(counts, ["0", "0", "1", "1", "1", "1", "1", "1", "1"], "{buckets:?}");
    assert!(buckets[8].contains("le=+Inf"), "{buckets:?}");

    let pending = kit.send_pending(&Request::get("/slow")).expect_err("it waits for the upstream");
    let in_flight = lines(&registry, &["requests_in_flight"]);
    assert!(in_flight.contains(&"requests_in_flight{handler=reverse_proxy} 1".to_owned()), "{in_flight:?}");
    kit.worker().advance(Duration::from_millis(30));
    pending.cancel(&mut kit);
    // The client was gone before the response began: 499, as in Caddy, and no error.
    assert_eq!(lines(&registry, &["request_errors_total"]), [""; 0]);
    let names = ["request_duration_seconds_sum", "response_duration_seconds_sum", "requests_in_flight"];
    let times = lines(&registry, &names);
    for want in [
        "request_duration_seconds_sum{code=499,handler=reverse_proxy,method=GET} 0.03",
        "response_duration_seconds_sum{code=499,handler=reverse_proxy,method=GET} 0.03",
        "requests_in_flight{handler=reverse_proxy} 0",
    ] {
        assert!(times.contains(&want.to_owned()), "{want} in {times:?}");
    }
}

// Caddy: a host of the routes' matchers gets a label, in lower case; any other is `_other`, unless the option lets all
// hosts have one, or the request came over TLS.
// DEVIATES Caddy: the port of the request's host is ignored, so that hosts on other ports than the default ones count.
#[test]
fn hosts() {
    let site = |hosts: &[&str]| json!({ "match": [{ "host": hosts }], "handle": [respond("x")], "terminal": true });
    let routes = json!([site(&["A.test"]), site(&["b.test", "bücher.test"]), site(&["*.wild.test"]), { "handle": [respond("y")] }]);
    let host = |host: &str| Request::get("/").without("Host").field("Host", host);
    let requests = [
        host("a.TEST"),
        host("a.test:8080"),
        host("b.test"),
        host("xn--bcher-kva.test"),
        host("c.wild.test"),
        host("evil\"\\.test"),
        host("secure.test").secure(),
        Request::get("/").without("Host"),
    ];
    for (observe_catchall_hosts, want) in [
        (
            false,
            vec![
                "requests_total{handler=static_response,host=_other} 3",
                "requests_total{handler=static_response,host=a.test} 2",
                "requests_total{handler=static_response,host=b.test} 1",
                "requests_total{handler=static_response,host=xn--bcher-kva.test} 1",
                "requests_total{handler=static_response,host=secure.test} 1",
            ],
        ),
        (
            true,
            vec![
                "requests_total{handler=static_response,host=_other} 1",
                "requests_total{handler=static_response,host=a.test} 2",
                "requests_total{handler=static_response,host=b.test} 1",
                "requests_total{handler=static_response,host=xn--bcher-kva.test} 1",
                "requests_total{handler=static_response,host=c.wild.test} 1",
                "requests_total{handler=static_response,host=evil\\\\\\.test} 1",
                "requests_total{handler=static_response,host=secure.test} 1",
            ],
        ),
    ] {
        let registry = registry();
        let spec = MetricsSpec { per_host: true, observe_catchall_hosts, uncounted: &[] };
        let mut kit = Kit::of_plan(plan(&registry, Some(spec), &routes));
        for request in &requests {
            kit.send(request);
        }
        assert_eq!(lines(&registry, &["requests_total"]), want, "{observe_catchall_hosts}");
    }
}

// A client that invents hosts cannot make the scrape or the memory grow without a bound.
#[test]
fn invented_hosts_are_bounded() {
    let registry = registry();
    let spec = MetricsSpec { per_host: true, observe_catchall_hosts: true, uncounted: &[] };
    let mut kit = Kit::of_plan(plan(&registry, Some(spec), &json!([{ "handle": [respond("x")] }])));
    for number in 0..1000 {
        kit.send(&Request::get("/").without("Host").field("Host", format!("h{number}.test")));
    }
    kit.send(&Request::get("/").without("Host").field("Host", "long.".repeat(60)));
    kit.send(&Request::get("/").without("Host").field("Host", "h3.test"));
    let all = lines(&registry, &["requests_total"]);
    assert_eq!(all.len(), 257, "{all:?}");
    assert_eq!(all[0], "requests_total{handler=static_response,host=_other} 745");
    assert!(all.contains(&"requests_total{handler=static_response,host=h3.test} 2".to_owned()), "{all:?}");
}

// Prometheus: a counter never shrinks. A reload continues the counts, also of routes that the new plan lacks, and also
// after a plan without metrics.
#[test]
fn a_reload_continues_the_counts() {
    let registry = registry();
    let routes = |handlers: Value| json!([{ "handle": handlers }]);
    let (one, other) = (routes(json!([respond("x")])), routes(json!([{ "handler": "vars" }, respond("y")])));
    let on = Some(MetricsSpec::default());
    let mut kit = Kit::of_plan(plan(&registry, on, &one));
    let mut wanted = Vec::new();
    for (spec, routes, handler) in [
        (on, &one, "static_response"),
        (on, &other, "vars"),
        (None, &one, ""),
        (on, &one, "static_response"),
        (None, &other, ""),
        (on, &other, "vars"),
    ] {
        kit.reload_plan(plan(&registry, spec, routes));
        // Storage of an earlier plan is reused.
        kit.send(&Request::get("/"));
        kit.send(&Request::get("/"));
        wanted.push(handler);
        let count = |handler: &str| 2 * wanted.iter().filter(|wanted| **wanted == handler).count();
        // The named route's handler, `vars`, was registered first.
        let mut want = vec![format!("requests_total{{handler=static_response}} {}", count("static_response"))];
        if count("vars") > 0 {
            want.insert(0, format!("requests_total{{handler=vars}} {}", count("vars")));
        }
        assert_eq!(lines(&registry, &["requests_total"]), want);
    }
}

// A request is in flight until its end, also if a reload has turned the metrics off meanwhile.
#[test]
fn requests_in_flight_at_a_reload() {
    let registry = registry();
    let proxy = json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "192.0.2.9:80" }] });
    let routes = json!([{ "handle": [proxy] }]);
    let on = || plan(&registry, Some(MetricsSpec::default()), &routes);
    let mut kit = Kit::of_plan(on());
    for _ in 0..3 {
        kit.reload_plan(on());
        let pending = kit.send_pending(&Request::get("/")).expect_err("it waits for the upstream");
        kit.reload_plan(plan(&registry, None, &routes));
        pending.cancel(&mut kit);
        assert_eq!(lines(&registry, &["requests_in_flight"]), ["requests_in_flight{handler=reverse_proxy} 0"]);
    }
}

// Caddy's directive `metrics`: the format that the request accepts; `disable_openmetrics` allows the text format only.
#[test]
fn the_handler() {
    let registry = registry();
    let open = "application/openmetrics-text;version=1.0.0";
    for (options, accept, want) in [
        (json!({}), "", Format::Text),
        (json!({}), open, Format::OpenMetrics),
        (json!({ "disable_openmetrics": true }), open, Format::Text),
    ] {
        let mut handler = options.clone();
        handler["handler"] = json!("metrics");
        let answer =
            Kit::new(&registry, &json!([{ "handle": [handler] }])).send(&Request::get("/").field("Accept", accept));
        assert_eq!((answer.status, answer.field("Content-Type")), (200, Some(want.media_type())), "{options} {accept}");
        assert_eq!(answer.text().ends_with("# EOF\n"), want == Format::OpenMetrics, "{options} {accept}");
        assert!(answer.text().contains("# TYPE caddy_config_last_reload_successful gauge\n"), "{}", answer.text());
    }
    let routes = json!([{ "handle": [{ "handler": "metrics", "disable_openmetrics": true, "x": 1 }] }]);
    let error = Kit::build(&registry, &routes, &Value::Null).err().expect("an unknown option");
    assert!(error.to_string().contains("unknown field `x`"), "{error}");
    // A full queue of blocking work is the client's 503.
    let mut kit = Kit::new(&registry, &json!([{ "handle": [{ "handler": "metrics" }] }]));
    kit.worker().queue_jobs(0);
    assert_eq!(kit.send(&Request::get("/")).status, 503);
}

// Caddy lists each configured upstream, healthy until a check fails, as long as the configuration has it.
#[test]
fn upstreams() {
    let registry = registry();
    let proxy =
        json!({ "handler": "reverse_proxy", "upstreams": [{ "dial": "10.0.0.1:80" }, { "dial": "10.0.0.2:80" }] });
    let kit = Kit::new(&registry, &json!([{ "handle": [proxy] }]));
    let healthy = || {
        let text = registry.metrics().scrape(Format::Text);
        let lines = text.lines().filter(|line| line.starts_with("caddy_reverse_proxy_upstreams_healthy{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let line = |dial: &str, value: u8| format!("caddy_reverse_proxy_upstreams_healthy{{upstream=\"{dial}\"}} {value}");
    assert_eq!(healthy(), [line("10.0.0.1:80", 1), line("10.0.0.2:80", 1)]);
    // A second handler finds it unhealthy.
    let other = registry.metrics().upstream("10.0.0.2:80");
    let check = other.check("GET /");
    check.set_up(false);
    assert_eq!(healthy(), [line("10.0.0.1:80", 1), line("10.0.0.2:80", 0)]);
    drop((kit, other, check));
    assert_eq!(healthy(), [""; 0]);
}

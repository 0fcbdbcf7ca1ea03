//! A request B after any request A equals B on fresh storage, with the built-in handlers: state that one request wrote,
//! set, waited for or failed with is invisible to the next, under one plan or across a reload.

use causeway_pipeline::Registry;
use causeway_pipeline::build::ServerSpec;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    // Without a collector.
    registry.set_environment(|name| (name == "OTEL_TRACES_EXPORTER").then(|| "none".into()));
    causeway_modules::register(&mut registry);
    registry
}

const SHOW: &str = "{http.request.method} {http.request.uri} {http.request.uri.path}|{http.request.host}|{http.request.header.A}|\
                    {http.vars.a} {http.vars.b}|{mapped}|{http.auth.user.id} {http.auth.http_basic.error}|\
                    {http.error.status_code} {http.error.message}|{http.request.body}";

fn show() -> Value {
    json!({ "handler": "static_response", "body": SHOW })
}

/// A route for each handler, selected by the query; the last handler shows the state that it leaves.
fn plan(hash: &str) -> (Value, Value) {
    let on = |name: &str, handler: Value| json!({ "match": [{ "query": { "do": [name] } }], "group": name, "handle": [handler] });
    let basic = |more: Value| {
        let mut basic = json!({ "accounts": [{ "username": "alice", "password": hash }] });
        basic.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        json!({ "handler": "authentication", "providers": { "http_basic": basic } })
    };
    let routes = json!([
        on("rewrite", json!({ "handler": "rewrite", "method": "patch", "uri": "/new%20path{http.request.uri.path}?q={http.request.uri.query}" })),
        on("strip", json!({ "handler": "rewrite", "strip_path_prefix": "/x", "uri_substring": [{ "find": "y", "replace": "z" }] })),
        on("query", json!({ "handler": "rewrite", "query": { "set": [{ "key": "a", "val": "1" }], "delete": ["do"] } })),
        on("headers", json!({
            "handler": "headers",
            "request": { "set": { "A": ["set"], "Host": ["other.test"] } },
            "response": { "add": { "X-A": ["1"] }, "replace": { "*": [{ "search_regexp": ".", "replace": "<$0>" }] }, "deferred": true },
        })),
        on("vars", json!({ "handler": "vars", "a": "{http.request.uri}", "log_skip": true, "http.auth.user.id": "nobody" })),
        on("map", json!({ "handler": "map", "source": "{http.vars.a}", "destinations": ["{mapped}"], "mappings": [{ "input_regexp": "(.+)", "outputs": ["<$1>"] }], "defaults": ["none"] })),
        on("limit", json!({ "handler": "request_body", "max_size": 3 })),
        on("body", json!({ "handler": "request_body", "set": "set {http.request.method}" })),
        on("timeouts", json!({ "handler": "timeouts", "read_timeout": "1s", "read_min_rate": 9, "write_timeout": "2s" })),
        on("login", basic(json!({}))),
        on("remembered", basic(json!({ "hash_cache": {} }))),
        on("tracing", json!({ "handler": "tracing", "span_attributes": { "a": "{http.request.uri}" } })),
        on("cache", json!({ "handler": "cache" })),
        on("error", json!({ "handler": "error", "status_code": 418, "error": "tea" })),
        on("abort", json!({ "handler": "static_response", "abort": true })),
        on("close", json!({ "handler": "static_response", "close": true, "headers": { "A": ["closed"] }, "body": "closed" })),
        { "handle": [show()] },
    ]);
    (routes, json!([{ "handle": [show()] }]))
}

/// A plan with fewer slots, and with other meanings for them.
fn other_plan() -> Value {
    let vars = json!({ "handler": "vars", "b": "{mapped}{http.vars.a}" });
    json!([{ "group": "map", "handle": [vars, { "handler": "rewrite", "strip_path_suffix": "x" }, show()] }])
}

fn requests() -> Vec<Request> {
    let ways = [
        "",
        "rewrite",
        "strip",
        "query",
        "headers",
        "vars",
        "vars&do=map",
        "map",
        "limit",
        "body",
        "timeouts",
        "login",
        "remembered",
        "tracing",
        "cache",
        "error",
        "abort",
        "close",
    ];
    let with = |way: &str| Request::new("POST", &format!("/x/y%41?do={way}")).field("A", "own").content("0123");
    let mut requests: Vec<_> = ways.iter().map(|way| with(way)).collect();
    for credentials in ["YWxpY2U6c2VjcmV0", "YWxpY2U6d3Jvbmc=", "Ym9iOnNlY3JldA=="] {
        requests.extend(
            ["login", "remembered"].map(|way| with(way).field("Authorization", format!("Basic {credentials}"))),
        );
    }
    // Not stored, so that the responses stay equal. With `abort` the cache's value of the exchange is left.
    for way in ["cache", "cache&do=error", "cache&do=abort"] {
        requests.push(Request::get(&format!("/x?do={way}")).field("Cache-Control", "no-store"));
    }
    requests.push(Request::get("http://absolute.test/x?do=headers"));
    requests.push(Request::get(&format!("/x/{}?do=rewrite", "%61".repeat(9000))));
    requests
}

#[test]
fn b_after_any_a_equals_b_on_fresh_storage() {
    let hash = causeway_modules::authentication::hash::bcrypt(b"secret", 4).expect("a hash");
    let (routes, errors) = plan(&hash);
    let requests = requests();
    let wanted = |routes: &Value, errors: &Value| -> Vec<TestResponse> {
        requests.iter().map(|request| Kit::with_errors(&registry(), routes, errors).send(request)).collect()
    };
    let (back, other) = (wanted(&routes, &errors), wanted(&other_plan(), &Value::Null));
    let spec = ServerSpec { errors: Some(&errors), ..ServerSpec::new("srv0", &routes) };
    let recording = || Kit::of(&registry(), &spec).expect("a server");
    let first: Vec<_> = requests.iter().map(|request| recording().send(request)).collect();
    // The results must differ among each other, so that equality is a meaningful test.
    let distinct: std::collections::BTreeSet<_> = first.iter().map(|answer| (&answer.body, answer.status)).collect();
    assert!(distinct.len() >= 14, "{distinct:?}");
    assert!(first.iter().any(|answer| answer.aborted));
    assert!(first.iter().any(|answer| answer.text().contains("request body too large")));
    assert!(first.iter().any(|answer| !answer.recorded) && first.iter().any(|answer| answer.recorded));
    for (at, a) in requests.iter().enumerate() {
        let mut kit = recording();
        let after = |kit: &mut Kit, wanted: &[TestResponse], why: &str| {
            for (b, want) in requests.iter().zip(wanted) {
                kit.send(a);
                assert_eq!(kit.send(b), *want, "{} after {} {why}", b.target(), a.target());
            }
        };
        after(&mut kit, &first, "");
        // A client that disconnects while A waits.
        if let Err(pending) = kit.send_pending(a) {
            pending.cancel(&mut kit);
        }
        kit.reload(&registry(), &other_plan(), &Value::Null);
        for (b, want) in requests.iter().zip(&other) {
            assert_eq!(kit.send(b), *want, "{} under another plan after request {at}", b.target());
        }
        kit.reload(&registry(), &routes, &errors);
        after(&mut kit, &back, "back under the first plan");
    }
}

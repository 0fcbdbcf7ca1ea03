//! The cost of handlers once a worker has served an equal request: no allocation, and no job on the file thread pool.

use causeway_pipeline::Registry;
use causeway_pipeline::build::ServerSpec;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

#[track_caller]
fn check(handlers: Value, request: &Request, want: &str) {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let routes = json!([{ "handle": handlers }]);
    let named = json!({ "named": { "handle": [{ "handler": "vars", "from": "named" }] } });
    let spec = ServerSpec { named_routes: named.as_object(), ..ServerSpec::new("srv0", &routes) };
    let mut kit = Kit::of(&registry, &spec).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(kit.send(request).text(), want, "{handlers}");
    kit.run(request);
    let jobs = kit.worker().jobs_seen();
    let count = allocations_during(|| {
        for _ in 0..1000 {
            kit.run(request);
        }
    });
    assert_eq!((count, kit.worker().jobs_seen()), (0, jobs), "{handlers}");
}

fn respond(body: &str) -> Value {
    json!({ "handler": "static_response", "headers": { "X-{http.request.method}": ["a", "{http.request.uri}"] }, "body": body })
}

fn get(target: &str) -> Request {
    Request::get(target).field("A", "one two").field("B", "abc").field("Cookie", "a=b")
}

#[test]
fn rewrite() {
    let show = respond("{http.request.method} {http.request.uri} {http.request.uri.path}");
    for (options, target, want) in [
        (json!({ "method": "{http.request.header.B}" }), "/", "ABC / /"),
        (
            json!({ "uri": "/x{http.request.uri.path}?a={http.request.header.A}&{http.request.uri.query}" }),
            "/a%20b?c=d",
            "GET /x/a%20b?a=one+two&c=d /x/a b",
        ),
        (json!({ "uri": "/x{http.request.uri}" }), "/a?b", "GET /x/a?b /x/a"),
        (
            json!({ "strip_path_prefix": "/{http.request.header.B}", "strip_path_suffix": ".html" }),
            "//abc/x%20y.html?q",
            "GET /x%20y?q /x y",
        ),
        (json!({ "strip_path_prefix": "/a" }), "/a/../../b", "GET /b /b"),
        (
            json!({ "uri_substring": [{ "find": "{http.request.header.B}", "replace": "{http.request.method}?" }] }),
            "/abc?abc",
            "GET /GET%3F?GET? /GET?",
        ),
        (
            json!({ "path_regexp": [{ "find": "/(?P<first>\\w+)/(\\w+)", "replace": "/$2/{http.request.header.B}/${first}$first" }] }),
            "/a/b",
            "GET /b/abc/$first /b/abc/$first",
        ),
        (
            json!({ "query": {
                "rename": [{ "key": "a", "val": "z" }], "set": [{ "key": "{http.request.header.B}", "val": "{http.request.header.A}" }],
                "add": [{ "key": "c", "val": "1" }], "delete": ["d"],
                "replace": [{ "key": "*", "search_regexp": "[0-9]+", "replace": "<$0>" }, { "key": "z", "search": "<", "replace": "" }],
            } }),
            "/?a=1&d=2&c=3",
            "GET /?abc=one+two&c=%3C3%3E&c=%3C1%3E&z=1%3E /",
        ),
    ] {
        let mut handler = options;
        handler["handler"] = json!("rewrite");
        check(json!([handler, show]), &get(target), want);
    }
}

#[test]
fn headers() {
    let ops = |plain: &str| {
        json!({
            "add": { "X-A": ["{http.request.header.A}", "2"] },
            "set": { "X-S": ["1", "{http.request.uri}"], "X-{http.request.method}": ["live"] },
            "delete": ["X-D*", "*-{http.request.method}", "Gone"],
            "replace": {
                "*": [{ "search_regexp": "[aeiou]", "replace": "<$0>" }],
                "X-A": [{ "search": "{http.request.method}", "replace": "x" }, { "search_regexp": "t{http.request.header.None}", "replace": plain }],
            },
        })
    };
    let handler = json!({ "handler": "headers", "request": ops("T"), "response": ops("U") });
    let mut deferred = ops("V");
    deferred["deferred"] = json!(true);
    deferred["require"] = json!({ "status_code": [2], "headers": { "X-A": ["*"] } });
    let later = json!({ "handler": "headers", "response": deferred });
    let show = respond("{http.request.header.X-A}|{http.request.header.A}|{http.request.header.X-S}");
    check(json!([handler, later, show]), &get("/u?q").field("Gone", "x"), "<o>n<e> Tw<o>,2|<o>n<e> tw<o>|1,/<u>?q");
}

#[test]
fn variables() {
    let vars = json!({ "handler": "vars", "a": "{http.request.header.A}", "b": "{http.vars.a}!", "log_skip": true });
    let map = json!({
        "handler": "map", "source": "{http.request.header.B}", "destinations": ["{one}", "{two}"],
        "mappings": [{ "input": "x", "outputs": ["never", null] }, { "input_regexp": "^(a)(.*)$", "outputs": ["$2$1", null] }],
        "defaults": ["", "{http.vars.b}"],
    });
    let invoke = json!({ "handler": "invoke", "name": "named" });
    let show = respond("{one} {two} {http.vars.from}");
    check(json!([vars, map, invoke, show]), &get("/"), "bca one two! named");
    // Nested maps, with a placeholder's value that is escaped.
    let nested = |to: &str, from: &str| json!({ "handler": "map", "source": from, "destinations": [to], "mappings": [], "defaults": [from] });
    let rewrite = json!({ "handler": "rewrite", "uri": "/{m3}?x={m3}" });
    let chain = json!([
        nested("{m1}", "{http.request.header.B}"),
        nested("{m2}", "{m1}"),
        nested("{m3}", "{m2}"),
        rewrite,
        respond("{http.request.uri}")
    ]);
    check(chain, &get("/"), "/abc?x=abc");
}

#[test]
fn request_body_and_a_remembered_password() {
    let limit = json!({ "handler": "request_body", "max_size": 100 });
    let timeouts = json!({ "handler": "timeouts", "read_timeout": "1s", "write_timeout": "1s" });
    check(json!([limit, timeouts, respond("ok")]), &get("/").field("Content-Length", "100"), "ok");
    let hash = causeway_modules::authentication::hash::bcrypt(b"secret", 4).expect("a hash");
    let basic = json!({ "accounts": [{ "username": "alice", "password": hash }], "hash_cache": {} });
    let handler = json!({ "handler": "authentication", "providers": { "http_basic": basic } });
    let request = get("/").field("Authorization", "Basic YWxpY2U6c2VjcmV0");
    check(json!([handler, respond("{http.auth.user.id}")]), &request, "alice");
}

//! `subroute`, `error`, `vars` and `rewrite`, as routes put them together.

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    registry
}

fn respond(body: &str) -> Value {
    json!({ "handler": "static_response", "body": body })
}

#[track_caller]
fn check(handlers: Value, errors: Value, request: &Request, want: (u16, &str)) {
    let answer = Kit::with_errors(&registry(), &json!([{ "handle": handlers }]), &errors).send(request);
    assert_eq!((answer.status, answer.text()), want, "{handlers} for {}", request.target());
}

// Caddy, http.handlers.subroute: its routes run, then what follows it; its own error routes come before the server's.
#[test]
fn subroute() {
    let get = Request::get("/a");
    let matching = json!([{ "match": [{ "path": ["/a"] }], "handle": [respond("a")] }]);
    let sub = |more: Value| {
        let mut handler = json!({ "handler": "subroute" });
        handler.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        handler
    };
    let both = json!([sub(json!({ "routes": matching })), respond("behind")]);
    check(both.clone(), Value::Null, &get, (200, "a"));
    check(both, Value::Null, &Request::get("/b"), (200, "behind"));
    check(json!([sub(json!({})), respond("behind")]), Value::Null, &get, (200, "behind"));
    let failing = json!([{ "handle": [{ "handler": "error", "status_code": 403 }] }]);
    let server = json!([{ "handle": [respond("server {http.error.status_code}")] }]);
    let own = json!({ "routes": [{ "handle": [respond("own {http.error.status_code} {http.error.status_text}")] }] });
    check(json!([sub(json!({ "routes": failing }))]), server.clone(), &get, (403, "server 403"));
    let healing = sub(json!({ "routes": failing, "errors": own }));
    check(json!([healing]), server.clone(), &get, (403, "own 403 Forbidden"));
    // What follows the subroute is compiled into it.
    let behind = json!([sub(json!({ "errors": own })), { "handler": "error" }]);
    check(behind, server.clone(), &get, (500, "own 500 Internal Server Error"));
    let twice = json!({ "routes": [{ "handle": [{ "handler": "error", "status_code": 418 }] }] });
    check(json!([sub(json!({ "routes": failing, "errors": twice }))]), server, &get, (418, "server 418"));
}

// Caddy, http.handlers.error: 500 unless it says otherwise, placeholders allowed.
#[test]
fn error() {
    let get = Request::get("/").field("Code", "451");
    check(json!([{ "handler": "error" }]), Value::Null, &get, (500, ""));
    check(json!([{ "handler": "error", "status_code": "{http.request.header.Code}" }]), Value::Null, &get, (451, ""));
    check(json!([{ "handler": "error", "status_code": "{http.request.header.None}" }]), Value::Null, &get, (500, ""));
    // What the error routes leave alone keeps its status.
    check(json!([{ "handler": "error", "status_code": 404, "error": "x" }]), json!([]), &get, (404, ""));
}

// Caddy, http.handlers.vars: strings with placeholders, numbers, booleans; the last one counts.
#[test]
fn vars() {
    let vars = |vars: Value| {
        let mut handler = json!({ "handler": "vars" });
        handler.as_object_mut().expect("an object").extend(vars.as_object().expect("an object").clone());
        handler
    };
    let first = vars(json!({ "a": "{http.request.method}", "b": 1.5, "c": true }));
    let second = vars(json!({ "a": "{http.vars.a}!" }));
    let show = respond("{http.vars.a} {http.vars.b} {http.vars.c}{http.vars.d}");
    check(json!([first, second, show]), Value::Null, &Request::get("/"), (200, "GET! 1.5 true"));
    let routes = json!([{ "handle": [vars(json!({ "a": {} }))] }]);
    let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("an object is no text");
    assert!(error.to_string().contains("expected a string, a number or a boolean"), "{error}");
}

// Caddy, http.handlers.rewrite: what comes behind sees the new method and target.
#[test]
fn rewrite() {
    for (options, target, want) in [
        (json!({ "uri": "/x" }), "/a?b", "GET /x?b /x"),
        (json!({ "uri": "/x?" }), "/a?b", "GET /x /x"),
        (json!({ "uri": "/x?c={http.request.uri.query}" }), "/a?b", "GET /x?c=b /x"),
        (json!({ "uri": "?c" }), "/a?b", "GET /a?c /a"),
        (json!({ "uri": "x y" }), "/a", "GET /x%20y /x y"),
        (json!({ "uri": "/p{http.request.uri.path}" }), "/a%20b?c", "GET /p/a%20b?c /p/a b"),
        (json!({ "strip_path_prefix": "/api" }), "/api/v1?x", "GET /v1?x /v1"),
        (json!({ "strip_path_prefix": "api" }), "/API/v1", "GET /v1 /v1"),
        (json!({ "strip_path_prefix": "/api" }), "/api", "GET / /"),
        (json!({ "strip_path_prefix": "/api" }), "/ap/i", "GET /ap/i /ap/i"),
        (json!({ "strip_path_prefix": "/a b" }), "/a%20b/%2Fc", "GET /%2Fc //c"),
        (json!({ "strip_path_prefix": "/a%2Fb" }), "/a/b/c", "GET /a/b/c /a/b/c"),
        (json!({ "strip_path_prefix": "/a%2Fb" }), "/a%2fb/c", "GET /c /c"),
        (json!({ "strip_path_suffix": ".html" }), "/a.html?x", "GET /a?x /a"),
        (json!({ "method": "put" }), "/a", "PUT /a /a"),
    ] {
        let mut handler = options.clone();
        handler["handler"] = json!("rewrite");
        let show = respond("{http.request.method} {http.request.uri} {http.request.uri.path}");
        check(json!([handler, show]), Value::Null, &Request::get(target), (200, want));
    }
    for unknown in ["uri_substring", "path_regexp", "query"] {
        let routes = json!([{ "handle": [{ "handler": "rewrite", unknown: [] }] }]);
        let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("it is not in this version");
        assert!(error.to_string().contains(unknown), "{error}");
    }
}

#[test]
fn the_registry_names_all_modules() {
    let want = [
        "http.handlers.error",
        "http.handlers.file_server",
        "http.handlers.headers",
        "http.handlers.rewrite",
        "http.handlers.static_response",
        "http.handlers.subroute",
        "http.handlers.vars",
        "http.matchers.client_ip",
        "http.matchers.expression",
        "http.matchers.file",
        "http.matchers.header",
        "http.matchers.header_regexp",
        "http.matchers.host",
        "http.matchers.method",
        "http.matchers.not",
        "http.matchers.path",
        "http.matchers.path_regexp",
        "http.matchers.protocol",
        "http.matchers.query",
        "http.matchers.remote_ip",
        "http.matchers.vars",
        "http.matchers.vars_regexp",
    ];
    assert_eq!(registry().modules(), want);
}

use causeway_pipeline::Registry;
use causeway_testkit::{Answer, Kit, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// The answer's fields behind these operations, where the handler behind them sets `A: 1`, `B: 2`, `Server` and a body that shows
/// the request's `X-*` fields.
fn send(mut handler: Value, request: &Request) -> Answer {
    handler["handler"] = json!("headers");
    let show = "{http.request.header.X-A}|{http.request.header.X-B}|{http.request.header.X-C}";
    let respond = json!({ "handler": "static_response", "body": show, "headers": { "A": ["1"], "B": ["2"] } });
    Kit::new(&registry(), &json!([{ "handle": [handler, respond] }])).send(request)
}

// Caddy, http.handlers.headers: operations on the request change what comes behind.
#[test]
fn request_operations() {
    let request = Request::get("/").field("X-A", "one").field("X-A", "two").field("X-B", "b-b").field("Y-B", "y");
    for (ops, want) in [
        (json!({}), "one,two|b-b|"),
        (json!({ "set": { "x-a": ["{http.request.method}"] } }), "GET|b-b|"),
        (json!({ "set": { "x-c": ["1", "2"] } }), "one,two|b-b|1,2"),
        (json!({ "add": { "X-C": ["1", "2"] } }), "one,two|b-b|1,2"),
        (json!({ "delete": ["x-a"] }), "|b-b|"),
        (json!({ "delete": ["*-b"] }), "one,two||"),
        (json!({ "delete": ["x-*"] }), "||"),
        (json!({ "delete": ["*-*"] }), "||"),
        (json!({ "delete": ["*"], "set": { "X-C": ["c"] } }), "||c"),
        (json!({ "add": { "X-C": ["c"] }, "delete": ["X-C"] }), "one,two|b-b|"),
        (
            json!({ "replace": { "X-B": [{ "search": "b", "replace": "<{http.request.method}>" }] } }),
            "one,two|<GET>-<GET>|",
        ),
        (json!({ "replace": { "*": [{ "search": "o", "replace": "0" }] } }), "0ne,tw0|b-b|"),
        (json!({ "replace": { "X-B": [{ "search": "", "replace": "x" }] } }), "one,two|b-b|"),
    ] {
        assert_eq!(send(json!({ "request": ops }), &request).text(), want, "{ops}");
    }
}

// Caddy: operations on the answer are applied at once, or, when deferred, to what the handlers behind left.
#[test]
fn response_operations() {
    for (ops, a, c) in [
        (json!({ "set": { "A": ["0"], "C": ["3"] } }), Some("1"), Some("3")),
        (json!({ "set": { "A": ["0"] }, "deferred": true }), Some("0"), None),
        (json!({ "delete": ["A"] }), Some("1"), None),
        (json!({ "delete": ["A"], "deferred": true }), None, None),
        (json!({ "set": { "C": ["3"] }, "require": { "status_code": [2] } }), Some("1"), Some("3")),
        (json!({ "set": { "C": ["3"] }, "require": { "status_code": [404, 5] } }), Some("1"), None),
        (json!({ "set": { "C": ["3"] }, "require": { "headers": { "A": ["1*"], "Z": null } } }), Some("1"), Some("3")),
        (json!({ "set": { "C": ["3"] }, "require": { "headers": { "A": ["2"] } } }), Some("1"), None),
        (json!({ "set": { "C": ["{http.response.header.B}"] }, "deferred": true }), Some("1"), Some("2")),
    ] {
        let answer = send(json!({ "response": ops }), &Request::get("/"));
        assert_eq!((answer.field("a"), answer.field("c")), (a, c), "{ops}");
    }
}

#[test]
fn fields_survive_into_error_routes_deferred_ones_do_not() {
    let routes = json!([{ "handle": [
        { "handler": "headers", "response": { "set": { "A": ["kept"] } } },
        { "handler": "headers", "response": { "set": { "B": ["lost"] }, "deferred": true } },
        { "handler": "error", "status_code": 418, "error": "tea" },
    ] }]);
    let errors = json!([{ "handle": [{ "handler": "static_response", "body": "{http.error.status_code}" }] }]);
    let answer = Kit::with_errors(&registry(), &routes, &errors).send(&Request::get("/"));
    assert_eq!((answer.status, answer.text()), (418, "418"));
    assert_eq!((answer.field("a"), answer.field("b")), (Some("kept"), None));
}

#[test]
fn refused() {
    for (ops, want) in [
        (json!({ "set": { "a b": ["x"] } }), "routes[0].handle[0].response: found 'a b', expected a field name"),
        (json!({ "delete": ["*a b"] }), "expected a field name, with a *"),
        (json!({ "replace": { "A": [{ "search_regexp": "x+", "replace": "" }] } }), "replaces no regular expressions"),
        (json!({ "sett": {} }), "unknown field `sett`"),
    ] {
        let handler = json!({ "handler": "headers", "response": ops });
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}

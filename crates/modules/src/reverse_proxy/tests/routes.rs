use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{exchange, kit, proxy, registry, start_call};

fn with(handlers: Value) -> Value {
    json!([{ "handle": handlers }])
}

// Caddy, handle_response: the first matching entry decides; `status_code` alone replaces the status.
#[test]
fn routes_for_responses() {
    let mut kit = kit(json!({ "handle_response": [
        { "match": { "status_code": [404] }, "status_code": 410 },
        { "match": { "headers": { "X-Accel": ["*"] } }, "routes": with(json!([
            { "handler": "copy_response_headers", "include": ["X-A", "Connection"] },
            { "handler": "static_response", "status_code": 203, "body": "{http.reverse_proxy.header.X-Accel} {http.reverse_proxy.status_code}" },
        ])) },
        { "match": { "status_code": [5] }, "routes": with(json!([{ "handler": "copy_response", "status_code": 299 }])) },
        { "match": { "status_code": [3] }, "routes": with(json!([{ "handler": "copy_response" }])) },
    ], "headers": { "response": { "set": { "X-Set": ["1"] } } } }));
    let mut send = |status: u16, fields: &[(&str, &str)]| {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        call.answer(status, fields, Some(4));
        call.send(b"theirs"[..4].as_ref());
        call.end();
        let answer = pending.finish(&mut kit);
        assert!(call.engine.is_given_up(), "the call was dropped");
        answer
    };
    let answer = send(404, &[]);
    assert_eq!((answer.status, answer.text(), answer.field("X-Set")), (410, "thei", Some("1")));
    let answer = send(200, &[("X-Accel", "/file"), ("X-A", "a"), ("X-B", "b"), ("Connection", "close")]);
    assert_eq!((answer.status, answer.text()), (203, "/file 200"));
    assert_eq!((answer.field("X-A"), answer.field("X-B"), answer.field("X-Set")), (Some("a"), None, None));
    assert_eq!(answer.field("Server"), Some("Causeway"));
    let answer = send(503, &[("X-B", "b")]);
    assert_eq!(
        (answer.status, answer.text(), answer.field("X-B"), answer.field("X-Set")),
        (299, "thei", Some("b"), Some("1"))
    );
    assert_eq!(send(302, &[]).status, 302);
    assert_eq!(send(200, &[]).text(), "thei", "nothing matches");
}

// Caddy, forward_auth: if the routes do not respond, the request continues after the proxy, and the upstream's response
// is dropped.
#[test]
fn a_request_continues_after_routes_without_a_response() {
    let auth = proxy(json!({ "handle_response": [{ "match": { "status_code": [2] }, "routes": with(json!([
        { "handler": "headers", "request": { "set": { "X-User": ["{http.reverse_proxy.header.X-User}"] } } },
    ])) }] }));
    let second_proxy = proxy(
        json!({ "upstreams": [{ "dial": "10.0.0.2:80" }], "headers": { "response": { "set": { "X-Seen": ["{http.reverse_proxy.header.X-User}|{http.reverse_proxy.upstream.host}"] } } } }),
    );
    let mut kit = Kit::new(&registry(), &with(json!([auth, second_proxy])));
    let (call, pending) = start_call(&mut kit, &Request::get("/"));
    call.answer(200, &[("X-User", "alice")], Some(0));
    call.end();
    let pending = pending.poll(&mut kit).expect_err("the second proxy waits");
    let second = kit.worker().take_call().expect("a second call");
    assert_eq!(&*second.address, "10.0.0.2:80");
    assert!(second.request_text().contains("\nX-User: alice\n"));
    second.answer(200, &[], Some(0));
    second.end();
    let answer = pending.finish(&mut kit);
    assert_eq!(answer.field("X-Seen"), Some("{http.reverse_proxy.header.X-User}|10.0.0.2"), "of the second answer");
    assert!(call.engine.is_given_up() && second.engine.is_given_up());
    // If the first upstream rejects the request, its response is the client's.
    let answer = {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        call.answer(401, &[("WWW-Authenticate", "Basic")], Some(0));
        call.end();
        pending.finish(&mut kit)
    };
    assert_eq!((answer.status, answer.field("WWW-Authenticate")), (401, Some("Basic")));
}

// Caddy, forward_auth: the rewrite changes the request to the upstream only. So a path of which nothing was left before
// is still an empty one for the handlers after the proxy, and one that the rewrite empties is not.
#[test]
fn a_rewrite_for_the_upstream_changes_no_path_of_the_request() {
    let directory = crate::file_server::tests::Directory::new();
    let files = directory.handler(json!({ "browse": {} }));
    let auth = |rewrite: Value| {
        let passes = json!({ "match": { "status_code": [2] }, "routes": with(json!([{ "handler": "vars" }])) });
        proxy(json!({ "rewrite": rewrite, "handle_response": [passes] }))
    };
    let empty = json!({ "handler": "rewrite", "uri_substring": [{ "find": "/fa", "replace": "" }] });
    let root = json!({ "handler": "rewrite", "uri": "/" });
    for (first, rewrite, want) in [
        (&empty, json!({ "uri": "/auth" }), (308, Some("/fa/"))),
        (&root, json!({ "strip_path_prefix": "/" }), (200, None)),
    ] {
        let mut kit = Kit::new(&registry(), &with(json!([first, auth(rewrite), files])));
        let (call, pending) = start_call(&mut kit, &Request::get("/fa"));
        call.answer(200, &[], Some(0));
        call.end();
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.field("location")), want, "{first}");
    }
}

// Caddy: these two handlers are only valid in `handle_response`.
#[test]
fn copying_needs_an_upstream_response() {
    for name in ["copy_response", "copy_response_headers"] {
        let mut kit = Kit::new(&registry(), &with(json!([{ "handler": name }])));
        assert_eq!(kit.send(&Request::get("/")).status, 500, "{name}");
    }
    let both = json!([{ "handler": "copy_response_headers", "include": ["A"], "exclude": ["B"] }]);
    let error = Kit::build(&registry(), &with(both), &Value::Null).err().expect("Caddy refuses it too").to_string();
    assert!(error.contains("found 'both lists'"), "{error}");
}

// A dirty test: an exchange on reused storage behaves as on fresh storage, whatever the previous exchange was.
#[test]
fn no_state_of_an_exchange_is_left_for_the_next() {
    let options = || {
        json!({
            "headers": { "response": { "set": { "X-Seen": ["{http.reverse_proxy.header.X-A}|{http.reverse_proxy.status_code}"] } } },
            "rewrite": { "uri": "/new{http.request.uri}" },
            "handle_response": [{ "match": { "status_code": [500] }, "routes": with(json!([{ "handler": "static_response", "body": "routes" }])) }],
        })
    };
    let requests = [
        Request::get("/a").field("Connection", "X-B").field("X-B", "b"),
        Request::new("POST", "/b").content("abc"),
        Request::get("/c").upgrade("websocket"),
    ];
    let mut dirty = kit(options());
    for first in &requests {
        for second in &requests {
            // One is cancelled, one fails, one is answered by routes, one streams.
            let (call, pending) = start_call(&mut dirty, first);
            drop(call);
            pending.cancel(&mut dirty);
            let (call, pending) = start_call(&mut dirty, first);
            drop(call);
            assert_eq!(pending.finish(&mut dirty).status, 502);
            let (call, pending) = start_call(&mut dirty, first);
            call.answer(500, &[("X-A", "first")], Some(9));
            drop(call);
            assert_eq!(pending.finish(&mut dirty).text(), "routes");
            exchange(&mut dirty, first, &[("X-A", "first")]);
            let mut fresh = kit(options());
            let exchange_text = |kit: &mut Kit| {
                let (call, pending) = start_call(kit, second);
                let text = call.request_text();
                pending.cancel(kit);
                text
            };
            assert_eq!(exchange_text(&mut dirty), exchange_text(&mut fresh));
            assert_eq!(exchange(&mut dirty, second, &[("X-B", "1")]), exchange(&mut fresh, second, &[("X-B", "1")]));
        }
    }
}

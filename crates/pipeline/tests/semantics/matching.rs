//! Matchers that wait, long lists, named routes, and request bodies as placeholders.

use std::time::Duration;

use causeway_pipeline::Worker as _;
use causeway_pipeline::build::ServerSpec;
use causeway_testkit::{Kit, Request};
use serde_json::{Map, Value, json};

use crate::probe::{registry, traced};

fn respond(body: &str) -> Value {
    json!({ "handler": "probe", "mark": "r", "enter": "respond", "body": body })
}

fn send(routes: &Value, request: &Request) -> (u16, String, String) {
    let answer = Kit::new(&registry(), routes).send(request);
    (answer.status, answer.text().to_owned(), traced(&answer))
}

#[test]
fn a_waiting_matcher_is_called_again() {
    let slow = |answer: Value| json!({ "sleep": [answer, null] });
    let route = |sets: Value, body: &str| json!({ "match": sets, "handle": [respond(body)], "terminal": true });
    let last = || json!({ "handle": [respond("last")] });
    for (routes, want) in [
        (json!([route(json!([slow(json!(true))]), "yes"), last()]), (200, "yes", "recalled, in r")),
        (json!([route(json!([slow(json!(false))]), "yes"), last()]), (200, "last", "recalled, in r")),
        // Sets are alternatives; the decision of the first one is kept while the second one waits.
        (
            json!([route(json!([slow(json!(false)), slow(json!(true))]), "second"), last()]),
            (200, "second", "recalled, recalled, recalled, in r"),
        ),
        (json!([route(json!([slow(Value::Null)]), "yes"), last()]), (502, "", "")),
        // In a chain: a wait does not run earlier handlers again.
        (
            json!([{ "handle": [{ "handler": "probe", "mark": "a" }] }, route(json!([slow(json!(true))]), "yes")]),
            (200, "yes", "in a, recalled, in r, out a"),
        ),
    ] {
        let (status, text, trace) = send(&routes, &Request::get("/"));
        assert_eq!((status, &*text, &*trace), want, "{routes}");
    }
    // A fault that a wait produces passes the entered handlers and reaches the error routes.
    let routes = json!([
        { "handle": [{ "handler": "probe", "mark": "a" }] },
        { "match": [slow(Value::Null)], "handle": [respond("no")] },
    ]);
    let errors = json!([{ "match": [slow(json!(true))], "handle": [respond("error {http.error.status_code}")] }]);
    let answer = Kit::with_errors(&registry(), &routes, &errors).send(&Request::get("/"));
    assert_eq!((answer.text(), &*traced(&answer)), ("error 502", "in a, failed a, recalled, in r"));
}

// `Context::recall`: a decision is one of the current route, which a failed matcher ends: the next route that has the
// matcher waits again.
#[test]
fn a_failed_route_keeps_no_decision() {
    let sets = json!([{ "sleep": [false, null] }, { "fault": 502 }]);
    let routes = json!([{ "handle": [{
        "handler": "probe", "mark": "p", "enter": "call", "failed": "call",
        "routes": [{ "match": sets, "handle": [respond("no")] }],
    }] }]);
    let mut kit = Kit::new(&registry(), &routes);
    let began = kit.worker().now();
    let answer = kit.send(&Request::get("/"));
    assert_eq!((answer.status, &*traced(&answer)), (502, "in p, recalled, failed p, recalled"));
    assert_eq!(kit.worker().now() - began, Duration::from_secs(2), "each evaluation sleeps a second");
}

#[test]
fn the_peer_disconnects_while_a_matcher_waits() {
    let routes = json!([{ "match": [{ "sleep": [true, null] }], "handle": [respond("yes")] }]);
    let mut kit = Kit::new(&registry(), &routes);
    kit.send_pending(&Request::get("/")).expect_err("it waits").cancel(&mut kit);
    assert_eq!(kit.send(&Request::get("/")).text(), "yes");
}

/// A route of a list that is long enough for an index runs if and only if it runs in a list that is walked.
#[test]
fn an_indexed_list_matches_like_a_walked_one() {
    let mark = |mark: &str| json!({ "handler": "probe", "mark": mark });
    let mut routes = Vec::new();
    for at in 0..12 {
        let host = format!("h{}.test", at % 4);
        routes.push(json!({ "match": [{ "hosts": [host] }], "handle": [mark(&format!("h{at}"))] }));
        let path = "/abc/def"[..1 + at % 8].to_owned();
        routes.push(json!({ "match": [{ "paths": [path] }], "handle": [mark(&format!("p{at}"))] }));
        if at % 3 == 0 {
            routes.push(json!({ "handle": [mark(&format!("o{at}"))] }));
            routes.push(json!({ "match": [{ "hosts": ["h1.test"] }, { "paths": ["/z"] }], "handle": [mark("m")] }));
        }
        if at == 6 {
            // From here on the request has another host and path.
            let to =
                json!({ "handler": "probe", "mark": "edit", "set_target": "/ABC", "set_field": ["Host", "h3.test"] });
            routes.push(json!({ "match": [{ "hosts": ["h2.test"] }], "handle": [to] }));
        }
    }
    let walked = |request: &Request| {
        // One list per route, so that none has an index.
        let lists: Vec<_> = routes
            .iter()
            .map(|route| json!({ "handle": [{ "handler": "probe", "mark": "", "enter": "call", "routes": [route] }] }))
            .collect();
        let (.., trace) = send(&Value::from(lists), request);
        trace.split(", ").filter(|part| part.starts_with("in ") && part.len() > 3).collect::<Vec<_>>().join(",")
    };
    let mut ran = 0;
    for host in ["h0.test", "H1.TEST", "h2.test", "h3.test", "other", "h0.test."] {
        for path in ["/", "/abc/def", "/abc", "/ABC", "/abc//def", "/abc/../abc/d", "/z", "*"] {
            let method = if path == "*" { "OPTIONS" } else { "GET" };
            let request = Request::new(method, path).field("Host", host);
            let (.., trace) = send(&Value::from(routes.clone()), &request);
            let got = trace.split(", ").filter(|part| part.starts_with("in ")).collect::<Vec<_>>().join(",");
            assert_eq!(got, walked(&request), "{host} {path}");
            ran += got.split(',').count();
        }
    }
    assert!(ran > 400, "routes that ran: {ran}");
}

// Caddy: `named_routes` belong to a server; `invoke` runs one, then the chain continues.
#[test]
fn named_routes() {
    let mut registry = registry();
    registry.register_handler("invoke", |value, build| {
        struct Invoke(causeway_pipeline::RoutesId);
        impl causeway_pipeline::Handler for Invoke {
            fn enter(&self, _: &mut causeway_pipeline::Context) -> causeway_pipeline::Step {
                causeway_pipeline::Step::Run(self.0)
            }
        }
        let name = value["name"].as_str().unwrap_or_default();
        match build.named_route(name) {
            Some(routes) => Ok(Box::new(Invoke(routes))),
            None => Err(build.refuse(name, "a named route")),
        }
    });
    let named: Map<String, Value> = serde_json::from_value(json!({
        "a": { "handle": [{ "handler": "probe", "mark": "a" }, { "handler": "invoke", "name": "b" }] },
        "b": { "handle": [{ "handler": "probe", "mark": "b" }] },
        "endless": { "handle": [{ "handler": "invoke", "name": "endless" }] },
    }))
    .unwrap();
    let kit = |routes: &Value| {
        let server = ServerSpec { named_routes: Some(&named), ..ServerSpec::new("s", routes) };
        Kit::of(&registry, &server)
    };
    let routes = json!([{ "handle": [{ "handler": "invoke", "name": "a" }, respond("done")] }]);
    let answer = kit(&routes).unwrap().send(&Request::get("/"));
    assert_eq!((answer.text(), &*traced(&answer)), ("done", "in a, in b, in r, out b, out a"));
    let endless = json!([{ "handle": [{ "handler": "invoke", "name": "endless" }] }]);
    assert_eq!(kit(&endless).unwrap().send(&Request::get("/")).status, 500);
    let invoke_only = json!([{ "handle": [{ "handler": "invoke", "name": "c" }] }]);
    let error = kit(&invoke_only).err().expect("no such route");
    assert_eq!(error.to_string(), "routes[0].handle[0]: found 'c', expected a named route");
}

// Caddy's `{http.request.body}`: the whole body as a text; a later handler can still take the body.
#[test]
fn bodies_as_texts() {
    let take = json!({ "handler": "probe", "mark": "t", "take_body": true });
    let named = json!({ "handler": "probe", "mark": "n", "set_variable": ["x", "{http.request.body}"] });
    let show = respond("{http.vars.x}|{http.request.body}|{http.request.body_base64}");
    let post = Request::new("POST", "/").content("hello");
    for (routes, request, want) in [
        (json!([{ "handle": [named, take, show] }]), &post, (200, "hello|hello|aGVsbG8=", "in n, body of 5 t, in t")),
        (json!([{ "handle": [named, show] }]), &Request::get("/"), (200, "||", "in n")),
        // The first taker keeps the body.
        (json!([{ "handle": [take, named, show] }]), &post, (200, "||", "body of 5 t, in t, in n")),
        (
            json!([{ "match": [{ "text": ["{http.request.body}", "hello"] }], "handle": [take, respond("yes")] }]),
            &post,
            (200, "yes", "body of 5 t, in t"),
        ),
        (
            json!([{ "handle": [{ "handler": "probe", "mark": "l", "limit_body": 4 }, named, show] }]),
            &post,
            (
                200,
                "request body: http: request body too large|request body: http: request body too large|\
                 cmVxdWVzdCBib2R5OiBodHRwOiByZXF1ZXN0IGJvZHkgdG9vIGxhcmdl",
                "in l, in n",
            ),
        ),
        // A matcher must not decide by a text that is not the body.
        (
            json!([
                { "handle": [{ "handler": "probe", "mark": "l", "limit_body": 4 }] },
                { "match": [{ "text": ["{http.request.body}", "hello"] }], "handle": [respond("yes")] },
            ]),
            &post,
            (413, "", "in l, failed l"),
        ),
        (
            json!([{ "handle": [{ "handler": "probe", "mark": "l", "limit_body": 5 }, take, respond("ok")] }]),
            &post,
            (200, "ok", "in l, body of 5 t, in t"),
        ),
        // A body that was read before is limited too.
        (
            json!([{ "handle": [named, { "handler": "probe", "mark": "l", "limit_body": 4 }, show] }]),
            &post,
            (
                200,
                "hello|request body: http: request body too large|cmVxdWVzdCBib2R5OiBodHRwOiByZXF1ZXN0IGJvZHkgdG9vIGxhcmdl",
                "in n, in l",
            ),
        ),
        (
            json!([{ "handle": [named, { "handler": "probe", "mark": "l", "limit_body": 4 }, take, respond("")] }]),
            &post,
            (200, "", "in n, in l, in t, body of 0 TooLarge t"),
        ),
        (
            json!([{ "handle": [named, { "handler": "probe", "mark": "l", "limit_body": 5 }, take, show] }]),
            &post,
            (200, "hello|hello|aGVsbG8=", "in n, in l, body of 5 t, in t"),
        ),
        // The routes in a handler do not take over that it reads the body.
        (
            json!([{ "handle": [{
                "handler": "probe", "mark": "n", "set_variable": ["x", "{http.request.body}"], "enter": "call",
                "routes": [{ "handle": [respond("{http.vars.x}")] }],
            }] }]),
            &post,
            (200, "hello", "in n"),
        ),
        (
            json!([{ "handle": [{ "handler": "probe", "mark": "p", "replace_body": "other!" }, take, show] }]),
            &post,
            (200, "||", "in p, body of 6 t, in t"),
        ),
        (
            json!([{ "handle": [{ "handler": "probe", "mark": "p", "replace_body": "other!" }, show] }]),
            &post,
            (200, "|other!|b3RoZXIh", "in p"),
        ),
    ] {
        let (status, text, trace) = send(&routes, request);
        assert_eq!((status, &*text), (want.0, want.1), "{routes}");
        let trace: Vec<_> = trace.split(", ").filter(|part| !part.starts_with("out ") && *part != "in r").collect();
        let mut trace = trace.join(", ");
        trace =
            trace.replace("in t, body of 5 t", "body of 5 t, in t").replace("in t, body of 6 t", "body of 6 t, in t");
        assert_eq!(trace, want.2, "{routes}");
    }
    let slow = Request::new("POST", "/").content("left").body_open();
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [respond("{http.request.body}")] }]));
    kit.send_pending(&slow).expect_err("the body is not complete").cancel(&mut kit);
    let broken = Request::new("POST", "/").content("left").body_fails(causeway_pipeline::BodyError::Malformed);
    assert_eq!(kit.send(&broken).status, 400);
    assert_eq!(kit.send(&post).text(), "hello");
}

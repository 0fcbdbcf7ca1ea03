//! Order, groups, matching, calls, the response pass, faults, bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use causeway_message::Version;
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::route::{ENTERED_MAX, NESTED_LISTS_MAX};
use causeway_pipeline::{Context, Ending, Handler, Outcome, Step};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use crate::probe::{ENDED, registry, traced};

fn probe(mark: &str) -> Value {
    json!({ "handler": "probe", "mark": mark })
}

fn with(mark: &str, more: Value) -> Value {
    let mut probe = probe(mark);
    probe.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    probe
}

fn route(marks: &str) -> Value {
    json!({ "handle": marks.split(' ').map(probe).collect::<Vec<_>>() })
}

#[track_caller]
fn check(why: &str, routes: Value, errors: Value, request: &Request, want: (u16, &str, &str)) {
    let answer = Kit::with_errors(&registry(), &routes, &errors).send(request);
    assert_eq!((answer.status, answer.text(), &*traced(&answer)), want, "{why}");
}

#[test]
fn order_and_the_end_of_the_chain() {
    let get = Request::get("/");
    let all = "in a, in b, in c, out c, out b, out a";
    check("handlers and routes in order", json!([route("a b"), route("c")]), Value::Null, &get, (200, "", all));
    check("an empty plan responds with an empty 200", json!([]), Value::Null, &get, (200, "", ""));
    let answering =
        json!([{ "handle": [probe("a"), with("b", json!({ "enter": "respond", "body": "hi" })), probe("c")] }]);
    check("a handler does not see its own response", answering, Value::Null, &get, (200, "hi", "in a, in b, out a"));
    let mut terminal = route("a");
    terminal["terminal"] = json!(true);
    check("terminal", json!([terminal, route("b")]), Value::Null, &get, (200, "", "in a, out a"));
    let empty = json!([{ "handle": [] }, { "match": [] }, route("a")]);
    check("routes without handlers have no effect", empty, Value::Null, &get, (200, "", "in a, out a"));
}

#[test]
fn groups_and_match_sets() {
    let a1 = json!({ "field": ["A", "1"] });
    let b1 = json!({ "field": ["B", "1"] });
    let get = |fields: &[&str]| fields.iter().fold(Request::get("/"), |request, name| request.field(name, "1"));
    let mut first = route("a");
    let mut second = route("b");
    (first["group"], second["group"]) = (json!("g"), json!("g"));
    first["match"] = json!([a1]);
    let grouped = json!([first, second, route("c")]);
    check("the first of a group", grouped.clone(), Value::Null, &get(&["A"]), (200, "", "in a, in c, out c, out a"));
    check("the next when it does not match", grouped, Value::Null, &get(&[]), (200, "", "in b, in c, out c, out b"));
    let sets = |sets: Value| json!([{ "match": sets, "handle": [probe("a")] }]);
    for (why, value, fields, want) in [
        ("one of the sets is enough", json!([a1, b1]), &["B"][..], "in a, out a"),
        ("none of the sets", json!([a1, b1]), &[], ""),
        ("all matchers of a set", json!([{ "field": ["A", "1"], "fault": 418 }]), &[], ""),
        ("an empty set matches", json!([{}]), &[], "in a, out a"),
    ] {
        check(why, sets(value), Value::Null, &get(fields), (200, "", want));
    }
    let faulty = sets(json!([{ "fault": 418 }]));
    check("a matcher's fault ends the chain", faulty, Value::Null, &get(&[]), (418, "", ""));
}

#[test]
fn a_route_is_matched_when_the_chain_reaches_it() {
    let first = json!({ "handle": [with("a", json!({ "set_field": ["A", "1"] }))] });
    let second = json!({ "match": [{ "field": ["A", "1"] }], "handle": [probe("b")] });
    let want = (200, "", "in a, in b, out b, out a");
    check("it sees earlier changes", json!([first, second]), Value::Null, &Request::get("/"), want);
}

#[test]
fn calls() {
    let get = Request::get("/");
    let call = |mark: &str, routes: Value| with(mark, json!({ "enter": "call", "routes": routes }));
    let routes = json!([{ "handle": [call("a", json!([route("b"), route("c")])), probe("d")] }, route("e")]);
    let want = "in a, in b, in c, in d, in e, out e, out d, out c, out b, out a";
    check("the chain continues after the call", routes, Value::Null, &get, (200, "", want));
    let mut ending = route("b");
    ending["terminal"] = json!(true);
    let routes = json!([{ "handle": [call("a", json!([ending])), probe("d")] }]);
    check("terminal ends all", routes, Value::Null, &get, (200, "", "in a, in b, out b, out a"));
    let routes = json!([{ "handle": [call("a", json!([])), probe("b")] }]);
    check("an empty list", routes, Value::Null, &get, (200, "", "in a, in b, out b, out a"));
    let back = with("a", json!({ "leave": "call", "routes": [route("x")] }));
    let routes = json!([{ "handle": [probe("z"), back, probe("b")] }, route("never")]);
    check(
        "routes called on the response pass find a new response, and the rest of the request pass is dropped",
        routes.clone(),
        Value::Null,
        &get,
        (200, "", "in z, in a, in b, in never, out never, out b, out a, in x, out x, out z"),
    );
}

#[test]
fn faults_and_error_routes() {
    let get = Request::get("/");
    let failing = || with("f", json!({ "enter": "404" }));
    let routes = json!([{ "handle": [probe("a"), probe("b"), failing(), probe("c")] }]);
    let want = "in a, in b, in f, failed b, failed a";
    check("the default answer of a fault", routes.clone(), Value::Null, &get, (404, "", want));
    let errors = json!([{ "handle": [probe("e"), with("g", json!({ "enter": "respond", "body": "{http.error.status_code} {http.error.status_text}" }))] }]);
    let want = "in a, in b, in f, failed b, failed a, in e, in g, out e";
    check("error routes see the fault", routes.clone(), errors, &get, (200, "404 Not Found", want));
    let errors = json!([{ "handle": [with("e", json!({ "enter": "502" }))] }]);
    let want = "in a, in b, in f, failed b, failed a, in e";
    check("a fault in the error routes keeps the status of the first", routes.clone(), errors, &get, (404, "", want));
    check(
        "error routes that answer nothing keep the status of the fault",
        routes,
        json!([]),
        &get,
        (404, "", "in a, in b, in f, failed b, failed a"),
    );
    let healed =
        json!([{ "handle": [probe("a"), with("b", json!({ "failed": "respond", "body": "healed" })), failing()] }]);
    check(
        "a handler may respond to a later handler's fault",
        healed,
        Value::Null,
        &get,
        (200, "healed", "in a, in b, in f, failed b, out a"),
    );
    let broken = json!([{ "handle": [with("a", json!({ "leave": "503" })), probe("b")] }]);
    check("a response may become a fault", broken, Value::Null, &get, (503, "", "in a, in b, out b, out a"));
    let lost = json!([{ "handle": [with("a", json!({ "leave": "next" })), probe("b")] }]);
    check("there is no next on the response pass", lost, Value::Null, &get, (500, "", "in a, in b, out b, out a"));
}

// Caddy, issue 3717: error routes get the request's own method and target; the changed fields and variables stay.
#[test]
fn error_routes_see_the_original_target() {
    let routes = json!([{ "handle": [
        with("a", json!({ "set_target": "/x%20y?z", "set_variable": ["v", "{http.request.uri.path}"] })),
        with("b", json!({ "set_target": "/x%20y?z", "set_variable": ["v", "{http.request.uri.path}"] })),
        with("f", json!({ "enter": "404" })),
    ] }]);
    let errors = json!([{ "handle": [
        with("e", json!({ "enter": "respond", "body": "{http.request.uri} {http.request.uri.path} {http.vars.v}" })),
    ] }]);
    let mut kit = Kit::with_errors(&registry(), &routes, &errors);
    assert_eq!(kit.send(&Request::get("/a%2Fb?c")).text(), "/a%2Fb?c /a/b /x y");
}

#[test]
fn bounds() {
    let many = |count: usize| json!([{ "handle": vec![probe("m"); count] }]);
    let get = Request::get("/");
    for (count, status) in [(ENTERED_MAX, 200), (ENTERED_MAX + 1, 500)] {
        assert_eq!(Kit::new(&registry(), &many(count)).send(&get).status, status, "{count} handlers");
    }
    let nested = |depth: usize| {
        let mut routes = json!([route("x")]);
        for _ in 0..depth {
            routes = json!([{ "handle": [with("n", json!({ "enter": "call", "routes": routes }))] }]);
        }
        routes
    };
    // The server's own list counts.
    for (depth, status) in [(NESTED_LISTS_MAX - 1, 200), (NESTED_LISTS_MAX, 500)] {
        assert_eq!(Kit::new(&registry(), &nested(depth)).send(&get).status, status, "{depth} calls");
    }
}

#[test]
fn abort_interim_responses_and_the_end() {
    let get = Request::get("/");
    let routes = json!([{ "handle": [with("a", json!({ "interim": true })), with("b", json!({ "enter": "abort" })), probe("c")] }]);
    let mut kit = Kit::new(&registry(), &routes);
    ENDED.take();
    let answer = kit.send(&get);
    assert!(answer.aborted && answer.status == 0 && answer.fields.is_empty());
    assert_eq!(answer.interims.len(), 1);
    let marks =
        |ended: Vec<(String, Outcome)>| ended.into_iter().map(|(mark, it)| (mark, it.ending)).collect::<Vec<_>>();
    assert_eq!(marks(ENDED.take()), [("a".to_owned(), Ending::Aborted), ("b".to_owned(), Ending::Aborted)]);
    let routes = json!([{ "handle": [probe("a"), with("b", json!({ "enter": "respond", "body": "four" }))] }]);
    Kit::new(&registry(), &routes).send(&get);
    let ended = ENDED.take();
    assert_eq!(ended.iter().map(|(mark, it)| (&**mark, it.sent)).collect::<Vec<_>>(), [("a", 4), ("b", 4)]);
}

#[test]
fn errors_of_refused_configurations_contain_the_path() {
    for (routes, want) in [
        (json!({}), "routes: found 'an object', expected a list of routes"),
        (json!([{ "handle": [{ "handler": "nope" }] }]), "routes[0].handle[0]: handler module 'nope' is not supported"),
        (
            json!([{ "handle": [{}] }]),
            "routes[0].handle[0]: found 'an object', expected an object with a 'handler' key",
        ),
        (json!([{}, { "match": [{ "nope": 1 }] }]), "routes[1].match[0].nope: matcher module 'nope' is not supported"),
        // Caddy: a module's value cannot be null. A matcher without a condition would match every request.
        (
            json!([{ "match": [{ "paths": null }] }]),
            "routes[0].match[0].paths: found 'null', expected the value of this matcher",
        ),
        (json!([{ "hendle": [] }]), "routes[0].hendle: unknown field `hendle`"),
        // A handler in the place of a route: skipped, it would be a route that does nothing.
        (json!([probe("a")]), "routes[0].handler: unknown field `handler`"),
        (
            json!([{ "handle": [with("a", json!({ "routes": [{ "handle": [probe("b"), json!(5)] }] }))] }]),
            "found 'a number'",
        ),
    ] {
        let error = Kit::build(&registry(), &routes, &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}

// Caddy, modules/caddyhttp: these are rejected before any route, and run the error routes.
#[test]
fn refused_before_any_route() {
    let routes = json!([{ "handle": [probe("a")] }]);
    let errors = json!([{ "handle": [with("e", json!({ "enter": "respond", "body": "{http.error.status_code}" }))] }]);
    for (request, want) in [
        (Request::get("/").field("Host", "..."), (200, "400", "in e")),
        (Request::get("/").field("Host", ".:80"), (200, "400", "in e")),
        (Request::get("/").field("Host", ""), (200, "400", "in e")),
        (Request::get("/").field("Host", "").version(Version::Http10), (200, "", "in a, out a")),
        (Request::get("/").field("Host", "a."), (200, "", "in a, out a")),
        (Request::new(&"M".repeat(33), "/"), (200, "501", "in e")),
        (Request::new(&"M".repeat(32), "/"), (200, "", "in a, out a")),
    ] {
        check("rejected", routes.clone(), errors.clone(), &request, want);
    }
}

/// Counts the exchanges that it was entered for, also rejected ones.
struct Watcher(Arc<AtomicUsize>);

impl Handler for Watcher {
    fn enter(&self, _: &mut Context) -> Step {
        self.0.fetch_add(1, Ordering::Relaxed);
        Step::Next
    }

    fn sees_rejected(&self) -> bool {
        true
    }
}

// The option `trace` adds lines to the log, and changes nothing else: a handler still sees rejected requests.
#[test]
fn a_traced_handler_sees_rejected_requests() {
    let mut registry = registry();
    let seen = Arc::new(AtomicUsize::new(0));
    registry.register_handler("watcher", {
        let seen = Arc::clone(&seen);
        move |_, _| Ok(Box::new(Watcher(Arc::clone(&seen))))
    });
    let routes = json!([{ "handle": [{ "handler": "watcher" }] }]);
    for is_traced in [false, true] {
        let server = ServerSpec { is_traced, ..ServerSpec::new("s", &routes) };
        let answer = Kit::of(&registry, &server).unwrap().send(&Request::new(&"M".repeat(33), "/"));
        assert_eq!((answer.status, seen.swap(0, Ordering::Relaxed)), (501, 1), "traced: {is_traced}");
    }
}

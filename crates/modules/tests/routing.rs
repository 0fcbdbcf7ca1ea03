//! `subroute`, `invoke`, `error` and `vars`, combined in routes.

use causeway_pipeline::Registry;
use causeway_pipeline::build::ServerSpec;
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

// Caddy, http.handlers.subroute: its routes run, then the following handlers; its own error routes take precedence over
// the server's.
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
    // The handlers after the subroute are compiled into it.
    let with_errors = json!([sub(json!({ "errors": own })), { "handler": "error" }]);
    check(with_errors, server.clone(), &get, (500, "own 500 Internal Server Error"));
    let twice = json!({ "routes": [{ "handle": [{ "handler": "error", "status_code": 418 }] }] });
    check(json!([sub(json!({ "routes": failing, "errors": twice }))]), server, &get, (418, "server 418"));
}

// Caddy, http.handlers.subroute: the fault that its error routes handle is theirs alone, so that handlers before it see
// none, or the one from before. The placeholders show the last fault further on.
#[test]
fn a_handled_fault() {
    let get = Request::get("/a");
    let fails = |status: u16| json!([{ "handle": [{ "handler": "error", "status_code": status }] }]);
    let sub = |status: u16, errors: Value| json!({ "handler": "subroute", "routes": fails(status), "errors": { "routes": errors } });
    let replaces = json!({ "handler": "intercept", "handle_response": [{
        "routes": [{ "handle": [respond("after {http.error.status_code}")] }],
    }]});
    let answers = json!([{ "handle": [respond("own")] }]);
    check(json!([replaces, sub(403, answers.clone())]), Value::Null, &get, (200, "after 403"));
    // Without a response from the error routes too.
    check(json!([replaces, sub(403, json!([]))]), Value::Null, &get, (200, "after 403"));
    // Within other error routes the status is that of their fault.
    let within = json!([{ "handle": [replaces, sub(410, answers.clone())] }]);
    check(json!([sub(404, within.clone())]), Value::Null, &get, (404, "after 410"));
    check(json!([{ "handler": "error", "status_code": 404 }]), within, &get, (404, "after 410"));
    // Error routes that fail leave theirs to the next ones.
    let server = json!([{ "handle": [respond("server {http.error.status_code}")] }]);
    check(json!([replaces, sub(403, fails(418))]), server, &get, (418, "server 418"));
    // The next request has no fault.
    let handlers = json!([replaces, { "handler": "subroute", "routes": [
        { "match": [{ "path": ["/a"] }], "handle": [sub(403, answers)] },
        { "handle": [respond("fine")] },
    ]}]);
    let mut kit = Kit::new(&registry(), &json!([{ "handle": handlers }]));
    for (target, want) in [("/a", "after 403"), ("/b", "after {http.error.status_code}")] {
        let answer = kit.send(&Request::get(target));
        assert_eq!((answer.status, answer.text()), (200, want), "{target}");
    }
}

// Caddy: error routes see the request's own method and target, and the changes of the fields, also that of Host for a
// request in absolute form (RFC 9112 §3.2.2).
#[test]
fn error_routes_keep_the_changed_host() {
    let errors = json!([{ "handle": [respond("{http.request.host} {http.request.uri}")] }]);
    let rewrites = json!({ "handler": "rewrite", "uri": "/other?z" });
    let fails = json!({ "handler": "error", "status_code": 404 });
    let sets = json!({ "handler": "headers", "request": { "set": { "Host": ["b.test"] } } });
    for (target, path) in
        [("/x?y", "/x?y"), ("http://a.test/x?y", "/x?y"), ("http://a.test", "/"), ("http://a.test?y", "/?y")]
    {
        let request = Request::get(target).field("Host", "a.test");
        for (changes, host) in [(json!([rewrites, sets, fails]), "b.test"), (json!([rewrites, fails]), "a.test")] {
            check(changes, errors.clone(), &request, (404, &format!("{host} {path}")));
        }
    }
}

// Caddy, http.handlers.error: the default is 500; placeholders are allowed.
#[test]
fn error() {
    let get = Request::get("/").field("Code", "451");
    check(json!([{ "handler": "error" }]), Value::Null, &get, (500, ""));
    check(json!([{ "handler": "error", "status_code": "{http.request.header.Code}" }]), Value::Null, &get, (451, ""));
    check(json!([{ "handler": "error", "status_code": "{http.request.header.None}" }]), Value::Null, &get, (500, ""));
    // An absent message is empty, unlike other faults', which is the status text.
    let shown = json!([{ "handle": [respond("<{http.error.message}>")] }]);
    check(json!([{ "handler": "error", "status_code": 404 }]), shown.clone(), &get, (404, "<>"));
    check(json!([{ "handler": "error", "error": "{http.request.method} x" }]), shown, &get, (500, "<GET x>"));
    // Caddy, `HandlerError.Error`: the id, the status and the message; without the function's name.
    let whole = json!([{ "handle": [respond("{http.error}")] }]);
    let failing = json!([{ "handle": [{ "handler": "error", "status_code": 404, "error": "x" }] }]);
    let answer = Kit::build(&registry(), &failing, &whole).expect("it is valid").send(&get);
    let parts: Vec<_> = answer.text().splitn(2, ' ').collect();
    assert!(parts[0].starts_with("{id=") && parts[0].len() == 15 && parts[1] == "HTTP 404: x", "{parts:?}");
    // A fault that the error routes do not handle keeps its status.
    check(json!([{ "handler": "error", "status_code": 404, "error": "x" }]), json!([]), &get, (404, ""));
}

// Caddy, http.handlers.vars: strings with placeholders, numbers, booleans; the last value counts.
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

// Caddy, http.handlers.vars: here a name must not depend on the request; the user's name is also a placeholder.
#[test]
fn names_of_variables() {
    let routes =
        |vars: Value| json!([{ "handle": [vars, respond("{http.auth.user.id} {http.vars.http.auth.user.id}")] }]);
    let user = json!({ "handler": "vars", "http.auth.user.id": "me" });
    assert_eq!(Kit::new(&registry(), &routes(user)).send(&Request::get("/")).text(), "me me");
    let live = json!({ "handler": "vars", "{http.request.method}": "x" });
    let error = Kit::build(&registry(), &routes(live), &Value::Null).err().expect("it is refused");
    assert!(error.to_string().contains("found '{http.request.method}', expected a name that is the same"), "{error}");
}

// Caddy, `log_skip`: no access record; only for `true`.
#[test]
fn log_skip() {
    for (value, recorded) in [(json!(true), false), (json!(false), true), (json!("true"), true)] {
        let routes = json!([{ "handle": [{ "handler": "vars", "log_skip": value }, respond("{http.vars.log_skip}")] }]);
        let mut kit = Kit::new(&registry(), &routes);
        assert_eq!(kit.send(&Request::get("/")).recorded, recorded, "{value}");
    }
}

// Caddy, http.handlers.invoke: the named route runs, then the following handlers; unknown names are rejected at load.
#[test]
fn invoke() {
    let invoke = |name: &str| json!({ "handler": "invoke", "name": name });
    let routes = json!([
        { "match": [{ "path": ["/a"] }], "handle": [invoke("one"), respond("behind {http.vars.v}")] },
        { "match": [{ "path": ["/b"] }], "handle": [invoke("two"), respond("behind")] },
        { "handle": [invoke("matching"), respond("behind")] },
    ]);
    let named = json!({
        "one": { "handle": [{ "handler": "vars", "v": "one" }] },
        "two": { "handle": [invoke("three")] },
        "three": { "handle": [respond("three")] },
        "matching": { "match": [{ "method": ["PUT"] }], "handle": [respond("put")] },
    });
    let spec = ServerSpec { named_routes: named.as_object(), ..ServerSpec::new("srv0", &routes) };
    let mut kit = Kit::of(&registry(), &spec).expect("a server");
    for (request, want) in [
        (Request::get("/a"), "behind one"),
        (Request::get("/b"), "three"),
        (Request::get("/c"), "behind"),
        (Request::new("PUT", "/c"), "put"),
    ] {
        assert_eq!(kit.send(&request).text(), want, "{}", request.target());
    }
    // A route that invokes itself ends with an error.
    let own = json!({ "own": { "handle": [invoke("own")] } });
    let routes = json!([{ "handle": [invoke("own")] }]);
    let spec = ServerSpec { named_routes: own.as_object(), ..ServerSpec::new("srv0", &routes) };
    assert_eq!(Kit::of(&registry(), &spec).expect("a server").send(&Request::get("/")).status, 500);
    let error = Kit::build(&registry(), &routes, &Value::Null).err().expect("there is no such route");
    assert!(error.to_string().contains("handle[0].name: found 'own', expected the name of one"), "{error}");
}

#[test]
fn the_registry_names_all_modules() {
    let want = [
        "http.handlers.access_log",
        "http.handlers.authentication",
        "http.handlers.cache",
        "http.handlers.copy_response",
        "http.handlers.copy_response_headers",
        "http.handlers.encode",
        "http.handlers.error",
        "http.handlers.error_log",
        "http.handlers.file_server",
        "http.handlers.headers",
        "http.handlers.httpgrpc",
        "http.handlers.intercept",
        "http.handlers.invoke",
        "http.handlers.log_append",
        "http.handlers.map",
        "http.handlers.metrics",
        "http.handlers.push",
        "http.handlers.rate_limit",
        "http.handlers.request_body",
        "http.handlers.reverse_proxy",
        "http.handlers.rewrite",
        "http.handlers.static_response",
        "http.handlers.subroute",
        "http.handlers.templates",
        "http.handlers.timeouts",
        "http.handlers.tracing",
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
        "http.matchers.tls",
        "http.matchers.url_pattern",
        "http.matchers.vars",
        "http.matchers.vars_regexp",
        "tls.handshake_match.sni_regexp",
    ];
    assert_eq!(registry().modules(), want);
}

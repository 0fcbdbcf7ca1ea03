use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// Returns the response after these operations. The next handler sets `A: 1`, `B: 2`, `Server` and a body that shows
/// the request's `X-*` fields.
fn send(mut handler: Value, request: &Request) -> TestResponse {
    handler["handler"] = json!("headers");
    let show = "{http.request.header.X-A}|{http.request.header.X-B}|{http.request.header.X-C}";
    let respond = json!({ "handler": "static_response", "body": show, "headers": { "A": ["1"], "B": ["2"] } });
    Kit::new(&registry(), &json!([{ "handle": [handler, respond] }])).send(request)
}

// RFC 9110 §6.6.2, §7.6.1: a client may name fields that a proxy removes, and fields that follow as trailers. It must
// not undo the operations on a field in this way, for example by a trailer with the name of the user that
// `forward_auth` has removed.
#[test]
fn lists_of_the_client() {
    let show = "{http.request.header.Connection}|{http.request.header.Trailer}";
    let request = Request::get("/")
        .field("Connection", "X-A, close, Upgrade")
        .field("Trailer", "x-a,X-B")
        .field("Trailer", "Y-C");
    for (ops, want) in [
        (json!({}), "X-A, close, Upgrade|x-a,X-B,Y-C"),
        (json!({ "set": { "X-A": ["1"], "Upgrade": ["x"] } }), "close, Upgrade|X-B, Y-C"),
        (json!({ "add": { "X-B": ["1"] } }), "X-A, close, Upgrade|x-a, Y-C"),
        (json!({ "delete": ["X-*"] }), "close, Upgrade|Y-C"),
        (json!({ "delete": ["X-*", "y-c"] }), "close, Upgrade|"),
        (json!({ "replace": { "x-a": [{ "search": "a", "replace": "b" }] } }), "close, Upgrade|X-B, Y-C"),
        (json!({ "set": { "{http.request.uri.query}": ["1"] } }), "X-A, close, Upgrade|x-a,X-B,Y-C"),
    ] {
        let handlers = json!([
            { "handler": "headers", "request": ops.clone() }, { "handler": "static_response", "body": show },
        ]);
        assert_eq!(Kit::new(&registry(), &json!([{ "handle": handlers }])).send(&request).text(), want, "{ops}");
    }
}

// Caddy, http.handlers.headers: operations on the request affect the following handlers.
#[test]
fn request_operations() {
    let request = Request::get("/?c").field("X-A", "one").field("X-A", "two").field("X-B", "b-b").field("Y-B", "y");
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
        (json!({ "replace": { "X-B": [{ "search": "", "replace": "x" }] } }), "one,two|xbx-xbx|"),
        (json!({ "replace": { "x-b": [{ "search_regexp": "^(b)-", "replace": "${1}c$1" }] } }), "one,two|bcbb|"),
        (json!({ "replace": { "*": [{ "search_regexp": "[a-z]{3}", "replace": "<$0>" }] } }), "<one>,<two>|b-b|"),
        (
            json!({ "replace": { "X-B": [
                { "search": "b", "replace": "c" }, { "search_regexp": "{http.request.header.X-B}", "replace": "{nope}" },
            ] } }),
            "one,two|{nope}|",
        ),
        (
            json!({ "replace": { "X-B": [{ "search_regexp": "({http.request.method}", "replace": "x" }] } }),
            "one,two|b-b|",
        ),
        (json!({ "set": { "X-{http.request.method}": ["no"], "x-{http.request.uri.query}": ["q"] } }), "one,two|b-b|q"),
        (json!({ "set": { "X-{http.request.header.none} ": ["no name"] } }), "one,two|b-b|"),
        (json!({ "delete": ["X-{http.request.uri.query}", "*{http.request.header.Y-B}"] }), "one,two|b-b|"),
        (json!({ "delete": ["*{http.request.header.X-B}", "x-a"] }), "|b-b|"),
        (json!({ "set": { "X-C": ["1"], "x-c": ["2"] } }), "one,two|b-b|1,2"),
        (json!({ "replace": { "X-{http.request.uri.query}": [{ "search": "b", "replace": "x" }] } }), "one,two|b-b|"),
    ] {
        assert_eq!(send(json!({ "request": ops }), &request).text(), want, "{ops}");
    }
}

// Caddy expands names and expressions, also with placeholders that are known at load.
#[test]
fn values_known_at_load() {
    let mut registry = registry();
    registry.set_environment(|name| {
        let value = match name {
            "NAME" => "X-A",
            "START" => "x-",
            "ALL" => "*",
            "PATTERN" => "b.",
            "BAD" => "a b",
            _ => return None,
        };
        Some(value.to_owned())
    });
    let routes = |ops: &Value| {
        let show = "{http.request.header.X-A}|{http.request.header.X-B}";
        let respond = json!({ "handler": "static_response", "body": show });
        json!([{ "handle": [{ "handler": "headers", "request": ops }, respond] }])
    };
    for (ops, want) in [
        (json!({ "delete": ["{env.NAME}"] }), "|b-b"),
        (json!({ "delete": ["{env.START}*"] }), "|"),
        (json!({ "delete": ["{env.ALL}"] }), "|"),
        (json!({ "delete": ["{env.UNSET}"] }), "1|b-b"),
        (json!({ "replace": { "{env.ALL}": [{ "search_regexp": "[1b]", "replace": "x" }] } }), "x|x-x"),
        (json!({ "replace": { "X-B": [{ "search_regexp": "{env.PATTERN}", "replace": "<$0>" }] } }), "1|<b->b"),
        (json!({ "replace": { "X-B": [{ "search_regexp": "^{env.PATTERN}{1}", "replace": "x" }] } }), "1|xb"),
        (json!({ "replace": { "{env.NAME}": [{ "search": "1", "replace": "{env.PATTERN}" }] } }), "b.|b-b"),
    ] {
        let request = Request::get("/").field("X-A", "1").field("X-B", "b-b");
        assert_eq!(Kit::new(&registry, &routes(&ops)).send(&request).text(), want, "{ops}");
    }
    let bad = routes(&json!({ "delete": ["{env.BAD}"] }));
    let error = Kit::build(&registry, &bad, &Value::Null).err().expect("no field name");
    assert!(error.to_string().contains("found '{env.BAD}', expected a field name"), "{error}");
}

/// Returns the request's field `X-B`, `b-b`, with the matches of the expression that the client sends replaced by `x`.
fn replaced_by_client(kit: &mut Kit, expression: &str) -> String {
    kit.send(&Request::get("/").field("X-B", "b-b").field("X-Search", expression)).text().to_owned()
}

fn kit_of_client_expressions() -> Kit {
    let search = json!([{ "search_regexp": "{http.request.header.X-Search}", "replace": "x" }]);
    Kit::new(
        &registry(),
        &json!([{ "handle": [
            { "handler": "headers", "request": { "replace": { "X-B": search } } },
            { "handler": "static_response", "body": "{http.request.header.X-B}" },
        ] }]),
    )
}

// The same request has the same answer on each worker: the answer does not depend on the expressions that the worker
// compiled before.
#[test]
fn an_empty_expression_is_compiled_on_first_use() {
    for before in [None, Some("b"), Some("(")] {
        let mut kit = kit_of_client_expressions();
        before.map(|before| replaced_by_client(&mut kit, before));
        assert_eq!(replaced_by_client(&mut kit, ""), "xbx-xbx", "{before:?}");
    }
}

// docs/limits.md: the worker compiles an expression of the client's choice, which must not take long. One beyond the
// bounds matches no text.
#[test]
fn expressions_of_a_client_are_bounded() {
    let mut kit = kit_of_client_expressions();
    let long = format!("b|{}", "a".repeat(1024));
    let any = r"[c-\x{10ffff}]";
    for (expression, want) in [
        (r"b|\pL{2}", "x-x"),
        (&format!("b|{any}"), "x-x"),
        (r"(?i)B|\pL\pN", "x-x"),
        (r"b|\pL{300}", "b-b"),
        (&format!("(?i)b|{any}"), "b-b"),
        (r"(?i)b|\pL\pL\pL", "b-b"),
        (r"(?i)b|\p{Any}", "b-b"),
        (&long, "b-b"),
    ] {
        assert_eq!(replaced_by_client(&mut kit, expression), want, "{expression}");
    }
}

// docs/limits.md: the small bounds are for expressions with values of the request. A count or a class of the operator's
// own looks like a placeholder, but has no value.
#[test]
fn expressions_of_the_operator_have_large_bounds() {
    let long = format!("a{{1,9}}|{}", "c".repeat(1024));
    for (expression, want) in [
        ("^hello.{1,255}$", "x"),
        (r"[\p{L}\p{N}]{1,8}", "x x"),
        ("^https?://[^/]{1,253}(/.*)?$", "hello world"),
        (&long, "hello world"),
        (&long.replace('a', "o"), "hellx wxrld"),
        // With a value of the request.
        ("^hello.{1,255}{http.request.method}$", "hello world"),
        ("{http.request.uri.query}.{1,2}", "hexorld"),
    ] {
        let ops = json!({ "replace": { "X-A": [{ "search_regexp": expression, "replace": "x" }] } });
        let request = Request::get("/?llo").field("X-A", "hello world");
        assert_eq!(send(json!({ "request": ops }), &request).text(), format!("{want}||"), "{expression}");
    }
}

// Caddy: operations on the response apply at once, or, if deferred, to the fields as the following handlers left them.
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

// Caddy: several cookies stay separate fields; Host is an ordinary field, whatever the target's form.
#[test]
fn cookies_and_the_host() {
    let answer = send(json!({ "response": { "set": { "Set-Cookie": ["a=1", "b=2"] } } }), &Request::get("/"));
    assert_eq!(answer.values("set-cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    let answer = send(json!({ "response": { "set": { "Set-Cookie": [] } } }), &Request::get("/"));
    assert_eq!(answer.values("set-cookie").collect::<Vec<_>>(), [""], "as any other field");
    // RFC 9112 §3.2: a second Host would make the request invalid, so an added one replaces the first.
    for (target, operation) in [("/x?y", "set"), ("http://old.test/x?y", "set"), ("/x?y", "add")] {
        let handler =
            json!({ "handler": "headers", "request": { operation: { "Host": ["new.{http.request.host}"] } } });
        let respond = json!({ "handler": "static_response", "body": "{http.request.host} {http.request.uri}" });
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [handler, respond] }]));
        let request = Request::get(target).without("host").field("Host", "old.test");
        assert_eq!(kit.send(&request).text(), "new.old.test /x?y", "{operation} for {target}");
    }
}

#[test]
fn fields_are_kept_in_error_routes_except_deferred_ones() {
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
        (
            json!({ "replace": { "A": [{ "search_regexp": "x++(", "replace": "" }] } }),
            "response.replace.A[0].search_regexp: found 'x++(', expected a regular expression",
        ),
        (
            json!({ "replace": { "A": [{ "search_regexp": "x", "search": "y" }] } }),
            "replace.A[0]: found 'x', expected `search` or `search_regexp`, not both",
        ),
        (json!({ "sett": {} }), "unknown field `sett`"),
    ] {
        let handler = json!({ "handler": "headers", "response": ops });
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}

// docs/limits.md: a client that chooses both texts must not be able to multiply their lengths.
#[test]
fn long_replacements() {
    let (a, b) = ("a".repeat(15_000), "b".repeat(15_000));
    let request = Request::get("/").field("X-A", &*a).field("X-B", &*b);
    let by = |name: &str, search: Value| json!({ "request": { "replace": { name: [search] } } });
    let plain = json!({ "search": "a", "replace": "{http.request.header.X-B}" });
    let regexp = json!({ "search_regexp": "a", "replace": "{http.request.header.X-B}" });
    let groups = json!({ "search_regexp": "^a*$", "replace": "$0".repeat(100) });
    let live = json!({ "search_regexp": "{http.request.method}|a", "replace": "{http.request.header.X-B}" });
    for search in [plain.clone(), regexp, groups, live] {
        assert_eq!(send(by("X-A", search.clone()), &request).status, 500, "{search}");
        assert_eq!(send(by("*", search.clone()), &request).status, 500, "{search}");
    }
    let on_response = json!({ "response": { "replace": { "A": [plain] } } });
    assert_eq!(send(on_response, &request).status, 200, "the field has none of it");
    let deferred = json!({ "response": { "deferred": true, "replace": { "A": [
        { "search": "1", "replace": a }, { "search": "a", "replace": "{http.request.header.X-B}" },
    ] } } });
    assert_eq!(send(deferred, &request).status, 500);
    // The error routes see the fields as they were.
    let replacements = json!([{ "search": "a", "replace": "{http.request.header.X-B}" }]);
    let handler = json!({ "handler": "headers", "request": { "replace": { "X-A": replacements } } });
    let show = json!([{ "handle": [{ "handler": "static_response", "body": "{http.request.header.X-A}|{http.request.header.Y}" }] }]);
    let request_with_more = Request::get("/").field("X-A", &*a).field("X-B", &*b).field("Y", "y");
    let mut kit = Kit::with_errors(&registry(), &json!([{ "handle": [handler] }]), &show);
    assert_eq!(kit.send(&request_with_more).text(), format!("{a}|y"));
    // Below the bound.
    let short = json!({ "search": "a", "replace": "b".repeat(60) });
    assert_eq!(send(by("X-A", short), &request).text().len(), 60 * 15_000 + 15_002);
}

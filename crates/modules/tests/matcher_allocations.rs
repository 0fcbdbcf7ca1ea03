//! The cost of matching: no allocation, for any matcher and for expressions, once a worker's memory has grown to its
//! size.

use causeway_pipeline::Registry;
use causeway_testkit::counting::{CountingAllocator, allocations_during};
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator;

/// Asserts that a request whose response depends on these matchers does not allocate after the first few.
#[track_caller]
fn check(set: &Value, status: u16, request: &Request) {
    assert!(allocations_during(|| drop(std::hint::black_box(vec![1u8]))) > 0, "the counter counts");
    let mut registry = Registry::default();
    causeway_modules::register(&mut registry);
    let routes = json!([
        { "handle": [{ "handler": "vars", "a": "x1", "list": "p,q,r" }] },
        { "match": [set], "handle": [{ "handler": "static_response", "status_code": 201 }] },
    ]);
    let mut kit = Kit::new(&registry, &routes);
    for _ in 0..8 {
        assert_eq!(kit.send(request).status, status, "{set}");
        kit.run(request);
    }
    let count = allocations_during(|| {
        for _ in 0..1000 {
            kit.run(request);
        }
    });
    assert_eq!(count, 0, "{set} {}", request.target());
}

fn request(target: &str) -> Request {
    Request::get(target).field("Host", "a.b.test").field("Cookie", "x=1").field("Cookie", "login_12ef")
}

#[test]
fn matchers() {
    let networks: Vec<_> = (0..300).map(|number| format!("10.{}.{}.0/24", number / 256, number % 256)).collect();
    for (set, status) in [
        (json!({ "path_regexp": { "name": "re", "pattern": "^/(?P<first>[a-z]+)/(.*)$" } }), 201),
        (json!({ "path_regexp": { "pattern": "^/never" } }), 200),
        (json!({ "url_pattern": { "pattern": "http://*.b.test/:first/:second" } }), 201),
        (json!({ "url_pattern": { "pattern": "/never/:id" } }), 200),
        (json!({ "header_regexp": { "Cookie": { "name": "c", "pattern": "login_([a-f0-9]+)" } } }), 201),
        (json!({ "vars": { "a": ["{http.request.method}", "x1"] } }), 201),
        (json!({ "vars_regexp": { "{http.request.uri.path}": { "name": "v", "pattern": "/([^/]+)" } } }), 201),
        (json!({ "protocol": "http" }), 201),
        (json!({ "remote_ip": { "ranges": ["192.0.2.0/24"] } }), 201),
        (json!({ "client_ip": { "ranges": networks } }), 200),
        (json!({ "host": ["*.b.test"], "path": ["/FOO/*"] }), 201),
        (json!({ "not": [{ "path_regexp": { "pattern": "x$" } }, { "vars": { "a": ["y"] } }] }), 201),
    ] {
        for target in ["/foo/bar", "//foo/./bar", "/f%6fo/%ff%c3%a4"] {
            check(&set, status, &request(target));
        }
    }
    check(&json!({ "path": ["/Ä*"] }), 201, &request("/%c3%a4x"));
}

#[test]
fn expressions() {
    for expression in [
        "{http.request.method} == 'GET' && {http.request.uri.path}.startsWith('/foo')",
        "{http.request.header.Cookie}.contains('login') && {http.request.host} in ['x.test', 'a.b.test']",
        "path('/foo*') && !method('POST') && host('*.b.test')",
        "path_regexp('re', '^/(.)(.*)$') && {http.regexp.re.1} == 'f'",
        "{http.vars.list}.split(',').exists(x, x == 'q') && {http.vars.a} + '-' + {http.vars.list} == 'x1-p,q,r'",
        "int({http.vars.a}.substring(1)) * 2 == 2 ? {http.request.host}.matches('^a') : false",
        "double({http.request.header.X-Number}) == 1.5 && double({http.vars.a}.substring(1)) < 2.0",
        "'A'.lowerAscii() == 'a' && ['a', 'b'].join('-').replace('-', '') == 'ab' && string(1.5) == '1.5'",
    ] {
        check(&json!({ "expression": expression }), 201, &request("/foo/bar").field("X-Number", "1.5"));
    }
}

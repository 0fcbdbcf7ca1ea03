mod any_input;
mod expressions;
mod facts;
mod regexps;
mod url_patterns;
mod waits;

use causeway_message::Version;
use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

fn kit(set: &Value) -> Kit {
    let respond = json!({ "handler": "static_response", "status_code": 201 });
    Kit::new(&registry(), &json!([{ "match": [set], "handle": [respond] }]))
}

#[track_caller]
fn check(name: &str, cases: &[(Value, Request, bool)]) {
    for (value, request, want) in cases {
        let answer = kit(&json!({ name: value })).send(request);
        assert_eq!(answer.status == 201, *want, "{value} for {} {:?}", request.target(), answer);
    }
}

#[track_caller]
fn check_paths(cases: &[(&str, &str, bool)]) {
    let cases: Vec<_> =
        cases.iter().map(|(pattern, target, want)| (json!([pattern]), Request::get(target), *want)).collect();
    check("path", &cases);
}

// Caddy, http.matchers.path: exact, prefix, suffix, substring, glob.
#[test]
fn path_shapes() {
    check_paths(&[
        ("/", "/", true),
        ("/", "/x", false),
        ("*", "/x/y", true),
        ("/foo", "/foo", true),
        ("/foo", "/foo/", false),
        ("/foo", "/foo?x=1", true),
        ("/foo/*", "/foo/", true),
        ("/foo/*", "/foo/bar/baz", true),
        ("/foo/*", "/foo", false),
        ("/foo*", "/foobar/x", true),
        ("*.php", "/a/b.php", true),
        ("*.php", "/a/b.php/c", false),
        ("*/admin/*", "/x/admin/y/z", true),
        ("*/admin/*", "/x/adm/y", false),
        ("/a/*/c", "/a/b/c", true),
        ("/a/*/c", "/a/b/b/c", false),
        ("/a/*/c*", "/a/b/cd", true),
        ("/a?c", "/abc", true),
        ("/[ab]", "/c", false),
        ("{http.request.header.nope}/x", "/x", true),
        ("/{http.request.method}*", "/GET/x", true),
    ]);
}

// Caddy: "Path matches are exact, but case-insensitive"; slashes are merged, dot segments resolved, escapes decoded.
#[test]
fn path_is_compared_cleaned_and_in_any_case() {
    check_paths(&[
        ("/foo", "/FOO", true),
        ("/FOO/*", "/foo/x", true),
        ("/foo/bar", "/foo//bar", true),
        ("/foo/bar", "//foo/./x/../bar", true),
        ("/secret/*", "/x/../secret/y", true),
        ("/secret/*", "/%73ecret/y", true),
        ("/secret/*", "/x/%2e%2e/secret/y", true),
        ("/secret/*", "//secret//y", true),
        ("/foo", "/foo/.", true),
        ("/foo/*", "/foo/.", false),
        ("/foo/*", "/foo/bar/..", false),
        ("/foo/", "/foo/./", true),
        ("//", "//.", false),
        ("/foo//bar", "/foo/bar", false),
        ("/foo//bar", "/foo//bar", true),
        ("//foo*", "//foo/x", true),
        ("//foo*", "//x/../foo/y", true),
        ("//foo*", "/foo", false),
        ("/a b", "/a%20b", true),
        ("/ä*", "/%c3%a4x", true),
        ("/Ä*", "/%c3%a4x", true),
        ("/ä*", "/A/../%c3%84x", true),
        ("*/É", "/%c3%a4/%c3%a9", true),
    ]);
}

// Caddy: "To match on the escaped form of the URI path, use the escaped form in the pattern"; `%*` is a wildcard for
// escaped text.
#[test]
fn path_in_escaped_space() {
    check_paths(&[
        ("/a%2Fb", "/a%2fb", true),
        ("/a%2Fb", "/a/b", false),
        ("/%40x", "/%40x", true),
        ("/%40x", "/@x", false),
        ("/a%2f%62", "/a%2fb", false),
        ("/bands/%*/x", "/bands/AC%2FDC/x", true),
        ("/bands/%*/x", "/bands/AC/DC/x", false),
        ("/bands/*/x", "/bands/AC%2FDC/x", false),
        ("/b%20*/%*", "/B%20c/d%2Fe", true),
        ("/%2Fa/b", "/%2F%61/b", true),
        ("/a%2fb", "/a%2fbc", false),
        ("/%*", "/a%2fb", true),
        ("/%*", "/a/b", false),
        ("/a%2f*", "/a%2fb", true),
        ("/a%2f*", "/a%2fb/c", false),
        ("/%25", "/%25", true),
        ("/%25*/ä", "/%25x/%C3%84", true),
        // In Caddy, a wildcard before an escape has already consumed it.
        ("/a*%2f*b", "/a%2fb", false),
        ("/*%20", "/%20", false),
        ("/*%20", "/x%20", true),
    ]);
}

// The list is long enough for the route index, which ignores the case of ASCII letters only.
#[test]
fn letters_beyond_ascii_in_a_long_list() {
    let mut routes: Vec<_> = (0..20).map(|number| json!({ "match": [{ "path": [format!("/{number}/*")] }] })).collect();
    let respond = json!({ "handler": "static_response", "status_code": 201 });
    routes.push(json!({ "match": [{ "path": ["/ä/*"] }], "handle": [respond] }));
    let mut kit = Kit::new(&registry(), &json!(routes));
    for (target, want) in [("/%c3%a4/", 201), ("/%C3%84/x", 201), ("/a/", 200)] {
        assert_eq!(kit.send(&Request::get(target)).status, want, "{target}");
    }
}

// Caddy, http.matchers.host: the case of letters and the port are ignored; `*` matches one whole label.
#[test]
fn host() {
    let to = |host: &str| Request::get("/").field("Host", host);
    check(
        "host",
        &[
            (json!(["example.com"]), to("example.com"), true),
            (json!(["example.com"]), to("Example.COM:8080"), true),
            (json!(["example.com"]), to("a.example.com"), false),
            (json!(["*.example.com"]), to("a.example.com"), true),
            (json!(["*.example.com"]), to("a.b.example.com"), false),
            (json!(["*.example.com"]), to("example.com"), false),
            (json!(["a.*.com"]), to("a.b.com"), true),
            (json!(["*.*.com"]), to("a.b.com"), true),
            (json!(["a", "b"]), to("b"), true),
            (json!([]), to("b"), false),
            (json!(["::1"]), to("[::1]:443"), true),
            (json!(["{http.request.header.X}"]), to("x").field("X", "X"), true),
            (json!(["x"]), Request::get("http://x/").field("Host", "y"), true),
            (json!(["localhost"]), Request::get("/").without("host"), false),
        ],
    );
    check(
        "host",
        &[
            (json!(["*.Bücher.test"]), to("a.xn--bcher-kva.test"), true),
            (json!(["bücher.test"]), to("XN--BCHER-KVA.test"), true),
            (json!(["bücher.test"]), to("xn--bcher-kvb.test"), false),
        ],
    );
    refused("host", &[(json!(["a.test", "A.TEST"]), "[1]: found 'A.TEST', expected each host once")]);
}

#[track_caller]
fn refused(name: &str, cases: &[(Value, &str)]) {
    for (value, want) in cases {
        let routes = json!([{ "match": [{ name: value }] }]);
        let Err(error) = Kit::build(&registry(), &routes, &Value::Null) else { panic!("{value} is taken") };
        let start = format!("routes[0].match[0].{name}");
        let error = error.to_string();
        let rest = error.strip_prefix(&start).unwrap_or_else(|| panic!("{error}"));
        assert!(rest.trim_start_matches(['.', ':', ' ']).starts_with(want), "{value}: {error}");
    }
}

#[test]
fn method() {
    check(
        "method",
        &[
            (json!(["GET"]), Request::get("/"), true),
            (json!(["POST", "BREW"]), Request::new("BREW", "/"), true),
            (json!(["get"]), Request::get("/"), true),
            (json!(["GET"]), Request::new("get", "/"), false),
            (json!(["GET"]), Request::new("HEAD", "/"), false),
        ],
    );
    assert!(Kit::build(&registry(), &json!([{ "match": [{ "method": ["G T"] }] }]), &Value::Null).is_err());
}

// Caddy, http.matchers.header: fields are and-ed, values or-ed; for `null` the field must be absent, for an empty list
// present.
#[test]
fn header() {
    let request = || Request::get("/").field("A", "one").field("A", "two").field("B", "three");
    check(
        "header",
        &[
            (json!({ "A": ["one"] }), request(), true),
            (json!({ "a": ["two"] }), request(), true),
            (json!({ "A": ["One"] }), request(), false),
            (json!({ "A": ["o*"] }), request(), true),
            (json!({ "A": ["*wo"] }), request(), true),
            (json!({ "B": ["*hre*"] }), request(), true),
            (json!({ "B": ["hre"] }), request(), false),
            (json!({ "A": ["x", "two"], "B": ["*"] }), request(), true),
            (json!({ "A": ["one"], "B": ["x"] }), request(), false),
            (json!({ "C": null }), request(), true),
            (json!({ "A": null }), request(), false),
            (json!({ "A": [] }), request(), true),
            (json!({ "C": [] }), request(), false),
            (json!({ "C": ["*"] }), request(), false),
            (json!({ "Host": ["local*"] }), request(), true),
            (json!({ "Host": ["t.test:8"] }), Request::get("http://t.test:8/").without("host"), true),
            (json!({ "Host": null }), Request::get("/").without("host"), true),
            (json!({ "Host": null }), Request::get("/").field("Host", "").version(Version::Http10), true),
            (json!({ "Host": [] }), Request::get("/"), true),
            (json!({ "A": ["**"] }), request(), true),
            (json!({ "A": ["{http.request.header.B}"] }), Request::get("/").field("A", "x").field("B", "x"), true),
        ],
    );
}

// Caddy, http.matchers.query: keys are and-ed, values or-ed; both decoded; `{}` is "no query".
#[test]
fn query() {
    let get = |query: &str| Request::get(&format!("/?{query}"));
    check(
        "query",
        &[
            (json!({ "a": ["1"] }), get("a=1"), true),
            (json!({ "a": ["1"] }), get("b=2&a=0&a=1"), true),
            (json!({ "a": ["1"] }), get("a=12"), false),
            (json!({ "a": ["1"] }), get("A=1"), false),
            (json!({ "a": ["1", "2"] }), get("a=2"), true),
            (json!({ "a": ["1"], "b": ["2"] }), get("a=1"), false),
            (json!({ "a": ["1"], "b": ["2"] }), get("b=2&&a=1"), true),
            (json!({ "a": ["*"] }), get("a"), true),
            (json!({ "a": [""] }), get("a="), true),
            (json!({ "a": ["*"] }), get("b"), false),
            (json!({ "a": [] }), get("a=1"), false),
            (json!({ "a b": ["c d"] }), get("a+b=c%20d"), true),
            (json!({ "ä": ["%"] }), get("%c3%A4=%25"), true),
            (json!({ "a": ["1"] }), get("a=1&b=%zz"), false),
            (json!({ "a": ["1"] }), get("a=1;b=2"), false),
            (json!({}), Request::get("/"), true),
            (json!({}), get(""), true),
            (json!({}), get("a"), false),
            (json!({}), get("="), false),
            (json!({}), get("a;b"), true),
            (json!({}), get("a;b&c"), false),
            (json!({ "": [""] }), get("="), true),
            (json!({ "{http.request.method}": ["{http.request.host}"] }), get("GET=localhost"), true),
        ],
    );
}

// Caddy, http.matchers.not: sets are or-ed, their matchers and-ed, the whole is negated.
#[test]
fn not() {
    check(
        "not",
        &[
            (json!([{ "path": ["/a"] }]), Request::get("/a"), false),
            (json!([{ "path": ["/a"] }]), Request::get("/b"), true),
            (json!([{ "path": ["/a"], "method": ["POST"] }]), Request::get("/a"), true),
            (json!([{ "path": ["/b"] }, { "method": ["GET"] }]), Request::get("/a"), false),
            (json!([]), Request::get("/a"), true),
            (json!([{ "not": [{ "path": ["/a"] }] }]), Request::get("/a"), true),
        ],
    );
    let error = Kit::build(&registry(), &json!([{ "match": [{ "not": [{ "pat": [] }] }] }]), &Value::Null);
    let error = error.err().unwrap();
    assert!(
        error.to_string().starts_with("routes[0].match[0].not[0].pat: matcher module 'pat' is not supported"),
        "{error}"
    );
}

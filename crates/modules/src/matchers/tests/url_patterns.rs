//! url_pattern: the components of a URL, and the placeholders of groups.

use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{check, refused, registry};

fn pattern(pattern: &str) -> Value {
    json!({ "pattern": pattern })
}

fn at(host: &str, target: &str) -> Request {
    Request::get(target).without("Host").field("Host", host)
}

// Caddy, http.matchers.url_pattern: a pattern without scheme and host concerns the path, for any of them. Each case was
// compared with Caddy 2.11.9.
#[test]
fn relative_patterns() {
    let cases: Vec<_> = [
        ("/foo/:id", "/foo/1", true),
        ("/foo/:id", "/foo/1?x=2", true),
        ("/foo/:id", "/foo/1/2", false),
        ("/foo/:id", "/foo/", false),
        ("/foo/:id", "/FOO/1", false),
        ("/foo/:id", "//foo//1", true),
        ("/foo/:id", "/foo/%2e%2e/foo/1", true),
        ("/foo/:id", "/foo/.", false),
        ("/foo/:id", "/foo/a%20b", true),
        // The decoded path has a further segment.
        ("/foo/:id", "/foo/a%2Fb", false),
        ("/books/:id(\\d+)/:opt?", "/books/12", true),
        ("/books/:id(\\d+)/:opt?", "/books/12/z", true),
        ("/books/:id(\\d+)/:opt?", "/books/12/", false),
        ("/books/:id(\\d+)/:opt?", "/books/ab", false),
        ("/a/../b/:c", "/b/1", true),
        ("/a//b/:x", "/a//b/1", true),
        ("/a//b/:x", "/a/b/1", false),
        ("/a/{b}?/c", "/a/b/c", true),
        ("/x/:y+", "/x/1/2", true),
        ("/x/:y+", "/x", false),
        ("/x/:y*", "/x", true),
        ("/foo-:a-:b", "/foo-1-2", true),
        ("*", "/any/path?x", true),
        ("/é/:x", "/%C3%A9/1", true),
        ("/caf%C3%A9/:x", "/caf%c3%a9/1", true),
        ("/A B/:x", "/A%20B/1", true),
        ("/q/?id=:id&x=*", "/q/?id=3&x=4", true),
        ("/q/?id=:id&x=*", "/q/?x=4&id=3", false),
        ("/q?\"<'>=:x", "/q?\"<'>=a", true),
        ("/it's/(.*)", "/it's/a", true),
        ("/50%25/:x", "/50%25/a", true),
        // No request has a fragment.
        ("/strict/:x#frag", "/strict/1", false),
    ]
    .into_iter()
    .map(|(source, target, want)| (pattern(source), Request::get(target), want))
    .collect();
    check("url_pattern", &cases);
}

#[test]
fn absolute_patterns() {
    let cases: Vec<_> = [
        ("http://:sub.example.com/x/*", "w.example.com", "/x/y/z", true),
        ("http://:sub.example.com/x/*", "W.Example.COM", "/x/", true),
        ("http://:sub.example.com/x/*", "a.b.example.com", "/x/y", false),
        // The scheme's default port is none.
        ("http://:sub.example.com/x/*", "w.example.com:80", "/x/y", true),
        ("http://:sub.example.com/x/*", "w.example.com:81", "/x/y", false),
        ("http://*:*/a/:x", "w.example.com:81", "/a/1", true),
        ("http://*:*/a/:x", "[::1]:81", "/a/1", true),
        ("http://[\\:\\:1]/a/:x", "[::1]", "/a/1", true),
        ("http{s}?://*:9301/a/:x", "a.test:9301", "/a/1", true),
        ("http{s}?://*:9301/a/:x", "a.test:9302", "/a/1", false),
        ("https://a.test/a/:x", "a.test", "/a/1", false),
        ("http://a.test", "a.test", "/a/1?x", true),
    ]
    .into_iter()
    .map(|(source, host, target, want)| (pattern(source), at(host, target), want))
    .collect();
    check("url_pattern", &cases);
    check("url_pattern", &[(pattern("https://a.test/a/:x"), at("a.test", "/a/1").secure(), true)]);
}

#[test]
fn base_url_and_case() {
    let based = |pattern: &str| json!({ "pattern": pattern, "base_url": "http://a.test/a/b/c", "ignore_case": true });
    check(
        "url_pattern",
        &[
            (based("../rel/:x"), at("a.test", "/a/rel/z"), true),
            (based("../rel/:x"), at("a.test", "/A/REL/z"), true),
            (based("../rel/:x"), at("b.test", "/a/rel/z"), false),
            (based("/:x"), at("a.test", "/z"), true),
        ],
    );
}

#[test]
fn placeholders() {
    for (source, target, body, want) in [
        ("/foo/:id", "/foo/a%20b?x=2", "{http.url_pattern.pathname.id} {http.url_pattern.search.0}", "a%20b x=2"),
        ("/foo/:id", "/foo/1", "{http.url_pattern.hostname.0} {http.url_pattern.port.0}", "a.test 81"),
        ("http://:sub.test:*/*", "/x/y", "{http.url_pattern.hostname.sub} {http.url_pattern.pathname.0}", "a x/y"),
        ("/:id/:rest?", "/one", "{http.url_pattern.pathname.id} [{http.url_pattern.pathname.rest}]", "one []"),
    ] {
        let respond = json!({ "handler": "static_response", "body": body });
        let routes = json!([{ "match": [{ "url_pattern": pattern(source) }], "handle": [respond] }]);
        let mut kit = Kit::new(&registry(), &routes);
        assert_eq!(kit.send(&at("a.test:81", target)).text(), want, "{source}");
    }
}

#[test]
fn mistakes() {
    for (source, want) in [
        ("foo/:id", "a path from '/', or an absolute URL; other patterns need base_url"),
        ("?x=:y", "a path from '/', or an absolute URL; other patterns need base_url"),
        (":x/y", "a path from '/', or an absolute URL; other patterns need base_url"),
        ("..", "a path from '/', or an absolute URL; other patterns need base_url"),
        ("", "a path from '/', or an absolute URL; other patterns need base_url"),
        ("a.test:80/z", "whose scheme is http or https"),
        // Brackets that close nothing.
        ("http://a]b/", "invalid domain character"),
        ("://}?]", "found '}' of type Close"),
        ("http://a{b}?]:80/", "invalid name"),
        ("http://(]/", "missing closing )"),
        ("/x/:a/:a", "duplicate name a"),
        ("/a/:id([", "missing closing )"),
        ("/a/([)", "regexp error"),
        ("/a/((x))", "invalid regex"),
    ] {
        let routes = json!([{ "match": [{ "url_pattern": pattern(source) }] }]);
        let Err(error) = Kit::build(&registry(), &routes, &Value::Null) else { panic!("{source} is taken") };
        let error = error.to_string();
        let start = format!("routes[0].match[0].url_pattern.pattern: found '{source}', expected a URL pattern");
        assert!(error.starts_with(&start) && error.contains(want), "{error}");
    }
    refused(
        "url_pattern",
        &[
            (json!({ "pattern": "/a", "base_url": "b" }), "base_url: found 'b', expected an absolute URL: "),
            (json!({ "pathname": "/a" }), "pathname: unknown field"),
        ],
    );
}

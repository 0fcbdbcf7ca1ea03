//! `rewrite`, `uri`, `method`, `handle_path`.

use crate::{check, refused, request, site};

/// Compares the method and target that a directive produces.
#[track_caller]
fn check_target(directives: &str, cases: &[(&str, &str)]) {
    let mut kit = site(&format!("{directives}\nrespond \"{{method}} {{uri}}\""));
    for (requested, want) in cases {
        let want = if want.contains(' ') { (*want).to_owned() } else { format!("GET {want}") };
        assert_eq!(kit.send(&request(requested)).text(), want, "{directives}\n{requested}");
    }
}

// caddyserver.com/docs/caddyfile/directives/rewrite
#[test]
fn rewrite() {
    check_target("rewrite * /foo.html", &[("/", "/foo.html"), ("/a/b?c", "/foo.html?c")]);
    check_target("rewrite /api/* ?a=b", &[("/api/x", "/api/x?a=b"), ("/api/x?c", "/api/x?a=b"), ("/x", "/x")]);
    check_target(
        "rewrite * /index.php?{query}&p={path}",
        &[("/a%20b", "/index.php?p=%2Fa+b"), ("/?x=1", "/index.php?x=1&p=%2F")],
    );
    check_target("rewrite * /api{uri}", &[("/x?y=1", "/api/x?y=1"), ("/x", "/api/x")]);
    check_target("rewrite * /api{path}?a=b", &[("/x%3Fy?z", "/api/x%3Fy?a=b")]);
    check_target("rewrite * ?", &[("/x?y", "/x")]);
    check_target(
        "rewrite /old /new\nrewrite /older /newer",
        &[("/old", "/new"), ("/older", "/newer"), ("/oldest", "/oldest")],
    );
    // Of several rewrites, only the first match runs.
    check_target("rewrite /a /b\nrewrite /b /c", &[("/a", "/b"), ("/b", "/c")]);
    check_target("rewrite /x/{header.A}#top", &[("/\nA: b c", "/x/b%20c")]);
    refused("rewrite", "at least a rewrite URI");
}

// caddyserver.com/docs/caddyfile/directives/uri
#[test]
fn uri() {
    check_target(
        "uri strip_prefix /api/v1",
        &[("/api/v1/foo?a", "/foo?a"), ("/api", "/api"), ("/API/v1", "/"), ("/x//y", "/x/y")],
    );
    check_target("uri strip_prefix api", &[("/api/a", "/a"), ("/apia", "/a")]);
    check_target("uri /api/* strip_prefix /api", &[("/api/a", "/a"), ("/b/api", "/b/api")]);
    check_target("uri strip_suffix .html", &[("/a.html?x", "/a?x"), ("/a.htm", "/a.htm"), ("/.html", "/")]);
    check_target("uri replace /docs/ /v1/docs/", &[("/docs/go?d=/docs/", "/v1/docs/go?d=/v1/docs/")]);
    check_target("uri replace a b 1", &[("/aa?aa", "/ba?ba")]);
    check_target("uri replace \"?\" %3F", &[("/a?b", "/a?b")]);
    check_target("uri path_regexp /{2,} /", &[("/a//b///c?x//y", "/a/b/c?x//y"), ("/a", "/a")]);
    check_target("uri path_regexp ^/(\\w+)/(\\w+)$ /$2/{header.A}/$1", &[("/a/b\nA: x", "/b/x/a")]);
    check_target("uri query foo bar", &[("/?foo=1&a=2&foo=3", "/?a=2&foo=bar"), ("/", "/?foo=bar")]);
    check_target("uri query +foo bar", &[("/?foo=1", "/?foo=1&foo=bar")]);
    check_target("uri query -foo", &[("/?foo=1&a=2&foo=3", "/?a=2"), ("/?foo", "/")]);
    check_target("uri query foo>bar", &[("/?foo=1&bar=2", "/?bar=1")]);
    check_target("uri query foo o 0", &[("/?foo=oo&bar=o", "/?bar=o&foo=00")]);
    check_target("uri query * ^(\\w)\\w*$ $1", &[("/?foo=abc&bar=de", "/?bar=d&foo=a")]);
    check_target(
        "uri query {\n+taz test\n-foo\nbar>baz\nqux {path}\n}",
        &[("/x?foo=1&bar=2", "/x?baz=2&qux=%2Fx&taz=test")],
    );
    refused("uri path_regexp ( x", "found '(', expected a regular expression");
    refused("uri double x", "unrecognized URI manipulation");
}

// caddyserver.com/docs/caddyfile/directives/method
#[test]
fn method() {
    check_target("method POST", &[("/", "POST /"), ("PUT /x", "POST /x")]);
    check_target(
        "method /api/* {header.Method}",
        &[("/api/x\nMethod: patch", "PATCH /api/x"), ("/api/x", "GET /api/x"), ("/x", "GET /x")],
    );
    refused("method", "argument");
}

// caddyserver.com/docs/caddyfile/directives/handle_path
#[test]
fn handle_path() {
    check(
        "handle_path /prefix/* {\nrespond \"in {uri}\"\n}\nhandle {\nrespond \"out {uri}\"\n}",
        &[
            ("/prefix/a?b", 200, "in /a?b"),
            ("/prefix/", 200, "in /"),
            ("/prefix", 200, "out /prefix"),
            ("/PREFIX/a", 200, "in /a"),
        ],
    );
}

//! `rewrite`, `uri`, `method`, `handle_path`.

use crate::{check, refused, request, site};

/// Compares the method and target that a directive produces.
#[track_caller]
fn becomes(directives: &str, cases: &[(&str, &str)]) {
    let mut kit = site(&format!("{directives}\nrespond \"{{method}} {{uri}}\""));
    for (asked, want) in cases {
        let want = if want.contains(' ') { (*want).to_owned() } else { format!("GET {want}") };
        assert_eq!(kit.send(&request(asked)).text(), want, "{directives}\n{asked}");
    }
}

// caddyserver.com/docs/caddyfile/directives/rewrite
#[test]
fn rewrite() {
    becomes("rewrite * /foo.html", &[("/", "/foo.html"), ("/a/b?c", "/foo.html?c")]);
    becomes("rewrite /api/* ?a=b", &[("/api/x", "/api/x?a=b"), ("/api/x?c", "/api/x?a=b"), ("/x", "/x")]);
    becomes(
        "rewrite * /index.php?{query}&p={path}",
        &[("/a%20b", "/index.php?p=%2Fa+b"), ("/?x=1", "/index.php?x=1&p=%2F")],
    );
    becomes("rewrite * /api{uri}", &[("/x?y=1", "/api/x?y=1"), ("/x", "/api/x")]);
    becomes("rewrite * /api{path}?a=b", &[("/x%3Fy?z", "/api/x%3Fy?a=b")]);
    becomes("rewrite * ?", &[("/x?y", "/x")]);
    becomes(
        "rewrite /old /new\nrewrite /older /newer",
        &[("/old", "/new"), ("/older", "/newer"), ("/oldest", "/oldest")],
    );
    // Of several rewrites, only the first match runs.
    becomes("rewrite /a /b\nrewrite /b /c", &[("/a", "/b"), ("/b", "/c")]);
    becomes("rewrite /x/{header.A}#top", &[("/\nA: b c", "/x/b%20c")]);
    refused("rewrite", "at least a rewrite URI");
}

// caddyserver.com/docs/caddyfile/directives/uri
#[test]
fn uri() {
    becomes(
        "uri strip_prefix /api/v1",
        &[("/api/v1/foo?a", "/foo?a"), ("/api", "/api"), ("/API/v1", "/"), ("/x//y", "/x/y")],
    );
    becomes("uri strip_prefix api", &[("/api/a", "/a"), ("/apia", "/a")]);
    becomes("uri /api/* strip_prefix /api", &[("/api/a", "/a"), ("/b/api", "/b/api")]);
    becomes("uri strip_suffix .html", &[("/a.html?x", "/a?x"), ("/a.htm", "/a.htm"), ("/.html", "/")]);
    becomes("uri replace /docs/ /v1/docs/", &[("/docs/go?d=/docs/", "/v1/docs/go?d=/v1/docs/")]);
    becomes("uri replace a b 1", &[("/aa?aa", "/ba?ba")]);
    becomes("uri replace \"?\" %3F", &[("/a?b", "/a?b")]);
    becomes("uri path_regexp /{2,} /", &[("/a//b///c?x//y", "/a/b/c?x//y"), ("/a", "/a")]);
    becomes("uri path_regexp ^/(\\w+)/(\\w+)$ /$2/{header.A}/$1", &[("/a/b\nA: x", "/b/x/a")]);
    becomes("uri query foo bar", &[("/?foo=1&a=2&foo=3", "/?a=2&foo=bar"), ("/", "/?foo=bar")]);
    becomes("uri query +foo bar", &[("/?foo=1", "/?foo=1&foo=bar")]);
    becomes("uri query -foo", &[("/?foo=1&a=2&foo=3", "/?a=2"), ("/?foo", "/")]);
    becomes("uri query foo>bar", &[("/?foo=1&bar=2", "/?bar=1")]);
    becomes("uri query foo o 0", &[("/?foo=oo&bar=o", "/?bar=o&foo=00")]);
    becomes("uri query * ^(\\w)\\w*$ $1", &[("/?foo=abc&bar=de", "/?bar=d&foo=a")]);
    becomes(
        "uri query {\n+taz test\n-foo\nbar>baz\nqux {path}\n}",
        &[("/x?foo=1&bar=2", "/x?baz=2&qux=%2Fx&taz=test")],
    );
    refused("uri path_regexp ( x", "found '(', expected a regular expression");
    refused("uri double x", "unrecognized URI manipulation");
}

// caddyserver.com/docs/caddyfile/directives/method
#[test]
fn method() {
    becomes("method POST", &[("/", "POST /"), ("PUT /x", "POST /x")]);
    becomes(
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

use causeway_pipeline::Registry;
use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

fn registry() -> Registry {
    let mut registry = Registry::default();
    crate::register(&mut registry);
    registry
}

/// Sends the target through the rewrite, and compares the method, target and decoded path that the next handler sees.
#[track_caller]
fn check(cases: &[(Value, &str, &str)]) {
    for (options, target, want) in cases {
        let mut handler = options.clone();
        handler["handler"] = json!("rewrite");
        let show = "{http.request.method} {http.request.uri} {http.request.uri.path}";
        let respond = json!({ "handler": "static_response", "body": show });
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [handler, respond] }]));
        assert_eq!(kit.send(&Request::get(target)).text(), *want, "{options} for {target}");
    }
}

// Caddy, `rewrite`: a component that the target omits is unchanged; a `?` at its end removes the query; placeholder
// values are escaped where needed.
#[test]
fn uri() {
    check(&[
        (json!({ "uri": "/x" }), "/a?b", "GET /x?b /x"),
        (json!({ "uri": "/x?" }), "/a?b", "GET /x /x"),
        (json!({ "uri": "?c" }), "/a?b", "GET /a?c /a"),
        (json!({ "uri": "?" }), "/a?b", "GET /a /a"),
        // RFC 3986 §6.2.3: an empty query differs from an absent one.
        (json!({ "uri": "/x" }), "/a?", "GET /x? /x"),
        (json!({ "uri": "/x?c" }), "/a?", "GET /x?c /x"),
        (json!({ "uri": "/x?" }), "/a?", "GET /x? /x"),
        (json!({ "strip_path_prefix": "/a" }), "/a/b?", "GET /b? /b"),
        (json!({ "uri": "/x?c={http.request.uri.query}" }), "/a?b&d=1", "GET /x?c=b%26d%3D1 /x"),
        (json!({ "uri": "/x?{http.request.uri.query}&c=1" }), "/a?b=2", "GET /x?b=2&c=1 /x"),
        (json!({ "uri": "/x?{http.request.uri.query}&c=1" }), "/a", "GET /x?c=1 /x"),
        (json!({ "uri": "/x?q={http.request.uri.path}" }), "/a%20b/%C3%BC", "GET /x?q=%2Fa+b%2F%C3%BC /x"),
        (json!({ "uri": "/x?a=b==&c&&d=" }), "/a", "GET /x?a=b==&c&d /x"),
        (json!({ "uri": "/x?c#frag" }), "/a?b", "GET /x?c /x"),
        (json!({ "uri": "/x#frag?c" }), "/a?b", "GET /x?b /x"),
        (json!({ "uri": "x y" }), "/a", "GET /x%20y /x y"),
        (json!({ "uri": "/p{http.request.uri.path}" }), "/a%20b?c", "GET /p/a%20b?c /p/a b"),
        (json!({ "uri": "/p{http.request.uri.path}" }), "/a%3Fb%23%25c", "GET /p/a%3Fb%23%25c /p/a?b#%c"),
        (json!({ "uri": "/p{http.request.uri}" }), "/a?b=1", "GET /p/a?b=1 /p/a"),
        (json!({ "uri": "/p{http.request.uri}?x" }), "/a?b=1", "GET /p/a?x /p/a"),
        // Not in Caddy: the value is text without escapes.
        (json!({ "uri": "/p/{http.request.uri.path.0}" }), "/a%252e%3Fb", "GET /p/a.?b /p/a."),
        (
            json!({ "uri": "/p/{http.request.uri.path.0}", "escape_values": true }),
            "/a%252e%3Fb",
            "GET /p/a%252e%3Fb /p/a%2e?b",
        ),
        (json!({ "uri": "{http.request.header.to}" }), "/a", "GET / /"),
        (json!({ "uri": "/f(o)o%2Fb" }), "/a", "GET /f%28o%29o/b /f(o)o/b"),
        (json!({ "uri": "/100%" }), "/a", "GET /100%25 /100%"),
        (json!({ "uri": "/x?y=\u{fc} z" }), "/a", "GET /x?y=%C3%BC%20z /x"),
    ]);
}

// Caddy: `rewrite x` makes a path without a slash, which only a pattern without one matches exactly (the Caddyfile of
// symfony-docker rewrites to `index.php`, and matches it by `path index.php`, but not a client's `/index.php`).
#[test]
fn path_without_a_slash() {
    let respond = |body: &str| json!({ "handler": "static_response", "body": body });
    let rewrite = |uri: &str| json!({ "handler": "rewrite", "uri": uri });
    for (path, rewritten, pattern, want) in [
        ("/foo", "index.php", "index.php", "front"),
        ("/foo", "INDEX.php", "index.php", "front"),
        ("/foo", "index.php", "*.php", "front"),
        ("/foo", "a//./b", "a/b", "front"),
        ("/foo", "\u{dc}/x", "%C3%9C/*", "front"),
        ("/foo", "\u{dc}", "\u{fc}", "front"),
        ("/foo", "index.php", "ndex.php", "other"),
        ("/foo", "index.php", "*/index.php", "other"),
        ("/foo", "index.php", "*x*p", "front"),
        ("/foo", "%2Findex.php", "index.php", "other"),
        ("/foo", "/index.php", "index.php", "other"),
        ("/index.php", "?q", "index.php", "other"),
    ] {
        let routes = json!([
            { "handle": [rewrite(rewritten)] },
            { "match": [{ "path": [pattern] }], "handle": [respond("front")] },
            { "handle": [respond("other")] },
        ]);
        let answer = Kit::new(&registry(), &routes).send(&Request::get(path));
        assert_eq!(answer.text(), want, "{rewritten} and {pattern}");
    }
    // A later rewrite, and an earlier request of the same connection, leave no mark.
    let later = json!([
        { "match": [{ "path": ["/foo"] }], "handle": [rewrite("index.php")] },
        { "match": [{ "query": { "again": ["1"] } }], "handle": [rewrite("/index.php")] },
        { "match": [{ "path": ["index.php"] }], "handle": [respond("front")] },
        { "handle": [respond("{http.request.uri.path}")] },
    ]);
    let mut kit = Kit::new(&registry(), &later);
    for (target, want) in [
        ("/foo", "front"),
        ("/index.php", "/index.php"),
        ("/foo?again=1", "/index.php"),
        ("/other", "/other"),
        ("/foo", "front"),
    ] {
        assert_eq!(kit.send(&Request::get(target)).text(), want, "{target}");
    }
}

// Caddy sends the URL to the upstream as it is; the upstream takes its path.
#[test]
fn url() {
    check(&[
        (json!({ "uri": "http://minio:9000/blog/404.html" }), "/a?b", "GET /blog/404.html?b /blog/404.html"),
        (json!({ "uri": "https://minio?c" }), "/a?b", "GET /?c /"),
        (json!({ "uri": "http://minio:9000{http.request.uri.path}" }), "/a?b", "GET /a?b /a"),
        (json!({ "uri": "http://{http.request.host}{http.request.uri}" }), "/a?b", "GET /a?b /a"),
        (
            json!({ "uri": "http://a.{http.request.host}:{http.vars.port}{http.request.orig_uri}" }),
            "/a?b",
            "GET /a?b /a",
        ),
        (json!({ "uri": "http://{http.request.uri.query.host}/p" }), "/a?host=x", "GET /p?host=x /p"),
        (json!({ "uri": "http://minio" }), "/a?b", "GET /?b /"),
    ]);
}

// A value that is known at load is a value like any other: it cannot add parameters or end the path.
#[test]
fn values_known_at_load() {
    let mut registry = registry();
    registry.set_environment(|name| (name == "TOKEN").then(|| "ab+/=&c d?%".to_owned()));
    for (options, want) in [
        (json!({ "uri": "/x?key={env.TOKEN}&b={http.request.uri.query.b}" }), "/x?key=ab%2B%2F%3D%26c+d%3F%25&b=1+2"),
        (json!({ "uri": "/x?{env.TOKEN}=1" }), "/x?ab%2B%2F%3D%26c+d%3F%25=1"),
        (json!({ "uri": "/x/{env.TOKEN}", "escape_values": true }), "/x/ab+/=&c%20d%3F%25?b=1+2"),
    ] {
        let mut handler = options.clone();
        handler["handler"] = json!("rewrite");
        let respond = json!({ "handler": "static_response", "body": "{http.request.uri}" });
        let mut kit = Kit::new(&registry, &json!([{ "handle": [handler, respond] }]));
        assert_eq!(kit.send(&Request::get("/?b=1+2")).text(), want, "{options}");
    }
}

// A placeholder in a placeholder's value is not expanded.
#[test]
fn values_are_not_rendered_twice() {
    let handler = json!({ "handler": "rewrite", "uri": "{http.request.header.to}" });
    let respond = json!({ "handler": "static_response", "body": "{http.request.uri}" });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [handler, respond] }]));
    let to = |value: &str| Request::get("/a?b").field("To", value);
    assert_eq!(kit.send(&to("/x?a={http.request.method}")).text(), "/x?a=%7Bhttp.request.method%7D");
    assert_eq!(kit.send(&to("/x/{http.request.method}")).text(), "/x/%7Bhttp.request.method%7D?b");
    assert_eq!(kit.send(&to("/x?")).text(), "/x");
    assert_eq!(kit.send(&to("/x#y?z")).text(), "/x?b");
}

#[test]
fn an_absolute_target_keeps_its_authority() {
    let handler = json!({ "handler": "rewrite", "uri": "/x", "strip_path_suffix": "x" });
    let respond = json!({ "handler": "static_response", "body": "{http.request.host} {http.request.uri}" });
    let mut kit = Kit::new(&registry(), &json!([{ "handle": [handler, respond] }]));
    assert_eq!(kit.send(&Request::get("http://a.test/b?c")).text(), "a.test /?c");
}

// Caddy, `uri strip_prefix`, `strip_suffix`: compared decoded and ignoring case, unless the prefix is escaped itself;
// the path is cleaned before, and again after a removal.
#[test]
fn strip() {
    check(&[
        (json!({ "strip_path_prefix": "/api" }), "/api/v1?x", "GET /v1?x /v1"),
        (json!({ "strip_path_prefix": "api" }), "/API/v1", "GET /v1 /v1"),
        (json!({ "strip_path_prefix": "/api" }), "/api", "GET / /"),
        (json!({ "strip_path_prefix": "/api" }), "/apiv1", "GET /v1 /v1"),
        (json!({ "strip_path_prefix": "/api" }), "/ap/i", "GET /ap/i /ap/i"),
        (json!({ "strip_path_prefix": "/api" }), "//api///v1/", "GET /v1/ /v1/"),
        (json!({ "strip_path_prefix": "/x" }), "//a/./b/../c/", "GET /a/c/ /a/c/"),
        (json!({ "strip_path_prefix": "//api" }), "//api//v1", "GET //v1 //v1"),
        (json!({ "strip_path_prefix": "/a b" }), "/a%20b/%2Fc", "GET /%2Fc //c"),
        (json!({ "strip_path_prefix": "/a%2Fb" }), "/a/b/c", "GET /a/b/c /a/b/c"),
        (json!({ "strip_path_prefix": "/a%2Fb" }), "/a%2fb/c", "GET /c /c"),
        (json!({ "strip_path_prefix": "/a" }), "/a/%2e%2e/c", "GET /c /c"),
        (json!({ "strip_path_prefix": "/a" }), "/a%2Fb/c%20d", "GET /b/c%20d /b/c d"),
        (json!({ "strip_path_prefix": "/a" }), "/a..", "GET / /"),
        (json!({ "strip_path_prefix": "/{http.request.host.labels.0}" }), "/localhost/a", "GET /a /a"),
        (json!({ "strip_path_suffix": ".html" }), "/a.html?x", "GET /a?x /a"),
        (json!({ "strip_path_suffix": ".HTML" }), "/a.html", "GET /a /a"),
        (json!({ "strip_path_suffix": "b c" }), "/a/b%20c", "GET /a/ /a/"),
        (json!({ "strip_path_suffix": "b%20c" }), "/a/b%20c", "GET /a/ /a/"),
        (json!({ "strip_path_suffix": "/b" }), "/a%2Fb", "GET /a /a"),
        (json!({ "strip_path_suffix": "%2Fb" }), "/a/b", "GET /a/b /a/b"),
        (json!({ "strip_path_suffix": "/a" }), "/a", "GET / /"),
        (json!({ "strip_path_suffix": "longer/than/it" }), "/it", "GET /it /it"),
    ]);
}

// Caddy, `uri replace` and `uri path_regexp`.
#[test]
fn replace() {
    let one = |find: &str, replace: &str| json!({ "uri_substring": [{ "find": find, "replace": replace }] });
    let regexp = |find: &str, replace: &str| json!({ "path_regexp": [{ "find": find, "replace": replace }] });
    check(&[
        (one("/docs/", "/v1/docs/"), "/docs/a", "GET /v1/docs/a /v1/docs/a"),
        (one("b", "x"), "/abab?b=b", "GET /axax?x=x /axax"),
        (json!({ "uri_substring": [{ "find": "b", "replace": "x", "limit": 1 }] }), "/abab?b=b", "GET /axab?x=b /axab"),
        (json!({ "uri_substring": [{ "find": "b", "limit": -1 }] }), "/abab", "GET /aa /aa"),
        (one("a", "?"), "/abc", "GET /%3Fbc /?bc"),
        (one("a", "%2F"), "/abc", "GET /%2Fbc //bc"),
        (one("a", "%zz"), "/abc", "GET /%25zzbc /%zzbc"),
        (one("//", "/"), "/a//b///c", "GET /a/b//c /a/b//c"),
        (one("x", "y"), "/a//b", "GET /a/b /a/b"),
        (one("/a", ""), "/a", "GET / /"),
        (one("{http.request.method}", "{http.request.host}"), "/GET?GET", "GET /localhost?localhost /localhost"),
        (regexp("/{2,}", "/"), "/a//b///c?d//e", "GET /a/b/c?d//e /a/b/c"),
        (regexp("^/(\\w+)/(\\w+)$", "/$2/$1"), "/a/b", "GET /b/a /b/a"),
        (regexp("%20", "-"), "/a%20b%2Fc", "GET /a-b%2Fc /a-b/c"),
        (regexp("^/(?P<rest>.*)$", "/{http.request.method}/$rest"), "/a", "GET /GET/a /GET/a"),
        (regexp("x", "y"), "/a//b/../c", "GET /a//b/../c /a//b/../c"),
        (json!({ "method": "put" }), "/a", "PUT /a /a"),
        (json!({ "method": "{http.request.uri.query}" }), "/a?(b)", "GET /a?(b) /a"),
    ]);
}

// Caddy, `uri query`: rename, set, add, replace, delete, in this order; the result is sorted by key.
#[test]
fn query() {
    let q = |operations: Value| json!({ "query": operations });
    let replace = |key: &str, search: &str, with: &str| {
        q(json!({ "replace": [{ "key": key, "search_regexp": search, "replace": with }] }))
    };
    check(&[
        (q(json!({ "set": [{ "key": "foo", "val": "b r" }] })), "/?foo=1&foo=2&a=3", "GET /?a=3&foo=b+r /"),
        (q(json!({ "add": [{ "key": "foo", "val": "{http.request.method}" }] })), "/?foo=1", "GET /?foo=1&foo=GET /"),
        (q(json!({ "add": [{ "key": "", "val": "x" }] })), "/?b&a", "GET /?a=&b= /"),
        (q(json!({ "rename": [{ "key": "a", "val": "b" }] })), "/?a=1&b=2&a=3", "GET /?b=1&b=3 /"),
        (q(json!({ "rename": [{ "key": "c", "val": "b" }] })), "/?a=1&b=2", "GET /?a=1&b=2 /"),
        (q(json!({ "delete": ["a", ""] })), "/?a=1&b=2&a=3", "GET /?b=2 /"),
        (q(json!({ "delete": ["a"] })), "/x?a=1", "GET /x /x"),
        // The query is as the client sent it.
        (json!({ "strip_path_prefix": "/x" }), "/x/y?a=\"<b>'", "GET /y?a=\"<b>' /y"),
        (q(json!({ "delete": ["{http.request.uri.query.b}"] })), "/?a=1&b=a", "GET /?b=a /"),
        (replace("a", "\\d", "<$0>"), "/?a=1&b=2", "GET /?a=%3C1%3E&b=2 /"),
        (replace("*", "\\d", "n"), "/?a=1&b=2", "GET /?a=n&b=n /"),
        (q(json!({ "replace": [{ "key": "a", "search": "x", "replace": "y" }] })), "/?a=xx&b=x", "GET /?a=yy&b=x /"),
        (q(json!({})), "/?b=%41+c&a;b&c=%zz&%C3%BC", "GET /?b=A+c&%C3%BC= /"),
        (
            q(json!({
                "delete": ["c"], "add": [{ "key": "c", "val": "1" }, { "key": "d", "val": "2" }],
                "set": [{ "key": "b", "val": "{http.request.uri.query.a}" }], "rename": [{ "key": "a", "val": "e" }],
            })),
            "/?a=0",
            "GET /?b=0&d=2&e=0 /",
        ),
    ]);
}

#[test]
fn refused() {
    for (options, want) in [
        (
            json!({ "path_regexp": [{ "find": "(" }] }),
            "handle[0].path_regexp[0].find: found '(', expected a regular expression",
        ),
        (json!({ "path_regexp": [{ "replace": "x" }] }), "path_regexp[0]: found 'no `find`'"),
        (
            json!({ "query": { "replace": [{ "key": "a", "search_regexp": "[" }] } }),
            "query.replace[0].search_regexp: found '['",
        ),
        (json!({ "query": { "drop": [] } }), "unknown field `drop`"),
        (json!({ "uris": "" }), "unknown field `uris`"),
    ] {
        let mut handler = options.clone();
        handler["handler"] = json!("rewrite");
        let error = Kit::build(&registry(), &json!([{ "handle": [handler] }]), &Value::Null).err().expect(want);
        assert!(error.to_string().contains(want), "{error}");
    }
}

// docs/limits.md, as for header fields.
#[test]
fn long_replacements() {
    let (path, value) = ("a".repeat(4_000), "b".repeat(4_000));
    let request = Request::get(&format!("/{path}?b={value}&c={path}"));
    for handler in [
        json!({ "uri_substring": [{ "find": "a", "replace": "{http.request.uri.query.b}" }] }),
        json!({ "path_regexp": [{ "find": "a", "replace": "{http.request.uri.query.b}" }] }),
        json!({ "query": { "replace": [{ "key": "c", "search": "a", "replace": "{http.request.uri.query.b}" }] } }),
        json!({ "query": { "replace": [{ "key": "*", "search_regexp": "[ab]", "replace": "{http.request.uri.query.b}" }] } }),
    ] {
        let mut rewrite = handler.clone();
        rewrite["handler"] = json!("rewrite");
        let routes = json!([{ "handle": [rewrite, { "handler": "static_response" }] }]);
        assert_eq!(Kit::new(&registry(), &routes).send(&request).status, 500, "{handler}");
    }
}

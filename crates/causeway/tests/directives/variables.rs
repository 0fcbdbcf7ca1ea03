//! `vars`, `map`, `invoke`, `root`.

use crate::{check, refused, request, serve};

// caddyserver.com/docs/caddyfile/directives/vars
#[test]
fn vars() {
    check("vars my_var \"Hello\"\nrespond {vars.my_var}", &[("/", 200, "Hello")]);
    check(
        "vars {\nmy_var \"hello world\"\ncount 3\nyes true\n}\nrespond \"{vars.my_var} {vars.count} {vars.yes}{vars.none}\"",
        &[("/", 200, "hello world 3 true")],
    );
    check(
        "vars /foo* isFoo yep\nvars isFoo nope\nrespond {vars.isFoo}",
        &[("/foo/x", 200, "yep"), ("/bar", 200, "nope")],
    );
    check("vars a {path}\nvars b {vars.a}{vars.a}\nrespond {vars.b}", &[("/x", 200, "/x/x")]);
}

// caddyserver.com/docs/caddyfile/directives/map
#[test]
fn map() {
    check(
        "map {host} {my_placeholder} {magic_number} {\n\
         example.com \"some value\" 3\n\
         foo.example.com \"another value\"\n\
         ~(.*)\\.example\\.com$ \"${1} subdomain\" 5\n\
         ~.*\\.net$ - 7\n\
         ~.*\\.xyz$ - 15\n\
         default \"unknown domain\" 42\n}\n\
         respond \"{my_placeholder} {magic_number}\"",
        &[
            ("http://example.com/", 200, "some value 3"),
            ("http://foo.example.com/", 200, "another value 5"),
            ("http://bar.example.com/", 200, "bar subdomain 5"),
            ("http://a.net/", 200, "unknown domain 7"),
            ("http://a.xyz/", 200, "unknown domain 15"),
            ("http://a.test/", 200, "unknown domain 42"),
        ],
    );
    // A mapping is evaluated when its placeholder is used: here after the rewrite, which runs after map.
    check(
        "map {path} {section} {\n~^/docs/(\\w+) $1\n}\nrewrite /old/* /docs/new\nrespond <{section}>",
        &[("/old/x", 200, "<new>"), ("/x", 200, "<>")],
    );
    refused("map {path} {x} {\n~( a\n}\nrespond {x}", "expected a regular expression");
    refused("map {path} section {\na b\n}", "found 'section', expected a placeholder");
    refused("map {path} {x} {\na b\na c\n}", "found 'a', expected an input that no mapping before it has");
}

// caddyserver.com/docs/caddyfile/directives/invoke
#[test]
fn invoke() {
    let mut kit = serve(
        "&(app-common) {\nheader X-App common\nrespond /api/* \"api {path}\"\nrespond \"app {vars.name}\"\n}\n\
         :80 {\nvars name a\nroute {\ninvoke app-common\n}\n}\n",
    );
    assert_eq!(kit.send(&request("/")).text(), "app a");
    let answer = kit.send(&request("/api/x"));
    assert_eq!((answer.text(), answer.field("X-App")), ("api /api/x", Some("common")));
    refused("invoke none", "'none'");
}

// caddyserver.com/docs/caddyfile/directives/root
#[test]
fn root() {
    check("root * /srv/{host}\nrespond {vars.root}", &[("/", 200, "/srv/localhost")]);
    check("root /a/* /one\nroot /two\nrespond {vars.root}", &[("/a/x", 200, "/one"), ("/b", 200, "/two")]);
}

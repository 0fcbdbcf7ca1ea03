//! `header`, `request_header`.

use crate::{check, check_field, refused, request, site};

// caddyserver.com/docs/caddyfile/directives/header
#[test]
fn header() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        ("header Custom-Header \"My value\"", "Custom-Header", Some("My value")),
        ("header -Server", "Server", None),
        ("header ?Cache-Control \"max-age=3600\"", "Cache-Control", Some("max-age=3600")),
        (
            "header ?Cache-Control \"max-age=3600\"\nroute {\nheader Cache-Control no-store\n}",
            "Cache-Control",
            Some("no-store"),
        ),
        ("header +Link a\nheader +Link b", "Link", Some("a | b")),
        ("header X {method}-{nope}", "X", Some("GET-{nope}")),
        ("header >X later\nroute {\nheader X sooner\n}", "X", Some("later")),
        ("header X later {\ndefer\n}\nroute {\nheader X sooner\n}", "X", Some("later")),
        ("header {\nX one\n+X two\n-Y\n}", "X", Some("one")),
        ("header {\n-X\n+X two\n}", "X", None),
        (
            "route {\nheader Location \"http://a/x http://a/y\"\nheader Location http:// https://\n}",
            "Location",
            Some("https://a/x https://a/y"),
        ),
        ("route {\nheader X abc-123\nheader X ([a-z]+)-([0-9]+) $2-$1\n}", "X", Some("123-abc")),
        ("route {\nheader X ab\nheader X [a-z]{2} {method}\n}", "X", Some("GET")),
        ("route {\nheader >X b c\nheader X abba\n}", "X", Some("acca")),
        ("route {\nheader A1 x\nheader A2 x\nheader -A* \n}", "A2", None),
        ("route {\nheader X-End x\nheader -*end\n}", "X-End", None),
        ("header {\nmatch status 2xx\nX two\n}", "X", Some("two")),
        ("header {\nmatch status 4xx\nX four\n}", "X", None),
        ("header {\nmatch {\nstatus 200 404\nheader Y a*\n}\nX y\n}\nheader Y abc", "X", Some("y")),
        ("header {\nmatch header Y b*\nX y\n}\nheader Y abc", "X", None),
    ];
    for (directives, field, want) in cases {
        check_field(&format!("{directives}\nrespond ok"), field, &[("/", *want)]);
    }
    check_field(
        "@static path *.css *.js\nheader @static Cache-Control max-age=31536000\nheader /admin/* Cache-Control no-store\nrespond ok",
        "Cache-Control",
        &[("/a.css", Some("max-age=31536000")), ("/admin/x", Some("no-store")), ("/", None)],
    );
    // A deferred change applies to its own chain's response only; an immediate one also affects the error routes.
    let failing = "header A kept\nheader >B lost\nerror 500\nhandle_errors {\nrespond failed\n}";
    check_field(failing, "A", &[("/", Some("kept"))]);
    check_field(failing, "B", &[("/", None)]);
    refused("header X ([a-z x", "expected a regular expression");
    refused("header \"a b\" c", "found 'a b', expected a field name");
}

// caddyserver.com/docs/caddyfile/directives/request_header
#[test]
fn request_header() {
    let show = "respond \"{header.A}|{header.B}|{header.Referer}|{host}\"";
    let request_text = "/\nA: one\nA: two\nB: old-value\nReferer: http://x/";
    for (directive, want) in [
        ("request_header A new", "new|old-value|http://x/|localhost"),
        ("request_header A: new", "new|old-value|http://x/|localhost"),
        ("request_header +A three", "one,two,three|old-value|http://x/|localhost"),
        ("request_header -Referer", "one,two|old-value||localhost"),
        ("request_header -*e*", "one,two|old-value||localhost"),
        ("request_header B old new", "one,two|new-value|http://x/|localhost"),
        ("request_header B ^([a-z]*)-(.*)$ $2-$1", "one,two|value-old|http://x/|localhost"),
        ("request_header A {method}{nope}", "GET{nope}|old-value|http://x/|localhost"),
        ("request_header Host other.test", "one,two|old-value|http://x/|other.test"),
        ("request_header /private/* A new", "one,two|old-value|http://x/|localhost"),
    ] {
        check(&format!("{directive}\n{show}"), &[(request_text, 200, want)]);
    }
    let mut kit = site("request_header A new\nrespond {header.A}");
    assert_eq!(kit.send(&request("http://localhost/\nA: old")).text(), "new");
    refused("request_header ?A x", "'?'");
}

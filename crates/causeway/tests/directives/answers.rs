//! `respond`, `error`, `abort`, `redir`.

use crate::{check, check_field, joined, refused, request, site};

// caddyserver.com/docs/caddyfile/directives/respond
#[test]
fn respond() {
    check("respond /health-check 200", &[("/health-check", 200, ""), ("/other", 200, "")]);
    check(
        "respond \"Hello, world!\"",
        &[("/", 200, "Hello, world!"), ("PUT /x", 200, "Hello, world!"), ("HEAD /", 200, "")],
    );
    check(
        "respond /secret/* \"Access denied\" 403 {\nclose\n}\nrespond ok",
        &[("/secret/a", 403, "Access denied"), ("/secret", 200, "ok")],
    );
    check_field("respond /secret/* 403 {\nclose\n}", "Connection", &[("/secret/a", Some("close")), ("/", None)]);
    check(
        "respond <<HTML\n<html>\n<body>Foo</body>\n</html>\nHTML 200",
        &[("/", 200, "<html>\n<body>Foo</body>\n</html>")],
    );
    check("respond 202 {\nbody text\n}", &[("/", 202, "text")]);
    check("respond \"{method} {path} {header.A} {nope}\"", &[("POST /x%20y\nA: 1\nA: 2", 200, "POST /x y 1,2 {nope}")]);
    check("respond {header.Status}", &[("/\nStatus: 418", 200, "418")]);
    check(
        "respond text {header.Status}",
        &[("/\nStatus: 418", 418, "text"), ("/\nStatus: x", 500, ""), ("/", 500, "")],
    );
    for (body, kind) in [("text", "text/plain; charset=utf-8"), ("`{\"a\": 1}`", "application/json")] {
        check_field(&format!("respond {body}"), "Content-Type", &[("/", Some(kind))]);
    }
    check_field("header Content-Type text/css\nrespond a{}", "Content-Type", &[("/", Some("text/css"))]);
    // In an error route the default status is that of the error.
    check("error 404\nhandle_errors {\nrespond gone\n}", &[("/", 404, "gone")]);
    check("error 404\nhandle_errors {\nrespond gone 410\n}", &[("/", 410, "gone")]);
    refused("respond text 99", "found '99', expected a status code from 100 to 999");
}

// caddyserver.com/docs/caddyfile/directives/error
#[test]
fn error() {
    let show = "\nhandle_errors {\nrespond \"{err.status_code} {err.status_text}: {err.message}\"\n}";
    for (directive, status, body) in [
        ("error /private* \"Unauthorized\" 403", 403, "403 Forbidden: Unauthorized"),
        ("error /private* 404", 404, "404 Not Found: "),
        ("error \"on fire\"", 500, "500 Internal Server Error: on fire"),
        ("error 500 {\nmessage \"{path}\"\n}", 500, "500 Internal Server Error: /private/x"),
        ("error {path.1} 402", 402, "402 Payment Required: x"),
    ] {
        check(&format!("{directive}{show}"), &[("/private/x", status, body)]);
        check(directive, &[("/private/x", status, "")]);
    }
    check(
        "error /hidden* \"Not found\" 404\nhandle_errors {\nrespond {err.message}\n}\nrespond visible",
        &[("/hidden/x", 404, "Not found"), ("/", 200, "visible")],
    );
}

// caddyserver.com/docs/caddyfile/directives/abort
#[test]
fn abort() {
    let mut kit = site("abort /foo/*\nrespond ok");
    assert!(kit.send(&request("/foo/bar")).aborted);
    assert_eq!(kit.send(&request("/foo")).text(), "ok");
    assert!(site("abort").send(&request("/")).aborted);
    let mut kit = site("respond /foo Hello\nroute {\nabort\n}");
    assert_eq!((kit.send(&request("/foo")).text(), kit.send(&request("/bar")).aborted), ("", true));
    refused("abort / now", "2:9");
}

// caddyserver.com/docs/caddyfile/directives/redir
#[test]
fn redir() {
    for (directive, requested, status, location) in [
        ("redir https://example.com", "/x?y", 302, "https://example.com"),
        ("redir https://example.com{uri}", "/x%20y?z=%41", 302, "https://example.com/x%20y?z=%41"),
        ("redir https://example.com{uri} permanent", "/x?y", 301, "https://example.com/x?y"),
        ("redir https://example.com{uri} temporary", "/", 302, "https://example.com/"),
        ("redir https://example.com{uri} 308", "/", 308, "https://example.com/"),
        ("redir * /account/login 401", "/", 401, "/account/login"),
        ("redir * /new {header.Code}", "/\nCode: 307", 307, "/new"),
        ("redir /add-trailing-slash /add-trailing-slash/", "/add-trailing-slash", 302, "/add-trailing-slash/"),
        ("@old path /old /older\nredir @old /new?from={path}", "/older", 302, "/new?from=/older"),
        ("redir * //{host}/{path.1}", "http://h.test/a/b", 302, "//h.test/b"),
    ] {
        let mut kit = site(directive);
        let answer = kit.send(&request(requested));
        assert_eq!((answer.status, joined(&answer, "Location").as_deref()), (status, Some(location)), "{directive}");
    }
    let page = site("redir https://example.com/?a=\"b\"&c html").send(&request("/"));
    assert_eq!((page.status, page.field("Content-Type")), (200, Some("text/html; charset=utf-8")));
    assert!(page.text().contains("URL='https://example.com/?a=&#34;b&#34;&amp;c'"), "{}", page.text());
    refused("redir * /x 200", "3xx range or 401");
    refused("redir * /x soon", "'soon'");
}

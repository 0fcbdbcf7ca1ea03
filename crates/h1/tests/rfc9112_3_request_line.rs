//! RFC 9112 §3: request line and target; RFC 9110 §7.2: Host.
#![allow(missing_docs, reason = "a test")]

mod peer;
use causeway_h1::Limits;
use peer::{check, check_bytes};

/// §3: exactly one space between the three parts.
#[test]
fn the_three_parts() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET /a b HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        "GET / \u{c}HTTP/1.1",
        "GET /\u{b}HTTP/1.1",
        "GET HTTP/1.1",
        "GET  HTTP/1.1",
        "GET",
        "GET ",
        "GET /",
        "/ HTTP/1.1",
        " GET / HTTP/1.1",
    ] {
        check(&[("a bad line", &format!("{line}\r\nHost: a\r\n\r\n"), "400; close")]);
    }
}

/// §3.1: the method is any case-sensitive token, also an unknown one.
#[test]
fn methods() {
    for method in [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "DELETE",
        "OPTIONS",
        "TRACE",
        "PATCH",
        "get",
        "PROPFIND",
        "M-SEARCH",
        "!#$%&'*+-.^_`|~9",
    ] {
        check(&[("a method", &format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"), &format!("{method} /; keep-alive"))]);
    }
    for method in ["G@T", "G=:", "\"GET\"", "G(T", "G,T", "G:T", "GÄT", "G\0T", "G\u{7f}T", "{GET}"] {
        check(&[("no method", &format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"), "400; close")]);
    }
}

/// §3: a method longer than any that the server implements is 501, even before it is complete.
#[test]
fn long_methods() {
    let line = |len: usize| format!("{} / HTTP/1.1\r\nHost: a\r\n\r\n", "M".repeat(len));
    check(&[
        ("at the limit", &line(64), &format!("{} /; keep-alive", "M".repeat(64))),
        ("past it", &line(65), "501; close"),
    ]);
    check_bytes("without an end", "M".repeat(40_000).as_bytes(), "501; close", Limits::default(), false);
}

/// §3.2: the four forms, and the methods that allow each. Printable bytes that a URI may not hold are
/// percent-encoded; other bytes are rejected.
#[test]
fn targets() {
    for (method, target, ok) in [
        ("GET", "/a%20b?c=d&e", true),
        ("GET", "//x", true),
        ("GET", "/?{x}|^", true),
        ("GET", "http://b/c?d", true),
        ("GET", "http://b", true),
        ("GET", "http://b?x=1", true),
        ("GET", "HTTP://b:80/", true),
        ("GET", "http:///p", false),
        ("GET", "http://u@b/", false),
        ("GET", "http://b:x/", false),
        ("GET", "*", false),
        ("GET", "b:80", false),
        ("GET", "a", false),
        ("GET", "../../etc/passwd", false),
        ("GET", "/a\0b", false),
        ("GET", "/a\u{7f}b", false),
        ("GET", "/a#b", false),
        ("GET", "/%u002e", false),
        ("OPTIONS", "*", true),
        ("OPTIONS", "/a", true),
        ("OPTIONS", "**", false),
        ("CONNECT", "/", false),
        ("CONNECT", "b", false),
        ("CONNECT", "b:", false),
        ("CONNECT", "b:0", false),
        ("CONNECT", "b:65536", false),
        ("CONNECT", "http://b/", false),
    ] {
        let want = if ok { format!("{method} {target}; keep-alive") } else { "400; close".to_owned() };
        check(&[("a target", &format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"), &want)]);
    }
    for (raw, encoded) in
        [("/ä", "/%C3%A4"), ("/a\\b", "/a%5Cb"), ("/<a>?<{>", "/%3Ca%3E?<{>"), ("http://b/ä", "http://b/%C3%A4")]
    {
        check(&[(
            "a raw target",
            &format!("GET {raw} HTTP/1.1\r\nHost: a\r\n\r\n"),
            &format!("GET {encoded}; keep-alive"),
        )]);
    }
    check(&[("a raw authority", "GET http://ä/ HTTP/1.1\r\nHost: a\r\n\r\n", "400; close")]);
    // RFC 9110 §9.3.6: the bytes after a 2xx to CONNECT are no longer HTTP.
    let tunnel = "CONNECT b:80 HTTP/1.1\r\nHost: b:80\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\n";
    check(&[("a tunnel that the server did not open", tunnel, "CONNECT b:80 upgrade; close")]);
}

/// §3: a target longer than the limit is 414, even before it is complete.
#[test]
fn long_targets() {
    let limits = Limits::default();
    let line = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 1));
    let fits = line(16 * 1024);
    let want = format!("{}; keep-alive", &fits[..4 + 16 * 1024]);
    check_bytes("at the limit", fits.as_bytes(), &want, limits, false);
    check_bytes("past it", line(16 * 1024 + 1).as_bytes(), "414; close", limits, false);
    check_bytes("without an end", format!("GET /{}", "a".repeat(40_000)).as_bytes(), "414; close", limits, false);
}

/// §3.2: exactly one Host in HTTP/1.1, also with an absolute target; at most one in HTTP/1.0. RFC 9110 §7.2:
/// host[:port].
#[test]
fn host() {
    check(&[
        ("missing", "GET / HTTP/1.1\r\n\r\n", "400; close"),
        ("missing beside an authority", "GET http://b/ HTTP/1.1\r\n\r\n", "400; close"),
        ("missing in 1.0", "GET / HTTP/1.0\r\n\r\n", "GET /; close"),
        ("twice", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\nHOST: b\r\n\r\n", "400; close"),
        ("twice the same", "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", "400; close"),
        ("twice in 1.0", "GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", "400; close"),
        ("folded away", "GET / HTTP/1.1\r\n Host: a\r\n\r\n", "400; close"),
    ]);
    for (value, ok) in [
        ("", true),
        ("a:8080", true),
        ("a:", true),
        ("foo-bar_baz.test", true),
        ("[::1]:8", true),
        ("[::1", false),
        ("::1", false),
        ("a/x", false),
        ("a\\x", false),
        ("a b", false),
        ("a@b", false),
        ("a:b", false),
        ("a:-1", false),
        ("a:99999", false),
        ("ÿaÿ", false),
        ("a\0", false),
        ("http://a", false),
    ] {
        let want = if ok { "GET /; keep-alive" } else { "400; close" };
        check(&[("a host", &format!("GET / HTTP/1.1\r\nHost: {value}\r\n\r\n"), want)]);
    }
}

/// §3.2.2: an absolute target's authority overrides Host.
#[test]
fn the_target_authority_overrides_the_host_field() {
    let mut head = causeway_message::Head::new();
    let parse = |text: &str, head: &mut causeway_message::Head| {
        causeway_h1::parse_head(text.as_bytes(), &Limits::default(), head).expect("a head");
        head.authority().map(str::to_owned)
    };
    assert_eq!(parse("GET http://b:1/p HTTP/1.1\r\nHost: a\r\n\r\n", &mut head).as_deref(), Some("b:1"));
    assert_eq!(parse("GET /p HTTP/1.1\r\nHost: a\r\n\r\n", &mut head).as_deref(), Some("a"));
    assert_eq!(parse("GET /p HTTP/1.0\r\n\r\n", &mut head).as_deref(), None);
}

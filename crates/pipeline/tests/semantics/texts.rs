//! Placeholders, variables, uuid.

use causeway_message::Version;
use causeway_testkit::{Kit, Request};
use serde_json::json;

use crate::probe::registry;

fn kit(text: &str) -> Kit {
    let routes = json!([{ "handle": [
        { "handler": "probe", "mark": "a", "set_variable": ["v", "<{http.request.method}>"] },
        { "handler": "probe", "mark": "b", "enter": "respond", "body": text },
    ] }]);
    Kit::new(&registry(), &routes)
}

// Caddy's documentation of placeholders.
#[test]
fn placeholders() {
    let request = Request::new("POST", "/a%20b?c=d").field("Host", "Ex.test:81").field("X-Y", "1").field("X-Y", "2");
    for (text, want) in [
        ("", ""),
        ("plain", "plain"),
        ("{http.request.method}", "POST"),
        ("{http.request.scheme}://{http.request.hostport}{http.request.uri}", "http://Ex.test:81/a%20b?c=d"),
        ("{http.request.host}|{http.request.port}", "Ex.test|81"),
        ("{http.request.uri.path}|{http.request.uri.query}", "/a b|c=d"),
        ("{http.request.header.x-y}{http.request.header.None}", "1"),
        (
            "{http.request.remote}|{http.request.remote.host}|{http.request.remote.port}",
            "192.0.2.1:4711|192.0.2.1|4711",
        ),
        ("{http.request.proto}", "HTTP/2.0"),
        ("{http.response.header.Trace}", "in a"),
        ("{http.vars.v}{http.vars.unset}", "<POST>"),
        ("{http.error.status_code}{http.error.status_text}", ""),
        ("{unknown} {", "{unknown} {"),
        ("\\{http.request.method\\} \\n", "{http.request.method} \\n"),
        ("{{http.request.method}}", "{POST}"),
    ] {
        assert_eq!(kit(text).send(&request.clone().version(Version::Http2)).text(), want, "{text}");
    }
}

// RFC 9562 §5.4: version 4, variant 10; one for each request, the same whenever it is asked for.
#[test]
fn uuids() {
    let mut kit = kit("{http.request.uuid}|{http.request.uuid}");
    let first = kit.send(&Request::get("/"));
    let (a, b) = first.text().split_once('|').expect("two of them");
    assert_eq!((a, a.len()), (b, 36));
    assert_eq!(&a[14..15], "4");
    assert!(matches!(&a[19..20], "8" | "9" | "a" | "b"), "{a}");
    assert_ne!(kit.send(&Request::get("/")).text(), first.text());
}

#[test]
fn a_bad_escape_is_400() {
    let mut kit = kit("x");
    assert_eq!(kit.send(&Request::get("/?%zz")).status, 200);
    let routes = json!([{ "handle": [{ "handler": "probe", "set_target": "/%zz" }] }]);
    assert_eq!(Kit::new(&registry(), &routes).send(&Request::get("/")).status, 400);
}

//! Messages with the field `Incremental` (RFC 10036).

use causeway_testkit::{Kit, Request};
use serde_json::{Value, json};

use super::{kit, start_call};

fn post() -> Request {
    Request::new("POST", "/").content("content")
}

/// Sends a request that the proxy refuses; returns the response's status and Proxy-Status.
#[track_caller]
fn refused(kit: &mut Kit, request: &Request) -> (u16, Option<String>) {
    let answer = kit.send(request);
    assert!(kit.worker().take_call().is_none());
    (answer.status, answer.field("Proxy-Status").map(str::to_owned))
}

// RFC 10036 §3, §4.1 and Caddy: a request whose content would be read first gets 501, with Proxy-Status if the proxy
// has a name.
#[test]
fn requests() {
    let mut named = kit(json!({ "request_buffers": 10, "proxy_status_name": "proxy-3.example.com" }));
    let mut nameless = kit(json!({ "request_buffers": 10 }));
    let error = "proxy-3.example.com;error=incremental_refused";
    assert_eq!(refused(&mut named, &post().field("Incremental", "?1")), (501, Some(error.to_owned())));
    assert_eq!(refused(&mut nameless, &post().field("Incremental", "?1;a=b")), (501, None));
    // A name that is no token is a string (RFC 9209 §2).
    let mut spaced = kit(json!({ "request_buffers": 10, "proxy_status_name": "our \"proxy\"" }));
    let error = "\"our \\\"proxy\\\"\";error=incremental_refused";
    assert_eq!(refused(&mut spaced, &post().field("Incremental", "?1")), (501, Some(error.to_owned())));
    // Other values than true are ignored, and so is the field of a request without content, or without a buffer.
    for value in ["?0", "1", "true", "?1, ?1", "(?1)", "\u{e9}", ""] {
        let pending = named.send_pending(&post().field("Incremental", value)).expect_err("it is read first");
        pending.cancel(&mut named);
    }
    let (_, pending) = start_call(&mut named, &Request::get("/").field("Incremental", "?1"));
    pending.cancel(&mut named);
    let mut unbuffered = kit(json!({ "response_buffers": 10 }));
    let (_, pending) = start_call(&mut unbuffered, &post().field("Incremental", "?1"));
    pending.cancel(&mut unbuffered);
}

// RFC 10036 §3 for responses. The members of earlier proxies stay (RFC 9209 §2), unless the field is not valid.
#[test]
fn responses() {
    let mut kit = kit(json!({ "response_buffers": 10, "proxy_status_name": "edge" }));
    for (earlier, want) in [
        (&[][..], "edge;error=incremental_refused"),
        (
            &[("Proxy-Status", "ExampleCDN; received-status=200")],
            "ExampleCDN;received-status=200, edge;error=incremental_refused",
        ),
        (&[("Proxy-Status", "a"), ("Proxy-Status", "\"b c\"")], "a, \"b c\", edge;error=incremental_refused"),
        (&[("Proxy-Status", "(a b)")], "edge;error=incremental_refused"),
        (&[("Proxy-Status", "1")], "edge;error=incremental_refused"),
        (&[("Proxy-Status", "a,,")], "edge;error=incremental_refused"),
    ] {
        let (call, pending) = start_call(&mut kit, &Request::get("/"));
        let fields: Vec<_> = [("Incremental", "?1")].iter().chain(earlier).copied().collect();
        call.answer(200, &fields, None);
        drop(call);
        let answer = pending.finish(&mut kit);
        assert_eq!((answer.status, answer.field("Proxy-Status")), (501, Some(want)), "{earlier:?}");
    }
    // Nothing to read first.
    let (call, pending) = start_call(&mut kit, &Request::new("HEAD", "/"));
    call.answer(200, &[("Incremental", "?1")], None);
    drop(call);
    assert_eq!(pending.finish(&mut kit).status, 200);
}

// FastCGI needs the length of content.
#[test]
fn content_of_unknown_length_for_fastcgi() {
    let options: Value = json!({ "transport": { "protocol": "fastcgi" } });
    let mut kit = kit(options);
    assert_eq!(refused(&mut kit, &post().body_open().field("Incremental", "?1")).0, 501);
    let (_, pending) = start_call(&mut kit, &post().field("Incremental", "?1"));
    pending.cancel(&mut kit);
}

//! UUIDs, and invalid targets.

use causeway_testkit::{Kit, Request};
use serde_json::json;

use crate::probe::registry;

fn kit(text: &str) -> Kit {
    let routes = json!([{ "handle": [
        { "handler": "probe", "mark": "b", "enter": "respond", "body": text },
    ] }]);
    Kit::new(&registry(), &routes)
}

// RFC 9562 §5.4: version 4, variant 10; one per request, constant during the request.
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

//! Exchange B after any exchange A equals B on fresh storage: recycled storage passes nothing on to the next
//! exchange, under one plan or another.

use causeway_pipeline::BodyError;
use causeway_testkit::counting::bytes_kept_by;
use causeway_testkit::{Kit, Request, TestResponse};
use serde_json::{Value, json};

use crate::probe::registry;

/// Many variables and groups, and one route for each kind of state that an exchange can leave.
fn plan() -> (Value, Value) {
    let on = |name: &str, handler: Value| json!({ "match": [{ "field": ["Do", name] }], "group": name, "handle": [handler] });
    let show = "{http.request.method} {http.request.uri} {http.request.uri.path} {http.request.host} {http.request.header.A} \
                {http.vars.v0}{http.vars.v1}{http.vars.v2} {http.request.header.Do} {http.error.status_code} {slot} \
                {http.vars.client_ip} {http.request.orig_uri}";
    let probe = |more: Value| {
        let mut probe = json!({ "handler": "probe", "mark": "p" });
        probe.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        probe
    };
    let routes = json!([
        on("head", probe(json!({ "set_field": ["A", "{http.request.uri}"], "set_target": "/edited%20path?q" }))),
        on("variables", probe(json!({ "set_variable": ["v0", "{http.request.uri}"] }))),
        on("variables", probe(json!({ "set_variable": ["v1", "never: the group is taken"] }))),
        on("grow", probe(json!({ "set_variable": ["v2", "x".repeat(100_000)], "set_field": ["A", "y".repeat(100_000)] }))),
        on("uuid", probe(json!({ "set_variable": ["v1", "{http.request.uuid}"] }))),
        on("interims", probe(json!({ "interim": true }))),
        on("body", probe(json!({ "take_body": true }))),
        on("fail", probe(json!({ "enter": "418" }))),
        on("abort", probe(json!({ "enter": "abort" }))),
        on("sleep", probe(json!({ "enter": "sleep-next", "interim": true }))),
        on("call", probe(json!({ "enter": "call", "routes": [{ "handle": [probe(json!({}))] }] }))),
        on("leave", probe(json!({ "leave": "502" }))),
        on("slot", probe(json!({ "set_slot": ["slot", "{http.request.uri}"] }))),
        on("limit", probe(json!({ "limit_body": 1, "take_body": true }))),
        on("text", probe(json!({ "set_variable": ["v0", "{http.request.body}"] }))),
        on("replace", probe(json!({ "replace_body": "replaced" }))),
        { "match": [{ "field": ["Do", "match"], "sleep": [true, null] }], "handle": [probe(json!({}))] },
        { "handle": [probe(json!({ "enter": "respond", "take_body": true, "body": show }))] },
    ]);
    let errors = json!([{ "handle": [probe(json!({ "enter": "respond", "body": show }))] }]);
    (routes, errors)
}

/// A plan with fewer slots, which have other meanings.
fn other_plan() -> Value {
    let body = "{slot}|{http.vars.other}|{http.request.uri}|{http.request.header.A}|{http.error.status_code}";
    let first = json!({ "handler": "probe", "mark": "o", "take_body": true });
    let last = json!({ "handler": "probe", "mark": "o", "enter": "respond", "body": body });
    json!([{ "group": "head", "handle": [first] }, { "handle": [last] }])
}

fn requests() -> Vec<Request> {
    let ways = [
        "",
        "head",
        "variables",
        "grow",
        "uuid",
        "interims",
        "body",
        "fail",
        "abort",
        "sleep",
        "call",
        "leave",
        "slot",
        "limit",
        "text",
        "replace",
        "match",
    ];
    let mut requests: Vec<_> = ways
        .iter()
        .map(|way| {
            Request::new("POST", &format!("/{way}%41?{way}"))
                .field("Do", *way)
                .field("X-Long", "z".repeat(40))
                .content("content")
        })
        .collect();
    requests.push(Request::new("BREW", "http://other.test/pot").field("Do", "head").content("body").trailer("T", "t"));
    requests.push(Request::get("/").field("Do", "fail").body_fails(BodyError::PeerGone).secure());
    requests.push(Request::get(&format!("/{}?{}", "%61".repeat(9000), "q".repeat(9000))).field("Do", "head"));
    requests.push(Request::get("/").without("host").content("left unread").field("Do", "abort").body_open());
    requests.push((0..200).fold(Request::get("/many"), |request, at| request.field(&format!("X-{at}"), "value")));
    requests
}

/// Removes the parts that differ between equal requests.
fn comparable(mut answer: TestResponse, request: &Request) -> TestResponse {
    if request.target().contains("uuid") {
        answer.body.clear();
        answer.length = None;
    }
    answer
}

#[test]
fn b_after_any_a_equals_b_on_fresh_storage() {
    let (routes, errors) = plan();
    let requests = requests();
    let fresh = |routes: &Value, errors: &Value, request: &Request| {
        comparable(Kit::with_errors(&registry(), routes, errors).send(request), request)
    };
    let wanted: Vec<_> = requests.iter().map(|request| fresh(&routes, &errors, request)).collect();
    let wanted_other: Vec<_> = requests.iter().map(|request| fresh(&other_plan(), &Value::Null, request)).collect();
    // The requests take different ways, so that equality is significant.
    assert!(wanted.iter().any(|answer| answer.aborted) && wanted.iter().any(|answer| !answer.interims.is_empty()));
    assert!(
        wanted[2].text().contains("/variables%41?variables POST")
            || wanted[2].text().contains("/variables%41?variables")
    );
    assert!(wanted[7].text().contains("fail 418"), "{}", wanted[7].text());
    for (at, a) in requests.iter().enumerate() {
        let mut kit = Kit::with_errors(&registry(), &routes, &errors);
        for (b, want) in requests.iter().zip(&wanted) {
            kit.send(a);
            assert_eq!(comparable(kit.send(b), b), *want, "{} after {}", b.target(), a.target());
        }
        // A peer that disconnects while A waits.
        if let Err(pending) = kit.send_pending(a) {
            pending.cancel(&mut kit);
        }
        kit.reload(&registry(), &other_plan(), &Value::Null);
        for (b, want) in requests.iter().zip(&wanted_other) {
            assert_eq!(comparable(kit.send(b), b), *want, "{} under another plan after request {at}", b.target());
        }
        kit.reload(&registry(), &routes, &errors);
        for (b, want) in requests.iter().zip(&wanted) {
            assert_eq!(comparable(kit.send(b), b), *want, "{} back under the first plan", b.target());
        }
    }
}

#[test]
fn grown_storage_is_given_back() {
    let text = "{http.request.header.X-0}".repeat(1000);
    // The number of buffers that grow: each may keep 16 KiB.
    for (why, more, parts) in [
        ("a head of many fields, and a long path", json!({}), 2),
        ("a head of many fields, and a long path, copied", json!({ "set_field": ["A", "1"] }), 3),
        ("a long variable, and its scratch buffer", json!({ "set_variable": ["v", text] }), 4),
    ] {
        let mut handler = json!({ "handler": "probe", "mark": "p", "enter": "sleep" });
        handler.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let mut kit = Kit::new(&registry(), &json!([{ "handle": [handler] }]));
        let large = (0..300).fold(Request::get(&format!("/{}", "%61".repeat(30_000))), |request, at| {
            request.field(&format!("X-{at}"), "v".repeat(300))
        });
        (0..3).for_each(|_| kit.run(&Request::get("/")));
        let kept = bytes_kept_by(|| {
            let mut open = None;
            let grown = bytes_kept_by(|| open = kit.send_pending(&large).err());
            assert!(grown > parts * 50_000, "{why}: it grew by only {grown}");
            open.expect("it sleeps").cancel(&mut kit);
        });
        assert!((0..parts * 16 * 1024 + 2048).contains(&kept), "{why}: {kept} bytes kept");
    }
}

//! Calls of httpgrpc to the peers' site (tests/peers/httpgrpc/cases/site.go) with their outcomes, which no intermediary
//! may change.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::peer::make;

/// The expected outcome of a call.
#[derive(Clone, Copy)]
pub(super) enum Want {
    /// A response with this status.
    Answer(u16),
    /// A 5xx response, sent as an error: the code is the status, and the only detail is the response.
    Error(u16),
    /// A failure without a response, with this gRPC code.
    Failed(i64),
}

/// The expected body.
#[derive(Clone, Copy)]
pub(super) enum ExpectedBody {
    Text(&'static str),
    Bytes(usize),
    Any,
}

pub(super) struct InteropCase {
    pub(super) name: &'static str,
    pub(super) call: Value,
    pub(super) want: Want,
    pub(super) body: ExpectedBody,
    /// Fields of the response with their expected values; an empty list means that the field must be absent.
    pub(super) fields: &'static [(&'static str, &'static [&'static str])],
}

fn get(name: &'static str, url: &str, want: Want, body: ExpectedBody) -> InteropCase {
    InteropCase { name, call: json!({ "method": "GET", "url": url }), want, body, fields: &[] }
}

fn post(name: &'static str, more: Value, body: ExpectedBody) -> InteropCase {
    let mut call = json!({ "method": "POST", "url": "/echo" });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    InteropCase { name, call, want: Want::Answer(200), body, fields: &[] }
}

impl InteropCase {
    fn having(self, fields: &'static [(&'static str, &'static [&'static str])]) -> Self {
        Self { fields, ..self }
    }
}

/// Returns the calls to the peers' site.
pub(super) fn cases() -> Vec<InteropCase> {
    use ExpectedBody::{Any, Bytes, Text};
    use Want::{Answer, Error, Failed};
    let mut cases = vec![
        get("bytes", "/bytes/1000", Answer(200), Bytes(1000))
            .having(&[("Content-Type", &["application/octet-stream"])]),
        get("no bytes", "/bytes/0", Answer(200), Bytes(0)),
        get("a message of one frame", "/bytes/16000", Answer(200), Bytes(16_000)),
        get("a message of many frames", "/bytes/1000000", Answer(200), Bytes(1_000_000)),
        get("nearly the limit", "/bytes/4194000", Answer(200), Bytes(4_194_000)),
        post("a body", json!({ "body": "some text" }), Text("some text")).having(&[
            ("X-Request-Method", &["POST"]),
            ("X-Request-Uri", &["/echo"]),
            ("X-Request-Length", &["9"]),
        ]),
        post("a body of a megabyte", json!({ "bytes": 1_000_000 }), Bytes(1_000_000)),
        post("a compressed message", json!({ "bytes": 100_000, "gzip": true }), Bytes(100_000)),
        post("many at once", json!({ "bytes": 50_000, "times": 200, "at_once": 50 }), Bytes(50_000)),
        post("fields", json!({ "fields": [["X-One", "1"], ["X-Empty", ""], ["X-Large", "x".repeat(8000)]] }), Text(""))
            .having(&[("Echo-X-One", &["1"]), ("Echo-X-Empty", &[""])]),
        get("a query", "/echo?a=b%20c&d", Answer(200), Text(""))
            .having(&[("X-Request-Query", &["a=b%20c&d"]), ("X-Request-Path", &["/echo"])]),
        get("two values of a field", "/cookies", Answer(200), Text("cookies\n"))
            .having(&[("Set-Cookie", &["one=1; Path=/", "two=2"])]),
        get("many fields", "/fields/60", Answer(200), Text("many fields\n"))
            .having(&[("X-Field-59", &["value of field 59"])]),
        get("not found", "/status/404", Answer(404), Text("status 404\n")).having(&[("X-Two-Values", &["one", "two"])]),
        get("no content", "/status/204?empty", Answer(204), Text("")),
        get("not modified", "/status/304?empty", Answer(304), Text("")),
        get("a redirect", "/status/302", Answer(302), Text("status 302\n")).having(&[("Location", &["/elsewhere"])]),
        get("a status without a name", "/status/499", Answer(499), Text("status 499\n")),
        get("an error", "/status/503", Error(503), Text("status 503\n"))
            .having(&[("X-Two-Values", &["one", "two"]), ("Content-Type", &["text/plain; charset=utf-8"])]),
        get("another error", "/status/599", Error(599), Text("status 599\n")),
        get("an error without content", "/status/500?empty", Error(500), Text("")),
        get("an error with some content", "/status/500?bytes=3000", Error(500), Any),
        get("deadline", "/slow/20000", Failed(4), Any),
    ];
    cases.last_mut().unwrap().call["timeout_ms"] = json!(300);
    let mut large = post("a request over the limit", json!({ "bytes": 5_000_000 }), Any);
    large.want = Failed(8);
    cases.push(large);
    for method in ["PUT", "DELETE", "PATCH", "OPTIONS", "SEARCH"] {
        let mut case = get(method, "/echo", Answer(200), Text("")).having(match method {
            "PUT" => &[("X-Request-Method", &["PUT"])],
            "DELETE" => &[("X-Request-Method", &["DELETE"])],
            "PATCH" => &[("X-Request-Method", &["PATCH"])],
            "OPTIONS" => &[("X-Request-Method", &["OPTIONS"])],
            _ => &[("X-Request-Method", &["SEARCH"])],
        });
        case.call["method"] = json!(method);
        cases.push(case);
    }
    cases
}

/// Makes all calls and checks their outcomes.
#[track_caller]
pub(super) fn check(client: &Path, options: &[&str], address: SocketAddr, cases: &[InteropCase]) {
    let calls: Vec<Value> = cases
        .iter()
        .map(|case| {
            let mut call = case.call.clone();
            call["name"] = json!(case.name);
            call
        })
        .collect();
    let outcomes = make(client, options, address, &calls);
    let wrong: Vec<String> = cases
        .iter()
        .zip(&outcomes)
        .filter_map(|(case, outcome)| Some(format!("{}: {}\n  {}", case.name, judge(case, outcome)?, shown(outcome))))
        .collect();
    assert!(wrong.is_empty(), "{} asks {address}:\n{}", client.display(), wrong.join("\n"));
}

/// Returns the first difference between an outcome and its expectation.
pub(super) fn judge(case: &InteropCase, outcome: &Value) -> Option<String> {
    let (code, status, details): (i64, u16, usize) = match case.want {
        Want::Answer(status) => (0, status, 0),
        Want::Error(status) => (i64::from(status), status, 1),
        Want::Failed(code) => (code, 0, 0),
    };
    let number_of = |name: &str| outcome[name].as_i64().unwrap_or(i64::MIN);
    if number_of("code") != code {
        return Some(format!("code {} ({}), expected {code}", number_of("code"), outcome["message"]));
    }
    if number_of("status") != i64::from(status) {
        return Some(format!("status {}, expected {status}", number_of("status")));
    }
    let types = outcome["details"].as_array().map_or(&[][..], Vec::as_slice);
    if types.len() != details || types.iter().any(|kind| kind != "type.googleapis.com/httpgrpc.HTTPResponse") {
        return Some(format!("details {types:?}, expected {details}"));
    }
    match case.body {
        ExpectedBody::Text(text) if outcome["body"] != text => {
            return Some(format!("body {}, expected {text:?}", outcome["body"]));
        }
        ExpectedBody::Bytes(count) if number_of("length") != count as i64 || outcome["pattern"] != true => {
            return Some(format!("{} bytes (pattern: {}), expected {count}", number_of("length"), outcome["pattern"]));
        }
        _ => {}
    }
    for (name, values) in case.fields {
        let found = outcome["fields"].as_object().into_iter().flatten();
        let found: Vec<&str> = found
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .flat_map(|(_, values)| values.as_array().into_iter().flatten().filter_map(Value::as_str))
            .collect();
        if found != **values {
            return Some(format!("field {name}: {found:?}, expected {values:?}"));
        }
    }
    None
}

/// Formats an outcome, cut to 600 characters.
pub(super) fn shown(outcome: &Value) -> String {
    outcome.to_string().chars().take(600).collect()
}

//! Calls of httpgrpc to the site that the peers serve (tests/peers/httpgrpc/cases/site.go), and what has to come of each, whoever stands between.

use std::net::SocketAddr;
use std::path::Path;

use serde_json::{Value, json};

use super::peer::make;

/// What a call has to come to.
#[derive(Clone, Copy)]
pub(super) enum Want {
    /// An answer with that status.
    Answer(u16),
    /// An answer of 5xx, which goes as an error: its code is the status, its one detail the answer.
    Error(u16),
    /// A call that failed without an answer, with gRPC's code.
    Failed(i64),
}

/// What its body has to be.
#[derive(Clone, Copy)]
pub(super) enum Body {
    Text(&'static str),
    Octets(usize),
    Any,
}

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) call: Value,
    pub(super) want: Want,
    pub(super) body: Body,
    /// Fields of the answer that have to be there, with their values; or that must not be there, without.
    pub(super) fields: &'static [(&'static str, &'static [&'static str])],
}

fn get(name: &'static str, url: &str, want: Want, body: Body) -> Case {
    Case { name, call: json!({ "method": "GET", "url": url }), want, body, fields: &[] }
}

fn post(name: &'static str, more: Value, body: Body) -> Case {
    let mut call = json!({ "method": "POST", "url": "/echo" });
    call.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Case { name, call, want: Want::Answer(200), body, fields: &[] }
}

impl Case {
    fn having(self, fields: &'static [(&'static str, &'static [&'static str])]) -> Self {
        Self { fields, ..self }
    }
}

/// Calls to the peers' site.
pub(super) fn cases() -> Vec<Case> {
    use Body::{Any, Octets, Text};
    use Want::{Answer, Error, Failed};
    let mut cases = vec![
        get("octets", "/octets/1000", Answer(200), Octets(1000))
            .having(&[("Content-Type", &["application/octet-stream"])]),
        get("no octets", "/octets/0", Answer(200), Octets(0)),
        get("a message of one frame", "/octets/16000", Answer(200), Octets(16_000)),
        get("a message of many frames", "/octets/1000000", Answer(200), Octets(1_000_000)),
        get("nearly the limit", "/octets/4194000", Answer(200), Octets(4_194_000)),
        post("a body", json!({ "body": "some text" }), Text("some text")).having(&[
            ("X-Request-Method", &["POST"]),
            ("X-Request-Uri", &["/echo"]),
            ("X-Request-Length", &["9"]),
        ]),
        post("a body of a megabyte", json!({ "octets": 1_000_000 }), Octets(1_000_000)),
        post("a compressed message", json!({ "octets": 100_000, "gzip": true }), Octets(100_000)),
        post("many at once", json!({ "octets": 50_000, "times": 200, "at_once": 50 }), Octets(50_000)),
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
        get("an error with some content", "/status/500?octets=3000", Error(500), Any),
        get("deadline", "/slow/20000", Failed(4), Any),
    ];
    cases.last_mut().unwrap().call["timeout_ms"] = json!(300);
    let mut large = post("a request over the limit", json!({ "octets": 5_000_000 }), Any);
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

/// Makes all calls and looks at what came.
#[track_caller]
pub(super) fn check(client: &Path, options: &[&str], address: SocketAddr, cases: &[Case]) {
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

/// What is wrong with an outcome.
pub(super) fn judge(case: &Case, outcome: &Value) -> Option<String> {
    let (code, status, details): (i64, u16, usize) = match case.want {
        Want::Answer(status) => (0, status, 0),
        Want::Error(status) => (i64::from(status), status, 1),
        Want::Failed(code) => (code, 0, 0),
    };
    let told = |name: &str| outcome[name].as_i64().unwrap_or(i64::MIN);
    if told("code") != code {
        return Some(format!("code {} ({}), expected {code}", told("code"), outcome["message"]));
    }
    if told("status") != i64::from(status) {
        return Some(format!("status {}, expected {status}", told("status")));
    }
    let types = outcome["details"].as_array().map_or(&[][..], Vec::as_slice);
    if types.len() != details || types.iter().any(|kind| kind != "type.googleapis.com/httpgrpc.HTTPResponse") {
        return Some(format!("details {types:?}, expected {details}"));
    }
    match case.body {
        Body::Text(text) if outcome["body"] != text => {
            return Some(format!("body {}, expected {text:?}", outcome["body"]));
        }
        Body::Octets(count) if told("length") != count as i64 || outcome["pattern"] != true => {
            return Some(format!("{} octets (pattern: {}), expected {count}", told("length"), outcome["pattern"]));
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

/// An outcome without what is long.
pub(super) fn shown(outcome: &Value) -> String {
    outcome.to_string().chars().take(600).collect()
}

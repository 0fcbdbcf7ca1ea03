//! `static_response`: a response from the configuration itself (`respond`, `redir`, `abort`).

use std::collections::BTreeMap;

use causeway_message::{Chunk, FieldValue, StatusCode, names};
use causeway_pipeline::{Build, BuildError, Context, Handler, Response, StateId, Step, Template};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::rendered::{FieldNameTemplate, FieldText, StatusTemplate, WeakString};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StaticResponseConfig {
    status_code: Option<WeakString>,
    #[serde(default)]
    headers: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    body: String,
    #[serde(default)]
    close: bool,
    #[serde(default)]
    abort: bool,
}

struct StaticResponse {
    status: Option<StatusTemplate>,
    fields: Box<[(FieldNameTemplate, Box<[FieldText]>)]>,
    body: StaticBody,
    close: bool,
    abort: bool,
}

enum StaticBody {
    /// A body without placeholders, and its Content-Type. Each worker has its own copy, so workers share no reference
    /// count.
    Fixed(StateId<Chunk>, FieldValue<'static>),
    Templated(Template),
}

const TEXT: FieldValue<'static> = FieldValue::from_static("text/plain; charset=utf-8");
const JSON: FieldValue<'static> = FieldValue::from_static("application/json");
const CLOSE: FieldValue<'static> = FieldValue::from_static("close");

/// Compiles the handler from its JSON. A body without placeholders is classified once, here.
///
/// # Errors
/// If the status code or a header name is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: StaticResponseConfig = build.parse_module(value)?;
    let status = StatusTemplate::parse(written.status_code, build)?;
    let mut fields = Vec::with_capacity(written.headers.len());
    for (name, values) in written.headers {
        fields.push((
            FieldNameTemplate::build(&name, build)?,
            values.iter().map(|value| FieldText::build(value, build)).collect(),
        ));
    }
    let body = build.template_keeping_unknown(&written.body);
    let body = match body.literal().map(|literal| literal.as_bytes().to_vec()) {
        Some(literal) => {
            let kind = kind_of(&literal);
            StaticBody::Fixed(build.allocate_state(move |_| Chunk::from(literal.clone())), kind)
        }
        None => StaticBody::Templated(body),
    };
    let (close, abort) = (written.close, written.abort);
    Ok(Box::new(StaticResponse { status, fields: fields.into(), body, close, abort }))
}

impl Handler for StaticResponse {
    fn enter(&self, cx: &mut Context) -> Step {
        if self.abort {
            return Step::Abort;
        }
        if self.close {
            cx.response_mut().set(names::CONNECTION, CLOSE);
        }
        for (name, values) in &self.fields {
            name.with(cx, |cx, name| {
                // Configured values replace those of earlier handlers; an empty list only removes.
                cx.response_mut().remove(name);
                for value in values {
                    value.with(cx, |cx, value| cx.response_mut().append(name, value));
                }
            });
        }
        let (body, kind) = match &self.body {
            StaticBody::Fixed(id, kind) => (cx.generation().state(*id).clone(), Some(*kind)),
            StaticBody::Templated(template) => (cx.render(template), None),
        };
        if !body.is_empty() && cx.response().fields().get(names::CONTENT_TYPE).is_none_or(<[u8]>::is_empty) {
            // The type of a dynamic body depends on its expansion.
            let kind = kind.unwrap_or_else(|| kind_of(body.as_slice()));
            cx.response_mut().set(names::CONTENT_TYPE, kind);
        }
        let status = match &self.status {
            Some(status) => match status.of(cx) {
                Ok(status) => status,
                Err(fault) => return Step::Fail(fault),
            },
            // In an error route the default is the error's own status.
            None => cx.fault().map_or(StatusCode::OK, |fault| fault.status),
        };
        if status == StatusCode::EARLY_HINTS {
            // Not the final response (RFC 8297 §2): a later handler produces it, with the same fields.
            let fields = cx.response().fields().clone();
            cx.push_interim(status, fields);
            return Step::Next;
        }
        Step::Respond(Response::chunk(status, body))
    }
}

/// Returns the Content-Type as Caddy documents it for `respond`: JSON for a valid JSON object or array, else plain
/// text.
fn kind_of(body: &[u8]) -> FieldValue<'static> {
    let content = body.trim_ascii();
    // Two bytes would be `{}` or `[]`, which Caddy serves as plain text.
    let in_brackets = matches!(content, [b'{', _, .., b'}'] | [b'[', _, .., b']']);
    if in_brackets && serde_json::from_slice::<IgnoredAny>(content).is_ok() { JSON } else { TEXT }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request, TestResponse};
    use serde_json::{Value, json};

    fn send(mut handler: Value, request: &Request) -> TestResponse {
        handler["handler"] = json!("static_response");
        let mut registry = Registry::default();
        crate::register(&mut registry);
        Kit::new(&registry, &json!([{ "handle": [handler] }])).send(request)
    }

    // Caddy, http.handlers.static_response: "If status code is unspecified, 200", a number or a string, placeholders
    // allowed.
    #[test]
    fn status_and_body() {
        let request = Request::get("/418?x").field("X", "y");
        for (handler, status, body) in [
            (json!({}), 200, ""),
            (json!({ "status_code": 204 }), 204, ""),
            (json!({ "status_code": "404", "body": "no\n" }), 404, "no\n"),
            (json!({ "status_code": "{http.request.header.X}" }), 500, ""),
            (
                json!({ "body": "{http.request.method} {http.request.uri} {http.request.header.x}{nope}" }),
                200,
                "GET /418?x y{nope}",
            ),
        ] {
            let answer = send(handler.clone(), &request);
            assert_eq!((answer.status, answer.text()), (status, body), "{handler}");
        }
        let status = send(json!({ "status_code": "{http.request.header.X}" }), &Request::get("/").field("X", "299"));
        assert_eq!(status.status, 299);
    }

    // A status that is known at load is read at load.
    #[test]
    fn status_known_at_load() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        registry.set_environment(|name| (name == "STATUS").then(|| "404".to_owned()));
        let routes = |status: &str| json!([{ "handle": [{ "handler": "static_response", "status_code": status }] }]);
        assert_eq!(Kit::new(&registry, &routes("{env.STATUS}")).send(&Request::get("/")).status, 404);
        let error = Kit::build(&registry, &routes("{env.STATUS}0"), &Value::Null).err().expect("no status");
        assert!(error.to_string().contains("found '{env.STATUS}0', expected a status code"), "{error}");
    }

    // Caddy, `respond`: Content-Type is text/plain; charset=utf-8 unless set, application/json for valid JSON.
    #[test]
    fn content_type() {
        for (body, want) in [
            ("hello", Some("text/plain; charset=utf-8")),
            ("<p>", Some("text/plain; charset=utf-8")),
            ("", None),
            ("{}", Some("text/plain; charset=utf-8")),
            (" {\"a\": [1]}\n", Some("application/json")),
            ("[1, 2]", Some("application/json")),
            ("[1, 2", Some("text/plain; charset=utf-8")),
            ("{1}", Some("text/plain; charset=utf-8")),
            ("[\"{http.request.method}\"]", Some("application/json")),
        ] {
            let answer = send(json!({ "body": body }), &Request::get("/"));
            assert_eq!(answer.field("content-type"), want, "{body:?}");
        }
        let answer = send(json!({ "body": "x", "headers": { "content-type": ["a/b"] } }), &Request::get("/"));
        assert_eq!(answer.field("content-type"), Some("a/b"));
    }

    #[test]
    fn fields_close_abort_and_early_hints() {
        let answer =
            send(json!({ "headers": { "X-A": ["1", "{http.request.host}"], "Server": [] } }), &Request::get("/"));
        assert_eq!(answer.fields, [("X-A".to_owned(), "1".to_owned()), ("X-A".to_owned(), "localhost".to_owned())]);
        assert_eq!(send(json!({ "close": true }), &Request::get("/")).field("connection"), Some("close"));
        assert!(send(json!({ "abort": true, "body": "x" }), &Request::get("/")).aborted);
        let hints = json!({ "status_code": 103, "headers": { "Link": ["</a.css>; rel=preload"] } });
        let answer = send(hints, &Request::get("/"));
        assert_eq!((answer.status, answer.interims.len()), (200, 1));
        assert_eq!(answer.interims[0].1.get(causeway_message::names::LINK), Some(&b"</a.css>; rel=preload"[..]));
    }

    #[test]
    fn a_value_never_splits_the_head() {
        let handler = json!({ "headers": { "X-A": [" a\r\nSet-Cookie: b\u{0} "] } });
        assert_eq!(send(handler, &Request::get("/")).field("x-a"), Some("a  Set-Cookie: b"));
    }

    #[test]
    fn refused() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        for (handler, want) in [
            (
                json!({ "status_code": "20" }),
                "routes[0].handle[0].status_code: found '20', expected a status code from 100 to 999",
            ),
            (json!({ "status_code": [] }), "expected a string, a number or a boolean"),
            (json!({ "headers": { "a b": [] } }), "found 'a b', expected a field name"),
            (json!({ "bdoy": "" }), "unknown field `bdoy`"),
        ] {
            let mut handler = handler;
            handler["handler"] = json!("static_response");
            let error = Kit::build(&registry, &json!([{ "handle": [handler] }]), &Value::Null).err().expect(want);
            assert!(error.to_string().contains(want), "{error}");
        }
    }
}

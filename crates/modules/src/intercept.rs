//! `intercept`: for matching responses of later handlers, another status, or routes that may replace them.

use std::io::Write as _;

use causeway_message::FieldName;
use causeway_pipeline::context::{ValueKind, VarId};
use causeway_pipeline::{Body, Build, BuildError, Context, FamilyId, Fault, Handler, Response, Step};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::reverse_proxy::handle_response::ResponseRoutes;

/// The placeholders about the response.
const PLACEHOLDERS: &str = "http.intercept.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InterceptConfig {
    /// Only the shape is checked here; [`ResponseRoutes`] reads the entries without a copy.
    #[serde(default, rename = "handle_response")]
    _handle_response: Vec<IgnoredAny>,
}

struct Intercept {
    entries: Box<[ResponseRoutes]>,
    placeholders: FamilyId,
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// If a response matcher, a status code or a route is not valid.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let InterceptConfig { .. } = build.parse_module(value)?;
    let written = value.get("handle_response").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let entries = written.iter().enumerate().map(|(index, entry)| {
        build.at(format!("handle_response[{index}]"), |build| ResponseRoutes::build(entry, build))
    });
    let entries = entries.collect::<Result<_, _>>()?;
    Ok(Box::new(Intercept { entries, placeholders: build.allocate_family(PLACEHOLDERS) }))
}

impl Intercept {
    /// Sets the placeholders that the plan uses.
    fn set_placeholders(&self, cx: &mut Context, response: &Response) {
        let generation = std::rc::Rc::clone(cx.generation());
        for (name, id) in generation.plan().family(self.placeholders) {
            cx.with_scratch(|cx, text| set(cx, name, *id, response, text));
        }
    }
}

fn set(cx: &mut Context, name: &str, id: VarId, response: &Response, text: &mut Vec<u8>) {
    if name == "status_code" {
        // Writing to a vector cannot fail.
        let _ = write!(text, "{}", response.status.as_u16());
        cx.set_variable_value(id, text, ValueKind::Scalar);
    } else {
        let field = name.strip_prefix("header.").and_then(FieldName::parse);
        if !field.is_some_and(|field| cx.response().fields().write_joined(field.as_ref(), text)) {
            return cx.unset_variable(id);
        }
        cx.set_variable_text(id, text);
    }
}

impl Handler for Intercept {
    fn enter(&self, _cx: &mut Context) -> Step {
        Step::Next
    }

    fn leave(&self, cx: &mut Context, mut response: Response) -> Step {
        if let Some(old) = cx.take_replaced() {
            // Caddy: without new content the old one is sent, with the new status if there is one.
            if response.body.is_empty() {
                response.body = old.body;
            }
            return Step::Respond(response);
        }
        if matches!(response.body, Body::Tunnel(_)) {
            return Step::Respond(response);
        }
        let fields = cx.response().fields();
        let Some(entry) = self.entries.iter().find(|entry| entry.are_for(fields, response.status)) else {
            return Step::Respond(response);
        };
        match entry.status(cx) {
            Some(Ok(status)) => Step::Respond(Response { status, ..response }),
            Some(Err(fault)) => Step::Fail(fault),
            None => {
                let list = entry.list();
                self.set_placeholders(cx, &response);
                cx.replace_response(response, list)
            }
        }
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        drop(cx.take_replaced());
        Step::Fail(fault)
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request};
    use serde_json::json;

    use super::*;

    fn registry() -> Registry {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        registry
    }

    /// Routes with `intercept` before handlers that respond by path.
    fn kit(intercept: Value) -> Kit {
        let mut intercept = intercept;
        intercept["handler"] = "intercept".into();
        let answer = |path: &str, status: u16, body: &str| {
            json!({ "match": [{ "path": [path] }], "handle": [
                { "handler": "static_response", "status_code": status, "body": body, "headers": { "X-Old": ["a", "b"] } },
            ] })
        };
        let routes = json!([
            { "handle": [intercept] },
            answer("/missing", 404, "old"),
            answer("/empty", 404, ""),
            answer("/busy", 503, "old"),
            { "match": [{ "path": ["/fails"] }], "handle": [{ "handler": "error", "status_code": 404 }] },
            answer("*", 200, "old"),
        ]);
        Kit::new(&registry(), &routes)
    }

    fn routes(handlers: Value) -> Value {
        json!([{ "handle": handlers }])
    }

    // Caddy's documentation of `intercept`: the first entry that matches handles the response; `replace_status` changes
    // the status alone.
    #[test]
    fn responses_are_replaced() {
        let respond = json!({
            "handler": "static_response", "status_code": 410,
            "body": "{http.intercept.status_code} {http.intercept.header.X-Old} {http.intercept.header.X-None}",
        });
        let mut kit = kit(json!({ "handle_response": [
            { "match": { "status_code": [404] }, "routes": routes(json!([respond])) },
            { "match": { "status_code": [5] }, "status_code": 500 },
        ] }));
        let answer = kit.send(&Request::get("/missing"));
        // As in Caddy, the placeholder of a field that is absent stays as it is.
        assert_eq!((answer.status, answer.text()), (410, "404 a,b {http.intercept.header.X-None}"));
        assert_eq!(answer.values("X-Old").collect::<Vec<_>>(), ["a", "b"], "the fields of the old response stay");
        let answer = kit.send(&Request::get("/busy"));
        assert_eq!((answer.status, answer.text()), (500, "old"));
        let answer = kit.send(&Request::get("/"));
        assert_eq!((answer.status, answer.text()), (200, "old"));
    }

    // Caddy, intercept: without a new status the old one is sent, without new content the old content.
    #[test]
    fn a_response_is_kept_unless_routes_respond() {
        let set = json!({ "handler": "headers", "response": { "set": { "X-New": ["1"] } } });
        let empty = json!({ "handler": "static_response", "status_code": 410 });
        for (handlers, path, status, body) in [
            (json!([set]), "/missing", 404, "old"),
            (json!([]), "/missing", 404, "old"),
            (json!([set, empty]), "/missing", 410, "old"),
            (json!([set, empty]), "/empty", 410, ""),
        ] {
            let mut kit = kit(json!({ "handle_response": [{ "routes": routes(handlers.clone()) }] }));
            let answer = kit.send(&Request::get(path));
            assert_eq!((answer.status, answer.text()), (status, body), "{handlers}");
            assert_eq!(answer.field("X-New").is_some(), handlers != json!([]), "{handlers}");
        }
    }

    // A failure passes by: it is no response. One of the routes themselves replaces the response.
    #[test]
    fn failures_are_not_intercepted() {
        let fail = json!({ "handler": "error", "status_code": 507 });
        let mut kit =
            kit(json!({ "handle_response": [{ "match": { "status_code": [404] }, "routes": routes(json!([fail])) }] }));
        assert_eq!(kit.send(&Request::get("/fails")).status, 404);
        let answer = kit.send(&Request::get("/missing"));
        assert_eq!((answer.status, answer.text()), (507, ""));
        assert_eq!(kit.send(&Request::get("/")).text(), "old", "nothing is left of the exchange before");
    }

    // Routes that intercept the responses of their own handlers: the inner response is replaced first.
    #[test]
    fn nested() {
        let inner = json!({ "handler": "intercept", "handle_response": [{ "routes": routes(json!([
            { "handler": "headers", "response": { "set": { "X-Inner": ["{http.intercept.status_code}"] } } },
        ])) }] });
        let respond = json!({ "handler": "static_response", "status_code": 410, "body": "new" });
        let mut kit = kit(json!({ "handle_response": [
            { "match": { "status_code": [404] }, "routes": routes(json!([inner, respond])) },
        ] }));
        let answer = kit.send(&Request::get("/missing"));
        assert_eq!((answer.status, answer.text(), answer.field("X-Inner")), (410, "new", Some("410")));
    }

    #[test]
    fn bad_configurations_name_the_place() {
        for (value, want) in [
            (json!({ "handle_response": [{ "status_code": "x" }] }), "handle_response[0].status_code"),
            (json!({ "handle_response": { "routes": [] } }), "handle_response: found an object, expected a list"),
            (
                json!({ "handle_response": [{ "match": { "status": [1] } }] }),
                "handle_response[0].match.status: unknown field `status`",
            ),
            (json!({ "respond": 1 }), "respond"),
        ] {
            let mut value = value;
            value["handler"] = "intercept".into();
            let error =
                Kit::build(&registry(), &routes(json!([value])), &json!([])).err().expect("it is refused").to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}

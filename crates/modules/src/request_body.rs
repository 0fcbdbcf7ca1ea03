//! `request_body`: limits the size of the request's body, or replaces the body.

use causeway_pipeline::{BodyError, Build, BuildError, Context, Fault, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestBodyConfig {
    #[serde(default)]
    max_size: i64,
    #[serde(default)]
    set: String,
}

struct RequestBody {
    bytes_max: Option<u64>,
    set: Option<Template>,
}

/// Compiles the handler from its JSON. A `max_size` of zero or less means no limit; an empty `set` keeps the body.
///
/// # Errors
/// If an option is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: RequestBodyConfig = build.parse_module(value)?;
    let bytes_max = u64::try_from(written.max_size).ok().filter(|&max| max > 0);
    let set = (!written.set.is_empty()).then(|| build.template_keeping_unknown(&written.set));
    Ok(Box::new(RequestBody { bytes_max, set }))
}

impl Handler for RequestBody {
    fn enter(&self, cx: &mut Context) -> Step {
        if let Some(set) = &self.set {
            let body = cx.render(set);
            cx.replace_body(body);
        }
        let Some(max) = self.bytes_max else { return Step::Next };
        // Before the limit, beyond which a replacement's length is not known any more.
        let declared = cx.declared_body_len();
        // Set the limit before failing: error routes may also read the body.
        cx.limit_body(max);
        match declared {
            Some(declared) if declared > max => Step::Fail(Fault::from_body_error(BodyError::TooLarge)),
            _ => Step::Next,
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request};
    use serde_json::{Value, json};

    // Caddy, http.handlers.request_body: a declared length above the limit fails with 413 at once. An undeclared length
    // is only discovered when the body is read: then a matcher fails the request with 413, and in a handler the
    // placeholder expands to the error. `set` replaces the body after expanding its known placeholders.
    #[test]
    fn limits_and_replacements() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let long = || Request::new("POST", "/").content("0123456789");
        for (options, request, status, body) in [
            (json!({ "max_size": 10 }), long().field("Content-Length", "10"), 200, "0123456789"),
            (json!({ "max_size": 9 }), long().field("Content-Length", "10"), 413, ""),
            (json!({ "max_size": 9 }), long(), 200, "request body: http: request body too large"),
            (json!({ "max_size": 0 }), long(), 200, "0123456789"),
            (json!({ "set": "{\"a\": {http.request.method}}" }), long(), 200, "{\"a\": POST}"),
            (json!({ "set": "0123456789", "max_size": 9 }), Request::get("/"), 413, ""),
            (json!({ "set": "short", "max_size": 9 }), long().field("Content-Length", "10"), 200, "short"),
        ] {
            let mut handler = options.clone();
            handler["handler"] = json!("request_body");
            let respond = json!({ "handler": "static_response", "body": "{http.request.body}" });
            let answer = Kit::new(&registry, &json!([{ "handle": [handler, respond] }])).send(&request);
            assert_eq!((answer.status, answer.text()), (status, body), "{options}");
        }
        // Caddy: `set` also sets the request's length, by which a later limit judges.
        for (set, request, status) in
            [("short", long().field("Content-Length", "10"), 200), ("0123456789", Request::get("/"), 413)]
        {
            let handlers = json!([
                { "handler": "request_body", "set": set },
                { "handler": "request_body", "max_size": 9 },
                { "handler": "static_response", "body": "{http.request.body}" },
            ]);
            let answer = Kit::new(&registry, &json!([{ "handle": handlers }])).send(&request);
            assert_eq!((answer.status, answer.text()), (status, if status == 200 { set } else { "" }), "{set}");
        }
        let limit = json!({ "handler": "request_body", "max_size": 9 });
        let matched = json!({ "handler": "subroute", "routes": [{
            "match": [{ "vars_regexp": { "{http.request.body}": { "pattern": "^0" } } }],
            "handle": [{ "handler": "static_response", "body": "matched" }],
        }]});
        assert_eq!(Kit::new(&registry, &json!([{ "handle": [limit, matched] }])).send(&long()).status, 413);
        // Also after a handler has used the error's text.
        let text = json!({ "handler": "headers", "response": { "set": { "X-Text": ["{http.request.body}"] } } });
        assert_eq!(Kit::new(&registry, &json!([{ "handle": [limit, text, matched] }])).send(&long()).status, 413);
        // No handler reads the body, so the limit is never exceeded.
        let handlers =
            json!([{ "handler": "request_body", "max_size": 1 }, { "handler": "static_response", "body": "ok" }]);
        assert_eq!(Kit::new(&registry, &json!([{ "handle": handlers }])).send(&long()).status, 200);
        let routes = json!([{ "handle": [{ "handler": "request_body", "read_timeout": "1s" }] }]);
        let error = Kit::build(&registry, &routes, &Value::Null).err().expect("Caddy has taken it out");
        assert!(error.to_string().contains("unknown field `read_timeout`"), "{error}");
    }
}

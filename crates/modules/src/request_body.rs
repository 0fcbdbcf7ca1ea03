//! `request_body`: limits the request's body, or puts another one in its place.

use causeway_pipeline::{BodyFault, Build, BuildError, Context, Fault, Handler, Step, Template};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    max_size: i64,
    #[serde(default)]
    set: String,
}

struct RequestBody {
    octets_max: Option<u64>,
    set: Option<Template>,
}

/// Makes the handler.
///
/// # Errors
/// When an option is unknown.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let written: Written = build.parse(value)?;
    let octets_max = u64::try_from(written.max_size).ok().filter(|&max| max > 0);
    let set = (!written.set.is_empty()).then(|| build.template_of_known(&written.set));
    Ok(Box::new(RequestBody { octets_max, set }))
}

impl Handler for RequestBody {
    fn enter(&self, cx: &mut Context) -> Step {
        // What is no length the machine has refused.
        let mut known = cx.head().fields().content_length().ok().flatten();
        if let Some(set) = &self.set {
            let body = cx.render(set);
            known = Some(body.len() as u64);
            cx.replace_body(body);
        }
        let Some(max) = self.octets_max else { return Step::Next };
        // Before it is refused: error routes may read it too.
        cx.limit_body(max);
        match known {
            Some(known) if known > max => Step::Fail(Fault::body(BodyFault::TooLarge)),
            _ => Step::Next,
        }
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::{Kit, Request};
    use serde_json::{Value, json};

    // Caddy, http.handlers.request_body: a declared length beyond the limit is 413 at once, an undeclared one when it is read;
    // `set` replaces the body, its known placeholders filled in.
    #[test]
    fn limits_and_replacements() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        let long = || Request::new("POST", "/").content("0123456789");
        for (options, request, status, body) in [
            (json!({ "max_size": 10 }), long().field("Content-Length", "10"), 200, "0123456789"),
            (json!({ "max_size": 9 }), long().field("Content-Length", "10"), 413, ""),
            (json!({ "max_size": 9 }), long(), 413, ""),
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
        // Nobody reads it: nothing is too large.
        let handlers =
            json!([{ "handler": "request_body", "max_size": 1 }, { "handler": "static_response", "body": "ok" }]);
        assert_eq!(Kit::new(&registry, &json!([{ "handle": handlers }])).send(&long()).status, 200);
        let routes = json!([{ "handle": [{ "handler": "request_body", "read_timeout": "1s" }] }]);
        let error = Kit::build(&registry, &routes, &Value::Null).err().expect("Caddy has taken it out");
        assert!(error.to_string().contains("unknown field `read_timeout`"), "{error}");
    }
}

//! `log_append`: adds a field to the request's access record.

use causeway_pipeline::context::VarId;
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Response, Step, Template};
use serde::Deserialize;
use serde_json::Value;

/// Prefixes of the variables that hold the fields; the rest is the field's name.
pub(crate) const TEXTS: &str = "http.log_append.text.";
pub(crate) const NUMBERS: &str = "http.log_append.number.";

/// Placeholders whose values are numbers in Caddy's records.
const NUMERIC: &[&str] = &[
    "{http.error.status_code}",
    "{http.request.local.port}",
    "{http.request.port}",
    "{http.request.remote.port}",
    "{http.reverse_proxy.status_code}",
    "{time.now.unix}",
    "{time.now.unix_ms}",
];
/// Contents that Caddy's handler copies. Here a response's content is never kept as a whole.
const RESPONSE_BODIES: [&str; 2] = ["{http.response.body}", "{http.response.body_base64}"];
const REQUEST_BODIES: [&str; 2] = ["{http.request.body}", "{http.request.body_base64}"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LogAppendConfig {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    /// Whether the value is taken before the later handlers run.
    #[serde(default)]
    early: bool,
}

struct LogAppend {
    slot: VarId,
    source: Source,
    early: bool,
}

enum Source {
    Placeholder(Template),
    /// The variable of this name, or the name itself if no handler has set it.
    Variable(VarId, Box<str>),
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// No key, or the content of the response as the value.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let LogAppendConfig { key, value, early } = build.parse(value)?;
    if key.is_empty() {
        return build.at("key", |build| Err(build.refuse("nothing", "the name of a field")));
    }
    if RESPONSE_BODIES.contains(&&*value) {
        let expected = "another value: the content of a response is not kept for its record";
        return build.at("value", |build| Err(build.refuse(value, expected)));
    }
    let early = early || REQUEST_BODIES.contains(&&*value);
    let prefix = if NUMERIC.contains(&&*value) { NUMBERS } else { TEXTS };
    let slot = build.slot(&format!("{prefix}{key}"));
    // Caddy's rule: only a value that is one placeholder is replaced.
    let is_placeholder = value.starts_with('{') && value.ends_with('}') && value.matches('{').count() == 1;
    let source = match is_placeholder {
        true => Source::Placeholder(build.template(&value)),
        false => Source::Variable(build.variable(&value), value.into()),
    };
    Ok(Box::new(LogAppend { slot, source, early }))
}

impl LogAppend {
    fn set(&self, cx: &mut Context) {
        match &self.source {
            Source::Placeholder(template) => cx.set_variable(self.slot, template),
            Source::Variable(variable, name) => cx.with_scratch(|cx, text| {
                text.extend_from_slice(cx.variable(*variable).unwrap_or(name.as_bytes()));
                cx.set_variable_text(self.slot, text);
            }),
        }
    }
}

impl Handler for LogAppend {
    fn enter(&self, cx: &mut Context) -> Step {
        if self.early {
            self.set(cx);
        }
        Step::Next
    }

    fn leave(&self, cx: &mut Context, response: Response) -> Step {
        if !self.early {
            self.set(cx);
        }
        Step::Respond(response)
    }

    fn failed(&self, cx: &mut Context, fault: Fault) -> Step {
        if !self.early {
            self.set(cx);
        }
        Step::Fail(fault)
    }
}

#[cfg(test)]
mod tests {
    use causeway_pipeline::Registry;
    use causeway_testkit::Kit;
    use serde_json::json;

    #[test]
    fn mistakes() {
        let mut registry = Registry::default();
        crate::register(&mut registry);
        for (handler, want) in [
            (json!({ "handler": "log_append" }), "key: found 'nothing', expected the name of a field"),
            (
                json!({ "handler": "log_append", "key": "a", "value": "{http.response.body}" }),
                "value: found '{http.response.body}', expected another value: the content of a response is not kept for its record",
            ),
        ] {
            let error = Kit::build(&registry, &json!([{ "handle": [handler] }]), &json!([])).err().expect("a mistake");
            assert_eq!(error.to_string(), format!("routes[0].handle[0].{want}"));
        }
    }
}

//! `log_append`: adds a field to the request's access record.

use std::io::Write as _;
use std::time::{Duration, Instant};

use causeway_pipeline::build::nanoseconds;
use causeway_pipeline::context::{ValueKind, VarId};
use causeway_pipeline::{Build, BuildError, Context, Fault, Handler, Outcome, Response, Step, Template};
use serde::Deserialize;
use serde_json::Value;

use crate::logs::LogValue;
use crate::rendered::is_placeholder;

/// Prefix of the variables that hold the fields; the rest is the field's name.
pub(crate) const FIELDS: &str = "http.log_append.value.";
/// As [`FIELDS`], for a time span that ends with the exchange. The value is the beginning, in nanoseconds after the
/// request's arrival.
pub(crate) const SPANS: &str = "http.log_append.span.";
/// As [`SPANS`], for a record in milliseconds.
pub(crate) const SPANS_MS: &str = "http.log_append.span_ms.";

/// Placeholders of time spans that end with the exchange, and the slots of their beginnings.
const SPAN_PLACEHOLDERS: &[(&str, Option<&str>)] = &[
    ("http.request.duration", None),
    ("http.reverse_proxy.duration", Some("http.reverse_proxy.began")),
    ("http.reverse_proxy.upstream.duration", Some("http.reverse_proxy.upstream.began")),
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
    /// The beginning of a time span, which is the request's arrival without a variable.
    Span(Option<VarId>),
}

/// Compiles the handler from its JSON.
///
/// # Errors
/// No key, or the content of the response as the value.
pub fn make(value: &Value, build: &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> {
    let LogAppendConfig { key, value, early } = build.parse_module(value)?;
    if key.is_empty() {
        return build.at("key", |build| Err(build.refuse("nothing", "the name of a field")));
    }
    if RESPONSE_BODIES.contains(&&*value) {
        let expected = "another value: the content of a response is not kept for its record";
        return build.at("value", |build| Err(build.refuse(value, expected)));
    }
    let early = early || REQUEST_BODIES.contains(&&*value);
    // Caddy's rule: only a value that is one placeholder is replaced.
    let is_placeholder = is_placeholder(&value);
    let name = value.trim_matches(['{', '}']);
    let (name, is_ms) = name.strip_suffix("_ms").map_or((name, false), |name| (name, true));
    let span = SPAN_PLACEHOLDERS.iter().find(|(span, _)| is_placeholder && !early && *span == name);
    let (prefix, source) = match (span, is_placeholder) {
        (Some((_, began)), _) => {
            let began = began.map(|began| build.allocate_slot(began));
            (if is_ms { SPANS_MS } else { SPANS }, Source::Span(began))
        }
        (None, true) => (FIELDS, Source::Placeholder(build.template(&value))),
        (None, false) => (FIELDS, Source::Variable(build.allocate_variable(&value), value.into())),
    };
    let slot = build.allocate_slot(&format!("{prefix}{key}"));
    Ok(Box::new(LogAppend { slot, source, early }))
}

impl LogAppend {
    fn set(&self, cx: &mut Context) {
        cx.with_scratch(|cx, text| {
            let kind = match &self.source {
                Source::Placeholder(template) => template.render_value(cx, text),
                Source::Variable(variable, name) => match cx.variable(*variable) {
                    Some(value) => {
                        text.extend_from_slice(value);
                        cx.variable_kind(*variable)
                    }
                    None => {
                        text.extend_from_slice(name.as_bytes());
                        ValueKind::Text
                    }
                },
                Source::Span(None) => {
                    text.push(b'0');
                    ValueKind::Scalar
                }
                Source::Span(Some(began)) => {
                    text.extend_from_slice(cx.variable(*began).unwrap_or_default());
                    cx.variable_kind(*began)
                }
            };
            cx.set_variable_value(self.slot, text, kind);
        });
    }
}

/// Sets the beginning of a time span.
pub(crate) fn begin_span(cx: &mut Context, slot: VarId, began: Instant) {
    let since = began.saturating_duration_since(cx.arrival().at);
    cx.with_scratch(|cx, text| {
        // Writing to a vector cannot fail.
        let _ = write!(text, "{}", since.as_nanos());
        cx.set_variable_value(slot, text, ValueKind::Scalar);
    });
}

/// Returns the value that `log_append` set as a record has it, with the type of Caddy's.
pub(crate) fn logged<'c>(cx: &'c Context, field: VarId) -> Option<LogValue<'c>> {
    let written = cx.variable(field)?;
    let text = std::str::from_utf8(written).unwrap_or_default();
    let typed = match cx.variable_kind(field) {
        ValueKind::Null => Some(LogValue::Null),
        ValueKind::Text => None,
        ValueKind::Scalar => scalar(text),
        ValueKind::Duration => nanoseconds(text)
            .and_then(|span| u64::try_from(span).ok())
            .map(Duration::from_nanos)
            .map(LogValue::Duration),
    };
    Some(typed.unwrap_or(LogValue::Text(written)))
}

/// A time span that has ended with the exchange.
pub(crate) enum LoggedSpan {
    NotBegun,
    Took(Duration),
}

/// Returns the time span of a variable; `None` if the variable is not set.
pub(crate) fn span(cx: &Context, field: VarId, outcome: &Outcome) -> Option<LoggedSpan> {
    let began = std::str::from_utf8(cx.variable(field)?).ok().and_then(|began| began.parse().ok());
    Some(began.map_or(LoggedSpan::NotBegun, |began| {
        LoggedSpan::Took(outcome.took.saturating_sub(Duration::from_nanos(began)))
    }))
}

fn scalar(text: &str) -> Option<LogValue<'static>> {
    match text {
        "true" => return Some(LogValue::Bool(true)),
        "false" => return Some(LogValue::Bool(false)),
        _ => {}
    }
    let unsigned = text.parse().map(LogValue::Unsigned);
    unsigned.or_else(|_| text.parse().map(LogValue::Signed)).or_else(|_| text.parse().map(LogValue::Float)).ok()
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

//! Configured strings as field names, field values and status codes.

use causeway_message::{FieldName, FieldValue, NameRef, OwnedValue, StatusCode};
use causeway_pipeline::{Build, BuildError, Context, Fault, Reason, Template};
use serde::Deserialize;
use serde_json::Value;

/// Calls `set` with the bytes as a field value. Bytes not allowed in a value (such as a line end from a placeholder)
/// become spaces, as in Go's server, so that a value never splits a head. Allocates only then.
pub(crate) fn with_field_value(bytes: &[u8], set: impl FnOnce(FieldValue<'_>)) {
    if let Some(value) = FieldValue::parse(bytes) {
        return set(value);
    }
    let spaced: Vec<u8> =
        bytes.iter().map(|&o| if o == b'\t' || (o >= b' ' && o != 0x7f) { o } else { b' ' }).collect();
    set(FieldValue::parse(spaced.trim_ascii()).expect("only allowed bytes are left"));
}

/// A field's value, with or without placeholders.
pub(crate) enum FieldText {
    Fixed(OwnedValue),
    Templated(Template),
}

impl FieldText {
    pub(crate) fn build(written: &str, build: &mut Build<'_>) -> Self {
        let template = build.template_keeping_unknown(written);
        let Some(text) = template.literal() else { return Self::Templated(template) };
        let mut fixed = None;
        with_field_value(text.as_bytes(), |value| fixed = Some(value.into()));
        // Sanitized once at load, since it does not depend on the request.
        fixed.map_or(Self::Templated(template), Self::Fixed)
    }

    /// Calls `work` with the value, sanitized by [`with_field_value`].
    pub(crate) fn with(&self, cx: &mut Context, work: impl FnOnce(&mut Context, FieldValue<'_>)) {
        match self {
            Self::Fixed(value) => work(cx, value.as_ref()),
            Self::Templated(template) => {
                cx.with_rendered(template, |cx, text| with_field_value(text, |value| work(cx, value)));
            }
        }
    }

    /// Appends the value's bytes, which may not yet be valid as a field value.
    pub(crate) fn render(&self, cx: &mut Context, out: &mut Vec<u8>) {
        match self {
            Self::Fixed(value) => out.extend_from_slice(value.as_ref().as_bytes()),
            Self::Templated(template) => template.render(cx, out),
        }
    }
}

/// A field's name, with or without placeholders.
#[derive(Clone)]
pub(crate) enum FieldNameTemplate {
    Fixed(FieldName),
    Templated(Template),
}

impl FieldNameTemplate {
    // A name without placeholders is parsed once, here; a dynamic one on every request.
    pub(crate) fn build(written: &str, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let template = build.template_keeping_unknown(written);
        match template.literal().map(FieldName::parse) {
            None => Ok(Self::Templated(template)),
            Some(Some(name)) => Ok(Self::Fixed(name)),
            Some(None) => Err(build.refuse(written, "a field name")),
        }
    }

    /// Calls `work` with the name. Skips the call if the expanded name is not valid, as Go's server omits such fields.
    pub(crate) fn with(&self, cx: &mut Context, work: impl FnOnce(&mut Context, NameRef<'_>)) {
        match self {
            Self::Fixed(name) => work(cx, name.as_ref()),
            Self::Templated(template) => cx.with_rendered(template, |cx, name| {
                if let Some(name) = NameRef::parse(name) {
                    work(cx, name);
                }
            }),
        }
    }
}

/// A status code as in Caddy's JSON: a number, a string of digits, or a placeholder.
pub(crate) enum StatusTemplate {
    Fixed(StatusCode),
    Templated(Template),
}

impl StatusTemplate {
    /// Compiles a status code. Returns `None` if it is absent or empty.
    pub(crate) fn parse(written: Option<WeakString>, build: &mut Build<'_>) -> Result<Option<Self>, BuildError> {
        build.at("status_code", |build| {
            let text = match written {
                None => return Ok(None),
                Some(WeakString(text)) if text.is_empty() => return Ok(None),
                Some(WeakString(text)) => text,
            };
            let template = build.template(&text);
            let Some(literal) = template.literal() else { return Ok(Some(Self::Templated(template))) };
            match status(literal.as_bytes()) {
                Some(code) => Ok(Some(Self::Fixed(code))),
                None => Err(build.refuse(text, "a status code from 100 to 999, or a placeholder")),
            }
        })
    }

    /// Returns the status code. Fails with 500 if a placeholder does not expand to one.
    pub(crate) fn of(&self, cx: &mut Context) -> Result<StatusCode, Fault> {
        match self {
            Self::Fixed(code) => Ok(*code),
            Self::Templated(template) => cx.with_rendered(template, |_, text| status(text)).ok_or(Fault {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                reason: Reason::Text("the status code's placeholder did not expand to a status code".into()),
            }),
        }
    }
}

fn status(text: &[u8]) -> Option<StatusCode> {
    let code = causeway_message::syntax::parse_number(text)?;
    StatusCode::new(u16::try_from(code).ok()?)
}

/// Returns whether a text is one placeholder and nothing else, by Caddy's rule.
pub(crate) fn is_placeholder(text: &str) -> bool {
    text.starts_with('{') && text.ends_with('}') && text.matches('{').count() == 1
}

/// A string that the JSON may also give as a number or a boolean (Caddy's weak string); null is the empty string.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
pub(crate) struct WeakString(pub(crate) String);

impl TryFrom<Value> for WeakString {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match value {
            Value::String(text) => Ok(Self(text)),
            Value::Number(number) => Ok(Self(number.to_string())),
            Value::Bool(truth) => Ok(Self(truth.to_string())),
            Value::Null => Ok(Self(String::new())),
            _ => Err("expected a string, a number or a boolean"),
        }
    }
}

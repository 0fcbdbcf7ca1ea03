//! Values and bytes as text.

use causeway_go_template::Value;

/// Returns the bytes of a string; empty for another value.
pub(super) fn bytes_of(value: &Value) -> &[u8] {
    value.as_bytes().unwrap_or_default()
}

/// Returns a text in which bytes that are not UTF-8 are replaced.
pub(super) fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// Returns a string, as [`lossy`] does; empty for another value.
pub(super) fn string_of(value: &Value) -> String {
    lossy(bytes_of(value))
}

/// Returns a value as Caddy's `ToString` does for texts and numbers.
pub(super) fn to_string_as_caddy(value: &Value) -> String {
    match value {
        Value::String(text) => lossy(text),
        Value::Bool(value) => value.to_string(),
        Value::Float(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        other => other.as_integer().map(|value| value.to_string()).unwrap_or_default(),
    }
}

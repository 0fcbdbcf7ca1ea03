//! Values and bytes as text.

use causeway_go_template::{CallContext, FunctionError, Value};

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

/// Returns a value as Caddy's `ToString` does.
///
/// # Errors
/// A limit of the execution.
pub(super) fn to_string_as_caddy(value: &Value, call: &CallContext<'_>) -> Result<String, FunctionError> {
    Ok(match value {
        Value::Absent | Value::Nil => String::new(),
        Value::String(text) => lossy(text),
        // Without an exponent.
        Value::Float(number) if number.is_finite() => number.to_string(),
        Value::Int(number) | Value::Integer(number, _) => number.to_string(),
        other => lossy(&call.printed(other)?),
    })
}

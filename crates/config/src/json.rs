//! JSON as Caddy loads it.

use serde_json::{Error, Number, Value};

/// Parses a configuration. Whole numbers become integers however they are written, `5e9` and `200.0` among them, as in Caddy, which
/// decodes each value to Go's types and encodes it again. Generators in Python, PHP and Lua write such numbers.
///
/// # Errors
/// If the text is not JSON.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    let mut value = serde_json::from_slice(text)?;
    make_integers(&mut value);
    Ok(value)
}

fn make_integers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(integer) = number.as_f64().filter(|_| number.is_f64()).and_then(integer) {
                *number = integer;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(make_integers),
        Value::Object(members) => members.values_mut().for_each(make_integers),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

/// Returns the integer that a number is; `None` with a fraction, and beyond an `i64`.
fn integer(number: f64) -> Option<Number> {
    // 2^63, which an f64 has exactly; the largest f64 below it is an i64.
    let is_within =
        number.fract() == 0.0 && (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number);
    #[allow(clippy::cast_possible_truncation, reason = "whole, and within an i64")]
    is_within.then(|| Number::from(number as i64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // encoding/json, Marshal: a float64 without a fraction is printed as an integer.
    #[test]
    fn whole_numbers_are_integers() {
        for (text, want) in [
            ("5e9", json!(5_000_000_000_u64)),
            ("200.0", json!(200)),
            ("-0.0", json!(0)),
            ("-1.5e1", json!(-15)),
            ("0.5", json!(0.5)),
            ("1e30", json!(1e30)),
            ("9223372036854775808.0", json!(9_223_372_036_854_775_808.0)),
            ("18446744073709551615", json!(u64::MAX)),
            (r#"{"a":[1.0,{"b":2.0}],"c":"3.0","d":null}"#, json!({ "a": [1, { "b": 2 }], "c": "3.0", "d": null })),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), want, "{text}");
        }
        assert!(parse(b"{").is_err());
    }
}

//! JSON as Caddy loads it.

use serde::Deserialize as _;
use serde_json::{Error, Number, Value};

/// Most objects and arrays inside each other. The adapter writes up to five for each block of a Caddyfile, which has at
/// most 32 inside each other: a configuration that was loaded must be readable again, after a restart or by another
/// process.
pub const LEVELS_MAX: usize = 200;

/// Parses a configuration. Whole numbers become integers however they are written, `5e9` and `200.0` among them, as in
/// Caddy, which decodes each value to Go's types and encodes it again. Generators in Python, PHP and Lua write such
/// numbers.
///
/// # Errors
/// If the text is not JSON, or has more than [`LEVELS_MAX`] levels.
pub fn parse(text: &[u8]) -> Result<Value, Error> {
    parse_within(text, LEVELS_MAX)
}

/// Parses like [`parse`] with another number of levels, at least 127.
///
/// # Errors
/// If the text is not JSON, or has more levels.
pub fn parse_within(text: &[u8], levels_max: usize) -> Result<Value, Error> {
    let mut value = if levels(text) > levels_max {
        // Refused with the position: its own limit is 127.
        serde_json::from_slice(text)?
    } else {
        let mut parser = serde_json::Deserializer::from_slice(text);
        parser.disable_recursion_limit();
        let value = Value::deserialize(&mut parser)?;
        parser.end()?;
        value
    };
    make_integers(&mut value);
    Ok(value)
}

/// Returns how many objects and arrays are inside each other. In a text that is not JSON it is exact up to the first
/// mistake, where the parser stops.
fn levels(text: &[u8]) -> usize {
    let (mut level, mut most, mut is_string, mut is_escaped) = (0_usize, 0, false, false);
    for byte in text {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => {
                level += 1;
                most = most.max(level);
            }
            b'}' | b']' => level = level.saturating_sub(1),
            _ => {}
        }
    }
    most
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
        assert!(parse(b"{} {}").is_err());
    }

    // Brackets in strings are no levels, and closed ones no longer count.
    #[test]
    fn levels_are_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        assert!(parse(nested(LEVELS_MAX).as_bytes()).is_ok());
        let error = parse(nested(LEVELS_MAX + 1).as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with("recursion limit exceeded"), "{error}");
        assert!(parse(&b"[".repeat(1 << 20)).is_err());
        for (text, want) in
            [("1", 0), (r#"{"a":[{}],"b":[]}"#, 3), (r#"["[[[\"[[","\\",["]"]]"#, 2), ("[],[],[]", 1), ("]]][", 1)]
        {
            assert_eq!(levels(text.as_bytes()), want, "{text}");
        }
    }
}

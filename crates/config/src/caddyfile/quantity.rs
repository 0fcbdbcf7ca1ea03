//! Sizes, numbers and booleans in a Caddyfile.

use serde_json::Value;

/// Parses a size such as `100MB`, `16KiB` or `4096` to bytes. Units are powers of 1000, with an `i` powers of 1024.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().replace(',', "");
    let split = text.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_lowercase();
    let scale = match unit.strip_suffix('b').unwrap_or(&unit) {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "t" => 1e12,
        "p" => 1e15,
        "e" => 1e18,
        "ki" => 1024.0,
        "mi" => f64::from(1_u32 << 20),
        "gi" => f64::from(1_u32 << 30),
        "ti" => 1024_f64.powi(4),
        "pi" => 1024_f64.powi(5),
        "ei" => 1024_f64.powi(6),
        _ => return None,
    };
    let bytes = number * scale;
    // A float is exact enough: above 2^53 bytes it rounds to a few bytes.
    (0.0..18_446_744_073_709_551_615.0).contains(&bytes).then_some(bytes as u64)
}

/// A bare word as the JSON type that it looks like: integer, number, boolean (Go's spellings), or else text.
pub(crate) fn scalar(text: &str) -> Value {
    if let Some(number) = integer(text) {
        return number.into();
    }
    let digits = without_underscores(text);
    let text_or_digits = digits.as_deref().unwrap_or(text);
    let looks_numeric = text.starts_with(|ch: char| ch.is_ascii_digit() || matches!(ch, '+' | '-' | '.'));
    if let Some(number) = text_or_digits.parse::<f64>().ok().filter(|number| looks_numeric && number.is_finite()) {
        // Go prints such a number without a fraction, so JSON readers see an integer.
        return if number.fract() == 0.0 && number.abs() < 9e15 { (number as i64).into() } else { number.into() };
    }
    match text {
        "t" | "T" | "true" | "TRUE" | "True" => true.into(),
        "f" | "F" | "false" | "FALSE" | "False" => false.into(),
        _ => text.into(),
    }
}

/// Parses a finite decimal number in Go's notation.
pub(crate) fn ratio(text: &str) -> Option<f64> {
    let digits = without_underscores(text);
    digits.as_deref().unwrap_or(text).parse().ok().filter(|number: &f64| number.is_finite())
}

/// The text without underscores, if each is between two digits (Go's number notation). `None` if there are no
/// underscores.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
    let mut found = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').peekable();
    found.peek()?;
    found.all(|(index, _)| index > 0 && digit(index - 1) && digit(index + 1)).then(|| text.replace('_', ""))
}

/// Parses a decimal integer with an optional sign.
pub(crate) fn integer(text: &str) -> Option<i64> {
    text.parse().ok()
}

/// A number or boolean as such, or else text. For status codes and similar values.
pub(crate) fn weak(text: &str) -> Value {
    match (text, integer(text)) {
        ("true", _) => true.into(),
        ("false", _) => false.into(),
        (_, Some(number)) => number.into(),
        _ => text.into(),
    }
}

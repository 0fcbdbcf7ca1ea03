//! Numbers in Go's forms: `12`, `1_000`, `0x1F`, `0o17`, `017`, `0b11`, `1.5e3`, `0x1p-2`, `'a'`.

use super::quote::{Unit, unescape};
use crate::format::quoted;
use crate::lex::{Kind, Token};
use crate::tree::Number;

/// Parses a constant of a template.
pub(super) fn constant(token: &Token) -> Result<Number, String> {
    let text = String::from_utf8_lossy(&token.text).into_owned();
    if token.kind == Kind::CharConstant {
        let c = match unescape(&token.text[1..], b'\'').ok_or("invalid syntax")? {
            (_, tail) if tail != b"'" => return Err(format!("malformed character constant: {text}")),
            (Unit::Char(c), _) => i64::from(u32::from(c)),
            (Unit::Byte(byte), _) if token.text[1] == b'\\' => i64::from(byte),
            // A byte that is not UTF-8.
            (Unit::Byte(_), _) => i64::from(u32::from(char::REPLACEMENT_CHARACTER)),
        };
        return Ok(Number { text, int: Some(c), float: Some(c as f64) });
    }
    if token.kind == Kind::Complex || text.ends_with('i') {
        return Err(format!("complex constant {text} is not supported"));
    }
    let unsigned = unsigned(&text);
    if let Some(value) = signed(&text) {
        return Ok(Number { text, int: Some(value), float: Some(value as f64) });
    }
    if let Some(value) = unsigned {
        return Ok(Number { text, int: None, float: Some(value as f64) });
    }
    let value = float(&text).ok_or_else(|| format!("illegal number syntax: {}", quoted(text.as_bytes())))?;
    if !text.contains(['.', 'e', 'E', 'p', 'P']) {
        return Err(format!("integer overflow: {}", quoted(text.as_bytes())));
    }
    // Saturates, so that a value outside of the type differs.
    let int = (value as i64 as f64 == value && value < i64::MAX as f64).then_some(value as i64);
    Ok(Number { text, int, float: Some(value) })
}

/// Parses an integer whose prefix gives the base, as `strconv.ParseInt` does with the base 0.
pub(crate) fn signed(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let value = i128::from(unsigned(digits)?);
    i64::try_from(if negative { -value } else { value }).ok()
}

fn unsigned(text: &str) -> Option<u64> {
    let (radix, digits) = match text.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => (16, &text[2..]),
        Some("0o") => (8, &text[2..]),
        Some("0b") => (2, &text[2..]),
        Some(_) if text.starts_with('0') => (8, &text[1..]),
        _ => (10, text),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    if digits.contains('_') {
        underscores_are_between_digits(text).then_some(())?;
    }
    u64::from_str_radix(&digits.replace('_', ""), radix).ok()
}

fn underscores_are_between_digits(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    let (is_hex, body, mut before) = match text.get(..2) {
        Some("0x") => (true, &text[2..], b'0'),
        Some("0b" | "0o") => (false, &text[2..], b'0'),
        _ => (false, &text[..], b'^'),
    };
    for byte in body.bytes() {
        if byte.is_ascii_digit() || is_hex && byte.is_ascii_hexdigit() {
            before = b'0';
        } else if byte == b'_' {
            if before != b'0' {
                return false;
            }
            before = b'_';
        } else {
            if before == b'_' {
                return false;
            }
            before = b'!';
        }
    }
    before != b'_'
}

/// Parses a number with a fraction or exponent, also hexadecimal. Returns `None` if it is malformed or overflows `f64`.
/// One that underflows is 0.
pub(crate) fn float(text: &str) -> Option<f64> {
    let (negative, rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest.contains('_') && !underscores_are_between_digits(rest) {
        return None;
    }
    let plain = rest.replace('_', "").to_ascii_lowercase();
    let value = match plain.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits)?,
        None => match plain.as_str() {
            "inf" | "infinity" => f64::INFINITY,
            // Only an infinity has a sign.
            "nan" if rest.len() == text.len() => f64::NAN,
            _ if plain.starts_with(|c: char| c.is_ascii_digit() || c == '.') => {
                let value = plain.parse::<f64>().ok()?;
                value.is_finite().then_some(value)?
            }
            _ => return None,
        },
    };
    Some(if negative { -value } else { value })
}

/// `1.8p3`: digits of base 16, and a power of 2. Digits beyond the precision are cut off.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let mut exponent = i64::from(exponent.parse::<i32>().ok()?);
    let (mut bits, mut seen, mut point) = (0_u64, false, false);
    for byte in mantissa.bytes() {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = char::from(byte).to_digit(16)?;
        seen = true;
        if bits >> 56 == 0 {
            bits = bits << 4 | u64::from(digit);
            exponent -= if point { 4 } else { 0 };
        } else if !point {
            exponent += 4;
        }
    }
    let exponent = i32::try_from(exponent.clamp(-4000, 4000)).ok()?;
    // In two steps, because a single power may leave the range of normal numbers.
    let half = exponent / 2;
    let value = bits as f64 * 2_f64.powi(half) * 2_f64.powi(exponent - half);
    (seen && value.is_finite()).then_some(value)
}

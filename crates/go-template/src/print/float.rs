//! Go's forms of floating-point numbers.

/// Digits after the point beyond which all are zero: the smallest number is 2^-1074. Rust's formatting takes no
/// precision above 65 535.
const DIGITS_MAX: usize = 1100;

/// Returns the number in the form of a verb (`e`, `f`, `g` or upper case), with the shortest digits that identify it if
/// there is no precision. A negative number has a sign.
pub(crate) fn float(value: f64, verb: char, precision: Option<usize>) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = match verb.to_ascii_lowercase() {
        'f' => match precision {
            Some(precision) => format!("{value:.*}{}", precision.min(DIGITS_MAX), zeros_after(precision)),
            None => format!("{value}"),
        },
        'e' => exponential(value, precision),
        _ => general(value, precision),
    };
    if verb.is_ascii_uppercase() { text.to_ascii_uppercase() } else { text }
}

/// Returns the zeros of a precision above [`DIGITS_MAX`].
fn zeros_after(precision: usize) -> String {
    "0".repeat(precision.saturating_sub(DIGITS_MAX))
}

/// Rust's exponent has no sign and one digit at least, Go's a sign and two.
fn exponential(value: f64, precision: Option<usize>) -> String {
    let text = match precision {
        Some(precision) => format!("{value:.*e}", precision.min(DIGITS_MAX)),
        None => format!("{value:e}"),
    };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let sign = if exponent < 0 { '-' } else { '+' };
    let zeros = zeros_after(precision.unwrap_or(0));
    format!("{digits}{zeros}e{sign}{:02}", exponent.unsigned_abs())
}

/// `%g`: the exponential form for small and large exponents.
fn general(value: f64, precision: Option<usize>) -> String {
    let precision = precision.map(|precision| precision.max(1));
    let text = match precision {
        Some(precision) => format!("{value:.*e}", (precision - 1).min(DIGITS_MAX)),
        None => format!("{value:e}"),
    };
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i64 = exponent.parse().unwrap_or(0);
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    let count = digits.bytes().filter(u8::is_ascii_digit).count();
    let threshold = match precision {
        // As in strconv: more precision than digits does not delay the exponent.
        Some(precision) if precision > count && count as i64 > exponent => count as i64,
        Some(precision) => precision as i64,
        None => 6,
    };
    if exponent < -4 || exponent >= threshold {
        return exponential(value, Some(count.saturating_sub(1)));
    }
    let fraction = usize::try_from(count as i64 - 1 - exponent).unwrap_or(0);
    match precision {
        Some(_) => format!("{value:.fraction$}"),
        None => format!("{value}"),
    }
}

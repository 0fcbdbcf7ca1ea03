//! Arithmetic. Integers are `int64`, and overflow wraps, as in Go.

use super::{ANY, fixed, text, to_text, variadic};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
use crate::parse::number;
use crate::value::{Element, IntegerType, List, Value};

const TWO: &[Type] = &[Type::Any, Type::Any];

pub(super) static BUILTINS: &[Builtin] = &[
    variadic("add", ANY, |_, args| Ok(integer(args.iter().map(int64).fold(0, i64::wrapping_add)))),
    fixed("add1", ANY, |_, args| Ok(integer(int64(&args[0]).wrapping_add(1)))),
    fixed("atoi", &[Type::String], |_, args| {
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let parsed = std::str::from_utf8(text(&args[0])).unwrap_or_default().parse::<i64>();
        // As in Go, a number that is too large is the largest.
        Ok(Value::Int(parsed.unwrap_or_else(|error| match error.kind() {
            PosOverflow => i64::MAX,
            NegOverflow => i64::MIN,
            _ => 0,
        })))
    }),
    variadic("biggest", TWO, maximum),
    fixed("ceil", ANY, |_, args| Ok(float64(&args[0]).ceil().into())),
    fixed("div", TWO, |_, args| divide(args, i64::wrapping_div)),
    fixed("float64", ANY, |_, args| Ok(float64(&args[0]).into())),
    fixed("floor", ANY, |_, args| Ok(float64(&args[0]).floor().into())),
    fixed("int", ANY, |_, args| Ok(Value::Int(int64(&args[0])))),
    fixed("int64", ANY, |_, args| Ok(integer(int64(&args[0])))),
    variadic("max", TWO, maximum),
    variadic("maxf", TWO, |_, args| Ok(args.iter().map(float64).reduce(larger).unwrap_or(0.0).into())),
    variadic("min", TWO, |_, args| Ok(integer(args.iter().map(int64).min().unwrap_or(0)))),
    variadic("minf", TWO, |_, args| {
        Ok((-args.iter().map(|value| -float64(value)).reduce(larger).unwrap_or(0.0)).into())
    }),
    fixed("mod", TWO, |_, args| divide(args, i64::wrapping_rem)),
    variadic("mul", TWO, |_, args| Ok(integer(args.iter().map(int64).fold(1, i64::wrapping_mul)))),
    variadic("round", &[Type::Any, Type::Int, Type::Float], |_, args| {
        // Beyond it the power is infinite or 0.
        let places = args[1].as_integer().unwrap_or(0).clamp(-400, 400);
        let scale = 10_f64.powi(places as i32);
        let scaled = float64(&args[0]) * scale;
        let limit = if let Some(Value::Float(limit)) = args.get(2) { *limit } else { 0.5 };
        let rounded = if scaled.fract() >= limit { scaled.ceil() } else { scaled.floor() };
        Ok((rounded / scale).into())
    }),
    variadic("seq", &[Type::Int], sequence),
    fixed("sub", TWO, |_, args| Ok(integer(int64(&args[0]).wrapping_sub(int64(&args[1]))))),
    fixed("toDecimal", ANY, |call, args| {
        let text = to_text(call, &args[0])?;
        let parsed = std::str::from_utf8(&text).ok().and_then(|text| i64::from_str_radix(text, 8).ok());
        Ok(integer(parsed.unwrap_or(0)))
    }),
    fixed("until", &[Type::Int], |call, args| {
        let end = args[0].as_integer().unwrap_or(0);
        Ok(Value::List(List::new(integers(call, 0, end, if end < 0 { -1 } else { 1 })?, Element::Int)))
    }),
    fixed("untilStep", &[Type::Int, Type::Int, Type::Int], |call, args| {
        let number = |index: usize| args[index].as_integer().unwrap_or(0);
        Ok(Value::List(List::new(integers(call, number(0), number(1), number(2))?, Element::Int)))
    }),
];

fn integer(value: i64) -> Value {
    Value::Integer(value, IntegerType::Int64)
}

/// Converts as `github.com/spf13/cast`: 0 for a value that is no number. A string has the form of a constant of Go.
pub(super) fn int64(value: &Value) -> i64 {
    match value {
        Value::String(text) => {
            std::str::from_utf8(text).ok().and_then(|text| number::signed(without_fraction(text))).unwrap_or(0)
        }
        // The processors of most servers convert a float out of range to the smallest integer.
        Value::Float(value) if !(-9.3e18..9_223_372_036_854_775_808.0).contains(value) => i64::MIN,
        Value::Float(value) => *value as i64,
        Value::Bool(value) => i64::from(*value),
        Value::Uint(value) => value.cast_signed(),
        other => other.as_integer().unwrap_or(0),
    }
}

/// Removes the fraction of a decimal number, as Go's package `cast` does since version 1.8.
fn without_fraction(text: &str) -> &str {
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    match text.split_once('.') {
        Some((whole, fraction)) if is_digits(fraction) && is_digits(whole.trim_start_matches(['+', '-'])) => whole,
        _ => text,
    }
}

pub(super) fn float64(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        Value::String(text) => std::str::from_utf8(text).ok().and_then(number::float).unwrap_or(0.0),
        Value::Uint(value) => *value as f64,
        other => int64(other) as f64,
    }
}

fn maximum(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    Ok(integer(args.iter().map(int64).max().unwrap_or(0)))
}

/// Go's `math.Max`: infinity if one is, else NaN if one is, and 0 above -0.
fn larger(a: f64, b: f64) -> f64 {
    if a == f64::INFINITY || b == f64::INFINITY {
        f64::INFINITY
    } else if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a == 0.0 && b == 0.0 {
        if a.is_sign_negative() { b } else { a }
    } else {
        a.max(b)
    }
}

fn divide(args: &[Value], divide: fn(i64, i64) -> i64) -> Result<Value, FunctionError> {
    match int64(&args[1]) {
        0 => Err("runtime error: integer divide by zero".into()),
        divisor => Ok(integer(divide(int64(&args[0]), divisor))),
    }
}

/// Makes the integers from `start` to before `end`.
fn integers(call: &CallContext<'_>, start: i64, end: i64, step: i64) -> Result<Vec<Value>, FunctionError> {
    let mut items = Vec::new();
    let mut next = Some(start);
    while let Some(number) = next.filter(|number| if step > 0 { *number < end } else { step < 0 && *number > end }) {
        call.charge_memory(size_of::<Value>())?;
        items.push(Value::Int(number));
        next = number.checked_add(step);
    }
    Ok(items)
}

/// Returns the integers from a first to a last one, with spaces between them, as the shell command `seq`.
fn sequence(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let numbers: Vec<i64> = args.iter().map(|value| value.as_integer().unwrap_or(0)).collect();
    let direction = |first: i64, last: i64| if last < first { -1 } else { 1 };
    let (first, step, last) = match *numbers.as_slice() {
        [last] => (1, direction(1, last), last),
        [first, last] => (first, direction(first, last), last),
        [first, step, last] if last >= first || step <= 0 => (first, step, last),
        _ => return Ok("".into()),
    };
    let mut out = call.text();
    for (index, number) in integers(call, first, last.wrapping_add(direction(first, last)), step)?.iter().enumerate() {
        out.push(if index > 0 { b" " } else { b"" })?;
        out.push(number.as_integer().unwrap_or(0).to_string().as_bytes())?;
    }
    Ok(out.into_bytes().into())
}

//! Arithmetic. Integers are `int64`, and overflow wraps, as in Go.

use super::{ANY, fixed, text, variadic};
use crate::error::Failure;
use crate::functions::{Call, Row, Type};
use crate::value::{Element, IntegerType, List, Value};

const TWO: &[Type] = &[Type::Any, Type::Any];

pub(super) static ROWS: &[Row] = &[
    variadic("add", ANY, |_, args| Ok(integer(args.iter().map(int64).fold(0, i64::wrapping_add)))),
    fixed("add1", ANY, |_, args| Ok(integer(int64(&args[0]).wrapping_add(1)))),
    fixed("atoi", &[Type::String], |_, args| {
        Ok(Value::Int(std::str::from_utf8(text(&args[0])).ok().and_then(|text| text.parse().ok()).unwrap_or(0)))
    }),
    fixed("ceil", ANY, |_, args| Ok(float64(&args[0]).ceil().into())),
    fixed("div", TWO, |_, args| divided(args, i64::wrapping_div)),
    fixed("float64", ANY, |_, args| Ok(float64(&args[0]).into())),
    fixed("floor", ANY, |_, args| Ok(float64(&args[0]).floor().into())),
    fixed("int", ANY, |_, args| Ok(Value::Int(int64(&args[0])))),
    fixed("int64", ANY, |_, args| Ok(integer(int64(&args[0])))),
    variadic("max", &[Type::Any, Type::Any], |_, args| Ok(integer(args.iter().map(int64).max().unwrap_or(0)))),
    variadic("min", &[Type::Any, Type::Any], |_, args| Ok(integer(args.iter().map(int64).min().unwrap_or(0)))),
    fixed("mod", TWO, |_, args| divided(args, i64::wrapping_rem)),
    variadic("mul", &[Type::Any, Type::Any], |_, args| Ok(integer(args.iter().map(int64).fold(1, i64::wrapping_mul)))),
    variadic("round", &[Type::Any, Type::Int, Type::Float], |_, args| {
        let scale = 10_f64.powi(i32::try_from(args.get(1).and_then(Value::as_integer).unwrap_or(0)).unwrap_or(0));
        let scaled = float64(&args[0]) * scale;
        let limit = if let Some(Value::Float(limit)) = args.get(2) { *limit } else { 0.5 };
        let rounded = if scaled.fract() >= limit { scaled.ceil() } else { scaled.floor() };
        Ok((rounded / scale).into())
    }),
    fixed("sub", TWO, |_, args| Ok(integer(int64(&args[0]).wrapping_sub(int64(&args[1]))))),
    fixed("until", &[Type::Int], |call, args| {
        let end = args[0].as_integer().unwrap_or(0);
        steps(call, 0, end, if end < 0 { -1 } else { 1 })
    }),
    fixed("untilStep", &[Type::Int, Type::Int, Type::Int], |call, args| {
        let number = |index: usize| args[index].as_integer().unwrap_or(0);
        steps(call, number(0), number(1), number(2))
    }),
];

fn integer(value: i64) -> Value {
    Value::Integer(value, IntegerType::Int64)
}

/// Converts as Sprig does: 0 for a value that is no number.
pub(super) fn int64(value: &Value) -> i64 {
    match value {
        Value::String(_) => {
            let text = std::str::from_utf8(text(value)).unwrap_or_default();
            text.parse().or_else(|_| text.parse::<f64>().map(|value| value as i64)).unwrap_or(0)
        }
        Value::Float(value) => *value as i64,
        Value::Bool(value) => i64::from(*value),
        Value::Uint(value) => i64::try_from(*value).unwrap_or(i64::MAX),
        other => other.as_integer().unwrap_or(0),
    }
}

fn float64(value: &Value) -> f64 {
    match value {
        Value::Float(value) => *value,
        Value::String(_) => std::str::from_utf8(text(value)).ok().and_then(|text| text.parse().ok()).unwrap_or(0.0),
        other => int64(other) as f64,
    }
}

fn divided(args: &[Value], divide: fn(i64, i64) -> i64) -> Result<Value, Failure> {
    match int64(&args[1]) {
        0 => Err("integer divide by zero".into()),
        divisor => Ok(integer(divide(int64(&args[0]), divisor))),
    }
}

/// Makes the integers from `start` to before `end`.
fn steps(call: &Call<'_>, start: i64, end: i64, step: i64) -> Result<Value, Failure> {
    let mut items = Vec::new();
    let mut next = Some(start);
    while let Some(number) = next.filter(|number| if step > 0 { *number < end } else { step < 0 && *number > end }) {
        call.allocate(32)?;
        items.push(Value::Int(number));
        next = number.checked_add(step);
    }
    Ok(Value::List(List::new(items, Element::Int)))
}

//! `eq`, `ne`, `lt`, `le`, `gt`, `ge`: comparison of values of the same basic kind.

use std::rc::Rc;

use crate::error::FunctionError;
use crate::value::Value;

/// A value of a basic kind. Integers of both signs compare with each other.
#[derive(PartialEq)]
enum Basic<'a> {
    Bool(bool),
    Int(i128),
    Float(f64),
    String(&'a [u8]),
}

impl<'a> Basic<'a> {
    fn of(value: &'a Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Bool(*value)),
            Value::Int(value) | Value::Integer(value, _) => Some(Self::Int(i128::from(*value))),
            Value::Uint(value) => Some(Self::Int(i128::from(*value))),
            Value::Float(value) => Some(Self::Float(*value)),
            Value::String(text) => Some(Self::String(text)),
            Value::Object(_) => value.as_integer().map(|value| Self::Int(i128::from(value))),
            _ => None,
        }
    }
}

fn is_nil(value: &Value) -> bool {
    match value {
        Value::Absent | Value::Nil => true,
        Value::List(list) => list.is_nil(),
        _ => false,
    }
}

fn incompatible(a: &Value, b: &Value) -> FunctionError {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name()).into()
}

/// Returns whether the first value equals one of the others.
pub(crate) fn is_equal(args: &[Value]) -> Result<bool, FunctionError> {
    let (first, others) = args.split_first().ok_or("missing argument for comparison")?;
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        let equal = match (Basic::of(first), Basic::of(other)) {
            (Some(a), Some(b)) if std::mem::discriminant(&a) == std::mem::discriminant(&b) => a == b,
            (None, None) => is_same(first, other)?,
            _ if matches!(first, Value::Absent | Value::Nil) || matches!(other, Value::Absent | Value::Nil) => false,
            _ => return Err(incompatible(first, other)),
        };
        if equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_same(a: &Value, b: &Value) -> Result<bool, FunctionError> {
    if is_nil(a) || is_nil(b) {
        return Ok(is_nil(a) == is_nil(b));
    }
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => Ok(Rc::ptr_eq(a, b)),
        _ => Err(format!("non-comparable type {}", b.type_name()).into()),
    }
}

/// Returns whether the first value is less than the second.
pub(super) fn is_less(a: &Value, b: &Value) -> Result<bool, FunctionError> {
    let invalid = "invalid type for comparison";
    match (Basic::of(a).ok_or(invalid)?, Basic::of(b).ok_or(invalid)?) {
        (Basic::Int(a), Basic::Int(b)) => Ok(a < b),
        (Basic::Float(a), Basic::Float(b)) => Ok(a < b),
        (Basic::String(a), Basic::String(b)) => Ok(a < b),
        (Basic::Bool(_), Basic::Bool(_)) => Err(invalid.into()),
        _ => Err(incompatible(a, b)),
    }
}

/// Returns whether the first value is neither less than the second nor equal to it, as Go's `gt` does.
pub(super) fn is_greater(a: &Value, b: &Value) -> Result<bool, FunctionError> {
    Ok(!(is_less(a, b)? || is_equal(&[a.clone(), b.clone()])?))
}

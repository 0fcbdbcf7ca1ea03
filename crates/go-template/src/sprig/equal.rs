//! Go's `reflect.DeepEqual`: equality in type and content.

use std::rc::Rc;
use std::sync::Arc;

use crate::budget::{LimitError, VALUE_DEPTH_MAX};
use crate::error::FunctionError;
use crate::functions::CallContext;
use crate::value::Value;

/// Returns whether two values have the same type and the same content.
pub(super) fn is_deeply_equal(call: &CallContext<'_>, a: &Value, b: &Value) -> Result<bool, FunctionError> {
    is_equal(call, a, b, VALUE_DEPTH_MAX)
}

fn is_equal(call: &CallContext<'_>, a: &Value, b: &Value, depth: u32) -> Result<bool, FunctionError> {
    let depth = depth.checked_sub(1).ok_or(LimitError::ValueDepth)?;
    call.charge_steps(1)?;
    Ok(match (a, b) {
        (Value::Absent | Value::Nil, Value::Absent | Value::Nil) => true,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::Int(a), Value::Int(b)) => a == b,
        (Value::Integer(a, a_type), Value::Integer(b, b_type)) => a == b && a_type == b_type,
        (Value::Uint(a), Value::Uint(b)) => a == b,
        (Value::Float(a), Value::Float(b)) => a == b,
        (Value::String(a), Value::String(b)) => {
            call.charge_steps(a.len().min(b.len()) / 64)?;
            a == b
        }
        (Value::List(a), Value::List(b)) => {
            let (a_items, b_items) = (a.items(), b.items());
            if a.element() != b.element() || a.is_nil() != b.is_nil() || a_items.len() != b_items.len() {
                return Ok(false);
            }
            // The same storage is equal to itself, even with a NaN in it.
            if a_items.as_ptr() == b_items.as_ptr() {
                return Ok(true);
            }
            for (a, b) in a_items.iter().zip(b_items) {
                if !is_equal(call, a, b, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(a), Value::Map(b)) => {
            let (a_entries, b_entries) = (a.entries(), b.entries());
            if a.element() != b.element() || a_entries.len() != b_entries.len() {
                return Ok(false);
            }
            if a.is_same(b) {
                return Ok(true);
            }
            for ((a_key, a), (b_key, b)) in a_entries.iter().zip(b_entries.iter()) {
                if !is_same_key(call, a_key, b_key)? || !is_equal(call, a, b, depth)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Object(a), Value::Object(b)) => {
            let has_same_text = || a.type_name() == b.type_name() && a.text().is_some() && a.text() == b.text();
            Rc::ptr_eq(a, b) || has_same_text()
        }
        _ => false,
    })
}

/// Returns whether two keys are equal. Copies of a dictionary share the bytes of their keys.
fn is_same_key(call: &CallContext<'_>, a: &Arc<[u8]>, b: &Arc<[u8]>) -> Result<bool, FunctionError> {
    if Arc::ptr_eq(a, b) {
        return Ok(true);
    }
    call.charge_steps(a.len().min(b.len()) / 64)?;
    Ok(a == b)
}

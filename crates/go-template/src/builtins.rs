//! The functions of Go's text/template, except `and`, `or` and `call`, which the evaluator has.

mod compare;
mod escape;

pub(crate) use compare::is_equal;

use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type, fixed, variadic};
use crate::print;
use crate::value::{IntegerType, List, Value};

const VALUE: &[Type] = &[Type::Value];
const TWO: &[Type] = &[Type::Value, Type::Value];
const ANY: &[Type] = &[Type::Any];

pub(crate) static BUILTINS: &[Builtin] = &[
    variadic("eq", TWO, |_, args| is_equal(args).map(Value::Bool)),
    fixed("ge", TWO, |_, args| compare::is_less(&args[0], &args[1]).map(|less| Value::Bool(!less))),
    fixed("gt", TWO, |_, args| compare::is_greater(&args[0], &args[1]).map(Value::Bool)),
    variadic("html", ANY, |call, args| escape::with(call, args, escape::html)),
    variadic("index", TWO, index),
    variadic("js", ANY, |call, args| escape::with(call, args, escape::js)),
    fixed("le", TWO, |_, args| compare::is_greater(&args[0], &args[1]).map(|greater| Value::Bool(!greater))),
    fixed("len", VALUE, len),
    fixed("lt", TWO, |_, args| compare::is_less(&args[0], &args[1]).map(Value::Bool)),
    fixed("ne", TWO, |_, args| is_equal(args).map(|equal| Value::Bool(!equal))),
    fixed("not", VALUE, |_, args| Ok(Value::Bool(!args[0].is_true()))),
    variadic("print", ANY, |call, args| print::print(call.budget(), args).map(Value::from)),
    variadic("printf", &[Type::String, Type::Any], |call, args| {
        print::printf(call.budget(), args[0].as_bytes().unwrap_or_default(), &args[1..]).map(Value::from)
    }),
    variadic("println", ANY, |call, args| print::println(call.budget(), args).map(Value::from)),
    variadic("slice", TWO, slice),
    variadic("urlquery", ANY, |call, args| escape::with(call, args, escape::urlquery)),
];

fn position(index: &Value, length: usize) -> Result<usize, FunctionError> {
    let number = match index {
        Value::Absent | Value::Nil => return Err("cannot index slice/array with nil".into()),
        Value::Uint(value) => i64::try_from(*value).unwrap_or(-1),
        _ => match index.as_integer() {
            Some(number) => number,
            None => return Err(format!("cannot index slice/array with type {}", index.type_name()).into()),
        },
    };
    match usize::try_from(number) {
        Ok(position) if position <= length => Ok(position),
        _ => Err(format!("index out of range: {number}").into()),
    }
}

fn index(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut item = args[0].clone();
    if matches!(item, Value::Absent | Value::Nil) {
        return Err("index of untyped nil".into());
    }
    for index in &args[1..] {
        // The end of a list is a position of `slice`, but here it fails in Go's reflection.
        let beyond = || FunctionError::from("reflect: slice index out of range");
        item = match item.resolved() {
            Value::Absent | Value::Nil => return Err("index of nil pointer".into()),
            Value::List(list) => list.items().get(position(index, list.items().len())?).cloned().ok_or_else(beyond)?,
            Value::String(text) => {
                let byte = text.get(position(index, text.len())?).ok_or("reflect: string index out of range")?;
                Value::Integer(i64::from(*byte), IntegerType::Uint8)
            }
            Value::Map(map) => match index {
                Value::String(key) => map.value(key).unwrap_or_else(|| map.element().zero()),
                Value::Absent | Value::Nil => return Err("value is nil; should be of type string".into()),
                other => return Err(format!("value has type {}; should be string", other.type_name()).into()),
            },
            other => return Err(format!("can't index item of type {}", other.type_name()).into()),
        };
    }
    Ok(item)
}

fn slice(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let (item, indexes) = (args[0].resolved(), &args[1..]);
    if matches!(item, Value::Absent | Value::Nil) {
        return Err("slice of untyped nil".into());
    }
    if indexes.len() > 3 {
        return Err(format!("too many slice indexes: {}", indexes.len()).into());
    }
    let length = match &item {
        Value::String(_) if indexes.len() == 3 => return Err("cannot 3-index slice a string".into()),
        Value::String(text) => text.len(),
        Value::List(list) => list.items().len(),
        other => return Err(format!("can't slice item of type {}", other.type_name()).into()),
    };
    let mut bounds = [0, length, length];
    for (bound, index) in bounds.iter_mut().zip(indexes) {
        *bound = position(index, length)?;
    }
    let [start, end, capacity] = bounds;
    if start > end {
        return Err(format!("invalid slice index: {start} > {end}").into());
    }
    if end > capacity {
        return Err(format!("invalid slice index: {end} > {capacity}").into());
    }
    Ok(match &item {
        Value::String(text) => Value::from(&text[start..end]),
        Value::List(list) => Value::List(List::new(list.items()[start..end].to_vec(), list.element())),
        _ => item,
    })
}

fn len(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let length = match args[0].resolved() {
        Value::Nil => return Err("len of nil pointer".into()),
        Value::Absent => return Err("reflect: call of reflect.Value.Type on zero Value".into()),
        Value::String(text) => text.len(),
        Value::List(list) => list.items().len(),
        Value::Map(map) => map.entries().len(),
        other => return Err(format!("len of type {}", other.type_name()).into()),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

//! Lists. All functions return new ones. A function with `must` in its name differs only in Go, where the one without
//! it panics.

use super::equal::is_deeply_equal;
use super::numbers::int64;
use super::{ANY, fixed, is_empty, list, variadic};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::{Element, List, Value};

const LIST_AND_ANY: &[Type] = &[Type::Any, Type::Any];
const SIZE_AND_LIST: &[Type] = &[Type::Int, Type::Any];

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("append", LIST_AND_ANY, append),
    fixed("chunk", SIZE_AND_LIST, chunk),
    fixed("compact", ANY, compact),
    variadic("concat", ANY, |call, args| {
        let mut all = Vec::new();
        for value in args {
            all.append(&mut copy(call, value)?);
        }
        Ok(Value::List(if all.is_empty() { List::nil(Element::Any) } else { List::new(all, Element::Any) }))
    }),
    fixed("first", ANY, first),
    fixed("has", LIST_AND_ANY, has),
    fixed("initial", ANY, initial),
    fixed("last", ANY, last),
    variadic("list", ANY, make_list),
    fixed("mustAppend", LIST_AND_ANY, append),
    fixed("mustChunk", SIZE_AND_LIST, chunk),
    fixed("mustCompact", ANY, compact),
    fixed("mustFirst", ANY, first),
    fixed("mustHas", LIST_AND_ANY, has),
    fixed("mustInitial", ANY, initial),
    fixed("mustLast", ANY, last),
    fixed("mustPrepend", LIST_AND_ANY, prepend),
    fixed("mustPush", LIST_AND_ANY, append),
    fixed("mustRest", ANY, rest),
    fixed("mustReverse", ANY, reverse),
    variadic("mustSlice", LIST_AND_ANY, slice),
    fixed("mustUniq", ANY, uniq),
    variadic("mustWithout", LIST_AND_ANY, without),
    fixed("prepend", LIST_AND_ANY, prepend),
    fixed("push", LIST_AND_ANY, append),
    fixed("rest", ANY, rest),
    fixed("reverse", ANY, reverse),
    variadic("slice", LIST_AND_ANY, slice),
    variadic("tuple", ANY, make_list),
    fixed("uniq", ANY, uniq),
    variadic("without", LIST_AND_ANY, without),
];

/// Returns the elements of a list in a vector of their own.
fn copy(call: &CallContext<'_>, value: &Value) -> Result<Vec<Value>, FunctionError> {
    let list = list(value)?;
    call.charge_memory(size_of_val(list.items()))?;
    Ok(list.items().to_vec())
}

/// Returns whether one of the items equals the value, also in its type.
fn contains(call: &CallContext<'_>, items: &[Value], value: &Value) -> Result<bool, FunctionError> {
    for item in items {
        if is_deeply_equal(call, value, item)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn make_list(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    call.charge_memory(size_of_val(args))?;
    Ok(Value::list(args.to_vec()))
}

fn append(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    items.push(args[1].clone());
    Ok(Value::list(items))
}

fn prepend(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    items.insert(0, args[1].clone());
    Ok(Value::list(items))
}

/// Cuts a list into lists of a size. Sprig computes with floats, so that some sizes below zero have a result.
fn chunk(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let items = copy(call, &args[1])?;
    let (len, size) = (items.len() as f64, args[0].as_integer().unwrap_or(0) as f64);
    let count = ((len - 1.0) / size).floor() + 1.0;
    if !(0.0..=len + 1.0).contains(&count) {
        return Err("makeslice: len out of range".into());
    }
    call.charge_memory(64 * items.len())?;
    let (count, mut chunks, mut rest) = (count as usize, Vec::new(), items.as_slice());
    while chunks.len() < count {
        // The last one has the rest, or a whole size.
        let left = if chunks.len() + 1 == count { len % size } else { 0.0 };
        let wanted = if left == 0.0 { size } else { left };
        if wanted < 0.0 {
            return Err("makeslice: len out of range".into());
        }
        let (chunk, after) = rest.split_at_checked(wanted as usize).ok_or("slice index out of range")?;
        chunks.push(Value::list(chunk.to_vec()));
        rest = after;
    }
    Ok(Value::List(List::new(chunks, Element::Lists)))
}

fn compact(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    items.retain(|item| !is_empty(item));
    Ok(Value::list(items))
}

fn first(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    Ok(list(&args[0])?.items().first().cloned().unwrap_or(Value::Nil))
}

fn last(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    Ok(list(&args[0])?.items().last().cloned().unwrap_or(Value::Nil))
}

fn has(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    match &args[1] {
        Value::Nil => Ok(Value::Bool(false)),
        value => Ok(Value::Bool(contains(call, list(value)?.items(), &args[0])?)),
    }
}

fn initial(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    Ok(match items.pop() {
        None => Value::List(List::nil(Element::Any)),
        Some(_) => Value::list(items),
    })
}

fn rest(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    if items.is_empty() {
        return Ok(Value::List(List::nil(Element::Any)));
    }
    items.remove(0);
    Ok(Value::list(items))
}

fn reverse(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut items = copy(call, &args[0])?;
    items.reverse();
    Ok(Value::list(items))
}

/// Returns the elements from one position to before another. Go also shows elements beyond the end that a larger list
/// has had.
fn slice(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let list = list(&args[0])?;
    if list.items().is_empty() {
        return Ok(Value::Nil);
    }
    let position = |index: usize, default: usize| match args.get(index) {
        None => default,
        Some(value) => usize::try_from(int64(value)).unwrap_or(usize::MAX),
    };
    let range = position(1, 0)..position(2, list.items().len());
    let part = list.items().get(range).ok_or("reflect.Value.Slice: slice index out of bounds")?;
    call.charge_memory(size_of_val(part))?;
    Ok(Value::List(List::new(part.to_vec(), list.element())))
}

fn uniq(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut kept = Vec::new();
    for item in copy(call, &args[0])? {
        if !contains(call, &kept, &item)? {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

fn without(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let mut kept = Vec::new();
    for item in copy(call, &args[0])? {
        if !contains(call, &args[1..], &item)? {
            kept.push(item);
        }
    }
    Ok(Value::list(kept))
}

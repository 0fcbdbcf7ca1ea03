//! Dictionaries. `set`, `unset` and the functions that merge change one; the others return new ones.

use std::sync::Arc;

use super::{ANY, fixed, is_empty, is_nil, text, to_text, variadic};
use crate::budget::{LimitError, VALUE_DEPTH_MAX};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::{Element, Entries, List, Map, Value};

const MAP_AND_NAME: &[Type] = &[Type::Map, Type::String];
const MAPS: &[Type] = &[Type::Map, Type::Map];
/// The bytes that an entry of a map occupies at most.
const ENTRY_BYTES: usize = 64;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("deepCopy", ANY, deep_copy),
    variadic("dict", ANY, |call, args| {
        call.charge_memory(ENTRY_BYTES * args.len().div_ceil(2))?;
        let mut entries = Entries::new();
        for pair in args.chunks(2) {
            entries.insert(key(call, &pair[0])?, pair.get(1).cloned().unwrap_or_else(|| "".into()));
        }
        Ok(Value::Map(Map::new(entries, Element::Any)))
    }),
    variadic("dig", ANY, dig),
    fixed("get", MAP_AND_NAME, |call, args| Ok(found(call, &args[0], &args[1])?.unwrap_or_else(|| "".into()))),
    fixed("hasKey", MAP_AND_NAME, |call, args| Ok(Value::Bool(found(call, &args[0], &args[1])?.is_some()))),
    variadic("keys", &[Type::Map], |call, args| {
        let mut keys = Vec::new();
        for value in args {
            let map = map(value)?;
            call.charge_memory(ENTRY_BYTES * map.entries().len())?;
            keys.extend(map.entries().keys().map(|key| Value::String(key.clone())));
        }
        Ok(Value::strings(keys))
    }),
    variadic("merge", MAPS, |call, args| merge_all(call, args, false)),
    variadic("mergeOverwrite", MAPS, |call, args| merge_all(call, args, true)),
    fixed("mustDeepCopy", ANY, deep_copy),
    variadic("mustMerge", MAPS, |call, args| merge_all(call, args, false)),
    variadic("mustMergeOverwrite", MAPS, |call, args| merge_all(call, args, true)),
    variadic("omit", MAP_AND_NAME, |call, args| filter(call, args, false)),
    variadic("pick", MAP_AND_NAME, |call, args| filter(call, args, true)),
    variadic("pluck", &[Type::String, Type::Map], |call, args| {
        call.charge_memory(size_of_val(args))?;
        call.charge_steps((text(&args[0]).len() / 64).saturating_mul(args.len()))?;
        let maps = args[1..].iter().map(map).collect::<Result<Vec<_>, _>>()?;
        Ok(Value::list(maps.iter().filter_map(|map| map.value(text(&args[0]))).collect()))
    }),
    fixed("set", &[Type::Map, Type::String, Type::Any], |call, args| {
        insert(call, &map(&args[0])?, key(call, &args[1])?, args[2].clone())?;
        Ok(args[0].clone())
    }),
    fixed("unset", MAP_AND_NAME, |call, args| {
        call.charge_steps(text(&args[1]).len() / 64)?;
        map(&args[0])?.remove(text(&args[1]));
        Ok(args[0].clone())
    }),
    fixed("values", &[Type::Map], |call, args| {
        let map = map(&args[0])?;
        call.charge_memory(size_of::<Value>() * map.entries().len())?;
        let values = map.entries().values().cloned().collect();
        Ok(Value::list(values))
    }),
];

fn map(value: &Value) -> Result<Map, FunctionError> {
    match value.resolved() {
        Value::Map(map) => Ok(map),
        other => Err(format!("wrong type: found {}, expected a dictionary", other.type_name()).into()),
    }
}

/// Returns the value of a key. Comparing keys takes time.
fn found(call: &CallContext<'_>, dictionary: &Value, key: &Value) -> Result<Option<Value>, FunctionError> {
    call.charge_steps(text(key).len() / 64)?;
    Ok(map(dictionary)?.value(text(key)))
}

/// Returns the key of a new entry. It shares the bytes of a string, but is charged as a copy: the dictionary compares
/// it with other keys, which takes as long.
fn key(call: &CallContext<'_>, value: &Value) -> Result<Arc<[u8]>, FunctionError> {
    match value {
        Value::String(text) => {
            call.charge_memory(text.len())?;
            Ok(Arc::clone(text))
        }
        other => Ok(to_text(call, other)?.into()),
    }
}

/// Sets a key, unless the dictionary would then be within itself and never be freed.
fn insert(call: &CallContext<'_>, map: &Map, key: Arc<[u8]>, value: Value) -> Result<(), FunctionError> {
    call.charge_memory(ENTRY_BYTES)?;
    if reaches(call, &value, map)? {
        return Err("a dictionary cannot be within itself".into());
    }
    map.insert(key, value);
    Ok(())
}

/// Returns whether a dictionary is a value, or within it.
fn reaches(call: &CallContext<'_>, value: &Value, target: &Map) -> Result<bool, FunctionError> {
    let mut pending = vec![value.clone()];
    while let Some(value) = pending.pop() {
        call.charge_steps(1)?;
        match value {
            Value::Map(map) if map.is_same(target) => return Ok(true),
            Value::Map(map) => pending.extend(map.entries().values().cloned()),
            Value::List(list) => pending.extend_from_slice(list.items()),
            _ => {}
        }
    }
    Ok(false)
}

/// Returns the entries whose names are given, or the others.
fn filter(call: &CallContext<'_>, args: &[Value], keeps_named: bool) -> Result<Value, FunctionError> {
    let map = map(&args[0])?;
    let entries = map.entries();
    call.charge_memory(ENTRY_BYTES * entries.len())?;
    // Finding a name compares it with others.
    let keys = args[1..].iter().map(text).chain(entries.keys().map(|key| &**key));
    call.charge_steps(keys.map(|key| 1 + key.len() / 64).sum())?;
    let names: std::collections::BTreeSet<&[u8]> = args[1..].iter().map(text).collect();
    let kept = entries.iter().filter(|(key, _)| names.contains(&***key) == keeps_named);
    let kept = kept.map(|(key, value)| (Arc::clone(key), value.clone()));
    Ok(Value::Map(Map::new(kept.collect(), Element::Any)))
}

fn merge_all(call: &CallContext<'_>, args: &[Value], overwrites: bool) -> Result<Value, FunctionError> {
    let target = map(&args[0])?;
    for source in &args[1..] {
        merge(call, &target, &map(source)?, overwrites, VALUE_DEPTH_MAX)?;
    }
    Ok(args[0].clone())
}

/// `dario.cat/mergo`: adds the entries of `source` whose key the target does not have, or has with an empty value; if
/// `overwrites`, all of them. Dictionaries within both are merged.
fn merge(
    call: &CallContext<'_>,
    target: &Map,
    source: &Map,
    overwrites: bool,
    depth: u32,
) -> Result<(), FunctionError> {
    let depth = depth.checked_sub(1).ok_or(LimitError::ValueDepth)?;
    let is_typed = target.element() != Element::Any && target.element() != source.element();
    call.charge_memory(ENTRY_BYTES * source.entries().len())?;
    let entries: Vec<_> = source.entries().iter().map(|(key, value)| (key.clone(), value.clone())).collect();
    for (key, value) in entries {
        call.charge_steps(1 + key.len() / 64)?;
        let old = target.value(&key);
        let replaces = match (&value, old.as_ref().filter(|old| !is_empty(old))) {
            (value, _) if is_nil(value) => overwrites,
            (Value::Map(value), Some(Value::Map(old))) => {
                merge(call, old, value, overwrites, depth)?;
                false
            }
            (Value::Map(new), None) => {
                // An empty dictionary gets the entries, and then gives way to the one that they are from.
                if let Some(Value::Map(old)) = &old {
                    merge(call, old, new, overwrites, depth)?;
                }
                true
            }
            (_, old) => overwrites || old.is_none(),
        };
        if replaces {
            if is_typed {
                return Err("reflect.Value.SetMapIndex: value is not assignable to type string".into());
            }
            insert(call, target, key, value)?;
        }
    }
    Ok(())
}

fn deep_copy(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    if is_nil(&args[0]) {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    copy(call, &args[0], VALUE_DEPTH_MAX)
}

/// Copies a value with all containers within it.
fn copy(call: &CallContext<'_>, value: &Value, depth: u32) -> Result<Value, FunctionError> {
    let depth = depth.checked_sub(1).ok_or(LimitError::ValueDepth)?;
    call.charge_steps(1)?;
    call.charge_memory(value.size())?;
    Ok(match value {
        Value::List(list) if list.is_nil() => value.clone(),
        Value::List(list) => {
            let items = list.items().iter().map(|item| copy(call, item, depth)).collect::<Result<_, _>>()?;
            Value::List(List::new(items, list.element()))
        }
        Value::Map(map) => {
            let entries = map.entries();
            let entries = entries.iter().map(|(key, value)| Ok((key.clone(), copy(call, value, depth)?)));
            Value::Map(Map::new(entries.collect::<Result<_, FunctionError>>()?, map.element()))
        }
        other => other.clone(),
    })
}

/// Returns the value at the end of a path of keys, or the default that comes after them and before the dictionary.
fn dig(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let [keys @ .., default, dict] = args else { return Err("dig needs at least three arguments".into()) };
    if keys.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    if let Some(key) = keys.iter().find(|key| key.as_bytes().is_none()) {
        return Err(format!("interface conversion: interface {{}} is {}, not string", key.type_name()).into());
    }
    let mut step = dict.clone();
    for key in keys {
        let Value::Map(map) = &step else { return Err(not_a_map(&step)) };
        if map.element() != Element::Any {
            return Err(not_a_map(&step));
        }
        call.charge_steps(text(key).len() / 64)?;
        match map.value(text(key)) {
            Some(value) => step = value,
            None => return Ok(default.clone()),
        }
    }
    Ok(step)
}

fn not_a_map(value: &Value) -> FunctionError {
    format!("interface conversion: interface {{}} is {}, not map[string]interface {{}}", value.type_name()).into()
}

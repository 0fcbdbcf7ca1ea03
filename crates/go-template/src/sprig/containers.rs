//! Lists and dictionaries. Functions return new ones, but `set` and `unset` change a dictionary.

use super::{ANY, fixed, is_empty, list, shown, text, variadic};
use crate::builtins::is_equal;
use crate::error::Failure;
use crate::functions::{Call, Row, Type};
use crate::value::{Map, Value};

const LIST_AND_ANY: &[Type] = &[Type::Any, Type::Any];
const MAP_AND_NAME: &[Type] = &[Type::Map, Type::String];

pub(super) static ROWS: &[Row] = &[
    fixed("append", LIST_AND_ANY, |call, args| changed(call, &args[0], |items| items.push(args[1].clone()))),
    fixed("compact", ANY, |call, args| changed(call, &args[0], |items| items.retain(|item| !is_empty(item)))),
    variadic("concat", ANY, |call, args| {
        let mut all = Vec::new();
        for value in args {
            let list = list(value)?;
            call.allocate(32 * list.items().len())?;
            all.extend_from_slice(list.items());
        }
        Ok(Value::list(all))
    }),
    variadic("dict", ANY, |call, args| {
        let mut pairs = Vec::new();
        for pair in args.chunks(2) {
            pairs.push((shown(call, &pair[0])?, pair.get(1).cloned().unwrap_or_else(|| "".into())));
        }
        call.allocate(64 * pairs.len())?;
        Ok(Value::map(pairs))
    }),
    fixed("first", ANY, |_, args| Ok(list(&args[0])?.items().first().cloned().unwrap_or(Value::Nil))),
    fixed("get", MAP_AND_NAME, |_, args| Ok(map(&args[0])?.value(text(&args[1])).unwrap_or_else(|| "".into()))),
    fixed("has", LIST_AND_ANY, |call, args| {
        let list = list(&args[1])?;
        call.spend(list.items().len())?;
        Ok(Value::Bool(contains(list.items(), &args[0])))
    }),
    fixed("hasKey", MAP_AND_NAME, |_, args| Ok(Value::Bool(map(&args[0])?.value(text(&args[1])).is_some()))),
    fixed("initial", ANY, |call, args| changed(call, &args[0], |items| drop(items.pop()))),
    variadic("keys", &[Type::Map], |call, args| {
        let mut keys = Vec::new();
        for value in args {
            let map = map(value)?;
            call.allocate(64 * map.entries().len())?;
            keys.extend(map.entries().keys().map(|key| Value::from(&**key)));
        }
        Ok(Value::strings(keys))
    }),
    fixed("last", ANY, |_, args| Ok(list(&args[0])?.items().last().cloned().unwrap_or(Value::Nil))),
    variadic("list", ANY, |call, args| {
        call.allocate(32 * args.len())?;
        Ok(Value::list(args.to_vec()))
    }),
    variadic("omit", MAP_AND_NAME, |call, args| {
        filtered(call, &args[0], |key| !args[1..].iter().any(|name| text(name) == key))
    }),
    variadic("pick", MAP_AND_NAME, |call, args| {
        filtered(call, &args[0], |key| args[1..].iter().any(|name| text(name) == key))
    }),
    variadic("pluck", &[Type::String, Type::Map], |_, args| {
        let maps = args[1..].iter().map(map).collect::<Result<Vec<_>, _>>()?;
        Ok(Value::list(maps.iter().filter_map(|map| map.value(text(&args[0]))).collect()))
    }),
    fixed("prepend", LIST_AND_ANY, |call, args| changed(call, &args[0], |items| items.insert(0, args[1].clone()))),
    fixed("rest", ANY, |call, args| changed(call, &args[0], |items| drop(items.drain(..items.len().min(1))))),
    fixed("reverse", ANY, |call, args| changed(call, &args[0], |items| items.reverse())),
    fixed("set", &[Type::Map, Type::String, Type::Any], |call, args| {
        let map = map(&args[0])?;
        call.allocate(64)?;
        if reaches(call, &args[2], &map)? {
            return Err("a dictionary cannot be within itself".into());
        }
        map.insert(text(&args[1]).into(), args[2].clone());
        Ok(args[0].clone())
    }),
    variadic("tuple", ANY, |call, args| {
        call.allocate(32 * args.len())?;
        Ok(Value::list(args.to_vec()))
    }),
    fixed("uniq", ANY, |call, args| {
        changed(call, &args[0], |items| {
            let mut kept = Vec::new();
            for item in items.drain(..) {
                if !contains(&kept, &item) {
                    kept.push(item);
                }
            }
            *items = kept;
        })
    }),
    fixed("unset", MAP_AND_NAME, |_, args| {
        map(&args[0])?.remove(text(&args[1]));
        Ok(args[0].clone())
    }),
    fixed("values", &[Type::Map], |call, args| {
        let map = map(&args[0])?;
        call.allocate(32 * map.entries().len())?;
        let values = map.entries().values().cloned().collect();
        Ok(Value::list(values))
    }),
    variadic("without", LIST_AND_ANY, |call, args| {
        changed(call, &args[0], |items| items.retain(|item| !contains(&args[1..], item)))
    }),
];

fn map(value: &Value) -> Result<Map, Failure> {
    match value.resolved() {
        Value::Map(map) => Ok(map),
        other => Err(format!("wrong type: found {}, expected a dictionary", other.type_name()).into()),
    }
}

/// Returns whether one of the items equals the value.
fn contains(items: &[Value], value: &Value) -> bool {
    items.iter().any(|item| is_equal(&[item.clone(), value.clone()]).unwrap_or(false))
}

/// Makes a changed copy of a list. Twice the square of its length is more work than any of the changes is.
fn changed(call: &Call<'_>, value: &Value, change: impl FnOnce(&mut Vec<Value>)) -> Result<Value, Failure> {
    let list = list(value)?;
    let len = list.items().len();
    call.allocate(32 * len)?;
    call.spend(len.saturating_mul(len) / 16)?;
    let mut items = list.items().to_vec();
    change(&mut items);
    Ok(Value::list(items))
}

fn filtered(call: &Call<'_>, value: &Value, keep: impl Fn(&[u8]) -> bool) -> Result<Value, Failure> {
    let map = map(value)?;
    call.allocate(64 * map.entries().len())?;
    let entries = map.entries();
    let kept = entries.iter().filter(|(key, _)| keep(key)).map(|(key, value)| (key, value.clone()));
    Ok(Value::map(kept))
}

/// Returns whether a dictionary is a value, or within it. Then it would never be freed.
fn reaches(call: &Call<'_>, value: &Value, target: &Map) -> Result<bool, Failure> {
    let mut pending = vec![value.clone()];
    while let Some(value) = pending.pop() {
        call.spend(1)?;
        match value {
            Value::Map(map) if map.is_same(target) => return Ok(true),
            Value::Map(map) => pending.extend(map.entries().values().cloned()),
            Value::List(list) => pending.extend_from_slice(list.items()),
            _ => {}
        }
    }
    Ok(false)
}

//! Strings: parts, search, replacement, joining and quoting.

use super::chars::{chars, decode};
use super::{ANY, STRING, fixed, is_nil, list, text, to_text, variadic};
use crate::error::FunctionError;
use crate::format::quoted;
use crate::functions::{Builtin, CallContext, Type};
use crate::value::{Element, Map, Value};

const TWO: &[Type] = &[Type::String, Type::String];
const THREE: &[Type] = &[Type::String, Type::String, Type::String];
const COUNTED: &[Type] = &[Type::Int, Type::String];
/// The bytes that a part of a split text occupies beside its own: the value, the counters, and its key in a dictionary.
const PART_BYTES: usize = 112;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("abbrev", COUNTED, |call, args| Ok(abbreviate(call, 0, integer(&args[0]), text(&args[1]))?.into())),
    fixed("abbrevboth", &[Type::Int, Type::Int, Type::String], |call, args| {
        let (left, right) = (integer(&args[0]), integer(&args[1]));
        if left > 0 && right < 7 {
            return Ok(args[2].clone());
        }
        Ok(abbreviate(call, left, right, text(&args[2]))?.into())
    }),
    variadic("cat", ANY, |call, args| join(call, b" ", args)),
    fixed("contains", TWO, |_, args| Ok(Value::Bool(find(text(&args[1]), text(&args[0])).is_some()))),
    fixed("hasPrefix", TWO, |_, args| Ok(Value::Bool(text(&args[1]).starts_with(text(&args[0]))))),
    fixed("hasSuffix", TWO, |_, args| Ok(Value::Bool(text(&args[1]).ends_with(text(&args[0]))))),
    fixed("hello", &[], |_, _| Ok("Hello!".into())),
    fixed("indent", COUNTED, |call, args| indent(call, args, b"")),
    fixed("join", &[Type::String, Type::Any], |call, args| match args[1].resolved() {
        Value::List(list) => join(call, text(&args[0]), list.items()),
        other if is_nil(&other) => Ok("".into()),
        other => Ok(to_text(call, &other)?.into()),
    }),
    fixed("nindent", COUNTED, |call, args| indent(call, args, b"\n")),
    fixed("plural", &[Type::String, Type::String, Type::Int], |_, args| {
        Ok(args[usize::from(args[2].as_integer() != Some(1))].clone())
    }),
    variadic("quote", ANY, |call, args| {
        let shown = |value: &Value| {
            let text = quoted(&to_text(call, value)?);
            call.charge_memory(text.len())?;
            Ok::<_, FunctionError>(Value::from(text))
        };
        let parts = args.iter().filter(|value| !is_nil(value)).map(shown).collect::<Result<Vec<_>, _>>()?;
        join(call, b" ", &parts)
    }),
    fixed("repeat", COUNTED, |call, args| {
        let count = usize::try_from(integer(&args[0])).map_err(|_| "a negative count")?;
        let mut out = call.text();
        out.repeat(text(&args[1]), count)?;
        Ok(out.into_bytes().into())
    }),
    fixed("replace", THREE, |call, args| replace(call, &args[2], text(&args[0]), text(&args[1]))),
    fixed("sortAlpha", ANY, |call, args| {
        let mut items = match &args[0] {
            // A single value, also nil, becomes a list.
            Value::Nil => vec![to_text(call, &args[0])?],
            value => strings(call, value)?,
        };
        // A comparison looks at as many bytes as two strings have in common.
        let bytes = items.iter().map(Vec::len).sum::<usize>();
        call.charge_steps(
            (items.len() + bytes / 8).saturating_mul(items.len().checked_ilog2().unwrap_or(0) as usize + 1) / 8,
        )?;
        items.sort();
        Ok(Value::strings(items))
    }),
    fixed("split", TWO, |call, args| number_parts(call, &parts(call, &args[1], text(&args[0]), usize::MAX)?)),
    fixed("splitList", TWO, |call, args| {
        let parts = parts(call, &args[1], text(&args[0]), usize::MAX)?;
        allocate_parts(call, &parts)?;
        Ok(Value::strings(parts))
    }),
    fixed("splitn", &[Type::String, Type::Int, Type::String], |call, args| {
        let count = usize::try_from(integer(&args[1])).unwrap_or(usize::MAX);
        number_parts(call, &parts(call, &args[2], text(&args[0]), count)?)
    }),
    variadic("squote", ANY, |call, args| {
        let quoted =
            |value: &Value| Ok::<_, FunctionError>(Value::from([b"'", &*to_text(call, value)?, b"'"].concat()));
        let parts = args.iter().filter(|value| !is_nil(value)).map(quoted).collect::<Result<Vec<_>, _>>()?;
        join(call, b" ", &parts)
    }),
    fixed("substr", &[Type::Int, Type::Int, Type::String], |_, args| {
        let (start, end, text) = (integer(&args[0]), integer(&args[1]), text(&args[2]));
        let position = |number: i64| usize::try_from(number).unwrap_or(usize::MAX);
        let part = if start < 0 {
            text.get(..position(end))
        } else if position(end) > text.len() {
            text.get(position(start)..)
        } else {
            text.get(position(start)..position(end))
        };
        Ok(part.ok_or("slice bounds out of range")?.into())
    }),
    fixed("toString", ANY, |call, args| Ok(to_text(call, &args[0])?.into())),
    fixed("toStrings", ANY, |call, args| Ok(Value::strings(strings(call, &args[0])?))),
    fixed("trim", STRING, |_, args| Ok(trim(text(&args[0]), char::is_whitespace).into())),
    fixed("trimAll", TWO, trim_all),
    fixed("trimPrefix", TWO, |_, args| {
        let text = text(&args[1]);
        Ok(text.strip_prefix(super::text(&args[0])).unwrap_or(text).into())
    }),
    fixed("trimSuffix", TWO, |_, args| {
        let text = text(&args[1]);
        Ok(text.strip_suffix(super::text(&args[0])).unwrap_or(text).into())
    }),
    fixed("trimall", TWO, trim_all),
    fixed("trunc", COUNTED, |_, args| {
        let (text, count) = (text(&args[1]), integer(&args[0]));
        let len = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(text.len());
        Ok(if count < 0 { &text[text.len() - len..] } else { &text[..len] }.into())
    }),
];

fn integer(value: &Value) -> i64 {
    value.as_integer().unwrap_or_default()
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    bstr::ByteSlice::find(text, wanted)
}

/// Shortens a text to `width` bytes, with three dots at its end, and at its start if `offset` is beyond the fourth
/// byte.
fn abbreviate(call: &CallContext<'_>, offset: i64, width: i64, text: &[u8]) -> Result<Vec<u8>, FunctionError> {
    let Some(width) = usize::try_from(width).ok().filter(|width| (4..text.len()).contains(width)) else {
        return Ok(text.to_vec());
    };
    let kept = width - 3;
    // The offset moves left, so that the end of the text fills the width.
    let offset = usize::try_from(offset).unwrap_or(0).min(text.len() - kept);
    let mut out = call.text();
    if offset <= 4 {
        out.push(&text[..kept])?;
        out.push(b"...")?;
    } else if width >= 7 {
        out.push(b"...")?;
        if offset + kept < text.len() {
            out.push(&abbreviate(call, 0, (width - 3) as i64, &text[offset..])?)?;
        } else {
            out.push(&text[text.len() - kept..])?;
        }
    }
    Ok(out.into_bytes())
}

fn trim(text: &[u8], cut: impl Fn(char) -> bool) -> &[u8] {
    let mut rest = text;
    while !rest.is_empty() {
        let (c, size) = decode(rest);
        if !cut(c) {
            break;
        }
        rest = &rest[size..];
    }
    while !rest.is_empty() {
        let (c, size) = match bstr::decode_last_utf8(rest) {
            (Some(c), size) => (c, size),
            (None, _) => (char::REPLACEMENT_CHARACTER, 1),
        };
        if !cut(c) {
            break;
        }
        rest = &rest[..rest.len() - size];
    }
    rest
}

fn trim_all(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    call.charge_steps(text(&args[0]).len())?;
    let set: std::collections::BTreeSet<char> = chars(text(&args[0])).collect();
    Ok(trim(text(&args[1]), |c| set.contains(&c)).into())
}

/// Joins values, without those that are nil.
fn join(call: &CallContext<'_>, separator: &[u8], values: &[Value]) -> Result<Value, FunctionError> {
    let mut out = call.text();
    for (index, value) in values.iter().filter(|value| !is_nil(value)).enumerate() {
        call.charge_steps(1)?;
        if index > 0 {
            out.push(separator)?;
        }
        match value {
            Value::String(text) => out.push(text)?,
            other => out.push(&to_text(call, other)?)?,
        }
    }
    Ok(out.into_bytes().into())
}

/// Returns the texts of a list's elements without those that are nil, or that of a single value.
fn strings(call: &CallContext<'_>, value: &Value) -> Result<Vec<Vec<u8>>, FunctionError> {
    let items = match value.resolved() {
        Value::List(_) => {
            let list = list(value)?;
            call.charge_memory(size_of_val(list.items()))?;
            list.items().to_vec()
        }
        other => {
            call.charge_memory(size_of::<Value>())?;
            vec![other]
        }
    };
    items.iter().filter(|item| !is_nil(item)).map(|item| to_text(call, item)).collect()
}

/// Splits a text into at most `count` parts; an empty separator splits it into characters.
fn parts<'t>(
    call: &CallContext<'_>,
    value: &'t Value,
    separator: &[u8],
    count: usize,
) -> Result<Vec<&'t [u8]>, FunctionError> {
    let text = text(value);
    call.charge_steps(text.len())?;
    call.charge_memory(text.len().saturating_mul(if separator.len() < 16 { 16 } else { 2 }))?;
    if count == 0 {
        return Ok(Vec::new());
    }
    if separator.is_empty() {
        let (mut parts, mut rest) = (Vec::new(), text);
        while !rest.is_empty() {
            let size = if parts.len() + 1 == count { rest.len() } else { decode(rest).1 };
            let (part, after) = rest.split_at(size);
            parts.push(part);
            rest = after;
        }
        return Ok(parts);
    }
    Ok(bstr::ByteSlice::splitn_str(text, count, separator).collect())
}

/// Uses the memory of parts as values of their own. A short one occupies far more than its bytes.
fn allocate_parts(call: &CallContext<'_>, parts: &[&[u8]]) -> Result<(), FunctionError> {
    Ok(call.charge_memory(parts.iter().map(|part| PART_BYTES + part.len()).sum())?)
}

/// Makes a map with the keys `_0`, `_1` and so on.
fn number_parts(call: &CallContext<'_>, parts: &[&[u8]]) -> Result<Value, FunctionError> {
    allocate_parts(call, parts)?;
    let entries = parts.iter().enumerate();
    let entries = entries.map(|(index, part)| (format!("_{index}").into_bytes().into(), Value::from(*part)));
    Ok(Value::Map(Map::new(entries.collect(), Element::String)))
}

fn replace(call: &CallContext<'_>, value: &Value, old: &[u8], new: &[u8]) -> Result<Value, FunctionError> {
    let mut out = call.text();
    for (index, part) in parts(call, value, old, usize::MAX)?.iter().enumerate() {
        // As in Go, an empty text is found before each character and at the end.
        if index > 0 || old.is_empty() {
            out.push(new)?;
        }
        out.push(part)?;
    }
    if old.is_empty() {
        out.push(new)?;
    }
    Ok(out.into_bytes().into())
}

fn indent(call: &CallContext<'_>, args: &[Value], before: &[u8]) -> Result<Value, FunctionError> {
    let count = usize::try_from(integer(&args[0])).map_err(|_| "a negative count")?;
    let mut out = call.text();
    out.push(before)?;
    for (index, line) in text(&args[1]).split(|byte| *byte == b'\n').enumerate() {
        call.charge_steps(1)?;
        if index > 0 {
            out.push(b"\n")?;
        }
        out.repeat(b" ", count)?;
        out.push(line)?;
    }
    Ok(out.into_bytes().into())
}

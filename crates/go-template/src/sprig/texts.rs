//! Strings.

use super::{ANY, STRING, fixed, list, shown, text, variadic};
use crate::error::Failure;
use crate::format::quoted;
use crate::functions::{Call, Row, Type};
use crate::value::Value;

const TWO: &[Type] = &[Type::String, Type::String];
const THREE: &[Type] = &[Type::String, Type::String, Type::String];
const COUNTED: &[Type] = &[Type::Int, Type::String];

pub(super) static ROWS: &[Row] = &[
    variadic("cat", ANY, |call, args| joined(call, b" ", args)),
    fixed("contains", TWO, |_, args| Ok(Value::Bool(find(text(&args[1]), text(&args[0])).is_some()))),
    fixed("hasPrefix", TWO, |_, args| Ok(Value::Bool(text(&args[1]).starts_with(text(&args[0]))))),
    fixed("hasSuffix", TWO, |_, args| Ok(Value::Bool(text(&args[1]).ends_with(text(&args[0]))))),
    fixed("indent", COUNTED, |call, args| indented(call, args, b"")),
    fixed("join", &[Type::String, Type::Any], |call, args| match args[1].resolved() {
        Value::List(list) => joined(call, text(&args[0]), list.items()),
        other => Ok(shown(call, &other)?.into()),
    }),
    fixed("lower", STRING, |_, args| Ok(string(&args[0]).to_lowercase().into())),
    fixed("nindent", COUNTED, |call, args| indented(call, args, b"\n")),
    fixed("nospace", STRING, |_, args| {
        Ok(string(&args[0]).chars().filter(|letter| !letter.is_whitespace()).collect::<String>().into())
    }),
    fixed("plural", &[Type::String, Type::String, Type::Int], |_, args| {
        Ok(args[usize::from(args[2].as_integer() != Some(1))].clone())
    }),
    variadic("quote", ANY, |call, args| {
        let shown = |value: &Value| Ok::<_, Failure>(Value::from(quoted(&shown(call, value)?)));
        let parts = args.iter().filter(|value| !is_nil(value)).map(shown).collect::<Result<Vec<_>, _>>()?;
        joined(call, b" ", &parts)
    }),
    fixed("repeat", COUNTED, |call, args| {
        let count = usize::try_from(args[0].as_integer().unwrap_or_default()).map_err(|_| "a negative count")?;
        let mut out = call.text();
        out.repeat(text(&args[1]), count)?;
        Ok(out.into_bytes().into())
    }),
    fixed("replace", THREE, |call, args| replaced(call, &args[2], text(&args[0]), text(&args[1]))),
    fixed("sortAlpha", ANY, |call, args| {
        let list = list(&args[0])?;
        let mut items = list.items().iter().map(|item| shown(call, item)).collect::<Result<Vec<_>, _>>()?;
        items.sort();
        Ok(Value::strings(items))
    }),
    fixed("split", TWO, |call, args| {
        let parts = parts(call, &args[1], text(&args[0]))?;
        Ok(Value::map(parts.into_iter().enumerate().map(|(index, part)| (format!("_{index}"), Value::from(part)))))
    }),
    fixed("splitList", TWO, |call, args| Ok(Value::strings(parts(call, &args[1], text(&args[0]))?))),
    variadic("squote", ANY, |call, args| {
        let quoted = |value: &Value| Ok::<_, Failure>(Value::from([b"'", &*shown(call, value)?, b"'"].concat()));
        let parts = args.iter().filter(|value| !is_nil(value)).map(quoted).collect::<Result<Vec<_>, _>>()?;
        joined(call, b" ", &parts)
    }),
    fixed("substr", &[Type::Int, Type::Int, Type::String], |_, args| {
        let (text, number) = (text(&args[2]), |index: usize| args[index].as_integer().unwrap_or_default());
        let end = usize::try_from(number(1)).unwrap_or(text.len()).min(text.len());
        let start = usize::try_from(number(0)).unwrap_or(0);
        Ok(text.get(start..end).ok_or("the start is after the end")?.into())
    }),
    fixed("title", STRING, |_, args| {
        Ok(starts_of_words(&string(&args[0]), |letter| letter.to_uppercase().collect()).into())
    }),
    fixed("toString", ANY, |call, args| Ok(shown(call, &args[0])?.into())),
    fixed("trim", STRING, |_, args| Ok(string(&args[0]).trim().into())),
    fixed("trimAll", TWO, |_, args| {
        let (set, text) = (string(&args[0]), string(&args[1]));
        Ok(text.trim_matches(|letter| set.contains(letter)).into())
    }),
    fixed("trimPrefix", TWO, |_, args| {
        let text = text(&args[1]);
        Ok(text.strip_prefix(super::text(&args[0])).unwrap_or(text).into())
    }),
    fixed("trimSuffix", TWO, |_, args| {
        let text = text(&args[1]);
        Ok(text.strip_suffix(super::text(&args[0])).unwrap_or(text).into())
    }),
    fixed("trunc", COUNTED, |_, args| {
        let (text, count) = (text(&args[1]), args[0].as_integer().unwrap_or_default());
        let len = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX).min(text.len());
        Ok(if count < 0 { &text[text.len() - len..] } else { &text[..len] }.into())
    }),
    fixed("untitle", STRING, |_, args| {
        Ok(starts_of_words(&string(&args[0]), |letter| letter.to_lowercase().collect()).into())
    }),
    fixed("upper", STRING, |_, args| Ok(string(&args[0]).to_uppercase().into())),
];

fn string(value: &Value) -> String {
    String::from_utf8_lossy(text(value)).into_owned()
}

fn is_nil(value: &Value) -> bool {
    matches!(value, Value::Absent | Value::Nil)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    bstr::ByteSlice::find(text, wanted)
}

/// Joins values, without those that are nil.
fn joined(call: &Call<'_>, separator: &[u8], values: &[Value]) -> Result<Value, Failure> {
    let mut out = call.text();
    for (index, value) in values.iter().filter(|value| !is_nil(value)).enumerate() {
        call.spend(1)?;
        if index > 0 {
            out.push(separator)?;
        }
        out.push(&shown(call, value)?)?;
    }
    Ok(out.into_bytes().into())
}

/// Splits a text; an empty separator splits it into characters.
fn parts(call: &Call<'_>, value: &Value, separator: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let text = text(value);
    call.spend(text.len())?;
    call.allocate(text.len().saturating_mul(if separator.len() < 16 { 16 } else { 2 }))?;
    if separator.is_empty() {
        return Ok(string(value).chars().map(|letter| letter.to_string().into_bytes()).collect());
    }
    Ok(bstr::ByteSlice::split_str(text, separator).map(<[u8]>::to_vec).collect())
}

fn replaced(call: &Call<'_>, value: &Value, old: &[u8], new: &[u8]) -> Result<Value, Failure> {
    let mut out = call.text();
    for (index, part) in parts(call, value, old)?.iter().enumerate() {
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

fn indented(call: &Call<'_>, args: &[Value], before: &[u8]) -> Result<Value, Failure> {
    let count = usize::try_from(args[0].as_integer().unwrap_or_default()).map_err(|_| "a negative count")?;
    let mut out = call.text();
    out.push(before)?;
    for (index, line) in text(&args[1]).split(|byte| *byte == b'\n').enumerate() {
        if index > 0 {
            out.push(b"\n")?;
        }
        out.repeat(b" ", count)?;
        out.push(line)?;
    }
    Ok(out.into_bytes().into())
}

/// Changes the first letter of each word.
fn starts_of_words(text: &str, change: impl Fn(char) -> String) -> String {
    let mut is_start = true;
    let mut out = String::new();
    for letter in text.chars() {
        if std::mem::replace(&mut is_start, !letter.is_alphanumeric() && letter != '_' && letter != '\'') {
            out.push_str(&change(letter));
        } else {
            out.push(letter);
        }
    }
    out
}

//! JSON and Base64.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value as Json;

use super::{ANY, STRING, fixed, text};
use crate::budget::VALUE_DEPTH_MAX;
use crate::error::Failure;
use crate::functions::{Call, Row};
use crate::value::Value;

pub(super) static ROWS: &[Row] = &[
    fixed("b64dec", STRING, |call, args| {
        call.allocate(text(&args[0]).len())?;
        // As in Sprig, the message in place of a text that is not Base64.
        Ok(BASE64_STANDARD.decode(text(&args[0])).unwrap_or_else(|error| error.to_string().into_bytes()).into())
    }),
    fixed("b64enc", STRING, |call, args| {
        call.allocate(2 * text(&args[0]).len())?;
        Ok(BASE64_STANDARD.encode(text(&args[0])).into())
    }),
    fixed("fromJson", STRING, |call, args| {
        call.allocate(16 * text(&args[0]).len())?;
        // As in Sprig, nothing for a text that is not JSON. The parser bounds how deep values nest.
        Ok(serde_json::from_slice(text(&args[0])).map_or(Value::Nil, value))
    }),
    fixed("toJson", ANY, |call, args| written(call, &args[0], |json| json.to_string())),
    fixed("toPrettyJson", ANY, |call, args| {
        written(call, &args[0], |json| serde_json::to_string_pretty(json).unwrap_or_default())
    }),
];

/// Numbers are floats, as Go decodes them.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => value.into(),
        Json::Number(number) => number.as_f64().unwrap_or_default().into(),
        Json::String(text) => text.into(),
        Json::Array(items) => Value::list(items.into_iter().map(value).collect()),
        Json::Object(members) => Value::map(members.into_iter().map(|(name, member)| (name, value(member)))),
    }
}

fn written(call: &Call<'_>, value: &Value, write: fn(&Json) -> String) -> Result<Value, Failure> {
    let text = write(&json(call, value, VALUE_DEPTH_MAX)?);
    // Go escapes these, so that JSON can stand in HTML.
    let text = text.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    call.allocate(text.len())?;
    Ok(text.into())
}

fn json(call: &Call<'_>, value: &Value, depth: u32) -> Result<Json, Failure> {
    let depth = depth.checked_sub(1).ok_or("a value nests too deep for JSON")?;
    call.allocate(32)?;
    Ok(match value {
        Value::Absent | Value::Nil => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Int(value) | Value::Integer(value, _) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        // Go writes whole floats without a fraction.
        Value::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => (*value as i64).into(),
        Value::Float(value) => (*value).into(),
        Value::String(text) => String::from_utf8_lossy(text).into(),
        Value::List(list) => {
            Json::Array(list.items().iter().map(|item| json(call, item, depth)).collect::<Result<_, _>>()?)
        }
        Value::Map(map) => {
            let entries = map.entries();
            let members = entries
                .iter()
                .map(|(key, value)| Ok((String::from_utf8_lossy(key).into_owned(), json(call, value, depth)?)));
            Json::Object(members.collect::<Result<_, Failure>>()?)
        }
        Value::Object(object) => match (object.underlying(), object.text()) {
            (Some(inner), _) => json(call, &inner, depth)?,
            (None, Some(text)) => text.into(),
            (None, None) => return Err(format!("{} cannot be written as JSON", object.type_name()).into()),
        },
    })
}

//! JSON, as Go's encoding/json writes and reads it.
//!
//! - `read`: a text to a value
//! - `write`: a value to a text

mod read;
mod write;

use super::{ANY, STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::Builtin;
use crate::value::Value;

use write::{Form, Written, write_json};

pub(super) static BUILTINS: &[Builtin] = &[
    // As in Sprig, nothing for a text that is not JSON.
    fixed("fromJson", STRING, |call, args| Ok(read::value(call, text(&args[0]))?.value)),
    fixed("mustFromJson", STRING, |call, args| {
        let read = read::value(call, text(&args[0]))?;
        if let Some(error) = read.error { Err(error.into()) } else { Ok(read.value) }
    }),
    fixed("mustToJson", ANY, |call, args| supported(write_json(call, &args[0], Form::Html)?)),
    fixed("mustToPrettyJson", ANY, |call, args| supported(write_json(call, &args[0], Form::Indented)?)),
    fixed("mustToRawJson", ANY, |call, args| supported(write_json(call, &args[0], Form::Raw)?)),
    fixed("toJson", ANY, |call, args| Ok(lenient(write_json(call, &args[0], Form::Html)?))),
    fixed("toPrettyJson", ANY, |call, args| Ok(lenient(write_json(call, &args[0], Form::Indented)?))),
    fixed("toRawJson", ANY, |call, args| supported(write_json(call, &args[0], Form::Raw)?)),
];

fn supported(written: Written) -> Result<Value, FunctionError> {
    match written.unsupported {
        Some(value) => Err(format!("json: unsupported value: {value}").into()),
        None => Ok(written.text.into()),
    }
}

/// Returns an empty text for a value that JSON does not have, as Sprig.
fn lenient(written: Written) -> Value {
    if written.unsupported.is_some() { "".into() } else { written.text.into() }
}

//! Functions of Sprig v3 (github.com/Masterminds/sprig), the library that Go's programs add to text/template.
//!
//! - `texts`: strings and lists of strings
//! - `cases`: upper and lower case, words and lines; `chars`: characters as Go sees them
//! - `numbers`: arithmetic in 64-bit integers and floats; `decimals`: exact arithmetic of decimal numbers
//! - `lists`, `dicts`: lists and dictionaries; `equal`: equality of all values
//! - `paths`, `urls`, `versions`, `regexps`: paths, URLs, versions and regular expressions
//! - `json`: JSON; `encodings`: Base64, Base32 and checksums

mod cases;
mod chars;
mod decimals;
mod dicts;
mod encodings;
mod equal;
mod json;
mod lists;
mod numbers;
mod paths;
mod regexps;
mod texts;
mod urls;
mod versions;

pub(crate) use regexps::RegexCache;

use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext, Type, fixed, variadic};
use crate::print;
use crate::value::{List, Value};

const ANY: &[Type] = &[Type::Any];
const STRING: &[Type] = &[Type::String];

pub(crate) static TABLES: &[&[Builtin]] = &[
    texts::BUILTINS,
    cases::BUILTINS,
    numbers::BUILTINS,
    decimals::BUILTINS,
    lists::BUILTINS,
    dicts::BUILTINS,
    paths::BUILTINS,
    urls::BUILTINS,
    versions::BUILTINS,
    regexps::BUILTINS,
    json::BUILTINS,
    encodings::BUILTINS,
    BUILTINS,
];

/// Defaults and conditions.
static BUILTINS: &[Builtin] = &[
    variadic("all", ANY, |_, args| Ok(Value::Bool(args.iter().all(|value| !is_empty(value))))),
    variadic("any", ANY, |_, args| Ok(Value::Bool(args.iter().any(|value| !is_empty(value))))),
    variadic("coalesce", ANY, |_, args| Ok(args.iter().find(|value| !is_empty(value)).cloned().unwrap_or(Value::Nil))),
    fixed("deepEqual", &[Type::Any, Type::Any], |call, args| {
        Ok(Value::Bool(equal::is_deeply_equal(call, &args[0], &args[1])?))
    }),
    variadic("default", &[Type::Any, Type::Any], |_, args| {
        let given = args.get(1).filter(|value| !is_empty(value));
        Ok(given.unwrap_or(&args[0]).clone())
    }),
    fixed("empty", ANY, |_, args| Ok(Value::Bool(is_empty(&args[0])))),
    fixed("fail", STRING, |_, args| Err(String::from_utf8_lossy(text(&args[0])).into_owned().into())),
    fixed("kindIs", &[Type::String, Type::Any], |_, args| {
        Ok(Value::Bool(text(&args[0]) == args[1].kind_name().as_bytes()))
    }),
    fixed("kindOf", ANY, |_, args| Ok(args[0].kind_name().into())),
    fixed("ternary", &[Type::Any, Type::Any, Type::Bool], |_, args| {
        Ok(args[usize::from(!matches!(args[2], Value::Bool(true)))].clone())
    }),
    fixed("typeIs", &[Type::String, Type::Any], |_, args| {
        Ok(Value::Bool(text(&args[0]) == args[1].type_name().as_bytes()))
    }),
    fixed("typeIsLike", &[Type::String, Type::Any], |_, args| {
        // The name may be that of the value that a pointer refers to.
        let (wanted, name) = (text(&args[0]), args[1].type_name());
        Ok(Value::Bool(wanted == name.as_bytes() || name.strip_prefix('*').is_some_and(|to| to.as_bytes() == wanted)))
    }),
    fixed("typeOf", ANY, |_, args| Ok(args[0].type_name().into())),
];

/// Returns whether a value is the zero of its type, or empty.
fn is_empty(value: &Value) -> bool {
    match value.resolved() {
        Value::Object(_) => false,
        other => !other.is_true(),
    }
}

fn is_nil(value: &Value) -> bool {
    matches!(value, Value::Absent | Value::Nil)
}

fn text(value: &Value) -> &[u8] {
    value.as_bytes().unwrap_or_default()
}

/// Returns the text of any value, as `%v` prints it. Also the copy of a string uses memory: a list can have one string
/// many times.
fn to_text(call: &CallContext<'_>, value: &Value) -> Result<Vec<u8>, FunctionError> {
    match value {
        Value::String(text) => {
            call.charge_memory(text.len())?;
            Ok(text.to_vec())
        }
        other => print::print(call.budget(), std::slice::from_ref(other)),
    }
}

fn list(value: &Value) -> Result<List, FunctionError> {
    match value.resolved() {
        Value::List(list) => Ok(list),
        other => Err(format!("Cannot use type {} as a list", other.kind_name()).into()),
    }
}

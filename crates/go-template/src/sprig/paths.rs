//! Paths, as Go's package `path`, which on Unix agrees with `path/filepath`.

use super::{STRING, fixed, text};
use crate::error::FunctionError;
use crate::functions::{Builtin, CallContext};
use crate::value::Value;

pub(super) static BUILTINS: &[Builtin] = &[
    fixed("base", STRING, base),
    fixed("clean", STRING, |call, args| clean(call, text(&args[0]))),
    fixed("dir", STRING, dir),
    fixed("ext", STRING, ext),
    fixed("isAbs", STRING, is_absolute),
    fixed("osBase", STRING, base),
    fixed("osClean", STRING, |call, args| clean(call, text(&args[0]))),
    fixed("osDir", STRING, dir),
    fixed("osExt", STRING, ext),
    fixed("osIsAbs", STRING, is_absolute),
];

/// Returns the last element; `/` if there are only slashes, and `.` for an empty path.
fn base(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let path = text(&args[0]);
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    Ok(match &path[start..end] {
        [] if path.is_empty() => b".",
        [] => b"/",
        name => name,
    }
    .into())
}

fn dir(call: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let path = text(&args[0]);
    let end = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    clean(call, &path[..end])
}

/// Returns the end of the last element from its last point.
fn ext(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    let path = text(&args[0]);
    let found = path.iter().rposition(|byte| matches!(byte, b'.' | b'/')).filter(|at| path[*at] == b'.');
    Ok(path[found.unwrap_or(path.len())..].into())
}

fn is_absolute(_: &mut CallContext<'_>, args: &[Value]) -> Result<Value, FunctionError> {
    Ok(Value::Bool(text(&args[0]).starts_with(b"/")))
}

/// Returns the shortest path of the same meaning, without looking at files. Not by `std::path`: a path is bytes of a
/// template, and costs steps and memory.
fn clean(call: &CallContext<'_>, path: &[u8]) -> Result<Value, FunctionError> {
    call.charge_steps(path.len() / 16)?;
    call.charge_memory(path.len())?;
    let is_absolute = path.starts_with(b"/");
    let mut kept: Vec<&[u8]> = Vec::new();
    for element in path.split(|byte| *byte == b'/') {
        match element {
            b"" | b"." => {}
            b".." if kept.last().is_some_and(|last| *last != b"..") => drop(kept.pop()),
            // There is nothing above the root.
            b".." if is_absolute => {}
            _ => kept.push(element),
        }
    }
    call.charge_memory(16 * kept.len())?;
    let joined = kept.join(&b'/');
    Ok(match (is_absolute, joined.is_empty()) {
        (true, _) => [b"/", &*joined].concat().into(),
        (false, true) => ".".into(),
        (false, false) => joined.into(),
    })
}

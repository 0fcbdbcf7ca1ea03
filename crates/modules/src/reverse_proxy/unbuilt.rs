//! Rejects Caddy's options that this version does not support by name. They are never ignored.

use causeway_pipeline::{Build, BuildError};
use serde_json::Value;

/// # Errors
/// If `value` contains one of `names`.
pub(super) fn refuse(value: &Value, names: &[&str], build: &mut Build<'_>) -> Result<(), BuildError> {
    for name in names {
        let Some(found) = value.get(name).filter(|found| !found.is_null()) else { continue };
        let expected = format!("nothing: `{name}` is not built into this version");
        return build.at(*name, |build| Err(build.refuse(shown(found), expected)));
    }
    Ok(())
}

/// Returns a value as errors show it. An object or a list can be as long as the whole configuration, so it is not
/// printed.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => text.clone(),
        scalar => scalar.to_string(),
    }
}

//! Options that Caddy knows and this version has not: refused by name, never skipped.

use causeway_pipeline::{Build, BuildError};
use serde_json::Value;

/// # Errors
/// The first of `names` that `value` has.
pub(super) fn refuse(value: &Value, names: &[&str], build: &mut Build<'_>) -> Result<(), BuildError> {
    for name in names {
        let Some(found) = value.get(name) else { continue };
        // Some are as long as a configuration.
        let found = match found {
            Value::Object(_) => "an object".to_owned(),
            Value::Array(_) => "a list".to_owned(),
            scalar => scalar.to_string(),
        };
        let expected = format!("nothing: `{name}` is not built into this version");
        return build.at(*name, |build| Err(build.refuse(found, expected)));
    }
    Ok(())
}

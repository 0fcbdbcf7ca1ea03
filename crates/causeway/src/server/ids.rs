//! `@id`: names that a configuration gives to its own objects, so that admin API paths can start at them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

const KEY: &str = "@id";

/// The reason why the `@id` names of a configuration are refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdError {
    /// An `@id` that is neither a string nor a number.
    WrongType {
        /// Path of the object that has it.
        path: String,
    },
    /// Two objects with one `@id`.
    Duplicate {
        /// The `@id`.
        id: String,
        /// Paths of both objects.
        paths: [String; 2],
    },
}

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType { path } => write!(f, "{path}: {KEY} field must be a string or number"),
            Self::Duplicate { id, paths: [first, second] } => {
                write!(f, "duplicate ID '{id}' found at {first} and {second}")
            }
        }
    }
}

/// Maps every `@id` to the path of its object, such as `/config/apps/http`.
pub(super) fn index(config: &Value) -> Result<BTreeMap<String, String>, IdError> {
    let mut ids = BTreeMap::new();
    collect(config, "/config", &mut ids)?;
    Ok(ids)
}

fn collect(value: &Value, path: &str, ids: &mut BTreeMap<String, String>) -> Result<(), IdError> {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                if key != KEY {
                    collect(value, &format!("{path}/{key}"), ids)?;
                    continue;
                }
                let id = match value {
                    Value::String(id) => id.clone(),
                    Value::Number(id) => id.to_string(),
                    _ => return Err(IdError::WrongType { path: path.to_owned() }),
                };
                if let Some(first) = ids.get(&id) {
                    return Err(IdError::Duplicate { id, paths: [first.clone(), path.to_owned()] });
                }
                ids.insert(id, path.to_owned());
            }
        }
        Value::Array(array) => {
            for (index, value) in array.iter().enumerate() {
                collect(value, &format!("{path}/{index}"), ids)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// Removes every `@id`: modules would reject it as an unknown field.
pub(super) fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.shift_remove(KEY);
            map.values_mut().for_each(strip);
        }
        Value::Array(array) => array.iter_mut().for_each(strip),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // Caddy's API documentation, "Using @id in JSON": an `@id` may appear anywhere in the configuration, and must be
    // unique.
    #[test]
    fn names_and_their_paths() {
        let mut config = json!({ "@id": "top", "a": [{ "@id": 7, "b": { "@id": "deep" } }, 1], "c": "@id" });
        let ids = index(&config).unwrap();
        let got: Vec<_> = ids.iter().map(|(id, path)| (&**id, &**path)).collect();
        assert_eq!(got, [("7", "/config/a/0"), ("deep", "/config/a/0/b"), ("top", "/config")]);
        strip(&mut config);
        assert_eq!(config, json!({ "a": [{ "b": {} }, 1], "c": "@id" }));
    }

    #[test]
    fn invalid_ids() {
        for (config, want) in [
            (json!({ "a": { "@id": null } }), "/config/a: @id field must be a string or number"),
            (json!({ "a": { "@id": [] } }), "/config/a: @id field must be a string or number"),
            (json!([{ "@id": "x" }, { "@id": "x" }]), "duplicate ID 'x' found at /config/0 and /config/1"),
        ] {
            assert_eq!(index(&config).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }
}

//! Reads and changes one value of a configuration's JSON tree, addressed by the path of an admin request.
//!
//! The root is an object with the single key `config`, so `/config/` is a path like any other. The rules and status
//! codes are Caddy's, including its status 500 for some client mistakes.

use std::fmt;

use serde_json::{Map, Value};

/// Deepest nesting that a change may cause, unless the configuration is deeper before: a kept one must be readable
/// again, by a parser that refuses text of more than [`LEVELS_MAX`](causeway_config::json::LEVELS_MAX) levels.
const DEPTH_MAX: usize = 120;

/// The operation on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Sets the value. Appends it to an array, or appends each of its elements when the path ends in `...`.
    Post,
    /// Creates the value and missing objects on the way. Inserts it into an array before the given index.
    Put,
    /// Replaces an existing value.
    Patch,
    /// Removes an existing value.
    Delete,
}

/// The reason why a path can be neither read nor changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeError {
    /// Not an array index, or one past the end.
    Index(String),
    /// The path passes through a value that is neither an object nor an array.
    Path(String),
    /// PUT to an existing key.
    Exists(String),
    /// PATCH or DELETE of a missing key.
    Missing(String),
    /// The path ends in `...`, but the value is not an array.
    NotAnArray,
    /// The result is nested deeper than 120 levels, and deeper than before.
    TooDeep,
}

impl fmt::Display for TreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(message) | Self::Exists(message) | Self::Missing(message) => f.write_str(message),
            Self::Path(path) => write!(f, "invalid traversal path at: {path}"),
            Self::NotAnArray => f.write_str("final element is not an array"),
            Self::TooDeep => write!(f, "the configuration would be nested more than {DEPTH_MAX} levels deep"),
        }
    }
}

/// Returns the value at a path. A missing key of an object reads as null.
///
/// # Errors
/// When the path does not lead to a value.
pub(super) fn read<'t>(root: &'t Value, path: &str) -> Result<&'t Value, TreeError> {
    const NULL: &Value = &Value::Null;
    let parts = parts(path).0;
    let mut at = root;
    for (depth, part) in parts.iter().enumerate() {
        at = match at {
            Value::Object(map) => map.get(*part).unwrap_or(NULL),
            Value::Array(array) => {
                let path = if depth + 1 == parts.len() { path.to_owned() } else { path_of(&parts, depth) };
                &array[index(part, array.len(), &path)?]
            }
            _ => return Err(TreeError::Path(parts[..=depth].join("/"))),
        };
    }
    Ok(at)
}

/// Applies `verb` to a path. After an error the tree may hold part of the change, such as empty objects that a PUT
/// created. Callers therefore work on a copy.
///
/// # Errors
/// When the path does not lead to a value, or the verb does not fit the value there.
pub(super) fn change(root: &mut Value, verb: Verb, path: &str, value: Value) -> Result<(), TreeError> {
    // A configuration that was loaded may be deeper. Each change that does not add to that stays possible.
    let levels_max = depth(root).max(DEPTH_MAX);
    set(root, verb, path, value, levels_max)?;
    if depth(root) > levels_max { Err(TreeError::TooDeep) } else { Ok(()) }
}

/// Returns how many levels of objects and arrays a value has.
fn depth(value: &Value) -> usize {
    match value {
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Array(array) => 1 + array.iter().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

fn set(root: &mut Value, verb: Verb, path: &str, value: Value, levels_max: usize) -> Result<(), TreeError> {
    let (parts, spread) = parts(path);
    if parts.len() > levels_max {
        return Err(TreeError::TooDeep);
    }
    let mut at = root;
    for (depth, part) in parts.iter().enumerate() {
        let (last, rest) = (depth + 1 == parts.len(), parts.len() - depth - 1);
        at = match at {
            Value::Object(map) => {
                // The parent array handles its elements. POST appends to the array and ignores the index.
                if rest == 1
                    && let Some(Value::Array(array)) = map.get_mut(*part)
                {
                    return match verb {
                        Verb::Post => append(array, value, spread),
                        _ => element(array, verb, parts[depth + 1], path, value),
                    };
                }
                if last {
                    return member(map, verb, part, path, value, spread);
                }
                // Only PUT creates missing objects on the way.
                if verb == Verb::Put && map.get(*part).is_none_or(Value::is_null) {
                    map.insert((*part).to_owned(), Value::Object(Map::new()));
                }
                match map.get_mut(*part) {
                    Some(next) => next,
                    None => return Err(TreeError::Path(parts[..=depth + 1].join("/"))),
                }
            }
            Value::Array(array) => {
                // An element of an array inside an array. Caddy changes nothing here and still reports success.
                if last {
                    return element(array, verb, part, path, value);
                }
                let index = index(part, array.len(), &path_of(&parts, depth))?;
                &mut array[index]
            }
            _ => return Err(TreeError::Path(parts[..=depth].join("/"))),
        };
    }
    Ok(())
}

/// Splits a path into its components, and returns whether it ends in `...` (all elements of the value).
fn parts(path: &str) -> (Vec<&str>, bool) {
    let mut parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let spread = parts.last() == Some(&"...");
    if spread {
        parts.pop();
    }
    (parts, spread)
}

fn path_of(parts: &[&str], depth: usize) -> String {
    format!("/{}", parts[..=depth].join("/"))
}

/// Parses an index below `len`. Only the canonical spelling is valid: no sign, no leading zeros.
fn index(written: &str, len: usize, path: &str) -> Result<usize, TreeError> {
    let bad = |why: &str| TreeError::Index(format!("[{path}] invalid array index '{written}': {why}"));
    let index: usize = match written.parse() {
        _ if written.is_empty() => return Err(bad("empty index")),
        Ok(index) => index,
        Err(_) => return Err(bad("expected a number")),
    };
    // Rejects "01" and "+1", which parse as numbers.
    if index.to_string() != written {
        return Err(bad("non-canonical array index"));
    }
    if index >= len {
        return Err(TreeError::Index(format!("[{path}] array index out of bounds: {written}")));
    }
    Ok(index)
}

fn append(array: &mut Vec<Value>, value: Value, spread: bool) -> Result<(), TreeError> {
    match (spread, value) {
        (false, value) => array.push(value),
        (true, Value::Array(mut values)) => array.append(&mut values),
        (true, _) => return Err(TreeError::NotAnArray),
    }
    Ok(())
}

fn element(array: &mut Vec<Value>, verb: Verb, written: &str, path: &str, value: Value) -> Result<(), TreeError> {
    // PUT may insert after the last element.
    let len = array.len() + usize::from(verb == Verb::Put);
    let index = index(written, len, path)?;
    match verb {
        Verb::Post => array.push(value),
        Verb::Put => array.insert(index, value),
        Verb::Patch => array[index] = value,
        Verb::Delete => drop(array.remove(index)),
    }
    Ok(())
}

fn member(
    map: &mut Map<String, Value>,
    verb: Verb,
    key: &str,
    path: &str,
    value: Value,
    spread: bool,
) -> Result<(), TreeError> {
    let there = map.contains_key(key);
    match verb {
        Verb::Post => {
            if let Some(Value::Array(array)) = map.get_mut(key) {
                return append(array, value, spread);
            }
            map.insert(key.to_owned(), value);
        }
        Verb::Put if there => return Err(TreeError::Exists(format!("[{path}] key already exists: {key}"))),
        Verb::Patch | Verb::Delete if !there => {
            return Err(TreeError::Missing(format!("[{path}] key does not exist: {key}")));
        }
        Verb::Put | Verb::Patch => drop(map.insert(key.to_owned(), value)),
        Verb::Delete => drop(map.remove(key)),
    }
    Ok(())
}

#[cfg(test)]
mod tests;

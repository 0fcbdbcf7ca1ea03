//! Reading and changing one place of a configuration's JSON, by the path of an admin request.
//!
//! The root is an object whose only key is `config`, so that `/config/` itself is a place like any other. The rules are Caddy's,
//! its status codes included: where it says 500 for a client's mistake, so do we.

use std::fmt;

use serde_json::{Map, Value};

/// How deep a configuration may be nested: what is kept must be read again, and JSON as text is refused beyond 128.
const DEPTH_MAX: usize = 120;

/// What happens to a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Sets it; appends where it is an array, all elements of the value where the path ends in `...`.
    Post,
    /// Creates it, with the objects on the way; inserts before an array's element.
    Put,
    /// Replaces what is there.
    Patch,
    /// Removes what is there.
    Delete,
}

/// Why a place can be neither read nor changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TreeFault {
    /// No array index, or one beyond the end.
    Index(String),
    /// The path leads through something that is neither an object nor an array.
    Path(String),
    /// PUT of what is there.
    Exists(String),
    /// PATCH or DELETE of what is not there.
    Missing(String),
    /// `...` with anything but an array.
    NoArray,
    /// The result is nested too deep.
    Deep,
}

impl fmt::Display for TreeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(words) | Self::Exists(words) | Self::Missing(words) => f.write_str(words),
            Self::Path(path) => write!(f, "invalid traversal path at: {path}"),
            Self::NoArray => f.write_str("final element is not an array"),
            Self::Deep => write!(f, "the configuration would be nested more than {DEPTH_MAX} levels deep"),
        }
    }
}

/// The value at a path; what an object does not hold is null.
///
/// # Errors
/// When the path leads nowhere.
pub(super) fn read<'t>(root: &'t Value, path: &str) -> Result<&'t Value, TreeFault> {
    const NULL: &Value = &Value::Null;
    let parts = parts(path).0;
    let mut at = root;
    for (depth, part) in parts.iter().enumerate() {
        at = match at {
            Value::Object(map) => map.get(*part).unwrap_or(NULL),
            Value::Array(array) => {
                let path = if depth + 1 == parts.len() { path.to_owned() } else { place(&parts, depth) };
                &array[index(part, array.len(), &path)?]
            }
            _ => return Err(TreeFault::Path(parts[..=depth].join("/"))),
        };
    }
    Ok(at)
}

/// Changes a place. On an error the tree may hold part of the change (empty objects that a PUT made on its way): the caller
/// works on a copy.
///
/// # Errors
/// When the path leads nowhere, or the verb does not fit what is there.
pub(super) fn change(root: &mut Value, verb: Verb, path: &str, value: Value) -> Result<(), TreeFault> {
    set(root, verb, path, value)?;
    if is_deeper(root, DEPTH_MAX) { Err(TreeFault::Deep) } else { Ok(()) }
}

/// Whether anything is nested deeper than so many levels.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(map) => levels == 0 || map.values().any(|value| is_deeper(value, levels - 1)),
        Value::Array(array) => levels == 0 || array.iter().any(|value| is_deeper(value, levels - 1)),
        _ => false,
    }
}

fn set(root: &mut Value, verb: Verb, path: &str, value: Value) -> Result<(), TreeFault> {
    let (parts, spread) = parts(path);
    if parts.len() > DEPTH_MAX {
        return Err(TreeFault::Deep);
    }
    let mut at = root;
    for (depth, part) in parts.iter().enumerate() {
        let (last, rest) = (depth + 1 == parts.len(), parts.len() - depth - 1);
        at = match at {
            Value::Object(map) => {
                // An array's element is reached by way of its array; POST appends to it, whatever the index.
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
                if verb == Verb::Put && map.get(*part).is_none_or(Value::is_null) {
                    map.insert((*part).to_owned(), Value::Object(Map::new()));
                }
                match map.get_mut(*part) {
                    Some(next) => next,
                    None => return Err(TreeFault::Path(parts[..=depth + 1].join("/"))),
                }
            }
            Value::Array(array) => {
                let index = index(part, array.len(), &place(&parts, depth))?;
                // The element of an array within an array; Caddy does nothing here, and says that it did.
                if last {
                    return element(array, verb, part, path, value);
                }
                &mut array[index]
            }
            _ => return Err(TreeFault::Path(parts[..=depth].join("/"))),
        };
    }
    Ok(())
}

/// The path's words, and whether it ends in `...`, which stands for all elements of the value.
fn parts(path: &str) -> (Vec<&str>, bool) {
    let mut parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let spread = parts.last() == Some(&"...");
    if spread {
        parts.pop();
    }
    (parts, spread)
}

fn place(parts: &[&str], depth: usize) -> String {
    format!("/{}", parts[..=depth].join("/"))
}

/// An index below `len`, in its one canonical spelling.
fn index(written: &str, len: usize, path: &str) -> Result<usize, TreeFault> {
    let bad = |why: &str| TreeFault::Index(format!("[{path}] invalid array index '{written}': {why}"));
    let index: usize = match written.parse() {
        _ if written.is_empty() => return Err(bad("empty index")),
        Ok(index) => index,
        Err(_) => return Err(bad("expected a number")),
    };
    if index.to_string() != written {
        return Err(bad("non-canonical array index"));
    }
    if index >= len {
        return Err(TreeFault::Index(format!("[{path}] array index out of bounds: {written}")));
    }
    Ok(index)
}

fn append(array: &mut Vec<Value>, value: Value, spread: bool) -> Result<(), TreeFault> {
    match (spread, value) {
        (false, value) => array.push(value),
        (true, Value::Array(mut values)) => array.append(&mut values),
        (true, _) => return Err(TreeFault::NoArray),
    }
    Ok(())
}

fn element(array: &mut Vec<Value>, verb: Verb, written: &str, path: &str, value: Value) -> Result<(), TreeFault> {
    // What is inserted may come behind the last.
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
) -> Result<(), TreeFault> {
    let there = map.contains_key(key);
    match verb {
        Verb::Post => {
            if let Some(Value::Array(array)) = map.get_mut(key) {
                return append(array, value, spread);
            }
            map.insert(key.to_owned(), value);
        }
        Verb::Put if there => return Err(TreeFault::Exists(format!("[{path}] key already exists: {key}"))),
        Verb::Patch | Verb::Delete if !there => {
            return Err(TreeFault::Missing(format!("[{path}] key does not exist: {key}")));
        }
        Verb::Put | Verb::Patch => drop(map.insert(key.to_owned(), value)),
        Verb::Delete => drop(map.remove(key)),
    }
    Ok(())
}

#[cfg(test)]
mod tests;

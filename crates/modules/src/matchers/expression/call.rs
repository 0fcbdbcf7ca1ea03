//! Converts the arguments of matchers that are called as functions to the matchers' JSON.

use serde_json::{Map, Value as Json, json};

use super::ExpressionError;
use super::syntax::{Expr, Tree};
use super::token::{CLOSE, OPEN};

/// The matchers that can be called as functions.
const MATCHERS: &[&str] = &[
    "client_ip",
    "file",
    "header",
    "header_regexp",
    "host",
    "method",
    "path",
    "path_regexp",
    "protocol",
    "query",
    "remote_ip",
    "tls",
    "url_pattern",
    "vars",
    "vars_regexp",
];

pub(super) fn is_matcher(name: &str) -> bool {
    MATCHERS.contains(&name)
}

/// Returns the JSON of the called matcher. `named` is the default name of regular expressions.
pub(super) fn json(matcher: &str, arguments: &[Tree], named: &str, at: usize) -> Result<Json, ExpressionError> {
    // The message states the expected arguments.
    let wrong = |expected: &str| Err(ExpressionError::new(at, format!("{matcher}() without {expected}")));
    match (matcher, arguments) {
        ("path" | "host" | "method" | "remote_ip" | "client_ip", []) => wrong("a string"),
        // These matchers expand placeholders in their patterns themselves.
        ("path" | "host", _) => texts(arguments),
        // `method` and `protocol` take no placeholders.
        ("method", _) => literals(arguments),
        ("remote_ip" | "client_ip", _) => Ok(json!({ "ranges": texts(arguments)? })),
        ("protocol", [name]) => Ok(literal(name)?.to_lowercase().into()),
        ("protocol", _) => wrong("exactly one string"),
        ("path_regexp", [pattern]) => Ok(json!({ "name": named, "pattern": literal(pattern)? })),
        ("path_regexp", [name, pattern]) => regexp(name, pattern, named),
        ("path_regexp", _) => wrong("one pattern, or a name and a pattern"),
        ("header_regexp" | "vars_regexp", [key, pattern]) => {
            Ok(json!({ (literal(key)?): { "name": named, "pattern": literal(pattern)? } }))
        }
        ("header_regexp" | "vars_regexp", [name, key, pattern]) => {
            Ok(json!({ (literal(key)?): regexp(name, pattern, named)? }))
        }
        ("header_regexp" | "vars_regexp", _) => wrong("a field or variable and a pattern, or a name in front of both"),
        ("header" | "query" | "vars", [Tree { part: Expr::Map(pairs), .. }]) => Ok(lists(pairs)?.into()),
        ("header" | "query" | "vars", _) => wrong("exactly one map, such as {'key': 'value'}"),
        ("file", [Tree { part: Expr::Map(pairs), .. }]) => file(pairs),
        // The default is the request's path.
        ("file", []) => Ok(json!({})),
        ("file", _) => Ok(json!({ "try_files": texts(arguments)?, "of_values": true })),
        ("url_pattern", [pattern]) => Ok(json!({ "pattern": literal(pattern)? })),
        ("url_pattern", _) => wrong("exactly one string"),
        ("tls", []) => Ok(json!({})),
        ("tls", [state]) => match &*literal(state)? {
            "any" => Ok(json!({})),
            "complete" => Ok(json!({ "handshake_complete": true })),
            "early_data" => Ok(json!({ "handshake_complete": false })),
            _ => wrong("'any', 'complete' or 'early_data'"),
        },
        _ => wrong("at most one string"),
    }
}

fn regexp(name: &Tree, pattern: &Tree, named: &str) -> Result<Json, ExpressionError> {
    let own = literal(name)?;
    Ok(json!({ "name": if own.is_empty() { named } else { &own }, "pattern": literal(pattern)? }))
}

fn texts(trees: &[Tree]) -> Result<Json, ExpressionError> {
    trees.iter().map(|tree| text(tree).map(Json::from)).collect()
}

fn literals(trees: &[Tree]) -> Result<Json, ExpressionError> {
    trees.iter().map(|tree| literal(tree).map(Json::from)).collect()
}

/// Returns a string literal, or a sum of such. The matcher expands its placeholders, escaped or not.
fn literal(tree: &Tree) -> Result<String, ExpressionError> {
    match &tree.part {
        Expr::Text(text) => Ok(text.replace(OPEN, "{").replace(CLOSE, "}")),
        Expr::Binary("+", sides) => Ok(literal(&sides[0])? + &literal(&sides[1])?),
        _ => Err(ExpressionError::new(tree.at, "an argument that is not a string literal")),
    }
}

/// Returns a string for the matcher to expand: a literal, a placeholder, or a concatenation of both.
fn text(tree: &Tree) -> Result<String, ExpressionError> {
    match &tree.part {
        Expr::Text(_) => literal(tree),
        Expr::Placeholder(name) => Ok(format!("{{{name}}}")),
        Expr::Binary("+", sides) => Ok(text(&sides[0])? + &text(&sides[1])?),
        _ => Err(ExpressionError::new(
            tree.at,
            "an argument that is neither a string nor a placeholder, nor a sum of them",
        )),
    }
}

/// Converts a map whose values are strings or lists of strings.
fn lists(pairs: &[(Tree, Tree)]) -> Result<Map<String, Json>, ExpressionError> {
    let mut map = Map::new();
    for (key, value) in pairs {
        // A single value is shorthand for a list of one.
        let values = match &value.part {
            Expr::List(items) => texts(items)?,
            _ => texts(std::slice::from_ref(value))?,
        };
        if map.insert(text(key)?, values).is_some() {
            return Err(ExpressionError::new(key.at, "a duplicate key"));
        }
    }
    Ok(map)
}

fn file(pairs: &[(Tree, Tree)]) -> Result<Json, ExpressionError> {
    let mut map = lists(pairs)?;
    for (key, _) in pairs {
        let name = text(key)?;
        match &*name {
            "try_files" => {
                map.insert("of_values".to_owned(), true.into());
            }
            "split_path" => {}
            // These two options take a single string.
            "root" | "try_policy" => {
                let first = map[&name].get(0).cloned();
                map.insert(name, first.unwrap_or_default());
            }
            _ => {
                return Err(ExpressionError::new(
                    key.at,
                    "a key of file() other than root, try_files, try_policy, split_path",
                ));
            }
        }
    }
    Ok(map.into())
}

//! Matchers called as functions: their arguments become the JSON that the matcher is built from.

use serde_json::{Map, Value as Json, json};

use super::Mistake;
use super::syntax::{Part, Tree};
use super::token::{CLOSE, OPEN};

/// The matchers that are functions too.
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
    "vars",
    "vars_regexp",
];

pub(super) fn is_matcher(name: &str) -> bool {
    MATCHERS.contains(&name)
}

/// The JSON of the matcher that is called so. `named` is what regular expressions are called without a name of their own.
pub(super) fn json(matcher: &str, arguments: &[Tree], named: &str, at: usize) -> Result<Json, Mistake> {
    let wrong = |what: &str| Err(Mistake::new(at, format!("{matcher}() without {what}")));
    match (matcher, arguments) {
        ("path" | "host" | "method" | "remote_ip" | "client_ip", []) => wrong("a string"),
        ("path" | "host", _) => texts(arguments),
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
        ("header" | "query" | "vars", [Tree { part: Part::Map(pairs), .. }]) => Ok(lists(pairs)?.into()),
        ("header" | "query" | "vars", _) => wrong("exactly one map, as {'key': 'value'}"),
        ("file", [Tree { part: Part::Map(pairs), .. }]) => file(pairs),
        ("file", []) => Ok(json!({})),
        ("file", _) => Ok(json!({ "try_files": texts(arguments)? })),
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

fn regexp(name: &Tree, pattern: &Tree, named: &str) -> Result<Json, Mistake> {
    let own = literal(name)?;
    Ok(json!({ "name": if own.is_empty() { named } else { &own }, "pattern": literal(pattern)? }))
}

fn texts(trees: &[Tree]) -> Result<Json, Mistake> {
    trees.iter().map(|tree| text(tree).map(Json::from)).collect()
}

fn literals(trees: &[Tree]) -> Result<Json, Mistake> {
    trees.iter().map(|tree| literal(tree).map(Json::from)).collect()
}

/// A string that is known at load. Placeholders in it are the matcher's to expand, whether they are escaped or not.
fn literal(tree: &Tree) -> Result<String, Mistake> {
    match &tree.part {
        Part::Text(text) => Ok(text.replace(OPEN, "{").replace(CLOSE, "}")),
        _ => Err(Mistake::new(tree.at, "an argument that is no string literal")),
    }
}

/// A string, a placeholder, or several of them added: a text that the matcher expands.
fn text(tree: &Tree) -> Result<String, Mistake> {
    match &tree.part {
        Part::Text(_) => literal(tree),
        Part::Placeholder(name) => Ok(format!("{{{name}}}")),
        Part::Binary("+", sides) => Ok(text(&sides[0])? + &text(&sides[1])?),
        _ => Err(Mistake::new(tree.at, "an argument that is neither a string nor a placeholder, nor a sum of them")),
    }
}

/// Keys with a string or a list of strings each.
fn lists(pairs: &[(Tree, Tree)]) -> Result<Map<String, Json>, Mistake> {
    let mut map = Map::new();
    for (key, value) in pairs {
        let values = match &value.part {
            Part::List(items) => texts(items)?,
            _ => texts(std::slice::from_ref(value))?,
        };
        if map.insert(text(key)?, values).is_some() {
            return Err(Mistake::new(key.at, "a key that stands there twice"));
        }
    }
    Ok(map)
}

fn file(pairs: &[(Tree, Tree)]) -> Result<Json, Mistake> {
    let mut map = lists(pairs)?;
    for (key, _) in pairs {
        let name = text(key)?;
        match &*name {
            "try_files" | "split_path" => {}
            "root" | "try_policy" => {
                let first = map[&name].get(0).cloned();
                map.insert(name, first.unwrap_or_default());
            }
            _ => {
                return Err(Mistake::new(key.at, "a key of file() other than root, try_files, try_policy, split_path"));
            }
        }
    }
    Ok(map.into())
}

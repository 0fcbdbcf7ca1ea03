//! rewrite, uri, method and handle_path, which change the request line.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::matcher;
use super::super::quantity::integer;
use super::super::registry::DirectiveOutput;
use super::super::route::{Route, subroute_handler};
use super::super::token::Token;
use super::Handler;

fn rewrite_handler(key: &str, text: &str) -> Value {
    let mut handler = Handler::new("rewrite");
    handler.text(key, text);
    handler.json()
}

/// Parses `rewrite [<matcher>] <to>`, or `rewrite <matcher> <to> escape_values`, which is not in Caddy. A lone argument
/// is the target, even if it looks like a matcher.
pub(super) fn rewrite(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let escapes_values = d.remaining().get(2).is_some_and(|last| &*last.text == "escape_values");
    let matcher = match d.remaining().len() - usize::from(escapes_values) {
        0 => return Err(d.rule("too few arguments; must have at least a rewrite URI")),
        1 => None,
        2 => d.matcher()?,
        _ => {
            d.rest();
            return Err(d.rule("too many arguments; should only be a matcher and a URI"));
        }
    };
    let to = d.require()?;
    let mut handler = rewrite_handler("uri", &to.text);
    if escapes_values {
        d.require()?;
        handler["escape_values"] = true.into();
    }
    d.expect_no_argument()?;
    Ok(vec![DirectiveOutput::Route(Route::new(matcher, handler))])
}

/// Parses `method [<matcher>] <method>`.
pub(super) fn method(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let method = d.require()?;
    d.expect_no_argument()?;
    Ok(rewrite_handler("method", &method.text))
}

/// Parses `uri [<matcher>] strip_prefix|strip_suffix|replace|path_regexp|query …`.
pub(super) fn uri(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let operation = d.require()?;
    let arguments = d.arguments();
    let arguments = &arguments[1..];
    let pair = |find: &Token, replace: &Token| {
        let mut operation = Map::new();
        for (key, token) in [("find", find), ("replace", replace)] {
            if !token.text.is_empty() {
                operation.insert(key.into(), (*token.text).into());
            }
        }
        operation
    };
    let mut handler = Handler::new("rewrite");
    match (&*operation.text, arguments) {
        ("strip_prefix", [prefix]) => return Ok(rewrite_handler("strip_path_prefix", &prefix.text)),
        ("strip_suffix", [suffix]) => return Ok(rewrite_handler("strip_path_suffix", &suffix.text)),
        ("replace", [find, replace]) => {
            handler.set("uri_substring", json!([pair(find, replace)]));
        }
        ("replace", [find, replace, limit]) => {
            let mut operation = pair(find, replace);
            let count = if limit.text.is_empty() { Some(0) } else { integer(&limit.text) };
            let count = count.ok_or_else(|| d.word("limit must be an integer; invalid: '{}'"))?;
            if count != 0 {
                operation.insert("limit".into(), count.into());
            }
            handler.set("uri_substring", json!([operation]));
        }
        ("path_regexp", [find, replace]) => {
            handler.set("path_regexp", json!([pair(find, replace)]));
        }
        ("query", _) if arguments.len() <= 3 => {
            handler.set("query", query(d, arguments)?);
        }
        ("strip_prefix" | "strip_suffix" | "replace" | "path_regexp" | "query", _) => return Err(d.count_error()),
        _ => {
            let rule = "unrecognized URI manipulation '{}'";
            let expected = &["path_regexp", "query", "replace", "strip_prefix", "strip_suffix"];
            let kind = ErrorKind::Unknown { rule, name: operation.text.clone(), expected };
            return Err(Error::at(operation, kind));
        }
    }
    Ok(handler.json())
}

/// Parses one query operation on the line, or a block of them.
fn query(d: &mut Dispenser<'_>, arguments: &[Token]) -> Result<Map<String, Value>, Error> {
    let mut operations = Map::new();
    if let [first, rest @ ..] = arguments {
        query_operation(&mut operations, first, rest).ok_or_else(|| d.count_error())?;
    }
    for mut line in d.lines() {
        if !arguments.is_empty() {
            return Err(line.rule("Cannot specify uri query rewrites in both argument and block"));
        }
        let rest = line.rest();
        query_operation(&mut operations, line.name(), rest).ok_or_else(|| line.count_error())?;
    }
    Ok(operations)
}

/// Parses `-key`, `+key value`, `old>new`, `key find replace` or `key value`. `None` if the number of arguments is
/// wrong.
fn query_operation(operations: &mut Map<String, Value>, key: &Token, rest: &[Token]) -> Option<()> {
    let mut push = |list: &str, members: &[(&str, &str)]| {
        let object =
            members.iter().filter(|(_, text)| !text.is_empty()).map(|&(key, text)| (key.to_owned(), text.into()));
        let object = Value::Object(object.collect());
        if let Value::Array(values) = operations.entry(list).or_insert_with(|| json!([])) {
            values.push(object);
        }
    };
    let text = &*key.text;
    if text.starts_with('-') {
        // A deletion takes no value.
        rest.is_empty().then_some(())?;
        let deleted = Value::from(text.trim_start_matches('-'));
        if let Value::Array(values) = operations.entry("delete").or_insert_with(|| json!([])) {
            values.push(deleted);
        }
        return Some(());
    }
    match rest {
        [value] if text.starts_with('+') => {
            push("add", &[("key", text.trim_start_matches('+')), ("val", &value.text)]);
        }
        _ if text.starts_with('+') => return None,
        [] if text.contains('>') => {
            let mut parts = text.split('>');
            push("rename", &[("key", parts.next()?), ("val", parts.next()?)]);
        }
        _ if text.contains('>') => return None,
        [find, replace] => {
            push("replace", &[("key", text), ("search_regexp", &find.text), ("replace", &replace.text)]);
        }
        [value] => push("set", &[("key", text), ("val", &value.text)]),
        _ => return None,
    }
    Some(())
}

/// Parses `handle_path <path> { … }`: a `handle` that first strips the path's fixed prefix.
pub(super) fn handle_path(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let path = d.require()?;
    if !path.text.starts_with('/') {
        return Err(d.word("path matcher must begin with '/', got {}"));
    }
    d.expect_no_argument()?;
    let fixed = path.text.strip_suffix("/*").or(path.text.strip_suffix('*')).unwrap_or(&path.text);
    let mut routes = vec![Route::new(None, rewrite_handler("strip_path_prefix", fixed))];
    routes.extend(d.routes()?);
    Ok(vec![DirectiveOutput::Route(Route::new(Some(matcher::path(&path.text)), subroute_handler(&routes)))])
}

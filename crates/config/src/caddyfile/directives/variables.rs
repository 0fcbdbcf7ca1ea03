//! Directives that set variables: root, fs, vars, map, log_append, log_level, log_name, log_skip.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::placeholder::shorthand_of;
use super::super::quantity::scalar;
use super::super::registry::DirectiveOutput;
use super::super::route::Route;
use super::super::token::Token;
use super::{Handler, texts};

/// Parses `root [<matcher>] <path>`. A lone argument is the path, even if it looks like a matcher.
pub(super) fn root(d: &mut Dispenser<'_>) -> Result<Vec<DirectiveOutput>, Error> {
    let matcher = match d.remaining().len() {
        0 => return Err(d.rule("too few arguments; must have at least a root path")),
        1 => None,
        2 => d.matcher()?,
        _ => {
            d.rest();
            return Err(d.rule("too many arguments; should only be a matcher and a path"));
        }
    };
    let path = d.require()?;
    d.expect_no_argument()?;
    Ok(vec![DirectiveOutput::Route(Route::new(matcher, json!({ "handler": "vars", "root": &*path.text })))])
}

/// Parses `fs [<matcher>] <file system>`.
pub(super) fn fs(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = d.require()?;
    d.expect_no_argument()?;
    Ok(json!({ "handler": "vars", "fs": &*name.text }))
}

fn value(token: &Token) -> Value {
    if token.quoted() { (*token.text).into() } else { scalar(&token.text) }
}

/// Parses `vars [<matcher>] [<name> <value>] { <name> <value> … }`.
pub(super) fn vars(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("vars");
    if let Some(name) = d.argument() {
        handler.set(&name.text, value(d.require()?));
        d.expect_no_argument()?;
    }
    for mut line in d.lines() {
        handler.set(&line.name().text, value(line.require()?));
        line.expect_no_argument()?;
    }
    Ok(handler.json())
}

/// Parses `map [<matcher>] <source> <destinations…> { [~]<input> <outputs…>; default <defaults…> }`.
pub(super) fn map(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let source = d.require()?;
    let destinations = d.rest();
    if destinations.is_empty() {
        return Err(d.rule("missing destination argument(s)"));
    }
    if let Some((token, short)) = destinations.iter().find_map(|token| Some((token, shorthand_of(&token.text)?))) {
        let found = format!("{{{short}}}").into();
        let rule = "destination {} conflicts with a Caddyfile placeholder shorthand";
        return Err(Error::at(token, ErrorKind::Word { rule, found }));
    }
    let mut mappings = Vec::new();
    let mut defaults = Vec::new();
    for mut line in d.lines() {
        let input = &*line.name().text;
        if input == "default" {
            if !defaults.is_empty() {
                return Err(line.rule("defaults already defined"));
            }
            defaults = texts(line.rest());
            defaults.resize(defaults.len().max(destinations.len()), "".into());
            continue;
        }
        let output = |token: &Token| match value(token) {
            Value::String(text) if text == "-" => Value::Null,
            value => value,
        };
        let mut outputs: Vec<Value> = line.rest().iter().map(output).collect();
        if outputs.len() > destinations.len() {
            return Err(line.rule("too many outputs"));
        }
        // A missing output is null: the destination falls through to later mappings and the default.
        outputs.resize(destinations.len(), Value::Null);
        let mut mapping = Map::new();
        match input.strip_prefix('~') {
            Some(pattern) if !pattern.is_empty() => mapping.insert("input_regexp".into(), pattern.into()),
            None if !input.is_empty() => mapping.insert("input".into(), input.into()),
            _ => None,
        };
        mapping.insert("outputs".into(), outputs.into());
        mappings.push(Value::Object(mapping));
    }
    let mut handler = Handler::new("map");
    handler.text("source", &source.text).set("destinations", texts(destinations));
    if !mappings.is_empty() {
        handler.set("mappings", mappings);
    }
    if !defaults.is_empty() {
        handler.set("defaults", defaults);
    }
    Ok(handler.json())
}

/// Parses `log_skip [<matcher>]`.
pub(super) fn log_skip(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    if &*d.name().text == "skip_log" {
        d.warn(d.name(), "the 'skip_log' directive is deprecated, use 'log_skip' instead".to_owned());
    }
    d.expect_no_argument()?;
    d.expect_empty_block("log_skip directive does not accept blocks")?;
    Ok(json!({ "handler": "vars", "log_skip": true }))
}

/// Parses `log_name [<matcher>] <names…>`.
pub(super) fn log_name(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let names = texts(d.rest());
    let names = if names.is_empty() { Value::Null } else { names.into() };
    Ok(json!({ "handler": "vars", "access_logger_names": names }))
}

/// Parses `log_append [<matcher>] [<]<field> <value>`. With `<` the value is evaluated before the request is handled.
pub(super) fn log_append(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let key = &*d.require()?.text;
    let value = d.require()?;
    d.expect_no_argument()?;
    let mut handler = Handler::new("log_append");
    match key.strip_prefix('<') {
        Some(key) if !key.is_empty() => handler.text("key", key).text("value", &value.text).set("early", true),
        _ => handler.text("key", key).text("value", &value.text),
    };
    Ok(handler.json())
}

/// Parses `log_level [<matcher>] debug|info|warn|error`.
pub(super) fn log_level(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let [level] = d.rest() else { return Err(d.count_error()) };
    d.expect_empty_block("log_level directive does not accept blocks")?;
    let level = match &*level.text.to_ascii_lowercase() {
        "debug" => "debug",
        "info" | "" => "info",
        "warn" | "warning" => "warn",
        "error" => "error",
        _ => return Err(d.word("invalid log level \"{}\": expected DEBUG, INFO, WARN, or ERROR")),
    };
    Ok(json!({ "handler": "vars", "log_level": level }))
}

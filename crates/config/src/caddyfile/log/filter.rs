//! Filters that remove or replace a field of a log entry.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::quantity::integer;

const KINDS: &[&str] =
    &["cookie", "delete", "hash", "ip_mask", "multi_regexp", "query", "regexp", "rename", "replace", "set_cookie"];
/// Caddy's bounds on `multi_regexp`.
const OPERATIONS_MAX: usize = 50;
const PATTERN_BYTES_MAX: usize = 1000;

pub(super) enum Filter {
    /// One operation. All for one field are combined into one filter.
    Regexp(Map<String, Value>),
    Other(Map<String, Value>),
}

/// Parses `<field> <filter> … { … }`. The field is the line's name.
pub(super) fn filter(d: &mut Dispenser<'_>) -> Result<Filter, Error> {
    let kind = &*d.require()?.text;
    let mut filter = Map::from_iter([("filter".to_owned(), Value::from(kind))]);
    match kind {
        "delete" | "hash" => d.expect_no_argument()?,
        "replace" => text(d, &mut filter, "value")?,
        "rename" => text(d, &mut filter, "name")?,
        "regexp" => {
            let mut operation = Map::new();
            text_word(d, &mut operation, "regexp");
            text(d, &mut operation, "value")?;
            return Ok(Filter::Regexp(operation));
        }
        "ip_mask" => ip_mask(d, &mut filter)?,
        "query" => actions(d, &mut filter, "parameter")?,
        "cookie" | "set_cookie" => actions(d, &mut filter, "name")?,
        "multi_regexp" => multi_regexp(d, &mut filter)?,
        _ => {
            let rule = "getting module named 'caddy.logging.encoders.filter.{}': module not registered";
            return Err(d.unknown_module(rule, KINDS));
        }
    }
    Ok(Filter::Other(filter))
}

fn text_word(d: &mut Dispenser<'_>, filter: &mut Map<String, Value>, key: &str) {
    if let Some(token) = d.argument().filter(|token| !token.text.is_empty()) {
        filter.insert(key.to_owned(), (*token.text).into());
    }
}

fn text(d: &mut Dispenser<'_>, filter: &mut Map<String, Value>, key: &str) -> Result<(), Error> {
    text_word(d, filter, key);
    d.expect_no_argument()
}

/// Parses `ip_mask [<ipv4 bits> [<ipv6 bits>]] { ipv4 <bits>; ipv6 <bits> }`.
fn ip_mask(d: &mut Dispenser<'_>, filter: &mut Map<String, Value>) -> Result<(), Error> {
    let bits = |line: &mut Dispenser<'_>, key: &str, filter: &mut Map<String, Value>| {
        let bits = integer(&line.require()?.text).ok_or_else(|| line.word("error parsing {}: no number of bits"))?;
        match bits {
            0 => drop(filter.shift_remove(key)),
            _ => drop(filter.insert(key.to_owned(), bits.into())),
        }
        Ok(())
    };
    if d.remaining().len() > 2 {
        d.rest();
        return Err(d.rule("too many arguments"));
    }
    for key in ["ipv4_cidr", "ipv6_cidr"] {
        if !d.remaining().is_empty() {
            bits(d, key, filter)?;
        }
    }
    for mut line in d.lines() {
        match &*line.name().text {
            "ipv4" => bits(&mut line, "ipv4_cidr", filter)?,
            "ipv6" => bits(&mut line, "ipv6_cidr", filter)?,
            _ => return Err(line.unknown("unrecognized subdirective {}", &["ipv4", "ipv6"])),
        }
        line.expect_no_argument()?;
    }
    Ok(())
}

/// Parses `{ replace <name> <value>; hash <name>; delete <name> }`. `key` is the JSON name of `<name>`.
fn actions(d: &mut Dispenser<'_>, filter: &mut Map<String, Value>, key: &str) -> Result<(), Error> {
    let mut actions = Vec::new();
    for mut line in d.lines() {
        let kind = &*line.name().text;
        if !matches!(kind, "replace" | "hash" | "delete") {
            return Err(line.unknown("unrecognized subdirective {}", &["delete", "hash", "replace"]));
        }
        let mut action = Map::from_iter([("type".to_owned(), Value::from(kind))]);
        action.insert(key.to_owned(), (*line.require()?.text).into());
        if kind == "replace" {
            let value = &*line.require()?.text;
            if !value.is_empty() {
                action.insert("value".into(), value.into());
            }
        }
        line.expect_no_argument()?;
        actions.push(Value::Object(action));
    }
    let actions = if actions.is_empty() { Value::Null } else { actions.into() };
    filter.insert("actions".into(), actions);
    Ok(())
}

/// Parses `multi_regexp { regexp <pattern> <value> … }`.
fn multi_regexp(d: &mut Dispenser<'_>, filter: &mut Map<String, Value>) -> Result<(), Error> {
    let mut operations = Vec::new();
    for mut line in d.lines() {
        if &*line.name().text != "regexp" {
            return Err(line.unknown("unrecognized subdirective {}", &["regexp"]));
        }
        if operations.len() == OPERATIONS_MAX {
            return Err(line.rule("too many regexp operations (maximum 50 allowed)"));
        }
        let pattern = &*line.require()?.text;
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(line.rule("regexp pattern too long (maximum 1000 characters)"));
        }
        if pattern.is_empty() {
            return Err(line.rule("regexp pattern cannot be empty"));
        }
        let mut operation = Map::from_iter([("regexp".to_owned(), Value::from(pattern))]);
        line.require()?;
        let value = &*line.last().text;
        if !value.is_empty() {
            operation.insert("value".into(), value.into());
        }
        line.expect_no_argument()?;
        operations.push(Value::Object(operation));
    }
    if operations.is_empty() {
        return Err(d.rule("multi_regexp filter requires at least one regexp operation"));
    }
    filter.insert("operations".into(), operations.into());
    Ok(())
}

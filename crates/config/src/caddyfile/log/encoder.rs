//! `format`: the encoding of log entries.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::quantity::scalar;
use super::filter::{self, Filter};

const KINDS: &[&str] = &["append", "console", "filter", "journald", "json", "transform"];
const OPTIONS: &[&str] = &[
    "caller_key",
    "duration_format",
    "level_format",
    "level_key",
    "line_ending",
    "message_key",
    "name_key",
    "stacktrace_key",
    "time_format",
    "time_key",
    "time_local",
];

/// Parses `format console|json|filter|append|journald|transform { … }`, and the encoder after `wrap`.
pub(super) fn encoder(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let kind = &*d.require()?.text;
    let mut encoder = Map::from_iter([("format".to_owned(), Value::from(kind))]);
    match kind {
        "console" | "json" => {
            d.expect_no_argument()?;
            d.lines().try_for_each(|mut line| option(&mut line, &mut encoder, OPTIONS))?;
        }
        "transform" => transforming(d, &mut encoder)?,
        "filter" => filtering(d, &mut encoder)?,
        "append" => appending(d, &mut encoder)?,
        "journald" => {
            d.expect_no_argument()?;
            for mut line in d.lines() {
                match &*line.name().text {
                    "wrap" => drop(encoder.insert("wrap".into(), self::encoder(&mut line)?)),
                    _ => return Err(line.unknown("unrecognized subdirective {}", &["wrap"])),
                }
            }
        }
        _ => {
            let rule = "getting module named 'caddy.logging.encoders.{}': module not registered";
            return Err(d.unknown_module(rule, KINDS));
        }
    }
    Ok(encoder.into())
}

/// Parses an option that all formats have. `known` are those of the format, for an error.
fn option(
    line: &mut Dispenser<'_>,
    encoder: &mut Map<String, Value>,
    known: &'static [&'static str],
) -> Result<(), Error> {
    let name = &*line.name().text;
    if name == "time_local" {
        line.expect_no_argument()?;
        encoder.insert(name.to_owned(), true.into());
        return Ok(());
    }
    let value = &*line.sole_argument()?.text;
    if !OPTIONS.contains(&name) {
        return Err(line.unknown("unrecognized subdirective {}", known));
    }
    // An empty key omits that part of an entry; an empty format is the default.
    if name.ends_with("_format") && value.is_empty() {
        encoder.shift_remove(name);
    } else {
        encoder.insert(name.to_owned(), value.into());
    }
    Ok(())
}

/// Parses `transform [<template…>] { placeholder <text>; unescape_strings; … }`, as caddyserver/transform-encoder has
/// it.
fn transforming(d: &mut Dispenser<'_>, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    const KNOWN: &[&str] = &[
        "caller_key",
        "duration_format",
        "level_format",
        "level_key",
        "line_ending",
        "message_key",
        "name_key",
        "placeholder",
        "stacktrace_key",
        "time_format",
        "time_key",
        "time_local",
        "unescape_strings",
    ];
    let words: Vec<_> = d.rest().iter().map(|token| &*token.text).collect();
    let template = if words.is_empty() { "{common_log}".to_owned() } else { words.join(" ") };
    encoder.insert("template".into(), template.into());
    for mut line in d.lines() {
        match &*line.name().text {
            "placeholder" => {
                encoder.insert("placeholder".into(), (*line.sole_argument()?.text).into());
            }
            "unescape_strings" => {
                line.expect_no_argument()?;
                encoder.insert("unescape_strings".into(), true.into());
            }
            _ => option(&mut line, encoder, KNOWN)?,
        }
    }
    Ok(())
}

/// Parses `filter { wrap <encoder>; fields { <field> <filter> … }; <field> <filter> … }`.
fn filtering(d: &mut Dispenser<'_>, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    let mut fields = Map::new();
    let mut patterns: BTreeMap<Box<str>, Vec<Value>> = BTreeMap::new();
    let mut field = |line: &mut Dispenser<'_>| {
        let name = line.name();
        let fail = |rule| Err(Error::at(name, ErrorKind::Word { rule, found: name.text.clone() }));
        match filter::filter(line)? {
            Filter::Regexp(operation) => patterns.entry(name.text.clone()).or_default().push(operation.into()),
            Filter::Other(_) if patterns.contains_key(&name.text) => {
                return fail("cannot mix regexp filters with other filter types for field {}");
            }
            Filter::Other(_) if fields.contains_key(&*name.text) => {
                return fail("field {} already has a filter; multiple non-regexp filters per field are not supported");
            }
            Filter::Other(filter) => drop(fields.insert(name.text.to_string(), filter.into())),
        }
        Ok(())
    };
    for mut line in d.lines() {
        match &*line.name().text {
            "wrap" => drop(encoder.insert("wrap".into(), self::encoder(&mut line)?)),
            "fields" => line.lines().try_for_each(|mut line| field(&mut line))?,
            _ => field(&mut line)?,
        }
    }
    // Several regexp filters for one field become one `multi_regexp` filter, as in Caddy.
    for (field, mut operations) in patterns {
        let filter = match (operations.len(), operations.pop()) {
            (1, Some(Value::Object(mut only))) => {
                only.insert("filter".into(), "regexp".into());
                only.into()
            }
            (_, last) => {
                operations.extend(last);
                if operations.iter().any(|operation| operation.get("regexp").is_none()) {
                    let rule = "adding regexp operation for field {}: regexp pattern cannot be empty";
                    return Err(Error::at(d.last(), ErrorKind::Word { rule, found: field }));
                }
                json!({ "filter": "multi_regexp", "operations": operations })
            }
        };
        fields.insert(field.into(), filter);
    }
    if !fields.is_empty() {
        encoder.insert("fields".into(), fields.into());
    }
    Ok(())
}

/// Parses `append { wrap <encoder>; fields { <field> <value> … }; <field> <value> … }`.
fn appending(d: &mut Dispenser<'_>, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    let mut fields = Map::new();
    let mut field = |line: &mut Dispenser<'_>| {
        let value = line.require()?;
        line.expect_no_argument()?;
        let value = if value.quoted() { Value::from(&*value.text) } else { scalar(&value.text) };
        fields.insert(line.name().text.to_string(), value);
        Ok(())
    };
    for mut line in d.lines() {
        match &*line.name().text {
            "wrap" => drop(encoder.insert("wrap".into(), self::encoder(&mut line)?)),
            "fields" => line.lines().try_for_each(|mut line| field(&mut line))?,
            _ => field(&mut line)?,
        }
    }
    if !fields.is_empty() {
        encoder.insert("fields".into(), fields.into());
    }
    Ok(())
}

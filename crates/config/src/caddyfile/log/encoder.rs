//! `format`: how a record is written.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::quantity::scalar;
use super::filter::{self, Filter};

const KINDS: &[&str] = &["append", "console", "filter", "journald", "json"];
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

/// `format console|json|filter|append|journald { … }`, also behind `wrap`
pub(super) fn encoder(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let kind = &*d.require()?.text;
    let mut encoder = Map::from_iter([("format".to_owned(), Value::from(kind))]);
    match kind {
        "console" | "json" => plain(d, &mut encoder)?,
        "filter" => filtering(d, &mut encoder)?,
        "append" => appending(d, &mut encoder)?,
        "journald" => {
            d.end()?;
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

fn plain(d: &mut Dispenser<'_>, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    d.end()?;
    for mut line in d.lines() {
        let name = &*line.name().text;
        if name == "time_local" {
            line.end()?;
            encoder.insert(name.to_owned(), true.into());
            continue;
        }
        let value = &*line.only()?.text;
        if !OPTIONS.contains(&name) {
            return Err(line.unknown("unrecognized subdirective {}", OPTIONS));
        }
        // An empty key leaves its part of a record out; an empty format counts as not said.
        if name.ends_with("_format") && value.is_empty() {
            encoder.shift_remove(name);
        } else {
            encoder.insert(name.to_owned(), value.into());
        }
    }
    Ok(())
}

/// `filter { wrap <encoder>; fields { <field> <filter> … }; <field> <filter> … }`
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

/// `append { wrap <encoder>; fields { <field> <value> … }; <field> <value> … }`
fn appending(d: &mut Dispenser<'_>, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    let mut fields = Map::new();
    let mut field = |line: &mut Dispenser<'_>| {
        let value = line.require()?;
        line.end()?;
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

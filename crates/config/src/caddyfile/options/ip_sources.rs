//! `trusted_proxies` of `servers`: the modules that provide the networks of trusted proxies.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::matcher::PRIVATE_RANGES;
use super::per_server::duration;

/// Parses a source, whose name is the last word handed out. As in the plugins for Caddy, those other than `static` take
/// no argument.
pub(super) fn ip_source(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    match &*d.last().text {
        "static" => Ok(fixed(d)),
        "cloudflare" => cloudflare(d),
        "combine" => combine(d),
        name => {
            let rule = "getting module named 'http.ip_sources.{}': module not registered";
            let error = d.unknown_module(rule, &["cloudflare", "combine", "static"]);
            let is_range = name == "private_ranges" || name.starts_with(|c: char| c.is_ascii_digit());
            Err(if is_range { error.with_note(|| format!("networks follow static: static {name}")) } else { error })
        }
    }
}

/// Parses `static <ranges…>`.
fn fixed(d: &mut Dispenser<'_>) -> Value {
    let mut ranges: Vec<Value> = Vec::new();
    for token in d.rest() {
        match &*token.text {
            "private_ranges" => ranges.extend(PRIVATE_RANGES.map(Value::from)),
            range => ranges.push(range.into()),
        }
    }
    if ranges.is_empty() { json!({ "source": "static" }) } else { json!({ "source": "static", "ranges": ranges }) }
}

/// Parses `cloudflare { interval <duration>; timeout <duration> }`.
fn cloudflare(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut source = Map::from_iter([("source".to_owned(), Value::from("cloudflare"))]);
    for mut line in d.lines() {
        let name = &*line.name().text;
        let rule = match name {
            "interval" => "parsing cloudflare interval: invalid duration '{}'; expected one such as 12h",
            "timeout" => "parsing cloudflare timeout: invalid duration '{}'; expected one such as 15s",
            _ => return Err(line.unknown("unrecognized cloudflare option '{}'", &["interval", "timeout"])),
        };
        match duration(&mut line, rule)? {
            0 => drop(source.shift_remove(name)),
            nanoseconds => drop(source.insert(name.to_owned(), nanoseconds.into())),
        }
    }
    Ok(source.into())
}

/// Parses `combine { <source> …; … }`.
fn combine(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let parts = d.lines().map(|mut line| ip_source(&mut line)).collect::<Result<Vec<_>, _>>()?;
    Ok(if parts.is_empty() { json!({ "source": "combine" }) } else { json!({ "source": "combine", "parts": parts }) })
}

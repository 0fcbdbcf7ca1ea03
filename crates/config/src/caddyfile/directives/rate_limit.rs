//! rate_limit, the directive of the plugin `caddy-ratelimit`.

use causeway_pipeline::build::nanoseconds;
use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::matcher;
use super::super::members::Members;
use super::super::quantity::integer;
use super::Handler;

const DURATION: &str = "'{}' is no duration; expected one such as 30s or 1m";

/// Parses `rate_limit [<matcher>] { zone <name> { match …; key <text>; window <duration>; events <number> }; jitter <share>;
/// sweep_interval <duration>; log_key }`.
pub(super) fn rate_limit(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("rate_limit");
    let mut zones = Map::new();
    d.end()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "zone" => {
                let name = line.only()?.text.to_string();
                if zones.contains_key(&name) {
                    return Err(line.word("the zone '{}' is defined above; expected another name"));
                }
                zones.insert(name, zone(&line)?);
            }
            "jitter" => {
                let jitter = line.only()?.text.parse::<f64>().ok().filter(|jitter| (0.0..=100.0).contains(jitter));
                let jitter = jitter.ok_or_else(|| line.word("'{}' is no share; expected a number such as 0.2"))?;
                handler.set("jitter", jitter);
            }
            "sweep_interval" => {
                let interval = nanoseconds(&line.only()?.text).ok_or_else(|| line.word(DURATION))?;
                handler.0.number("sweep_interval", interval);
            }
            "log_key" => {
                line.end()?;
                handler.0.switch_on("log_key");
            }
            "distributed" | "storage" => {
                return Err(line.word("'{}' is not implemented: each server counts for itself"));
            }
            _ => {
                let expected = &["jitter", "log_key", "sweep_interval", "zone"];
                return Err(line.unknown("unrecognized subdirective '{}'", expected));
            }
        }
    }
    if !zones.is_empty() {
        handler.set("rate_limits", zones);
    }
    Ok(handler.json())
}

fn zone(d: &Dispenser<'_>) -> Result<Value, Error> {
    let mut zone = Map::new();
    for mut line in d.lines() {
        let key = match &*line.name().text {
            "events" => "max_events",
            name @ ("match" | "key" | "window") => name,
            _ => {
                return Err(line.unknown("unrecognized subdirective '{}'", &["events", "key", "match", "window"]));
            }
        };
        if key == "match" {
            zone.extend_list(key, vec![matcher::nested(&line.take_segment())?.into()]);
            continue;
        }
        let text = &*line.only()?.text;
        let value = match key {
            "key" => Value::from(text),
            "window" => nanoseconds(text).ok_or_else(|| line.word(DURATION))?.into(),
            _ => {
                integer(text).ok_or_else(|| line.word("'{}' is no number of events; expected one such as 100"))?.into()
            }
        };
        if zone.insert(key.to_owned(), value).is_some() {
            return Err(line.rule("this option is given above; expected it once"));
        }
    }
    let is_positive = |key: &str| zone.get(key).and_then(Value::as_i64).is_some_and(|number| number > 0);
    if !is_positive("window") || !is_positive("max_events") {
        return Err(d.rule("a zone needs 'window' and 'events', both above 0"));
    }
    Ok(zone.into())
}

//! `circuit_breaker { … }`, which Caddy's Caddyfile does not have. Its JSON is a module of ours in Caddy's field.

use serde_json::{Map, Value, json};

use super::super::directives::status;
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::{integer, ratio, scalar};
use super::health::STATUS;
use causeway_pipeline::build::nanoseconds;

const OPTIONS: &[&str] = &["error_ratio", "error_status", "latency", "min_requests", "trip_duration", "window"];

/// Parses the block. Ranges are checked when the handler is built.
pub(super) fn circuit_breaker(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut breaker = Map::from_iter([("type".to_owned(), json!("internal"))]);
    for mut line in d.lines() {
        let line = &mut line;
        let name = &*line.name().text;
        if OPTIONS.contains(&name) && breaker.contains_key(name) {
            return Err(line.rule("this option of circuit_breaker is already specified"));
        }
        match name {
            "error_ratio" => {
                let number = number(&line.require()?.text);
                let number = number.ok_or_else(|| line.word("bad ratio '{}'; expected a number such as 0.5"))?;
                breaker.insert("error_ratio".into(), number);
            }
            "error_status" => {
                line.require()?;
                line.rest();
                for token in line.arguments() {
                    let status = status(&token.text).ok_or_else(|| line.word(STATUS))?;
                    breaker.extend_list("error_status", vec![status.into()]);
                }
                continue;
            }
            "latency" => {
                let limit = nanoseconds(&line.require()?.text);
                let limit = limit.ok_or_else(|| line.word("bad latency '{}'; expected a duration such as 500ms"))?;
                let mut latency = Map::from_iter([("limit".to_owned(), json!(limit))]);
                if let Some(token) = line.argument() {
                    let quantile = number(&token.text);
                    let rule = "bad quantile '{}'; expected a number such as 0.95";
                    latency.insert("quantile".into(), quantile.ok_or_else(|| line.word(rule))?);
                }
                breaker.insert("latency".into(), latency.into());
            }
            "min_requests" => {
                let count = integer(&line.require()?.text);
                let count = count.ok_or_else(|| line.word("bad number of requests '{}'; expected an integer"))?;
                breaker.insert("min_requests".into(), json!(count));
            }
            "window" | "trip_duration" => {
                let duration = nanoseconds(&line.require()?.text);
                let duration =
                    duration.ok_or_else(|| line.word("bad duration value '{}'; expected one such as 10s"))?;
                breaker.insert(name.into(), json!(duration));
            }
            _ => return Err(line.unknown("unrecognized option '{}'", OPTIONS)),
        }
        line.expect_no_argument()?;
    }
    Ok(breaker.into())
}

/// Parses a number, with a fraction or without one.
fn number(text: &str) -> Option<Value> {
    ratio(text).map(|_| scalar(text))
}

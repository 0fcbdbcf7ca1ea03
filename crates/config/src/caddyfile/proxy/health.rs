//! Whether upstreams are well: `health_…` asks them, the others look at what they answer.

use serde_json::{Map, Value, json};

use super::super::directives::status;
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::integer;
use super::address::split_host_port;
use super::setting::{Kind, Setting, set, text};

const ACTIVE: &[Setting] = &[
    text("health_uri", "uri"),
    text("health_path", "path"),
    text("health_method", "method"),
    text("health_request_body", "body"),
    text("health_body", "expect_body"),
    Setting {
        option: "health_interval",
        member: "interval",
        kind: Kind::Duration,
        rule: "bad interval value {}; expected one such as 30s",
    },
    Setting {
        option: "health_timeout",
        member: "timeout",
        kind: Kind::Duration,
        rule: "bad timeout value {}; expected one such as 5s",
    },
    Setting {
        option: "health_passes",
        member: "passes",
        kind: Kind::Integer,
        rule: "invalid passes count '{}'; expected an integer",
    },
    Setting {
        option: "health_fails",
        member: "fails",
        kind: Kind::Integer,
        rule: "invalid fails count '{}'; expected an integer",
    },
];

const PASSIVE: &[Setting] = &[
    Setting {
        option: "max_fails",
        member: "max_fails",
        kind: Kind::Integer,
        rule: "invalid maximum fail count '{}'; expected an integer",
    },
    Setting {
        option: "fail_duration",
        member: "fail_duration",
        kind: Kind::Duration,
        rule: "bad duration value '{}'; expected one such as 30s",
    },
    Setting {
        option: "unhealthy_request_count",
        member: "unhealthy_request_count",
        kind: Kind::Integer,
        rule: "invalid maximum connection count '{}'; expected an integer",
    },
    Setting {
        option: "unhealthy_latency",
        member: "unhealthy_latency",
        kind: Kind::Duration,
        rule: "bad duration value '{}'; expected one such as 5s",
    },
];

/// Reads the line if it is about health.
pub(super) fn option(line: &mut Dispenser<'_>, proxy: &mut Map<String, Value>) -> Result<bool, Error> {
    let mut checks = proxy.get("health_checks").and_then(Value::as_object).cloned().unwrap_or_default();
    let read = if line.name().text.starts_with("health_") {
        active(line, checks.child("active"))?
    } else {
        passive(line, checks.child("passive"))?
    };
    if read {
        proxy.insert("health_checks".into(), checks.into());
    }
    Ok(read)
}

fn active(line: &mut Dispenser<'_>, checks: &mut Map<String, Value>) -> Result<bool, Error> {
    match &*line.name().text {
        "health_upstream" => {
            let token = line.require()?;
            let port = split_host_port(&token.text).map(|(_, port)| port);
            let port = port.ok_or_else(|| line.word("health_upstream is malformed '{}'; expected host:port"))?;
            if integer(port).is_none() {
                return Err(line.word("bad port number '{}'; expected host:port with a number"));
            }
            checks.text("upstream", &token.text);
        }
        "health_port" => {
            let port = integer(&line.require()?.text);
            if checks.contains_key("upstream") {
                return Err(line.rule("the 'health_port' subdirective is ignored if 'health_upstream' is used!"));
            }
            checks.number("port", port.ok_or_else(|| line.word("bad port number '{}'; expected a number"))?);
        }
        "health_headers" => {
            let mut fields = Map::new();
            let none = Vec::new();
            // Behind a word that is left over, the block is that word's.
            let lines = line.segment().block.as_ref().filter(|_| line.remaining().is_empty()).unwrap_or(&none);
            for field in lines {
                let values = field.arguments.iter().map(|token| Value::from(&*token.text)).collect::<Vec<_>>();
                fields.extend_list(&field.name.text, if values.is_empty() { vec![json!("")] } else { values });
            }
            if fields.is_empty() {
                checks.shift_remove("headers");
            } else {
                checks.insert("headers".into(), fields.into());
            }
        }
        "health_status" => {
            let token = line.require()?;
            let status = status(&token.text);
            checks.number("expect_status", status.ok_or_else(|| line.word(STATUS))?);
        }
        "health_follow_redirects" => {
            line.end()?;
            checks.switch_on("follow_redirects");
        }
        "health_path" => {
            set(line, checks, ACTIVE)?;
            line.warn(line.name(), "'health_path' is deprecated, please use 'health_uri' instead".to_owned());
        }
        _ => return set(line, checks, ACTIVE),
    }
    Ok(true)
}

fn passive(line: &mut Dispenser<'_>, checks: &mut Map<String, Value>) -> Result<bool, Error> {
    if &*line.name().text != "unhealthy_status" {
        return set(line, checks, PASSIVE);
    }
    line.require()?;
    line.rest();
    for token in &line.segment().arguments {
        let status = status(&token.text).ok_or_else(|| line.word(STATUS))?;
        checks.extend_list("unhealthy_status", vec![status.into()]);
    }
    Ok(true)
}

const STATUS: &str = "bad status value '{}'; expected a number or a class such as 2xx";

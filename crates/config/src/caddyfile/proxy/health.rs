//! Health checks. `health_…` options configure active checks, the others passive ones.

use serde_json::{Map, Value, json};

use super::super::directives::{status, texts};
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::integer;
use super::address::split_host_port;
use super::setting::{ArgumentType, Setting, set, text};

const ACTIVE: &[Setting] = &[
    text("health_uri", "uri"),
    text("health_path", "path"),
    text("health_method", "method"),
    text("health_request_body", "body"),
    text("health_body", "expect_body"),
    Setting {
        option: "health_interval",
        member: "interval",
        kind: ArgumentType::Duration,
        rule: "bad interval value {}; expected one such as 30s",
    },
    Setting {
        option: "health_timeout",
        member: "timeout",
        kind: ArgumentType::Duration,
        rule: "bad timeout value {}; expected one such as 5s",
    },
    Setting {
        option: "health_passes",
        member: "passes",
        kind: ArgumentType::Integer,
        rule: "invalid passes count '{}'; expected an integer",
    },
    Setting {
        option: "health_fails",
        member: "fails",
        kind: ArgumentType::Integer,
        rule: "invalid fails count '{}'; expected an integer",
    },
];

const PASSIVE: &[Setting] = &[
    Setting {
        option: "max_fails",
        member: "max_fails",
        kind: ArgumentType::Integer,
        rule: "invalid maximum fail count '{}'; expected an integer",
    },
    Setting {
        option: "fail_duration",
        member: "fail_duration",
        kind: ArgumentType::Duration,
        rule: "bad duration value '{}'; expected one such as 30s",
    },
    Setting {
        option: "unhealthy_request_count",
        member: "unhealthy_request_count",
        kind: ArgumentType::Integer,
        rule: "invalid maximum connection count '{}'; expected an integer",
    },
    Setting {
        option: "unhealthy_latency",
        member: "unhealthy_latency",
        kind: ArgumentType::Duration,
        rule: "bad duration value '{}'; expected one such as 5s",
    },
];

/// Parses the line if it is one of these options.
pub(super) fn option(line: &mut Dispenser<'_>, proxy: &mut Map<String, Value>) -> Result<bool, Error> {
    // Works on a copy: `child` creates objects, which must not remain if the line is not a health option.
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
            for mut field in line.lines() {
                let values = texts(field.rest());
                fields.extend_list(&field.name().text, if values.is_empty() { vec![json!("")] } else { values });
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
            line.expect_no_argument()?;
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
    for token in line.arguments() {
        let status = status(&token.text).ok_or_else(|| line.word(STATUS))?;
        checks.extend_list("unhealthy_status", vec![status.into()]);
    }
    Ok(true)
}

pub(super) const STATUS: &str = "bad status value '{}'; expected a number or a class such as 2xx";

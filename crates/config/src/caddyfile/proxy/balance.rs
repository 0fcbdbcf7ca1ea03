//! Load balancing and retries: `lb_…`.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::matcher;
use super::super::members::Members;
use super::super::quantity::integer;
use super::setting::{ArgumentType, Setting, set};
use causeway_pipeline::build::nanoseconds;

const SETTINGS: &[Setting] = &[
    Setting {
        option: "lb_retries",
        member: "retries",
        kind: ArgumentType::Integer,
        rule: "bad lb_retries number '{}'; expected an integer",
    },
    Setting {
        option: "lb_try_duration",
        member: "try_duration",
        kind: ArgumentType::Duration,
        rule: "bad duration value {}; expected one such as 5s",
    },
    Setting {
        option: "lb_try_interval",
        member: "try_interval",
        kind: ArgumentType::Duration,
        rule: "bad interval value '{}'; expected one such as 250ms",
    },
    // Not in Caddy.
    Setting {
        option: "lb_slow_start",
        member: "slow_start",
        kind: ArgumentType::Duration,
        rule: "bad duration value '{}'; expected one such as 30s",
    },
];

/// The names of the policies, sorted.
pub(crate) const POLICIES: &[&str] = &[
    "client_ip_hash",
    "cookie",
    "first",
    "header",
    "ip_hash",
    "least_conn",
    "query",
    "random",
    "random_choose",
    "round_robin",
    "uri_hash",
    "weighted_round_robin",
];

/// Parses the line if it is one of these options.
pub(super) fn option(line: &mut Dispenser<'_>, proxy: &mut Map<String, Value>) -> Result<bool, Error> {
    let mut settings = Map::new();
    match &*line.name().text {
        "lb_policy" => {
            line.require()?;
            if proxy.get("load_balancing").is_some_and(|balancing| balancing.get("selection_policy").is_some()) {
                return Err(line.rule("load balancing selection policy already specified"));
            }
            settings.insert("selection_policy".into(), policy(line)?);
        }
        "lb_retry_match" => {
            let set = matcher::nested(&line.take_segment())?;
            proxy.child("load_balancing").extend_list("retry_match", vec![set.into()]);
        }
        _ if set(line, &mut settings, SETTINGS)? => {
            // This line replaces an earlier one, even if its value is the default, which is omitted.
            let member = SETTINGS.iter().find(|setting| *setting.option == *line.name().text);
            member.map(|setting| proxy.child("load_balancing").shift_remove(setting.member));
        }
        _ => return Ok(false),
    }
    proxy.child("load_balancing").extend(settings);
    Ok(true)
}

/// Parses the arguments and the block of a policy. Its name is the word handed out last.
fn policy(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = &*d.last().text;
    let mut policy = Map::from_iter([("policy".to_owned(), Value::from(name))]);
    match name {
        "client_ip_hash" | "first" | "ip_hash" | "least_conn" | "random" | "round_robin" | "uri_hash" => {
            d.expect_no_argument()?;
        }
        "weighted_round_robin" => {
            if d.remaining().is_empty() {
                return Err(d.count_error());
            }
            while let Some(token) = d.argument() {
                let weight = integer(&token.text);
                let rule = "invalid weight value '{}'; expected an integer";
                let weight = weight.ok_or_else(|| d.word(rule))?;
                if weight < 0 {
                    return Err(d.word("invalid weight value '{}': weight should be non-negative"));
                }
                policy.extend_list("weights", vec![weight.into()]);
            }
        }
        "random_choose" => {
            let choices = integer(&d.require()?.text);
            let rule = "invalid choice value '{}'; expected an integer";
            policy.number("choose", choices.ok_or_else(|| d.word(rule))?);
            d.expect_no_argument()?;
        }
        "header" | "query" => {
            let key = if name == "header" { "field" } else { "key" };
            policy.text(key, &d.require()?.text);
            block(d, &mut policy, &["fallback"])?;
        }
        "cookie" => {
            for key in ["name", "secret"] {
                if let Some(token) = d.argument() {
                    policy.text(key, &token.text);
                }
            }
            if !d.remaining().is_empty() {
                d.rest();
                return Err(d.count_error());
            }
            block(d, &mut policy, &["fallback", "max_age"])?;
        }
        _ => {
            let rule = "getting module named 'http.reverse_proxy.selection_policies.{}': module not registered";
            return Err(d.unknown_module(rule, POLICIES));
        }
    }
    Ok(policy.into())
}

/// Parses the block of a policy that hashes.
fn block(
    d: &mut Dispenser<'_>,
    policy: &mut Map<String, Value>,
    expected: &'static [&'static str],
) -> Result<(), Error> {
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "fallback" => {
                line.require()?;
                if policy.contains_key("fallback") {
                    return Err(line.rule("fallback selection policy already specified"));
                }
                let fallback = self::policy(&mut line)?;
                policy.insert("fallback".into(), fallback);
            }
            "max_age" if expected.contains(&"max_age") => {
                let token = line.require()?;
                if policy.contains_key("max_age") {
                    return Err(line.rule("cookie max_age already specified"));
                }
                let age = nanoseconds(&token.text);
                let age = age.ok_or_else(|| line.word("invalid duration: {}; expected one such as 1h"))?;
                if age <= 0 {
                    let rule = "invalid duration: {}, max_age should be non-zero and positive";
                    return Err(line.word(rule));
                }
                line.expect_no_argument()?;
                policy.insert("max_age".into(), json!(age));
            }
            _ => return Err(line.unknown("unrecognized option '{}'", expected)),
        }
    }
    Ok(())
}

//! Dynamic upstreams: `dynamic a|srv|multi`.

use serde_json::{Map, Value, json};

use super::super::directives::texts;
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::setting::{ArgumentType, Setting, set};

const SETTINGS: &[Setting] = &[
    Setting {
        option: "refresh",
        member: "refresh",
        kind: ArgumentType::Duration,
        rule: "parsing refresh interval duration: '{}' is none; expected one such as 1m",
    },
    Setting {
        option: "dial_timeout",
        member: "dial_timeout",
        kind: ArgumentType::Duration,
        rule: "bad timeout value '{}'; expected one such as 5s",
    },
    Setting {
        option: "dial_fallback_delay",
        member: "dial_fallback_delay",
        kind: ArgumentType::Duration,
        rule: "bad delay value '{}'; expected one such as 300ms",
    },
];

const GRACE: &[Setting] = &[Setting {
    option: "grace_period",
    member: "grace_period",
    kind: ArgumentType::Duration,
    rule: "bad grace period value '{}'; expected one such as 1m",
}];

const A: &[&str] = &["dial_fallback_delay", "dial_timeout", "name", "port", "refresh", "resolvers", "versions"];
const SRV: &[&str] =
    &["dial_fallback_delay", "dial_timeout", "grace_period", "name", "proto", "refresh", "resolvers", "service"];

/// Parses the arguments and the block of a source. Its name is the word handed out last.
pub(super) fn source(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = &*d.last().text;
    let mut source = Map::from_iter([("source".to_owned(), Value::from(name))]);
    match name {
        "a" => a(d, &mut source)?,
        "srv" => srv(d, &mut source)?,
        "multi" => {
            d.expect_no_argument()?;
            for mut line in d.lines() {
                // A line is a source, parsed as if `dynamic` preceded it.
                let written = with_dynamic(&mut line);
                let mut line = line.over(&written);
                line.require()?;
                source.extend_list("sources", vec![self::source(&mut line)?]);
            }
        }
        _ => {
            let rule = "getting module named 'http.reverse_proxy.upstreams.{}': module not registered";
            return Err(d.unknown_module(rule, &["a", "multi", "srv"]));
        }
    }
    Ok(source.into())
}

fn with_dynamic(line: &mut Dispenser<'_>) -> super::super::segment::Segment {
    let mut segment = line.take_segment();
    segment.arguments.insert(0, segment.name.clone());
    segment
}

/// Parses `a [<name> [<port>]] { … }`.
fn a(d: &mut Dispenser<'_>, source: &mut Map<String, Value>) -> Result<(), Error> {
    words(d, source, &["name", "port"])?;
    for mut line in d.lines() {
        match &*line.name().text {
            "name" => once(&mut line, source, "a name has already been specified")?,
            "port" => once(&mut line, source, "a port has already been specified")?,
            "versions" => {
                if line.remaining().is_empty() {
                    return Err(line.rule("must specify at least one version"));
                }
                for token in line.rest() {
                    match &*token.text {
                        version @ ("ipv4" | "ipv6") => source.child("versions").switch_on(version),
                        _ => {
                            let rule = "unsupported version: '{}'; expected ipv4 or ipv6";
                            return Err(Error::at(token, ErrorKind::Word { rule, found: token.text.clone() }));
                        }
                    }
                }
            }
            "resolvers" => resolvers(&mut line, source)?,
            _ if set(&mut line, source, SETTINGS)? => {}
            _ => return Err(line.unknown("unrecognized a option '{}'", A)),
        }
    }
    Ok(())
}

/// Parses `srv [<name>] { … }`.
fn srv(d: &mut Dispenser<'_>, source: &mut Map<String, Value>) -> Result<(), Error> {
    words(d, source, &["name"])?;
    for mut line in d.lines() {
        match &*line.name().text {
            "service" => once(&mut line, source, "srv service has already been specified")?,
            "proto" => once(&mut line, source, "srv proto has already been specified")?,
            "name" => once(&mut line, source, "srv name has already been specified")?,
            "resolvers" => resolvers(&mut line, source)?,
            _ if set(&mut line, source, SETTINGS)? || set(&mut line, source, GRACE)? => {}
            _ => return Err(line.unknown("unrecognized srv option '{}'", SRV)),
        }
    }
    Ok(())
}

fn words(d: &mut Dispenser<'_>, source: &mut Map<String, Value>, keys: &[&str]) -> Result<(), Error> {
    let words = d.rest();
    if words.len() > keys.len() {
        return Err(d.count_error());
    }
    keys.iter().zip(words).for_each(|(key, token)| source.text(key, &token.text));
    Ok(())
}

fn once(line: &mut Dispenser<'_>, source: &mut Map<String, Value>, twice: &'static str) -> Result<(), Error> {
    let token = line.require()?;
    let key = &*line.name().text;
    if source.contains_key(key) {
        return Err(line.rule(twice));
    }
    source.text(key, &token.text);
    Ok(())
}

/// Parses `resolvers <addresses…>`. The last of several lines applies.
pub(super) fn resolvers(line: &mut Dispenser<'_>, members: &mut Map<String, Value>) -> Result<(), Error> {
    let addresses = line.rest();
    if addresses.is_empty() {
        return Err(line.rule("must specify at least one resolver address"));
    }
    members.insert("resolver".into(), json!({ "addresses": texts(addresses) }));
    Ok(())
}

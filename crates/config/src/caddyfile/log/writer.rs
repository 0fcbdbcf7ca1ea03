//! `output`: the destination of a logger's entries.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::quantity::{bytes, integer};
use causeway_pipeline::build::nanoseconds;

const KINDS: &[&str] = &["discard", "file", "net", "stderr", "stdout"];
const FILE_OPTIONS: &[&str] = &[
    "backup_time_format",
    "dir_mode",
    "mode",
    "roll_at",
    "roll_compression",
    "roll_disabled",
    "roll_interval",
    "roll_keep",
    "roll_keep_for",
    "roll_local_time",
    "roll_minutes",
    "roll_size",
    "roll_uncompressed",
];
const DAY: i64 = 86_400_000_000_000;

/// Parses `output stdout|stderr|discard|file …|net …`.
pub(super) fn writer(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let kind = &*d.require()?.text;
    match kind {
        "stdout" | "stderr" | "discard" => {
            // Caddy reads a further word as another option of the logger, which is unknown.
            match d.argument() {
                Some(_) => Err(d.word("unrecognized subdirective: {}; expected nothing more on this line")),
                None => Ok(json!({ "output": kind })),
            }
        }
        "file" => file(d),
        "net" => net(d),
        _ => Err(d.unknown_module("getting module named 'caddy.logging.writers.{}': module not registered", KINDS)),
    }
}

/// Parses `file <name> { … }`.
fn file(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let name = d.require()?;
    d.expect_no_argument()?;
    let mut file = Map::from_iter([("output".to_owned(), Value::from("file"))]);
    if !name.text.is_empty() {
        file.insert("filename".into(), (*name.text).into());
    }
    for mut line in d.lines() {
        if let Some((key, value)) = file_option(&mut line)? {
            // 0 and an empty text stand for the default.
            match value {
                Value::Number(number) if number.as_i64() == Some(0) => drop(file.shift_remove(key)),
                Value::String(text) if text.is_empty() => drop(file.shift_remove(key)),
                value => drop(file.insert(key.to_owned(), value)),
            }
        }
    }
    Ok(file.into())
}

fn file_option(line: &mut Dispenser<'_>) -> Result<Option<(&'static str, Value)>, Error> {
    let span = |line: &mut Dispenser<'_>, rule| {
        let token = line.sole_argument()?;
        nanoseconds(&token.text).ok_or_else(|| line.word(rule))
    };
    Ok(Some(match &*line.name().text {
        "mode" => {
            let mode = octal(&line.sole_argument()?.text);
            let mode = mode.ok_or_else(|| line.word("parsing mode: '{}' is no mode; expected one such as 0640"))?;
            ("mode", if mode == 0 { "".into() } else { format!("{mode:04o}").into() })
        }
        "dir_mode" => {
            let mode = line.sole_argument()?.text.trim();
            if !matches!(&*mode.to_lowercase(), "inherit" | "from_file") && octal(mode).is_none() {
                return Err(
                    line.word("parsing dir_mode: '{}' is no mode; expected one such as 0750, inherit, from_file")
                );
            }
            ("dir_mode", mode.into())
        }
        "roll_disabled" => {
            line.expect_no_argument()?;
            ("roll", false.into())
        }
        "roll_uncompressed" => {
            line.expect_no_argument()?;
            ("roll_gzip", false.into())
        }
        "roll_local_time" => {
            line.expect_no_argument()?;
            ("roll_local_time", true.into())
        }
        "roll_size" => {
            let size = bytes(&line.sole_argument()?.text);
            let size = size.ok_or_else(|| line.word("parsing size: '{}' is no size; expected one such as 100MiB"))?;
            ("roll_size_mb", size.div_ceil(1 << 20).into())
        }
        "roll_compression" => match &*line.sole_argument()?.text.trim().to_lowercase() {
            kind @ ("none" | "gzip" | "zstd") => ("roll_compression", kind.into()),
            _ => return Err(line.rule("parsing roll_compression: must be 'none', 'gzip' or 'zstd'")),
        },
        "roll_keep" => {
            let keep = integer(&line.sole_argument()?.text);
            ("roll_keep", keep.ok_or_else(|| line.word("parsing roll_keep number: '{}' is no number"))?.into())
        }
        "roll_keep_for" => {
            let keep = span(line, "parsing roll_keep_for duration: '{}' is no duration; expected one such as 720h")?;
            if keep < 0 {
                return Err(line.word("negative roll_keep_for duration: {}"));
            }
            ("roll_keep_days", (keep / DAY + i64::from(keep % DAY != 0)).into())
        }
        "roll_interval" => {
            let rule = "parsing roll_interval duration: '{}' is no duration; expected one such as 24h";
            ("roll_interval", span(line, rule)?.into())
        }
        "roll_minutes" => {
            let minute = |text: &str| integer(text).map(Value::from);
            let rules = ["parsing roll_minutes: empty value", "parsing roll_minutes number: '{}' is no number"];
            ("roll_minutes", listed(line, rules, minute)?)
        }
        "roll_at" => {
            let time = |text: &str| Some(Value::from(text));
            ("roll_at", listed(line, ["parsing roll_at: empty value", ""], time)?)
        }
        "backup_time_format" => ("backup_time_format", (*line.sole_argument()?.text).into()),
        _ => return Err(line.unknown("unrecognized subdirective '{}'", FILE_OPTIONS)),
    }))
}

/// Parses values separated by commas, blanks, or both. The two rules are the errors for an empty value and for one that
/// `value` rejects.
fn listed(
    line: &mut Dispenser<'_>,
    [empty, wrong]: [&'static str; 2],
    value: impl Fn(&str) -> Option<Value>,
) -> Result<Value, Error> {
    line.require()?;
    let mut values = Vec::new();
    for text in line.arguments().iter().flat_map(|token| token.text.split(',')) {
        if text.trim().is_empty() {
            return Err(line.rule(empty));
        }
        values.push(value(text.trim()).ok_or_else(|| line.word(wrong))?);
    }
    Ok(values.into())
}

fn octal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if text.is_empty() { Some(0) } else { u32::from_str_radix(text, 8).ok().filter(|_| digits) }
}

/// Parses `net <address> { dial_timeout …; soft_start }`.
fn net(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let address = d.require()?;
    d.expect_no_argument()?;
    let mut net = Map::from_iter([("output".to_owned(), Value::from("net"))]);
    if !address.text.is_empty() {
        net.insert("address".into(), (*address.text).into());
    }
    for mut line in d.lines() {
        match &*line.name().text {
            "dial_timeout" => {
                let timeout = nanoseconds(&line.require()?.text);
                let timeout = timeout.ok_or_else(|| line.word("invalid duration: {}"))?;
                line.expect_no_argument()?;
                match timeout {
                    0 => drop(net.shift_remove("dial_timeout")),
                    _ => drop(net.insert("dial_timeout".into(), timeout.into())),
                }
            }
            "soft_start" => {
                line.expect_no_argument()?;
                net.insert("soft_start".into(), true.into());
            }
            _ => return Err(line.unknown("unrecognized subdirective '{}'", &["dial_timeout", "soft_start"])),
        }
    }
    Ok(net.into())
}

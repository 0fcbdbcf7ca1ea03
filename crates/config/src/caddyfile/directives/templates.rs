//! templates, tracing and timeouts, which wrap the handlers after them.

use causeway_pipeline::build::nanoseconds;
use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::integer;
use super::{Handler, texts};

/// Parses `templates [<matcher>] { mime <types…>; between <open> <close>; root <path> }`.
pub(super) fn templates(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("templates");
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "mime" => {
                line.require()?;
                let types = texts(line.arguments());
                handler.replace("mime_types", Some(types));
            }
            "between" => {
                line.require()?;
                line.sole_argument()?;
                let delimiters = texts(line.arguments());
                handler.replace("delimiters", Some(delimiters));
            }
            "root" => {
                let root = line.sole_argument()?;
                handler.replace("file_root", Some(&*root.text));
            }
            "extensions" => {
                line.expect_no_argument()?;
                if let Some(extension) = line.lines().next() {
                    return Err(extension.word("'{}' is not supported (docs/refused.md): templates have no extensions"));
                }
            }
            _ => {
                let expected = &["between", "extensions", "mime", "root"];
                return Err(line.unknown("unrecognized templates subdirective '{}'", expected));
            }
        }
    }
    Ok(handler.json())
}

/// Parses `tracing [<matcher>] { span <name>; span_attributes { <key> <value> … } }`.
pub(super) fn tracing(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("tracing");
    // Caddy always writes the name.
    handler.set("span", "");
    let mut attributes = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "span" => {
                let name = line.sole_argument()?;
                handler.set("span", &*name.text);
            }
            "span_attributes" => {
                line.expect_no_argument()?;
                for mut attribute in line.lines() {
                    let value = attribute.sole_argument()?;
                    attributes.insert(attribute.name().text.to_string(), (*value.text).into());
                }
            }
            _ => return Err(line.unknown("unrecognized tracing subdirective '{}'", &["span", "span_attributes"])),
        }
    }
    if !attributes.is_empty() {
        handler.set("span_attributes", attributes);
    }
    Ok(handler.json())
}

/// Parses `timeouts [<matcher>] { read_timeout <duration> [<min_rate>]; write_timeout <duration> [<min_rate>];
/// max_write_chunk <size> }`.
pub(super) fn timeouts(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("timeouts");
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "read_timeout" => timeout(&mut line, "read_timeout", "read_min_rate", &mut handler)?,
            "write_timeout" => timeout(&mut line, "write_timeout", "write_min_rate", &mut handler)?,
            "max_write_chunk" => {
                let size = line.size("parsing max_write_chunk: '{}' is no size; expected one such as 64KiB")?;
                handler.0.number("max_write_chunk", size);
            }
            _ => {
                let expected = &["max_write_chunk", "read_timeout", "write_timeout"];
                return Err(line.unknown("unrecognized timeouts subdirective '{}'", expected));
            }
        }
    }
    Ok(handler.json())
}

fn timeout(line: &mut Dispenser<'_>, key: &str, rate_key: &str, handler: &mut Handler) -> Result<(), Error> {
    let limit = nanoseconds(&line.require()?.text);
    let limit = limit.ok_or_else(|| line.word("'{}' is no duration; expected one such as 30s or 1m"))?;
    handler.0.number(key, limit);
    if line.argument().is_some() {
        let rate = line.arguments().last().and_then(|token| integer(&token.text));
        let rate = rate.ok_or_else(|| line.word("'{}' is no number of bytes a second; expected an integer"))?;
        handler.0.number(rate_key, rate);
    }
    line.expect_no_argument()
}

//! encode (compressed responses) and push (HTTP/2 server push).

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::quantity::integer;
use super::super::token::Token;
use super::Handler;
use super::fields::{Operations, apply};
use super::response::response_matcher;

/// `br` is no format of Caddy's own binary; its syntax is that of the plugins for Caddy.
const ENCODERS: &[&str] = &["br", "gzip", "zstd"];

/// Parses `encode [<matcher>] [<formats…>] { <format> …; minimum_length <n>; match … }`. Formats in the block are
/// preferred over those on the line.
pub(super) fn encode(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("encode");
    let mut encodings = Map::new();
    let mut prefer = Vec::new();
    let inline = d.rest();
    for mut line in d.lines() {
        let name = line.name();
        match &*name.text {
            "minimum_length" => {
                let length = integer(&line.require()?.text);
                let length = length.ok_or_else(|| line.word("bad length '{}'; expected a number of bytes"))?;
                handler.0.number("minimum_length", length);
            }
            "match" if handler.0.contains_key("match") => {
                return Err(Error::at(name, ErrorKind::Rule("matcher is defined more than once: match")));
            }
            "match" => {
                let matcher = response_matcher(&mut line)?;
                handler.set("match", matcher);
            }
            _ => {
                encodings.insert(name.text.to_string(), encoder(&mut line)?);
                prefer.push(Value::from(&*name.text));
            }
        }
    }
    inline.iter().try_for_each(known)?;
    let mut inline = Vec::from_iter(inline.iter().map(|token| &*token.text));
    if inline.is_empty() && prefer.is_empty() {
        inline = vec!["zstd", "gzip"];
    }
    for name in inline {
        encodings.insert(name.to_owned(), json!({}));
        prefer.push(name.into());
    }
    handler.set("encodings", encodings).set("prefer", prefer);
    Ok(handler.json())
}

fn known(token: &Token) -> Result<(), Error> {
    if ENCODERS.contains(&&*token.text) {
        return Ok(());
    }
    let rule = "getting module named 'http.encoders.{}': module not registered";
    Err(Error::at(token, ErrorKind::Unknown { rule, name: token.text.clone(), expected: ENCODERS }))
}

/// Parses `gzip [<level>]`, `br [<level>]` or `zstd [<level>] { level <level>; disable_checksum }`.
fn encoder(line: &mut Dispenser<'_>) -> Result<Value, Error> {
    known(line.name())?;
    let mut encoder = Map::new();
    if matches!(&*line.name().text, "br" | "gzip") {
        if let Some(level) = line.argument() {
            let level = integer(&level.text);
            let level = level.ok_or_else(|| line.word("bad level '{}'; expected a number"))?;
            // `number` omits 0, which is a quality of br. For gzip, 0 is the default, as if it were omitted.
            if &*line.name().text == "br" {
                encoder.insert("level".into(), level.into());
            } else {
                encoder.number("level", level);
            }
        }
        line.expect_no_argument()?;
        return Ok(encoder.into());
    }
    if let Some(level) = line.argument() {
        line.expect_no_argument()?;
        zstd_level(line, level, &mut encoder)?;
    }
    for mut option in line.lines() {
        match &*option.name().text {
            "level" => {
                let level = option.sole_argument()?;
                if encoder.contains_key("level") {
                    return Err(option.rule("compression level already specified"));
                }
                zstd_level(&option, level, &mut encoder)?;
            }
            "disable_checksum" => {
                option.expect_no_argument()?;
                if encoder.contains_key("checksum") {
                    return Err(option.rule("checksum already specified"));
                }
                encoder.insert("checksum".into(), false.into());
            }
            _ => return Err(option.unknown("unknown subdirective '{}'", &["disable_checksum", "level"])),
        }
    }
    Ok(encoder.into())
}

fn zstd_level(line: &Dispenser<'_>, level: &Token, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    if !["fastest", "default", "better", "best"].iter().any(|known| known.eq_ignore_ascii_case(&level.text)) {
        return Err(line.rule("unexpected compression level, use one of 'fastest', 'better', 'best', 'default'"));
    }
    encoder.text("level", &level.text);
    Ok(())
}

/// Parses `push [<matcher>] [<resource>] { [GET|HEAD] <resource>; headers { [+|-]<field> [<value>] … } }`.
pub(super) fn push(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut resources = Vec::new();
    let mut operations = Operations::default();
    let resource = |method: &str, target: &str| {
        let mut resource = Map::new();
        resource.text("method", method);
        resource.text("target", target);
        Value::from(resource)
    };
    if let Some(token) = d.argument() {
        resources.push(resource("", &token.text));
    }
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "headers" => {
                line.expect_no_argument()?;
                for mut field in line.lines() {
                    let words = Vec::from_iter(std::iter::once(field.name()).chain(field.rest()).cloned());
                    apply(&words, &field, &mut operations)?;
                }
            }
            method @ ("GET" | "HEAD") => resources.push(resource(method, &line.require()?.text)),
            target => resources.push(resource("", target)),
        }
    }
    let mut handler = Handler::new("push");
    handler.0.list("resources", resources);
    if !operations.is_empty() {
        handler.set("headers", operations.json());
    }
    Ok(handler.json())
}

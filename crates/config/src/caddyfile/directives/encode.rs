//! encode and push: what is sent in another form, or before it is asked for.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::quantity::integer;
use super::super::token::Token;
use super::Handler;
use super::fields::{Operations, apply};
use super::response::response_matcher;

const ENCODERS: &[&str] = &["gzip", "zstd"];

/// `encode [<matcher>] [<formats…>] { <format> …; minimum_length <n>; match … }`: what the block names is preferred.
pub(super) fn encode(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("encode");
    let mut encodings = Map::new();
    let mut prefer = Vec::new();
    let inline = d.rest();
    let with_block = |option: &str| option == "match" || ENCODERS.contains(&option);
    d.each_option(with_block, |line| {
        let name = line.name();
        match &*name.text {
            "minimum_length" => {
                let length = integer(&line.require()?.text);
                let length = length.ok_or_else(|| line.word("bad length '{}'; expected a number of octets"))?;
                handler.0.number("minimum_length", length);
            }
            "match" if handler.0.contains_key("match") => {
                return Err(Error::at(name, ErrorKind::Rule("matcher is defined more than once: match")));
            }
            "match" => {
                let matcher = response_matcher(line)?;
                line.rest();
                handler.set("match", matcher);
            }
            _ => {
                encodings.insert(name.text.to_string(), encoder(line)?);
                prefer.push(Value::from(&*name.text));
            }
        }
        Ok(())
    })?;
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

/// `gzip [<level>]` or `zstd [<level>] { level <level>; disable_checksum }`
fn encoder(line: &mut Dispenser<'_>) -> Result<Value, Error> {
    known(line.name())?;
    let mut encoder = Map::new();
    if &*line.name().text == "gzip" {
        if let Some(level) = line.argument() {
            let level = integer(&level.text);
            encoder.number("level", level.ok_or_else(|| line.word("bad level '{}'; expected a number"))?);
        }
        line.overlook_rest();
        return Ok(encoder.into());
    }
    if let Some(level) = line.argument() {
        line.end()?;
        zstd_level(line, level, &mut encoder)?;
    }
    line.each_option(
        |_| false,
        |option| {
            match &*option.name().text {
                "level" => {
                    let level = option.only()?;
                    if encoder.contains_key("level") {
                        return Err(option.rule("compression level already specified"));
                    }
                    zstd_level(option, level, &mut encoder)?;
                }
                "disable_checksum" => {
                    option.end()?;
                    if encoder.contains_key("checksum") {
                        return Err(option.rule("checksum already specified"));
                    }
                    encoder.insert("checksum".into(), false.into());
                }
                _ => return Err(option.unknown("unknown subdirective '{}'", &["disable_checksum", "level"])),
            }
            Ok(())
        },
    )?;
    Ok(encoder.into())
}

fn zstd_level(line: &Dispenser<'_>, level: &Token, encoder: &mut Map<String, Value>) -> Result<(), Error> {
    if !["fastest", "default", "better", "best"].iter().any(|known| known.eq_ignore_ascii_case(&level.text)) {
        return Err(line.rule("unexpected compression level, use one of 'fastest', 'better', 'best', 'default'"));
    }
    encoder.text("level", &level.text);
    Ok(())
}

/// `push [<matcher>] [<resource>] { [GET|HEAD] <resource>; headers { [+|-]<field> [<value>] … } }`
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
    if !d.remaining().is_empty() {
        // Caddy looks for the block right behind the resource.
        d.overlook_rest();
    } else {
        d.each_option(
            |option| option == "headers",
            |line| {
                match &*line.name().text {
                    "headers" => {
                        line.end()?;
                        for mut field in line.lines() {
                            let words = Vec::from_iter(std::iter::once(field.name()).chain(field.rest()).cloned());
                            apply(&words, &field, &mut operations)?;
                        }
                    }
                    method @ ("GET" | "HEAD") => resources.push(resource(method, &line.require()?.text)),
                    target => resources.push(resource("", target)),
                }
                Ok(())
            },
        )?;
    }
    let mut handler = Handler::new("push");
    handler.0.list("resources", resources);
    if !operations.is_empty() {
        handler.set("headers", operations.json());
    }
    Ok(handler.json())
}

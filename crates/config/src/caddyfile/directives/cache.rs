//! cache, the directive and the global option of the plugin `cache-handler`.

use causeway_pipeline::build::nanoseconds;
use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::integer;
use super::{DURATION, Handler, texts};

const SIZE: &str = "'{}' is no size; expected one such as 64MiB";

const SUBDIRECTIVES: &[&str] = &[
    "allowed_additional_status_codes",
    "allowed_http_verbs",
    "cache_name",
    "default_cache_control",
    "disable_coalescing",
    "headers",
    "key",
    "max_cacheable_body_bytes",
    "memory",
    "mode",
    "regex",
    "simplefs",
    "stale",
    "ttl",
];

/// Subdirectives of the plugin that are not supported.
const NOT_SUPPORTED: &str = "'{}' is not supported; docs/cache.md lists the parts of the plugin that are";

/// Parses `cache [<matcher>] { … }`; see [`members`].
pub(super) fn cache(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut handler = Handler::new("cache");
    handler.0.extend(members(d)?);
    Ok(handler.json())
}

/// Parses the block of the directive, and of the global option, which has the defaults of all `cache` directives: `ttl
/// <duration>`, `stale <duration>`, `default_cache_control <value>`, `cache_name <name>`, `max_cacheable_body_bytes
/// <n>`, `memory <size>`, `allowed_http_verbs <methods…>`, `allowed_additional_status_codes <codes…>`, `headers
/// <fields…>`, `key { … }`, `regex { exclude <pattern> }`, `mode <mode>`, `disable_coalescing`, `simplefs { … }`.
pub(crate) fn members(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut members = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        let name = &*line.name().text;
        match name {
            "ttl" | "stale" => {
                let duration = nanoseconds(&line.sole_argument()?.text).filter(|duration| *duration >= 0);
                members.insert(name.to_owned(), duration.ok_or_else(|| line.word(DURATION))?.into());
            }
            "cache_name" | "mode" => members.text(name, &line.sole_argument()?.text),
            "default_cache_control" => {
                let words: Vec<_> = line.arguments().iter().map(|token| &*token.text).collect();
                if words.is_empty() {
                    return Err(line.count_error());
                }
                members.text(name, &words.join(" "));
            }
            "max_cacheable_body_bytes" => {
                let number = integer(&line.sole_argument()?.text).filter(|number| *number >= 0);
                members.number(
                    name,
                    number.ok_or_else(|| line.word("'{}' is no number of bytes; expected one such as 1000000"))?,
                );
            }
            "memory" => {
                let size = line.size(SIZE)?;
                members.number(name, size);
            }
            "allowed_http_verbs" | "headers" => members.extend_list(name, texts(line.arguments())),
            "allowed_additional_status_codes" => {
                while let Some(token) = line.argument() {
                    let code = integer(&token.text).filter(|code| (200..1000).contains(code));
                    let code = code.ok_or_else(|| line.word("'{}' is no status code; expected one from 200 to 999"))?;
                    members.extend_list(name, vec![code.into()]);
                }
            }
            "disable_coalescing" => {
                line.expect_no_argument()?;
                members.switch_on(name);
            }
            "key" => {
                let key = key(&mut line)?;
                members.insert(name.to_owned(), key.into());
            }
            "simplefs" => {
                let directory = simplefs(&mut line)?;
                members.insert(name.to_owned(), directory.into());
            }
            "regex" => {
                line.expect_no_argument()?;
                for mut inner in line.lines() {
                    if &*inner.name().text != "exclude" {
                        return Err(inner.unknown("unrecognized subdirective '{}'", &["exclude"]));
                    }
                    let pattern = inner.sole_argument()?.text.to_string();
                    members.child(name).text("exclude", &pattern);
                }
            }
            "api"
            | "badger"
            | "cache_keys"
            | "cdn"
            | "disable_surrogate_key"
            | "etcd"
            | "log_level"
            | "nats"
            | "nuts"
            | "olric"
            | "otter"
            | "redis"
            | "storers"
            | "timeout" => return Err(line.word(NOT_SUPPORTED)),
            _ => return Err(line.unknown("unrecognized subdirective '{}'", SUBDIRECTIVES)),
        }
    }
    Ok(members)
}

/// Parses `simplefs { path <directory>; configuration { size <files>; directory_size <size> } }`.
fn simplefs(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut directory = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "path" => directory.text("path", &line.sole_argument()?.text),
            "configuration" => {
                line.expect_no_argument()?;
                for mut inner in line.lines() {
                    let name = &*inner.name().text;
                    let number = match name {
                        "size" => {
                            let number = integer(&inner.sole_argument()?.text).filter(|number| *number >= 0);
                            number
                                .ok_or_else(|| inner.word("'{}' is no number of files; expected one such as 10000"))?
                        }
                        "directory_size" => inner.size(SIZE)?,
                        _ => return Err(inner.unknown("unrecognized subdirective '{}'", &["directory_size", "size"])),
                    };
                    directory.child("configuration").number(name, number);
                }
            }
            _ => return Err(line.unknown("unrecognized subdirective '{}'", &["configuration", "path"])),
        }
    }
    if directory.text_of("path").is_empty() {
        return Err(d.rule("'simplefs' needs the 'path' of a directory"));
    }
    Ok(directory)
}

/// Parses `key { disable_host; disable_query; disable_scheme; disable_method; disable_body; hash; hide; headers
/// <fields…>; template <text> }`.
fn key(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut key = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        let name = &*line.name().text;
        match name {
            "disable_body" | "disable_host" | "disable_method" | "disable_query" | "disable_scheme" | "hash"
            | "hide" => {
                line.expect_no_argument()?;
                key.switch_on(name);
            }
            "headers" => key.extend_list(name, texts(line.arguments())),
            "template" => key.text(name, &line.sole_argument()?.text),
            "disable_vary" => {
                return Err(line.word("'{}' is not supported: Vary of a response always counts (RFC 9111 §4.1)"));
            }
            _ => {
                let expected = &["disable_host", "disable_query", "disable_scheme", "headers", "template"];
                return Err(line.unknown("unrecognized subdirective '{}'", expected));
            }
        }
    }
    Ok(key)
}

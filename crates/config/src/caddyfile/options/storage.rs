//! The global option `storage`, and the modules that it names.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind, NameTable};

/// The lines of `storage redis`.
const REDIS: &[&str] = &[
    "address",
    "aes_key",
    "client_name",
    "compression",
    "db",
    "encryption_key",
    "host",
    "key_prefix",
    "password",
    "port",
    "timeout",
    "tls_enabled",
    "tls_insecure",
    "tls_server_certs_path",
    "tls_server_certs_pem",
    "username",
];

/// Parses a storage module and its options: `file_system [<root>] { root <root> }` or `redis { … }`. Others are not
/// implemented.
pub(crate) fn storage_module(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let kind = d.require()?;
    match &*kind.text {
        "file_system" => file_system(d),
        "redis" => redis(d),
        _ => {
            let module = format!("caddy.storage.{}", kind.text).into();
            Err(d.error(ErrorKind::NotSupported(NameTable::Module, module)))
        }
    }
}

fn file_system(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut root = d.argument().map_or("", |token| &*token.text);
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "root" => {
                let token = line.require()?;
                if !root.is_empty() {
                    return Err(line.rule("root already set"));
                }
                root = &token.text;
                line.expect_no_argument()?;
            }
            _ => return Err(line.unknown("unrecognized parameter '{}'", &["root"])),
        }
    }
    if root.is_empty() {
        return Err(d.rule("missing root path (to use default, omit storage config entirely)"));
    }
    Ok(json!({ "module": "file_system", "root": root }))
}

/// Parses the block of the Caddy plugin caddy-storage-redis. Its values may be placeholders, so most are checked when
/// the configuration is loaded.
fn redis(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    if d.argument().is_some() {
        return Err(d.word("'{}' is not supported (docs/refused.md); expected no argument, for a single server"));
    }
    let mut redis = Map::new();
    redis.insert("module".into(), "redis".into());
    for mut line in d.lines() {
        let name = line.name().text.to_string();
        let value: Value = match &*name {
            "address" | "host" | "port" => words(&mut line)?.into(),
            "tls_enabled" | "tls_insecure" => switch(&mut line)?.into(),
            "compression"
            | "client_name"
            | "db"
            | "encryption_key"
            | "key_prefix"
            | "password"
            | "timeout"
            | "tls_server_certs_path"
            | "tls_server_certs_pem"
            | "username"
            | "aes_key" => (*line.sole_argument()?.text).into(),
            "sentinel_password" | "master_name" | "route_by_latency" | "route_randomly" => {
                return Err(
                    line.rule("clusters and Sentinel are not supported (docs/refused.md), only a single server")
                );
            }
            _ => return Err(line.unknown("unrecognized parameter '{}'", REDIS)),
        };
        redis.insert(if name == "aes_key" { "encryption_key".into() } else { name }, value);
    }
    Ok(redis.into())
}

/// One value after the name, or the lines of a block.
fn words(line: &mut Dispenser<'_>) -> Result<Vec<String>, Error> {
    let mut words = Vec::from_iter(line.argument().map(|token| token.text.to_string()));
    line.expect_no_argument()?;
    for mut inner in line.lines() {
        words.push(inner.name().text.to_string());
        inner.expect_end_of_line()?;
    }
    if words.is_empty() {
        return Err(line.count_error());
    }
    Ok(words)
}

/// A truth value in Go's notation.
fn switch(line: &mut Dispenser<'_>) -> Result<bool, Error> {
    match &*line.sole_argument()?.text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(line.word("invalid boolean value '{}'; expected true or false")),
    }
}

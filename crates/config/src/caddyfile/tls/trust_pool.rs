//! Trust pools: sources of trusted authorities' certificates.

use serde_json::{Map, Value};

use super::super::directives::texts;
use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::options::storage_module;
use causeway_pipeline::build::nanoseconds;

const MODULES: &[&str] = &["combined", "file", "http", "inline", "pki_intermediate", "pki_root", "storage", "system"];

const UNKNOWN: &str = "unrecognized directive: {}";

/// Parses a pool: its module's name, arguments and block.
pub(crate) fn trust_pool(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let provider = &*d.require()?.text;
    let mut pool = Map::from_iter([("provider".to_owned(), Value::from(provider))]);
    match provider {
        "inline" => {
            d.expect_no_argument()?;
            listed(d, &mut pool, "trust_der", "trusted_ca_certs", &["trust_der"])?;
            require(d, &pool, "trusted_ca_certs", "no certificates specified; expected trust_der in a block")?;
        }
        "file" => {
            listed(d, &mut pool, "pem_file", "pem_files", &["pem_file"])?;
            require(d, &pool, "pem_files", "no certificates specified; expected the names of PEM files")?;
        }
        "pki_root" | "pki_intermediate" => {
            listed(d, &mut pool, "authority", "authority", &["authority"])?;
            require(d, &pool, "authority", "no authorities specified; expected their names, such as local")?;
        }
        "storage" => storage(d, &mut pool)?,
        "http" => http(d, &mut pool)?,
        "system" => {
            d.expect_no_argument()?;
            d.expect_empty_block("system trust pool does not support any configuration")?;
        }
        "combined" => {
            d.expect_no_argument()?;
            for mut line in d.lines() {
                if &*line.name().text != "source" {
                    return Err(line.unknown(UNKNOWN, &["source"]));
                }
                let source = trust_pool(&mut line)?;
                pool.extend_list("sources", vec![source]);
            }
            require(d, &pool, "sources", "no sources specified; expected source in a block")?;
        }
        _ => {
            let rule = "getting module named 'tls.ca_pool.source.{}': module not registered";
            return Err(d.unknown_module(rule, MODULES));
        }
    }
    Ok(pool.into())
}

fn require(d: &Dispenser<'_>, pool: &Map<String, Value>, key: &str, rule: &'static str) -> Result<(), Error> {
    if pool.contains_key(key) { Ok(()) } else { Err(d.word(rule)) }
}

/// Parses values after the module's name, and after `option` in its block.
fn listed(
    d: &mut Dispenser<'_>,
    pool: &mut Map<String, Value>,
    option: &str,
    key: &str,
    expected: &'static [&'static str],
) -> Result<(), Error> {
    pool.extend_list(key, texts(d.rest()));
    for mut line in d.lines() {
        if *line.name().text != *option {
            return Err(line.unknown(UNKNOWN, expected));
        }
        pool.extend_list(key, texts(line.rest()));
        line.expect_end_of_line()?;
    }
    Ok(())
}

/// Parses `storage [<keys…>] { storage <module> …; keys … }`.
fn storage(d: &mut Dispenser<'_>, pool: &mut Map<String, Value>) -> Result<(), Error> {
    pool.extend_list("pem_keys", texts(d.rest()));
    for mut line in d.lines() {
        match &*line.name().text {
            "storage" => {
                if pool.contains_key("storage") {
                    return Err(line.rule("storage module already set"));
                }
                let storage = storage_module(&mut line)?;
                pool.insert("storage".into(), storage);
            }
            "keys" => {
                pool.extend_list("pem_keys", texts(line.rest()));
                line.expect_end_of_line()?;
            }
            _ => return Err(line.unknown(UNKNOWN, &["keys", "storage"])),
        }
    }
    Ok(())
}

/// Parses `http [<endpoints…>] { endpoints …; tls { … } }`.
fn http(d: &mut Dispenser<'_>, pool: &mut Map<String, Value>) -> Result<(), Error> {
    pool.extend_list("endpoints", texts(d.rest()));
    for mut line in d.lines() {
        match &*line.name().text {
            "endpoints" => {
                line.require()?;
                line.rest();
                pool.extend_list("endpoints", texts(line.arguments()));
                line.expect_end_of_line()?;
            }
            "tls" => {
                if pool.contains_key("tls") {
                    return Err(line.rule("tls block already defined"));
                }
                line.expect_no_argument()?;
                let mut tls = Map::new();
                for mut line in line.lines() {
                    client(&mut tls, &mut line)?;
                }
                pool.insert("tls".into(), tls.into());
            }
            _ => return Err(line.unknown(UNKNOWN, &["endpoints", "tls"])),
        }
    }
    Ok(())
}

/// Parses a TLS setting for the connections to the endpoints.
fn client(tls: &mut Map<String, Value>, line: &mut Dispenser<'_>) -> Result<(), Error> {
    match &*line.name().text {
        "ca" => {
            let pool = trust_pool(line)?;
            tls.insert("ca".into(), pool);
            return Ok(());
        }
        "insecure_skip_verify" => tls.switch_on("insecure_skip_verify"),
        "handshake_timeout" => {
            let timeout = nanoseconds(&line.require()?.text);
            let rule = "bad timeout value '{}': not a duration; expected one such as 10s";
            tls.number("handshake_timeout", timeout.ok_or_else(|| line.word(rule))?);
        }
        "server_name" => tls.text("server_name", &line.require()?.text),
        "renegotiation" => match &*line.require()?.text {
            level @ ("never" | "once" | "freely") => tls.text("renegotiation", level),
            _ => return Err(line.word("unrecognized renegotiation level: {}; expected never, once or freely")),
        },
        _ => {
            let expected = &["ca", "handshake_timeout", "insecure_skip_verify", "renegotiation", "server_name"];
            return Err(line.unknown(UNKNOWN, expected));
        }
    }
    line.expect_end_of_line()
}

//! `client_auth` of a `tls` directive: the certificates that clients must present.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls_pki_types::pem::{PemObject, SectionKind};
use serde_json::{Map, Value, json};

use super::super::directives::texts;
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::trust_pool::trust_pool;

const OPTIONS: &[&str] = &[
    "mode",
    "trust_pool",
    "trusted_ca_cert",
    "trusted_ca_cert_file",
    "trusted_leaf_cert",
    "trusted_leaf_cert_file",
    "verifier",
];

const BOTH: &str = "cannot specify both 'trust_pool' and 'trusted_ca_cert' or 'trusted_ca_cert_file'";

/// Parses `client_auth { mode …; trust_pool <module> …; trusted_leaf_cert …; verifier <module> … }`.
pub(crate) fn client_auth(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut members = Map::new();
    let mut authorities = Vec::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "mode" => members.text("mode", &line.sole_argument()?.text),
            "trusted_leaf_cert" => {
                members.extend_list("trusted_leaf_certs", texts(std::slice::from_ref(line.require()?)));
            }
            "trusted_leaf_cert_file" => {
                members.extend_list("trusted_leaf_certs", certificates(&mut line)?);
            }
            name @ ("trusted_ca_cert" | "trusted_ca_cert_file") => {
                if members.contains_key("ca") {
                    return Err(line.rule(BOTH));
                }
                line.warn(line.name(), format!("'{name}' is deprecated, please use 'trust_pool' instead"));
                match name {
                    "trusted_ca_cert" => authorities.push((*line.require()?.text).into()),
                    _ => authorities.extend(certificates(&mut line)?),
                }
            }
            "trust_pool" => {
                if !authorities.is_empty() {
                    return Err(line.rule(BOTH));
                }
                let pool = trust_pool(&mut line)?;
                members.insert("ca".into(), pool);
                continue;
            }
            "verifier" => {
                let verifier = verifier(&mut line)?;
                members.extend_list("verifiers", vec![verifier]);
                continue;
            }
            _ => return Err(line.unknown("unknown subdirective for client_auth: {}", OPTIONS)),
        }
        line.expect_end_of_line()?;
    }
    if !authorities.is_empty() {
        members.insert("ca".into(), json!({ "provider": "inline", "trusted_ca_certs": authorities }));
    }
    Ok(members)
}

/// Reads the certificates of a PEM file and returns them as base64 of their DER.
fn certificates(line: &mut Dispenser<'_>) -> Result<Vec<Value>, Error> {
    let name = &line.require()?.text;
    let bytes = std::fs::read(&**name)
        .map_err(|error| line.error(ErrorKind::Custom(format!("open {name}: {error}").into())))?;
    causeway_pem::refuse_joined_lines(&bytes)
        .map_err(|error| line.error(ErrorKind::Custom(format!("{}: {error}", error.location(name)).into())))?;
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&bytes) {
        match section {
            Ok((SectionKind::Certificate, der)) => found.push(BASE64_STANDARD.encode(der).into()),
            _ => return Err(line.word("no CERTIFICATE pem block found in {}")),
        }
    }
    if found.is_empty() {
        return Err(line.word("no CERTIFICATE pem block found in {}; expected at least one"));
    }
    Ok(found)
}

/// Parses `verifier leaf [<loader> …] { <loader> … }`.
fn verifier(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    if &*d.require()?.text != "leaf" {
        let rule = "getting module named 'tls.client_auth.verifier.{}': module not registered";
        return Err(d.unknown_module(rule, &["leaf"]));
    }
    let mut loaders = Vec::new();
    match d.remaining() {
        [] => {
            for mut line in d.lines() {
                let loader = loader(&line.name().text, &mut line)?;
                loaders.push(loader);
            }
        }
        // DEVIATES: Caddy ignores a loader without arguments. Here it is an error.
        [_] => {
            d.rest();
            return Err(d.count_error());
        }
        [_, _, ..] => {
            let name = &d.require()?.text;
            loaders.push(loader(name, d)?);
        }
    }
    let mut members = Map::from_iter([("verifier".to_owned(), Value::from("leaf"))]);
    members.list("leaf_certs_loaders", loaders);
    Ok(members.into())
}

/// Parses a loader of leaf certificates: `file`, `folder` or `pem`, and its arguments.
fn loader(name: &str, d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let key = match name {
        "file" => "files",
        "folder" => "folders",
        "pem" => "certificates",
        _ => {
            let rule = "getting module named 'tls.leaf_cert_loader.{}': module not registered";
            return Err(d.unknown_module(rule, &["file", "folder", "pem"]));
        }
    };
    let mut members = Map::from_iter([("loader".to_owned(), Value::from(name))]);
    members.list(key, texts(d.rest()));
    Ok(members.into())
}

//! The ACME issuer: its properties, the global options that complete it, and the ACME settings of a `tls` directive.

use serde_json::{Map, Value};

use super::super::directives::texts;
use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::members::Members;
use super::super::options::{AcmeDns, Options};
use super::super::quantity::integer;
use super::dns::provider;
use super::issuer::Issuer;
use causeway_pipeline::build::nanoseconds;

/// The authority used after Let's Encrypt if an email address is configured.
const ZEROSSL: &str = "https://acme.zerossl.com/v2/DV90";

const PROPERTIES: &[&str] = &[
    "alt_http_port",
    "alt_tlsalpn_port",
    "dir",
    "disable_http_challenge",
    "disable_tlsalpn_challenge",
    "distributed",
    "dns",
    "dns_challenge_override_domain",
    "dns_ttl",
    "eab",
    "email",
    "lifetime",
    "preferred_chains",
    "profile",
    "propagation_delay",
    "propagation_timeout",
    "resolvers",
    "test_dir",
    "timeout",
    "trusted_roots",
];

/// Parses `acme [<directory>] { … }`.
pub(super) fn issuer(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut acme = Map::new();
    acme.text("ca", d.argument().map_or("", |token| &token.text));
    d.expect_no_argument()?;
    for mut line in d.lines() {
        if property(&mut acme, &mut line)? == PropertyBlock::Refused {
            line.expect_end_of_line()?;
        }
    }
    Ok(acme)
}

/// Whether a property has read its block, or must not have one.
#[derive(PartialEq, Eq)]
enum PropertyBlock {
    Read,
    Refused,
}

fn property(acme: &mut Map<String, Value>, line: &mut Dispenser<'_>) -> Result<PropertyBlock, Error> {
    match &*line.name().text {
        "dir" => {
            if acme.contains_key("ca") {
                let rule = "directory is already specified: {}";
                return Err(line.error(ErrorKind::Word { rule, found: acme.text_of("ca").into() }));
            }
            acme.text("ca", &line.sole_argument()?.text);
        }
        "test_dir" => acme.text("test_ca", &line.sole_argument()?.text),
        name @ ("email" | "profile") => acme.text(name, &line.sole_argument()?.text),
        "lifetime" => {
            let lifetime = nanoseconds(&line.sole_argument()?.text);
            let rule = "invalid lifetime {}; expected a duration such as 30d, not below 0";
            let lifetime = lifetime.filter(|lifetime| *lifetime >= 0).ok_or_else(|| line.word(rule))?;
            acme.number("certificate_lifetime", lifetime);
        }
        "timeout" => {
            let timeout = nanoseconds(&line.sole_argument()?.text);
            let rule = "invalid timeout duration {}; expected one such as 30s";
            acme.number("acme_timeout", timeout.ok_or_else(|| line.word(rule))?);
        }
        "disable_http_challenge" => acme.child("challenges").child("http").switch_on("disabled"),
        "disable_tlsalpn_challenge" => acme.child("challenges").child("tls-alpn").switch_on("disabled"),
        "distributed" => {
            if &*line.require()?.text != "false" {
                return Err(line.word("only accepted value is 'false'; expected it instead of '{}'"));
            }
            acme.child("challenges").insert("distributed".into(), false.into());
        }
        "alt_http_port" => {
            let port = port(line)?;
            acme.child("challenges").child("http").number("alternate_port", port);
        }
        "alt_tlsalpn_port" => {
            let port = port(line)?;
            acme.child("challenges").child("tls-alpn").number("alternate_port", port);
        }
        "eab" => {
            let account = eab(line)?;
            acme.insert("external_account".into(), account);
        }
        "trusted_roots" => acme.list("trusted_roots_pem_files", texts(line.rest())),
        "dns" => {
            dns_provider(acme, line)?;
            return Ok(PropertyBlock::Read);
        }
        "preferred_chains" => {
            let chains = preferred_chains(line)?;
            acme.insert("preferred_chains".into(), chains);
            return Ok(PropertyBlock::Read);
        }
        _ => {
            let known = acme.get("challenges").and_then(|challenges| challenges.get("dns")).and_then(Value::as_object);
            let mut dns = known.cloned().unwrap_or_default();
            if !dns_option(&mut dns, line)? {
                return Err(line.unknown("unrecognized ACME issuer property: {}", PROPERTIES));
            }
            acme.child("challenges").insert("dns".into(), dns.into());
        }
    }
    Ok(PropertyBlock::Refused)
}

/// Parses an option of the DNS challenge, which `tls`, `acme` and `zerossl` share. Returns `false` for other options.
pub(crate) fn dns_option(dns: &mut Map<String, Value>, line: &mut Dispenser<'_>) -> Result<bool, Error> {
    let (key, rule) = match &*line.name().text {
        "propagation_delay" => ("propagation_delay", "invalid propagation_delay duration {}; expected one such as 30s"),
        "propagation_timeout" => {
            ("propagation_timeout", "invalid propagation_timeout duration {}; expected one such as 2m, or -1 for none")
        }
        "dns_ttl" => ("ttl", "invalid dns_ttl duration {}; expected one such as 60s"),
        "resolvers" => {
            line.require()?;
            line.rest();
            dns.list("resolvers", texts(line.arguments()));
            return Ok(true);
        }
        "dns_challenge_override_domain" => {
            dns.text("override_domain", &line.sole_argument()?.text);
            return Ok(true);
        }
        _ => return Ok(false),
    };
    // -1 disables the propagation timeout and is not a duration.
    let nanoseconds = match &*line.sole_argument()?.text {
        "-1" if key == "propagation_timeout" => Some(-1),
        text => nanoseconds(text),
    };
    dns.number(key, nanoseconds.ok_or_else(|| line.word(rule))?);
    Ok(true)
}

pub(super) fn port(line: &mut Dispenser<'_>) -> Result<i64, Error> {
    let port = integer(&line.require()?.text);
    port.ok_or_else(|| line.word("invalid port {}: not a number; expected one such as 8080"))
}

/// Parses `dns [<provider> …]`, which selects the DNS challenge. Without a provider, that of the global option `dns` is
/// used.
pub(crate) fn dns_provider(acme: &mut Map<String, Value>, line: &mut Dispenser<'_>) -> Result<(), Error> {
    let provider = if line.remaining().is_empty() {
        line.expect_end_of_line()?;
        None
    } else {
        Some(provider(line)?)
    };
    let dns = acme.child("challenges").child("dns");
    dns.extend(provider.map(|provider| ("provider".to_owned(), provider)));
    Ok(())
}

/// Parses an external account binding: key ID and MAC key.
pub(crate) fn eab(line: &mut Dispenser<'_>) -> Result<Value, Error> {
    let (id, key) = (line.require()?, line.sole_argument()?);
    Ok(serde_json::json!({ "key_id": &*id.text, "mac_key": &*key.text }))
}

/// Parses `preferred_chains [smallest] { root_common_name …; any_common_name … }`.
pub(crate) fn preferred_chains(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let mut chains = Map::new();
    if let Some(word) = d.argument() {
        if &*word.text != "smallest" {
            return Err(d.word("Invalid argument '{}'; expected smallest or a block"));
        }
        chains.switch_on("smallest");
        d.expect_no_argument()?;
        d.expect_empty_block("No more options are accepted when using the 'smallest' option")?;
    }
    for mut line in d.lines() {
        let (key, other, rule) = match &*line.name().text {
            "root_common_name" => (
                "root_common_name",
                "any_common_name",
                "Can't set root_common_name when any_common_name is already set",
            ),
            "any_common_name" => (
                "any_common_name",
                "root_common_name",
                "Can't set any_common_name when root_common_name is already set",
            ),
            _ => {
                let expected = &["any_common_name", "root_common_name"];
                return Err(line.unknown("Received unrecognized parameter '{}'", expected));
            }
        };
        line.require()?;
        line.rest();
        chains.extend_list(key, texts(line.arguments()));
        if chains.contains_key(other) {
            return Err(line.rule(rule));
        }
        line.expect_end_of_line()?;
    }
    if chains.is_empty() {
        return Err(d.rule("No options for preferred_chains received"));
    }
    Ok(chains.into())
}

impl Issuer {
    /// The default public authorities: Let's Encrypt, and ZeroSSL if there is an email address.
    pub(crate) fn public(email: &str) -> Vec<Self> {
        let mut issuers = vec![Self::new("acme", Map::new())];
        if !email.trim().is_empty() {
            let mut zerossl = Map::new();
            zerossl.text("ca", ZEROSSL);
            zerossl.text("email", email);
            issuers.push(Self::new("acme", zerossl));
        }
        issuers
    }

    /// An ACME issuer without settings.
    pub(crate) fn any_public() -> Self {
        Self::new("acme", Map::new())
    }

    /// The issuers for a `tls` directive's own ACME settings. The settings override those of the global block's ACME
    /// issuers or, if there are none, of the default public authorities. If the settings name a directory, it replaces
    /// the default authorities.
    pub(crate) fn from_directive(own: &Map<String, Value>, global: &[Self]) -> Vec<Self> {
        let over = |base: &Self| Some(Self::new("acme", merged(base.acme()?, own)));
        let issuers = Vec::from_iter(global.iter().filter_map(over));
        if !issuers.is_empty() {
            return issuers;
        }
        let bases = if own.contains_key("ca") { vec![Self::any_public()] } else { Self::public(own.text_of("email")) };
        bases.iter().filter_map(over).collect()
    }
}

/// Merges settings. `own` takes precedence, but nested challenge settings are merged and trusted roots are collected.
fn merged(base: &Map<String, Value>, own: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = base.clone();
    for (key, value) in own {
        if let ("trusted_roots_pem_files", Value::Array(more)) = (&**key, value) {
            more.iter().for_each(|root| push_once(&mut merged, key, root));
            continue;
        }
        match (&**key, merged.get_mut(key), value) {
            ("challenges" | "http" | "tls-alpn" | "dns", Some(Value::Object(known)), Value::Object(more)) => {
                *known = self::merged(known, more);
            }
            _ => drop(merged.insert(key.clone(), value.clone())),
        }
    }
    merged
}

fn push_once(members: &mut Map<String, Value>, key: &str, value: &Value) {
    let known = members.get(key).and_then(Value::as_array);
    if known.is_none_or(|known| !known.contains(value)) {
        members.extend_list(key, vec![value.clone()]);
    }
}

/// Adds the global options to an ACME issuer's own settings.
///
/// # Errors
/// If `acme_dns` is set without a provider.
pub(crate) fn complete(acme: &mut Map<String, Value>, options: &Options) -> Result<(), Error> {
    let global = &options.certificates;
    let missing = |acme: &Map<String, Value>, key: &str| !acme.contains_key(key);
    let texts = [("email", &global.email), ("ca", &global.acme_ca)];
    for (key, text) in texts {
        if let (Some(text), true) = (text, missing(acme, key)) {
            acme.text(key, text);
        }
    }
    if let Some(root) = &global.acme_ca_root {
        push_once(acme, "trusted_roots_pem_files", &root.as_str().into());
    }
    let has_provider =
        |acme: &Map<String, Value>| acme.get("challenges").is_some_and(|all| all.pointer("/dns/provider").is_some());
    if let (Some(AcmeDns { at, provider }), false) = (&global.acme_dns, has_provider(acme)) {
        if provider.is_none() && global.dns.is_none() {
            let rule =
                "acme_dns specified without DNS provider config, but no provider specified with 'dns' global option";
            return Err(Error::new(at.clone(), ErrorKind::Rule(rule)));
        }
        let dns = acme.child("challenges").child("dns");
        dns.extend(provider.clone().map(|provider| ("provider".to_owned(), provider)));
    }
    let values = [("external_account", &global.acme_eab), ("preferred_chains", &global.preferred_chains)];
    for (key, value) in values {
        if let (Some(value), true) = (value, missing(acme, key)) {
            acme.insert(key.into(), value.clone());
        }
    }
    // The DNS challenge needs no port, so the settings for the other challenges do not apply.
    let by_dns = acme.get("challenges").is_some_and(|challenges| challenges.get("dns").is_some());
    if !by_dns {
        let ports = [("http", options.configured_http_port()), ("tls-alpn", options.configured_https_port())];
        for (challenge, port) in ports {
            let Some(port) = port else { continue };
            let challenge = acme.child("challenges").child(challenge);
            if missing(challenge, "alternate_port") {
                challenge.number("alternate_port", port);
            }
        }
        if let Some((addresses, _)) = options.default_bind.first() {
            let challenges = acme.child("challenges");
            if missing(challenges, "bind_host") {
                challenges.text("bind_host", addresses.first().map_or("", String::as_str));
            }
        }
    }
    if by_dns && (global.acme_dns.is_some() || has_provider(acme)) {
        let dns = acme.child("challenges").child("dns");
        if missing(dns, "resolvers") {
            dns.list("resolvers", global.resolvers.iter().map(|resolver| resolver.as_str().into()).collect());
        }
    }
    if let (Some(lifetime), true) = (global.cert_lifetime, missing(acme, "certificate_lifetime")) {
        acme.number("certificate_lifetime", lifetime);
    }
    Ok(())
}

//! Certificate issuers: `acme`, `internal`, `zerossl`.

use serde_json::{Map, Value};

use super::super::dispenser::Dispenser;
use super::super::error::Error;
use super::super::members::Members;
use super::super::quantity::integer;
use super::acme;
use super::dns::provider;
use causeway_pipeline::build::nanoseconds;

/// An issuer's module and its members.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Issuer {
    module: &'static str,
    members: Map<String, Value>,
}

impl Issuer {
    pub(super) fn new(module: &'static str, members: Map<String, Value>) -> Self {
        Self { module, members }
    }

    pub(crate) fn internal() -> Self {
        Self::new("internal", Map::new())
    }

    /// Parses an issuer: its name, arguments and block.
    pub(crate) fn read(d: &mut Dispenser<'_>) -> Result<Self, Error> {
        let (module, members) = match &*d.require()?.text {
            "acme" => ("acme", acme::issuer(d)?),
            "internal" => ("internal", internal(d)?),
            "zerossl" => ("zerossl", zerossl(d)?),
            _ => {
                let rule = "getting module named 'tls.issuance.{}': module not registered";
                return Err(d.unknown_module(rule, &["acme", "internal", "zerossl"]));
            }
        };
        Ok(Self { module, members })
    }

    /// Its members, if it is an ACME issuer.
    pub(crate) fn acme_mut(&mut self) -> Option<&mut Map<String, Value>> {
        (self.module == "acme").then_some(&mut self.members)
    }

    pub(super) fn acme(&self) -> Option<&Map<String, Value>> {
        (self.module == "acme").then_some(&self.members)
    }

    /// The ID of its local certificate authority, if it is an internal issuer.
    pub(crate) fn authority(&self) -> Option<&str> {
        let named = self.members.text_of("ca");
        (self.module == "internal").then_some(if named.is_empty() { "local" } else { named })
    }

    pub(crate) fn json(&self) -> Value {
        let mut json = self.members.clone();
        json.insert("module".into(), self.module.into());
        json.into()
    }
}

/// Parses `internal { ca <name>; lifetime <duration>; sign_with_root }`.
fn internal(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    let mut members = Map::new();
    d.expect_no_argument()?;
    for mut line in d.lines() {
        match &*line.name().text {
            "ca" => members.text("ca", &line.sole_argument()?.text),
            "lifetime" => {
                let lifetime = nanoseconds(&line.require()?.text).ok_or_else(|| line.duration_error())?;
                members.number("lifetime", lifetime);
            }
            "sign_with_root" => members.switch_on("sign_with_root"),
            _ => return Err(line.unknown("unrecognized subdirective '{}'", &["ca", "lifetime", "sign_with_root"])),
        }
        line.expect_end_of_line()?;
    }
    Ok(members)
}

/// Parses `zerossl <API key> { validity_days …; alt_http_port …; dns …; propagation_delay …; … }`.
fn zerossl(d: &mut Dispenser<'_>) -> Result<Map<String, Value>, Error> {
    const PROPERTIES: &[&str] =
        &["alt_http_port", "dns", "dns_ttl", "propagation_delay", "propagation_timeout", "resolvers", "validity_days"];
    let mut members = Map::new();
    members.text("api_key", &d.sole_argument()?.text);
    for mut line in d.lines() {
        match &*line.name().text {
            // DEVIATES: Caddy 2.11 rejects every number of days, because it parses the option's name instead of its
            // argument.
            "validity_days" => {
                if members.contains_key("validity_days") {
                    return Err(line.rule("validity days is already specified"));
                }
                let days = integer(&line.require()?.text);
                let rule = "invalid number of days {}: not a number; expected one such as 90";
                members.number("validity_days", days.ok_or_else(|| line.word(rule))?);
            }
            "alt_http_port" => {
                let port = acme::port(&mut line)?;
                members.number("alternate_http_port", port);
            }
            "dns" => {
                let provider = provider(&mut line)?;
                members.child("cname_validation").insert("provider".into(), provider);
                continue;
            }
            "dns_challenge_override_domain" => {
                return Err(line.unknown("unrecognized zerossl issuer property: {}", PROPERTIES));
            }
            _ => {
                let mut validation = members.get("cname_validation").and_then(Value::as_object).cloned();
                if !acme::dns_option(validation.get_or_insert_default(), &mut line)? {
                    return Err(line.unknown("unrecognized zerossl issuer property: {}", PROPERTIES));
                }
                members.insert("cname_validation".into(), validation.unwrap_or_default().into());
            }
        }
        line.expect_end_of_line()?;
    }
    Ok(members)
}

//! Global options for certificates: issuers, lifetimes, renewal.

use serde_json::{Map, Value, json};

use super::super::dispenser::Dispenser;
use super::super::error::{Error, ErrorKind};
use super::super::position::Position;
use super::super::quantity::ratio;
use super::super::tls::{Issuer, preferred_chains, provider};
use super::{duration, single};
use causeway_pipeline::build::nanoseconds;

#[derive(Debug, Default)]
pub(crate) struct Certificates {
    pub(crate) email: Option<String>,
    pub(crate) acme_ca: Option<String>,
    pub(crate) acme_ca_root: Option<String>,
    pub(crate) acme_dns: Option<AcmeDns>,
    /// The provider for all issuers that name none.
    pub(crate) dns: Option<Value>,
    pub(crate) acme_eab: Option<Value>,
    pub(crate) preferred_chains: Option<Value>,
    pub(crate) cert_lifetime: Option<i64>,
    pub(crate) issuers: Vec<Issuer>,
    pub(crate) local_certs: Option<Position>,
    pub(crate) key_type: Option<String>,
    pub(crate) renewal_window_ratio: Option<Value>,
    pub(crate) no_ocsp_stapling: bool,
    pub(crate) on_demand: Option<Value>,
    pub(crate) resolvers: Vec<String>,
    pub(crate) automate_names: Vec<String>,
    /// The public names of Encrypted Client Hello.
    pub(crate) ech: Vec<String>,
    /// Where its keys are published.
    pub(crate) ech_publication: Vec<Value>,
    pub(crate) no_storage_check: bool,
    pub(crate) storage_clean: StorageClean,
    /// In nanoseconds; 0 is the default.
    pub(crate) renew_interval: i64,
    pub(crate) ocsp_interval: i64,
    pub(crate) skip_install_trust: bool,
    /// The authorities of `pki`, by ID.
    pub(crate) authorities: Map<String, Value>,
}

/// The option `acme_dns`: all ACME issuers use the DNS challenge.
#[derive(Debug)]
pub(crate) struct AcmeDns {
    pub(crate) at: Position,
    /// If absent, the option `dns` names the provider.
    pub(crate) provider: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageClean {
    /// Interval in nanoseconds; 0 is the default.
    Every(i64),
    Never,
}

impl Default for StorageClean {
    fn default() -> Self {
        Self::Every(0)
    }
}

impl Certificates {
    /// Whether an option is set that affects every automation policy.
    pub(crate) fn change_policies(&self) -> bool {
        !self.issuers.is_empty()
            || self.local_certs.is_some()
            || self.key_type.is_some()
            || self.no_ocsp_stapling
            || self.renewal_window_ratio.is_some()
            || self.complete_issuers_early()
    }

    /// Whether an option is set for ACME issuers. If so, policies without an issuer get explicit ones.
    pub(crate) fn complete_issuers(&self) -> bool {
        self.email.is_some() || self.complete_issuers_early()
    }

    /// As [`Self::complete_issuers`], but only for options that apply before the sites' own settings.
    pub(crate) fn complete_issuers_early(&self) -> bool {
        self.acme_ca.is_some()
            || self.acme_ca_root.is_some()
            || self.acme_dns.is_some()
            || self.acme_eab.is_some()
            || self.preferred_chains.is_some()
    }

    /// Parses an option. Returns `false` if it is not one of this file's.
    pub(super) fn option(&mut self, d: &mut Dispenser<'_>) -> Result<bool, Error> {
        let name = d.name();
        match &*name.text {
            "email" => self.email = Some(single(d)?),
            "acme_ca" => self.acme_ca = Some(single(d)?),
            "acme_ca_root" => self.acme_ca_root = Some(single(d)?),
            "acme_dns" if d.remaining().is_empty() => {
                d.expect_no_braces()?;
                self.acme_dns = Some(AcmeDns { at: name.at.clone(), provider: None });
            }
            "acme_dns" => self.acme_dns = Some(AcmeDns { at: name.at.clone(), provider: Some(provider(d)?) }),
            "dns" => self.dns = Some(provider(d)?),
            "acme_eab" => self.acme_eab = Some(account(d)?),
            "preferred_chains" => self.preferred_chains = Some(preferred_chains(d)?),
            "cert_lifetime" => self.cert_lifetime = Some(duration(d)?),
            "cert_issuer" => self.issuers.push(Issuer::read(d)?),
            "local_certs" => self.local_certs = Some(name.at.clone()),
            "key_type" => self.key_type = Some(single(d)?),
            "renewal_window_ratio" => {
                self.renewal_window_ratio = Some(renewal_window_ratio(d)?);
                d.expect_end_of_line()?;
            }
            "ocsp_stapling" => {
                if &*d.sole_argument()?.text != "off" {
                    return Err(d.word("invalid argument '{}'; expected off"));
                }
                self.no_ocsp_stapling = true;
            }
            "on_demand_tls" => self.on_demand = Some(on_demand(d)?),
            "tls_resolvers" => self.resolvers = words(d)?,
            "tls_automate_names" => self.automate_names.extend(words(d)?),
            "ech" => (self.ech, self.ech_publication) = ech(d)?,
            "storage_check" => {
                if single(d)? != "off" {
                    return Err(d.word("storage_check must be 'off'; expected it instead of '{}'"));
                }
                self.no_storage_check = true;
            }
            "storage_clean_interval" => {
                let interval = single(d)?;
                let rule = "failed to parse storage_clean_interval, must be a duration or 'off'; expected one such as 24h \
                            instead of '{}'";
                self.storage_clean = match &*interval {
                    "off" => StorageClean::Never,
                    text => StorageClean::Every(nanoseconds(text).ok_or_else(|| d.word(rule))?),
                };
            }
            "renew_interval" => self.renew_interval = duration(d)?,
            "ocsp_interval" => self.ocsp_interval = duration(d)?,
            "skip_install_trust" => self.skip_install_trust = true,
            "pki" => self.authorities = super::super::pki::option(d)?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn words(d: &mut Dispenser<'_>) -> Result<Vec<String>, Error> {
    d.require()?;
    d.rest();
    Ok(d.arguments().iter().map(|token| token.text.to_string()).collect())
}

/// Parses the fraction of a certificate's lifetime that remains when it is renewed.
pub(crate) fn renewal_window_ratio(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    let number = ratio(&d.require()?.text);
    let number =
        number.ok_or_else(|| d.word("parsing renewal_window_ratio: '{}' is no number; expected one such as 0.3"))?;
    let inside = number > 0.0 && number < 1.0;
    let rule = "renewal_window_ratio must be between 0 and 1 (exclusive); expected one such as 0.3 instead of '{}'";
    if inside { Ok(number.into()) } else { Err(d.word(rule)) }
}

/// Parses `acme_eab { key_id …; mac_key … }`.
fn account(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let (mut id, mut key) = ("", "");
    for mut line in d.lines() {
        match &*line.name().text {
            "key_id" => id = &line.require()?.text,
            "mac_key" => key = &line.require()?.text,
            _ => return Err(line.unknown("unrecognized parameter '{}'", &["key_id", "mac_key"])),
        }
        line.expect_end_of_line()?;
    }
    Ok(json!({ "key_id": id, "mac_key": key }))
}

/// Parses `on_demand_tls { ask <url>; permission <module> … }`.
fn on_demand(d: &mut Dispenser<'_>) -> Result<Value, Error> {
    d.expect_no_argument()?;
    let mut permission = None;
    for mut line in d.lines() {
        let name = &*line.name().text;
        if matches!(name, "ask" | "permission") {
            line.require()?;
            if permission.is_some() {
                return Err(line.rule("on-demand TLS permission module (or 'ask') already specified"));
            }
        }
        let endpoint = match name {
            "ask" => {
                line.expect_end_of_line()?;
                &line.last().text
            }
            "permission" if &*line.last().text == "http" => &line.sole_argument()?.text,
            "permission" => {
                let rule = "getting module named 'tls.permission.{}': module not registered";
                return Err(line.unknown_module(rule, &["http"]));
            }
            "interval" | "burst" => {
                let rule = "the on_demand_tls '{}' option is no longer supported, remove it from your config";
                return Err(Error::at(line.name(), ErrorKind::Word { rule, found: name.into() }));
            }
            _ => return Err(line.unknown("unrecognized parameter '{}'", &["ask", "permission"])),
        };
        permission = Some(json!({ "permission": { "endpoint": &**endpoint, "module": "http" } }));
    }
    permission.ok_or_else(|| d.rule("expected at least one config parameter for on_demand_tls"))
}

/// Parses `ech <public names…> { dns <provider> … }`.
fn ech(d: &mut Dispenser<'_>) -> Result<(Vec<String>, Vec<Value>), Error> {
    let names = words(d)?;
    let mut publication = Vec::new();
    for mut line in d.lines() {
        if &*line.name().text != "dns" {
            return Err(line.unknown("ech: unrecognized subdirective '{}'", &["dns"]));
        }
        let provider = provider(&mut line)?;
        publication.push(json!({ "configs": names, "publishers": { "dns": { "provider": provider } } }));
    }
    Ok((names, publication))
}

/// Parses the duration that follows an option of a block, in nanoseconds.
pub(crate) fn nested_duration(line: &mut Dispenser<'_>) -> Result<i64, Error> {
    let text = &line.require()?.text;
    nanoseconds(text).ok_or_else(|| line.duration_error())
}

//! `apps.pki`: local certificate authorities.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde_json::Value;

use super::certificates::{CertificateAuthority, CertificateFiles};
use super::handlers;
use super::storage::read_own;
use causeway_pipeline::build::DurationConfig;

/// The ID of the default authority, which exists without being configured.
pub(super) const LOCAL: &str = "local";
/// The expectation of messages about other ids.
pub(super) const KNOWN_AUTHORITY: &str = "'local', or an authority that the option `pki` names";
/// Caddy's default of an intermediate's lifetime.
const INTERMEDIATE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct PkiConfig {
    #[serde(default)]
    certificate_authorities: BTreeMap<String, AuthorityConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityConfig {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    root_common_name: Option<String>,
    #[serde(default)]
    intermediate_common_name: Option<String>,
    #[serde(default)]
    intermediate_lifetime: Option<DurationConfig>,
    /// Ignored: the server never changes the system's trust store. It logs the path of the root certificate.
    #[serde(default)]
    install_trust: Option<bool>,
    #[serde(default)]
    root: Option<KeyPairConfig>,
    #[serde(default)]
    intermediate: Option<KeyPairConfig>,
    /// Only checked: renewals are scheduled by the dates of the certificates, not at fixed intervals.
    #[serde(default)]
    maintenance_interval: Option<DurationConfig>,
    #[serde(default)]
    renewal_window_ratio: Option<f64>,
    #[serde(default)]
    storage: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyPairConfig {
    #[serde(default)]
    certificate: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    format: String,
}

/// The configured authorities. A `pki` app without any has the local one.
pub(super) fn read(
    written: Option<&PkiConfig>,
    build: &mut Build<'_>,
) -> Result<Vec<CertificateAuthority>, BuildError> {
    let Some(written) = written else { return Ok(Vec::new()) };
    if written.certificate_authorities.is_empty() {
        return Ok(vec![CertificateAuthority::new(LOCAL)]);
    }
    let mut authorities = Vec::new();
    for (id, authority) in &written.certificate_authorities {
        let read = |build: &mut Build<'_>| authority.read(id, build);
        authorities.push(build.at(format!("apps.pki.certificate_authorities.{id}"), read)?);
    }
    Ok(authorities)
}

/// Adds the authorities of the handlers `acme_server` in the HTTP app's JSON, and checks that the certificates expire
/// before their intermediate.
pub(super) fn serve(
    json: &Value,
    authorities: &mut Vec<CertificateAuthority>,
    build: &mut Build<'_>,
) -> Result<(), BuildError> {
    for server in handlers("acme_server", json) {
        let id = server["ca"].as_str().filter(|id| !id.is_empty()).unwrap_or(LOCAL);
        if id == LOCAL {
            add_local(authorities);
        } else if !authorities.iter().any(|known| known.id == id) {
            let expected = "local, or the id of an authority that apps.pki configures";
            return build.at("acme_server.ca", |build| Err(build.refuse(id, expected)));
        }
        let authority = authorities.iter().find(|known| known.id == id);
        let own = authority.filter(|authority| authority.intermediate.is_none());
        let ends = own.map(|authority| authority.intermediate_lifetime.unwrap_or(INTERMEDIATE_LIFETIME));
        // The handler itself refuses a lifetime that is no duration.
        let lifetime = Option::<DurationConfig>::deserialize(&server["lifetime"]).ok().flatten();
        let lifetime = lifetime.and_then(|span| span.duration(build).ok()).unwrap_or_default();
        if let Some(ends) = ends.filter(|ends| lifetime >= *ends) {
            let rule = format!(
                "a shorter one: it should be less than intermediate certificate lifetime of '{id}' ({} s)",
                ends.as_secs()
            );
            return build
                .at("acme_server.lifetime", |build| Err(build.refuse(format!("{} s", lifetime.as_secs()), rule)));
        }
    }
    Ok(())
}

/// Adds the local authority, unless it is configured.
pub(super) fn add_local(authorities: &mut Vec<CertificateAuthority>) {
    if !authorities.iter().any(|known| known.id == LOCAL) {
        authorities.push(CertificateAuthority::new(LOCAL));
    }
}

impl AuthorityConfig {
    fn read(&self, id: &str, build: &mut Build<'_>) -> Result<CertificateAuthority, BuildError> {
        if id.is_empty() {
            return Err(build.refuse("", "an id, as local"));
        }
        let lifetime = self.intermediate_lifetime.as_ref();
        let intermediate_lifetime = build.optional_duration("intermediate_lifetime", lifetime)?;
        if build.optional_duration("maintenance_interval", self.maintenance_interval.as_ref())?.is_some() {
            build.warn_unused("maintenance_interval", "renewals are scheduled by the dates of the certificates");
        }
        if self.install_trust == Some(true) {
            let reason = "the server never changes the system's trust store; the command `trust` does";
            build.warn_unused("install_trust", reason);
        }
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let pair = |key: &str, pair: &Option<KeyPairConfig>, build: &mut Build<'_>| {
            build.at(key, |build| pair.as_ref().map(|pair| pair.read(build)).transpose())
        };
        // As in Caddy, an empty text, a lifetime of 0 and a ratio out of range stand for the default.
        Ok(CertificateAuthority {
            id: id.to_owned(),
            name: text(&self.name),
            root_common_name: text(&self.root_common_name),
            intermediate_common_name: text(&self.intermediate_common_name),
            intermediate_lifetime: intermediate_lifetime.filter(|lifetime| !lifetime.is_zero()),
            renewal_ratio: self.renewal_window_ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0),
            root: pair("root", &self.root, build)?,
            intermediate: pair("intermediate", &self.intermediate, build)?,
            storage: read_own(self.storage.as_ref(), build)?,
        })
    }
}

impl KeyPairConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<CertificateFiles, BuildError> {
        if !matches!(&*self.format, "" | "pem_file") {
            return build
                .at("format", |build| Err(build.refuse(&*self.format, "pem_file: no other format is supported")));
        }
        if self.certificate.is_empty() {
            return build.at("certificate", |build| Err(build.refuse("", "the name of a file")));
        }
        let key = Some(PathBuf::from(&self.private_key)).filter(|path| !path.as_os_str().is_empty());
        Ok(CertificateFiles { certificate: self.certificate.clone().into(), key })
    }
}

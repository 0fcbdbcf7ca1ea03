//! `apps.pki`: authorities of our own.

use std::collections::BTreeMap;
use std::path::PathBuf;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::certificates::{CertificateAuthority, CertificateFiles};
use super::duration::Span;
use super::refuse;

/// The authority that there is without being named.
pub(super) const LOCAL: &str = "local";

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenPki {
    #[serde(default)]
    certificate_authorities: BTreeMap<String, WrittenAuthority>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenAuthority {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    root_common_name: Option<String>,
    #[serde(default)]
    intermediate_common_name: Option<String>,
    #[serde(default)]
    intermediate_lifetime: Option<Span>,
    /// The system's trust store is never written to; the operator is told where the root is.
    #[serde(default, rename = "install_trust")]
    _install_trust: Option<bool>,
    #[serde(default)]
    root: Option<WrittenPair>,
    #[serde(default)]
    intermediate: Option<WrittenPair>,
    /// Dates are looked at when they come, not every so often.
    #[serde(default, rename = "maintenance_interval")]
    _maintenance_interval: Option<IgnoredAny>,
    #[serde(default)]
    renewal_window_ratio: Option<f64>,
    #[serde(default)]
    storage: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPair {
    #[serde(default)]
    certificate: String,
    #[serde(default)]
    private_key: String,
    #[serde(default)]
    format: String,
}

/// The authorities that are named, or the local one where none is.
pub(super) fn read(
    written: Option<&WrittenPki>,
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

impl WrittenAuthority {
    fn read(&self, id: &str, build: &mut Build<'_>) -> Result<CertificateAuthority, BuildError> {
        if id.is_empty() {
            return Err(build.refuse("", "an id, as local"));
        }
        refuse("storage", &self.storage, build)?;
        let lifetime =
            |build: &mut Build<'_>| self.intermediate_lifetime.as_ref().map(|span| span.duration(build)).transpose();
        let intermediate_lifetime = build.at("intermediate_lifetime", lifetime)?;
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let pair = |key: &str, pair: &Option<WrittenPair>, build: &mut Build<'_>| {
            build.at(key, |build| pair.as_ref().map(|pair| pair.read(build)).transpose())
        };
        Ok(CertificateAuthority {
            id: id.to_owned(),
            name: text(&self.name),
            root_common_name: text(&self.root_common_name),
            intermediate_common_name: text(&self.intermediate_common_name),
            intermediate_lifetime: intermediate_lifetime.filter(|lifetime| !lifetime.is_zero()),
            renewal_ratio: self.renewal_window_ratio.filter(|ratio| *ratio > 0.0 && *ratio <= 1.0),
            root: pair("root", &self.root, build)?,
            intermediate: pair("intermediate", &self.intermediate, build)?,
        })
    }
}

impl WrittenPair {
    fn read(&self, build: &mut Build<'_>) -> Result<CertificateFiles, BuildError> {
        if !matches!(&*self.format, "" | "pem_file") {
            return build.at("format", |build| Err(build.refuse(&*self.format, "pem_file: no other is known")));
        }
        if self.certificate.is_empty() {
            return build.at("certificate", |build| Err(build.refuse("", "the name of a file")));
        }
        let key = Some(PathBuf::from(&self.private_key)).filter(|path| !path.as_os_str().is_empty());
        Ok(CertificateFiles { certificate: self.certificate.clone().into(), key })
    }
}

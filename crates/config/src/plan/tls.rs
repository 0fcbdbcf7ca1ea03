//! `apps.tls`: the operator's certificates, and the issuers of managed ones.
//!
//! - `automation`: selects the issuer of a name
//! - `dns`: DNS-01 and its provider
//! - `tickets`: the keys of session tickets

mod automation;
mod dns;
mod tickets;

use std::collections::BTreeSet;

use causeway_pipeline::{Build, BuildError, punycode};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::certificates::{CertificateSource, Certificates, SessionTickets, StorageCleaning};
use super::refuse;

pub(super) use automation::{Automation, AutomationPolicy, Issuer, read_issuers};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsConfig {
    #[serde(default)]
    certificates: Option<CertificatesConfig>,
    #[serde(default)]
    automation: Option<automation::AutomationConfig>,
    #[serde(default)]
    session_tickets: tickets::SessionTicketsConfig,
    #[serde(default)]
    cache: CacheConfig,
    #[serde(default)]
    disable_ocsp_stapling: bool,
    /// Accepted without effect.
    #[serde(default)]
    disable_storage_check: bool,
    #[serde(default)]
    disable_storage_clean: bool,
    #[serde(default)]
    encrypted_client_hello: Option<Value>,
    #[serde(default)]
    dns: Option<Map<String, Value>>,
    #[serde(default)]
    resolvers: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CertificatesConfig {
    #[serde(default)]
    automate: Vec<String>,
    #[serde(default)]
    load_files: Vec<CertificateFilesConfig>,
    #[serde(default)]
    load_folders: Vec<String>,
    #[serde(default)]
    load_pem: Vec<CertificatePemConfig>,
    #[serde(default)]
    load_storage: LoadStorageConfig,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct CacheConfig {
    #[serde(default)]
    capacity: i64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct LoadStorageConfig {
    /// With storage keys in place of paths.
    #[serde(default)]
    pairs: Vec<CertificateFilesConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateFilesConfig {
    certificate: String,
    key: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificatePemConfig {
    certificate: String,
    key: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// The parsed TLS app.
#[derive(Default)]
pub(super) struct Tls {
    /// In the order of Caddy's loaders: files, directories, PEM texts, storage.
    pub(super) sources: Vec<CertificateSource>,
    /// Names to manage even if no site uses them.
    pub(super) automate: Vec<String>,
    /// Names of the certificates that proxies present to upstreams.
    pub(super) presented: BTreeSet<String>,
    pub(super) automation: Automation,
    /// The settings that issuers have in common.
    pub(super) dns: dns::DnsDefaults,
    pub(super) cleaning: StorageCleaning,
    /// Whether the certificates of `sources` get no OCSP response.
    pub(super) ocsp_disabled_for_sources: bool,
    /// How many names on demand have a certificate in memory.
    pub(super) cache_capacity: Option<usize>,
    pub(super) session_tickets: SessionTickets,
}

impl TlsConfig {
    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<Tls, BuildError> {
        build.at("apps.tls", |build| {
            refuse("encrypted_client_hello", &self.encrypted_client_hello, build)?;
            if self.disable_storage_check {
                build.warn_unused("disable_storage_check", "storage is not checked before an order");
            }
            let session_tickets = build.at("session_tickets", |build| self.session_tickets.read(build))?;
            let cache_capacity = build.at("cache", |build| self.cache.read(build))?;
            let none = CertificatesConfig::default();
            let certificates = self.certificates.as_ref().unwrap_or(&none);
            let sources = build.at("certificates", |build| certificates.read(build))?;
            let automate = certificates.automate.iter().map(|name| ascii(name, build)).collect::<Result<_, _>>()?;
            let provider = self.dns.as_ref();
            let provider = build.at("dns", |build| provider.map(|json| dns::provider(json, build)).transpose())?;
            let defaults = dns::DnsDefaults { provider, resolvers: self.resolvers.clone() };
            let automation = match &self.automation {
                Some(written) => build.at("automation", |build| written.read(&defaults, build))?,
                None => Automation::default(),
            };
            let cleaning = match automation.cleaning_interval {
                _ if self.disable_storage_clean => StorageCleaning::Never,
                Some(interval) => StorageCleaning::Every(interval),
                None => StorageCleaning::Default,
            };
            let ocsp_disabled_for_sources = self.disable_ocsp_stapling;
            Ok(Tls {
                sources,
                automate,
                presented: BTreeSet::new(),
                automation,
                dns: defaults,
                cleaning,
                ocsp_disabled_for_sources,
                cache_capacity,
                session_tickets,
            })
        })
    }
}

impl Tls {
    /// Returns the settings of certificates, without those that depend on the sites.
    pub(super) fn into_certificates(self) -> Certificates {
        Certificates {
            dns_providers: self.automation.dns_providers().cloned().collect(),
            acme_issuers: self.automation.acme_issuers(),
            sources: self.sources,
            renewal_check_interval: self.automation.renewal_check_interval,
            cleaning: self.cleaning,
            ocsp_check_interval: self.automation.ocsp_check_interval,
            ocsp_disabled_for_sources: self.ocsp_disabled_for_sources,
            cache_capacity: self.cache_capacity,
            session_tickets: self.session_tickets,
            ..Certificates::default()
        }
    }
}

impl CacheConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<Option<usize>, BuildError> {
        match usize::try_from(self.capacity) {
            Ok(0) => Ok(None),
            Ok(capacity) => Ok(Some(capacity)),
            Err(_) => {
                let expected = "a number of certificates, or 0 for the default";
                build.at("capacity", |build| Err(build.refuse(self.capacity.to_string(), expected)))
            }
        }
    }
}

impl CertificateFilesConfig {
    fn check_format(&self, place: String, build: &mut Build<'_>) -> Result<(), BuildError> {
        let format = build.expand_constants(&self.format);
        if matches!(&*format, "" | "pem") {
            return Ok(());
        }
        build.at(format!("{place}.format"), |build| Err(build.refuse(format, "pem: no other format is supported")))
    }
}

impl CertificatesConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<Vec<CertificateSource>, BuildError> {
        let mut sources = Vec::new();
        for (index, pair) in self.load_files.iter().enumerate() {
            pair.check_format(format!("load_files[{index}]"), build)?;
            sources.push(CertificateSource::Files {
                certificate: build.expand_constants(&pair.certificate).into(),
                key: build.expand_constants(&pair.key).into(),
                tags: pair.tags.iter().map(|tag| build.expand_constants(tag)).collect(),
            });
        }
        for directory in &self.load_folders {
            sources.push(CertificateSource::Directory(build.expand_constants(directory).into()));
        }
        for (index, pair) in self.load_pem.iter().enumerate() {
            sources.push(CertificateSource::Pem {
                location: format!("apps.tls.certificates.load_pem[{index}]"),
                certificate: build.expand_constants(&pair.certificate),
                key: build.expand_constants(&pair.key),
                tags: pair.tags.iter().map(|tag| build.expand_constants(tag)).collect(),
            });
        }
        for (index, pair) in self.load_storage.pairs.iter().enumerate() {
            pair.check_format(format!("load_storage.pairs[{index}]"), build)?;
            sources.push(CertificateSource::Stored {
                certificate: build.expand_constants(&pair.certificate),
                key: build.expand_constants(&pair.key),
                tags: pair.tags.iter().map(|tag| build.expand_constants(tag)).collect(),
            });
        }
        Ok(sources)
    }
}

/// A host in lower-case ASCII, the form that certificates and clients use. Fails if IDNA does not allow it.
pub(super) fn ascii(host: &str, build: &mut Build<'_>) -> Result<String, BuildError> {
    let host = build.expand_constants(host);
    match punycode::to_ascii(&host) {
        Some(ascii) => Ok(ascii.to_ascii_lowercase()),
        None => Err(build.refuse(host, punycode::EXPECTED)),
    }
}

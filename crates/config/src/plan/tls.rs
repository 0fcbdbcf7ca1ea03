//! `apps.tls`: certificates that the operator has, and who gets the others.
//!
//! - `automation`: which issuer a name has

mod automation;

use causeway_pipeline::{Build, BuildError, punycode};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::certificates::CertificateSource;
use super::refuse;

pub(super) use automation::{Automation, Issuer, Policy, matches_wildcard};

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenTls {
    #[serde(default)]
    certificates: Option<WrittenCertificates>,
    #[serde(default)]
    automation: Option<automation::WrittenAutomation>,
    #[serde(default)]
    session_tickets: Option<Map<String, Value>>,
    #[serde(default)]
    cache: Option<Map<String, Value>>,
    /// Nothing is stapled, so there is nothing to disable.
    #[serde(default, rename = "disable_ocsp_stapling")]
    _disable_ocsp_stapling: bool,
    /// Storage is neither checked beforehand nor cleaned.
    #[serde(default, rename = "disable_storage_check")]
    _disable_storage_check: bool,
    #[serde(default, rename = "disable_storage_clean")]
    _disable_storage_clean: bool,
    #[serde(default)]
    encrypted_client_hello: Option<Value>,
    #[serde(default)]
    dns: Option<Value>,
    #[serde(default)]
    resolvers: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct WrittenCertificates {
    #[serde(default)]
    automate: Vec<String>,
    #[serde(default)]
    load_files: Vec<WrittenFiles>,
    #[serde(default)]
    load_folders: Vec<String>,
    #[serde(default)]
    load_pem: Vec<WrittenPem>,
    #[serde(default)]
    load_storage: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFiles {
    certificate: String,
    key: String,
    #[serde(default)]
    format: String,
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenPem {
    certificate: String,
    key: String,
    #[serde(default)]
    tags: Vec<String>,
}

/// The TLS app as it is used.
#[derive(Default)]
pub(super) struct Tls {
    /// In the order of Caddy's loaders: files, folders, texts.
    pub(super) sources: Vec<CertificateSource>,
    /// Names that are managed whether a site has them or not.
    pub(super) automate: Vec<String>,
    pub(super) automation: Automation,
}

impl WrittenTls {
    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<Tls, BuildError> {
        build.at("apps.tls", |build| {
            for (key, value) in [
                ("encrypted_client_hello", &self.encrypted_client_hello),
                ("dns", &self.dns),
                ("resolvers", &self.resolvers),
            ] {
                refuse(key, value, build)?;
            }
            for (key, options) in [("session_tickets", &self.session_tickets), ("cache", &self.cache)] {
                build.at(key, |build| {
                    let mut options = options.iter().flatten();
                    options.try_for_each(|(key, value)| refuse(key, &Some(value.clone()), build))
                })?;
            }
            let none = WrittenCertificates::default();
            let certificates = self.certificates.as_ref().unwrap_or(&none);
            let sources = build.at("certificates", |build| certificates.read(build))?;
            let automate = certificates.automate.iter().map(|name| ascii(name, build)).collect();
            let automation = match &self.automation {
                Some(written) => build.at("automation", |build| written.read(build))?,
                None => Automation::default(),
            };
            Ok(Tls { sources, automate, automation })
        })
    }
}

impl WrittenCertificates {
    fn read(&self, build: &mut Build<'_>) -> Result<Vec<CertificateSource>, BuildError> {
        refuse("load_storage", &self.load_storage, build)?;
        let mut sources = Vec::new();
        for (index, pair) in self.load_files.iter().enumerate() {
            let format = known(&pair.format, build);
            if !matches!(&*format, "" | "pem") {
                let expected = "pem: no other is known";
                return build.at(format!("load_files[{index}].format"), |build| Err(build.refuse(format, expected)));
            }
            sources.push(CertificateSource::Files {
                certificate: known(&pair.certificate, build).into(),
                key: known(&pair.key, build).into(),
                tags: pair.tags.iter().map(|tag| known(tag, build)).collect(),
            });
        }
        for folder in &self.load_folders {
            sources.push(CertificateSource::Folder(known(folder, build).into()));
        }
        for (index, pair) in self.load_pem.iter().enumerate() {
            sources.push(CertificateSource::Pem {
                place: format!("apps.tls.certificates.load_pem[{index}]"),
                certificate: known(&pair.certificate, build),
                key: known(&pair.key, build),
                tags: pair.tags.iter().map(|tag| known(tag, build)).collect(),
            });
        }
        Ok(sources)
    }
}

/// A text with its placeholders of the environment, files and the system replaced; another placeholder stays as it is.
pub(super) fn known(text: &str, build: &mut Build<'_>) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let template = build.template(text);
    template.literal().map_or_else(|| text.to_owned(), str::to_owned)
}

/// A host as certificates and clients spell it.
pub(super) fn ascii(host: &str, build: &mut Build<'_>) -> String {
    punycode::to_ascii(&known(host, build)).to_ascii_lowercase()
}

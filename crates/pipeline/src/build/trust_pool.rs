//! The certificates that a configuration trusts: pools of authorities (Caddy's modules `tls.ca_pool.source.NAME`), and
//! lists of single certificates. All are read while the plan is built.
//!
//! A pool's certificates are in the configuration, in files, or in a [`TrustSource`], which only the server can read.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde::Deserialize;
use serde_json::Value;

use super::{Build, BuildError, DurationConfig, Problem};

/// Certificates in DER.
pub type CertificateList = Vec<Vec<u8>>;

/// A source of certificates outside the configuration and its files.
#[derive(Debug, Clone, Copy)]
pub enum TrustSource<'v> {
    /// The authorities that the system trusts.
    System,
    /// The root certificate of the local authority with this id.
    AuthorityRoot(&'v str),
    /// The intermediate certificate of the local authority with this id.
    AuthorityIntermediate(&'v str),
    /// A PEM text in a storage.
    Stored {
        /// The storage's module; `None`: the configuration's storage.
        storage: Option<&'v Value>,
        /// The key of the text.
        key: &'v str,
    },
    /// A PEM text that a server sends.
    Http {
        /// The URL, which may be malformed.
        url: &'v str,
        /// The settings of connections for `https` URLs.
        tls: &'v EndpointTls,
    },
}

/// TLS towards a server that sends a pool.
#[derive(Debug, Default)]
pub struct EndpointTls {
    /// The authorities to trust; `None`: the system's.
    pub roots: Option<CertificateList>,
    /// Whether any certificate is accepted.
    pub is_insecure: bool,
    /// The server name to send and to verify; `None`: the URL's host.
    pub server_name: Option<String>,
    /// The time limit of a handshake.
    pub handshake_timeout: Option<Duration>,
}

/// Reads a source. Its errors have the location at which the build is.
pub type TrustReader<'r> = Rc<dyn Fn(TrustSource<'_>, &mut Build<'_>) -> Result<CertificateList, BuildError> + 'r>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InlineConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    trusted_ca_certs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    pem_files: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AuthorityConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    authority: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StorageConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    storage: Option<Value>,
    #[serde(default)]
    pem_keys: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    endpoints: Vec<String>,
    #[serde(default)]
    tls: Option<EndpointTlsConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EndpointTlsConfig {
    #[serde(default)]
    ca: Option<Value>,
    #[serde(default)]
    insecure_skip_verify: bool,
    #[serde(default)]
    handshake_timeout: Option<DurationConfig>,
    #[serde(default)]
    server_name: String,
    #[serde(default)]
    renegotiation: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SystemConfig {
    #[serde(rename = "provider")]
    _provider: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CombinedConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    sources: Vec<Value>,
}

/// Reads a pool: an object with the member `provider`.
///
/// # Errors
/// Returns the first source that is malformed or cannot be read. A pool without a certificate is an error, too: it
/// would reject every peer.
pub fn trust_pool(written: &Value, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
    let pool = match written.get("provider").and_then(Value::as_str) {
        Some("inline") => {
            let InlineConfig { trusted_ca_certs, .. } = build.parse(written)?;
            base64_certificates("trusted_ca_certs", &trusted_ca_certs, build)?
        }
        Some("file") => {
            let FileConfig { pem_files, .. } = build.parse(written)?;
            pem_files_certificates("pem_files", &pem_files, build)?
        }
        Some(provider @ ("pki_root" | "pki_intermediate")) => {
            let AuthorityConfig { authority, .. } = build.parse(written)?;
            let is_root = provider == "pki_root";
            list_certificates("authority", &authority, build, |id, build| {
                let source =
                    if is_root { TrustSource::AuthorityRoot(id) } else { TrustSource::AuthorityIntermediate(id) };
                read(source, build)
            })?
        }
        Some("storage") => {
            let StorageConfig { storage, pem_keys, .. } = build.parse(written)?;
            stored_certificates("pem_keys", storage.as_ref(), &pem_keys, build)?
        }
        Some("http") => {
            let HttpConfig { endpoints, tls, .. } = build.parse(written)?;
            let tls = match &tls {
                Some(tls) => build.at("tls", |build| tls.read(build))?,
                None => EndpointTls::default(),
            };
            list_certificates("endpoints", &endpoints, build, |url, build| {
                read(TrustSource::Http { url, tls: &tls }, build)
            })?
        }
        Some("system") => {
            let SystemConfig { .. } = build.parse(written)?;
            read(TrustSource::System, build)?
        }
        Some("combined") => {
            let CombinedConfig { sources, .. } = build.parse(written)?;
            let mut pool = CertificateList::new();
            for (index, source) in sources.iter().enumerate() {
                pool.extend(build.at(format!("sources[{index}]"), |build| trust_pool(source, build))?);
            }
            pool
        }
        Some(name) => {
            return Err(build.error(Problem::UnknownModule { kind: "ca_pool.source", name: name.to_owned() }));
        }
        None => return Err(build.refuse(written.to_string(), "an object with the member 'provider', such as file")),
    };
    if pool.is_empty() { Err(build.refuse("no certificate", "an authority's certificate at least")) } else { Ok(pool) }
}

impl EndpointTlsConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<EndpointTls, BuildError> {
        check_renegotiation(&self.renegotiation, build)?;
        let roots = match &self.ca {
            Some(pool) => Some(build.at("ca", |build| trust_pool(pool, build))?),
            None => None,
        };
        let handshake_timeout = match &self.handshake_timeout {
            Some(limit) => build.at("handshake_timeout", |build| limit.read(build))?,
            None => None,
        };
        let server_name = Some(build.expand_constants(&self.server_name)).filter(|name| !name.is_empty());
        Ok(EndpointTls { roots, is_insecure: self.insecure_skip_verify, server_name, handshake_timeout })
    }
}

/// Refuses any `renegotiation` but `never`, the default.
///
/// # Errors
/// The value is another one.
pub fn check_renegotiation(written: &str, build: &mut Build<'_>) -> Result<(), BuildError> {
    if matches!(written, "" | "never") {
        return Ok(());
    }
    let expected = "`never`: renegotiation is not supported (docs/refused.md)";
    build.at("renegotiation", |build| Err(build.refuse(written, expected)))
}

/// Decodes the certificates in the list `key`, each DER in Base64.
///
/// # Errors
/// An element is malformed.
pub fn base64_certificates(
    key: &str,
    written: &[String],
    build: &mut Build<'_>,
) -> Result<CertificateList, BuildError> {
    list_certificates(key, written, build, |text, build| match BASE64_STANDARD.decode(text.trim()) {
        // 0x30 is the tag of a SEQUENCE, with which every certificate starts (RFC 5280 §4.1).
        Ok(der) if der.first() == Some(&0x30) => Ok(vec![der]),
        _ => Err(build.refuse(format!("a text of {} bytes", text.len()), "a certificate as DER in Base64")),
    })
}

/// Reads the certificates in the PEM files of the list `key`.
///
/// # Errors
/// A file cannot be read, or has no certificate.
pub fn pem_files_certificates(
    key: &str,
    written: &[String],
    build: &mut Build<'_>,
) -> Result<CertificateList, BuildError> {
    list_certificates(key, written, build, |path, build| pem_file_certificates(Path::new(path), build))
}

/// Reads the certificates in a PEM file.
///
/// # Errors
/// The file cannot be read, or has no certificate.
pub fn pem_file_certificates(path: &Path, build: &Build<'_>) -> Result<CertificateList, BuildError> {
    let text = fs::read(path)
        .map_err(|error| build.refuse(format!("{}: {error}", path.display()), "a file that can be read"))?;
    pem_certificates(&text, &path.display().to_string(), build)
}

/// Reads the certificates in the storage's PEM texts whose keys are in the list `key`.
///
/// # Errors
/// A text cannot be read, or has no certificate.
pub fn stored_certificates(
    key: &str,
    storage: Option<&Value>,
    written: &[String],
    build: &mut Build<'_>,
) -> Result<CertificateList, BuildError> {
    list_certificates(key, written, build, |key, build| read(TrustSource::Stored { storage, key }, build))
}

/// Reads the certificates in a PEM text that `origin` names in errors. Other sections of the text are skipped.
///
/// # Errors
/// A section is malformed, or none has a certificate.
pub fn pem_certificates(text: &[u8], origin: &str, build: &Build<'_>) -> Result<CertificateList, BuildError> {
    match causeway_pem::chain(text) {
        Ok(certificates) => Ok(certificates.iter().map(|certificate| certificate.to_vec()).collect()),
        Err(error) => Err(refuse_pem(&error, origin, build)),
    }
}

/// Creates an error for a PEM text that `origin` names.
pub fn refuse_pem(error: &causeway_pem::Error, origin: &str, build: &Build<'_>) -> BuildError {
    build.refuse(format!("{}: {}", error.location(origin), error.found), error.expected)
}

/// Returns the certificates that `read` finds for each element of the list `key`. The elements' placeholders that are
/// known at load are replaced.
///
/// # Errors
/// The errors of `read`.
pub fn list_certificates(
    key: &str,
    written: &[String],
    build: &mut Build<'_>,
    read: impl Fn(&str, &mut Build<'_>) -> Result<CertificateList, BuildError>,
) -> Result<CertificateList, BuildError> {
    let mut certificates = CertificateList::new();
    for (index, text) in written.iter().enumerate() {
        let text = build.expand_constants(text);
        certificates.extend(build.at(format!("{key}[{index}]"), |build| read(&text, build))?);
    }
    Ok(certificates)
}

fn read(source: TrustSource<'_>, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
    match build.trust_reader.clone() {
        Some(read) => read(source, build),
        None => Err(build.refuse("a source outside the configuration", "a server that reads it")),
    }
}

//! `tls`: verification of the upstream's certificate, and the client certificate.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use causeway_pipeline::upstream::{OwnCertificate, TLS_GROUPS};
use causeway_pipeline::{Build, BuildError, Roots, Template, TlsClient, punycode};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use causeway_pipeline::build::DurationConfig;

pub(super) struct Built {
    pub(super) client: TlsClient,
    /// A server name with placeholders, in place of the client's.
    pub(super) server_name: Option<Template>,
    pub(super) handshake_timeout: Option<Duration>,
    /// A digest of the files' contents.
    pub(super) files: u64,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ProxyTlsConfig {
    ca: Option<IgnoredAny>,
    root_ca_pool: Vec<String>,
    root_ca_pem_files: Vec<String>,
    client_certificate_file: String,
    client_certificate_key_file: String,
    client_certificate_automate: String,
    insecure_skip_verify: bool,
    handshake_timeout: Option<DurationConfig>,
    server_name: String,
    renegotiation: String,
    except_ports: Vec<String>,
    curves: Vec<String>,
}

/// `ca` with the provider `inline`; the roots are in the configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InlinePoolConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    trusted_ca_certs: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FilePoolConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    pem_files: Vec<String>,
}

pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<Built, BuildError> {
    let written: ProxyTlsConfig = build.parse(value)?;
    if !matches!(written.renegotiation.as_str(), "" | "never") {
        let expected = "`never`: renegotiation is not built into this version (docs/refused.md)";
        return build.at("renegotiation", |build| Err(build.refuse(written.renegotiation, expected)));
    }
    let server_name = build.template(&written.server_name);
    let (fixed_name, server_name) = match server_name.literal() {
        Some(name) => ((!name.is_empty()).then(|| name.to_owned()), None),
        None => (None, Some(server_name)),
    };
    if let Some(index) = written.curves.iter().position(|name| !TLS_GROUPS.contains(&name.as_str())) {
        let found = written.curves[index].clone();
        let expected = format!("one of {}", TLS_GROUPS.join(", "));
        return build.at(format!("curves[{index}]"), |build| Err(build.refuse(found, expected)));
    }
    let mut roots = Vec::new();
    build.at("root_ca_pool", |build| inline(&written.root_ca_pool, &mut roots, build))?;
    build.at("root_ca_pem_files", |build| files(&written.root_ca_pem_files, &mut roots, build))?;
    if written.ca.is_some() {
        build.at("ca", |build| authorities(&value["ca"], &mut roots, build))?;
    }
    let of_files = certificate(&written.client_certificate_file, &written.client_certificate_key_file, build)?;
    let managed =
        build.at("client_certificate_automate", |build| managed(&written.client_certificate_automate, build))?;
    // As in Caddy, the managed one has precedence.
    let certificate = managed.or(of_files);
    let handshake_timeout = match &written.handshake_timeout {
        Some(limit) => build.at("handshake_timeout", |build| limit.read(build))?,
        None => None,
    };
    // The digest only distinguishes transports, so a fast hash suffices.
    let mut digest = DefaultHasher::new();
    (&roots, &certificate).hash(&mut digest);
    // Configured roots replace the system's.
    let roots = if roots.is_empty() { Roots::System } else { Roots::These(roots) };
    let client = TlsClient {
        server_name: fixed_name,
        except_ports: written.except_ports,
        groups: written.curves,
        roots,
        insecure: written.insecure_skip_verify,
        certificate,
    };
    Ok(Built { client, server_name, handshake_timeout, files: digest.finish() })
}

fn authorities(value: &Value, roots: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    match value.get("provider").and_then(Value::as_str).unwrap_or_default() {
        "inline" => {
            let InlinePoolConfig { trusted_ca_certs, .. } = build.parse(value)?;
            build.at("trusted_ca_certs", |build| inline(&trusted_ca_certs, roots, build))
        }
        "file" => {
            let FilePoolConfig { pem_files, .. } = build.parse(value)?;
            build.at("pem_files", |build| files(&pem_files, roots, build))
        }
        provider => {
            let expected =
                "inline or file; other sources of authorities are not built into this version (docs/refused.md)";
            build.at("provider", |build| Err(build.refuse(provider, expected)))
        }
    }
}

/// Decodes certificates given as Base64 of DER.
fn inline(written: &[String], roots: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, certificate) in written.iter().enumerate() {
        match BASE64_STANDARD.decode(certificate) {
            Ok(der) => roots.push(der),
            Err(error) => {
                let found = error.to_string();
                return build
                    .at(format!("[{index}]"), |build| Err(build.refuse(found, "a certificate, DER in Base64")));
            }
        }
    }
    Ok(())
}

fn files(written: &[String], roots: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, path) in written.iter().enumerate() {
        build.at(format!("[{index}]"), |build| {
            roots.extend(certificates(path, build)?);
            Ok(())
        })?;
    }
    Ok(())
}

fn certificates(path: &str, build: &Build<'_>) -> Result<Vec<Vec<u8>>, BuildError> {
    let pem = read(path, build)?;
    let found: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(build.refuse(path, "a PEM file with certificates")),
    }
}

/// Reads the name of a managed certificate, in the form of the certificate's own names.
fn managed(name: &str, build: &mut Build<'_>) -> Result<Option<OwnCertificate>, BuildError> {
    let template = build.template(name);
    match template.literal().map(punycode::to_ascii) {
        _ if name.is_empty() => Ok(None),
        Some(Some(ascii)) if !ascii.is_empty() => Ok(Some(OwnCertificate::Managed(ascii.to_ascii_lowercase()))),
        _ => Err(build.refuse(name, punycode::EXPECTED)),
    }
}

/// Reads a certificate chain and its private key.
fn certificate(chain: &str, key: &str, build: &mut Build<'_>) -> Result<Option<OwnCertificate>, BuildError> {
    match (chain.is_empty(), key.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => {
            let chain = build.at("client_certificate_file", |build| certificates(chain, build))?;
            let key = build.at("client_certificate_key_file", |build| {
                let pem = read(key, build)?;
                let der = PrivateKeyDer::from_pem_slice(&pem);
                der.map(|der| der.secret_der().to_vec()).map_err(|_| build.refuse(key, "a PEM file with a private key"))
            })?;
            Ok(Some(OwnCertificate::Given { chain, key }))
        }
        _ => Err(build.refuse("one of the two", "client_certificate_file and client_certificate_key_file, or neither")),
    }
}

fn read(path: &str, build: &Build<'_>) -> Result<Vec<u8>, BuildError> {
    std::fs::read(path).map_err(|error| build.refuse(format!("{path}: {error}"), "a file that can be read"))
}

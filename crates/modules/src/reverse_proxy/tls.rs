//! `tls`: verification of the upstream's certificate, and the client certificate.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::Duration;

use causeway_pipeline::build::DurationConfig;
use causeway_pipeline::build::trust_pool::{
    base64_certificates, check_renegotiation, pem_file_certificates, pem_files_certificates, refuse_pem, trust_pool,
};
use causeway_pipeline::upstream::{OwnCertificate, TLS_GROUPS};
use causeway_pipeline::{Build, BuildError, Roots, Template, TlsClient, punycode};

use serde::Deserialize;
use serde_json::Value;

pub(super) struct TlsParts {
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
    ca: Option<Value>,
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

pub(super) fn build(value: &Value, build: &mut Build<'_>) -> Result<TlsParts, BuildError> {
    let written: ProxyTlsConfig = build.parse(value)?;
    check_renegotiation(&written.renegotiation, build)?;
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
    let mut roots = base64_certificates("root_ca_pool", &written.root_ca_pool, build)?;
    roots.extend(pem_files_certificates("root_ca_pem_files", &written.root_ca_pem_files, build)?);
    if let Some(pool) = &written.ca {
        if !roots.is_empty() {
            let expected = "either it or root_ca_pool and root_ca_pem_files";
            return build.at("ca", |build| Err(build.refuse("both", expected)));
        }
        roots.extend(build.at("ca", |build| trust_pool(pool, build))?);
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
    Ok(TlsParts { client, server_name, handshake_timeout, files: digest.finish() })
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
            let chain = build.at("client_certificate_file", |build| pem_file_certificates(Path::new(chain), build))?;
            let key = build.at("client_certificate_key_file", |build| {
                let pem = read(key, build)?;
                let der = causeway_pem::key(&pem).map_err(|error| refuse_pem(&error, key, build))?;
                Ok(der.secret_der().to_vec())
            })?;
            Ok(Some(OwnCertificate::Given { chain, key }))
        }
        _ => Err(build.refuse("one of the two", "client_certificate_file and client_certificate_key_file, or neither")),
    }
}

fn read(path: &str, build: &Build<'_>) -> Result<Vec<u8>, BuildError> {
    std::fs::read(path).map_err(|error| build.refuse(format!("{path}: {error}"), "a file that can be read"))
}

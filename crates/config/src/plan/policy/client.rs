//! `client_authentication`: the certificates that clients must present.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use causeway_pipeline::build::Problem;
use causeway_pipeline::{Build, BuildError, ClientAuthentication, ClientAuthenticationMode};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::known;

const BASE64_DER: &str = "a certificate as DER in base64";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientAuthConfig {
    #[serde(default)]
    ca: Option<Map<String, Value>>,
    #[serde(default)]
    trusted_ca_certs: Vec<String>,
    #[serde(default)]
    trusted_ca_certs_pem_files: Vec<String>,
    #[serde(default)]
    trusted_leaf_certs: Vec<String>,
    #[serde(default)]
    verifiers: Vec<Map<String, Value>>,
    #[serde(default)]
    mode: String,
}

/// `ca`: a pool of trusted authorities, from either of the two providers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustPoolConfig {
    #[serde(rename = "provider")]
    _provider: String,
    #[serde(default)]
    trusted_ca_certs: Vec<String>,
    #[serde(default)]
    pem_files: Vec<String>,
}

/// The verifier `leaf`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafVerifierConfig {
    #[serde(rename = "verifier")]
    _verifier: String,
    #[serde(default)]
    leaf_certs_loaders: Vec<LeafLoaderConfig>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafLoaderConfig {
    loader: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    folders: Vec<String>,
    #[serde(default)]
    certificates: Vec<String>,
}

impl ClientAuthConfig {
    /// Caddy's rule: an object without any setting requests no certificate.
    pub(super) fn is_active(&self) -> bool {
        self.ca.is_some()
            || !self.mode.is_empty()
            || ![&self.trusted_ca_certs, &self.trusted_ca_certs_pem_files, &self.trusted_leaf_certs]
                .into_iter()
                .all(Vec::is_empty)
            || !self.verifiers.is_empty()
    }

    pub(super) fn read(&self, build: &mut Build<'_>) -> Result<ClientAuthentication, BuildError> {
        let mut authorities = Vec::new();
        let old = !self.trusted_ca_certs.is_empty() || !self.trusted_ca_certs_pem_files.is_empty();
        if old && self.ca.is_some() {
            let expected = "either it or trusted_ca_certs and trusted_ca_certs_pem_files";
            return build.at("ca", |build| Err(build.refuse("both", expected)));
        }
        base64(&self.trusted_ca_certs, "trusted_ca_certs", &mut authorities, build)?;
        files(&self.trusted_ca_certs_pem_files, "trusted_ca_certs_pem_files", &mut authorities, build)?;
        if let Some(pool) = &self.ca {
            build.at("ca", |build| read_pool(pool, &mut authorities, build))?;
        }
        let mut leaves = Vec::new();
        base64(&self.trusted_leaf_certs, "trusted_leaf_certs", &mut leaves, build)?;
        for (index, verifier) in self.verifiers.iter().enumerate() {
            build.at(format!("verifiers[{index}]"), |build| read_verifier(verifier, &mut leaves, build))?;
        }
        let mode = match &*self.mode {
            // Caddy's default: verify if certificates are configured to verify against.
            "" if authorities.is_empty() && self.trusted_leaf_certs.is_empty() => ClientAuthenticationMode::Require,
            "" | "require_and_verify" => ClientAuthenticationMode::RequireAndVerify,
            "request" => ClientAuthenticationMode::Request,
            "require" => ClientAuthenticationMode::Require,
            "verify_if_given" => ClientAuthenticationMode::VerifyIfGiven,
            other => {
                let expected = "request, require, verify_if_given or require_and_verify";
                return build.at("mode", |build| Err(build.refuse(other, expected)));
            }
        };
        Ok(ClientAuthentication { mode, authorities, leaves })
    }
}

fn read_pool(pool: &Map<String, Value>, out: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    let json = Value::Object(pool.clone());
    match pool.get("provider").and_then(Value::as_str) {
        Some("inline") => {
            let pool: TrustPoolConfig = build.parse(&json)?;
            base64(&pool.trusted_ca_certs, "trusted_ca_certs", out, build)
        }
        Some("file") => {
            let pool: TrustPoolConfig = build.parse(&json)?;
            files(&pool.pem_files, "pem_files", out, build)
        }
        Some(name) => Err(build.error(Problem::UnknownModule { kind: "ca_pool.source", name: name.to_owned() })),
        None => Err(build.refuse(json.to_string(), "an object with a 'provider' key: inline or file")),
    }
}

fn read_verifier(
    written: &Map<String, Value>,
    out: &mut Vec<Vec<u8>>,
    build: &mut Build<'_>,
) -> Result<(), BuildError> {
    let json = Value::Object(written.clone());
    match written.get("verifier").and_then(Value::as_str) {
        Some("leaf") => {}
        Some(name) => {
            return Err(build.error(Problem::UnknownModule { kind: "client_auth.verifier", name: name.to_owned() }));
        }
        None => return Err(build.refuse(json.to_string(), "an object with a 'verifier' key: leaf")),
    }
    let before = out.len();
    let leaf: LeafVerifierConfig = build.parse(&json)?;
    for (index, loader) in leaf.leaf_certs_loaders.iter().enumerate() {
        build.at(format!("leaf_certs_loaders[{index}]"), |build| match &*loader.loader {
            "file" => files(&loader.files, "files", out, build),
            "folder" => folders(&loader.folders, out, build),
            "pem" => texts(&loader.certificates, out, build),
            // Caddy takes the loader without keys, too.
            "storage" => match loader.certificates.as_slice() {
                [] => Ok(()),
                [key, ..] => build.at("certificates[0]", |build| {
                    Err(build.refuse(
                        key,
                        "files, folders or PEM texts: certificates in storage are not built (docs/refused.md)",
                    ))
                }),
            },
            name => Err(build.error(Problem::UnknownModule { kind: "leaf_cert_loader", name: name.to_owned() })),
        })?;
    }
    // In Caddy an empty list rejects every client; in the plan it would accept every client. Reject it here instead.
    if out.len() == before { Err(build.refuse("no certificate", "one leaf certificate at least")) } else { Ok(()) }
}

fn base64(written: &[String], key: &str, out: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, text) in written.iter().enumerate() {
        let text = known(text, build);
        match BASE64_STANDARD.decode(text.trim()) {
            // 0x30 is the tag of a SEQUENCE, with which every certificate starts (RFC 5280 §4.1).
            Ok(der) if der.first() == Some(&0x30) => out.push(der),
            _ => {
                let found = format!("a text of {} bytes", text.len());
                return build.at(format!("{key}[{index}]"), |build| Err(build.refuse(found, BASE64_DER)));
            }
        }
    }
    Ok(())
}

fn files(written: &[String], key: &str, out: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, path) in written.iter().enumerate() {
        let path = PathBuf::from(known(path, build));
        build.at(format!("{key}[{index}]"), |build| file(&path, out, build))?;
    }
    Ok(())
}

fn folders(written: &[String], out: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, folder) in written.iter().enumerate() {
        let folder = PathBuf::from(known(folder, build));
        build.at(format!("folders[{index}]"), |build| {
            let entries = std::fs::read_dir(&folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
            let entries = entries.map_err(|error| unreadable(&folder, &error, build))?;
            let mut paths: Vec<_> = entries.iter().map(std::fs::DirEntry::path).collect();
            paths.retain(|path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pem")));
            paths.sort();
            paths.iter().try_for_each(|path| file(path, out, build))
        })?;
    }
    Ok(())
}

fn file(path: &Path, out: &mut Vec<Vec<u8>>, build: &Build<'_>) -> Result<(), BuildError> {
    let text = std::fs::read(path).map_err(|error| unreadable(path, &error, build))?;
    pem(&text, &path.display().to_string(), out, build)
}

fn texts(written: &[String], out: &mut Vec<Vec<u8>>, build: &mut Build<'_>) -> Result<(), BuildError> {
    for (index, text) in written.iter().enumerate() {
        let text = known(text, build);
        let found = format!("a text of {} bytes", text.len());
        build.at(format!("certificates[{index}]"), |build| pem(text.as_bytes(), &found, out, build))?;
    }
    Ok(())
}

fn pem(text: &[u8], found: &str, out: &mut Vec<Vec<u8>>, build: &Build<'_>) -> Result<(), BuildError> {
    let before = out.len();
    for certificate in CertificateDer::pem_slice_iter(text) {
        let certificate =
            certificate.map_err(|error| build.refuse(format!("{found}: {error}"), "certificates as PEM"))?;
        out.push(certificate.to_vec());
    }
    if out.len() == before { Err(build.refuse(found, "certificates as PEM")) } else { Ok(()) }
}

fn unreadable(path: &Path, error: &std::io::Error, build: &Build<'_>) -> BuildError {
    build.refuse(format!("{}: {error}", path.display()), "a readable file or folder")
}

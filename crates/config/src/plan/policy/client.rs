//! `client_authentication`: the certificates that clients must present.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use causeway_pipeline::build::Problem;
use causeway_pipeline::build::trust_pool::{
    CertificateList, base64_certificates, list_certificates, pem_certificates, pem_file_certificates,
    pem_files_certificates, stored_certificates, trust_pool,
};
use causeway_pipeline::{Build, BuildError, ClientAuthentication, ClientAuthenticationMode};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientAuthConfig {
    #[serde(default)]
    ca: Option<Value>,
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
    /// PEM texts, or their keys in the storage.
    #[serde(default)]
    certificates: Vec<String>,
    #[serde(default)]
    storage: Option<Value>,
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
        let old = !self.trusted_ca_certs.is_empty() || !self.trusted_ca_certs_pem_files.is_empty();
        if old && self.ca.is_some() {
            let expected = "either it or trusted_ca_certs and trusted_ca_certs_pem_files";
            return build.at("ca", |build| Err(build.refuse("both", expected)));
        }
        let mut authorities = base64_certificates("trusted_ca_certs", &self.trusted_ca_certs, build)?;
        let files = &self.trusted_ca_certs_pem_files;
        authorities.extend(pem_files_certificates("trusted_ca_certs_pem_files", files, build)?);
        if let Some(pool) = &self.ca {
            authorities = build.at("ca", |build| trust_pool(pool, build))?;
        }
        let leaves = self.leaves(build)?;
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

    /// The certificates that all verifiers accept, as Caddy runs one after the other. `trusted_leaf_certs` are one more
    /// verifier.
    fn leaves(&self, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
        let mut lists = Vec::with_capacity(self.verifiers.len() + 1);
        for (index, verifier) in self.verifiers.iter().enumerate() {
            lists.push(build.at(format!("verifiers[{index}]"), |build| read_verifier(verifier, build))?);
        }
        if !self.trusted_leaf_certs.is_empty() {
            lists.push(base64_certificates("trusted_leaf_certs", &self.trusted_leaf_certs, build)?);
        }
        let Some((first, others)) = lists.split_first() else { return Ok(CertificateList::new()) };
        let others: Vec<HashSet<&[u8]>> = others.iter().map(|list| list.iter().map(|der| &der[..]).collect()).collect();
        let mut leaves = first.clone();
        leaves.retain(|leaf| others.iter().all(|list| list.contains(&leaf[..])));
        if leaves.is_empty() {
            // In Caddy no client is accepted then; in the plan every client would be.
            let expected = "one leaf certificate at least that all of them have: each verifier must accept a client";
            return build.at("verifiers", |build| Err(build.refuse("no certificate in common", expected)));
        }
        Ok(leaves)
    }
}

fn read_verifier(written: &Map<String, Value>, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
    let json = Value::Object(written.clone());
    match written.get("verifier").and_then(Value::as_str) {
        Some("leaf") => {}
        Some(name) => {
            return Err(build.error(Problem::UnknownModule { kind: "client_auth.verifier", name: name.to_owned() }));
        }
        None => return Err(build.refuse(json.to_string(), "an object with a 'verifier' key: leaf")),
    }
    let leaf: LeafVerifierConfig = build.parse(&json)?;
    let mut leaves = CertificateList::new();
    for (index, loader) in leaf.leaf_certs_loaders.iter().enumerate() {
        leaves.extend(build.at(format!("leaf_certs_loaders[{index}]"), |build| loader.read(build))?);
    }
    // In Caddy an empty list rejects every client; in the plan it would accept every client. Reject it here instead.
    if leaves.is_empty() { Err(build.refuse("no certificate", "one leaf certificate at least")) } else { Ok(leaves) }
}

impl LeafLoaderConfig {
    fn read(&self, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
        match &*self.loader {
            "file" => pem_files_certificates("files", &self.files, build),
            "folder" => directories_certificates(&self.folders, build),
            "pem" => texts_certificates(&self.certificates, build),
            "storage" => stored_certificates("certificates", self.storage.as_ref(), &self.certificates, build),
            name => Err(build.error(Problem::UnknownModule { kind: "leaf_cert_loader", name: name.to_owned() })),
        }
    }
}

/// Reads the certificates in the files `*.pem` of these directories.
fn directories_certificates(written: &[String], build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
    list_certificates("folders", written, build, |directory, build| {
        let entries = fs::read_dir(directory).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let entries =
            entries.map_err(|error| build.refuse(format!("{directory}: {error}"), "a directory that can be read"))?;
        let mut paths: Vec<_> = entries.iter().map(fs::DirEntry::path).collect();
        let is_pem = |path: &Path| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pem"));
        paths.retain(|path| is_pem(path));
        paths.sort();
        let mut certificates = CertificateList::new();
        for path in &paths {
            certificates.extend(pem_file_certificates(path, build)?);
        }
        Ok(certificates)
    })
}

fn texts_certificates(written: &[String], build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
    list_certificates("certificates", written, build, |text, build| {
        pem_certificates(text.as_bytes(), &format!("a text of {} bytes", text.len()), build)
    })
}

//! Certificates of a test authority, in storage with Caddy's layout, and the Caddyfile of their sites.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::configurations::host;

/// The authority in the configurations. No program listens on this port, so nothing can be ordered.
const DIRECTORY: &str = "https://127.0.0.1:1/directory";
/// The authority's directory in storage.
pub const AUTHORITY: &str = "127.0.0.1-1-directory";
/// Lifetime of the certificates.
pub const DAYS: i64 = 90;

/// A storage directory with certificates.
pub struct Stored {
    /// The directory.
    pub dir: PathBuf,
    /// The DER of each name's leaf.
    pub leaves: Vec<Vec<u8>>,
    /// Mean size of a chain's DER, in bytes.
    pub chain_bytes: f64,
}

/// Writes `count` certificates with keys on curve P-256 to a new directory: those of [`host`]'s names, under the
/// storage key `authority`. They are valid for `days_left` days more. With [`DAYS`] nothing is due; with less than a
/// third of it, everything.
pub fn write(dir: &Path, count: usize, authority: &str, days_left: i64) -> Result<Stored> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    let now = time::OffsetDateTime::now_utc();
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "Bench Authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    let authority_key = KeyPair::generate()?;
    let root = params.self_signed(&authority_key)?;
    let issuer = Issuer::new(params, authority_key);
    let mut leaves = Vec::with_capacity(count);
    let mut bytes = 0;
    for number in 0..count {
        let name = host(number, count);
        let mut params = CertificateParams::new(vec![name.clone()])?;
        params.distinguished_name.push(DnType::CommonName, &name);
        params.not_after = now + time::Duration::days(days_left);
        params.not_before = params.not_after - time::Duration::days(DAYS) - time::Duration::HOUR;
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &issuer)?;
        let dir = dir.join("certificates").join(authority).join(&name);
        fs::create_dir_all(&dir)?;
        let file = |extension: &str| dir.join(format!("{name}.{extension}"));
        fs::write(file("crt"), leaf.pem() + &root.pem())?;
        fs::write(file("key"), key.serialize_pem())?;
        fs::write(file("json"), format!("{{\n\t\"sans\": [\n\t\t\"{name}\"\n\t],\n\t\"issuer_data\": null\n}}"))?;
        bytes += leaf.der().len() + root.der().len();
        leaves.push(leaf.der().to_vec());
    }
    Ok(Stored { dir: dir.to_owned(), leaves, chain_bytes: bytes as f64 / count as f64 })
}

/// Returns a Caddyfile for both Caddy and Causeway with a site for each name.
pub fn caddyfile(storage: &Path, count: usize, port: u16) -> String {
    let mut text = format!(
        "{{\n\tadmin off\n\tpersist_config off\n\tauto_https disable_redirects\n\tacme_ca {DIRECTORY}\n\
         \tstorage file_system {}\n}}\n",
        storage.display()
    );
    for number in 0..count {
        let host = host(number, count);
        let _ = write!(text, "https://{host}:{port} {{\n\tbind 127.0.0.1\n\trespond \"Hello, World!\"\n}}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dir_has_caddys_layout() {
        let dir = std::env::temp_dir().join(format!("causeway-bench-stored-{}", std::process::id()));
        let stored = write(&dir, 2, AUTHORITY, DAYS).unwrap();
        let site = dir.join("certificates/127.0.0.1-1-directory/site0.bench.example/site0.bench.example.crt");
        let chain = fs::read_to_string(site).unwrap();
        assert_eq!(chain.matches("BEGIN CERTIFICATE").count(), 2);
        assert!(stored.leaves.len() == 2 && stored.chain_bytes > 500.0, "{}", stored.chain_bytes);
        let text = caddyfile(&dir, 2, 8443);
        assert!(text.contains("https://site0.bench.example:8443 {") && text.contains("https://bench.example:8443 {"));
        fs::remove_dir_all(dir).unwrap();
    }
}

//! Certificates that the operator supplies: Caddy's `load_files`, `load_pem`, `load_storage` and `load_folders`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use rustls::pki_types::pem::SectionKind;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{Certificate, Error, SharedStorage, pem};

/// Deepest nesting of certificate directories that is read.
const DEPTH_MAX: usize = 32;

/// One configured source of certificates.
#[derive(Debug, Clone)]
pub enum LoadedSource {
    /// A chain and a key in PEM files; both paths may name one file.
    Files {
        /// The chain, leaf first.
        certificate: PathBuf,
        /// The leaf's key.
        key: PathBuf,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A chain and a key as PEM text in the configuration.
    Pem {
        /// The position in the configuration, for error messages.
        location: String,
        /// The chain, leaf first.
        certificate: String,
        /// The leaf's key.
        key: String,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A chain and a key as PEM texts in a storage, by their keys.
    Stored {
        /// The storage.
        storage: SharedStorage,
        /// The chain, leaf first.
        certificate: String,
        /// The leaf's key.
        key: String,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A directory, searched recursively. Every file whose extension is `pem` (in any case) must hold a chain and its
    /// key.
    Directory(PathBuf),
}

/// Loads all sources, in order. Blocks on disk.
///
/// # Errors
/// Returns the first error, with the file or the position in the configuration.
pub fn load(sources: &[LoadedSource]) -> Result<Vec<Certificate>, Error> {
    let mut certificates = Vec::new();
    for source in sources {
        match source {
            LoadedSource::Files { certificate, key, tags } => certificates.push(files(certificate, key, tags.clone())?),
            LoadedSource::Pem { location, certificate, key, tags } => {
                let (chain_location, key_location) = (format!("{location}.certificate"), format!("{location}.key"));
                let (chain, key) =
                    (pem::chain(certificate.as_bytes(), &chain_location)?, pem::key(key.as_bytes(), &key_location)?);
                certificates.push(checked(chain, key, tags.clone(), (&chain_location, &key_location))?);
            }
            LoadedSource::Stored { storage, certificate, key, tags } => {
                let locations = [certificate, key].map(|key| storage.location(key));
                let value = |key: &str| storage.load(key)?.ok_or_else(|| missing(storage.location(key)));
                let chain = pem::chain(&value(certificate)?, &locations[0])?;
                let key = pem::key(&value(key)?, &locations[1])?;
                certificates.push(checked(chain, key, tags.clone(), (&locations[0], &locations[1]))?);
            }
            LoadedSource::Directory(path) => directory(path, 0, &mut certificates)?,
        }
    }
    Ok(certificates)
}

fn missing(location: String) -> Error {
    Error::Read(location, io::Error::new(io::ErrorKind::NotFound, "there is no such value in the storage"))
}

fn files(certificate: &Path, key: &Path, tags: Vec<String>) -> Result<Certificate, Error> {
    let (chain_location, key_location) = (certificate.display().to_string(), key.display().to_string());
    let chain = pem::chain(&read(certificate)?, &chain_location)?;
    let key = pem::key(&read(key)?, &key_location)?;
    checked(chain, key, tags, (&chain_location, &key_location))
}

/// Checks that chain and key match, and logs a warning if clients are likely to reject the certificate.
fn checked(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    tags: Vec<String>,
    locations: (&str, &str),
) -> Result<Certificate, Error> {
    let certificate = Certificate::new(chain, key, tags, locations)?;
    warn(&certificate, locations.0);
    Ok(certificate)
}

fn warn(certificate: &Certificate, location: &str) {
    if let Some(warning) = certificate.warning(SystemTime::now()) {
        tracing::warn!("{location}: {warning}");
    }
}

fn directory(path: &Path, depth: usize, certificates: &mut Vec<Certificate>) -> Result<(), Error> {
    let failed = |error| Error::Read(path.display().to_string(), error);
    let mut entries: Vec<_> = fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // `read_dir` has no fixed order. Sorting makes the choice between certificates for one name equal on every start.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        // As in Caddy, links to files are followed and those to directories are not: two links to their own directory
        // would double the files with each level.
        if entry.file_type().map_err(failed)?.is_dir() {
            if depth < DEPTH_MAX {
                directory(&path, depth + 1, certificates)?;
            }
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pem")) && !path.is_dir() {
            certificates.push(bundle(&path)?);
        }
    }
    Ok(())
}

/// Reads one file that holds a chain and a key.
fn bundle(path: &Path) -> Result<Certificate, Error> {
    let location = path.display().to_string();
    let certificate = from_bundle(&read(path)?, &location)?;
    warn(&certificate, &location);
    Ok(certificate)
}

/// Parses a PEM text with a chain, leaf first, and the leaf's key, in any order. As in Caddy, the first key counts;
/// later keys are ignored. `location` is the text's origin, for error messages.
///
/// # Errors
/// The text has no chain or no key, they do not belong together, or there is anything else in it.
pub fn from_bundle(text: &[u8], location: &str) -> Result<Certificate, Error> {
    let chain = pem::chain(text, location)?;
    let foreign = pem::sections(text).find_map(|section| match section {
        Ok(
            SectionKind::Certificate | SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
        ) => None,
        Ok(other) => Some(format!("a section of another kind, {other:?}")),
        Err(error) => Some(error.to_string()),
    });
    if let Some(found) = foreign {
        return Err(Error::BadCertificate(location.to_owned(), found));
    }
    Certificate::new(chain, pem::key(text, location)?, Vec::new(), (location, location))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::Read(path.display().to_string(), error))
}

#[cfg(test)]
mod tests;

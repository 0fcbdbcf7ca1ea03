//! Certificates that the operator has already: Caddy's `load_files`, `load_pem` and `load_folders`.

use std::fs;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::SectionKind;

use super::{Certificate, Error, pem};

/// How deep folders of certificates may lie in each other; a link that leads back up ends here.
const DEPTH_MAX: usize = 32;

/// Where certificates are to be loaded from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Two files of PEM, which may be the same one.
    Files {
        /// The chain, leaf first.
        certificate: PathBuf,
        /// The leaf's key.
        key: PathBuf,
        /// What the configuration calls it.
        tags: Vec<String>,
    },
    /// Two texts of PEM.
    Pem {
        /// What mistakes call the place.
        place: String,
        /// The chain, leaf first.
        certificate: String,
        /// The leaf's key.
        key: String,
        /// What the configuration calls it.
        tags: Vec<String>,
    },
    /// Every file in a folder, and in those below it, whose name ends with `.pem`, each with a chain and a key.
    Folder(PathBuf),
}

/// Loads them all, in order.
///
/// # Errors
/// The first mistake, with its file.
pub fn load(sources: &[Source]) -> Result<Vec<Certificate>, Error> {
    let mut certificates = Vec::new();
    for source in sources {
        match source {
            Source::Files { certificate, key, tags } => certificates.push(files(certificate, key, tags.clone())?),
            Source::Pem { place, certificate, key, tags } => {
                let (chain_place, key_place) = (format!("{place}.certificate"), format!("{place}.key"));
                let (chain, key) =
                    (pem::chain(certificate.as_bytes(), &chain_place)?, pem::key(key.as_bytes(), &key_place)?);
                certificates.push(Certificate::new(chain, key, tags.clone(), (&chain_place, &key_place))?);
            }
            Source::Folder(path) => folder(path, 0, &mut certificates)?,
        }
    }
    Ok(certificates)
}

fn files(certificate: &Path, key: &Path, tags: Vec<String>) -> Result<Certificate, Error> {
    let (chain_place, key_place) = (certificate.display().to_string(), key.display().to_string());
    let chain = pem::chain(&read(certificate)?, &chain_place)?;
    let key = pem::key(&read(key)?, &key_place)?;
    Certificate::new(chain, key, tags, (&chain_place, &key_place))
}

fn folder(path: &Path, depth: usize, certificates: &mut Vec<Certificate>) -> Result<(), Error> {
    let failed = |error| Error::Read(path.to_owned(), error);
    let mut entries: Vec<_> = fs::read_dir(path).map_err(failed)?.collect::<Result<Vec<_>, _>>().map_err(failed)?;
    // In the same order on every start: it decides between certificates for the same name.
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            if depth < DEPTH_MAX {
                folder(&path, depth + 1, certificates)?;
            }
        } else if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("pem")) {
            certificates.push(bundle(&path)?);
        }
    }
    Ok(())
}

/// One file with a chain and a key; a second key in it is not looked at, as in Caddy.
fn bundle(path: &Path) -> Result<Certificate, Error> {
    let place = path.display().to_string();
    let text = read(path)?;
    let foreign = pem::sections(&text).find_map(|section| match section {
        Ok(
            SectionKind::Certificate | SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
        ) => None,
        Ok(other) => Some(format!("a section of another kind, {other:?}")),
        Err(error) => Some(error.to_string()),
    });
    if let Some(found) = foreign {
        return Err(Error::BadCertificate(place, found));
    }
    Certificate::new(pem::chain(&text, &place)?, pem::key(&text, &place)?, Vec::new(), (&place, &place))
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::Read(path.to_owned(), error))
}

#[cfg(test)]
mod tests;

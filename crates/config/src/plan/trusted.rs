//! The sources of trusted certificates outside the configuration and its files, which the server reads.

use std::cell::Cell;
use std::rc::Rc;

use causeway_pipeline::build::trust_pool::{CertificateList, TrustReader, TrustSource, pem_certificates};
use causeway_pipeline::{Build, BuildError};

use super::certificates::CertificateAuthority;
use super::pki::{KNOWN_AUTHORITY, LOCAL};
use super::storage::{Storage, read_own};
use super::{CertificateReadError, CertificateReader};

/// Reads the sources of one configuration.
pub(super) struct TrustedSources<'r> {
    pub(super) reader: &'r dyn CertificateReader,
    /// The storage of the configuration.
    pub(super) storage: Storage,
    /// The configured authorities.
    pub(super) authorities: Vec<CertificateAuthority>,
    /// A pool has used the local authority, which exists without being configured.
    pub(super) uses_local: Rc<Cell<bool>>,
}

impl<'r> TrustedSources<'r> {
    pub(super) fn into_reader(self) -> TrustReader<'r> {
        Rc::new(move |source, build| self.read(source, build))
    }

    fn read(&self, source: TrustSource<'_>, build: &mut Build<'_>) -> Result<CertificateList, BuildError> {
        let unread = |found: &str, fault: CertificateReadError, build: &Build<'_>| {
            build.refuse(found, format!("a source of certificates that can be read: {fault}"))
        };
        let (found, text) = match source {
            TrustSource::System => return self.reader.system().map_err(|fault| unread("system", fault, build)),
            TrustSource::AuthorityRoot(id) | TrustSource::AuthorityIntermediate(id) => {
                let authority = self.authority(id, build)?;
                let certificates = self.reader.authority(&authority, &self.storage);
                let certificates = certificates.map_err(|fault| unread(id, fault, build))?;
                let is_root = matches!(source, TrustSource::AuthorityRoot(_));
                (id, if is_root { certificates.root } else { certificates.intermediate }.into_bytes())
            }
            TrustSource::Stored { storage, key } => {
                let own = read_own(storage, build)?;
                let text = self.reader.stored(own.as_ref().unwrap_or(&self.storage), key);
                (key, text.map_err(|fault| unread(key, fault, build))?)
            }
            TrustSource::Http { url, tls } => {
                // The error must not show a password.
                let found = if url.contains('@') { "a URL with a user" } else { url };
                (found, self.reader.fetched(url, tls).map_err(|fault| unread(found, fault, build))?)
            }
        };
        pem_certificates(&text, found, build)
    }

    fn authority(&self, id: &str, build: &Build<'_>) -> Result<CertificateAuthority, BuildError> {
        if let Some(known) = self.authorities.iter().find(|known| known.id == id) {
            return Ok(known.clone());
        }
        if id != LOCAL {
            return Err(build.refuse(id, KNOWN_AUTHORITY));
        }
        self.uses_local.set(true);
        Ok(CertificateAuthority::new(LOCAL))
    }
}

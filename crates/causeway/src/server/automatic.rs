//! Automatic certificates for a server that the embedding program runs itself, such as one of `tower-edge`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use causeway_engine::certificate::CertifiedKey;
use causeway_engine::{Certificates, ObtainedCertificate, SessionTickets, SoughtCertificate};
use serde_json::{Value, json};

use super::certificates::{CertificateStatus, Custody};
use super::compiled::compile;
use super::error::LoadError;
use super::storage;

/// Obtains certificates and renews them, as [`Server`](crate::Server) does for its sites, for another server: its
/// `Certificates`. Clones share them; after the last is dropped none is renewed.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use causeway::server::AutomaticCertificates;
/// use serde_json::json;
///
/// let directory = std::env::temp_dir().join("automatic-certificates");
/// // The local authority signs this name at once; Let's Encrypt signs public ones.
/// let tls = json!({ "certificates": { "automate": ["app.localhost"] } });
/// let certificates = AutomaticCertificates::start(tls, &directory).await?;
/// assert!(certificates.names()[0].record.not_after.is_some());
/// # std::fs::remove_dir_all(directory).unwrap();
/// # Ok::<_, causeway::server::LoadError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct AutomaticCertificates {
    finder: Arc<dyn Certificates>,
    custody: Arc<Custody>,
}

impl AutomaticCertificates {
    /// Starts to obtain certificates by the settings of `tls`, the JSON of Caddy's app of this name:
    /// `certificates.automate` lists the names, and `automation.policies` their issuers and challenges. They are stored
    /// in `directory`, for example [`data_directory`](super::data_directory).
    ///
    /// The local authority signs its names before this returns. A public authority signs a name after it has connected
    /// to port 443 of the name (TLS-ALPN-01), so the server must listen there: start it at once after this. Until then
    /// a handshake for the name fails. HTTP-01 is answered only by a [`Server`](crate::Server) of the process; without
    /// one, policies with `"challenges": {"http": {"disabled": true}}` save the authority a second try after a failed
    /// one.
    ///
    /// Requires a tokio runtime with I/O and time, which runs as long as the certificates are to be renewed.
    ///
    /// # Errors
    /// Returns the invalid setting, with its JSON path, or the reason why the local authority cannot sign.
    pub async fn start(tls: Value, directory: impl Into<PathBuf>) -> Result<Self, LoadError> {
        let directory = directory.into();
        let data = directory.clone();
        let compiled = tokio::task::spawn_blocking(move || {
            let config = json!({ "apps": { "tls": tls } });
            compile(config, &crate::registry(), &data, None)
        });
        let compiled = compiled.await.unwrap_or(Err(LoadError::Panicked))?;
        for warning in &compiled.loaded.warnings {
            tracing::warn!("{warning}");
        }
        let storage = storage::open(&compiled.loaded.storage, &directory)?;
        let wanted = &compiled.loaded.certificates;
        let mut custody = Custody::open(wanted, compiled.certificates, storage, &directory, None).await?;
        custody.start_orders();
        Ok(Self { finder: custody.finder(), custody: Arc::new(custody) })
    }

    /// Describes every name, sorted: its certificate, and the last failure to obtain one. Failures are also logged, as
    /// errors.
    pub fn names(&self) -> Vec<CertificateStatus> {
        self.custody.names()
    }
}

impl fmt::Debug for AutomaticCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AutomaticCertificates").field("finder", &self.finder).finish_non_exhaustive()
    }
}

impl Certificates for AutomaticCertificates {
    fn find(
        &self,
        server_name: Option<&str>,
        tags: &[String],
        is_usable: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>> {
        self.finder.find(server_name, tags, is_usable)
    }

    fn obtain(&self, sought: SoughtCertificate) -> Option<ObtainedCertificate> {
        self.finder.obtain(sought)
    }

    fn session_tickets(&self) -> SessionTickets {
        self.finder.session_tickets()
    }

    fn challenge(&self, server_name: &str) -> Option<Arc<CertifiedKey>> {
        self.finder.challenge(server_name)
    }

    fn shared_challenge(&self, server_name: &str) -> Option<ObtainedCertificate> {
        self.finder.shared_challenge(server_name)
    }
}

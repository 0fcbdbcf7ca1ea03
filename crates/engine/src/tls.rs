//! TLS: from policies to rustls configurations, the handshake, and a [`Transport`] over its keys.
//!
//! - `names`: suites, groups and protocols by their configuration names
//! - `client_auth`: verification of client certificates; `verify_server`: of upstreams' certificates
//! - `certificate_checks`: checks for both; `x509_v1`: certificates that rustls cannot parse
//! - `client_handshake`: the handshake in the client's role, for upstreams
//! - `plan`: a listener's policies, ready to run, and the choice of one for a ClientHello; `tickets`: keys for the
//!   tickets of sessions
//! - `client_hello`: fields that rustls does not return
//! - `handshake`: from a socket to a connection or a refusal; `session`: rustls's part of it; `write_secret`: keys for
//!   alerts that rustls does not send
//! - `redirect`: responses to requests in cleartext; `secrets_log`: keys for a capture to be decrypted
//! - `stream`: the transport; `records`: its records without I/O; `record`: seals or opens one record
//! - `messages`: handshake messages after the handshake; `alert`: alerts, sent and received; `record_buffer`: the
//!   buffer for incomplete records
//!
//! The embedder supplies certificates: each handshake calls [`Certificates`], so a renewed certificate needs no reload.
//!
//! [`Transport`]: crate::transport::Transport

mod alert;
mod certificate_checks;
mod client_auth;
mod client_handshake;
mod client_hello;
#[cfg(test)]
mod fixture;
#[cfg(fuzzing)]
pub mod fuzzing;
mod handshake;
mod messages;
mod names;
mod plan;
mod record;
mod record_buffer;
mod records;
mod redirect;
mod secrets_log;
mod session;
mod stream;
mod tickets;
mod verify_server;
mod write_secret;
mod x509_v1;

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

pub use client_auth::ClientTrust;
pub(crate) use client_handshake::{Connected, Connector};
pub(crate) use handshake::{Secured, spawn_handshake};
pub use plan::TlsError;
pub(crate) use plan::{Tickets, TlsPlan};
pub(crate) use record::SEALED_BYTES;
pub(crate) use stream::TlsStream;
pub use tickets::{SessionTickets, TicketKeys};

/// The result of [`Certificates::obtain`]; `None`: no certificate could be obtained.
pub type ObtainedCertificate = Pin<Box<dyn Future<Output = Option<Arc<CertifiedKey>>> + Send>>;

/// The facts of a ClientHello for which a certificate is obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SoughtCertificate {
    /// The server name in lower case; `None` if the client sent none.
    pub server_name: Option<String>,
    /// The address that the client has connected to; `None` on a Unix socket.
    pub local: Option<IpAddr>,
    /// The signature schemes that the client offers and that can be used, by their numbers (RFC 8446 §4.2.3).
    pub signature_schemes: Vec<u16>,
    /// The cipher suites that the client offers, by their numbers.
    pub cipher_suites: Vec<u16>,
}

/// The source of our certificates, implemented by the embedder: those for clients, and those of a name that we present
/// to upstreams ([`OwnCertificate::Managed`](causeway_pipeline::upstream::OwnCertificate)).
pub trait Certificates: Send + Sync + fmt::Debug {
    /// Returns a certificate for `server_name`, by an exact match or a wildcard. A non-empty `tags` restricts the
    /// choice to certificates with at least one of these tags. The name is in lower case. It is an IP address when the
    /// client sent no name, and `None` when neither that address nor the policy's default name has a certificate. Of
    /// several certificates, one that `is_usable` accepts is preferred: the client can verify its signatures.
    ///
    /// Each handshake calls this on a worker thread, so it must not block; a map lookup is the expected cost.
    fn find(
        &self,
        server_name: Option<&str>,
        tags: &[String],
        is_usable: &dyn Fn(&CertifiedKey) -> bool,
    ) -> Option<Arc<CertifiedKey>>;

    /// Starts to obtain a certificate for a handshake for which [`find`](Self::find) has none (on-demand TLS). The
    /// handshake waits for the result for at most a minute; dropping the future does not cancel the work. `None`: the
    /// handshake gets no certificate in this way. Must not block.
    fn obtain(&self, _sought: SoughtCertificate) -> Option<ObtainedCertificate> {
        None
    }

    /// Returns how the tickets of sessions are sealed. Called once for each configuration.
    fn session_tickets(&self) -> SessionTickets {
        SessionTickets::default()
    }

    /// Returns the certificate that answers an authority's TLS-ALPN-01 challenge for `server_name` (RFC 8737 §3): the
    /// client has offered `acme-tls/1` by ALPN. The connection closes after the handshake.
    fn challenge(&self, _server_name: &str) -> Option<Arc<CertifiedKey>> {
        None
    }

    /// Starts to look for a challenge that [`challenge`](Self::challenge) does not have, because another server has
    /// opened it. The client has offered `acme-tls/1` and nothing else. The handshake waits for the result within its
    /// own time limit. Must not block.
    fn shared_challenge(&self, _server_name: &str) -> Option<ObtainedCertificate> {
        None
    }
}

/// The rustls types that an implementation of [`Certificates`] needs.
pub mod certificate {
    pub use rustls::crypto::aws_lc_rs::sign::any_supported_type;
    pub use rustls::pki_types::pem::PemObject;
    pub use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    pub use rustls::sign::CertifiedKey;

    /// Combines a chain, leaf first, with the leaf's private key.
    ///
    /// # Errors
    /// The chain is empty or its leaf is malformed, the key's type is not supported, or the key does not belong to the
    /// leaf.
    pub fn certified_key(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<CertifiedKey, rustls::Error> {
        super::certificate_checks::certified_key(chain, &key)
    }
}

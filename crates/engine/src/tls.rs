//! TLS behind the engine's seam: from policies to rustls configurations, the handshake, and a [`Transport`] over its keys.
//!
//! - `names`: suites, groups and protocols as configurations write them
//! - `client`: what a client has to show
//! - `connect`: the handshake in the client's role, for upstreams
//! - `plan`: a listener's policies as they run, and which of them a ClientHello meets
//! - `handshake`: from a socket to a connection, or to a refusal; `session`: rustls's part of it
//! - `stream`: the transport; `record`: records sealed and opened; `inbound`: sealed octets that wait
//!
//! Certificates are the owner's: [`Certificates`] is asked at each handshake, so that a renewed one needs no reload.
//!
//! [`Transport`]: crate::transport::Transport

mod client;
mod connect;
mod handshake;
mod inbound;
mod names;
mod plan;
mod record;
mod session;
mod stream;

use std::fmt;
use std::sync::Arc;

use rustls::sign::CertifiedKey;

pub(crate) use connect::{Connected, Connector};
pub(crate) use handshake::{Secured, begin};
pub use plan::TlsError;
pub(crate) use plan::{Tickets, TlsPlan};
pub(crate) use record::SEALED_OCTETS;
pub(crate) use stream::TlsStream;

/// Where the engine finds certificates; the owner's.
pub trait Certificates: Send + Sync + fmt::Debug {
    /// A certificate for this name, exact or by a wildcard of its own, with one of these tags if there are any. The name is in
    /// lower case; it may be an address, where a client sent no name. `None`: the client sent no name, and neither our
    /// address nor a default name has one.
    ///
    /// Called on a worker for each handshake: it must not block, and should be a look-up.
    fn find(&self, server_name: Option<&str>, tags: &[String]) -> Option<Arc<CertifiedKey>>;
}

/// What an owner of certificates needs of rustls.
pub mod certificate {
    pub use rustls::crypto::aws_lc_rs::sign::any_supported_type;
    pub use rustls::pki_types::pem::PemObject;
    pub use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    pub use rustls::sign::CertifiedKey;

    /// A chain, leaf first, and its key, which must belong to the leaf.
    ///
    /// # Errors
    /// The key is of no known kind, or not the leaf's.
    pub fn certified_key(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<CertifiedKey, rustls::Error> {
        CertifiedKey::from_der(chain, key, &rustls::crypto::aws_lc_rs::default_provider())
    }
}

//! What sites and the global block say of TLS, in shapes that both share.
//!
//! - [`Tls`]: what one `tls` directive says;
//! - `issuer`, `acme`: who issues certificates, and how a certificate is asked for;
//! - `client_auth`, `trust_pool`: which clients are let in, and whose certificates are believed;
//! - `connection`: the handshake policies of a server, from the directives of its sites.

mod acme;
mod client_auth;
mod connection;
mod issuer;
mod trust_pool;

use serde_json::{Map, Value};

pub(crate) use acme::{complete, dns_option, eab, preferred_chains, provider};
pub(crate) use client_auth::client_auth;
pub(crate) use connection::ConnectionPolicies;
pub(crate) use issuer::Issuer;
pub(crate) use trust_pool::trust_pool;

/// What a `tls` directive says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tls {
    /// The handshake policy, but for its names and the choice of a certificate.
    pub(crate) connection: Map<String, Value>,
    /// The tag of the only certificates to choose from.
    pub(crate) tag: Option<String>,
    /// Certificates to load, with their keys.
    pub(crate) files: Vec<Value>,
    /// Folders to load certificates from.
    pub(crate) folders: Vec<Value>,
    pub(crate) issuers: Vec<Issuer>,
    /// Who is asked for a certificate during the handshake.
    pub(crate) managers: Vec<Value>,
    pub(crate) key_type: String,
    pub(crate) renewal_window_ratio: Option<Value>,
    pub(crate) on_demand: bool,
    pub(crate) reuse_private_keys: bool,
    pub(crate) force_automate: bool,
}

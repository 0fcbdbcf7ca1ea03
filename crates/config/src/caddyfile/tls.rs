//! TLS settings of sites and of the global block, in a form that both use.
//!
//! - [`Tls`]: the settings of one `tls` directive
//! - `issuer`, `acme`: certificate issuers, and the settings of ACME
//! - `dns`: DNS providers
//! - `client_auth`, `trust_pool`: client authentication, and the authorities that it trusts
//! - `connection`: a server's TLS connection policies, from the directives of its sites

mod acme;
mod client_auth;
mod connection;
mod dns;
mod issuer;
mod trust_pool;

use serde_json::{Map, Value};

pub(crate) use acme::{complete, dns_option, dns_provider, eab, preferred_chains};
pub(crate) use client_auth::client_auth;
pub(crate) use connection::ConnectionPolicies;
pub(crate) use dns::provider;
pub(crate) use issuer::Issuer;
pub(crate) use trust_pool::trust_pool;

/// The settings of a `tls` directive.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tls {
    /// Members of the connection policy, except for its names and its certificate selection.
    pub(crate) connection: Map<String, Value>,
    /// If set, only certificates with this tag are selected.
    pub(crate) tag: Option<String>,
    /// Certificates to load, with their keys.
    pub(crate) files: Vec<Value>,
    /// Directories to load certificates from.
    pub(crate) directories: Vec<Value>,
    pub(crate) issuers: Vec<Issuer>,
    /// Modules that supply certificates during the handshake (`get_certificate`).
    pub(crate) getters: Vec<Value>,
    pub(crate) key_type: String,
    pub(crate) renewal_window_ratio: Option<Value>,
    pub(crate) on_demand: bool,
    pub(crate) reuse_private_keys: bool,
    pub(crate) force_automate: bool,
}

//! What client and server agreed on in a TLS handshake.
//!
//! - `certificate`: the client's certificate, and what it says
//! - `distinguished_name`: how the names of subjects and issuers are written

mod certificate;
mod distinguished_name;

pub use certificate::{AlternativeName, ClientCertificate};

/// The facts of a connection; all its requests share them.
#[derive(Debug, Clone, Default)]
pub struct TlsFacts {
    /// As Caddy spells it: `tls1.2`, `tls1.3`.
    pub version: &'static str,
    /// IANA's name of the cipher suite.
    pub cipher_suite: &'static str,
    /// What ALPN chose; empty without it.
    pub protocol: &'static str,
    /// The server name that the client sent (RFC 6066 §3).
    pub server_name: Option<Box<str>>,
    /// Whether an earlier session went on.
    pub resumed: bool,
    /// The client's certificate, where it sent one.
    pub client_certificate: Option<ClientCertificate>,
}

//! The result of a TLS handshake.
//!
//! - `certificate`: the client's certificate and its contents
//! - `distinguished_name`: the text form of subjects and issuers

mod certificate;
mod distinguished_name;

pub use certificate::{AlternativeName, ClientCertificate};

/// The TLS parameters of a connection, shared by all its requests.
#[derive(Debug, Clone, Default)]
pub struct TlsFacts {
    /// The TLS version in Caddy's spelling: `tls1.2`, `tls1.3`.
    pub version: &'static str,
    /// IANA's name of the cipher suite.
    pub cipher_suite: &'static str,
    /// The protocol that ALPN selected; empty without ALPN.
    pub protocol: &'static str,
    /// The server name that the client sent (RFC 6066 §3).
    pub server_name: Option<Box<str>>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: bool,
    /// The client's certificate, if it sent one.
    pub client_certificate: Option<ClientCertificate>,
    /// The certificates that the client sent after its own, in DER. They are not necessarily part of the verified chain.
    pub client_intermediates: Vec<Box<[u8]>>,
}

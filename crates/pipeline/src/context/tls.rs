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
    /// The certificates that the client sent after its own, in DER. They are not necessarily part of the verified
    /// chain.
    pub client_intermediates: Vec<Box<[u8]>>,
}

impl TlsFacts {
    /// Returns the version's number in the protocol (RFC 8446 §4.2.1).
    pub fn version_number(&self) -> u16 {
        if self.version == "tls1.2" { 0x0303 } else { 0x0304 }
    }

    /// Returns the registered number of the cipher suite; 0 for one that this version does not negotiate.
    pub fn cipher_suite_number(&self) -> u16 {
        match self.cipher_suite {
            "TLS_AES_128_GCM_SHA256" => 0x1301,
            "TLS_AES_256_GCM_SHA384" => 0x1302,
            "TLS_CHACHA20_POLY1305_SHA256" => 0x1303,
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => 0xc02b,
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => 0xc02c,
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => 0xc02f,
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => 0xc030,
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" => 0xcca8,
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" => 0xcca9,
            _ => 0,
        }
    }
}

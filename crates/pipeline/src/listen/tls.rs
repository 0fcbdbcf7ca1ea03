//! The TLS configuration of a listener.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use ipnet::IpNet;

/// The TLS policies of a listener. The first policy that matches the ClientHello applies.
#[derive(Debug, Clone, Default)]
pub struct TlsSpec {
    /// In the order in which they are tried; a ClientHello that matches none is rejected.
    pub policies: Vec<TlsPolicy>,
}

/// The handshakes to which a policy applies: those that meet all of these conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TlsMatchers {
    /// Server names that match, in lower case; a leading `*.` matches one label. Empty matches any name, and no name.
    pub server_names: Vec<String>,
    /// A condition on the server name in lower case, which is empty if there is none; `None` matches any name, and no
    /// name.
    pub server_name_matcher: Option<Arc<dyn ServerNameMatcher>>,
    /// Networks of the peers that match; empty matches any.
    pub remote_ranges: Vec<IpNet>,
    /// Networks of the peers that do not match.
    pub remote_ranges_not: Vec<IpNet>,
    /// Networks of the local addresses that match; empty matches any.
    pub local_ranges: Vec<IpNet>,
    /// Conditions of which none may be met.
    pub not: Vec<TlsMatchers>,
}

/// A condition on the server name of a ClientHello, which a module of [`Registry`](crate::Registry) has compiled. All
/// workers share it.
pub trait ServerNameMatcher: fmt::Debug + Send + Sync {
    /// Returns whether a server name matches.
    fn matches(&self, server_name: &str) -> bool;

    /// Returns the condition as a text. Matchers with equal texts are equal.
    fn text(&self) -> &str;
}

impl PartialEq for dyn ServerNameMatcher {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for dyn ServerNameMatcher {}

/// Caddy's TLS connection policy, as far as it is implemented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPolicy {
    /// The handshakes to which it applies.
    pub matchers: TlsMatchers,
    /// Tags of usable certificates, of which a certificate must have one; empty allows any certificate for the name.
    pub certificate_tags: Vec<String>,
    /// Protocols offered by ALPN, in order of preference; empty offers those of the listener.
    pub alpn: Vec<String>,
    /// The lowest accepted version.
    pub version_min: TlsVersion,
    /// The highest accepted version.
    pub version_max: TlsVersion,
    /// Cipher suites by their IANA names; empty selects the library's default. Those of TLS 1.3 cannot be configured.
    pub cipher_suites: Vec<String>,
    /// Key exchange groups by Caddy's names (x25519mlkem768, x25519, secp256r1, …), in order of preference; empty
    /// selects the library's default.
    pub groups: Vec<String>,
    /// Client authentication; `None` requests no certificate.
    pub client: Option<ClientAuthentication>,
    /// The server name that is assumed if a ClientHello has none.
    pub default_server_name: Option<String>,
    /// The server name that is used if no certificate exists for the client's.
    pub fallback_server_name: Option<String>,
    /// The file that gets the secrets of sessions, so that captured bytes can be decrypted; `None` is none.
    pub secrets_log: Option<PathBuf>,
    /// Whether matching connections are closed without a response.
    pub drop: bool,
}

impl Default for TlsPolicy {
    /// Matches every ClientHello, allows any certificate for its name, TLS 1.2 and 1.3.
    fn default() -> Self {
        Self {
            matchers: TlsMatchers::default(),
            certificate_tags: Vec::new(),
            alpn: Vec::new(),
            version_min: TlsVersion::Tls12,
            version_max: TlsVersion::Tls13,
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            client: None,
            default_server_name: None,
            fallback_server_name: None,
            secrets_log: None,
            drop: false,
        }
    }
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TlsVersion {
    /// RFC 5246.
    Tls12,
    /// RFC 8446.
    Tls13,
}

/// The requirements for a client's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthentication {
    /// Whether a certificate is requested, required, verified.
    pub mode: ClientAuthenticationMode,
    /// Certificates of the authorities that a client's chain must lead to, in DER.
    pub authorities: Vec<Vec<u8>>,
    /// The client certificates that are accepted, in DER; empty accepts any.
    pub leaves: Vec<Vec<u8>>,
}

/// Whether a client's certificate is requested, required, verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthenticationMode {
    /// Requested; any certificate is accepted, and none.
    Request,
    /// Required, but not verified.
    Require,
    /// Requested; verified if the client sends one.
    VerifyIfGiven,
    /// Required and verified.
    RequireAndVerify,
}

//! How a listener protects its connections.

use ipnet::IpNet;

/// How a listener protects its connections: the first policy that a ClientHello meets decides.
#[derive(Debug, Clone, Default)]
pub struct TlsSpec {
    /// In the order in which they are tried; a ClientHello that meets none is refused.
    pub policies: Vec<TlsPolicy>,
}

/// Caddy's TLS connection policy, as far as it is built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsPolicy {
    /// Server names for which it is, in lower case; `*.` at the start stands for one label. Empty: any, or none at all.
    pub server_names: Vec<String>,
    /// Networks that the peer must be in; empty: any.
    pub remote_ranges: Vec<IpNet>,
    /// Networks that the peer must not be in.
    pub remote_ranges_not: Vec<IpNet>,
    /// Networks that our address must be in; empty: any.
    pub local_ranges: Vec<IpNet>,
    /// Certificates must have one of these tags; empty: any certificate for the name.
    pub certificate_tags: Vec<String>,
    /// Protocols offered by ALPN, most wanted first; empty: what the listener speaks.
    pub alpn: Vec<String>,
    /// The lowest version.
    pub version_min: TlsVersion,
    /// The highest version.
    pub version_max: TlsVersion,
    /// Cipher suites by their IANA names; empty: the library's choice. TLS 1.3's are not to choose.
    pub cipher_suites: Vec<String>,
    /// Key exchange groups by Caddy's names (x25519mlkem768, x25519, secp256r1, …), most wanted first; empty: the library's choice.
    pub groups: Vec<String>,
    /// What is asked of the client; `None`: nothing.
    pub client: Option<ClientAuthentication>,
    /// Taken for the server name where a ClientHello has none.
    pub default_server_name: Option<String>,
    /// Taken for the server name where no certificate is found for the one that came.
    pub fallback_server_name: Option<String>,
    /// Connections that meet this policy are closed without an answer.
    pub drop: bool,
}

impl Default for TlsPolicy {
    /// For every ClientHello, with any certificate for its name, TLS 1.2 and 1.3.
    fn default() -> Self {
        Self {
            server_names: Vec::new(),
            remote_ranges: Vec::new(),
            remote_ranges_not: Vec::new(),
            local_ranges: Vec::new(),
            certificate_tags: Vec::new(),
            alpn: Vec::new(),
            version_min: TlsVersion::Tls12,
            version_max: TlsVersion::Tls13,
            cipher_suites: Vec::new(),
            groups: Vec::new(),
            client: None,
            default_server_name: None,
            fallback_server_name: None,
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

/// What a client has to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientAuthentication {
    /// How much of it.
    pub mode: ClientAuthenticationMode,
    /// Certificates of authorities that clients' certificates must lead to, DER.
    pub authorities: Vec<Vec<u8>>,
    /// Clients' own certificates, one of which it must be, DER; empty: any.
    pub leaves: Vec<Vec<u8>>,
}

/// How a client's certificate is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientAuthenticationMode {
    /// Asked for; whatever comes is taken.
    Request,
    /// Must come; is not verified.
    Require,
    /// Verified if it comes.
    VerifyIfGiven,
    /// Must come and be verified.
    RequireAndVerify,
}

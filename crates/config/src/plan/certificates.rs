//! The certificates that a configuration needs, as plain records. The `causeway` crate hands them to the code that
//! obtains them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::https::OnDemand;
use super::storage::{Secret, Storage};

/// The certificates of a configuration: those that are loaded or signed locally before it takes effect, and the names
/// of those that are obtained later.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Certificates {
    /// The certificates that the operator supplies.
    pub sources: Vec<CertificateSource>,
    /// Conditions of connection policies on their certificates, by the tags that the policies refer to them by.
    pub selections: BTreeMap<String, CertificateSelection>,
    /// The local certificate authorities.
    pub authorities: Vec<CertificateAuthority>,
    /// The names whose certificates the server obtains and renews.
    pub managed: Vec<ManagedName>,
    /// The names whose certificates public authorities sign.
    pub public: Vec<PublicName>,
    /// The names for which a handshake may obtain a certificate, if any.
    pub on_demand: Option<OnDemand>,
    /// The DNS providers of all issuers.
    pub dns_providers: Vec<DnsProvider>,
    /// All issuers by ACME, with their JSON paths for errors.
    pub acme_issuers: Vec<(String, AcmeIssuer)>,
    /// The longest time between two renewal checks; `None`: the default.
    pub renewal_check_interval: Option<Duration>,
    /// When expired certificates are removed from storage.
    pub cleaning: StorageCleaning,
    /// The longest time between two checks of the OCSP responses; `None`: the default.
    pub ocsp_check_interval: Option<Duration>,
    /// Whether the certificates of `sources` get no OCSP response.
    pub ocsp_disabled_for_sources: bool,
    /// How many names on demand have a certificate in memory; `None`: the default.
    pub cache_capacity: Option<usize>,
    /// How the tickets of sessions are sealed.
    pub session_tickets: SessionTickets,
}

impl Certificates {
    /// Returns the storages of authorities and names that have their own, with repetitions.
    pub fn storages(&self) -> impl Iterator<Item = &Storage> {
        let authorities = self.authorities.iter().filter_map(|authority| authority.storage.as_ref());
        let managed = self.managed.iter().filter_map(|name| name.storage.as_ref());
        let public = self.public.iter().filter_map(|name| name.storage.as_ref());
        let on_demand = self.on_demand.iter().flat_map(OnDemand::storages);
        authorities.chain(managed).chain(public).chain(on_demand)
    }
}

/// How a name's certificate gets an OCSP response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OcspStapling {
    /// Whether the certificate gets an OCSP response.
    pub is_enabled: bool,
    /// The URL to use instead of the one in the certificate. An empty URL disables requests to that responder.
    pub overrides: Arc<BTreeMap<String, String>>,
    /// Whether the certificate obliges the server to send one (RFC 7633).
    pub must_staple: bool,
}

impl Default for OcspStapling {
    fn default() -> Self {
        Self { is_enabled: true, overrides: Arc::default(), must_staple: false }
    }
}

/// How the tickets of sessions are sealed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SessionTickets {
    /// By keys of the process.
    #[default]
    Process,
    /// There are none.
    Disabled,
    /// By keys that are replaced one after the other.
    Rotating {
        /// The time between two new keys, at least a second.
        interval: Duration,
        /// How many keys open tickets, from 1 to 64.
        max_keys: usize,
        /// Where the keys come from.
        source: TicketKeySource,
    },
}

/// The source of the keys of tickets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum TicketKeySource {
    /// This server.
    #[default]
    Standard,
    /// A storage that several servers share; `None`: that of the configuration.
    Distributed(Option<Storage>),
}

/// How often a storage is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StorageCleaning {
    /// At the default interval.
    #[default]
    Default,
    /// At this interval.
    Every(Duration),
    /// Never.
    Never,
}

/// One configured source of the operator's certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// A chain and a key in PEM files.
    Files {
        /// The chain's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A chain and a key as PEM text.
    Pem {
        /// Their JSON path, for error messages.
        location: String,
        /// The chain as PEM.
        certificate: String,
        /// The key as PEM.
        key: String,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A chain and a key as PEM texts in the storage.
    Stored {
        /// The chain's storage key.
        certificate: String,
        /// The key's storage key.
        key: String,
        /// The tags by which a connection policy can select the certificate.
        tags: Vec<String>,
    },
    /// A directory, searched recursively; every file `*.pem` holds a chain and a key.
    Directory(PathBuf),
}

/// Conditions that a certificate must meet, all of them. An empty list is no condition.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CertificateSelection {
    /// Tags, of which the certificate must have one.
    pub any_tag: Vec<String>,
    /// Tags that the certificate must have.
    pub all_tags: Vec<String>,
    /// Serial numbers, one of which must be the certificate's: big-endian, without leading zeros.
    pub serial_numbers: Vec<Vec<u8>>,
    /// Organizations, one of which must be in the certificate's subject.
    pub organizations: Vec<String>,
    /// The algorithm of the certificate's key; `None`: any.
    pub key_algorithm: Option<KeyAlgorithm>,
}

/// The algorithm of a certificate's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum KeyAlgorithm {
    Rsa,
    Ecdsa,
    /// No certificate that can be served has such a key.
    Dsa,
}

/// A local certificate authority. `None` stands for the default of a field.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "Caddy's documentation of the PKI app says what they are")]
pub struct CertificateAuthority {
    pub id: String,
    pub name: Option<String>,
    pub root_common_name: Option<String>,
    pub intermediate_common_name: Option<String>,
    pub intermediate_lifetime: Option<Duration>,
    /// The intermediate is renewed when this fraction of its lifetime remains.
    pub renewal_ratio: Option<f64>,
    pub root: Option<CertificateFiles>,
    pub intermediate: Option<CertificateFiles>,
    /// Where it is stored. `None`: in the configuration's storage.
    pub storage: Option<Storage>,
}

impl CertificateAuthority {
    /// An authority with all defaults.
    pub(super) fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: None,
            root_common_name: None,
            intermediate_common_name: None,
            intermediate_lifetime: None,
            renewal_ratio: None,
            root: None,
            intermediate: None,
            storage: None,
        }
    }
}

/// A certificate and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate's file.
    pub certificate: PathBuf,
    /// The key's file, if configured.
    pub key: Option<PathBuf>,
}

/// A name whose certificate a local authority signs. `None` stands for the default of a field.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedName {
    /// The name in lower-case ASCII, optionally with `*.` in front; or an IP address.
    pub name: String,
    /// The ID of the authority that signs.
    pub authority: String,
    /// Lifetime of the certificate.
    pub lifetime: Option<Duration>,
    /// Whether the root signs directly, without the intermediate.
    pub by_root: bool,
    /// The certificate is renewed when this fraction of its lifetime remains.
    pub renewal_ratio: Option<f64>,
    /// The kind of key to generate.
    pub key: KeyKind,
    /// Whether a renewed certificate reuses the key.
    pub reuse_key: bool,
    /// Where the certificate is stored. `None`: in the configuration's storage.
    pub storage: Option<Storage>,
}

/// A name whose certificate a public authority signs.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicName {
    /// The name in lower-case ASCII, optionally with `*.` in front; or an IP address.
    pub name: String,
    /// The authorities in order of preference, at least one.
    pub issuers: Vec<PublicIssuer>,
    /// The local authority that signs when none of them does.
    pub fallback: Option<ManagedName>,
    /// The certificate is renewed when this fraction of its lifetime remains; `None`: the default.
    pub renewal_ratio: Option<f64>,
    /// The kind of key to generate.
    pub key: KeyKind,
    /// How the certificate gets an OCSP response.
    pub ocsp: OcspStapling,
    /// Where the certificate is stored. `None`: in the configuration's storage.
    pub storage: Option<Storage>,
}

/// A source of certificates outside this server. A handshake for which the server has no certificate queries it before
/// any issuer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CertificateGetter {
    /// A server that answers `GET` of this URL with a chain and its key as PEM.
    Http(String),
    /// Tailscale's daemon on this machine, for names below `.ts.net`.
    Tailscale,
}

/// A public authority of any protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublicIssuer {
    /// By ACME.
    Acme(Box<AcmeIssuer>),
    /// By ZeroSSL's own interface.
    ZeroSsl(ZeroSslIssuer),
}

impl PublicIssuer {
    /// Whether this is one of the authorities that sign public names only, by the list of CertMagic. Others may be
    /// private.
    pub(super) fn is_known_to_be_public(&self) -> bool {
        const HOSTS: [&str; 3] = ["api.letsencrypt.org", "acme.zerossl.com", "api.pki.goog"];
        match self {
            Self::Acme(acme) => acme.ca.is_empty() || HOSTS.iter().any(|host| acme.ca.contains(host)),
            Self::ZeroSsl(_) => true,
        }
    }

    /// Returns the settings for DNS-01, if there are any.
    pub fn dns(&self) -> Option<&DnsChallenge> {
        match self {
            Self::Acme(acme) => acme.dns.as_deref(),
            Self::ZeroSsl(_) => None,
        }
    }
}

/// An account at ZeroSSL, for its own interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroSslIssuer {
    /// The key of the interface.
    pub api_key: Secret,
    /// How many days certificates are valid; `None`: ZeroSSL's default.
    pub validity_days: Option<u32>,
}

/// An account at the authority that exists outside ACME (RFC 8555 §7.3.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key's ID.
    pub key_id: String,
    /// The MAC key as base64url.
    pub mac_key: Secret,
}

/// A public authority. Empty texts stand for the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeIssuer {
    /// The URL of the directory.
    pub ca: String,
    /// The URL of a test authority's directory.
    pub test_ca: String,
    /// The account's contact address.
    pub email: String,
    /// The certificate profile.
    pub profile: String,
    /// The lifetime to request.
    pub lifetime: Option<Duration>,
    /// The choice between several chains. Boxed: few configurations have it.
    pub chains: Option<Box<PreferredChains>>,
    /// The PEM text of an existing account's key.
    pub account_key: Option<Secret>,
    /// The network proxy for requests to the authority.
    pub proxy: ProxySetting,
    /// The account outside ACME that the account is bound to.
    pub external_account: Option<ExternalAccount>,
    /// PEM files with the roots of the authority's own certificate; empty: the system's roots.
    pub roots: Vec<PathBuf>,
    /// Whether the challenge HTTP-01 may be used.
    pub allows_http01: bool,
    /// Whether the challenge TLS-ALPN-01 may be used.
    pub allows_tls_alpn01: bool,
    /// Whether open challenges are in storage, for other servers, and not only in this process.
    pub is_distributed: bool,
    /// The challenge DNS-01, which then is the only one. Boxed: it is as large as all other settings together.
    pub dns: Option<Box<DnsChallenge>>,
}

impl Default for AcmeIssuer {
    /// The default authority with HTTP-01 and TLS-ALPN-01, whose open challenges are only in this process.
    fn default() -> Self {
        Self {
            ca: String::new(),
            test_ca: String::new(),
            email: String::new(),
            profile: String::new(),
            lifetime: None,
            chains: None,
            account_key: None,
            proxy: ProxySetting::default(),
            external_account: None,
            roots: Vec::new(),
            allows_http01: true,
            allows_tls_alpn01: true,
            is_distributed: false,
            dns: None,
        }
    }
}

/// The network proxy for requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ProxySetting {
    /// The proxy of the environment, if there is one.
    #[default]
    Environment,
    /// None.
    Direct,
    /// The one with this URL, which may contain a password.
    Url(Secret),
}

/// The choice between several chains for a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PreferredChains {
    /// Whether shorter chains come first, or longer ones.
    pub smallest: Option<bool>,
    /// Common names of issuers, one of which the chain has.
    pub any_common_names: Vec<String>,
    /// Common names of roots.
    pub root_common_names: Vec<String>,
}

/// The settings of the challenge DNS-01.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsChallenge {
    /// The provider that writes the records.
    pub provider: DnsProvider,
    /// The records' time to live; `None`: the provider's lowest.
    pub ttl: Option<Duration>,
    /// The pause after writing a record.
    pub propagation_delay: Duration,
    /// How long a record may take to become visible.
    pub propagation_limit: PropagationLimit,
    /// The resolvers, as `host` or `host:port`. Empty: the system's.
    pub resolvers: Vec<String>,
    /// The name of the record; empty: `_acme-challenge.NAME`.
    pub override_domain: String,
}

/// How long a TXT record may take to become visible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PropagationLimit {
    /// The default time.
    #[default]
    Default,
    /// The record is not checked.
    Unchecked,
    /// At most this time.
    Within(Duration),
}

/// A DNS provider. Its values are secrets, and Debug does not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct DnsProvider {
    /// Its JSON path, for errors.
    pub path: String,
    /// The name of Caddy's module `dns.providers.NAME`.
    pub name: String,
    /// The module's members, with their placeholders replaced.
    pub settings: Map<String, Value>,
}

impl fmt::Debug for DnsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DnsProvider").field(&self.name).finish()
    }
}

/// The algorithm and size of a generated key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "their names say it")]
pub enum KeyKind {
    #[default]
    P256,
    P384,
    Ed25519,
    Rsa2048,
    Rsa4096,
}

impl KeyKind {
    /// Parses Caddy's name of a key type. The empty name is the default.
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "" | "p256" => Self::P256,
            "p384" => Self::P384,
            "ed25519" => Self::Ed25519,
            "rsa2048" => Self::Rsa2048,
            "rsa4096" => Self::Rsa4096,
            _ => return None,
        })
    }
}

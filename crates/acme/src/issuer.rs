//! An authority and the account to use there.

use std::fmt;
use std::hash::{Hash as _, Hasher};
use std::path::PathBuf;
use std::time::Duration;

use causeway_certs::SharedStorage;

use crate::account::{self, AccountKey};
use crate::chains::ChainPreference;
use crate::dns::DnsChallenge;
use crate::http::ProxyChoice;
use crate::order::{CertificateRequest, ObtainedCertificate, POLL_TIMEOUT, obtain};
use crate::{AcmeError, ZeroSslIssuer, http, zerossl};

/// Let's Encrypt's directory, the default authority.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The directory of Let's Encrypt's test authority.
pub const LETS_ENCRYPT_STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// An authority, and the settings for certificates from it.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The URL of the authority's directory (RFC 8555 §7.1.1).
    pub directory: String,
    /// The directory of a test authority with looser rate limits. After a failure, it has to issue a certificate, which
    /// is discarded, before the authority gets the next order.
    pub test_directory: Option<String>,
    /// The account's contact address; may be empty.
    pub email: String,
    /// An account that the operator has at the authority outside ACME (RFC 8555 §7.3.4).
    pub external_account: Option<ExternalAccount>,
    /// The key of an account that exists at the authority. No other account is used then.
    pub account_key: Option<AccountKey>,
    /// The proxy for requests to the authority.
    pub proxy: ProxyChoice,
    /// PEM files with the roots that sign the authority's own HTTPS certificate; empty: the system's roots.
    pub roots: Vec<PathBuf>,
    /// The certificate profile to request; empty: the authority's default.
    pub profile: String,
    /// The lifetime to request; `None`: the authority decides. Many authorities refuse such requests.
    pub lifetime: Option<Duration>,
    /// The choice between several chains; `None`: the authority's first one.
    pub chains: Option<ChainPreference>,
    /// Whether HTTP-01 may be used. It needs port 80 of each name.
    pub allows_http01: bool,
    /// Whether TLS-ALPN-01 may be used. It needs port 443 of each name.
    pub allows_tls_alpn01: bool,
    /// Whether the open challenges are in storage, so that other processes with it can answer them.
    pub is_distributed: bool,
    /// The settings for DNS-01, which wildcards need. If set, no other challenge is used, as in Caddy.
    pub dns: Option<DnsChallenge>,
    /// The times of requests. No configuration changes them; tests do.
    pub timing: Timing,
}

/// The times of requests to an authority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// How long the authority may take to answer one request.
    pub request_timeout: Duration,
    /// The pause before a request is repeated that a fault of the connection or of the authority's servers has ended.
    pub retry_pause: Duration,
    /// The pause before the first look at an order's progress; each further one is twice as long, up to 5 s.
    pub poll_interval: Duration,
    /// How long the authority may take to verify the name, and to issue.
    pub poll_timeout: Duration,
    /// The pause before the certificate is requested again, if the authority has not sent it after the order was
    /// finalized.
    pub download_pause: Duration,
}

impl Default for Timing {
    /// 30 s, as in CertMagic, 1 s, 250 ms, 5 min, as in Caddy, and 10 s.
    fn default() -> Self {
        Self {
            request_timeout: http::REQUEST_TIMEOUT,
            retry_pause: Duration::from_secs(1),
            poll_interval: Duration::from_millis(250),
            poll_timeout: POLL_TIMEOUT,
            download_pause: Duration::from_secs(10),
        }
    }
}

/// An account at the authority that exists outside ACME.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ExternalAccount {
    /// The key's ID.
    pub key_id: String,
    /// The MAC key as base64url.
    pub mac_key: String,
}

impl fmt::Debug for ExternalAccount {
    /// Without the MAC key, which is a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExternalAccount").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

/// An authority of any protocol.
#[derive(Debug, Clone)]
pub enum PublicIssuer {
    /// By ACME.
    Acme(Box<Issuer>),
    /// By ZeroSSL's own interface.
    ZeroSsl(ZeroSslIssuer),
}

impl PublicIssuer {
    /// The authority's name in log lines.
    pub fn label(&self) -> &str {
        match self {
            Self::Acme(issuer) => &issuer.directory,
            Self::ZeroSsl(_) => "ZeroSSL's interface",
        }
    }

    /// Returns the authority's name in storage keys, as [`Issuer::storage_name`].
    pub fn storage_name(&self) -> String {
        match self {
            Self::Acme(issuer) => issuer.storage_name(),
            Self::ZeroSsl(_) => zerossl::certificates::STORAGE_NAME.to_owned(),
        }
    }

    /// Identifies the account, within one storage, to which the authority's rate limits apply.
    pub fn hash_account(&self, hasher: &mut impl Hasher) {
        match self {
            Self::Acme(issuer) => {
                account::storage_keys(issuer).hash(hasher);
                issuer.external_account.hash(hasher);
                // The limit may be that of the test authority.
                issuer.test_directory.hash(hasher);
            }
            Self::ZeroSsl(issuer) => (zerossl::certificates::STORAGE_NAME, &issuer.api_key).hash(hasher),
        }
    }

    /// Returns the names in storage keys of the authorities whose open challenges are in storage.
    pub fn challenge_storage_names(&self) -> Vec<String> {
        match self {
            Self::Acme(issuer) if issuer.is_distributed && issuer.dns.is_none() => issuer.storage_names(),
            Self::Acme(_) => Vec::new(),
            Self::ZeroSsl(_) => vec![self.storage_name()],
        }
    }

    /// Returns the issuer, if its protocol is ACME.
    pub fn acme(&self) -> Option<&Issuer> {
        match self {
            Self::Acme(issuer) => Some(issuer),
            Self::ZeroSsl(_) => None,
        }
    }

    /// Obtains a certificate, as [`obtain`](crate::obtain).
    ///
    /// # Errors
    /// Returns the reason why the authority issued nothing.
    pub async fn obtain(
        &self,
        wanted: CertificateRequest<'_>,
        storage: &SharedStorage,
    ) -> Result<ObtainedCertificate, AcmeError> {
        match self {
            Self::Acme(issuer) => obtain(issuer, wanted, storage).await,
            Self::ZeroSsl(issuer) => zerossl::certificates::obtain(issuer, wanted, storage).await,
        }
    }
}

impl Default for Issuer {
    /// Let's Encrypt without a contact address, HTTP-01 and TLS-ALPN-01 allowed.
    fn default() -> Self {
        Self {
            directory: LETS_ENCRYPT.to_owned(),
            test_directory: None,
            email: String::new(),
            external_account: None,
            account_key: None,
            proxy: ProxyChoice::Direct,
            roots: Vec::new(),
            profile: String::new(),
            lifetime: None,
            chains: None,
            allows_http01: true,
            allows_tls_alpn01: true,
            is_distributed: true,
            dns: None,
            timing: Timing::default(),
        }
    }
}

impl Issuer {
    /// Returns the issuer for attempts that only test whether the authority can verify a name.
    pub(crate) fn test(&self) -> Option<Self> {
        let directory = self.test_directory.as_ref().filter(|test| **test != self.directory)?;
        Some(Self { directory: directory.clone(), test_directory: None, chains: None, ..self.clone() })
    }

    /// Returns the names in storage keys of the authority and its test authority.
    pub fn storage_names(&self) -> Vec<String> {
        std::iter::once(self.storage_name()).chain(self.test().map(|test| test.storage_name())).collect()
    }

    /// Returns the authority's name in storage keys. It is Caddy's, so that both find each other's certificates: the
    /// directory's host and path, with `-` between their parts.
    pub fn storage_name(&self) -> String {
        let url = self.directory.split_once("://").map_or(&*self.directory, |(_, rest)| rest);
        let url = url.split(['?', '#']).next().unwrap_or_default();
        let (host, path) = url.split_once('/').unwrap_or((url, ""));
        let path = path.replace('/', "-");
        let path = path.trim_matches('-');
        let key = if path.is_empty() { host.to_owned() } else { format!("{host}-{path}") };
        causeway_certs::safe_key(&key)
    }
}

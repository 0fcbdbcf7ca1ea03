//! What a configuration wants of certificates: plain records, for whoever obtains them.

use std::path::PathBuf;
use std::time::Duration;

/// Everything that has to be there before the sites can be served.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Certificates {
    /// What the operator has already.
    pub sources: Vec<CertificateSource>,
    /// Authorities of our own.
    pub authorities: Vec<CertificateAuthority>,
    /// Names whose certificates are ours to obtain and renew.
    pub managed: Vec<ManagedName>,
    /// How often at least the dates are looked at; `None`: as usual.
    pub look_every: Option<Duration>,
}

/// Certificates that the operator has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateSource {
    /// Two files of PEM.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// Its key.
        key: PathBuf,
        /// What policies call it.
        tags: Vec<String>,
    },
    /// Two texts of PEM.
    Pem {
        /// Where in the JSON they stand.
        place: String,
        /// The chain.
        certificate: String,
        /// Its key.
        key: String,
        /// What policies call it.
        tags: Vec<String>,
    },
    /// All files `*.pem` in a folder and below, each with a chain and a key.
    Folder(PathBuf),
}

impl CertificateSource {
    pub(super) fn tags_mut(&mut self) -> Option<&mut Vec<String>> {
        match self {
            Self::Files { tags, .. } | Self::Pem { tags, .. } => Some(tags),
            Self::Folder(_) => None,
        }
    }
}

/// An authority of our own; what is `None` is as usual.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "Caddy's documentation of the PKI app says what they are")]
pub struct CertificateAuthority {
    pub id: String,
    pub name: Option<String>,
    pub root_common_name: Option<String>,
    pub intermediate_common_name: Option<String>,
    pub intermediate_lifetime: Option<Duration>,
    /// The part of an intermediate's lifetime that is left when it is renewed.
    pub renewal_ratio: Option<f64>,
    pub root: Option<CertificateFiles>,
    pub intermediate: Option<CertificateFiles>,
}

impl CertificateAuthority {
    /// One with all as usual.
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
        }
    }
}

/// A certificate and its key, as files of PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The certificate.
    pub certificate: PathBuf,
    /// Its key, where there is one.
    pub key: Option<PathBuf>,
}

/// A name whose certificate one of our own authorities signs; what is `None` is as usual.
#[derive(Debug, Clone, PartialEq)]
pub struct ManagedName {
    /// In lower case and ASCII; `*.` in front, or an address.
    pub name: String,
    /// Who signs.
    pub authority: String,
    /// How long a certificate is valid.
    pub lifetime: Option<Duration>,
    /// Whether the root signs, and no intermediate.
    pub by_root: bool,
    /// The part of its lifetime that is left when it is renewed.
    pub renewal_ratio: Option<f64>,
    /// What its key is.
    pub key: KeyKind,
    /// Whether the key outlives a renewal.
    pub reuse_key: bool,
}

/// What a key is.
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
    /// By Caddy's name of it.
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

//! The errors of this crate. Each is the operator's to fix and names the file or the configuration value at fault.

use std::fmt;
use std::io;
use std::time::Duration;

/// Why certificates could not be loaded, obtained or stored. A `String` named "location" below is a file path or a
/// position in the configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file, a directory or a value in storage cannot be read: its location.
    Read(String, io::Error),
    /// A file, a directory or a value in storage cannot be written: its location.
    Write(String, io::Error),
    /// Another process, or another part of this one, held this lock for longer than the timeout: its location.
    Locked(String),
    /// The lock expired while it was held, because the process was suspended or could not reach the storage; another
    /// process may have taken it since: its location.
    LockLost(String),
    /// A setting of the storage that cannot be used: its name, and the reason.
    StorageSetting(&'static str, String),
    /// A value in storage that cannot be decoded: its location, and the reason.
    BadValue(String, String),
    /// Input without a certificate: its location, and a description of the content found.
    NoCertificate(String, String),
    /// PEM without the expected section, or broken PEM: its location, and the reason.
    Pem(String, causeway_pem::Error),
    /// A certificate that cannot be parsed: its location, and the parser's first error.
    BadCertificate(String, String),
    /// A certificate with neither a common name nor a subjectAltName: its location.
    NoName(String),
    /// A certificate that does not name the one that was ordered.
    OtherNames {
        /// The certificate's location.
        location: String,
        /// The names in the certificate.
        found: Vec<String>,
        /// The name that was ordered.
        expected: String,
    },
    /// Input without a private key: its location, and a description of the content found.
    NoKey(String, String),
    /// An unusable private key: its location, and a description of the key.
    BadKey(String, String),
    /// The private key does not belong to the certificate.
    KeyMismatch {
        /// The key's location.
        key: String,
        /// The certificate's location.
        certificate: String,
    },
    /// A signature needs the root's private key, which is absent: the authority's ID.
    NoRootKey(String),
    /// The configured intermediate would outlive its root.
    IntermediateTooLong {
        /// The authority's ID.
        id: String,
        /// The root's remaining lifetime.
        root_left: Duration,
    },
    /// The intermediate or root that is to sign has expired: the authority's ID.
    SignerExpired(String),
    /// Signing failed: the name in the certificate, and the cause.
    Sign(String, String),
    /// The operating system's random number generator failed.
    Random,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(location, error) => write!(f, "{location}: cannot be read: {error}"),
            Self::Write(location, error) => write!(f, "{location}: cannot be written: {error}"),
            Self::Locked(location) => {
                write!(
                    f,
                    "{location}: this lock was not free in time: this server or another one with the storage holds it"
                )
            }
            Self::LockLost(location) => {
                write!(f, "{location}: lost this lock while it was held, so nothing was written")
            }
            Self::StorageSetting(name, why) => write!(f, "storage: {name}: {why}"),
            Self::BadValue(location, why) => write!(f, "{location}: found a value that cannot be decoded: {why}"),
            Self::NoCertificate(location, found) => {
                write!(f, "{location}: found {found}, expected a certificate as PEM: `-----BEGIN CERTIFICATE-----`")
            }
            Self::Pem(location, error) => write!(f, "{}: {error}", error.location(location)),
            Self::BadCertificate(location, why) => {
                write!(f, "{location}: found a certificate that cannot be read: {why}")
            }
            Self::NoName(location) => write!(
                f,
                "{location}: found a certificate without a name, expected one in subjectAltName or as the subject's common name"
            ),
            Self::OtherNames { location, found, expected } => {
                write!(f, "{location}: found a certificate for {}, expected one for {expected}", found.join(", "))
            }
            Self::NoKey(location, found) => {
                write!(f, "{location}: found {found}, expected a private key as PEM: `-----BEGIN PRIVATE KEY-----`")
            }
            Self::BadKey(location, found) => write!(
                f,
                "{location}: found {found}, expected RSA of 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519"
            ),
            Self::KeyMismatch { key, certificate } => {
                write!(f, "{key}: found another key than that of the certificate in {certificate}")
            }
            Self::NoRootKey(id) => {
                write!(f, "certificate authority '{id}': its root has no private key, expected one to sign with")
            }
            Self::IntermediateTooLong { id, root_left } => write!(
                f,
                "certificate authority '{id}': intermediate certificate lifetime must be less than actual root certificate \
                 lifetime, expected an intermediate_lifetime below {} s",
                root_left.as_secs()
            ),
            Self::SignerExpired(id) => {
                write!(
                    f,
                    "certificate authority '{id}': the certificate that signs has expired; is this machine's clock right?"
                )
            }
            Self::Sign(name, why) => write!(f, "{name}: cannot sign its certificate: {why}"),
            Self::Random => f.write_str("the system's random number generator failed"),
        }
    }
}

impl std::error::Error for Error {}

//! Why there is no certificate. All of these are the operator's to mend, and name the place.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why certificates could not be loaded, obtained or kept.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder cannot be read.
    Read(PathBuf, io::Error),
    /// A file or folder cannot be written.
    Write(PathBuf, io::Error),
    /// Another process holds this lock for too long.
    Locked(PathBuf),
    /// Text without a certificate, by its place.
    NoCertificate(String),
    /// Something that is no certificate, by its place, and the first thing wrong with it.
    BadCertificate(String, String),
    /// Text without a private key, by its place.
    NoKey(String),
    /// A private key behind a pass phrase, by its place.
    EncryptedKey(String),
    /// A private key that is none of the known kinds, by its place, and why.
    BadKey(String, String),
    /// The key at one place is not that of the certificate at another.
    KeyMismatch {
        /// The key's place.
        key: String,
        /// The certificate's.
        certificate: String,
    },
    /// The root's key is needed and not there: for this authority.
    NoRootKey(String),
    /// An authority's intermediate would outlive its root.
    IntermediateTooLong {
        /// The authority.
        id: String,
        /// What its root has left.
        root_left: Duration,
    },
    /// A certificate for this name could not be signed.
    Sign(String, String),
    /// The system has no random numbers.
    Random,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path, error) => write!(f, "{}: reading it: {error}", path.display()),
            Self::Write(path, error) => write!(f, "{}: writing it: {error}", path.display()),
            Self::Locked(path) => {
                write!(f, "{}: another process has held this lock for too long", path.display())
            }
            Self::NoCertificate(place) => {
                write!(f, "{place}: found no certificate, expected `-----BEGIN CERTIFICATE-----` and what follows it")
            }
            Self::BadCertificate(place, why) => write!(f, "{place}: found what is no certificate: {why}"),
            Self::NoKey(place) => {
                write!(f, "{place}: found no private key, expected `-----BEGIN PRIVATE KEY-----` and what follows it")
            }
            Self::EncryptedKey(place) => {
                write!(f, "{place}: found an encrypted private key, expected one without a pass phrase")
            }
            Self::BadKey(place, why) => {
                write!(f, "{place}: found a private key that is not understood ({why}), expected RSA, ECDSA or Ed25519")
            }
            Self::KeyMismatch { key, certificate } => {
                write!(f, "{key}: found another key than that of the certificate in {certificate}")
            }
            Self::NoRootKey(id) => {
                write!(f, "certificate authority '{id}': its root has no private key, expected one to sign with")
            }
            Self::IntermediateTooLong { id, root_left } => write!(
                f,
                "certificate authority '{id}': its intermediate would outlive its root, expected an intermediate_lifetime \
                 below {} s",
                root_left.as_secs()
            ),
            Self::Sign(name, why) => write!(f, "{name}: signing its certificate: {why}"),
            Self::Random => f.write_str("the system gives no random numbers"),
        }
    }
}

impl std::error::Error for Error {}

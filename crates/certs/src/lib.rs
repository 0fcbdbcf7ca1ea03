#![doc = include_str!("../README.md")]
//!
//! # In reading order, which is the life of a certificate
//! - `load`: certificates that the operator supplies, as files or as text
//! - `authority`: the local certificate authority, which signs all local certificates
//! - `keeper`: obtains and renews the certificates of one configuration
//! - `certificate`: a chain checked against its private key; `pem`: reads and writes both as PEM; `key`: describes an
//!   unusable private key for error messages
//! - `ocsp`: verifies the statuses that responders give, and staples them to certificates
//! - `store`: selects a certificate for a handshake; `selection`: conditions that it can be required to meet
//! - `storage`: persistent keys and values, laid out as Caddy's; `replace`: atomic replacement of one file
//! - `clean`: removes expired certificates and old challenges from a storage
//! - [`trust`]: root certificates in the trust stores of this machine
//!
//! This crate never sees configuration text or a connection of a client. Every function can block on disk, on Redis or
//! on a signature, except those that a worker calls in a handshake: [`Store::find`], [`Certificate::signed`] and
//! [`Certificate::mark_used`].

mod authority;
mod certificate;
mod clean;
mod error;
mod keeper;
mod key;
mod load;
mod ocsp;
mod pem;
mod replace;
mod selection;
mod storage;
mod store;
pub mod trust;

pub use authority::{Authority, AuthoritySpec, PairFiles, ROOT_LIFETIME, SignedBy};
pub use certificate::Certificate;
pub use clean::{Cleaned, clean};
pub use error::Error;
pub use keeper::{
    CertificatePlan, IssuedCertificate, Keeper, KeyKind, LocalCertificateSpec, NameRecord, OcspTarget,
    PublicCertificateSpec, RenewalFailure, generate_key,
};
pub use load::{LoadedSource, from_bundle, load};
pub use ocsp::{OcspError, OcspPolicy, OcspStatus, restore_response, store_response};
pub use replace::{Durability, replace};
pub use rustls::SignatureAlgorithm;
pub use selection::CertificateSelection;
pub use storage::{
    Compression, FileStorage, Lock, RedisSpec, RedisStorage, RedisTls, SharedStorage, Storage, safe_key,
};
pub use store::Store;

#[cfg(test)]
mod tests;

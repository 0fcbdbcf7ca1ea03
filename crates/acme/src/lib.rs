#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - `issuer`: an authority and the account to use there
//! - `account`: the account's key and URL in storage
//! - `order`: one certificate from an authority; `polling`: when its progress is polled
//! - `authority_client`: the HTTP requests to an authority, and its `Retry-After`
//! - `chains`: the choice between the chains that the authority offers; `signed`: requests that instant-acme cannot
//!   make
//! - `renewal`: the renewal time that the authority suggests
//! - `dns`: the challenge DNS-01, and the DNS providers that write its records
//! - `named_locks`: locks by name
//! - `bad_nonce`: repeats a step of the protocol if the authority rejects its nonce
//! - [`challenge`]: the open challenges of this process
//! - [`http`]: the HTTP client for interfaces of other servers
//! - `zerossl`: ZeroSSL's own interface for certificates, and the external accounts for its ACME authority
//! - `error`: the reasons why an authority issued nothing
//! - [`server`]: an authority of our own

mod account;
mod authority_client;
mod bad_nonce;
mod chains;
pub mod challenge;
mod dns;
mod error;
pub mod http;
mod issuer;
mod named_locks;
mod order;
mod polling;
mod renewal;
pub mod server;
mod signed;
mod zerossl;

pub use account::AccountKey;
pub use chains::ChainPreference;
pub use dns::{
    DnsChallenge, DnsError, DnsProvider, PROPAGATION_TIMEOUT, PropagationError, ProviderError, SettingError, ZoneError,
};
pub use error::{AcmeError, OtherChallenge};
pub use issuer::{ExternalAccount, Issuer, LETS_ENCRYPT, LETS_ENCRYPT_STAGING, PublicIssuer, Timing};
pub use order::{CertificateRequest, ObtainedCertificate, obtain};
pub use renewal::{RenewalAdvice, RenewalAdvisor};
pub use zerossl::certificates::ZeroSslIssuer;

#[cfg(test)]
mod tests;

//! Certificates and keys as PEM text, with their location in errors.

pub(crate) use causeway_pem::{sections, write_chain};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Error;

/// Parses all certificates of a PEM text, at least one. `location` names the text in error messages.
pub(crate) fn chain(text: &[u8], location: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    causeway_pem::chain(text).map_err(|error| Error::Pem(location.to_owned(), error))
}

/// Parses the first private key of a PEM text.
pub(crate) fn key(text: &[u8], location: &str) -> Result<PrivateKeyDer<'static>, Error> {
    causeway_pem::key(text).map_err(|error| Error::Pem(location.to_owned(), error))
}

//! Conditions on certificates: Caddy's `certificate_selection`.

use rustls::SignatureAlgorithm;

use super::Certificate;

/// Conditions that a certificate must meet, all of them. An empty list imposes no condition. A [`Store`](super::Store)
/// gives the tag to all certificates that meet them, renewed ones too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateSelection {
    /// The tag, which no certificate has otherwise.
    pub tag: String,
    /// Tags, of which the certificate must have one.
    pub any_tag: Vec<String>,
    /// Tags that the certificate must have.
    pub all_tags: Vec<String>,
    /// Serial numbers, one of which must be the certificate's: big-endian, without leading zeros.
    pub serial_numbers: Vec<Vec<u8>>,
    /// Organizations, one of which must be in the certificate's subject.
    pub organizations: Vec<String>,
    /// The algorithm of the certificate's key; `None`: any.
    pub key_algorithm: Option<SignatureAlgorithm>,
}

impl CertificateSelection {
    /// Whether the certificate meets all conditions.
    pub(crate) fn admits(&self, certificate: &Certificate) -> bool {
        let is_tagged = |tag: &String| certificate.tags().contains(tag);
        (self.any_tag.is_empty() || self.any_tag.iter().any(is_tagged))
            && self.all_tags.iter().all(is_tagged)
            && (self.serial_numbers.is_empty()
                || self.serial_numbers.iter().any(|number| number == certificate.serial_number()))
            && (self.organizations.is_empty()
                || self.organizations.iter().any(|name| certificate.organizations().contains(name)))
            && self.key_algorithm.is_none_or(|algorithm| algorithm == certificate.key_algorithm())
    }
}

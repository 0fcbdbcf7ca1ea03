//! `certificate_selection`: conditions of a connection policy on the server's certificate.

use std::collections::BTreeMap;

use causeway_pipeline::{Build, BuildError};
use serde::Deserialize;

use super::super::certificates::{CertificateSelection, KeyAlgorithm};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CertificateSelectionConfig {
    #[serde(default)]
    any_tag: Vec<String>,
    #[serde(default)]
    all_tags: Vec<String>,
    /// In decimal digits, as texts: JSON's numbers are too short for them.
    #[serde(default)]
    serial_number: Vec<String>,
    #[serde(default)]
    subject_organization: Vec<String>,
    #[serde(default)]
    public_key_algorithm: Option<String>,
}

impl CertificateSelectionConfig {
    /// Returns tags of which a certificate must have at least one. Other conditions are added to `selections`: the
    /// certificates that meet them have their tag.
    pub(super) fn read(
        &self,
        selections: &mut BTreeMap<String, CertificateSelection>,
        build: &mut Build<'_>,
    ) -> Result<Vec<String>, BuildError> {
        let selection = CertificateSelection {
            any_tag: self.any_tag.clone(),
            all_tags: self.all_tags.clone(),
            serial_numbers: self.serial_numbers(build)?,
            organizations: self.subject_organization.clone(),
            key_algorithm: self.key_algorithm(build)?,
        };
        let only_tags = CertificateSelection { any_tag: self.any_tag.clone(), ..CertificateSelection::default() };
        if selection == only_tags && !self.any_tag.is_empty() {
            return Ok(selection.any_tag);
        }
        // The NUL keeps it distinct from all configured tags. Policies with equal conditions share it.
        let tag = format!("\0{selection:?}");
        selections.insert(tag.clone(), selection);
        Ok(vec![tag])
    }

    fn serial_numbers(&self, build: &mut Build<'_>) -> Result<Vec<Vec<u8>>, BuildError> {
        let mut numbers = Vec::with_capacity(self.serial_number.len());
        for (index, text) in self.serial_number.iter().enumerate() {
            let bad = |build: &mut Build<'_>| Err(build.refuse(&**text, "a serial number in decimal digits"));
            numbers.push(match serial_number(text) {
                Some(number) => number,
                None => build.at(format!("serial_number[{index}]"), bad)?,
            });
        }
        Ok(numbers)
    }

    fn key_algorithm(&self, build: &mut Build<'_>) -> Result<Option<KeyAlgorithm>, BuildError> {
        let Some(name) = &self.public_key_algorithm else { return Ok(None) };
        match &*name.to_ascii_lowercase() {
            "rsa" => Ok(Some(KeyAlgorithm::Rsa)),
            "ecdsa" => Ok(Some(KeyAlgorithm::Ecdsa)),
            "dsa" => Ok(Some(KeyAlgorithm::Dsa)),
            _ => build.at("public_key_algorithm", |build| Err(build.refuse(&**name, "rsa, ecdsa or dsa"))),
        }
    }
}

/// Converts a decimal number of any length to bytes: big-endian, without leading zeros.
fn serial_number(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let mut bytes: Vec<u8> = Vec::new();
    for digit in text.bytes() {
        // Multiplies by 10 and adds the digit, from the lowest byte, which is the first one here.
        let mut carry = u16::from(digit - b'0');
        for byte in &mut bytes {
            carry += u16::from(*byte) * 10;
            *byte = carry.to_le_bytes()[0];
            carry >>= 8;
        }
        if carry > 0 {
            bytes.push(carry.to_le_bytes()[0]);
        }
    }
    bytes.reverse();
    Some(bytes)
}

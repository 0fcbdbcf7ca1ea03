//! Selects one of a file's compressed variants for a request.
//!
//! `app.js` may be accompanied by `app.js.br`, `app.js.zst` and `app.js.gz`. [`accept_encoding`] selects the one that a
//! request gets.

use causeway_message::{FieldMap, FieldValue};
use causeway_pipeline::{Build, BuildError};
use serde_json::{Map, Value};

use super::entry::{FileEntry, FileVariant};
use crate::accept_encoding;

pub(super) struct SidecarCoding {
    name: &'static str,
    pub(super) suffix: &'static str,
    pub(super) field_value: FieldValue<'static>,
    /// Higher is better; 0 if the configured order does not contain the coding.
    preference: usize,
}

/// The codings whose variants are looked up.
pub(super) struct SidecarCodings(Box<[SidecarCoding]>);

impl SidecarCodings {
    pub(super) fn build(written: Map<String, Value>, order: &[String], build: &Build<'_>) -> Result<Self, BuildError> {
        let mut codings = Vec::with_capacity(written.len());
        for (name, options) in &written {
            let (name, suffix) = match &**name {
                "br" => ("br", ".br"),
                "gzip" => ("gzip", ".gz"),
                "zstd" => ("zstd", ".zst"),
                _ => return Err(build.refuse(name, "one of br, gzip, zstd as a key of precompressed")),
            };
            if !options.is_null() && !options.as_object().is_some_and(Map::is_empty) {
                return Err(build.refuse(options.to_string(), "no options of a precompressed format"));
            }
            let preference = order.iter().position(|named| named == name).map_or(0, |at| order.len() - at);
            codings.push(SidecarCoding { name, suffix, field_value: FieldValue::from_static(name), preference });
        }
        Ok(Self(codings.into()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &SidecarCoding> {
        self.0.iter()
    }

    /// Returns the existing variant that the request prefers, or `None` for the uncompressed file. Does not allocate.
    pub(super) fn choose<'e>(
        &self,
        fields: &FieldMap,
        entry: &'e FileEntry,
    ) -> Option<(&SidecarCoding, &'e FileVariant)> {
        if entry.sidecars.is_empty() {
            return None;
        }
        let sidecar = accept_encoding::choose(fields, |name| {
            // Codings without an existing variant are not candidates.
            let is_named = |(coding, _): &(usize, _)| name.eq_ignore_ascii_case(self.0[*coding].name.as_bytes());
            let sidecar = entry.sidecars.iter().position(is_named)?;
            Some((sidecar, self.0[entry.sidecars[sidecar].0].preference))
        })?;
        let (coding, variant) = &entry.sidecars[sidecar];
        Some((&self.0[*coding], variant))
    }
}

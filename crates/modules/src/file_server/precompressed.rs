//! Which of a file's compressed versions a request takes.
//!
//! Beside `app.js` there may lie `app.js.br`, `app.js.zst` and `app.js.gz`. Caddy's rules: what the request wants most by
//! `Accept-Encoding` (RFC 9110 §12.5.3), of what it wants equally the first in the configured order, then what it named first. A
//! coding that it does not name is not taken, `*` names none; a WebSocket's handshake takes none.

use causeway_message::octets::trim_ows;
use causeway_message::{FieldMap, FieldValue, names};
use causeway_pipeline::{Build, BuildError};
use serde_json::{Map, Value};

use super::entry::{Entry, Version};

pub(super) struct Coding {
    name: &'static str,
    pub(super) suffix: &'static str,
    pub(super) field_value: FieldValue<'static>,
    /// More is better; 0 where the configured order does not name it.
    preference: usize,
}

/// The codings that are looked for.
pub(super) struct Codings(Box<[Coding]>);

impl Codings {
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
            codings.push(Coding { name, suffix, field_value: FieldValue::from_static(name), preference });
        }
        Ok(Self(codings.into()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Coding> {
        self.0.iter()
    }

    /// The version that the request wants most of those that there are. Allocates nothing.
    pub(super) fn choose<'e>(&self, fields: &FieldMap, entry: &'e Entry) -> Option<(&Coding, &'e Version)> {
        if entry.sides.is_empty() || fields.get(names::SEC_WEBSOCKET_KEY).is_some_and(|key| !key.is_empty()) {
            return None;
        }
        let mut best: Option<((u32, usize), usize)> = None;
        for value in fields.get_all(names::ACCEPT_ENCODING) {
            for item in value.split(|&octet| octet == b',') {
                let (name, quality) = quality(item);
                let Some(side) = entry
                    .sides
                    .iter()
                    .position(|(coding, _)| name.eq_ignore_ascii_case(self.0[*coding].name.as_bytes()))
                else {
                    continue;
                };
                let rank = (quality, self.0[entry.sides[side].0].preference);
                if quality > 0 && best.is_none_or(|(best, _)| rank > best) {
                    best = Some((rank, side));
                }
            }
        }
        let (coding, version) = &entry.sides[best?.1];
        Some((&self.0[*coding], version))
    }
}

/// A coding's name and its weight in 100 000ths. As Caddy reads it: only a weight that comes first behind the name, and is one,
/// counts; else it is 1.
fn quality(item: &[u8]) -> (&[u8], u32) {
    const WHOLE: u32 = 100_000;
    let mut parts = item.split(|&octet| octet == b';').map(trim_ows);
    let name = parts.next().unwrap_or_default();
    let weight = parts.next().and_then(|parameter| match parameter {
        [b'q' | b'Q', b'=', weight @ ..] => std::str::from_utf8(weight).ok()?.parse::<f32>().ok(),
        _ => None,
    });
    let weight = weight.filter(|weight| (0.0..=1.0).contains(weight));
    (name, weight.map_or(WHOLE, |weight| (weight * WHOLE as f32) as u32))
}

//! The record of a value: JSON with the value as base64, its date, and whether it is compressed and encrypted.

use std::io::{Read, Write as _};
use std::time::SystemTime;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::read::{DeflateDecoder, ZlibDecoder};
use flate2::write::{DeflateEncoder, ZlibEncoder};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Error;

/// Size of a decompressed value, at most; the plugin's limit.
const DECOMPRESSED_MAX: u64 = 4 << 20;

/// How new values are compressed. All kinds are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    #[default]
    None,
    /// Raw DEFLATE (RFC 1951).
    Flate,
    /// zlib (RFC 1950).
    Zlib,
}

/// The plugin's numbers of the compressions, and of the encryption.
const NONE: u8 = 0;
const FLATE: u8 = 1;
const ZLIB: u8 = 2;
const AES_GCM: u8 = 1;

#[derive(Serialize, Deserialize)]
struct Record {
    /// As base64; Go writes an empty value as null.
    value: Option<String>,
    /// RFC 3339.
    modified: String,
    /// Length of the value itself in bytes.
    size: u64,
    #[serde(default)]
    compression: u8,
    #[serde(default)]
    encryption: u8,
}

/// Encodes and decodes records.
pub(super) struct Codec {
    key: Option<RandomizedNonceKey>,
    compression: Compression,
}

impl Codec {
    pub(super) fn new(key: Option<&[u8; 32]>, compression: Compression) -> Result<Self, Error> {
        let key = key.map(|key| RandomizedNonceKey::new(&AES_256_GCM, key)).transpose();
        let key = key
            .map_err(|_| Error::StorageSetting("encryption_key", "found a key that AES-256-GCM refuses".to_owned()))?;
        Ok(Self { key, compression })
    }

    pub(super) fn encode(&self, value: &[u8], now: SystemTime) -> Result<String, Error> {
        let mut encoded = value.to_vec();
        let mut compression = NONE;
        // Writing to a vector cannot fail.
        let packed = match self.compression {
            Compression::None => None,
            Compression::Flate => {
                let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(value).and_then(|()| encoder.finish()).ok().map(|packed| (packed, FLATE))
            }
            Compression::Zlib => {
                let mut encoder = ZlibEncoder::new(Vec::new(), flate2::Compression::default());
                encoder.write_all(value).and_then(|()| encoder.finish()).ok().map(|packed| (packed, ZLIB))
            }
        };
        if let Some((packed, kind)) = packed.filter(|(packed, _)| packed.len() < value.len()) {
            (encoded, compression) = (packed, kind);
        }
        if let Some(key) = &self.key {
            let nonce = key.seal_in_place_append_tag(Aad::empty(), &mut encoded).map_err(|_| Error::Random)?;
            encoded.splice(0..0, nonce.as_ref().iter().copied());
        }
        let record = Record {
            value: Some(BASE64_STANDARD.encode(encoded)),
            modified: OffsetDateTime::from(now).format(&Rfc3339).unwrap_or_default(),
            size: u64::try_from(value.len()).unwrap_or(u64::MAX),
            compression,
            encryption: if self.key.is_some() { AES_GCM } else { NONE },
        };
        Ok(serde_json::to_string(&record).unwrap_or_default())
    }

    /// Returns the reason if the record is malformed.
    pub(super) fn decode(&self, record: &[u8]) -> Result<Vec<u8>, String> {
        let record: Record = serde_json::from_slice(record).map_err(|error| error.to_string())?;
        let value = BASE64_STANDARD.decode(record.value.unwrap_or_default());
        let mut value = value.map_err(|error| error.to_string())?;
        match (record.encryption, &self.key) {
            (NONE, _) => {}
            (_, None) => return Err("it is encrypted, and no encryption_key is set".to_owned()),
            (_, Some(key)) => {
                let failed = || "it was encrypted with another encryption_key".to_owned();
                let sealed = value.split_off(NONCE_LEN.min(value.len()));
                let nonce = Nonce::try_assume_unique_for_key(&value).map_err(|_| failed())?;
                value = sealed;
                let len = key.open_in_place(nonce, Aad::empty(), &mut value).map_err(|_| failed())?.len();
                value.truncate(len);
            }
        }
        match record.compression {
            NONE => Ok(value),
            FLATE => unpack(DeflateDecoder::new(&*value)),
            ZLIB => unpack(ZlibDecoder::new(&*value)),
            other => Err(format!("found the compression {other}, expected 0, 1 or 2")),
        }
    }
}

/// Returns the date of a record, or the reason if the record is malformed.
pub(super) fn modified(record: &[u8]) -> Result<SystemTime, String> {
    let record: Record = serde_json::from_slice(record).map_err(|error| error.to_string())?;
    let modified = OffsetDateTime::parse(&record.modified, &Rfc3339);
    modified.map(SystemTime::from).map_err(|_| format!("found the date '{}'", record.modified))
}

fn unpack(packed: impl Read) -> Result<Vec<u8>, String> {
    let mut value = Vec::new();
    packed.take(DECOMPRESSED_MAX + 1).read_to_end(&mut value).map_err(|error| error.to_string())?;
    if value.len() as u64 > DECOMPRESSED_MAX {
        return Err(format!("it is larger than {DECOMPRESSED_MAX} bytes after decompression"));
    }
    Ok(value)
}

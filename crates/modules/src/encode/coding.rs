//! The content codings with their levels, as the configuration names them.

use causeway_message::FieldValue;
use causeway_pipeline::{Build, BuildError};
use serde_json::{Map, Value};

/// Caddy's default level of gzip.
const GZIP_LEVEL: u32 = 5;
/// The default level of br. At 4, br takes twice gzip's time for responses of gzip's size;
/// at 5 they are 6 to 7 % smaller than at 4, at 6 one percent smaller than at 5.
const BROTLI_LEVEL: u32 = 5;

/// A coding with its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// RFC 7932, with the quality from 0 to 11.
    Brotli {
        /// The quality.
        level: u32,
    },
    /// RFC 1952, with zlib's level from 1 to 9, or [`Coding::GZIP_BEST`].
    Gzip {
        /// The level.
        level: u32,
    },
    /// RFC 8878, with libzstd's level.
    Zstd {
        /// The level.
        level: i32,
        /// Whether the content carries a checksum.
        checksum: bool,
    },
}

impl Coding {
    /// The level of gzip that only content in memory can have; see `whole`.
    pub(super) const GZIP_BEST: u32 = 12;

    /// Reads an element of `encodings`.
    pub(super) fn build(name: &str, options: &Value, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let none = Map::new();
        let options = match options {
            Value::Null => &none,
            Value::Object(options) => options,
            other => return Err(build.refuse(other.to_string(), "an object")),
        };
        let allowed: &[&str] = match name {
            "br" | "gzip" => &["level"],
            "zstd" => &["level", "checksum"],
            _ => return Err(build.refuse(name, "one of br, gzip, zstd")),
        };
        if let Some(key) = options.keys().find(|key| !allowed.contains(&&***key)) {
            return Err(build.refuse(key, "level, or checksum of zstd"));
        }
        let level = options.get("level").filter(|level| !level.is_null());
        match name {
            "br" => {
                let level = level.map_or(Ok(BROTLI_LEVEL.into()), |level| number(level, 0..=11, build))?;
                Ok(Self::Brotli { level: u32::try_from(level).unwrap_or(BROTLI_LEVEL) })
            }
            "gzip" => {
                // Go's levels: 0 stands for the default here, -1 for zlib's default, and those below for the fastest
                // ones.
                let level = match level.map_or(Ok(0), |level| number(level, -3..=9, build))? {
                    0 => GZIP_LEVEL,
                    -1 => 6,
                    level => u32::try_from(level).unwrap_or(1),
                };
                Ok(Self::Gzip { level })
            }
            _ => Self::zstd(level, options.get("checksum"), build),
        }
    }

    fn zstd(level: Option<&Value>, checksum: Option<&Value>, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let level = match level {
            None | Some(Value::Null) => 3,
            Some(level) => {
                let word = level.as_str().map(str::to_ascii_lowercase);
                match word.as_deref() {
                    Some("" | "default") => 3,
                    Some("fastest") => 1,
                    Some("better") => 7,
                    Some("best") => 11,
                    _ => {
                        let found = level.to_string();
                        let expected = "fastest, default, better or best";
                        return build.at("level", |build| Err(build.refuse(found, expected)));
                    }
                }
            }
        };
        let checksum = match checksum {
            None | Some(Value::Null) => true,
            Some(Value::Bool(checksum)) => *checksum,
            Some(other) => {
                let found = other.to_string();
                return build.at("checksum", |build| Err(build.refuse(found, "true or false")));
            }
        };
        Ok(Self::Zstd { level, checksum })
    }

    /// The coding of this name for content that is compressed once and sent often: the smallest result.
    pub(crate) fn smallest(name: &str) -> Option<Self> {
        match name {
            "br" => Some(Self::Brotli { level: 11 }),
            "gzip" => Some(Self::Gzip { level: Self::GZIP_BEST }),
            "zstd" => Some(Self::Zstd { level: 19, checksum: false }),
            _ => None,
        }
    }

    /// The coding's registered name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Brotli { .. } => "br",
            Self::Gzip { .. } => "gzip",
            Self::Zstd { .. } => "zstd",
        }
    }

    pub(super) fn field_value(self) -> FieldValue<'static> {
        FieldValue::from_static(self.name())
    }

    /// Bytes of content that a worker itself compresses before it turns to its other connections; a longer piece is
    /// offloaded. Measured on English text: about 100 µs.
    pub(super) fn inline_bytes_max(self) -> usize {
        match self {
            Self::Brotli { level } if level >= 7 => 0,
            Self::Brotli { .. } => 3 * 1024,
            Self::Gzip { level } if level >= 7 => 4 * 1024,
            Self::Gzip { .. } => 12 * 1024,
            Self::Zstd { level, .. } if level > 7 => 2 * 1024,
            Self::Zstd { level, .. } if level > 3 => 8 * 1024,
            Self::Zstd { .. } => 20 * 1024,
        }
    }
}

/// Reads a level; another value or type is refused.
fn number(level: &Value, range: std::ops::RangeInclusive<i64>, build: &mut Build<'_>) -> Result<i64, BuildError> {
    match level.as_i64().filter(|level| range.contains(level)) {
        Some(level) => Ok(level),
        None => {
            let expected = format!("a level from {} to {}", range.start(), range.end());
            build.at("level", |build| Err(build.refuse(level.to_string(), expected)))
        }
    }
}

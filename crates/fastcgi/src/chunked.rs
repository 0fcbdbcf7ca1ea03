//! Chunked content (RFC 9112 §7.1). CGI has no transfer codings, but some scripts write this one themselves, and Caddy
//! decodes it.

use std::ops::Range;

use crate::error::FastCgiError;

/// Digits of a chunk's size: as many as fit into 64 bits.
const DIGITS_MAX: u8 = 16;
/// Bytes of a chunk's extensions.
const EXTENSION_BYTES_MAX: u16 = 4096;

/// The position in chunked content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChunkPosition {
    /// In the digits of a size.
    Size {
        size: u64,
        digits: u8,
    },
    /// After a size, in the rest of its line, of which this much was skipped.
    Line {
        size: u64,
        skipped: u16,
    },
    Data {
        left: u64,
    },
    /// After a chunk's data, before the end of its line.
    DataEnd {
        has_cr: bool,
    },
    /// After the last chunk. Trailers are skipped, as everything that follows.
    Done,
}

impl ChunkPosition {
    pub(crate) const START: Self = Self::Size { size: 0, digits: 0 };

    /// Parses bytes. Returns how many were consumed, at least one of a not empty `input`, and the range of the data
    /// among them, which may be empty.
    pub(crate) fn handle(&mut self, input: &[u8]) -> Result<(usize, Range<usize>), FastCgiError> {
        for (at, &byte) in input.iter().enumerate() {
            *self = match *self {
                Self::Data { left } => {
                    let len = usize::try_from(left).unwrap_or(usize::MAX).min(input.len() - at);
                    let left = left - len as u64;
                    *self = if left == 0 { Self::DataEnd { has_cr: false } } else { Self::Data { left } };
                    return Ok((at + len, at..at + len));
                }
                Self::Size { size, digits } => match char::from(byte).to_digit(16) {
                    Some(_) if digits == DIGITS_MAX => return Err(FastCgiError::Chunk),
                    Some(digit) => Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 },
                    None if digits == 0 => return Err(FastCgiError::Chunk),
                    None if byte == b'\n' => Self::begin(size),
                    None if matches!(byte, b'\r' | b';' | b' ' | b'\t') => Self::Line { size, skipped: 0 },
                    None => return Err(FastCgiError::Chunk),
                },
                Self::Line { size, .. } if byte == b'\n' => Self::begin(size),
                Self::Line { skipped: EXTENSION_BYTES_MAX, .. } => return Err(FastCgiError::Chunk),
                Self::Line { size, skipped } => Self::Line { size, skipped: skipped + 1 },
                Self::DataEnd { .. } if byte == b'\n' => Self::START,
                Self::DataEnd { has_cr: false } if byte == b'\r' => Self::DataEnd { has_cr: true },
                Self::DataEnd { .. } => return Err(FastCgiError::Chunk),
                Self::Done => break,
            };
        }
        Ok((input.len(), 0..0))
    }

    fn begin(size: u64) -> Self {
        if size == 0 { Self::Done } else { Self::Data { left: size } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the data, and whether the content is complete; `None` is a fault.
    fn decode<'p>(pieces: impl IntoIterator<Item = &'p [u8]>) -> Option<(Vec<u8>, bool)> {
        let (mut position, mut data) = (ChunkPosition::START, Vec::new());
        for mut piece in pieces {
            while !piece.is_empty() {
                let (consumed, range) = position.handle(piece).ok()?;
                assert!(consumed > 0 && range.end <= consumed);
                data.extend_from_slice(&piece[range]);
                piece = &piece[consumed..];
            }
        }
        Some((data, position == ChunkPosition::Done))
    }

    /// RFC 9112 §7.1: sizes in hexadecimal digits, extensions, the last chunk.
    #[test]
    fn chunks() {
        let long = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(5000));
        for (text, want) in [
            ("5\r\nhello\r\n0\r\n\r\n", Some(("hello", true))),
            ("00a;x=y\r\n0123456789\r\n1 \r\n!\r\n0\r\nX-T: 1\r\n\r\n", Some(("0123456789!", true))),
            ("5\nhello\n0\n", Some(("hello", true))),
            ("0\r\n\r\nmore", Some(("", true))),
            ("5\r\nhel", Some(("hel", false))),
            ("5\r\nhello\r\n", Some(("hello", false))),
            ("", Some(("", false))),
            ("hello", None),
            ("\r\n", None),
            ("-1\r\n", None),
            ("5x\r\nhello\r\n", None),
            ("5\r\nhello!\r\n", None),
            ("5\r\nhello\r\r\n", None),
            ("10000000000000000\r\n", None),
            (&*long, None),
        ] {
            let want = want.map(|(data, done)| (data.as_bytes().to_vec(), done));
            assert_eq!(decode([text.as_bytes()]), want, "{text:?}");
            assert_eq!(decode(text.as_bytes().chunks(1)), want, "{text:?} byte by byte");
            for at in 0..text.len().min(60) {
                assert_eq!(decode([&text.as_bytes()[..at], &text.as_bytes()[at..]]), want, "{text:?} split at {at}");
            }
        }
    }
}

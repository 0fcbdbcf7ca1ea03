//! The end of a message's content (RFC 9112 §6.3, §7.1).
//!
//! ```text
//! Sized ──last byte──► (end)
//!                ┌─► Space ─┐
//! Chunked:  Size ┴──';'──────┴► Extension ─┐            ┌─────────────── CR LF ◄───────────┐
//!             └──CR────────────────────────┴─► SizeLf ──┤ size > 0 ► Data ─► DataCr ─► DataLf
//!                                                       └ size = 0 ► Trailers ─► (end)
//! ```

use std::ops::Range;

use causeway_message::names;

use crate::error::ProtocolError;
use crate::limits::Limits;
use crate::parse::{HeadStorage, Parsed, has_end, parse_trailers};
use crate::scan;

/// The position of the parser in a message's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyParser {
    /// Sized, Data: bytes left. Size, Space, Extension, SizeLf: the size so far. Trailers: bytes already searched for
    /// their end.
    count: u64,
    step: BodyStep,
    /// Size: number of digits so far.
    digits: u8,
    /// Length of this chunk's extensions.
    chunk_extension_bytes: u16,
    /// Length of all extensions of this body.
    body_extension_bytes: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyStep {
    Sized,
    Size,
    /// Between a size and the ';' of its extensions.
    Space,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
}

/// The result of parsing a piece of input.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ParsedPiece {
    /// Content at this range; the input is consumed up to its end.
    Data(Range<usize>),
    /// The end of the content, with trailers in the head; this many bytes are consumed.
    Trailers(usize),
    /// The end of the content; this many bytes are consumed.
    End(usize),
    /// No result yet; this many bytes are consumed.
    More(usize),
}

/// 16 digits hold any allowed size. Leading zeros are valid, but this bounds the length of a size line.
const SIZE_DIGITS_MAX: u8 = 64;

impl BodyParser {
    pub(crate) const fn sized(bytes: u64) -> Self {
        Self { count: bytes, step: BodyStep::Sized, digits: 0, chunk_extension_bytes: 0, body_extension_bytes: 0 }
    }

    pub(crate) const fn chunked() -> Self {
        Self { count: 0, step: BodyStep::Size, digits: 0, chunk_extension_bytes: 0, body_extension_bytes: 0 }
    }

    /// Parses the input up to the first piece of content, the end of the content, or the first incomplete element.
    pub(crate) fn handle<H: HeadStorage>(
        &mut self,
        input: &[u8],
        limits: &Limits,
        head: &mut H,
    ) -> Result<ParsedPiece, ProtocolError> {
        let mut at = 0;
        loop {
            if self.step == BodyStep::Sized && self.count == 0 {
                return Ok(ParsedPiece::End(at));
            }
            let Some(&byte) = input.get(at) else { return Ok(ParsedPiece::More(at)) };
            match self.step {
                BodyStep::Sized | BodyStep::Data => {
                    let left = usize::try_from(self.count).unwrap_or(usize::MAX);
                    let end = at + left.min(input.len() - at);
                    self.count -= (end - at) as u64;
                    if self.step == BodyStep::Data && self.count == 0 {
                        self.step = BodyStep::DataCr;
                    }
                    return Ok(ParsedPiece::Data(at..end));
                }
                BodyStep::Size => self.handle_size(byte)?,
                BodyStep::Space => {
                    self.count_extension(1, limits)?;
                    match byte {
                        b' ' | b'\t' => {}
                        b';' => self.step = BodyStep::Extension,
                        b'\r' if H::ALLOWS_PADDED_SIZES => self.step = BodyStep::SizeLf,
                        _ => return Err(ProtocolError::ChunkSize),
                    }
                }
                BodyStep::Extension => {
                    // Consume all bytes up to the line end at once.
                    let end = scan::value_end(input, at);
                    let len = u16::try_from(end - at).map_err(|_| ProtocolError::ChunkExtension)?;
                    self.count_extension(len, limits)?;
                    at = end;
                    match input.get(at) {
                        None => continue,
                        Some(b'\r') => self.step = BodyStep::SizeLf,
                        // A single LF or another control byte: parsers disagree about the end of such a line.
                        Some(_) => return Err(ProtocolError::ChunkExtension),
                    }
                }
                BodyStep::SizeLf => {
                    expect(byte, b'\n', ProtocolError::ChunkExtension)?;
                    self.step = if self.count == 0 { BodyStep::Trailers } else { BodyStep::Data };
                }
                BodyStep::DataCr => {
                    expect(byte, b'\r', ProtocolError::ChunkEnd)?;
                    self.step = BodyStep::DataLf;
                }
                BodyStep::DataLf => {
                    expect(byte, b'\n', ProtocolError::ChunkEnd)?;
                    *self = Self { body_extension_bytes: self.body_extension_bytes, ..Self::chunked() };
                }
                BodyStep::Trailers => return self.handle_trailers(&input[at..], at, limits, head),
            }
            at += 1;
        }
    }

    // RFC 9112 §7.1: 1*HEXDIG, with no byte before it. §7.1.1: white space is allowed only before the ';' of an
    // extension. DEVIATES RFC 9112 §7.1: from an upstream also before the line end.
    fn handle_size(&mut self, byte: u8) -> Result<(), ProtocolError> {
        match byte {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                // A size below 2^59 stays below 2^63 with one more digit.
                if self.digits == SIZE_DIGITS_MAX || self.count >> 59 != 0 {
                    return Err(ProtocolError::ChunkSize);
                }
                self.digits += 1;
                self.count = self.count << 4 | u64::from(digit);
            }
            b';' if self.digits > 0 => {
                self.chunk_extension_bytes = 0;
                self.step = BodyStep::Extension;
            }
            b' ' | b'\t' if self.digits > 0 => {
                self.chunk_extension_bytes = 0;
                self.step = BodyStep::Space;
            }
            b'\r' if self.digits > 0 => self.step = BodyStep::SizeLf,
            _ => return Err(ProtocolError::ChunkSize),
        }
        Ok(())
    }

    // A body of one-byte chunks with long extensions would be cheap for the peer and expensive to parse.
    fn count_extension(&mut self, len: u16, limits: &Limits) -> Result<(), ProtocolError> {
        self.chunk_extension_bytes = self.chunk_extension_bytes.saturating_add(len);
        self.body_extension_bytes = self.body_extension_bytes.saturating_add(len);
        let too_long = self.chunk_extension_bytes > limits.chunk_extension_line_bytes_max
            || self.body_extension_bytes > limits.chunk_extension_bytes_max;
        if too_long { Err(ProtocolError::ChunkExtension) } else { Ok(()) }
    }

    fn handle_trailers(
        &mut self,
        input: &[u8],
        at: usize,
        limits: &Limits,
        head: &mut impl HeadStorage,
    ) -> Result<ParsedPiece, ProtocolError> {
        if let [b'\r', b'\n', ..] = input {
            return Ok(ParsedPiece::End(at + 2));
        }
        // `count` holds the bytes already searched, so that a slow trailer section is not parsed again for each new
        // byte.
        let searched = self.count as usize;
        let over = input.len() >= limits.trailers_bytes_max as usize;
        if searched > 0 && input[0] != b'\r' && !over && !has_end(input, searched) {
            self.count = input.len() as u64;
            return Ok(ParsedPiece::More(at));
        }
        match parse_trailers(input, limits, head)? {
            Parsed::Partial => {
                self.count = input.len() as u64;
                Ok(ParsedPiece::More(at))
            }
            Parsed::Whole(len) => {
                // RFC 9110 §6.5.1: a field that frames or routes a message is not allowed in trailers.
                for name in [names::CONTENT_LENGTH, names::TRANSFER_ENCODING, names::HOST, names::CONNECTION] {
                    head.fields_mut().remove(name);
                }
                let none = head.fields_mut().is_empty();
                Ok(if none { ParsedPiece::End(at + len) } else { ParsedPiece::Trailers(at + len) })
            }
        }
    }
}

fn expect(byte: u8, wanted: u8, fault: ProtocolError) -> Result<(), ProtocolError> {
    if byte == wanted { Ok(()) } else { Err(fault) }
}

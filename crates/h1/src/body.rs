//! Where a message's content ends (RFC 9112 §6.3, §7.1).
//!
//! ```text
//! Sized ──last octet──► Over
//! Chunked:  Size ──';'──► Extension ─┐            ┌─────────────── CR LF ◄───────────┐
//!             └──CR──────────────────┴─► SizeLf ──┤ size > 0 ► Data ─► DataCr ─► DataLf
//!                                                 └ size = 0 ► Trailers ─► Over
//! ```

use std::ops::Range;

use causeway_message::names;

use crate::fault::HeadFault;
use crate::limits::Limits;
use crate::parse::{Parsed, Spare, has_end, parse_trailers};
use crate::scan;

/// A content's end, and how far the machine is on the way there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Body {
    /// Sized, Data: octets left. Size, Extension, SizeLf: the size so far. Trailers: octets searched for their end.
    count: u64,
    step: Step,
    /// Size: digits so far.
    digits: u8,
    /// Octets of this chunk's extensions, and of all of this body.
    extension: u16,
    extensions: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Sized,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    Trailers,
}

/// What a piece of input held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Content, at this range; done with up to its end.
    Data(Range<usize>),
    /// The end, with trailers in the head; done with this many octets.
    Trailers(usize),
    /// The end; done with this many octets.
    End(usize),
    /// Nothing yet; done with this many octets.
    More(usize),
}

/// 16 digits hold any size there is. Zeros in front are digits like any other, but may not make a size line endless.
const SIZE_DIGITS_MAX: u8 = 64;

impl Body {
    pub(crate) const fn sized(octets: u64) -> Self {
        Self { count: octets, step: Step::Sized, digits: 0, extension: 0, extensions: 0 }
    }

    pub(crate) const fn chunked() -> Self {
        Self { count: 0, step: Step::Size, digits: 0, extension: 0, extensions: 0 }
    }

    /// Goes through the input up to the first piece of content, the end, or what is not whole yet.
    pub(crate) fn handle(&mut self, input: &[u8], limits: &Limits, head: &mut impl Spare) -> Result<Found, HeadFault> {
        let mut at = 0;
        loop {
            if self.step == Step::Sized && self.count == 0 {
                return Ok(Found::End(at));
            }
            let Some(&octet) = input.get(at) else { return Ok(Found::More(at)) };
            match self.step {
                Step::Sized | Step::Data => {
                    let left = usize::try_from(self.count).unwrap_or(usize::MAX);
                    let end = at + left.min(input.len() - at);
                    self.count -= (end - at) as u64;
                    if self.step == Step::Data && self.count == 0 {
                        self.step = Step::DataCr;
                    }
                    return Ok(Found::Data(at..end));
                }
                Step::Size => self.handle_size(octet)?,
                Step::Extension => {
                    // Up to the octet before the line's end in one go.
                    let end = scan::value_end(input, at);
                    let len = u16::try_from(end - at).map_err(|_| HeadFault::ChunkExtension)?;
                    self.spend(len, limits)?;
                    at = end;
                    match input.get(at) {
                        None => continue,
                        Some(b'\r') => self.step = Step::SizeLf,
                        // A single LF, or any other control octet: peers disagree about where such a line ends.
                        Some(_) => return Err(HeadFault::ChunkExtension),
                    }
                }
                Step::SizeLf => {
                    expect(octet, b'\n', HeadFault::ChunkExtension)?;
                    self.step = if self.count == 0 { Step::Trailers } else { Step::Data };
                }
                Step::DataCr => {
                    expect(octet, b'\r', HeadFault::ChunkEnd)?;
                    self.step = Step::DataLf;
                }
                Step::DataLf => {
                    expect(octet, b'\n', HeadFault::ChunkEnd)?;
                    *self = Self { extensions: self.extensions, ..Self::chunked() };
                }
                Step::Trailers => return self.handle_trailers(&input[at..], at, limits, head),
            }
            at += 1;
        }
    }

    // RFC 9112 §7.1: 1*HEXDIG, nothing before and, DEVIATES §7.1.1's BWS, nothing between it and ';' or the line's end.
    fn handle_size(&mut self, octet: u8) -> Result<(), HeadFault> {
        match octet {
            b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F' => {
                let digit = (octet as char).to_digit(16).unwrap_or(0);
                if self.digits == SIZE_DIGITS_MAX || self.count >> 59 != 0 {
                    return Err(HeadFault::ChunkSize);
                }
                self.digits += 1;
                self.count = self.count << 4 | u64::from(digit);
            }
            b';' if self.digits > 0 => {
                self.extension = 0;
                self.step = Step::Extension;
            }
            b'\r' if self.digits > 0 => self.step = Step::SizeLf,
            _ => return Err(HeadFault::ChunkSize),
        }
        Ok(())
    }

    // A body of one-octet chunks with long extensions costs the peer little and us much.
    fn spend(&mut self, len: u16, limits: &Limits) -> Result<(), HeadFault> {
        self.extension = self.extension.saturating_add(len);
        self.extensions = self.extensions.saturating_add(len);
        let too_long = self.extension > limits.chunk_extension_line_bytes_max
            || self.extensions > limits.chunk_extension_bytes_max;
        if too_long { Err(HeadFault::ChunkExtension) } else { Ok(()) }
    }

    fn handle_trailers(
        &mut self,
        input: &[u8],
        at: usize,
        limits: &Limits,
        head: &mut impl Spare,
    ) -> Result<Found, HeadFault> {
        if let [b'\r', b'\n', ..] = input {
            return Ok(Found::End(at + 2));
        }
        let searched = self.count as usize;
        let over = input.len() >= limits.trailers_bytes_max as usize;
        if searched > 0 && input[0] != b'\r' && !over && !has_end(input, searched) {
            self.count = input.len() as u64;
            return Ok(Found::More(at));
        }
        match parse_trailers(input, limits, head)? {
            Parsed::Partial => {
                self.count = input.len() as u64;
                Ok(Found::More(at))
            }
            Parsed::Whole(len) => {
                // RFC 9110 §6.5.1: what frames or routes a message may not come behind it.
                for name in [names::CONTENT_LENGTH, names::TRANSFER_ENCODING, names::HOST, names::CONNECTION] {
                    head.fields_mut().remove(name);
                }
                let none = head.fields_mut().is_empty();
                Ok(if none { Found::End(at + len) } else { Found::Trailers(at + len) })
            }
        }
    }
}

fn expect(octet: u8, wanted: u8, fault: HeadFault) -> Result<(), HeadFault> {
    if octet == wanted { Ok(()) } else { Err(fault) }
}

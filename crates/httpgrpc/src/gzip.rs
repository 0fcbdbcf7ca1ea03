//! Incremental decompression of gzip members (RFC 1952).
//!
//! The container is parsed here, because flate2's parser of it cannot be reused without allocating.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::error::DecodeError;

/// Members of a message. A message normally is one member. Each member costs a reset, so a peer could make thousands
/// of empty ones expensive.
const MEMBERS_MAX: u8 = 16;

mod flag {
    pub(super) const HEADER_CRC: u8 = 2;
    pub(super) const EXTRA: u8 = 4;
    pub(super) const NAME: u8 = 8;
    pub(super) const COMMENT: u8 = 16;
    pub(super) const RESERVED: u8 = 0xe0;
}

/// The position within a member, in the order of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberPosition {
    /// ID1 ID2 CM FLG MTIME XFL OS
    Header,
    ExtraLength,
    Extra(u16),
    Name,
    Comment,
    HeaderCrc,
    Deflate,
    /// CRC32 ISIZE
    Trailer,
}

/// A decompressor, about 40 KiB. Created for the first compressed message, and reused.
#[derive(Debug)]
pub(crate) struct Inflate {
    raw: Decompress,
    crc: Crc,
    state: MemberPosition,
    flags: u8,
    members: u8,
    // The bytes read so far of a fixed-length field of the container.
    buffer: [u8; 10],
    buffered: u8,
}

/// The bytes consumed and produced by one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InflateStep {
    pub(crate) used: usize,
    pub(crate) made: usize,
}

impl Inflate {
    pub(crate) fn new() -> Self {
        Self {
            raw: Decompress::new(false),
            crc: Crc::new(),
            state: MemberPosition::Header,
            flags: 0,
            members: 0,
            buffer: [0; 10],
            buffered: 0,
        }
    }

    /// Starts a new message.
    pub(crate) fn begin(&mut self) {
        (self.members, self.buffered) = (0, 0);
        self.next_member();
    }

    fn next_member(&mut self) {
        self.raw.reset(false);
        self.crc.reset();
        self.state = MemberPosition::Header;
    }

    /// Returns whether the message may end here: after a member.
    pub(crate) const fn is_whole(&self) -> bool {
        self.members > 0 && self.buffered == 0 && matches!(self.state, MemberPosition::Header)
    }

    /// Decompresses until the input is consumed or the output is full.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<InflateStep, DecodeError> {
        let (mut used, mut made) = (0, 0);
        loop {
            if self.state == MemberPosition::Deflate {
                // flate2 reports progress by its totals only.
                let before = (self.raw.total_in(), self.raw.total_out());
                let status = self.raw.decompress(&input[used..], &mut output[made..], FlushDecompress::None);
                let status = status.map_err(|_| DecodeError::Gzip)?;
                let taken = (self.raw.total_in() - before.0) as usize;
                let given = (self.raw.total_out() - before.1) as usize;
                self.crc.update(&output[made..made + given]);
                (used, made) = (used + taken, made + given);
                if status == Status::StreamEnd {
                    self.state = MemberPosition::Trailer;
                } else if made == output.len() || (taken, given) == (0, 0) {
                    // The output is full, or the input is consumed: there was no progress on either side.
                    return Ok(InflateStep { used, made });
                }
            } else {
                let Some(&byte) = input.get(used) else { return Ok(InflateStep { used, made }) };
                used += 1;
                self.parse_container_byte(byte)?;
            }
        }
    }

    /// Parses the next byte of the container.
    fn parse_container_byte(&mut self, byte: u8) -> Result<(), DecodeError> {
        match self.state {
            MemberPosition::Header => {
                if !self.collect(byte, 10) {
                    return Ok(());
                }
                // RFC 1952 §2.3.1: deflate is the only method; §2.3.1.2: reserved flags must be zero.
                let [0x1f, 0x8b, 8, flags, ..] = self.buffer else { return Err(DecodeError::Gzip) };
                if flags & flag::RESERVED != 0 || self.members == MEMBERS_MAX {
                    return Err(DecodeError::Gzip);
                }
                self.flags = flags;
                self.state = MemberPosition::ExtraLength;
                self.skip_absent_fields();
            }
            MemberPosition::ExtraLength => {
                if self.collect(byte, 2) {
                    self.state = MemberPosition::Extra(u16::from_le_bytes([self.buffer[0], self.buffer[1]]));
                    self.skip_absent_fields();
                }
            }
            MemberPosition::Extra(left) => {
                self.state = MemberPosition::Extra(left - 1);
                self.skip_absent_fields();
            }
            MemberPosition::Name | MemberPosition::Comment => {
                if byte == 0 {
                    self.state = if self.state == MemberPosition::Name {
                        MemberPosition::Comment
                    } else {
                        MemberPosition::HeaderCrc
                    };
                    self.skip_absent_fields();
                }
            }
            MemberPosition::HeaderCrc => {
                if self.collect(byte, 2) {
                    self.state = MemberPosition::Deflate;
                }
            }
            MemberPosition::Trailer => {
                if self.collect(byte, 8) {
                    let [a, b, c, d, e, f, g, h, ..] = self.buffer;
                    let (crc, size) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                    // RFC 1952 §2.3.1: the CRC-32 and the size of the uncompressed data, modulo 2^32.
                    if crc != self.crc.sum() || size != self.crc.amount() {
                        return Err(DecodeError::Gzip);
                    }
                    // Another member may follow (RFC 1952 §2.2).
                    self.members += 1;
                    self.next_member();
                }
            }
            MemberPosition::Deflate => unreachable!("its bytes are inflated"),
        }
        Ok(())
    }

    /// Skips the optional parts of the header that the flags exclude.
    fn skip_absent_fields(&mut self) {
        if self.state == MemberPosition::ExtraLength && self.flags & flag::EXTRA == 0
            || self.state == MemberPosition::Extra(0)
        {
            self.state = MemberPosition::Name;
        }
        if self.state == MemberPosition::Name && self.flags & flag::NAME == 0 {
            self.state = MemberPosition::Comment;
        }
        if self.state == MemberPosition::Comment && self.flags & flag::COMMENT == 0 {
            self.state = MemberPosition::HeaderCrc;
        }
        if self.state == MemberPosition::HeaderCrc && self.flags & flag::HEADER_CRC == 0 {
            self.state = MemberPosition::Deflate;
        }
    }

    /// Buffers a byte of a fixed-length field; returns whether the field is complete.
    fn collect(&mut self, byte: u8, wanted: u8) -> bool {
        self.buffer[usize::from(self.buffered)] = byte;
        self.buffered += 1;
        let is_whole = self.buffered == wanted;
        if is_whole {
            self.buffered = 0;
        }
        is_whole
    }
}

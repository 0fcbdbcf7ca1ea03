//! Gzip members (RFC 1952) inflated step by step.
//!
//! The container is read here and not by flate2, whose reader of it cannot be used again without allocating.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::fault::DecodeFault;

/// A message is one member; whoever joins several does so for few. Each costs a reset, so thousands of empty ones are refused.
const MEMBERS_MAX: u8 = 16;

mod flag {
    pub(super) const HEADER_CRC: u8 = 2;
    pub(super) const EXTRA: u8 = 4;
    pub(super) const NAME: u8 = 8;
    pub(super) const COMMENT: u8 = 16;
    pub(super) const RESERVED: u8 = 0xe0;
}

/// Where in a member its reader stands; in the order in which these come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
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

/// Made when a peer first compresses, and used again. Some 40 KiB.
#[derive(Debug)]
pub(crate) struct Inflate {
    raw: Decompress,
    crc: Crc,
    state: State,
    flags: u8,
    members: u8,
    // What a field of the container has so far.
    some: [u8; 10],
    have: u8,
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) used: usize,
    pub(crate) made: usize,
}

impl Inflate {
    pub(crate) fn new() -> Self {
        Self {
            raw: Decompress::new(false),
            crc: Crc::new(),
            state: State::Header,
            flags: 0,
            members: 0,
            some: [0; 10],
            have: 0,
        }
    }

    /// Another message begins.
    pub(crate) fn begin(&mut self) {
        (self.members, self.have) = (0, 0);
        self.next_member();
    }

    fn next_member(&mut self) {
        self.raw.reset(false);
        self.crc.reset();
        self.state = State::Header;
    }

    /// Whether the message may end here: behind a member.
    pub(crate) const fn is_whole(&self) -> bool {
        self.members > 0 && self.have == 0 && matches!(self.state, State::Header)
    }

    /// Inflates until the input is used up or the output is full.
    pub(crate) fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<Step, DecodeFault> {
        let (mut used, mut made) = (0, 0);
        loop {
            if self.state == State::Deflate {
                let before = (self.raw.total_in(), self.raw.total_out());
                let status = self.raw.decompress(&input[used..], &mut output[made..], FlushDecompress::None);
                let status = status.map_err(|_| DecodeFault::Gzip)?;
                let taken = (self.raw.total_in() - before.0) as usize;
                let given = (self.raw.total_out() - before.1) as usize;
                self.crc.update(&output[made..made + given]);
                (used, made) = (used + taken, made + given);
                if status == Status::StreamEnd {
                    self.state = State::Trailer;
                } else if made == output.len() || (taken, given) == (0, 0) {
                    return Ok(Step { used, made });
                }
            } else {
                let Some(&octet) = input.get(used) else { return Ok(Step { used, made }) };
                used += 1;
                self.contain(octet)?;
            }
        }
    }

    /// The next octet of what stands around the data.
    fn contain(&mut self, octet: u8) -> Result<(), DecodeFault> {
        match self.state {
            State::Header => {
                if !self.collect(octet, 10) {
                    return Ok(());
                }
                // RFC 1952 §2.3.1: deflate is the only method; §2.3.1.2: reserved flags must be zero.
                let [0x1f, 0x8b, 8, flags, ..] = self.some else { return Err(DecodeFault::Gzip) };
                if flags & flag::RESERVED != 0 || self.members == MEMBERS_MAX {
                    return Err(DecodeFault::Gzip);
                }
                self.flags = flags;
                self.state = State::ExtraLength;
                self.pass();
            }
            State::ExtraLength => {
                if self.collect(octet, 2) {
                    self.state = State::Extra(u16::from_le_bytes([self.some[0], self.some[1]]));
                    self.pass();
                }
            }
            State::Extra(left) => {
                self.state = State::Extra(left - 1);
                self.pass();
            }
            State::Name | State::Comment => {
                if octet == 0 {
                    self.state = if self.state == State::Name { State::Comment } else { State::HeaderCrc };
                    self.pass();
                }
            }
            State::HeaderCrc => {
                if self.collect(octet, 2) {
                    self.state = State::Deflate;
                }
            }
            State::Trailer => {
                if self.collect(octet, 8) {
                    let [a, b, c, d, e, f, g, h, ..] = self.some;
                    let (crc, size) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
                    if crc != self.crc.sum() || size != self.crc.amount() {
                        return Err(DecodeFault::Gzip);
                    }
                    self.members += 1;
                    self.next_member();
                }
            }
            State::Deflate => unreachable!("its octets are inflated"),
        }
        Ok(())
    }

    /// Goes on over what the flags say is not there.
    fn pass(&mut self) {
        if self.state == State::ExtraLength && self.flags & flag::EXTRA == 0 || self.state == State::Extra(0) {
            self.state = State::Name;
        }
        if self.state == State::Name && self.flags & flag::NAME == 0 {
            self.state = State::Comment;
        }
        if self.state == State::Comment && self.flags & flag::COMMENT == 0 {
            self.state = State::HeaderCrc;
        }
        if self.state == State::HeaderCrc && self.flags & flag::HEADER_CRC == 0 {
            self.state = State::Deflate;
        }
    }

    fn collect(&mut self, octet: u8, wanted: u8) -> bool {
        self.some[usize::from(self.have)] = octet;
        self.have += 1;
        let is_whole = self.have == wanted;
        if is_whole {
            self.have = 0;
        }
        is_whole
    }
}

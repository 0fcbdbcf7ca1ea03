//! Length-prefixed messages (gRPC over HTTP/2, "Length-Prefixed-Message"): an octet that says whether the message is compressed, four
//! that say how long it is, then the message.

use causeway_message::{Chunk, FieldMap, names};

use crate::body::Blocks;
use crate::fault::DecodeFault;
use crate::gzip::Inflate;

/// How many octets a message's prefix has.
pub(crate) const PREFIX_BYTES: usize = 5;

/// What may be sent to us, as `grpc-accept-encoding` says it.
pub const ACCEPTED_ENCODINGS: &str = "gzip";

/// What a call's `grpc-encoding` says of its compressed messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// There are none.
    #[default]
    Identity,
    /// They are gzip (RFC 1952).
    Gzip,
    /// Nothing that is understood here. A message that is not compressed is taken all the same.
    Unknown,
}

impl Encoding {
    /// What the fields of a call's head say.
    #[must_use]
    pub fn of(fields: &FieldMap) -> Self {
        match fields.get(names::GRPC_ENCODING) {
            None | Some(b"" | b"identity") => Self::Identity,
            Some(b"gzip") => Self::Gzip,
            Some(_) => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many octets of the prefix have come.
    Prefix(u8),
    /// So many octets of the message are to come.
    Plain(u32),
    Gzip(u32),
}

/// What comes next.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A message of at most this many octets, and what it is if it says that it has more.
    Begin(u64, DecodeFault),
    Octets(Chunk),
    /// As [`Piece::Octets`], and inflating them took a while.
    Inflated(Chunk),
    End,
}

/// Takes messages apart from each other, and inflates them.
#[derive(Debug)]
pub(crate) struct Messages {
    bytes_max: u32,
    encoding: Encoding,
    state: State,
    prefix: [u8; PREFIX_BYTES],
    // Octets that the message has inflated to.
    inflated: u64,
    // The last block was filled: there may be more, without more input.
    is_full: bool,
    inflate: Option<Box<Inflate>>,
}

impl Messages {
    pub(crate) const fn new(bytes_max: u32) -> Self {
        Self {
            bytes_max,
            encoding: Encoding::Identity,
            state: State::Prefix(0),
            prefix: [0; PREFIX_BYTES],
            inflated: 0,
            is_full: false,
            inflate: None,
        }
    }

    /// Another call begins.
    pub(crate) fn begin(&mut self, encoding: Encoding) {
        self.encoding = encoding;
        self.state = State::Prefix(0);
    }

    /// Frees what inflating needs.
    pub(crate) fn give_back(&mut self) {
        self.inflate = None;
    }

    /// Whether the call may end here: between two messages.
    pub(crate) fn is_between(&self) -> bool {
        self.state == State::Prefix(0)
    }

    /// Takes the next piece off the input; `None` when there is none before more octets come.
    #[inline]
    pub(crate) fn next(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<Piece>, DecodeFault> {
        match self.state {
            State::Prefix(have) => self.read_prefix(usize::from(have), input),
            State::Plain(0) => {
                self.state = State::Prefix(0);
                Ok(Some(Piece::End))
            }
            State::Plain(_) if input.is_empty() => Ok(None),
            State::Plain(left) => {
                let len = input.len().min(left as usize);
                self.state = State::Plain(left - len as u32);
                Ok(Some(Piece::Octets(input.split_to(len))))
            }
            State::Gzip(left) => self.inflate(left, input, blocks),
        }
    }

    fn read_prefix(&mut self, have: usize, input: &mut Chunk) -> Result<Option<Piece>, DecodeFault> {
        let len = input.len().min(PREFIX_BYTES - have);
        self.prefix[have..have + len].copy_from_slice(&input.as_slice()[..len]);
        input.advance(len);
        self.state = State::Prefix((have + len) as u8);
        if have + len < PREFIX_BYTES {
            return Ok(None);
        }
        let [flag, a, b, c, d] = self.prefix;
        let (octets, max) = (u32::from_be_bytes([a, b, c, d]), self.bytes_max);
        if octets > max {
            return Err(DecodeFault::MessageTooLong { octets, max });
        }
        match (flag, self.encoding) {
            (0, _) => {
                self.state = State::Plain(octets);
                Ok(Some(Piece::Begin(u64::from(octets), DecodeFault::Length)))
            }
            (1, Encoding::Gzip) => {
                self.inflate.get_or_insert_with(|| Box::new(Inflate::new())).begin();
                (self.state, self.inflated, self.is_full) = (State::Gzip(octets), 0, false);
                Ok(Some(Piece::Begin(u64::from(max), DecodeFault::InflatedTooLong { max })))
            }
            (1, Encoding::Identity) => Err(DecodeFault::NoEncoding),
            (1, Encoding::Unknown) => Err(DecodeFault::UnknownEncoding),
            _ => Err(DecodeFault::Flag(flag)),
        }
    }

    #[cold]
    fn inflate(&mut self, left: u32, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<Piece>, DecodeFault> {
        let inflate = self.inflate.as_mut().expect("made with the message's prefix");
        let len = input.len().min(left as usize);
        if len == 0 && !self.is_full {
            if left > 0 {
                return Ok(None);
            }
            self.state = State::Prefix(0);
            return if inflate.is_whole() { Ok(Some(Piece::End)) } else { Err(DecodeFault::Gzip) };
        }
        let mut block = blocks();
        let step = inflate.step(&input.as_slice()[..len], block.as_mut_slice())?;
        input.advance(step.used);
        self.state = State::Gzip(left - step.used as u32);
        self.is_full = step.made == block.capacity();
        self.inflated += step.made as u64;
        if self.inflated > u64::from(self.bytes_max) {
            return Err(DecodeFault::InflatedTooLong { max: self.bytes_max });
        }
        match step.made {
            // Something that does not move would be asked for ever.
            0 if step.used == 0 => Err(DecodeFault::Gzip),
            0 => self.inflate(left - step.used as u32, input, blocks),
            made => Ok(Some(Piece::Inflated(block.freeze(0..made)))),
        }
    }
}

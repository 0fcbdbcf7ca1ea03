//! Length-prefixed messages (gRPC over HTTP/2, "Length-Prefixed-Message"): a byte that flags compression, four bytes
//! of length, then the message.

use causeway_message::{Chunk, FieldMap, names};

use crate::body::Blocks;
use crate::error::DecodeError;
use crate::gzip::Inflate;

/// Bytes of a message's prefix.
pub(crate) const PREFIX_BYTES: usize = 5;

/// The value of `grpc-accept-encoding`: the encodings that the decoder accepts.
pub const ACCEPTED_ENCODINGS: &str = "gzip";

/// The encoding of a call's compressed messages, from `grpc-encoding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// No message is compressed.
    #[default]
    Identity,
    /// Compressed messages are gzip (RFC 1952).
    Gzip,
    /// An unsupported encoding. Messages that are not compressed are still accepted.
    Unknown,
}

impl Encoding {
    /// Reads the encoding from the fields of a call's head.
    #[must_use]
    pub fn of(fields: &FieldMap) -> Self {
        match fields.get(names::GRPC_ENCODING) {
            None | Some(b"" | b"identity") => Self::Identity,
            Some(b"gzip") => Self::Gzip,
            Some(_) => Self::Unknown,
        }
    }
}

/// The position within a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessagePosition {
    /// In the prefix, of which this many bytes have been read.
    Prefix(u8),
    /// In an uncompressed message, of which this many bytes remain.
    Plain(u32),
    /// In a gzip message, of which this many compressed bytes remain.
    Gzip(u32),
}

/// An event of the message stream.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A message of at most this many bytes, and the fault of a field that claims to exceed them.
    Begin(u64, DecodeError),
    Bytes(Chunk),
    /// As [`Piece::Bytes`], after decompression, which took considerable time.
    Inflated(Chunk),
    End,
}

/// Splits a stream into messages, and decompresses them.
#[derive(Debug)]
pub(crate) struct Messages {
    bytes_max: u32,
    encoding: Encoding,
    state: MessagePosition,
    prefix: [u8; PREFIX_BYTES],
    // Bytes of the current message after decompression.
    inflated: u64,
    // The last output block was filled, so more output may follow without more input.
    is_full: bool,
    inflate: Option<Box<Inflate>>,
}

impl Messages {
    pub(crate) const fn new(bytes_max: u32) -> Self {
        Self {
            bytes_max,
            encoding: Encoding::Identity,
            state: MessagePosition::Prefix(0),
            prefix: [0; PREFIX_BYTES],
            inflated: 0,
            is_full: false,
            inflate: None,
        }
    }

    /// Starts a new call.
    pub(crate) fn begin(&mut self, encoding: Encoding) {
        self.encoding = encoding;
        self.state = MessagePosition::Prefix(0);
    }

    /// Frees the memory of the decompressor.
    pub(crate) fn release_memory(&mut self) {
        self.inflate = None;
    }

    /// Returns whether the stream is between two messages, where the call may end.
    pub(crate) fn is_between(&self) -> bool {
        self.state == MessagePosition::Prefix(0)
    }

    /// Reads the next piece from the input; `None` if it needs more bytes.
    #[inline]
    pub(crate) fn next(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<Piece>, DecodeError> {
        match self.state {
            MessagePosition::Prefix(have) => self.read_prefix(usize::from(have), input),
            MessagePosition::Plain(0) => {
                self.state = MessagePosition::Prefix(0);
                Ok(Some(Piece::End))
            }
            MessagePosition::Plain(_) if input.is_empty() => Ok(None),
            MessagePosition::Plain(left) => {
                let len = input.len().min(left as usize);
                self.state = MessagePosition::Plain(left - len as u32);
                Ok(Some(Piece::Bytes(input.split_to(len))))
            }
            MessagePosition::Gzip(left) => self.inflate(left, input, blocks),
        }
    }

    fn read_prefix(&mut self, have: usize, input: &mut Chunk) -> Result<Option<Piece>, DecodeError> {
        // The prefix may arrive split over several chunks.
        let len = input.len().min(PREFIX_BYTES - have);
        self.prefix[have..have + len].copy_from_slice(&input.as_slice()[..len]);
        input.advance(len);
        self.state = MessagePosition::Prefix((have + len) as u8);
        if have + len < PREFIX_BYTES {
            return Ok(None);
        }
        let [flag, a, b, c, d] = self.prefix;
        let (bytes, max) = (u32::from_be_bytes([a, b, c, d]), self.bytes_max);
        // Checked before any byte of the message is read or buffered.
        if bytes > max {
            return Err(DecodeError::MessageTooLong { bytes, max });
        }
        match (flag, self.encoding) {
            // An uncompressed message is valid in a call of any encoding.
            (0, _) => {
                self.state = MessagePosition::Plain(bytes);
                Ok(Some(Piece::Begin(u64::from(bytes), DecodeError::Length)))
            }
            (1, Encoding::Gzip) => {
                self.inflate.get_or_insert_with(|| Box::new(Inflate::new())).begin();
                (self.state, self.inflated, self.is_full) = (MessagePosition::Gzip(bytes), 0, false);
                Ok(Some(Piece::Begin(u64::from(max), DecodeError::InflatedTooLong { max })))
            }
            (1, Encoding::Identity) => Err(DecodeError::NoEncoding),
            (1, Encoding::Unknown) => Err(DecodeError::UnknownEncoding),
            _ => Err(DecodeError::Flag(flag)),
        }
    }

    #[cold]
    fn inflate(&mut self, left: u32, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<Piece>, DecodeError> {
        let inflate = self.inflate.as_mut().expect("made with the message's prefix");
        let len = input.len().min(left as usize);
        if len == 0 && !self.is_full {
            // The decompressor has no output left. Either more input must arrive, or the message has ended.
            if left > 0 {
                return Ok(None);
            }
            self.state = MessagePosition::Prefix(0);
            return if inflate.is_whole() { Ok(Some(Piece::End)) } else { Err(DecodeError::Gzip) };
        }
        let mut block = blocks();
        let step = inflate.step(&input.as_slice()[..len], block.as_mut_slice())?;
        input.advance(step.used);
        self.state = MessagePosition::Gzip(left - step.used as u32);
        self.is_full = step.made == block.capacity();
        // The length in the prefix is that of the compressed message, so the limit is checked again here.
        self.inflated += step.made as u64;
        if self.inflated > u64::from(self.bytes_max) {
            return Err(DecodeError::InflatedTooLong { max: self.bytes_max });
        }
        match step.made {
            // Neither input nor output: another call could not make progress.
            0 if step.used == 0 && len > 0 => Err(DecodeError::Gzip),
            // Input without output, as in a header: continue with the rest. Or the full block before had all of the
            // output.
            0 => self.inflate(left - step.used as u32, input, blocks),
            made => Ok(Some(Piece::Inflated(block.freeze(0..made)))),
        }
    }
}

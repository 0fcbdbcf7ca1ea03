//! Decodes the message of a unary call to a request or response.
//!
//! ```text
//! chunks ──► messages: prefix, inflate ──► field_parser: protobuf's fields ──► head: copied, checked
//!                                                               └────► body: held
//! ```

mod request;
mod response;

use causeway_message::Chunk;

use crate::body::{Blocks, Body};
use crate::error::DecodeError;
use crate::field_parser::{FieldKind, FieldParser, Sink};
use crate::fields::HeadBudget;
use crate::limits::Limits;
use crate::messages::{Encoding, Messages, Piece};

pub use request::Request;
pub(crate) use request::{field as request_field, method as take_method, target as take_target, target_form};
pub use response::Response;
pub(crate) use response::{field as response_field, status as take_status};

/// Bytes that a decoder decompresses before it yields; they take less than about 100 µs.
pub(crate) const TURN_BYTES_MAX: usize = 64 * 1024;

/// The progress of a decoder with its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum DecodeProgress {
    /// The input is consumed.
    Done,
    /// The decoder yields after decompressing much: call it again with the rest of the chunk, which may be empty.
    More,
}

/// A decoded message. It is created once and reused.
pub(crate) trait Message: Default {
    /// Returns the kind of a field, `None` if it is unknown.
    fn kind(field: u32, limits: &Limits) -> Option<FieldKind>;
    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeError>;
    fn text(&mut self, field: u32, bytes: &[u8], budget: &mut HeadBudget) -> Result<(), DecodeError>;
    fn body(&mut self) -> &mut Body;
    /// Checks the fields together, when the message is complete.
    fn finish(&mut self) -> Result<(), DecodeError>;
    fn clear(&mut self);
    fn release_memory(&mut self, bytes_max: usize);
}

/// Decodes requests, as a server.
pub type RequestDecoder = Decoder<Request>;
/// Decodes responses, as a client.
pub type ResponseDecoder = Decoder<Response>;

/// Decodes the single message of a unary call from chunks of any size. It is meant to be reused: once its memory has
/// grown, it allocates only for the first compressed message.
#[derive(Debug)]
pub struct Decoder<M> {
    limits: Limits,
    messages: Messages,
    field_parser: FieldParser,
    budget: HeadBudget,
    state: MessageState,
    message: M,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    Nothing,
    Begun,
    Whole,
}

#[expect(private_bounds, reason = "only the two types above implement it")]
impl<M: Message> Decoder<M> {
    /// Creates a decoder; allocates nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            messages: Messages::new(limits.message_bytes_max),
            field_parser: FieldParser::new(),
            budget: HeadBudget::new(&limits),
            limits,
            state: MessageState::Nothing,
            message: M::default(),
        }
    }

    /// Returns the message; complete after [`Decoder::finish`] has succeeded.
    #[must_use]
    pub const fn message(&self) -> &M {
        &self.message
    }

    /// Returns the message for changes: the caller may swap the head with an empty one.
    #[must_use]
    pub const fn message_mut(&mut self) -> &mut M {
        &mut self.message
    }

    /// Starts a new call, whose compressed messages have this encoding. Drops the previous message and keeps the
    /// memory.
    pub fn begin(&mut self, encoding: Encoding) {
        self.messages.begin(encoding);
        self.begin_message(0, DecodeError::Length);
        self.state = MessageState::Nothing;
    }

    /// Drops the message and its blocks, and keeps the memory.
    pub fn clear(&mut self) {
        self.begin(Encoding::Identity);
    }

    /// Frees unused memory beyond about `bytes_max`, and the decompressor. For a decoder that is idle.
    pub fn release_memory(&mut self, bytes_max: usize) {
        self.messages.release_memory();
        self.shrink_buffers(bytes_max);
    }

    /// As [`release_memory`](Self::release_memory), but keeps the decompressor, about 40 KiB. For a decoder that will
    /// be used again soon.
    pub fn shrink_buffers(&mut self, bytes_max: usize) {
        self.field_parser.release_memory(bytes_max / 4);
        self.message.release_memory(bytes_max / 4);
    }

    /// Consumes bytes of the call's content from the chunk. `blocks` allocates blocks for copies and decompressed
    /// bytes.
    ///
    /// # Errors
    /// The fault of the message. The call has then failed, and the decoder must be cleared.
    pub fn push(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<DecodeProgress, DecodeError> {
        let mut inflated = 0;
        loop {
            // A unary call has exactly one message.
            if self.state == MessageState::Whole && !input.is_empty() {
                return Err(DecodeError::SecondMessage);
            }
            match self.messages.next(input, blocks)? {
                None => return Ok(DecodeProgress::Done),
                Some(Piece::Begin(bytes_max, longer)) => {
                    self.begin_message(bytes_max, longer);
                    self.state = MessageState::Begun;
                }
                Some(Piece::Bytes(piece)) => self.read(piece, blocks)?,
                Some(Piece::Inflated(piece)) => {
                    inflated += piece.len();
                    self.read(piece, blocks)?;
                    // A small compressed message may inflate to megabytes: bound the time per call.
                    if inflated >= TURN_BYTES_MAX {
                        return Ok(DecodeProgress::More);
                    }
                }
                Some(Piece::End) => self.end_message()?,
            }
        }
    }

    /// Checks the end of the call's content.
    ///
    /// # Errors
    /// If it ends within a message, or before one.
    pub fn finish(&mut self) -> Result<(), DecodeError> {
        match self.state {
            MessageState::Whole if self.messages.is_between() => Ok(()),
            MessageState::Nothing if self.messages.is_between() => Err(DecodeError::NoMessage),
            _ => Err(DecodeError::Truncated),
        }
    }

    /// Decodes a message without gRPC's prefix, as in an error's details.
    pub(crate) fn read_bare(&mut self, message: Chunk, blocks: Blocks<'_>) -> Result<(), DecodeError> {
        self.begin(Encoding::Identity);
        self.begin_message(message.len() as u64, DecodeError::Length);
        self.read(message, blocks)?;
        self.end_message()
    }

    fn begin_message(&mut self, bytes_max: u64, longer: DecodeError) {
        self.field_parser.begin(bytes_max, longer);
        self.budget = HeadBudget::new(&self.limits);
        self.message.clear();
    }

    #[inline]
    fn read(&mut self, mut piece: Chunk, blocks: Blocks<'_>) -> Result<(), DecodeError> {
        let Self { field_parser, message, budget, limits, .. } = self;
        let mut sink = MessageSink { message, budget, limits };
        while let Some(part) = field_parser.step(&mut piece, &mut sink)? {
            sink.message.body().push(part, blocks);
        }
        Ok(())
    }

    fn end_message(&mut self) -> Result<(), DecodeError> {
        self.field_parser.end()?;
        self.message.body().close();
        self.message.finish()?;
        self.state = MessageState::Whole;
        Ok(())
    }
}

/// A sink that fills a message within its remaining budget.
struct MessageSink<'a, M> {
    message: &'a mut M,
    budget: &'a mut HeadBudget,
    limits: &'a Limits,
}

impl<M: Message> Sink for MessageSink<'_, M> {
    fn kind(&self, field: u32) -> Option<FieldKind> {
        M::kind(field, self.limits)
    }

    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeError> {
        self.message.number(field, number)
    }

    fn text(&mut self, field: u32, bytes: &[u8]) -> Result<(), DecodeError> {
        self.message.text(field, bytes, self.budget)
    }

    fn content(&mut self, _: u32) -> Result<(), DecodeError> {
        // protobuf: the last value of a non-repeated field applies.
        self.message.body().clear();
        Ok(())
    }
}

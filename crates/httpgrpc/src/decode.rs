//! Requests and responses from the octets of a unary call.
//!
//! ```text
//! chunks ──► messages: prefix, inflate ──► walk: protobuf's fields ──► head: copied, checked
//!                                                               └────► body: held
//! ```

mod request;
mod response;

use causeway_message::Chunk;

use crate::body::{Blocks, Body};
use crate::fault::DecodeFault;
use crate::fields::Room;
use crate::limits::Limits;
use crate::messages::{Encoding, Messages, Piece};
use crate::walk::{Kind, Sink, Walk};

pub use request::Request;
pub(crate) use request::{field as request_field, method as take_method, target as take_target, target_form};
pub use response::Response;
pub(crate) use response::{field as response_field, status as take_status};

/// Octets that one call of [`Decoder::push`] inflates before it lets others have their turn: less than about 100 µs.
const TURN_BYTES_MAX: usize = 64 * 1024;

/// How far a decoder came with what it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Turn {
    /// All of it is taken.
    Done,
    /// Inflating takes long: call again with what is left of the chunk, or with an empty one, when others had their turn.
    More,
}

/// What a message becomes. Made once and filled again and again.
pub(crate) trait Message: Default {
    /// What a field is to be taken for.
    fn kind(field: u32, limits: &Limits) -> Option<Kind>;
    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeFault>;
    fn text(&mut self, field: u32, octets: &[u8], room: &mut Room) -> Result<(), DecodeFault>;
    fn body(&mut self) -> &mut Body;
    /// The message is there: what its fields mean together.
    fn finish(&mut self) -> Result<(), DecodeFault>;
    fn clear(&mut self);
    fn give_back(&mut self, octets_max: usize);
}

/// Decodes requests, as a server.
pub type RequestDecoder = Decoder<Request>;
/// Decodes responses, as a client.
pub type ResponseDecoder = Decoder<Response>;

/// Decodes the one message of a unary call from chunks that are cut anywhere. Made once and used again and again; it allocates nothing
/// once its memory has grown, but for the first compressed message.
#[derive(Debug)]
pub struct Decoder<M> {
    limits: Limits,
    messages: Messages,
    walk: Walk,
    room: Room,
    progress: Progress,
    message: M,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Nothing,
    Begun,
    Whole,
}

#[expect(private_bounds, reason = "the two messages that there are stand above")]
impl<M: Message> Decoder<M> {
    /// A decoder; allocates nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            messages: Messages::new(limits.message_bytes_max),
            walk: Walk::new(),
            room: Room::new(&limits),
            limits,
            progress: Progress::Nothing,
            message: M::default(),
        }
    }

    /// The message: whole when [`Decoder::finish`] has said so.
    #[must_use]
    pub const fn message(&self) -> &M {
        &self.message
    }

    /// The message, to take its parts out: a head may be swapped with a spare one.
    #[must_use]
    pub const fn message_mut(&mut self) -> &mut M {
        &mut self.message
    }

    /// Another call begins, whose head said this of its compressed messages. Lets go of what was there; the memory stays.
    pub fn begin(&mut self, encoding: Encoding) {
        self.messages.begin(encoding);
        self.begin_message(0, DecodeFault::Length);
        self.progress = Progress::Nothing;
    }

    /// Lets go of the message and of the blocks it holds; the memory stays.
    pub fn clear(&mut self) {
        self.begin(Encoding::Identity);
    }

    /// Gives memory beyond about `octets_max` back, as far as it is not in use, and what inflating needs. For a decoder at rest.
    pub fn give_back(&mut self, octets_max: usize) {
        self.messages.give_back();
        self.trim(octets_max);
    }

    /// As [`give_back`](Self::give_back), but for what inflating needs, some 40 KiB: for a decoder that will soon be used again.
    pub fn trim(&mut self, octets_max: usize) {
        self.walk.give_back(octets_max / 4);
        self.message.give_back(octets_max / 4);
    }

    /// Takes octets of the call's content off the chunk. `blocks` lends where something has to be copied or inflated to.
    ///
    /// # Errors
    /// What is wrong with the message; the call is over then, and the decoder is to be cleared.
    pub fn push(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Turn, DecodeFault> {
        let mut inflated = 0;
        loop {
            if self.progress == Progress::Whole && !input.is_empty() {
                return Err(DecodeFault::SecondMessage);
            }
            match self.messages.next(input, blocks)? {
                None => return Ok(Turn::Done),
                Some(Piece::Begin(octets_max, longer)) => {
                    self.begin_message(octets_max, longer);
                    self.progress = Progress::Begun;
                }
                Some(Piece::Octets(piece)) => self.read(piece, blocks)?,
                Some(Piece::Inflated(piece)) => {
                    inflated += piece.len();
                    self.read(piece, blocks)?;
                    if inflated >= TURN_BYTES_MAX {
                        return Ok(Turn::More);
                    }
                }
                Some(Piece::End) => self.end_message()?,
            }
        }
    }

    /// The call's content has ended.
    ///
    /// # Errors
    /// When that is within a message or before one.
    pub fn finish(&mut self) -> Result<(), DecodeFault> {
        match self.progress {
            Progress::Whole if self.messages.is_between() => Ok(()),
            Progress::Nothing if self.messages.is_between() => Err(DecodeFault::NoMessage),
            _ => Err(DecodeFault::Truncated),
        }
    }

    /// Decodes a message that came without gRPC's framing, as in an error's details.
    pub(crate) fn read_bare(&mut self, message: Chunk, blocks: Blocks<'_>) -> Result<(), DecodeFault> {
        self.begin(Encoding::Identity);
        self.begin_message(message.len() as u64, DecodeFault::Length);
        self.read(message, blocks)?;
        self.end_message()
    }

    fn begin_message(&mut self, octets_max: u64, longer: DecodeFault) {
        self.walk.begin(octets_max, longer);
        self.room = Room::new(&self.limits);
        self.message.clear();
    }

    #[inline]
    fn read(&mut self, mut piece: Chunk, blocks: Blocks<'_>) -> Result<(), DecodeFault> {
        let Self { walk, message, room, limits, .. } = self;
        let mut filling = Filling { message, room, limits };
        while let Some(part) = walk.step(&mut piece, &mut filling)? {
            filling.message.body().push(part, blocks);
        }
        Ok(())
    }

    fn end_message(&mut self) -> Result<(), DecodeFault> {
        self.walk.end()?;
        self.message.body().close();
        self.message.finish()?;
        self.progress = Progress::Whole;
        Ok(())
    }
}

/// A message that takes fields, and what it may still hold.
struct Filling<'a, M> {
    message: &'a mut M,
    room: &'a mut Room,
    limits: &'a Limits,
}

impl<M: Message> Sink for Filling<'_, M> {
    fn kind(&self, field: u32) -> Option<Kind> {
        M::kind(field, self.limits)
    }

    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeFault> {
        self.message.number(field, number)
    }

    fn text(&mut self, field: u32, octets: &[u8]) -> Result<(), DecodeFault> {
        self.message.text(field, octets, self.room)
    }

    fn content(&mut self, _: u32) -> Result<(), DecodeFault> {
        // protobuf: the last of a field that is not repeated stands.
        self.message.body().clear();
        Ok(())
    }
}

//! Frames of a streaming call, one part after the other.

use causeway_message::{Chunk, FieldMap, Head, ResponseHead, is_host_port, names};

use super::{TRAILERS_HEADERS, part, request_field, response_field};
use crate::body::Blocks;
use crate::decode::{take_method, take_status, take_target, target_form};
use crate::fault::DecodeFault;
use crate::fields::{self, Room};
use crate::limits::Limits;
use crate::messages::{Encoding, Messages, Piece};
use crate::walk::{Kind, Sink, Walk};
use crate::wire::{Fields, Value};

const METHOD: u32 = request_field::METHOD as u32;
const URL: u32 = request_field::URL as u32;
const REQUEST_HEADERS: u32 = request_field::HEADERS as u32;
const AUTHORITY: u32 = request_field::AUTHORITY as u32;
const CODE: u32 = response_field::CODE as u32;
const RESPONSE_HEADERS: u32 = response_field::HEADERS as u32;

/// What a call brought.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    /// A head: [`StreamDecoder::head`] holds it. More than one only where all but the last are informational.
    Head,
    /// A piece of content. A frame's may come in several.
    Chunk(Chunk),
    /// Trailers: [`StreamDecoder::trailers`] holds them. Nothing follows.
    Trailers,
}

/// Decodes what a client streams.
pub type RequestStreamDecoder = StreamDecoder<Head>;
/// Decodes what a server streams.
pub type ResponseStreamDecoder = StreamDecoder<ResponseHead>;

/// Whose head a stream begins with.
pub(crate) trait Opening: Default {
    const PART: u8;
    /// Takes the head; answers whether it is the last one.
    fn fill(&mut self, message: &[u8], limits: &Limits, room: &mut Room) -> Result<bool, DecodeFault>;
    fn clear(&mut self);
    fn fields(&self) -> &FieldMap;
    /// Whether content may stay away that was declared (RFC 9110 §8.6).
    const MAY_LACK_CONTENT: bool;
}

/// Decodes the frames of one direction of a call from chunks that are cut anywhere. Content is handed over as it comes, in parts of what was
/// received. Made once and used again and again.
#[derive(Debug)]
pub struct StreamDecoder<H> {
    messages: Messages,
    walk: Walk,
    // What was taken from the input and not yet read.
    piece: Chunk,
    frame: Frame<H>,
}

/// What stands in the frames.
#[derive(Debug)]
struct Frame<H> {
    limits: Limits,
    stage: Stage,
    // A part began in this frame.
    has_part: bool,
    ready: Option<Part>,
    head: H,
    trailers: FieldMap,
    // Content-Length, and how much of it came.
    declared: Option<u64>,
    octets: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Content,
    Trailers,
}

#[expect(private_bounds, reason = "the two heads that there are stand above")]
impl<H: Opening> StreamDecoder<H> {
    /// A decoder; allocates nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            messages: Messages::new(limits.message_bytes_max),
            walk: Walk::new(),
            piece: Chunk::default(),
            frame: Frame {
                limits,
                stage: Stage::Head,
                has_part: false,
                ready: None,
                head: H::default(),
                trailers: FieldMap::new(),
                declared: None,
                octets: 0,
            },
        }
    }

    /// The head that came last.
    #[must_use]
    pub const fn head(&self) -> &H {
        &self.frame.head
    }

    /// The head, to be swapped with a spare one.
    #[must_use]
    pub const fn head_mut(&mut self) -> &mut H {
        &mut self.frame.head
    }

    /// The trailers.
    #[must_use]
    pub const fn trailers(&self) -> &FieldMap {
        &self.frame.trailers
    }

    /// Another call begins, whose head said this of its compressed messages. The memory stays.
    pub fn begin(&mut self, encoding: Encoding) {
        self.messages.begin(encoding);
        self.piece = Chunk::default();
        self.frame.clear();
    }

    /// Lets go of everything; the memory stays.
    pub fn clear(&mut self) {
        self.begin(Encoding::Identity);
    }

    /// Takes octets off the chunk until there is a part; `None` when the chunk is used up before. One call inflates one block at most when
    /// that holds content.
    ///
    /// # Errors
    /// What is wrong; the call is over then, and the decoder is to be cleared.
    pub fn next(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<Part>, DecodeFault> {
        loop {
            if !self.piece.is_empty() {
                let content = self.walk.step(&mut self.piece, &mut self.frame)?;
                if self.piece.is_empty() {
                    // An empty chunk would keep its block from going home.
                    self.piece = Chunk::default();
                }
                if let Some(content) = content {
                    self.frame.count(content.len())?;
                    return Ok(Some(Part::Chunk(content)));
                }
            }
            match self.messages.next(input, blocks)? {
                None => return Ok(None),
                Some(Piece::Begin(octets_max, longer)) => {
                    self.walk.begin(octets_max, longer);
                    self.frame.has_part = false;
                }
                Some(Piece::Octets(piece) | Piece::Inflated(piece)) => self.piece = piece,
                Some(Piece::End) => {
                    self.walk.end()?;
                    if let Some(part) = self.frame.ready.take() {
                        return Ok(Some(part));
                    }
                }
            }
        }
    }

    /// This direction has ended.
    ///
    /// # Errors
    /// When that is before a head, within a frame, or before all the content that was declared.
    pub fn finish(&self) -> Result<(), DecodeFault> {
        if !self.messages.is_between() {
            return Err(DecodeFault::Truncated);
        }
        if self.frame.stage == Stage::Head {
            return Err(DecodeFault::NoMessage);
        }
        match self.frame.declared {
            Some(_) if H::MAY_LACK_CONTENT && self.frame.octets == 0 => Ok(()),
            Some(declared) if self.frame.octets < declared => Err(DecodeFault::ContentLength),
            _ => Ok(()),
        }
    }
}

impl<H: Opening> Frame<H> {
    fn clear(&mut self) {
        self.head.clear();
        self.trailers.clear();
        (self.stage, self.has_part, self.ready) = (Stage::Head, false, None);
        (self.declared, self.octets) = (None, 0);
    }

    fn count(&mut self, octets: usize) -> Result<(), DecodeFault> {
        self.octets += octets as u64;
        match self.declared {
            Some(declared) if self.octets > declared => Err(DecodeFault::ContentLength),
            _ => Ok(()),
        }
    }

    /// A part begins: the first of its frame, and only where one may stand.
    fn begin(&mut self, at: Stage) -> Result<(), DecodeFault> {
        if self.has_part || self.stage != at {
            return Err(DecodeFault::Order);
        }
        self.has_part = true;
        Ok(())
    }
}

impl<H: Opening> Sink for Frame<H> {
    fn kind(&self, field: u32) -> Option<Kind> {
        match u8::try_from(field) {
            Ok(part::REQUEST | part::RESPONSE | part::TRAILERS) => {
                Some(Kind::Text(self.limits.head_bytes_max, DecodeFault::HeadTooLong))
            }
            Ok(part::CHUNK) => Some(Kind::Content),
            _ => None,
        }
    }

    fn number(&mut self, field: u32, _: u64) -> Result<(), DecodeFault> {
        Err(DecodeFault::WireType(field))
    }

    fn text(&mut self, field: u32, octets: &[u8]) -> Result<(), DecodeFault> {
        let mut room = Room::new(&self.limits);
        if field == u32::from(H::PART) {
            self.begin(Stage::Head)?;
            self.head.clear();
            if self.head.fill(octets, &self.limits, &mut room)? {
                self.stage = Stage::Content;
                self.declared = self.head.fields().content_length().map_err(|_| DecodeFault::ContentLength)?;
            }
            self.ready = Some(Part::Head);
        } else if field == u32::from(part::TRAILERS) {
            self.begin(Stage::Content)?;
            self.stage = Stage::Trailers;
            for field in Fields::new(octets) {
                if let (TRAILERS_FIELD, value) = field? {
                    let Value::Octets(header) = value else { return Err(DecodeFault::WireType(TRAILERS_FIELD)) };
                    fields::take(header, &mut self.trailers, &mut room)?;
                }
            }
            self.ready = Some(Part::Trailers);
        } else {
            // The other side's head.
            return Err(DecodeFault::Order);
        }
        Ok(())
    }

    fn content(&mut self, _: u32) -> Result<(), DecodeFault> {
        self.begin(Stage::Content)
    }
}

const TRAILERS_FIELD: u32 = TRAILERS_HEADERS as u32;

impl Opening for Head {
    const PART: u8 = part::REQUEST;
    const MAY_LACK_CONTENT: bool = false;

    fn fill(&mut self, message: &[u8], limits: &Limits, room: &mut Room) -> Result<bool, DecodeFault> {
        let mut authority: &[u8] = b"";
        for part in Fields::new(message) {
            match part? {
                (METHOD, Value::Octets(method)) => take_method(method, self, room)?,
                (URL, Value::Octets(url)) if url.len() > limits.target_bytes_max as usize => {
                    return Err(DecodeFault::TargetTooLong);
                }
                (URL, Value::Octets(url)) => take_target(url, self, room)?,
                (REQUEST_HEADERS, Value::Octets(header)) => fields::take(header, self.fields_mut(), room)?,
                (AUTHORITY, Value::Octets(octets)) => authority = octets,
                (field @ METHOD..=AUTHORITY, _) => return Err(DecodeFault::WireType(field)),
                _ => {}
            }
        }
        target_form(self)?;
        if !authority.is_empty() {
            room.octets(authority.len())?;
            if self.fields().contains(names::HOST) || !is_host_port(authority) {
                return Err(DecodeFault::Host);
            }
            self.fields_mut().push_known(names::HOST, authority);
        }
        fields::check_host(self.fields())?;
        Ok(true)
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn fields(&self) -> &FieldMap {
        Self::fields(self)
    }
}

impl Opening for ResponseHead {
    const PART: u8 = part::RESPONSE;
    const MAY_LACK_CONTENT: bool = true;

    fn fill(&mut self, message: &[u8], _: &Limits, room: &mut Room) -> Result<bool, DecodeFault> {
        let mut status = None;
        for part in Fields::new(message) {
            match part? {
                (CODE, Value::Number(code)) => status = Some(take_status(code)?),
                (RESPONSE_HEADERS, Value::Octets(header)) => fields::take(header, self.fields_mut(), room)?,
                (field @ CODE..=RESPONSE_HEADERS, _) => return Err(DecodeFault::WireType(field)),
                _ => {}
            }
        }
        let status = status.ok_or(DecodeFault::StatusCode)?;
        self.set_status(status);
        Ok(!status.is_informational())
    }

    fn clear(&mut self) {
        Self::clear(self);
    }

    fn fields(&self) -> &FieldMap {
        Self::fields(self)
    }
}

//! Decodes the frames of a streaming call, part by part.

use causeway_message::{Chunk, FieldMap, Head, ResponseHead, is_host_port, names};

use super::{TRAILERS_HEADERS, part, request_field, response_field};
use crate::body::Blocks;
use crate::decode::{TURN_BYTES_MAX, take_method, take_status, take_target, target_form};
use crate::error::DecodeError;
use crate::field_parser::{FieldKind, FieldParser, Sink};
use crate::fields::{self, HeadBudget};
use crate::limits::Limits;
use crate::messages::{Encoding, Messages, Piece};
use crate::wire::{Fields, Value};

/// A decoded part of a call.
#[derive(Debug, PartialEq, Eq)]
pub enum StreamPart {
    /// A head, in [`StreamDecoder::head`]. There may be several; all except the last are interim.
    Head,
    /// A piece of content. One frame may produce several.
    Chunk(Chunk),
    /// Trailers, in [`StreamDecoder::trailers`]; the last part.
    Trailers,
    /// No part: the decoder yields after decompressing much. Call it again with the rest of the chunk, which may be
    /// empty.
    More,
}

/// Decodes the frames of a client.
pub type RequestStreamDecoder = StreamDecoder<Head>;
/// Decodes the frames of a server.
pub type ResponseStreamDecoder = StreamDecoder<ResponseHead>;

/// The head of one direction: a request's or a response's.
pub(crate) trait StreamHead: Default {
    const PART: u32;
    /// Parses the head; returns whether it is final.
    fn fill(&mut self, message: &[u8], limits: &Limits, budget: &mut HeadBudget) -> Result<bool, DecodeError>;
    fn clear(&mut self);
    fn fields(&self) -> &FieldMap;
    /// Whether the declared content may be absent (RFC 9110 §8.6).
    const MAY_LACK_CONTENT: bool;
}

/// Decodes the frames of one direction of a call from chunks of any size. Content is passed on as it arrives, by
/// reference to the received blocks. It is meant to be reused.
#[derive(Debug)]
pub struct StreamDecoder<H> {
    messages: Messages,
    field_parser: FieldParser,
    // Message bytes that are not parsed yet.
    piece: Chunk,
    // Bytes that were decompressed since the decoder yielded.
    inflated: usize,
    frame: FrameParser<H>,
}

/// The parsed state of the frames.
#[derive(Debug)]
struct FrameParser<H> {
    limits: Limits,
    stage: Stage,
    // The current frame has a part.
    has_part: bool,
    ready: Option<StreamPart>,
    head: H,
    trailers: FieldMap,
    // Content-Length, and the bytes of content received.
    declared: Option<u64>,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Head,
    Content,
    Trailers,
}

#[expect(private_bounds, reason = "only `Head` and `ResponseHead` implement it")]
impl<H: StreamHead> StreamDecoder<H> {
    /// Creates a decoder; allocates nothing.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self {
            messages: Messages::new(limits.message_bytes_max),
            field_parser: FieldParser::new(),
            piece: Chunk::default(),
            inflated: 0,
            frame: FrameParser {
                limits,
                stage: Stage::Head,
                has_part: false,
                ready: None,
                head: H::default(),
                trailers: FieldMap::new(),
                declared: None,
                bytes: 0,
            },
        }
    }

    /// Returns the last head.
    #[must_use]
    pub const fn head(&self) -> &H {
        &self.frame.head
    }

    /// Returns the head, so that the caller can swap it with an empty one.
    #[must_use]
    pub const fn head_mut(&mut self) -> &mut H {
        &mut self.frame.head
    }

    /// Returns the trailers.
    #[must_use]
    pub const fn trailers(&self) -> &FieldMap {
        &self.frame.trailers
    }

    /// Starts a new call, whose compressed messages have this encoding. Keeps the memory.
    pub fn begin(&mut self, encoding: Encoding) {
        self.messages.begin(encoding);
        self.piece = Chunk::default();
        self.inflated = 0;
        self.frame.clear();
    }

    /// Drops all state of the call. Keeps the memory.
    pub fn clear(&mut self) {
        self.begin(Encoding::Identity);
    }

    /// Consumes bytes of the chunk until a part is complete; `None` if the chunk ends first. One call decompresses at
    /// most one block that contains content. A small frame may inflate to megabytes of unknown fields, which are no
    /// part, so the decoder yields with [`StreamPart::More`] after each 64 KiB.
    ///
    /// # Errors
    /// The fault of the call. The call has then failed, and the decoder must be cleared.
    pub fn next(&mut self, input: &mut Chunk, blocks: Blocks<'_>) -> Result<Option<StreamPart>, DecodeError> {
        loop {
            if !self.piece.is_empty() {
                let content = self.field_parser.step(&mut self.piece, &mut self.frame)?;
                if self.piece.is_empty() {
                    // An empty chunk would still keep its block from returning to the pool.
                    self.piece = Chunk::default();
                }
                if let Some(content) = content {
                    self.frame.count(content.len())?;
                    return Ok(Some(StreamPart::Chunk(content)));
                }
                if self.inflated >= TURN_BYTES_MAX {
                    self.inflated = 0;
                    return Ok(Some(StreamPart::More));
                }
            }
            match self.messages.next(input, blocks)? {
                None => return Ok(None),
                Some(Piece::Begin(bytes_max, longer)) => {
                    self.field_parser.begin(bytes_max, longer);
                    self.frame.has_part = false;
                }
                Some(Piece::Bytes(piece)) => self.piece = piece,
                Some(Piece::Inflated(piece)) => {
                    self.inflated += piece.len();
                    self.piece = piece;
                }
                Some(Piece::End) => {
                    // A head or trailers are reported when their frame is complete, content at once.
                    self.field_parser.end()?;
                    if let Some(part) = self.frame.ready.take() {
                        return Ok(Some(part));
                    }
                }
            }
        }
    }

    /// Checks the end of this direction.
    ///
    /// # Errors
    /// If it ends before a final head, within a frame, or before all declared content has arrived.
    pub fn finish(&self) -> Result<(), DecodeError> {
        if !self.messages.is_between() {
            return Err(DecodeError::Truncated);
        }
        if self.frame.stage == Stage::Head {
            return Err(DecodeError::NoMessage);
        }
        match self.frame.declared {
            // A response to HEAD, or a 304.
            Some(_) if H::MAY_LACK_CONTENT && self.frame.bytes == 0 => Ok(()),
            Some(declared) if self.frame.bytes < declared => Err(DecodeError::ContentLength),
            _ => Ok(()),
        }
    }
}

impl<H: StreamHead> FrameParser<H> {
    fn clear(&mut self) {
        self.head.clear();
        self.trailers.clear();
        (self.stage, self.has_part, self.ready) = (Stage::Head, false, None);
        (self.declared, self.bytes) = (None, 0);
    }

    fn count(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.bytes += bytes as u64;
        match self.declared {
            Some(declared) if self.bytes > declared => Err(DecodeError::ContentLength),
            _ => Ok(()),
        }
    }

    /// Starts a part: it must be the first of its frame, and allowed at this stage.
    fn begin(&mut self, at: Stage) -> Result<(), DecodeError> {
        if self.has_part || self.stage != at {
            return Err(DecodeError::Order);
        }
        self.has_part = true;
        Ok(())
    }
}

impl<H: StreamHead> Sink for FrameParser<H> {
    fn kind(&self, field: u32) -> Option<FieldKind> {
        match field {
            part::REQUEST | part::RESPONSE | part::TRAILERS => {
                Some(FieldKind::Text(self.limits.head_bytes_max, DecodeError::HeadTooLong))
            }
            part::CHUNK => Some(FieldKind::Content),
            _ => None,
        }
    }

    fn number(&mut self, field: u32, _: u64) -> Result<(), DecodeError> {
        Err(DecodeError::WireType(field))
    }

    fn text(&mut self, field: u32, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut budget = HeadBudget::new(&self.limits);
        if field == H::PART {
            self.begin(Stage::Head)?;
            self.head.clear();
            if self.head.fill(bytes, &self.limits, &mut budget)? {
                self.stage = Stage::Content;
                // Only the final head declares content.
                self.declared = self.head.fields().content_length().map_err(|_| DecodeError::ContentLength)?;
            }
            self.ready = Some(StreamPart::Head);
        } else if field == part::TRAILERS {
            self.begin(Stage::Content)?;
            self.stage = Stage::Trailers;
            for field in Fields::new(bytes) {
                if let (TRAILERS_HEADERS, value) = field? {
                    let Value::Bytes(header) = value else { return Err(DecodeError::WireType(TRAILERS_HEADERS)) };
                    fields::take(header, &mut self.trailers, &mut budget)?;
                }
            }
            self.ready = Some(StreamPart::Trailers);
        } else {
            // The head of the opposite direction.
            return Err(DecodeError::Order);
        }
        Ok(())
    }

    fn content(&mut self, _: u32) -> Result<(), DecodeError> {
        self.begin(Stage::Content)
    }
}

impl StreamHead for Head {
    const PART: u32 = part::REQUEST;
    const MAY_LACK_CONTENT: bool = false;

    fn fill(&mut self, message: &[u8], limits: &Limits, budget: &mut HeadBudget) -> Result<bool, DecodeError> {
        let mut authority: &[u8] = b"";
        for part in Fields::new(message) {
            match part? {
                (request_field::METHOD, Value::Bytes(method)) => take_method(method, self, budget)?,
                (request_field::URL, Value::Bytes(url)) if url.len() > limits.target_bytes_max as usize => {
                    return Err(DecodeError::TargetTooLong);
                }
                (request_field::URL, Value::Bytes(url)) => take_target(url, self, budget)?,
                (request_field::HEADERS, Value::Bytes(header)) => fields::take(header, self.fields_mut(), budget)?,
                (request_field::AUTHORITY, Value::Bytes(bytes)) => authority = bytes,
                (field @ request_field::METHOD..=request_field::AUTHORITY, _) => {
                    return Err(DecodeError::WireType(field));
                }
                _ => {}
            }
        }
        target_form(self)?;
        if !authority.is_empty() {
            budget.bytes(authority.len())?;
            // Two sources for the host would be ambiguous (RFC 9110 §7.2).
            if self.fields().contains(names::HOST) || !is_host_port(authority) {
                return Err(DecodeError::Host);
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

impl StreamHead for ResponseHead {
    const PART: u32 = part::RESPONSE;
    const MAY_LACK_CONTENT: bool = true;

    fn fill(&mut self, message: &[u8], _: &Limits, budget: &mut HeadBudget) -> Result<bool, DecodeError> {
        let mut status = None;
        for part in Fields::new(message) {
            match part? {
                (response_field::CODE, Value::Number(code)) => status = Some(take_status(code)?),
                (response_field::HEADERS, Value::Bytes(header)) => fields::take(header, self.fields_mut(), budget)?,
                (field @ response_field::CODE..=response_field::HEADERS, _) => {
                    return Err(DecodeError::WireType(field));
                }
                _ => {}
            }
        }
        let status = status.ok_or(DecodeError::StatusCode)?;
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

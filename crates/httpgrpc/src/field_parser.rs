//! An incremental parser of a message's fields, from pieces of any size.
//!
//! ```text
//!        ┌───────────────► tag ◄──────────────────────────────┐
//!        │                  │                                 │
//!        │  number ◄────────┼──────► length ──► text, content │
//!        └────┘             └──────► skipped ─────────┴───────┘
//! ```
//! A text is passed to the sink as one slice: of the piece if it contains the whole text, otherwise of a scratch
//! buffer, which grows with the received bytes and never by a claimed length. Content is passed on in parts of the
//! pieces.

use std::ops::Range;

use causeway_message::Chunk;

use crate::error::DecodeError;
use crate::wire::{Varint, kind, tag};

/// How a field is parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Number,
    /// As one slice of at most this many bytes; a longer one is the fault.
    Text(u32, DecodeError),
    /// In parts.
    Content,
}

/// Receives the parsed fields.
pub(crate) trait Sink {
    /// Returns how to parse a field; `None` skips an unknown one.
    fn kind(&self, field: u32) -> Option<FieldKind>;
    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeError>;
    fn text(&mut self, field: u32, bytes: &[u8]) -> Result<(), DecodeError>;
    /// Starts a field of content. It may be empty, and may occur again.
    fn content(&mut self, field: u32) -> Result<(), DecodeError>;
}

#[derive(Clone, Copy, Debug)]
enum FieldPosition {
    Number(NumberRole, Varint),
    Text { field: u32, left: u64 },
    Content { left: u64 },
    Skip { left: u64 },
}

#[derive(Clone, Copy, Debug)]
enum NumberRole {
    Tag,
    Number(u32),
    TextLength(u32, u32, DecodeError),
    ContentLength(u32),
    SkippedNumber,
    SkippedLength,
}

const TAG: FieldPosition = FieldPosition::Number(NumberRole::Tag, Varint::new());

/// The parser's state within a message.
#[derive(Debug)]
pub(crate) struct FieldParser {
    state: FieldPosition,
    // Bytes that remain of the message; an upper bound if its length is not known (compressed messages).
    left: u64,
    // The fault of a field that claims more than `left` bytes.
    longer: DecodeError,
    scratch: Vec<u8>,
}

impl FieldParser {
    pub(crate) const fn new() -> Self {
        Self { state: TAG, left: 0, longer: DecodeError::Length, scratch: Vec::new() }
    }

    /// Starts a message of at most `bytes_max` bytes; a field that claims more than remain of them is the fault
    /// `longer`.
    pub(crate) fn begin(&mut self, bytes_max: u64, longer: DecodeError) {
        (self.state, self.left, self.longer) = (TAG, bytes_max, longer);
        self.scratch.clear();
    }

    /// Checks that the message may end here: between two fields.
    pub(crate) fn end(&self) -> Result<(), DecodeError> {
        match self.state {
            FieldPosition::Number(NumberRole::Tag, tag) if tag.is_fresh() => Ok(()),
            FieldPosition::Number(..) => Err(DecodeError::Varint),
            _ => Err(DecodeError::Length),
        }
    }

    pub(crate) fn release_memory(&mut self, bytes_max: usize) {
        self.scratch.shrink_to(bytes_max);
    }

    /// Consumes bytes of the piece, until it is empty or a part of the content is complete.
    #[inline]
    pub(crate) fn step(&mut self, piece: &mut Chunk, sink: &mut impl Sink) -> Result<Option<Chunk>, DecodeError> {
        let (used, content) = self.parse(piece.as_slice(), sink)?;
        let content = content.map(|range| piece.slice(range));
        piece.advance(used);
        Ok(content)
    }

    fn parse(&mut self, bytes: &[u8], sink: &mut impl Sink) -> Result<(usize, Option<Range<usize>>), DecodeError> {
        let mut at = 0;
        while at < bytes.len() {
            match &mut self.state {
                FieldPosition::Number(role, varint) => {
                    let number = varint.take(bytes[at])?;
                    at += 1;
                    self.left = self.left.saturating_sub(1);
                    if let Some(number) = number {
                        let role = *role;
                        self.state = self.after(role, number, sink)?;
                    }
                }
                FieldPosition::Text { field, left } => {
                    let field = *field;
                    let some = &bytes[at..at + within(*left, bytes.len() - at)];
                    at += some.len();
                    *left -= some.len() as u64;
                    self.left -= some.len() as u64;
                    let is_whole = *left == 0;
                    // A text within one piece is passed on without a copy.
                    if is_whole && self.scratch.is_empty() {
                        sink.text(field, some)?;
                    } else {
                        self.scratch.extend_from_slice(some);
                        if is_whole {
                            sink.text(field, &self.scratch)?;
                            self.scratch.clear();
                        }
                    }
                    if is_whole {
                        self.state = TAG;
                    }
                }
                FieldPosition::Content { left } => {
                    let from = at;
                    at += within(*left, bytes.len() - at);
                    *left -= (at - from) as u64;
                    self.left -= (at - from) as u64;
                    if *left == 0 {
                        self.state = TAG;
                    }
                    // Return here, so that the caller can take this part by reference.
                    return Ok((at, Some(from..at)));
                }
                FieldPosition::Skip { left } => {
                    let some = within(*left, bytes.len() - at);
                    at += some;
                    *left -= some as u64;
                    self.left -= some as u64;
                    if *left == 0 {
                        self.state = TAG;
                    }
                }
            }
        }
        Ok((at, None))
    }

    /// Returns the state after a number.
    fn after(&self, role: NumberRole, number: u64, sink: &mut impl Sink) -> Result<FieldPosition, DecodeError> {
        match role {
            NumberRole::Tag => return self.after_tag(number, sink),
            NumberRole::SkippedNumber => {}
            NumberRole::Number(field) => sink.number(field, number)?,
            NumberRole::SkippedLength => return self.skip(number),
            // Both length checks precede any buffering.
            NumberRole::TextLength(..) | NumberRole::ContentLength(_) if number > self.left => return Err(self.longer),
            NumberRole::TextLength(_, max, fault) if number > u64::from(max) => return Err(fault),
            NumberRole::TextLength(field, ..) if number == 0 => sink.text(field, b"")?,
            NumberRole::TextLength(field, ..) => return Ok(FieldPosition::Text { field, left: number }),
            NumberRole::ContentLength(field) => {
                sink.content(field)?;
                if number > 0 {
                    return Ok(FieldPosition::Content { left: number });
                }
            }
        }
        Ok(TAG)
    }

    fn after_tag(&self, number: u64, sink: &impl Sink) -> Result<FieldPosition, DecodeError> {
        let (field, kind) = tag(number)?;
        let role = match (sink.kind(field), kind) {
            (Some(FieldKind::Number), kind::VARINT) => NumberRole::Number(field),
            (Some(FieldKind::Text(max, fault)), kind::BYTES) => NumberRole::TextLength(field, max, fault),
            (Some(FieldKind::Content), kind::BYTES) => NumberRole::ContentLength(field),
            (Some(_), _) => return Err(DecodeError::WireType(field)),
            (None, kind::VARINT) => NumberRole::SkippedNumber,
            (None, kind::BYTES) => NumberRole::SkippedLength,
            // Unknown fields are skipped by their wire type, for compatibility with future messages.
            (None, kind::FIXED64) => return self.skip(8),
            (None, kind::FIXED32) => return self.skip(4),
            (None, _) => return Err(DecodeError::Tag),
        };
        Ok(FieldPosition::Number(role, Varint::new()))
    }

    fn skip(&self, bytes: u64) -> Result<FieldPosition, DecodeError> {
        match bytes {
            0 => Ok(TAG),
            _ if bytes > self.left => Err(self.longer),
            left => Ok(FieldPosition::Skip { left }),
        }
    }
}

/// Returns the smaller of `left` and `bytes`.
fn within(left: u64, bytes: usize) -> usize {
    usize::try_from(left).map_or(bytes, |left| left.min(bytes))
}

//! A message's fields, from pieces that are cut anywhere.
//!
//! ```text
//!        ┌───────────────► tag ◄──────────────────────────────┐
//!        │                  │                                 │
//!        │  number ◄────────┼──────► length ──► text, content │
//!        └────┘             └──────► skipped ─────────┴───────┘
//! ```
//! A text is handed over in one: from where it lies when the piece holds all of it, else from a scratch buffer that grows with what
//! has come and never by what a length says. Content is handed over in parts of the pieces.

use std::ops::Range;

use causeway_message::Chunk;

use crate::fault::DecodeFault;
use crate::wire::{Varint, kind, tag};

/// What is known about a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Number,
    /// To be had in one, of this many octets at most; what a longer one is.
    Text(u32, DecodeFault),
    /// To be had in parts.
    Content,
}

/// Who takes the fields.
pub(crate) trait Sink {
    /// `None` for a field that nobody knows: it is passed over.
    fn kind(&self, field: u32) -> Option<Kind>;
    fn number(&mut self, field: u32, number: u64) -> Result<(), DecodeFault>;
    fn text(&mut self, field: u32, octets: &[u8]) -> Result<(), DecodeFault>;
    /// A field of content begins; it may stay empty, and there may be another.
    fn content(&mut self, field: u32) -> Result<(), DecodeFault>;
}

#[derive(Clone, Copy, Debug)]
enum State {
    Number(What, Varint),
    Text { field: u32, left: u64 },
    Content { left: u64 },
    Skip { left: u64 },
}

#[derive(Clone, Copy, Debug)]
enum What {
    Tag,
    Number(u32),
    TextLength(u32, u32, DecodeFault),
    ContentLength(u32),
    SkippedNumber,
    SkippedLength,
}

const TAG: State = State::Number(What::Tag, Varint::new());

/// Where in a message its reader stands.
#[derive(Debug)]
pub(crate) struct Walk {
    state: State,
    // Octets of the message that are to come: all of them, or as many as there may be where that is not known.
    left: u64,
    // What a field is that is longer than that.
    longer: DecodeFault,
    scratch: Vec<u8>,
}

impl Walk {
    pub(crate) const fn new() -> Self {
        Self { state: TAG, left: 0, longer: DecodeFault::Length, scratch: Vec::new() }
    }

    /// A message of at most this many octets begins; a field that says it is longer than what is left of them is that fault.
    pub(crate) fn begin(&mut self, octets_max: u64, longer: DecodeFault) {
        (self.state, self.left, self.longer) = (TAG, octets_max, longer);
        self.scratch.clear();
    }

    /// The message ends here.
    pub(crate) fn end(&self) -> Result<(), DecodeFault> {
        match self.state {
            State::Number(What::Tag, tag) if tag.is_fresh() => Ok(()),
            State::Number(..) => Err(DecodeFault::Varint),
            _ => Err(DecodeFault::Length),
        }
    }

    pub(crate) fn give_back(&mut self, octets_max: usize) {
        self.scratch.shrink_to(octets_max);
    }

    /// Takes octets off the piece, until it is empty or there is a part of the content.
    #[inline]
    pub(crate) fn step(&mut self, piece: &mut Chunk, sink: &mut impl Sink) -> Result<Option<Chunk>, DecodeFault> {
        let (used, content) = self.eat(piece.as_slice(), sink)?;
        let content = content.map(|range| piece.slice(range));
        piece.advance(used);
        Ok(content)
    }

    fn eat(&mut self, octets: &[u8], sink: &mut impl Sink) -> Result<(usize, Option<Range<usize>>), DecodeFault> {
        let mut at = 0;
        while at < octets.len() {
            match &mut self.state {
                State::Number(what, varint) => {
                    let number = varint.take(octets[at])?;
                    at += 1;
                    self.left = self.left.saturating_sub(1);
                    if let Some(number) = number {
                        let what = *what;
                        self.state = self.after(what, number, sink)?;
                    }
                }
                State::Text { field, left } => {
                    let field = *field;
                    let some = &octets[at..at + within(*left, octets.len() - at)];
                    at += some.len();
                    *left -= some.len() as u64;
                    self.left -= some.len() as u64;
                    let is_whole = *left == 0;
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
                State::Content { left } => {
                    let from = at;
                    at += within(*left, octets.len() - at);
                    *left -= (at - from) as u64;
                    self.left -= (at - from) as u64;
                    if *left == 0 {
                        self.state = TAG;
                    }
                    return Ok((at, Some(from..at)));
                }
                State::Skip { left } => {
                    let some = within(*left, octets.len() - at);
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

    /// What follows a number.
    fn after(&self, what: What, number: u64, sink: &mut impl Sink) -> Result<State, DecodeFault> {
        match what {
            What::Tag => return self.after_tag(number, sink),
            What::SkippedNumber => {}
            What::Number(field) => sink.number(field, number)?,
            What::SkippedLength => return self.skip(number),
            What::TextLength(..) | What::ContentLength(_) if number > self.left => return Err(self.longer),
            What::TextLength(_, max, fault) if number > u64::from(max) => return Err(fault),
            What::TextLength(field, ..) if number == 0 => sink.text(field, b"")?,
            What::TextLength(field, ..) => return Ok(State::Text { field, left: number }),
            What::ContentLength(field) => {
                sink.content(field)?;
                if number > 0 {
                    return Ok(State::Content { left: number });
                }
            }
        }
        Ok(TAG)
    }

    fn after_tag(&self, number: u64, sink: &impl Sink) -> Result<State, DecodeFault> {
        let (field, kind) = tag(number)?;
        let what = match (sink.kind(field), kind) {
            (Some(Kind::Number), kind::VARINT) => What::Number(field),
            (Some(Kind::Text(max, fault)), kind::OCTETS) => What::TextLength(field, max, fault),
            (Some(Kind::Content), kind::OCTETS) => What::ContentLength(field),
            (Some(_), _) => return Err(DecodeFault::WireType(field)),
            (None, kind::VARINT) => What::SkippedNumber,
            (None, kind::OCTETS) => What::SkippedLength,
            (None, kind::FIXED64) => return self.skip(8),
            (None, kind::FIXED32) => return self.skip(4),
            (None, _) => return Err(DecodeFault::Tag),
        };
        Ok(State::Number(what, Varint::new()))
    }

    fn skip(&self, octets: u64) -> Result<State, DecodeFault> {
        match octets {
            0 => Ok(TAG),
            _ if octets > self.left => Err(self.longer),
            left => Ok(State::Skip { left }),
        }
    }
}

fn within(left: u64, octets: usize) -> usize {
    usize::try_from(left).map_or(octets, |left| left.min(octets))
}

//! Field lines, compressed: HPACK (RFC 7541), both directions, a whole field block at a time.
//!
//! In reading order:
//! - [`Field`], [`Name`], [`Sink`]: what a decoded block says
//! - [`Decoder`]: field blocks to fields
//! - [`Encoder`], [`Pseudo`]: fields to field blocks
//! - `table`: the dynamic table of both; `statics`: the static one
//! - `integer`, `huffman`: how numbers and strings are written
//!
//! A connection has one of each. Neither knows of frames, streams or what a request must hold.

mod decoder;
mod encoder;
mod huffman;
mod integer;
mod kind;
mod statics;
mod table;

pub use decoder::Decoder;
pub use encoder::{Encoder, Pseudo};
pub use table::TableState;

use causeway_message::KnownName;
use kind::Kind;

/// The dynamic table's size until SETTINGS say another (RFC 9113 §6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4096;

/// The largest dynamic table that either side may be given here.
pub const TABLE_BYTES_MAX: u32 = 65_535;

/// A field block that cannot be decoded. The two tables may differ from then on, so the connection ends with
/// COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HpackFault {
    /// The block ends inside a field.
    Truncated,
    /// An integer past 32 bits, or padded with zeros past five octets behind its first (§5.1).
    IntegerTooLarge,
    /// Index 0, or one that neither table has (§2.3.3, §6.1).
    UnknownIndex,
    /// A Huffman code that holds the end of string, or is padded wrongly (§5.2).
    Huffman,
    /// A table size above what SETTINGS_HEADER_TABLE_SIZE allows (§6.3).
    SizeTooLarge,
    /// A table size behind a field (§4.2).
    SizeMisplaced,
    /// No table size, although ours was lowered and the peer has acknowledged that (§4.2).
    SizeMissing,
}

/// Takes the fields of a block.
pub trait Sink {
    /// The next field, in the block's order. What it borrows is gone afterwards.
    fn field(&mut self, field: Field<'_>);
}

/// A decoded field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name, classified.
    pub name: Name<'a>,
    /// Its value, as it was sent.
    pub value: &'a [u8],
    /// The value may stand in a message: no control octet but HTAB, no white space at either end (RFC 9113 §8.2.1 and,
    /// beyond what that demands, RFC 9110 §5.5).
    pub value_is_valid: bool,
    /// Whoever sends it on must not let it be indexed either (RFC 7541 §6.2.3).
    pub never_indexed: bool,
    /// Octets of name and value as they were before compression, and 32 more: what SETTINGS_MAX_HEADER_LIST_SIZE counts
    /// (RFC 9113 §6.5.2).
    pub size: u32,
}

/// The name of a field line (RFC 9113 §8.2, §8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    /// `:method`
    Method,
    /// `:scheme`
    Scheme,
    /// `:authority`
    Authority,
    /// `:path`
    Path,
    /// `:protocol` (RFC 8441)
    Protocol,
    /// `:status`
    Status,
    /// Another name that starts with a colon.
    OtherPseudo,
    /// A registered name, in lower case.
    Known(KnownName),
    /// Another token, in lower case.
    Other(&'a str),
    /// Empty, not a token, or with a letter in upper case.
    Invalid,
}

/// What a field with a name and a value of these lengths counts for (RFC 7541 §4.1).
#[inline]
const fn field_size(name_len: usize, value_len: usize) -> usize {
    name_len + value_len + 32
}

//! HPACK, the compression of field lines (RFC 7541), in both directions, a whole field block at a time.
//!
//! In reading order:
//! - [`Field`], [`Name`], [`Sink`]: the fields of a decoded block
//! - [`Decoder`]: field blocks to fields
//! - [`Encoder`], [`Pseudo`]: fields to field blocks
//! - `table`: the dynamic table of both; `statics`: the static table
//! - `integer`, `huffman`: the encodings of numbers and strings
//!
//! A connection has one decoder and one encoder. Neither depends on frames, streams or the rules of a request.

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

use std::error::Error;
use std::fmt;

use causeway_message::KnownName;
use kind::NameKind;

/// The dynamic table's size before SETTINGS change it (RFC 9113 §6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4096;

/// The largest dynamic table that this implementation supports, in bytes.
pub const TABLE_BYTES_MAX: u32 = 65_535;

/// A field block that cannot be decoded. The tables of both sides may differ afterwards, so the connection ends with
/// COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HpackError {
    /// The block ends inside a field.
    Truncated,
    /// An integer above 32 bits, or padded with zeros to more than five bytes after its first (§5.1).
    IntegerTooLarge,
    /// Index 0, or an index above both tables (§2.3.3, §6.1).
    UnknownIndex,
    /// A Huffman code that contains the end-of-string symbol or has invalid padding (§5.2).
    Huffman,
    /// A table size above SETTINGS_HEADER_TABLE_SIZE (§6.3).
    SizeTooLarge,
    /// A table size after a field (§4.2).
    SizeMisplaced,
    /// No table size, although our limit was lowered and the peer has acknowledged it (§4.2).
    SizeMissing,
}

impl fmt::Display for HpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "the block ends inside a field",
            Self::IntegerTooLarge => "an integer that is too large",
            Self::UnknownIndex => "an index outside the tables",
            Self::Huffman => "an invalid Huffman code",
            Self::SizeTooLarge => "a table size above the limit",
            Self::SizeMisplaced => "a table size after a field",
            Self::SizeMissing => "no table size after the limit was lowered",
        })
    }
}

impl Error for HpackError {}

/// Receives the fields of a block.
pub trait Sink {
    /// Receives the next field, in the block's order. The borrowed bytes are valid only during the call.
    fn field(&mut self, field: Field<'_>);
}

/// A decoded field line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name, classified.
    pub name: Name<'a>,
    /// The value, as sent.
    pub value: &'a [u8],
    /// Whether the value may occur in a message: no control byte except HTAB, no white space at either end (RFC 9113
    /// §8.2.1 and, more strictly, RFC 9110 §5.5).
    pub value_is_valid: bool,
    /// An intermediary that forwards the field must not let it be indexed either (RFC 7541 §6.2.3).
    pub never_indexed: bool,
    /// Uncompressed length of name and value plus 32 bytes, as counted by SETTINGS_MAX_HEADER_LIST_SIZE (RFC 9113
    /// §6.5.2).
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

/// The size of a field with a name and a value of these lengths (RFC 7541 §4.1).
#[inline]
const fn field_size(name_len: usize, value_len: usize) -> usize {
    name_len + value_len + 32
}

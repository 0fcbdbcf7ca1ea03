//! Decoding and encoding of blocks as plain lists, for all tests of RFC 7541.
#![allow(dead_code, reason = "each test file uses its part")]

use std::io::IoSlice;

use causeway_h2::hpack::{Decoder, Encoder, Field, HpackError, Name, Pseudo, Sink};
use causeway_message::{NameRef, StatusCode, WriteList};

/// Names and values, as bytes.
pub(crate) type Fields = Vec<(Box<[u8]>, Box<[u8]>)>;

/// A decoded field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DecodedField {
    /// `invalid` or `:other` if the decoder does not pass the name on.
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
    pub(crate) value_is_valid: bool,
    pub(crate) never_indexed: bool,
    pub(crate) size: u32,
}

/// Stores all fields.
#[derive(Debug, Default)]
pub(crate) struct FieldCollector(pub(crate) Vec<DecodedField>);

impl Sink for FieldCollector {
    fn field(&mut self, field: Field<'_>) {
        self.0.push(DecodedField {
            name: spelled(field.name).to_owned(),
            value: field.value.to_vec(),
            value_is_valid: field.value_is_valid,
            never_indexed: field.never_indexed,
            size: field.size,
        });
    }
}

fn spelled(name: Name<'_>) -> &str {
    match name {
        Name::Method => ":method",
        Name::Scheme => ":scheme",
        Name::Authority => ":authority",
        Name::Path => ":path",
        Name::Protocol => ":protocol",
        Name::Status => ":status",
        Name::OtherPseudo => ":other",
        Name::Known(known) => known.lower(),
        Name::Other(name) => name,
        Name::Invalid => "invalid",
    }
}

/// Decodes a block and returns all its fields.
pub(crate) fn seen(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<DecodedField>, HpackError> {
    let mut kept = FieldCollector::default();
    decoder.decode(block, &mut kept).map(|()| kept.0)
}

/// Decodes a block and returns names and values.
pub(crate) fn decoded(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let fields = seen(decoder, block)?;
    Ok(fields.into_iter().map(|field| (field.name.into_bytes().into(), field.value.into())).collect())
}

/// Encodes these fields as a block; names with a colon are pseudo-fields.
pub(crate) fn encoded<N: AsRef<[u8]>, V: AsRef<[u8]>>(encoder: &mut Encoder, fields: &[(N, V)]) -> Vec<u8> {
    let mut out = WriteList::new();
    for (name, value) in fields {
        let value = value.as_ref();
        match name.as_ref() {
            b":status" => encoder.status(status(value), &mut out),
            b":method" => encoder.pseudo(Pseudo::Method, value, &mut out),
            b":scheme" => encoder.pseudo(Pseudo::Scheme, value, &mut out),
            b":authority" => encoder.pseudo(Pseudo::Authority, value, &mut out),
            b":path" => encoder.pseudo(Pseudo::Path, value, &mut out),
            b":protocol" => encoder.pseudo(Pseudo::Protocol, value, &mut out),
            name => encoder.field(NameRef::parse(name).expect("a token"), value, &mut out),
        }
    }
    bytes(&out)
}

fn status(digits: &[u8]) -> StatusCode {
    let code = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).and_then(StatusCode::new);
    code.expect("a status code")
}

pub(crate) fn bytes(out: &WriteList) -> Vec<u8> {
    let mut slices = [IoSlice::new(b""); 4];
    let used = out.slices(&mut slices);
    slices[..used].iter().flat_map(|slice| slice.iter().copied()).collect()
}

/// Parses hexadecimal digits; white space is ignored.
pub(crate) fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    assert_eq!(digits.len() % 2, 0, "whole bytes");
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

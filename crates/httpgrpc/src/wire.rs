//! The protobuf wire format: reads numbers and fields of complete messages, and writes them.

use crate::error::DecodeError;

/// The supported wire types; groups are rejected.
pub(crate) mod kind {
    pub(crate) const VARINT: u64 = 0;
    pub(crate) const FIXED64: u64 = 1;
    pub(crate) const BYTES: u64 = 2;
    pub(crate) const FIXED32: u64 = 5;
}

/// An incremental varint: seven bits per byte, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    pub(crate) const fn new() -> Self {
        Self { value: 0, shift: 0 }
    }

    /// Returns whether no byte was read.
    pub(crate) const fn is_fresh(self) -> bool {
        self.shift == 0
    }

    /// Reads the next byte; returns the number with its last byte. Accepts numbers with redundant bytes.
    #[inline]
    pub(crate) fn take(&mut self, byte: u8) -> Result<Option<u64>, DecodeError> {
        // The tenth byte has room for one bit only.
        if self.shift == 63 && byte > 1 {
            return Err(DecodeError::Varint);
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        if byte & 0x80 != 0 {
            self.shift += 7;
            return Ok(None);
        }
        Ok(Some(self.value))
    }
}

/// Splits a tag into field number and wire type. Field number 0 is invalid.
#[inline]
pub(crate) fn tag(tag: u64) -> Result<(u32, u64), DecodeError> {
    let field = u32::try_from(tag).map_err(|_| DecodeError::Tag)? >> 3;
    if field == 0 { Err(DecodeError::Tag) } else { Ok((field, tag & 7)) }
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// Fixed 32 or 64 bits; no message of this crate has such a field, so the value is dropped.
    Fixed,
}

/// An iterator over the fields of a complete message; ends after the first fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn number(&mut self) -> Result<u64, DecodeError> {
        let mut varint = Varint::new();
        while let [byte, rest @ ..] = self.rest {
            self.rest = rest;
            if let Some(number) = varint.take(*byte)? {
                return Ok(number);
            }
        }
        Err(DecodeError::Varint)
    }

    fn bytes(&mut self, len: u64) -> Result<&'a [u8], DecodeError> {
        let len = usize::try_from(len).map_err(|_| DecodeError::Length)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Length)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), DecodeError> {
        let (field, kind) = tag(self.number()?)?;
        let value = match kind {
            kind::VARINT => Value::Number(self.number()?),
            kind::BYTES => {
                let len = self.number()?;
                Value::Bytes(self.bytes(len)?)
            }
            kind::FIXED64 => self.bytes(8).map(|_| Value::Fixed)?,
            kind::FIXED32 => self.bytes(4).map(|_| Value::Fixed)?,
            _ => return Err(DecodeError::Tag),
        };
        Ok((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // After a fault the position is unknown: end the iteration.
            self.rest = &[];
        }
        Some(field)
    }
}

/// Returns the encoded length of a number, in bytes.
#[inline]
pub(crate) const fn varint_len(number: u64) -> u64 {
    (70 - (number | 1).leading_zeros() as u64) / 7
}

/// Returns the encoded length of a field with its tag, in bytes. All field numbers here are below 16, so a tag is one
/// byte.
pub(crate) const fn field_len(bytes: u64) -> u64 {
    1 + varint_len(bytes) + bytes
}

#[inline]
pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends the tag and length of a field, whose bytes follow.
#[inline]
pub(crate) fn put_len(field: u32, bytes: u64, out: &mut Vec<u8>) {
    out.push((field << 3) as u8 | kind::BYTES as u8);
    put_varint(bytes, out);
}

#[inline]
pub(crate) fn put_bytes(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_len(field, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// As [`put_bytes`], except that an empty value is omitted, as in proto3.
pub(crate) fn put_some(field: u32, bytes: &[u8], out: &mut Vec<u8>) {
    if !bytes.is_empty() {
        put_bytes(field, bytes, out);
    }
}

pub(crate) fn put_number(field: u32, number: u64, out: &mut Vec<u8>) {
    out.push((field << 3) as u8 | kind::VARINT as u8);
    put_varint(number, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<u64, DecodeError> {
        Fields::new(bytes).number()
    }

    // protobuf's encoding.md, "Base 128 Varints".
    #[test]
    fn numbers_have_64_bits_at_most() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
            let mut out = Vec::new();
            put_varint(number, &mut out);
            assert_eq!((read(&out), varint_len(number)), (Ok(number), out.len() as u64), "{number}");
            assert_eq!(read(&out[..out.len() - 1]), Err(DecodeError::Varint), "{number} cut off");
        }
        assert_eq!(read(&[0x80, 0x80, 0]), Ok(0), "redundant bytes");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Err(DecodeError::Varint));
        assert_eq!(read(&[0x80; 11]), Err(DecodeError::Varint));
    }

    #[test]
    fn parsing_stops_at_the_first_malformed_field() {
        type ParsedNumber = Result<u32, DecodeError>;
        let cases: &[(&str, &[u8], &[ParsedNumber])] = &[
            ("none", b"", &[]),
            ("all types", b"\x08\x01\x12\x01x\x1d1234\x2112345678", &[Ok(1), Ok(2), Ok(3), Ok(4)]),
            ("field 0", b"\x00\x01", &[Err(DecodeError::Tag)]),
            ("a group", b"\x0b\x0c", &[Err(DecodeError::Tag)]),
            ("type 7", b"\x0f", &[Err(DecodeError::Tag)]),
            ("a tag of 33 bits", b"\xf8\xff\xff\xff\x1f\x01", &[Err(DecodeError::Tag)]),
            ("a length past the end", b"\x08\x01\x12\x02x", &[Ok(1), Err(DecodeError::Length)]),
            ("a length of 64 bits", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", &[Err(DecodeError::Length)]),
            ("cut within 64 bits", b"\x211234567", &[Err(DecodeError::Length)]),
        ];
        for (why, message, want) in cases {
            let got: Vec<_> = Fields::new(message).map(|field| field.map(|(number, _)| number)).collect();
            assert_eq!(got, *want, "{why}");
        }
    }
}

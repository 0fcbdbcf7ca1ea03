//! Protobuf's wire format: numbers and fields within octets that are all there, and how to write them.

use crate::fault::DecodeFault;

/// Wire types that are not refused.
pub(crate) mod kind {
    pub(crate) const VARINT: u64 = 0;
    pub(crate) const FIXED64: u64 = 1;
    pub(crate) const OCTETS: u64 = 2;
    pub(crate) const FIXED32: u64 = 5;
}

/// A number that comes octet by octet: seven bits each, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    pub(crate) const fn new() -> Self {
        Self { value: 0, shift: 0 }
    }

    /// Whether nothing of it has come.
    pub(crate) const fn is_fresh(self) -> bool {
        self.shift == 0
    }

    /// Takes the next octet; answers the number with its last one. A number longer than it need be is a number.
    #[inline]
    pub(crate) fn take(&mut self, octet: u8) -> Result<Option<u64>, DecodeFault> {
        // The tenth octet has room for the last bit only.
        if self.shift == 63 && octet > 1 {
            return Err(DecodeFault::Varint);
        }
        self.value |= u64::from(octet & 0x7f) << self.shift;
        if octet & 0x80 != 0 {
            self.shift += 7;
            return Ok(None);
        }
        Ok(Some(self.value))
    }
}

/// A field's number and wire type.
#[inline]
pub(crate) fn tag(tag: u64) -> Result<(u32, u64), DecodeFault> {
    let field = u32::try_from(tag).map_err(|_| DecodeFault::Tag)? >> 3;
    if field == 0 { Err(DecodeFault::Tag) } else { Ok((field, tag & 7)) }
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    Octets(&'a [u8]),
    /// Fixed 32 or 64 bits, which no message here has.
    Fixed,
}

/// The fields of a message that is all there; ends with the first fault.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) const fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn number(&mut self) -> Result<u64, DecodeFault> {
        let mut varint = Varint::new();
        while let [octet, rest @ ..] = self.rest {
            self.rest = rest;
            if let Some(number) = varint.take(*octet)? {
                return Ok(number);
            }
        }
        Err(DecodeFault::Varint)
    }

    fn octets(&mut self, len: u64) -> Result<&'a [u8], DecodeFault> {
        let len = usize::try_from(len).map_err(|_| DecodeFault::Length)?;
        let (octets, rest) = self.rest.split_at_checked(len).ok_or(DecodeFault::Length)?;
        self.rest = rest;
        Ok(octets)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), DecodeFault> {
        let (field, kind) = tag(self.number()?)?;
        let value = match kind {
            kind::VARINT => Value::Number(self.number()?),
            kind::OCTETS => {
                let len = self.number()?;
                Value::Octets(self.octets(len)?)
            }
            kind::FIXED64 => self.octets(8).map(|_| Value::Fixed)?,
            kind::FIXED32 => self.octets(4).map(|_| Value::Fixed)?,
            _ => return Err(DecodeFault::Tag),
        };
        Ok((field, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), DecodeFault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}

/// How many octets a number takes.
#[inline]
pub(crate) const fn varint_len(number: u64) -> u64 {
    (70 - (number | 1).leading_zeros() as u64) / 7
}

/// How many octets a field of this many octets takes, with its tag: all field numbers here are below 16.
pub(crate) const fn field_len(octets: u64) -> u64 {
    1 + varint_len(octets) + octets
}

#[inline]
pub(crate) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The tag and length of a field; its octets follow.
#[inline]
pub(crate) fn put_len(field: u8, octets: u64, out: &mut Vec<u8>) {
    out.push(field << 3 | kind::OCTETS as u8);
    put_varint(octets, out);
}

#[inline]
pub(crate) fn put_octets(field: u8, octets: &[u8], out: &mut Vec<u8>) {
    put_len(field, octets.len() as u64, out);
    out.extend_from_slice(octets);
}

/// As [`put_octets`]; what is empty is not said, as proto3 has it.
pub(crate) fn put_some(field: u8, octets: &[u8], out: &mut Vec<u8>) {
    if !octets.is_empty() {
        put_octets(field, octets, out);
    }
}

pub(crate) fn put_number(field: u8, number: u64, out: &mut Vec<u8>) {
    out.push(field << 3 | kind::VARINT as u8);
    put_varint(number, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(octets: &[u8]) -> Result<u64, DecodeFault> {
        Fields::new(octets).number()
    }

    // protobuf's encoding.md, "Base 128 Varints".
    #[test]
    fn numbers_have_64_bits_at_most() {
        for number in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX / 2, u64::MAX] {
            let mut out = Vec::new();
            put_varint(number, &mut out);
            assert_eq!((read(&out), varint_len(number)), (Ok(number), out.len() as u64), "{number}");
            assert_eq!(read(&out[..out.len() - 1]), Err(DecodeFault::Varint), "{number} cut off");
        }
        assert_eq!(read(&[0x80, 0x80, 0]), Ok(0), "longer than it need be");
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Err(DecodeFault::Varint));
        assert_eq!(read(&[0x80; 11]), Err(DecodeFault::Varint));
    }

    #[test]
    fn fields_end_with_the_first_fault() {
        type Wanted = Result<u32, DecodeFault>;
        let cases: &[(&str, &[u8], &[Wanted])] = &[
            ("none", b"", &[]),
            ("all types", b"\x08\x01\x12\x01x\x1d1234\x2112345678", &[Ok(1), Ok(2), Ok(3), Ok(4)]),
            ("field 0", b"\x00\x01", &[Err(DecodeFault::Tag)]),
            ("a group", b"\x0b\x0c", &[Err(DecodeFault::Tag)]),
            ("type 7", b"\x0f", &[Err(DecodeFault::Tag)]),
            ("a tag of 33 bits", b"\xf8\xff\xff\xff\x1f\x01", &[Err(DecodeFault::Tag)]),
            ("a length that lies", b"\x08\x01\x12\x02x", &[Ok(1), Err(DecodeFault::Length)]),
            ("a length of 64 bits", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01x", &[Err(DecodeFault::Length)]),
            ("cut within 64 bits", b"\x211234567", &[Err(DecodeFault::Length)]),
        ];
        for (why, message, want) in cases {
            let got: Vec<_> = Fields::new(message).map(|field| field.map(|(number, _)| number)).collect();
            assert_eq!(got, *want, "{why}");
        }
    }
}

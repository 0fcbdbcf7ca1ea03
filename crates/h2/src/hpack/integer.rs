//! Integers with a prefix (RFC 7541 §5.1).

use super::HpackError;

/// Number of bytes that may follow the first. Five hold every number up to `u32::MAX`. Zeros that pad a shorter
/// number count too, which bounds the padding.
const FOLLOWING_MAX: u32 = 5;

/// Reads a number of which the first byte holds `bits` bits, and removes its bytes from the front of `rest`.
#[inline]
pub(super) fn read(rest: &mut &[u8], bits: u32) -> Result<u32, HpackError> {
    let Some((&first, tail)) = rest.split_first() else { return Err(HpackError::Truncated) };
    *rest = tail;
    let full = (1 << bits) - 1;
    let number = u32::from(first) & full;
    if number < full { Ok(number) } else { read_long(rest, full) }
}

fn read_long(rest: &mut &[u8], full: u32) -> Result<u32, HpackError> {
    let mut number = u64::from(full);
    for place in 0..FOLLOWING_MAX {
        let Some((&byte, tail)) = rest.split_first() else { return Err(HpackError::Truncated) };
        *rest = tail;
        // 64 bits cannot overflow here: at most 35 bits follow the prefix.
        number += u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return u32::try_from(number).map_err(|_| HpackError::IntegerTooLarge);
        }
    }
    Err(HpackError::IntegerTooLarge)
}

/// Encodes a number as one byte, if it fits the prefix.
#[inline]
pub(super) const fn short(pattern: u8, bits: u32, number: u32) -> Option<u8> {
    if number < (1 << bits) - 1 { Some(pattern | number as u8) } else { None }
}

/// An encoded number, at most six bytes.
pub(super) struct EncodedInteger {
    bytes: [u8; 6],
    len: u8,
}

impl EncodedInteger {
    /// Encodes a number. `pattern` holds the bits of the first byte above the prefix.
    #[inline]
    pub(super) fn of(pattern: u8, bits: u32, number: u32) -> Self {
        if let Some(byte) = short(pattern, bits, number) {
            return Self { bytes: [byte, 0, 0, 0, 0, 0], len: 1 };
        }
        let full = (1 << bits) - 1;
        let (mut bytes, mut len, mut left) = ([0; 6], 1, number - full);
        bytes[0] = pattern | full as u8;
        while left >= 0x80 {
            bytes[len] = left as u8 | 0x80;
            left >>= 7;
            len += 1;
        }
        bytes[len] = left as u8;
        Self { bytes, len: len as u8 + 1 }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 §5.1: an integer of any size in any prefix is read as it was written; C.1 lists the bytes of three.
    #[test]
    fn rfc7541_5_1_integers_round_trip_in_every_prefix() {
        for bits in 1..=8 {
            let edges = [0, 1, 9, 10, 14, 15, 30, 31, 32, 42, 62, 63, 64, 126, 127, 128, 254, 255, 256, 382, 383];
            for number in edges.into_iter().chain([1337, 16_382, 16_511, 1 << 21, u32::MAX - 1, u32::MAX]) {
                let written = EncodedInteger::of(0, bits, number);
                let mut rest = written.as_slice();
                assert_eq!(read(&mut rest, bits), Ok(number), "{number} in {bits} bits");
                assert!(rest.is_empty());
                for end in 0..written.as_slice().len() {
                    assert_eq!(read(&mut &written.as_slice()[..end], bits), Err(HpackError::Truncated));
                }
            }
        }
        assert_eq!(EncodedInteger::of(0, 5, 10).as_slice(), [0x0a]);
        assert_eq!(EncodedInteger::of(0, 5, 1337).as_slice(), [0x1f, 0x9a, 0x0a]);
        assert_eq!(EncodedInteger::of(0, 8, 42).as_slice(), [0x2a]);
        assert_eq!(EncodedInteger::of(0xe0, 5, 31).as_slice(), [0xff, 0]);
    }

    // RFC 7541 §5.1: an integer that exceeds the limits of an implementation, in value or in length, is an error.
    #[test]
    fn rfc7541_5_1_numbers_and_their_padding_are_bounded() {
        for (why, bytes, want) in [
            ("one more than 32 bits", &[0x1f, 0xe1, 0xff, 0xff, 0xff, 0x0f][..], Err(HpackError::IntegerTooLarge)),
            ("32 bits", &[0x1f, 0xe0, 0xff, 0xff, 0xff, 0x0f], Ok(u32::MAX)),
            ("35 bits", &[0x1f, 0xff, 0xff, 0xff, 0xff, 0x7f], Err(HpackError::IntegerTooLarge)),
            ("padded with zeros", &[0x1f, 0x81, 0x80, 0x80, 0x80, 0x00], Ok(32)),
            ("padded further", &[0x1f, 0x81, 0x80, 0x80, 0x80, 0x80, 0x00], Err(HpackError::IntegerTooLarge)),
            ("endless", &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err(HpackError::IntegerTooLarge)),
            ("nothing", &[], Err(HpackError::Truncated)),
        ] {
            assert_eq!(read(&mut &bytes[..], 5), want, "{why}");
        }
    }
}

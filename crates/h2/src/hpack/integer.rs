//! Integers with a prefix (RFC 7541 §5.1).

use super::HpackFault;

/// Octets that may follow the first. Five hold every number up to `u32::MAX`; zeros that pad a shorter one count too, so that
/// padding is bounded.
const FOLLOWING_MAX: u32 = 5;

/// Reads a number whose first octet has `bits` of it, and takes its octets off the front of `rest`.
#[inline]
pub(super) fn read(rest: &mut &[u8], bits: u32) -> Result<u32, HpackFault> {
    let Some((&first, behind)) = rest.split_first() else { return Err(HpackFault::Truncated) };
    *rest = behind;
    let full = (1 << bits) - 1;
    let number = u32::from(first) & full;
    if number < full { Ok(number) } else { read_long(rest, full) }
}

fn read_long(rest: &mut &[u8], full: u32) -> Result<u32, HpackFault> {
    let mut number = u64::from(full);
    for place in 0..FOLLOWING_MAX {
        let Some((&octet, behind)) = rest.split_first() else { return Err(HpackFault::Truncated) };
        *rest = behind;
        number += u64::from(octet & 0x7f) << (7 * place);
        if octet & 0x80 == 0 {
            return u32::try_from(number).map_err(|_| HpackFault::IntegerTooLarge);
        }
    }
    Err(HpackFault::IntegerTooLarge)
}

/// A number as one octet, where its prefix has room for it.
#[inline]
pub(super) const fn short(pattern: u8, bits: u32, number: u32) -> Option<u8> {
    if number < (1 << bits) - 1 { Some(pattern | number as u8) } else { None }
}

/// A number as octets, in a fixed place.
pub(super) struct Octets {
    octets: [u8; 6],
    len: u8,
}

impl Octets {
    /// `pattern` is what the first octet holds beside the number's `bits`.
    #[inline]
    pub(super) fn of(pattern: u8, bits: u32, number: u32) -> Self {
        if let Some(octet) = short(pattern, bits, number) {
            return Self { octets: [octet, 0, 0, 0, 0, 0], len: 1 };
        }
        let full = (1 << bits) - 1;
        let (mut octets, mut len, mut left) = ([0; 6], 1, number - full);
        octets[0] = pattern | full as u8;
        while left >= 0x80 {
            octets[len] = left as u8 | 0x80;
            left >>= 7;
            len += 1;
        }
        octets[len] = left as u8;
        Self { octets, len: len as u8 + 1 }
    }

    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.octets[..usize::from(self.len)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7541 §5.1: an integer of any size in any prefix reads as it was written; C.1 has the octets of three.
    #[test]
    fn rfc7541_5_1_what_is_written_is_read_in_every_prefix() {
        for bits in 1..=8 {
            let edges = [0, 1, 9, 10, 14, 15, 30, 31, 32, 42, 62, 63, 64, 126, 127, 128, 254, 255, 256, 382, 383];
            for number in edges.into_iter().chain([1337, 16_382, 16_511, 1 << 21, u32::MAX - 1, u32::MAX]) {
                let written = Octets::of(0, bits, number);
                let mut rest = written.as_slice();
                assert_eq!(read(&mut rest, bits), Ok(number), "{number} in {bits} bits");
                assert!(rest.is_empty());
                for end in 0..written.as_slice().len() {
                    assert_eq!(read(&mut &written.as_slice()[..end], bits), Err(HpackFault::Truncated));
                }
            }
        }
        assert_eq!(Octets::of(0, 5, 10).as_slice(), [0x0a]);
        assert_eq!(Octets::of(0, 5, 1337).as_slice(), [0x1f, 0x9a, 0x0a]);
        assert_eq!(Octets::of(0, 8, 42).as_slice(), [0x2a]);
        assert_eq!(Octets::of(0xe0, 5, 31).as_slice(), [0xff, 0]);
    }

    // RFC 7541 §5.1: what exceeds the limits of an implementation, in value or in octets, is an error.
    #[test]
    fn rfc7541_5_1_numbers_and_their_padding_are_bounded() {
        for (why, octets, want) in [
            ("one more than 32 bits", &[0x1f, 0xe1, 0xff, 0xff, 0xff, 0x0f][..], Err(HpackFault::IntegerTooLarge)),
            ("32 bits", &[0x1f, 0xe0, 0xff, 0xff, 0xff, 0x0f], Ok(u32::MAX)),
            ("35 bits", &[0x1f, 0xff, 0xff, 0xff, 0xff, 0x7f], Err(HpackFault::IntegerTooLarge)),
            ("padded with zeros", &[0x1f, 0x81, 0x80, 0x80, 0x80, 0x00], Ok(32)),
            ("padded further", &[0x1f, 0x81, 0x80, 0x80, 0x80, 0x80, 0x00], Err(HpackFault::IntegerTooLarge)),
            ("endless", &[0x1f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], Err(HpackFault::IntegerTooLarge)),
            ("nothing", &[], Err(HpackFault::Truncated)),
        ] {
            assert_eq!(read(&mut &octets[..], 5), want, "{why}");
        }
    }
}

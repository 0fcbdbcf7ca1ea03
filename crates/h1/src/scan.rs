//! Looking through octets several at a time: eight lie in a machine word. The tests compare every answer with a loop's.

/// The place of the first octet from `at` on that a field value may not hold (RFC 9110 §5.5: control octets except HTAB); the
/// length when there is none.
#[inline]
pub(crate) fn value_end(octets: &[u8], mut at: usize) -> usize {
    while let Some(block) = block_at(octets, at) {
        let found = not_value(block);
        if found != 0 {
            return at + place(found);
        }
        at += BLOCK;
    }
    while at < octets.len() && causeway_message::octets::is_value_octet(octets[at]) {
        at += 1;
    }
    at
}

/// The place of the first octet from `at` on that is not visible ASCII; the length when there is none.
#[inline]
pub(crate) fn visible_end(octets: &[u8], mut at: usize) -> usize {
    while let Some(block) = block_at(octets, at) {
        let found = not_visible(block);
        if found != 0 {
            return at + place(found);
        }
        at += BLOCK;
    }
    while at < octets.len() && octets[at].is_ascii_graphic() {
        at += 1;
    }
    at
}

/// The place of the first `wanted` from `at` on.
#[inline]
pub(crate) fn find(octets: &[u8], mut at: usize, wanted: u8) -> Option<usize> {
    while let Some(block) = block_at(octets, at) {
        let found = equal(block, wanted);
        if found != 0 {
            return Some(at + place(found));
        }
        at += BLOCK;
    }
    octets.get(at..)?.iter().position(|&octet| octet == wanted).map(|found| at + found)
}

use word::{BLOCK, block_at, equal, not_value, not_visible, place};

mod word {
    pub(super) const BLOCK: usize = 8;
    const ONES: u64 = u64::MAX / 255;
    const HIGHS: u64 = ONES * 0x80;

    #[inline]
    pub(super) fn block_at(octets: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*octets.get(at..)?.first_chunk::<8>()?))
    }

    #[inline]
    pub(super) fn place(found: u64) -> usize {
        found.trailing_zeros() as usize / 8
    }

    // Octets that are zero have their high bit set. Octets behind a zero one may too: only the first counts.
    #[inline]
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGHS
    }

    // Octets below `bound` (at most 0x80), the same caveat.
    #[inline]
    const fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * bound as u64) & !word & HIGHS
    }

    #[inline]
    pub(super) fn not_value(block: u64) -> u64 {
        // A tab is made printable first; the octets behind the first hit then still do not matter.
        let tabs = exact_zeros(block ^ (ONES * b'\t' as u64));
        let block = block | tabs >> 1;
        below(block, 0x20) | zeros(block ^ (ONES * 0x7f))
    }

    #[inline]
    pub(super) fn not_visible(block: u64) -> u64 {
        below(block, 0x21) | zeros(block ^ (ONES * 0x7f)) | block & HIGHS
    }

    #[inline]
    pub(super) fn equal(block: u64, wanted: u8) -> u64 {
        zeros(block ^ (ONES * wanted as u64))
    }

    // As `zeros`, without the caveat.
    #[inline]
    const fn exact_zeros(word: u64) -> u64 {
        !((word & !HIGHS).wrapping_add(!HIGHS) | word) & HIGHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_octet_at_every_place_is_judged_as_by_a_loop() {
        for octet in 0..=255u8 {
            for at in 0..40 {
                for fill in [b'a', b'\t', 0x80] {
                    let mut octets = [fill; 40];
                    octets[at] = octet;
                    let value = octets.iter().position(|&o| !causeway_message::octets::is_value_octet(o)).unwrap_or(40);
                    assert_eq!(value_end(&octets, 0), value, "{octet} at {at}");
                    let visible = octets.iter().position(|o| !o.is_ascii_graphic()).unwrap_or(40);
                    assert_eq!(visible_end(&octets, 0), visible, "{octet} at {at}");
                    assert_eq!(find(&octets, 3, octet), octets[3..].iter().position(|&o| o == octet).map(|p| p + 3));
                    // The block that holds the octet, by itself.
                    let from = at / 8 * 8;
                    let block = block_at(&octets, from).unwrap();
                    let first = |found: u64| if found == 0 { None } else { Some(place(found)) };
                    let part = &octets[from..from + 8];
                    let by_loop = |good: fn(u8) -> bool| part.iter().position(|&o| !good(o));
                    assert_eq!(first(not_value(block)), by_loop(causeway_message::octets::is_value_octet));
                    assert_eq!(first(not_visible(block)), by_loop(|o| o.is_ascii_graphic()));
                    assert_eq!(first(equal(block, octet)), part.iter().position(|&o| o == octet));
                }
            }
        }
    }

    #[test]
    fn the_end_is_the_end() {
        assert_eq!(
            (value_end(b"", 0), visible_end(b"ab", 2), find(b"ab", 2, b'a'), find(b"", 0, b'a')),
            (0, 2, None, None)
        );
    }
}

//! Looking through octets several at a time: sixteen with SSE2, which every x86-64 has, eight in a machine word elsewhere. The
//! tests compare every answer of both with a loop's.

use causeway_message::octets::is_value_octet;

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
    match last_block(octets, at) {
        Some(block) => at + place(not_value(block)),
        None => octets[at..].iter().position(|&o| !is_value_octet(o)).map_or(octets.len(), |found| at + found),
    }
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
    match last_block(octets, at) {
        Some(block) => at + place(not_visible(block)),
        None => octets[at..].iter().position(|o| !o.is_ascii_graphic()).map_or(octets.len(), |found| at + found),
    }
}

/// The place of the first `wanted`, which is not 0, from `at` on.
#[inline]
pub(crate) fn find(octets: &[u8], mut at: usize, wanted: u8) -> Option<usize> {
    while let Some(block) = block_at(octets, at) {
        let found = equal(block, wanted);
        if found != 0 {
            return Some(at + place(found));
        }
        at += BLOCK;
    }
    match last_block(octets, at) {
        Some(block) => match equal(block, wanted) {
            0 => None,
            found => Some(at + place(found)),
        },
        None => octets.get(at..)?.iter().position(|&octet| octet == wanted).map(|found| at + found),
    }
}

/// The octets from `at` on, fewer than a block, with zeros behind them: no value and nothing visible has a zero, so that the
/// end is found like a bad octet. `None` when the octets are fewer than a block altogether, or none are left.
#[inline]
fn last_block(octets: &[u8], at: usize) -> Option<Word> {
    let before = at.checked_sub(octets.len().checked_sub(BLOCK)?)?;
    if before >= BLOCK { None } else { Some(block_at(octets, at - before)? >> (8 * before)) }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use wide::{BLOCK, Word, block_at, equal, not_value, not_visible, place};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use word::{BLOCK, Word, block_at, equal, not_value, not_visible, place};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[expect(unsafe_code, reason = "16 octets at a time instead of 8: browser head 1.32 → 1.03 × httparse")]
mod wide {
    use std::arch::x86_64::{
        __m128i, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_max_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set_epi64x, _mm_set1_epi8,
    };

    pub(super) type Word = u128;
    pub(super) const BLOCK: usize = 16;

    #[inline]
    pub(super) fn block_at(octets: &[u8], at: usize) -> Option<Word> {
        Some(u128::from_le_bytes(*octets.get(at..)?.first_chunk::<16>()?))
    }

    #[inline]
    pub(super) fn place(found: u32) -> usize {
        found.trailing_zeros() as usize
    }

    #[inline]
    pub(super) fn not_value(block: u128) -> u32 {
        // SAFETY: this module exists only where the whole program is compiled for SSE2.
        unsafe { not_value_sse2(block) }
    }

    #[inline]
    pub(super) fn not_visible(block: u128) -> u32 {
        // SAFETY: as above.
        unsafe { not_visible_sse2(block) }
    }

    #[inline]
    pub(super) fn equal(block: u128, wanted: u8) -> u32 {
        // SAFETY: as above.
        unsafe { equal_sse2(block, wanted) }
    }

    // Two words that the compiler reads as one.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn vector(block: u128) -> __m128i {
        _mm_set_epi64x((block >> 64) as i64, block as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn not_value_sse2(block: u128) -> u32 {
        let block = vector(block);
        let printable = _mm_cmpeq_epi8(_mm_max_epu8(block, _mm_set1_epi8(0x20)), block);
        let good = _mm_or_si128(printable, _mm_cmpeq_epi8(block, _mm_set1_epi8(b'\t' as i8)));
        let good = _mm_andnot_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(0x7f)), good);
        !(_mm_movemask_epi8(good) as u32) & 0xffff
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn not_visible_sse2(block: u128) -> u32 {
        let block = vector(block);
        // Octets above 0x7f are negative here, so that one comparison refuses them and controls alike.
        let above_space = _mm_cmpgt_epi8(block, _mm_set1_epi8(0x20));
        let good = _mm_andnot_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(0x7f)), above_space);
        !(_mm_movemask_epi8(good) as u32) & 0xffff
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn equal_sse2(block: u128, wanted: u8) -> u32 {
        _mm_movemask_epi8(_mm_cmpeq_epi8(vector(block), _mm_set1_epi8(wanted as i8))) as u32
    }
}

#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
#[cfg_attr(target_feature = "sse2", allow(dead_code, reason = "only its judgements are compared in tests"))]
mod word {
    pub(super) type Word = u64;
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
    fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGHS
    }

    #[inline]
    pub(super) fn not_value(block: u64) -> u64 {
        // A tab is made printable first; the octets behind the first hit then still do not matter.
        let tabs = exact_zeros(block ^ (ONES * u64::from(b'\t')));
        let block = block | tabs >> 1;
        below(block, 0x20) | zeros(block ^ (ONES * 0x7f))
    }

    #[inline]
    pub(super) fn not_visible(block: u64) -> u64 {
        below(block, 0x21) | zeros(block ^ (ONES * 0x7f)) | block & HIGHS
    }

    #[inline]
    pub(super) fn equal(block: u64, wanted: u8) -> u64 {
        zeros(block ^ (ONES * u64::from(wanted)))
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
            for (at, len) in (0..40).flat_map(|at| [(at, 40), (at, 37), (at, 9)]).filter(|(at, len)| at < len) {
                for fill in [b'a', b'\t', 0x80] {
                    let mut octets = vec![fill; len];
                    octets[at] = octet;
                    let value = octets.iter().position(|&o| !is_value_octet(o)).unwrap_or(len);
                    assert_eq!(value_end(&octets, 0), value, "{octet} at {at}");
                    let visible = octets.iter().position(|o| !o.is_ascii_graphic()).unwrap_or(len);
                    assert_eq!(visible_end(&octets, 0), visible, "{octet} at {at}");
                    assert_eq!(
                        find(&octets, 3, octet | 1),
                        octets[3..].iter().position(|&o| o == octet | 1).map(|p| p + 3)
                    );
                    // The block that holds the octet, by itself.
                    let from = (at / 8 * 8).min(len - 8);
                    let block = word::block_at(&octets, from).unwrap();
                    let first = |found: u64| if found == 0 { None } else { Some(word::place(found)) };
                    let part = &octets[from..from + 8];
                    let by_loop = |good: fn(u8) -> bool| part.iter().position(|&o| !good(o));
                    assert_eq!(first(word::not_value(block)), by_loop(is_value_octet));
                    assert_eq!(first(word::not_visible(block)), by_loop(|o| o.is_ascii_graphic()));
                    assert_eq!(first(word::equal(block, octet)), part.iter().position(|&o| o == octet));
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

//! Byte searches over several bytes at a time: 16 with SSE2, which every x86-64 has, and 8 in a machine word
//! elsewhere. The tests compare both against a byte loop.

use causeway_message::syntax::is_value_byte;

/// Returns the index of the first byte from `at` on that a field value may not hold (RFC 9110 §5.5: a control byte
/// other than HTAB), or the length if there is no such byte.
#[inline]
pub(crate) fn value_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = block_at(bytes, at) {
        let found = not_value(block);
        if found != 0 {
            return at + place(found);
        }
        at += BLOCK;
    }
    match last_block(bytes, at) {
        Some(block) => at + place(not_value(block)),
        None => bytes[at..].iter().position(|&o| !is_value_byte(o)).map_or(bytes.len(), |found| at + found),
    }
}

/// Returns the index of the first byte from `at` on that is not visible ASCII, or the length if there is no such
/// byte.
#[inline]
pub(crate) fn visible_end(bytes: &[u8], mut at: usize) -> usize {
    while let Some(block) = block_at(bytes, at) {
        let found = not_visible(block);
        if found != 0 {
            return at + place(found);
        }
        at += BLOCK;
    }
    match last_block(bytes, at) {
        Some(block) => at + place(not_visible(block)),
        None => bytes[at..].iter().position(|o| !o.is_ascii_graphic()).map_or(bytes.len(), |found| at + found),
    }
}

/// Returns the index of the first `wanted` from `at` on. `wanted` must not be 0, see `last_block`.
#[inline]
pub(crate) fn find(bytes: &[u8], mut at: usize, wanted: u8) -> Option<usize> {
    while let Some(block) = block_at(bytes, at) {
        let found = equal(block, wanted);
        if found != 0 {
            return Some(at + place(found));
        }
        at += BLOCK;
    }
    match last_block(bytes, at) {
        // The zero padding never equals `wanted`.
        Some(block) => match equal(block, wanted) {
            0 => None,
            found => Some(at + place(found)),
        },
        None => bytes.get(at..)?.iter().position(|&byte| byte == wanted).map(|found| at + found),
    }
}

/// The bytes from `at` on, fewer than a block, padded with zeros. A zero is neither a value byte nor visible, so that
/// the searches stop at the padding as at any bad byte. Returns `None` if no byte is left, or if the whole input is
/// shorter than a block.
#[inline]
fn last_block(bytes: &[u8], at: usize) -> Option<Word> {
    // Load the last whole block of the input, which overlaps the previous one, and shift the overlap out.
    let before = at.checked_sub(bytes.len().checked_sub(BLOCK)?)?;
    if before >= BLOCK { None } else { Some(block_at(bytes, at - before)? >> (8 * before)) }
}

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
use wide::{BLOCK, Word, block_at, equal, not_value, not_visible, place};
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
use word::{BLOCK, Word, block_at, equal, not_value, not_visible, place};

#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[expect(unsafe_code, reason = "16 bytes at a time instead of 8: browser head 1.32 → 1.03 × httparse")]
mod wide {
    use std::arch::x86_64::{
        __m128i, _mm_andnot_si128, _mm_cmpeq_epi8, _mm_cmpgt_epi8, _mm_max_epu8, _mm_movemask_epi8, _mm_or_si128,
        _mm_set_epi64x, _mm_set1_epi8,
    };

    pub(super) type Word = u128;
    pub(super) const BLOCK: usize = 16;

    #[inline]
    pub(super) fn block_at(bytes: &[u8], at: usize) -> Option<Word> {
        Some(u128::from_le_bytes(*bytes.get(at..)?.first_chunk::<16>()?))
    }

    #[inline]
    pub(super) fn place(found: u32) -> usize {
        found.trailing_zeros() as usize
    }

    #[inline]
    pub(super) fn not_value(block: u128) -> u32 {
        // SAFETY: this module is compiled only if the whole program is compiled for SSE2.
        unsafe { not_value_sse2(block) }
    }

    #[inline]
    pub(super) fn not_visible(block: u128) -> u32 {
        // SAFETY: as in `not_value`.
        unsafe { not_visible_sse2(block) }
    }

    #[inline]
    pub(super) fn equal(block: u128, wanted: u8) -> u32 {
        // SAFETY: as in `not_value`.
        unsafe { equal_sse2(block, wanted) }
    }

    // The compiler merges the two 64-bit halves into one load.
    #[inline]
    #[target_feature(enable = "sse2")]
    fn vector(block: u128) -> __m128i {
        _mm_set_epi64x((block >> 64) as i64, block as i64)
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn not_value_sse2(block: u128) -> u32 {
        let block = vector(block);
        // An unsigned maximum with 0x20 leaves exactly the bytes from 0x20 on unchanged.
        let printable = _mm_cmpeq_epi8(_mm_max_epu8(block, _mm_set1_epi8(0x20)), block);
        let good = _mm_or_si128(printable, _mm_cmpeq_epi8(block, _mm_set1_epi8(b'\t' as i8)));
        let good = _mm_andnot_si128(_mm_cmpeq_epi8(block, _mm_set1_epi8(0x7f)), good);
        !(_mm_movemask_epi8(good) as u32) & 0xffff
    }

    #[inline]
    #[target_feature(enable = "sse2")]
    fn not_visible_sse2(block: u128) -> u32 {
        let block = vector(block);
        // Bytes above 0x7f are negative in this signed comparison, so that it rejects them together with the control
        // bytes.
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
    pub(super) fn block_at(bytes: &[u8], at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
    }

    #[inline]
    pub(super) fn place(found: u64) -> usize {
        found.trailing_zeros() as usize / 8
    }

    // Sets the high bit of each zero byte. A borrow may also mark bytes after a zero byte, so only the first mark is
    // exact.
    #[inline]
    const fn zeros(word: u64) -> u64 {
        word.wrapping_sub(ONES) & !word & HIGHS
    }

    // Sets the high bit of each byte below `bound`, which is at most 0x80. Only the first mark is exact, as in
    // `zeros`.
    #[inline]
    fn below(word: u64, bound: u8) -> u64 {
        word.wrapping_sub(ONES * u64::from(bound)) & !word & HIGHS
    }

    #[inline]
    pub(super) fn not_value(block: u64) -> u64 {
        // Each tab is changed to a printable byte first. `exact_zeros`, because a false mark would hide a control
        // byte after a tab.
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

    // As `zeros`, with every mark exact.
    #[inline]
    const fn exact_zeros(word: u64) -> u64 {
        !((word & !HIGHS).wrapping_add(!HIGHS) | word) & HIGHS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_at_each_position_matches_a_plain_loop() {
        for byte in 0..=255u8 {
            for (at, len) in (0..40).flat_map(|at| [(at, 40), (at, 37), (at, 9)]).filter(|(at, len)| at < len) {
                for fill in [b'a', b'\t', 0x80] {
                    let mut bytes = vec![fill; len];
                    bytes[at] = byte;
                    let value = bytes.iter().position(|&o| !is_value_byte(o)).unwrap_or(len);
                    assert_eq!(value_end(&bytes, 0), value, "{byte} at {at}");
                    let visible = bytes.iter().position(|o| !o.is_ascii_graphic()).unwrap_or(len);
                    assert_eq!(visible_end(&bytes, 0), visible, "{byte} at {at}");
                    assert_eq!(
                        find(&bytes, 3, byte | 1),
                        bytes[3..].iter().position(|&o| o == byte | 1).map(|p| p + 3)
                    );
                    // Also test the block that holds the byte on its own.
                    let from = (at / 8 * 8).min(len - 8);
                    let block = word::block_at(&bytes, from).unwrap();
                    let first = |found: u64| if found == 0 { None } else { Some(word::place(found)) };
                    let part = &bytes[from..from + 8];
                    let by_loop = |good: fn(u8) -> bool| part.iter().position(|&o| !good(o));
                    assert_eq!(first(word::not_value(block)), by_loop(is_value_byte));
                    assert_eq!(first(word::not_visible(block)), by_loop(|o| o.is_ascii_graphic()));
                    assert_eq!(first(word::equal(block, byte)), part.iter().position(|&o| o == byte));
                }
            }
        }
    }

    #[test]
    fn the_end_of_input_is_none() {
        assert_eq!(
            (value_end(b"", 0), visible_end(b"ab", 2), find(b"ab", 2, b'a'), find(b"", 0, b'a')),
            (0, 2, None, None)
        );
    }
}

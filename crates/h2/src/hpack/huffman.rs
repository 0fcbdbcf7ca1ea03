//! The Huffman code of string literals (RFC 7541 §5.2, Appendix B).
//!
//! The decoder takes eleven bits per step. They hold two symbols of five or six bits, which are the most frequent
//! ones, or one symbol of up to eleven bits. Longer codes are found by their length. `huffman/lengths.rs` holds only
//! the code lengths.

mod lengths;

use super::HpackError;
use lengths::LENGTHS;

const STEP: u32 = 11;
const END_OF_STRING: usize = 256;
const LENGTH_MAX: usize = 30;

/// The symbols at the beginning of the next eleven bits.
#[derive(Clone, Copy)]
struct DecodeStep {
    symbols: [u8; 2],
    // Number of bits of both symbols, and of the first alone. `first_bits` is 0 if the code is longer than a step.
    bits: u8,
    first_bits: u8,
}

impl DecodeStep {
    // Number of symbols, one or two.
    const fn count(self) -> usize {
        1 + (self.bits != self.first_bits) as usize
    }
}

static STEPS: [DecodeStep; 1 << STEP] = steps();
static CODES: [Code; 257] = codes();
static BY_LENGTH: ByLength = by_length();

#[derive(Clone, Copy)]
struct Code {
    bits: u32,
    len: u8,
}

/// The canonical code: for each length the first code, and the index of its symbol in the ordered list of symbols.
struct ByLength {
    first: [u32; LENGTH_MAX + 2],
    place: [u16; LENGTH_MAX + 2],
    symbols: [u16; 257],
}

/// Upper bound on the decoded length of this many coded bytes: no code is shorter than five bits.
pub(super) const fn decoded_max(coded: usize) -> usize {
    coded * 8 / 5
}

/// Decodes a whole string and appends it to `out`. Reserve [`decoded_max`] plus 2 bytes to avoid a reallocation.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), HpackError> {
    let before = out.len();
    // A step always writes two bytes, even for one symbol.
    out.resize(before + decoded_max(coded.len()) + 2, 0);
    let used = decode_into(coded, &mut out[before..])?;
    out.truncate(before + used);
    Ok(())
}

fn decode_into(coded: &[u8], out: &mut [u8]) -> Result<usize, HpackError> {
    // The next bits, left-aligned; `have` of them are valid.
    let (mut window, mut have) = (0u64, 0u32);
    let (mut at, mut used) = (0, 0);
    'words: while let Some(word) = coded.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        // Refill to at least 56 valid bits; bytes that fit only in part are loaded again next time.
        window |= u64::from_be_bytes(*word) >> have;
        at += (63 - have as usize) / 8;
        have |= 56;
        // Five steps consume at most 55 bits.
        for _ in 0..5 {
            let step = STEPS[(window >> (64 - STEP)) as usize];
            if step.first_bits == 0 {
                let (symbol, bits) = long(window);
                // The code is cut off: refill, or leave the rest to the loop below.
                if bits > have {
                    continue 'words;
                }
                out[used] = u8::try_from(symbol).map_err(|_| HpackError::Huffman)?;
                used += 1;
                window <<= bits;
                have -= bits;
                continue 'words;
            }
            out[used..used + 2].copy_from_slice(&step.symbols);
            used += step.count();
            window <<= step.bits;
            have -= u32::from(step.bits);
        }
    }
    // The last word may have set bits beyond `have`. Their bytes are loaded again, which sets identical bits.
    loop {
        while have <= 56 && at < coded.len() {
            window |= u64::from(coded[at]) << (56 - have);
            have += 8;
            at += 1;
        }
        // RFC 7541 §5.2: the padding is a prefix of the end-of-string code, so fill with ones.
        let filled = window | u64::MAX.checked_shr(have).unwrap_or(0);
        let step = STEPS[(filled >> (64 - STEP)) as usize];
        let (symbol, bits) =
            if step.first_bits == 0 { long(filled) } else { (u16::from(step.symbols[0]), u32::from(step.first_bits)) };
        if bits > have {
            // RFC 7541 §5.2: padding of more than seven bits, or with a zero bit, is an error.
            return if have <= 7 && filled == u64::MAX { Ok(used) } else { Err(HpackError::Huffman) };
        }
        // RFC 7541 §5.2: an explicit end-of-string symbol is an error.
        out[used] = u8::try_from(symbol).map_err(|_| HpackError::Huffman)?;
        used += 1;
        window <<= bits;
        have -= bits;
    }
}

/// Returns the first symbol of `window` and its length, for a code longer than a step.
fn long(window: u64) -> (u16, u32) {
    for len in STEP as usize + 1..LENGTH_MAX {
        let code = (window >> (64 - len)) as u32;
        let place = usize::from(BY_LENGTH.place[len]) + code.wrapping_sub(BY_LENGTH.first[len]) as usize;
        if code >= BY_LENGTH.first[len] && place < usize::from(BY_LENGTH.place[len + 1]) {
            return (BY_LENGTH.symbols[place], len as u32);
        }
    }
    // The code is complete: any remaining value is one of the four codes of thirty bits.
    let code = (window >> (64 - LENGTH_MAX)) as usize;
    let place = usize::from(BY_LENGTH.place[LENGTH_MAX]) + code - BY_LENGTH.first[LENGTH_MAX] as usize;
    (BY_LENGTH.symbols[place], LENGTH_MAX as u32)
}

/// Returns the coded length of `plain` in bytes. O(n).
pub(super) fn coded_len(plain: &[u8]) -> usize {
    let bits: usize = plain.iter().map(|&byte| usize::from(CODES[usize::from(byte)].len)).sum();
    bits.div_ceil(8)
}

/// Encodes `plain` and passes the result to `put` in pieces.
pub(super) fn encode(plain: &[u8], mut put: impl FnMut(&[u8])) {
    let (mut window, mut have) = (0u64, 0u32);
    let (mut piece, mut used) = ([0; 64], 0);
    for &byte in plain {
        let code = CODES[usize::from(byte)];
        window = window << code.len | u64::from(code.bits);
        have += u32::from(code.len);
        if have >= 32 {
            have -= 32;
            piece[used..used + 4].copy_from_slice(&((window >> have) as u32).to_be_bytes());
            used += 4;
            if used == piece.len() {
                put(&piece);
                used = 0;
            }
        }
    }
    put(&piece[..used]);
    // Pad the last byte with ones.
    let end = (window << 32 | u64::from(u32::MAX)) >> have;
    put(&(end as u32).to_be_bytes()[..have.div_ceil(8) as usize]);
}

const fn codes() -> [Code; 257] {
    let mut codes = [Code { bits: 0, len: 0 }; 257];
    let (mut next, mut len) = (0u32, 1);
    while len <= LENGTH_MAX {
        let mut symbol = 0;
        while symbol <= END_OF_STRING {
            if LENGTHS[symbol] as usize == len {
                codes[symbol] = Code { bits: next, len: len as u8 };
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        len += 1;
    }
    assert!(codes[END_OF_STRING].bits == 0x3fff_ffff, "the lengths fill the code");
    codes
}

const fn by_length() -> ByLength {
    let mut table = ByLength { first: [0; LENGTH_MAX + 2], place: [0; LENGTH_MAX + 2], symbols: [0; 257] };
    let (mut next, mut placed, mut len) = (0u32, 0, 1);
    while len <= LENGTH_MAX {
        table.first[len] = next;
        table.place[len] = placed as u16;
        let mut symbol = 0;
        while symbol <= END_OF_STRING {
            if LENGTHS[symbol] as usize == len {
                table.symbols[placed] = symbol as u16;
                placed += 1;
                next += 1;
            }
            symbol += 1;
        }
        next <<= 1;
        len += 1;
    }
    table.place[len] = placed as u16;
    table
}

const fn steps() -> [DecodeStep; 1 << STEP] {
    let codes = codes();
    let mut steps = [DecodeStep { symbols: [0; 2], bits: 0, first_bits: 0 }; 1 << STEP];
    let mut symbol = 0;
    while symbol < END_OF_STRING {
        let code = codes[symbol];
        if code.len as u32 <= STEP {
            let below = STEP - code.len as u32;
            let mut at = 0;
            while at < 1 << below {
                let step = &mut steps[(code.bits << below | at) as usize];
                step.symbols[0] = symbol as u8;
                step.bits = code.len;
                step.first_bits = code.len;
                at += 1;
            }
        }
        symbol += 1;
    }
    let mut at = 0;
    while at < steps.len() {
        let first = steps[at].first_bits;
        let second = steps[(at << first) & (steps.len() - 1)];
        // The second code counts only if it is complete within the step.
        if first != 0 && second.first_bits != 0 && (first + second.first_bits) as u32 <= STEP {
            steps[at].symbols[1] = second.symbols[0];
            steps[at].bits = first + second.first_bits;
        }
        at += 1;
    }
    steps
}

#[cfg(test)]
mod tests;

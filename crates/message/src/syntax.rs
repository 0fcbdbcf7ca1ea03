//! The bytes that each position of a head may hold (RFC 9110 §5.5, §5.6.2).

/// `true` for each byte that a token may hold (RFC 9110 §5.6.2: tchar).
pub static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        let o = byte as u8;
        table[byte] = o.is_ascii_alphanumeric()
            || matches!(
                o,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        byte += 1;
    }
    table
};

/// Returns whether `bytes` is a token: one or more tchar. O(n).
#[must_use]
pub fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|&byte| TOKEN[usize::from(byte)])
}

/// Returns whether a field value may hold this byte: a visible character, space, HTAB or obs-text (RFC 9110 §5.5).
#[must_use]
pub const fn is_value_byte(byte: u8) -> bool {
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}

/// Returns whether `bytes` is a field value: only [allowed bytes](is_value_byte), and no white space at either end
/// (RFC 9110 §5.5). May be empty. O(n); the loop has no branch per byte, so that the compiler vectorises it.
#[must_use]
pub const fn is_value(bytes: &[u8]) -> bool {
    let (mut good, mut at) = (true, 0);
    while at < bytes.len() {
        good &= is_value_byte(bytes[at]);
        at += 1;
    }
    good && !matches!(bytes, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// Returns `bytes` without the spaces and tabs at either end (OWS, RFC 9110 §5.6.3).
#[must_use]
pub fn trim_ows(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = bytes {
        bytes = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}

/// Parses a decimal number of digits only, the form of Content-Length (RFC 9110 §8.6). Returns `None` for any other
/// byte, for an empty input and for a value above `u64::MAX`. Leading zeros are allowed.
#[must_use]
pub fn parse_number(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    bytes.iter().try_fold(0u64, |sum, &byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// Writes the decimal digits of `number` to the end of `into` and returns them.
#[inline]
pub fn write_number(mut number: u64, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    // Two digits for each division, which is the expensive step.
    while number >= 100 {
        let pair = PAIRS[(number % 100) as usize];
        number /= 100;
        at -= 2;
        into[at..at + 2].copy_from_slice(&pair);
    }
    let [tens, ones] = PAIRS[number as usize];
    at -= 1;
    into[at] = ones;
    if number >= 10 {
        at -= 1;
        into[at] = tens;
    }
    &into[at..]
}

/// The digits of the numbers below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_digits_within_64_bits() {
        for (input, want) in [
            ("0", Some(0)),
            ("005", Some(5)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("", None),
            ("+5", None),
            ("-5", None),
            ("5 5", None),
            ("0x5", None),
        ] {
            assert_eq!(parse_number(input.as_bytes()), want, "{input:?}");
        }
        let mut into = [0; 20];
        for number in [0, 7, 10, 4095, u64::MAX] {
            assert_eq!(write_number(number, &mut into), number.to_string().as_bytes());
        }
    }

    #[test]
    fn tokens_hold_tchar_only() {
        assert!(is_token(b"!#$%&'*+-.^_`|~09aZ"));
        for bad in [&b""[..], b"a b", b"a:", b"a@", b"\"a\"", b"a\x7f", b"a\xff", b"a\0"] {
            assert!(!is_token(bad), "{bad:?}");
        }
    }
}

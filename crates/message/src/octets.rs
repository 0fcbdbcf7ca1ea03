//! Which octets may stand where (RFC 9110 §5.5, §5.6.2).

/// Set for each octet that a token may hold (RFC 9110 §5.6.2: tchar).
pub static TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut octet = 0;
    while octet < 256 {
        let o = octet as u8;
        table[octet] = o.is_ascii_alphanumeric()
            || matches!(
                o,
                b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
            );
        octet += 1;
    }
    table
};

/// Whether these octets are a token: one or more tchar. O(n).
#[must_use]
pub fn is_token(octets: &[u8]) -> bool {
    !octets.is_empty() && octets.iter().all(|&octet| TOKEN[usize::from(octet)])
}

/// Whether an octet may stand in a field value: visible, space, HTAB or obs-text (RFC 9110 §5.5).
#[must_use]
pub const fn is_value_octet(octet: u8) -> bool {
    (octet == b'\t') | ((octet >= b' ') & (octet != 0x7f))
}

/// Whether these octets are a field value: no other octets than [these](is_value_octet), and no white space at either end (RFC 9110
/// §5.5). May be empty. O(n), without a branch for each octet, so that the compiler takes many at once.
#[must_use]
pub const fn is_value(octets: &[u8]) -> bool {
    let (mut good, mut at) = (true, 0);
    while at < octets.len() {
        good &= is_value_octet(octets[at]);
        at += 1;
    }
    good && !matches!(octets, [b' ' | b'\t', ..] | [.., b' ' | b'\t'])
}

/// The octets without spaces and tabs at either end (OWS, RFC 9110 §5.6.3).
#[must_use]
pub fn trim_ows(mut octets: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = octets {
        octets = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = octets {
        octets = rest;
    }
    octets
}

/// A decimal number of digits only, as Content-Length is written (RFC 9110 §8.6); `None` for anything else and past
/// `u64::MAX`. Leading zeros are digits like any other.
#[must_use]
pub fn parse_number(octets: &[u8]) -> Option<u64> {
    if octets.is_empty() {
        return None;
    }
    octets.iter().try_fold(0u64, |sum, &octet| {
        let digit = octet.wrapping_sub(b'0');
        if digit > 9 { None } else { sum.checked_mul(10)?.checked_add(u64::from(digit)) }
    })
}

/// The decimal digits of a number, at the end of `into`.
#[inline]
pub fn write_number(mut number: u64, into: &mut [u8; 20]) -> &[u8] {
    let mut at = into.len();
    loop {
        at -= 1;
        into[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return &into[at..];
        }
    }
}

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

//! Numbers as text, without the cost of `std::fmt`.

use causeway_message::syntax::write_number;

/// Appends a decimal number.
#[inline]
pub(super) fn unsigned(out: &mut Vec<u8>, number: u64) {
    if number < 10 {
        out.push(b'0' + number as u8);
        return;
    }
    out.extend_from_slice(write_number(number, &mut [0; 20]));
}

/// Appends a decimal number with its sign if it is negative.
pub(super) fn signed(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    unsigned(out, number.unsigned_abs());
}

/// Appends `whole` and a fraction of `digits` digits without its trailing zeros: `fixed(out, 1, 50, 3)` is `1.05`.
pub(super) fn fixed(out: &mut Vec<u8>, whole: u64, fraction: u32, digits: u32) {
    unsigned(out, whole);
    if fraction == 0 {
        return;
    }
    let mut text = [0; 20];
    // A digit before the fraction's digits keeps their leading zeros.
    let len = write_number(10_u64.pow(digits) + u64::from(fraction), &mut text).len();
    let start = text.len() - len;
    text[start] = b'.';
    let end = text.iter().rposition(|digit| *digit != b'0').map_or(start, |last| last + 1);
    out.extend_from_slice(&text[start..end]);
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    // Go, strconv.AppendFloat with 'f' and -1: the shortest text, never with an exponent. A duration below 100 days is
    // written so.
    #[test]
    fn fractions_equal_the_shortest_text_of_a_float() {
        for span in
            [0, 1, 10, 999, 1_000, 120_000, 1_000_000_000, 1_000_000_001, 86_399_999_999_999, 8_640_000_000_000_000]
        {
            let span = Duration::from_nanos(span);
            let want = span.as_secs_f64().to_string();
            assert_eq!(text(|out| fixed(out, span.as_secs(), span.subsec_nanos(), 9)), want);
        }
        assert_eq!(text(|out| signed(out, i64::MIN)), i64::MIN.to_string());
        assert_eq!(text(|out| unsigned(out, u64::MAX)), u64::MAX.to_string());
    }
}

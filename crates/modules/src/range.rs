//! Range requests (RFC 9110 §14).

use causeway_message::List;
use causeway_message::syntax::{parse_number, trim_ows};

/// Above this number of ranges the whole content is sent, as RFC 9110 §14.2 permits: the part headers would outweigh
/// the savings.
const RANGES_MAX: usize = 64;

/// Offsets in bytes, the end exclusive.
pub(crate) type Range = std::ops::Range<u64>;

/// The parsed Range field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestedRanges {
    /// The whole content: there is no usable range.
    Whole,
    /// Parts of the content.
    Parts(Ranges),
    /// No range overlaps the content: 416.
    Unsatisfiable,
}

/// The ranges that a response contains.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ranges {
    One(Range),
    /// In the order of the request.
    Several(Vec<Range>),
}

/// Parses a Range field for content of `len` bytes. A single range does not allocate.
///
/// An unknown unit is ignored (RFC 9110 §14.2: MUST). A malformed set of ranges is rejected, as Caddy does (§14.2:
/// MAY). Ranges of empty content are ignored, so that a client that always sends `bytes=0-` gets a 200.
pub(crate) fn read(value: &[u8], len: u64) -> RequestedRanges {
    let Some(equals) = value.iter().position(|&byte| byte == b'=') else { return RequestedRanges::Whole };
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if !trim_ows(unit).eq_ignore_ascii_case(b"bytes") || len == 0 {
        return RequestedRanges::Whole;
    }
    let (mut first, mut more) = (None, Vec::new());
    let (mut count, mut sum) = (0, 0u64);
    for spec in List::new(set) {
        count += 1;
        let range = match spec_of(spec, len) {
            None => return RequestedRanges::Unsatisfiable,
            // A range outside of the content is skipped; it is an error only if no range remains.
            Some(None) => continue,
            Some(Some(range)) => range,
        };
        // Overlapping ranges that sum up to more than the content are an attack or are better served whole (§14.2,
        // §17.15).
        sum = sum.saturating_add(range.end - range.start);
        if count > RANGES_MAX || sum > len {
            return RequestedRanges::Whole;
        }
        // The vector is allocated only for the second range.
        match &first {
            None => first = Some(range),
            Some(first) => {
                if more.is_empty() {
                    more.push(first.clone());
                }
                more.push(range);
            }
        }
    }
    match first {
        // An empty set, as in Go.
        None if count == 0 => RequestedRanges::Whole,
        None => RequestedRanges::Unsatisfiable,
        Some(range) if more.is_empty() => RequestedRanges::Parts(Ranges::One(range)),
        Some(_) => RequestedRanges::Parts(Ranges::Several(more)),
    }
}

/// Parses one range. `None` if it is malformed, `Some(None)` if it lies outside of the content (RFC 9110 §14.1.1,
/// §14.1.2).
fn spec_of(spec: &[u8], len: u64) -> Option<Option<Range>> {
    let dash = spec.iter().position(|&byte| byte == b'-')?;
    let (first, last) = (trim_ows(&spec[..dash]), trim_ows(&spec[dash + 1..]));
    if first.is_empty() {
        // A suffix range: the last `suffix` bytes, or the whole content if it is shorter.
        let suffix = number(last)?.min(len);
        return Some((suffix > 0).then_some(len - suffix..len));
    }
    let first = number(first)?;
    let end = if last.is_empty() { len } else { number(last)?.saturating_add(1).min(len) };
    if !last.is_empty() && number(last)? < first {
        return None;
    }
    Some((first < len).then_some(first..end))
}

/// Parses digits. A number above 64 bits is beyond the end of any content, so it saturates.
fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| parse_number(digits).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_14_ranges_of_ten_bytes() {
        use RequestedRanges::{Unsatisfiable, Whole};
        let one = |range| RequestedRanges::Parts(Ranges::One(range));
        let several = |ranges| RequestedRanges::Parts(Ranges::Several(ranges));
        for (value, want) in [
            ("bytes=0-4", one(0..5)),
            ("bytes=5-", one(5..10)),
            ("bytes=-3", one(7..10)),
            ("bytes=-30", one(0..10)),
            ("bytes=9-100", one(9..10)),
            ("Bytes = 0-0", one(0..1)),
            ("bytes=0-99999999999999999999", one(0..10)),
            ("bytes=0-1,3-4", several(vec![0..2, 3..5])),
            ("bytes=5-6, 0-1 ,", several(vec![5..7, 0..2])),
            ("bytes=0-1,20-", one(0..2)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=20-30,40-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=4-2", Unsatisfiable),
            ("bytes=a-b", Unsatisfiable),
            ("bytes=5", Unsatisfiable),
            ("bytes=--1", Unsatisfiable),
            ("bytes=", Whole),
            ("bytes= ,", Whole),
            ("bytes=99999999999999999999-", Unsatisfiable),
            ("items=0-4", Whole),
            ("0-4", Whole),
            ("bytes=0-,0-,0-", Whole),
            ("bytes=0-6,5-9", Whole),
        ] {
            assert_eq!(read(value.as_bytes(), 10), want, "{value}");
        }
        assert_eq!(read(b"bytes=0-", 0), Whole);
        let many = |count: usize| format!("bytes={}", vec!["0-0"; count].join(","));
        assert!(
            matches!(read(many(RANGES_MAX).as_bytes(), 1000), RequestedRanges::Parts(Ranges::Several(ranges)) if ranges.len() == RANGES_MAX)
        );
        assert_eq!(read(many(RANGES_MAX + 1).as_bytes(), 1000), Whole);
    }
}

//! Range requests (RFC 9110 §14).

use causeway_message::List;
use causeway_message::octets::{parse_number, trim_ows};

/// More ranges than this are not worth their boundaries: the whole content is sent (RFC 9110 §14.2 lets a server).
const RANGES_MAX: usize = 64;

/// Octets of the content, from and up to, the end not included.
pub(super) type Range = std::ops::Range<u64>;

/// What a Range field asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    /// The whole content, as if there were no such field.
    Whole,
    /// One range.
    One(Range),
    /// Several, in the order asked for.
    Several(Vec<Range>),
    /// None that the content has: 416.
    Unsatisfiable,
}

/// Reads a Range field for content of `len` octets. One range allocates nothing.
///
/// An unknown unit is ignored (RFC 9110 §14.2: MUST); a set of ranges that cannot be read is refused, as Caddy does (§14.2:
/// MAY). Empty content has no range; a request that always sends `bytes=0-` still gets it.
pub(super) fn read(value: &[u8], len: u64) -> Asked {
    let Some(equals) = value.iter().position(|&octet| octet == b'=') else { return Asked::Whole };
    let (unit, set) = (&value[..equals], &value[equals + 1..]);
    if !trim_ows(unit).eq_ignore_ascii_case(b"bytes") || len == 0 {
        return Asked::Whole;
    }
    let (mut first, mut more) = (None, Vec::new());
    let (mut count, mut sum) = (0, 0u64);
    for spec in List::new(set) {
        count += 1;
        let range = match spec_of(spec, len) {
            None => return Asked::Unsatisfiable,
            Some(None) => continue,
            Some(Some(range)) => range,
        };
        // What overlaps itself to more than the content is an attack, or better served whole (§14.2, §17.15).
        sum = sum.saturating_add(range.end - range.start);
        if count > RANGES_MAX || sum > len {
            return Asked::Whole;
        }
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
        None => Asked::Unsatisfiable,
        Some(range) if more.is_empty() => Asked::One(range),
        Some(_) => Asked::Several(more),
    }
}

/// `None`: no range at all; `Some(None)`: one that the content does not have (RFC 9110 §14.1.1, §14.1.2).
fn spec_of(spec: &[u8], len: u64) -> Option<Option<Range>> {
    let dash = spec.iter().position(|&octet| octet == b'-')?;
    let (first, last) = (trim_ows(&spec[..dash]), trim_ows(&spec[dash + 1..]));
    if first.is_empty() {
        // The last so many octets; all of them when there are fewer.
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

/// A number past 64 bits is past every content's end.
fn number(digits: &[u8]) -> Option<u64> {
    let all_digits = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    all_digits.then(|| parse_number(digits).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc9110_14_ranges_of_ten_octets() {
        use Asked::{One, Several, Unsatisfiable, Whole};
        for (value, want) in [
            ("bytes=0-4", One(0..5)),
            ("bytes=5-", One(5..10)),
            ("bytes=-3", One(7..10)),
            ("bytes=-30", One(0..10)),
            ("bytes=9-100", One(9..10)),
            ("Bytes = 0-0", One(0..1)),
            ("bytes=0-99999999999999999999", One(0..10)),
            ("bytes=0-1,3-4", Several(vec![0..2, 3..5])),
            ("bytes=5-6, 0-1 ,", Several(vec![5..7, 0..2])),
            ("bytes=0-1,20-", One(0..2)),
            ("bytes=10-", Unsatisfiable),
            ("bytes=20-30,40-", Unsatisfiable),
            ("bytes=-0", Unsatisfiable),
            ("bytes=4-2", Unsatisfiable),
            ("bytes=a-b", Unsatisfiable),
            ("bytes=5", Unsatisfiable),
            ("bytes=--1", Unsatisfiable),
            ("bytes=", Unsatisfiable),
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
        assert!(matches!(read(many(RANGES_MAX).as_bytes(), 1000), Several(ranges) if ranges.len() == RANGES_MAX));
        assert_eq!(read(many(RANGES_MAX + 1).as_bytes(), 1000), Whole);
    }
}

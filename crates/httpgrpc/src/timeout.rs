//! `grpc-timeout`: the call's deadline as a duration (gRPC over HTTP/2, "Timeout").

use std::time::Duration;

use causeway_message::syntax::{parse_number, write_number};

const DIGITS_MAX: usize = 8;
const NUMBER_MAX: u128 = 99_999_999;

/// The units, smallest first.
const UNITS: [(u8, Duration); 6] = [
    (b'n', Duration::from_nanos(1)),
    (b'u', Duration::from_micros(1)),
    (b'm', Duration::from_millis(1)),
    (b'S', Duration::from_secs(1)),
    (b'M', Duration::from_secs(60)),
    (b'H', Duration::from_secs(3600)),
];

/// Parses the field's value: one to eight digits and a unit. `None` for any other value.
#[must_use]
pub fn parse(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > DIGITS_MAX {
        return None;
    }
    let number = u32::try_from(parse_number(digits)?).ok()?;
    let (_, duration) = UNITS.iter().find(|(name, _)| name == unit)?;
    // At most 99 999 999 hours, so it fits.
    Some(*duration * number)
}

/// Formats a timeout as the field's value: rounded up, in the smallest unit in which it has at most eight digits.
/// Longer timeouts become the largest value, about 11 000 years.
#[must_use]
pub fn print(timeout: Duration, into: &mut [u8; DIGITS_MAX + 1]) -> &[u8] {
    let nanos = timeout.as_nanos();
    let in_units = UNITS.map(|(unit, duration)| (unit, nanos.div_ceil(duration.as_nanos())));
    // Rounded up in each unit, so that the peer never gets a shorter timeout.
    let fits = in_units.into_iter().find(|(_, number)| *number <= NUMBER_MAX);
    let (unit, number) = fits.unwrap_or((b'H', NUMBER_MAX));
    let mut digits = [0; 20];
    let digits = write_number(number as u64, &mut digits);
    into[..digits.len()].copy_from_slice(digits);
    into[digits.len()] = unit;
    &into[..=digits.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_and_a_unit() {
        for (value, want) in [
            ("0n", Some(Duration::ZERO)),
            ("1n", Some(Duration::from_nanos(1))),
            ("100m", Some(Duration::from_millis(100))),
            ("1S", Some(Duration::from_secs(1))),
            ("007u", Some(Duration::from_micros(7))),
            ("2M", Some(Duration::from_secs(120))),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("100000000n", None),
            ("", None),
            ("S", None),
            ("1", None),
            ("1s", None),
            ("-1S", None),
            ("1.5S", None),
            ("1 S", None),
        ] {
            assert_eq!(parse(value.as_bytes()), want, "{value:?}");
        }
    }

    #[test]
    fn a_printed_timeout_is_never_shorter() {
        let mut into = [0; 9];
        for (timeout, want) in [
            (Duration::ZERO, "0n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(1), "1000000u"),
            (Duration::from_secs(3600), "3600000m"),
            (Duration::from_secs(200_000_000), "3333334M"),
            (Duration::from_secs(99_999_999 * 3600), "99999999H"),
            (Duration::MAX, "99999999H"),
        ] {
            let printed = print(timeout, &mut into);
            assert_eq!(std::str::from_utf8(printed), Ok(want), "{timeout:?}");
            assert!(timeout == Duration::MAX || parse(printed).is_some_and(|again| again >= timeout));
        }
    }
}

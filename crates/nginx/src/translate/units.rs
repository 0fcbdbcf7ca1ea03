//! nginx's sizes and durations.

/// A size of nginx, such as `10m`, in ours.
pub(super) fn size(text: &str) -> String {
    let text = text.to_ascii_lowercase();
    let unit = [('k', "KiB"), ('m', "MiB"), ('g', "GiB")].into_iter().find(|(unit, _)| text.ends_with(*unit));
    unit.map_or_else(|| text.clone(), |(unit, name)| format!("{}{name}", text.trim_end_matches(unit)))
}

/// The bytes of a size such as `1k`. `None` for other texts.
pub(super) fn bytes(size: &str) -> Option<u64> {
    let units = [('k', 1 << 10), ('m', 1 << 20), ('g', 1 << 30)];
    let size = size.to_ascii_lowercase();
    let (number, unit) =
        units.into_iter().find_map(|(unit, bytes)| Some((size.strip_suffix(unit)?, bytes))).unwrap_or((&size, 1));
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// nginx's units of time in milliseconds, in the order in which a duration may have them. A number before a space is
/// one of seconds.
const UNITS: [(&str, u64); 9] = [
    ("y", 365 * 86_400_000),
    ("M", 30 * 86_400_000),
    ("w", 7 * 86_400_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
    (" ", 1000),
];
/// The largest duration of the Caddyfile: 64-bit nanoseconds.
const SECONDS_MAX: u64 = i64::MAX as u64 / 1_000_000_000;

/// The seconds of a duration such as `30d`, `1h 30m`, `1h500ms` or `60`; a part of a second counts as a whole one, and
/// at most 292 years count. `None` for other texts.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (mut rest, mut units) = (text, &UNITS[..]);
    let (mut milliseconds, mut number, mut has_number) = (0_u64, 0_u64, false);
    while let Some(first) = rest.bytes().next() {
        if first.is_ascii_digit() {
            number = number.checked_mul(10)?.checked_add(u64::from(first - b'0'))?;
            has_number = true;
            rest = &rest[1..];
            continue;
        }
        let unit = rest.get(..if rest.starts_with("ms") { 2 } else { 1 })?;
        let at = units.iter().position(|(name, _)| *name == unit)?;
        milliseconds = milliseconds.checked_add(number.checked_mul(units[at].1)?)?;
        (units, number) = (&units[at + 1..], 0);
        rest = rest[unit.len()..].trim_start_matches(' ');
    }
    milliseconds = milliseconds.checked_add(number.checked_mul(1000)?)?;
    has_number.then(|| milliseconds.div_ceil(1000).min(SECONDS_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // nginx's documentation, "Configuration file measurement units", and its `ngx_parse_time`, which refuses a text
    // without a number.
    #[test]
    fn seconds_of_durations() {
        for (text, want) in [
            ("60", Some(60)),
            ("0", Some(0)),
            ("0ms", Some(0)),
            ("1500ms", Some(2)),
            ("1h30m", Some(5400)),
            ("1m30", Some(90)),
            ("1h 30m", Some(5400)),
            ("1m  30s", Some(90)),
            ("1m 30", Some(90)),
            ("30 ", Some(30)),
            ("1h500ms", Some(3601)),
            ("1d1h1m1s1ms", Some(90_062)),
            ("1500ms30", Some(32)),
            ("5sms", Some(5)),
            ("1hm", Some(3600)),
            ("1 h", None),
            (" 1h", None),
            ("1s1h", None),
            ("1ms1s", None),
            ("90m1h", None),
            ("1ss", None),
            ("1.5s", None),
            ("abc", None),
            ("1µ", None),
            ("9223372037", Some(9_223_372_036)),
            ("1M", Some(30 * 86400)),
            ("", None),
            ("ms", None),
            ("s", None),
            ("-1", None),
            ("1x", None),
            ("18446744073709551615y", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }
}

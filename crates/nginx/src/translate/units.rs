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

/// The seconds of a duration such as `30d`, `1h 30m` or `60`; a part of a second counts as a whole one. `None` for other texts.
pub(super) fn seconds(text: &str) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    if let Some(ms) = text.strip_suffix("ms") {
        return Some(ms.parse::<u64>().ok()?.div_ceil(1000));
    }
    let mut total = 0_u64;
    let mut number = String::new();
    for c in text.chars() {
        let unit = match c {
            '0'..='9' => {
                number.push(c);
                continue;
            }
            ' ' if number.is_empty() => continue,
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86400,
            'w' => 7 * 86400,
            'M' => 30 * 86400,
            'y' => 365 * 86400,
            _ => return None,
        };
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(unit)?)?;
        number.clear();
    }
    if !number.is_empty() {
        total = total.checked_add(number.parse().ok()?)?;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    // nginx's documentation, "Configuration file measurement units", and its `ngx_parse_time`, which refuses a text without a number.
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
            ("1 h", None),
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

//! Durations as Caddyfiles and modules' JSON write them.

/// Nanoseconds of a duration such as `1m30s`, `1.5h` or `2d`: Go's notation and `d` for 24 hours; at most 1024 octets.
/// `None` for anything else, and for what is longer than an `i64` holds.
#[must_use]
pub fn nanoseconds(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() || rest.len() > 1024 {
        return None;
    }
    let mut total = 0_i128;
    while !rest.is_empty() {
        let digits = rest.find(|ch: char| !ch.is_ascii_digit() && ch != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let unit = after.find(|ch: char| ch.is_ascii_digit() || ch == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') || whole.len() > 19 {
            return None;
        }
        // Eighteen decimals resolve an attosecond of an hour; more could not change the result.
        let fraction = &fraction[..fraction.len().min(18)];
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: i128 = if fraction.is_empty() { 0 } else { fraction.parse().ok()? };
        total += whole * scale + part * scale / 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, time.ParseDuration; Caddy, caddy.ParseDuration: `d` is 24 hours.
    #[test]
    fn texts() {
        for (text, want) in [
            ("0", Some(0)),
            ("1ns", Some(1)),
            ("1m30s", Some(90_000_000_000)),
            ("1.5h", Some(5_400_000_000_000)),
            (".5s", Some(500_000_000)),
            ("2d", Some(172_800_000_000_000)),
            ("-1s", Some(-1_000_000_000)),
            ("+250ms", Some(250_000_000)),
            ("0s", Some(0)),
            ("0s1s", Some(1_000_000_000)),
            ("1us1µs", Some(2_000)),
            ("", None),
            ("s", None),
            ("1", None),
            ("1x", None),
            (".s", None),
            ("1.2.3s", None),
            ("1s ", None),
            ("999999999999999999h", None),
        ] {
            assert_eq!(nanoseconds(text), want, "{text:?}");
        }
    }
}

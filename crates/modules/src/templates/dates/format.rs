//! A time by a layout.

use causeway_log_output::go_layout::{Digits, LayoutPart, MONTHS, OffsetForm, WEEKDAYS, Zeros, next_part};

use super::ZonedTime;

/// Formats a time by Go's layout: an example, whose parts are replaced.
pub(super) fn formatted(time: &ZonedTime, layout: &str) -> String {
    let mut out = String::new();
    let mut rest = layout;
    loop {
        let (text, part) = next_part(rest);
        out.push_str(text);
        let Some((part, after)) = part else { return out };
        out.push_str(&part_text(time, part));
        rest = after;
    }
}

fn number(value: i64, digits: Digits, width: usize) -> String {
    match digits {
        Digits::Plain => value.to_string(),
        Digits::Space => format!("{value:width$}"),
        Digits::Zero => format!("{value:0width$}"),
    }
}

fn part_text(time: &ZonedTime, part: LayoutPart) -> String {
    let at = &time.at;
    let month = MONTHS[usize::from(at.month().unsigned_abs()).clamp(1, 12) - 1];
    let weekday = WEEKDAYS[usize::from(at.weekday().to_sunday_zero_offset().unsigned_abs()) % 7];
    let hour12 = match at.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    match part {
        LayoutPart::MonthName => month.to_owned(),
        LayoutPart::MonthShort => month[..3].to_owned(),
        LayoutPart::Month(digits) => number(at.month().into(), digits, 2),
        LayoutPart::WeekdayName => weekday.to_owned(),
        LayoutPart::WeekdayShort => weekday[..3].to_owned(),
        LayoutPart::Day(digits) => number(at.day().into(), digits, 2),
        LayoutPart::YearDay(digits) => number(at.day_of_year().into(), digits, 3),
        LayoutPart::Hour => number(at.hour().into(), Digits::Zero, 2),
        LayoutPart::Hour12(digits) => number(hour12.into(), digits, 2),
        LayoutPart::Minute(digits) => number(at.minute().into(), digits, 2),
        LayoutPart::Second(digits) => number(at.second().into(), digits, 2),
        // The sign is no digit.
        LayoutPart::Year if at.year() < 0 => format!("-{:04}", at.year().unsigned_abs()),
        LayoutPart::Year => format!("{:04}", at.year()),
        LayoutPart::YearShort => format!("{:02}", at.year().unsigned_abs() % 100),
        LayoutPart::HalfUpper => if at.hour() < 12 { "AM" } else { "PM" }.to_owned(),
        LayoutPart::HalfLower => if at.hour() < 12 { "am" } else { "pm" }.to_owned(),
        LayoutPart::ZoneName => zone_name(time),
        LayoutPart::Offset(form) => offset(at.offset().seconds(), form),
        LayoutPart::Fraction(separator, digits, zeros) => fraction(at.subsec_nanosecond(), separator, digits, zeros),
    }
}

/// Returns the abbreviation of the zone, or its offset if it has none.
fn zone_name(time: &ZonedTime) -> String {
    let zone = time.at.time_zone();
    if let Some(name) = time.zone_name.as_deref().filter(|name| !name.is_empty()) {
        return name.to_owned();
    }
    if zone.to_fixed_offset().is_ok() && *zone != jiff::tz::TimeZone::UTC {
        let form = OffsetForm { has_z: false, has_colons: false, numbers: 2 };
        return offset(time.at.offset().seconds(), form);
    }
    zone.to_offset_info(time.at.timestamp()).abbreviation().to_owned()
}

fn offset(seconds: i32, form: OffsetForm) -> String {
    if form.has_z && seconds == 0 {
        return "Z".to_owned();
    }
    let (sign, total) = (if seconds < 0 { '-' } else { '+' }, seconds.unsigned_abs());
    // Go writes no sign of an offset below one minute.
    let sign = if total < 60 { '+' } else { sign };
    let separator = if form.has_colons { ":" } else { "" };
    let numbers = [total / 3600, total / 60 % 60, total % 60].map(|number| format!("{number:02}"));
    format!("{sign}{}", numbers[..form.numbers].join(separator))
}

fn fraction(nanoseconds: i32, separator: char, digits: usize, zeros: Zeros) -> String {
    // Beyond nine digits Go writes nine.
    let all = format!("{nanoseconds:09}");
    let kept = &all[..digits.min(9)];
    let kept = if zeros == Zeros::Cut { kept.trim_end_matches('0') } else { kept };
    if kept.is_empty() { String::new() } else { format!("{separator}{kept}") }
}

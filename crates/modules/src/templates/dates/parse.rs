//! A text by a layout, as a time.

use std::fmt;
use std::rc::Rc;

use causeway_go_template::FunctionError;
use causeway_log_output::go_layout::{Digits, LayoutPart, MONTHS, OffsetForm, WEEKDAYS, Zeros, next_part};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::{BEYOND, ZonedTime};

/// The numbers of a text; those that it does not have are `None`.
#[derive(Default)]
struct TimeNumbers {
    year: i64,
    month: Option<i64>,
    day: Option<i64>,
    year_day: Option<i64>,
    hour: i64,
    minute: i64,
    second: i64,
    nanosecond: i64,
    /// Whether the hour is in the second half of the day.
    is_afternoon: Option<bool>,
    is_utc: bool,
    offset: Option<i64>,
    zone_name: String,
}

/// Why a text is no time.
#[derive(Debug)]
pub(in crate::templates) enum TimeError {
    /// It does not have the form of the layout, or a number is out of range: Go's message.
    Form(String),
    /// It is after the last time that the server has.
    Beyond,
}

impl fmt::Display for TimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(message) => f.write_str(message),
            Self::Beyond => f.write_str(BEYOND),
        }
    }
}

impl From<TimeError> for FunctionError {
    fn from(error: TimeError) -> Self {
        error.to_string().into()
    }
}

/// Reads a text that has the form of a layout. A time without a zone is in the given one.
pub(super) fn parsed(layout: &str, text: &str, zone: &TimeZone) -> Result<ZonedTime, TimeError> {
    let fault = |reason: &str| TimeError::Form(format!("parsing time {text:?} as {layout:?}: {reason}"));
    let (mut numbers, mut rest_layout, mut rest) = (TimeNumbers::default(), layout, text);
    loop {
        let (literal, part) = next_part(rest_layout);
        rest = skipped(rest, literal).ok_or_else(|| fault(&format!("cannot parse {rest:?} as {literal:?}")))?;
        let Some((part, after)) = part else {
            if rest.is_empty() {
                break;
            }
            return Err(fault(&format!("extra text: {rest:?}")));
        };
        let part_layout = &rest_layout[literal.len()..rest_layout.len() - after.len()];
        let read = numbers.read(part, rest, after);
        rest = read.ok_or_else(|| fault(&format!("cannot parse {rest:?} as {part_layout:?}")))?;
        rest_layout = after;
    }
    numbers.time(zone).map_err(|error| match error {
        NumbersError::OutOfRange(part) => fault(&format!("{part} out of range")),
        NumbersError::Beyond => TimeError::Beyond,
    })
}

/// Why the numbers of a text are no time.
enum NumbersError {
    /// One of them is out of range.
    OutOfRange(&'static str),
    /// As [`TimeError::Beyond`].
    Beyond,
}

impl From<&'static str> for NumbersError {
    fn from(part: &'static str) -> Self {
        Self::OutOfRange(part)
    }
}

/// Removes a literal text. Its spaces stand for any number of spaces.
fn skipped<'t>(text: &'t str, literal: &str) -> Option<&'t str> {
    let (mut text, mut literal) = (text, literal);
    while let Some(first) = literal.chars().next() {
        if first == ' ' {
            if !text.is_empty() && !text.starts_with(' ') {
                return None;
            }
            literal = literal.trim_start_matches(' ');
            text = text.trim_start_matches(' ');
        } else {
            text = text.strip_prefix(first)?;
            literal = &literal[first.len_utf8()..];
        }
    }
    Some(text)
}

/// Reads a number of at most so many digits; if they are filled up with zeros, of exactly so many.
fn number(text: &str, digits: Digits, width: usize) -> Option<(i64, &str)> {
    let count = text.bytes().take(width).take_while(u8::is_ascii_digit).count();
    if count == 0 || digits == Digits::Zero && count < width {
        return None;
    }
    Some((text[..count].parse().ok()?, &text[count..]))
}

/// Finds one of the names at the start, in any case. Returns its position, and the text after it.
fn name<'t>(text: &'t str, names: &[&str], bytes: usize) -> Option<(i64, &'t str)> {
    names.iter().enumerate().find_map(|(index, name)| {
        let length = name.len().min(bytes);
        let start = text.get(..length)?;
        start.eq_ignore_ascii_case(&name[..length]).then(|| (index as i64, &text[length..]))
    })
}

/// Reads a separator and digits as nanoseconds.
fn nanoseconds(text: &str, bytes: usize) -> Option<(i64, &str)> {
    let digits = text.get(1..bytes)?;
    if !text.starts_with(['.', ',']) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &digits[..digits.len().min(9)];
    Some((format!("{kept:0<9}").parse().ok()?, &text[bytes..]))
}

/// Returns the bytes of a separator and the digits after it, or 0 if there are none.
fn fraction_bytes(text: &str) -> usize {
    match text.strip_prefix(['.', ',']) {
        Some(after) => match after.bytes().take_while(u8::is_ascii_digit).count() {
            0 => 0,
            digits => digits + 1,
        },
        None => 0,
    }
}

impl TimeNumbers {
    /// Reads a part, and returns the text after it.
    fn read<'t>(&mut self, part: LayoutPart, text: &'t str, layout: &str) -> Option<&'t str> {
        let spaced = |digits| if digits == Digits::Space { text.strip_prefix(' ').unwrap_or(text) } else { text };
        let (slot, (value, rest)) = match part {
            LayoutPart::Year => {
                let digits = text.get(..4).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
                (&mut self.year, (digits.parse().ok()?, &text[4..]))
            }
            LayoutPart::YearShort => {
                let (value, rest) = number(text, Digits::Zero, 2)?;
                (&mut self.year, (value + if value >= 69 { 1900 } else { 2000 }, rest))
            }
            LayoutPart::MonthName | LayoutPart::MonthShort => {
                let (index, rest) = name(text, &MONTHS, if part == LayoutPart::MonthShort { 3 } else { 9 })?;
                self.month = Some(index + 1);
                return Some(rest);
            }
            LayoutPart::Month(digits) => {
                let (value, rest) = number(text, digits, 2)?;
                self.month = Some(value);
                return Some(rest);
            }
            LayoutPart::WeekdayName => return name(text, &WEEKDAYS, 9).map(|(_, rest)| rest),
            LayoutPart::WeekdayShort => return name(text, &WEEKDAYS, 3).map(|(_, rest)| rest),
            LayoutPart::Day(digits) => {
                let (value, rest) = number(spaced(digits), digits, 2)?;
                self.day = Some(value);
                return Some(rest);
            }
            LayoutPart::YearDay(digits) => {
                let unfilled = if digits == Digits::Space { text.trim_start_matches(' ') } else { text };
                let unfilled = if text.len() - unfilled.len() > 2 { &text[2..] } else { unfilled };
                let (value, rest) = number(unfilled, digits, 3)?;
                self.year_day = Some(value);
                return Some(rest);
            }
            LayoutPart::Hour => (&mut self.hour, number(text, Digits::Plain, 2)?),
            LayoutPart::Hour12(digits) => {
                let (value, rest) = number(text, digits, 2)?;
                // Go refuses it even where 24 hours would fit.
                (&mut self.hour, (if value > 12 { i64::MAX } else { value }, rest))
            }
            LayoutPart::Minute(digits) => (&mut self.minute, number(text, digits, 2)?),
            LayoutPart::Second(digits) => {
                let (value, rest) = number(text, digits, 2)?;
                self.second = value;
                // A fraction is read also if the layout has none.
                let is_wanted = matches!(next_part(layout), ("", Some((LayoutPart::Fraction(..), _))));
                let bytes = if is_wanted { 0 } else { fraction_bytes(rest) };
                if bytes == 0 {
                    return Some(rest);
                }
                (&mut self.nanosecond, nanoseconds(rest, bytes)?)
            }
            LayoutPart::HalfUpper | LayoutPart::HalfLower => {
                let halves = if part == LayoutPart::HalfUpper { ["AM", "PM"] } else { ["am", "pm"] };
                let found = halves.iter().position(|half| text.starts_with(half))?;
                self.is_afternoon = Some(found == 1);
                return Some(&text[2..]);
            }
            LayoutPart::ZoneName => return self.zone_name(text),
            LayoutPart::Offset(form) => return self.offset(text, form),
            LayoutPart::Fraction(_, digits, Zeros::Kept) => (&mut self.nanosecond, nanoseconds(text, digits + 1)?),
            LayoutPart::Fraction(_, _, Zeros::Cut) => match fraction_bytes(text) {
                0 => return Some(text),
                bytes => (&mut self.nanosecond, nanoseconds(text, bytes)?),
            },
        };
        *slot = value;
        Some(rest)
    }

    fn offset<'t>(&mut self, text: &'t str, form: OffsetForm) -> Option<&'t str> {
        if form.has_z
            && let Some(rest) = text.strip_prefix('Z')
        {
            self.is_utc = true;
            return Some(rest);
        }
        let sign = match text.chars().next()? {
            '+' => 1,
            '-' => -1,
            _ => return None,
        };
        let (mut rest, mut seconds) = (&text[1..], 0);
        for (index, unit) in [3600, 60, 1].into_iter().take(form.numbers).enumerate() {
            if index > 0 && form.has_colons {
                rest = rest.strip_prefix(':')?;
            }
            let (value, after) = number(rest, Digits::Zero, 2)?;
            // A value out of range is a mistake that the time reports.
            let is_in_range = value <= if index == 0 { 24 } else { 60 };
            seconds += if is_in_range { value * unit } else { i64::from(i32::MAX) };
            rest = after;
        }
        self.offset = Some(sign * seconds);
        Some(rest)
    }

    fn zone_name<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        if let Some(rest) = text.strip_prefix("UTC") {
            self.is_utc = true;
            return Some(rest);
        }
        let length = zone_name_length(text)?;
        let (name, rest) = text.split_at(length);
        self.zone_name = name.to_owned();
        Some(rest)
    }

    /// Makes the time.
    fn time(mut self, zone: &TimeZone) -> Result<ZonedTime, NumbersError> {
        match self.is_afternoon {
            Some(true) if self.hour < 12 => self.hour += 12,
            Some(false) if self.hour == 12 => self.hour = 0,
            _ => {}
        }
        let year = i16::try_from(self.year).map_err(|_| "year")?;
        let small = |value: i64, name| i8::try_from(value).map_err(|_| name);
        if let Some(year_day) = self.year_day {
            self.year_day(year, year_day)?;
        }
        let month = small(self.month.unwrap_or(1), "month")?;
        if !(1..=12).contains(&month) {
            return Err("month".into());
        }
        let date = Date::new(year, month, small(self.day.unwrap_or(1), "day")?).map_err(|_| "day")?;
        let (hour, minute) = (small(self.hour, "hour")?, small(self.minute, "minute")?);
        if !(0..24).contains(&hour) {
            return Err("hour".into());
        }
        if !(0..60).contains(&minute) {
            return Err("minute".into());
        }
        let nanosecond = i32::try_from(self.nanosecond).map_err(|_| "fractional second")?;
        let time = Time::new(hour, minute, small(self.second, "second")?, nanosecond).map_err(|_| "second")?;
        self.zoned(DateTime::from_parts(date, time), zone)
    }

    /// Sets the month and the day by the day of the year, which they must not contradict.
    fn year_day(&mut self, year: i16, year_day: i64) -> Result<(), &'static str> {
        let first = Date::new(year, 1, 1).map_err(|_| "year")?;
        if !(1..=i64::from(first.days_in_year())).contains(&year_day) {
            return Err("day-of-year");
        }
        let date = first.checked_add(SignedDuration::from_hours(24 * (year_day - 1))).map_err(|_| "day-of-year")?;
        let (month, day) = (i64::from(date.month()), i64::from(date.day()));
        if self.month.is_some_and(|known| known != month) || self.day.is_some_and(|known| known != day) {
            return Err("day-of-year does not match the month or the day:");
        }
        (self.month, self.day) = (Some(month), Some(day));
        Ok(())
    }

    fn zoned(&self, time: DateTime, zone: &TimeZone) -> Result<ZonedTime, NumbersError> {
        const OFFSET: NumbersError = NumbersError::OutOfRange("time zone offset");
        let as_utc = TimeZone::UTC.to_timestamp(time).map_err(|_| NumbersError::Beyond)?;
        if self.is_utc {
            return Ok(ZonedTime::at(as_utc, &TimeZone::UTC));
        }
        let shifted = |seconds: i64| as_utc.checked_sub(SignedDuration::from_secs(seconds)).ok();
        let fixed = |at: Timestamp, seconds: i64| {
            let offset = i32::try_from(seconds).ok().and_then(|seconds| Offset::from_seconds(seconds).ok());
            let zone_name = Some(Rc::from(self.zone_name.as_str()));
            Ok(ZonedTime { at: at.to_zoned(TimeZone::fixed(offset.ok_or(OFFSET)?)), zone_name })
        };
        if let Some(seconds) = self.offset {
            let at = shifted(seconds).ok_or(NumbersError::Beyond)?;
            // The zone of the system, if it has this offset then.
            let known = zone.to_offset_info(at);
            let has_name = self.zone_name.is_empty() || known.abbreviation() == self.zone_name;
            if i64::from(known.offset().seconds()) == seconds && has_name {
                return Ok(ZonedTime::at(at, zone));
            }
            return fixed(at, seconds);
        }
        if self.zone_name.is_empty() {
            let at = zone.to_zoned(time).map_err(|_| NumbersError::Beyond)?;
            return Ok(ZonedTime { at, zone_name: None });
        }
        // The zone of the system, if it has a time of this name, now or in another season.
        const HALF_A_YEAR: i64 = 182 * 86_400;
        for distance in [0, HALF_A_YEAR, -HALF_A_YEAR] {
            let Some(info) = shifted(distance).map(|at| zone.to_offset_info(at)) else { continue };
            if info.abbreviation() == self.zone_name {
                let at = shifted(info.offset().seconds().into()).ok_or(NumbersError::Beyond)?;
                return Ok(ZonedTime::at(at, zone));
            }
        }
        // Another name is unknown: Go takes the time as UTC's, even that of `GMT+3`.
        let hours = self.zone_name.strip_prefix("GMT").and_then(|hours| hours.parse::<i64>().ok());
        fixed(as_utc, hours.unwrap_or(0) * 3600)
    }
}

/// Returns the bytes of an abbreviation of a zone.
fn zone_name_length(text: &str) -> Option<usize> {
    if text.len() < 3 {
        return None;
    }
    if text.starts_with("ChST") || text.starts_with("MeST") {
        return Some(4);
    }
    if let Some(offset) = text.strip_prefix("GMT") {
        return Some(3 + offset_length(offset));
    }
    if text.starts_with(['+', '-']) {
        return Some(offset_length(text)).filter(|length| *length > 0);
    }
    let is_long = |length: usize| text[..length].ends_with('T') || &text[..length] == "WITA";
    match text.bytes().take(6).take_while(u8::is_ascii_uppercase).count() {
        5 if text[..5].ends_with('T') => Some(5),
        4 if is_long(4) => Some(4),
        3 => Some(3),
        _ => None,
    }
}

/// Returns the bytes of a sign and at most 23 hours, or 0.
///
/// DEVIATES Go, package time, `parseSignedOffset`: hours have at most two digits. Go takes any number of zeros before
/// them, and a layout that has the zone many times would multiply a name of any length.
fn offset_length(text: &str) -> usize {
    let Some(after) = text.strip_prefix(['+', '-']) else { return 0 };
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 2 {
        return 0;
    }
    match after[..digits].parse::<u64>() {
        Ok(0..=23) => 1 + digits,
        _ => 0,
    }
}

//! Times in Go's notation for layouts, as configurations write them: `2006-01-02T15:04:05.000Z07:00`.

use std::io::Write as _;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

/// The zone in which times are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Zone {
    /// UTC.
    #[default]
    Utc,
    /// The system's local zone.
    Local,
}

/// A layout, compiled. [`write`](Self::write) does not allocate if the buffer has room.
#[derive(Debug, Clone)]
pub struct TimeLayout {
    pieces: Box<[Piece]>,
    zone: TimeZone,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<str>),
    Part(Part),
    /// A fraction of a second after a `.` or `,`, with this number of digits.
    Fraction {
        separator: char,
        digits: usize,
        /// Without zeros at the end.
        is_trimmed: bool,
    },
}

/// A part of a time, named after its form in a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Year,
    YearShort,
    MonthName,
    MonthNameShort,
    MonthPadded,
    Month,
    WeekdayName,
    WeekdayNameShort,
    Day,
    DaySpaced,
    DayPadded,
    YearDaySpaced,
    YearDayPadded,
    Hour,
    Hour12,
    Hour12Padded,
    Minute,
    MinutePadded,
    Second,
    SecondPadded,
    Half,
    HalfLower,
    ZoneName,
    /// `-0700` and its kin.
    Offset(OffsetForm),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OffsetForm {
    /// `Z07:00`: UTC is `Z`.
    has_z: bool,
    has_colons: bool,
    /// 1: hours; 2: and minutes; 3: and seconds.
    parts: u8,
}

/// The forms of each part, a longer form before its prefixes.
const FORMS: &[(&str, Part)] = &[
    ("January", Part::MonthName),
    ("Jan", Part::MonthNameShort),
    ("Monday", Part::WeekdayName),
    ("Mon", Part::WeekdayNameShort),
    ("MST", Part::ZoneName),
    ("002", Part::YearDayPadded),
    ("01", Part::MonthPadded),
    ("02", Part::DayPadded),
    ("03", Part::Hour12Padded),
    ("04", Part::MinutePadded),
    ("05", Part::SecondPadded),
    ("06", Part::YearShort),
    ("15", Part::Hour),
    ("1", Part::Month),
    ("2006", Part::Year),
    ("2", Part::Day),
    ("__2", Part::YearDaySpaced),
    ("_2", Part::DaySpaced),
    ("3", Part::Hour12),
    ("4", Part::Minute),
    ("5", Part::Second),
    ("PM", Part::Half),
    ("pm", Part::HalfLower),
    ("-070000", offset(false, false, 3)),
    ("-07:00:00", offset(false, true, 3)),
    ("-0700", offset(false, false, 2)),
    ("-07:00", offset(false, true, 2)),
    ("-07", offset(false, false, 1)),
    ("Z070000", offset(true, false, 3)),
    ("Z07:00:00", offset(true, true, 3)),
    ("Z0700", offset(true, false, 2)),
    ("Z07:00", offset(true, true, 2)),
    ("Z07", offset(true, false, 1)),
];

const fn offset(has_z: bool, has_colons: bool, parts: u8) -> Part {
    Part::Offset(OffsetForm { has_z, has_colons, parts })
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

impl TimeLayout {
    /// Compiles a layout. Every text is one: text without parts of a time is written unchanged.
    pub fn new(layout: &str, zone: Zone) -> Self {
        let (mut pieces, mut text, mut rest) = (Vec::new(), String::new(), layout);
        while let Some(first) = rest.chars().next() {
            let Some((piece, len)) = part_at(rest) else {
                text.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            if !text.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut text).into()));
            }
            pieces.push(piece);
            rest = &rest[len..];
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(text.into()));
        }
        Self { pieces: pieces.into(), zone: zone.time_zone() }
    }

    /// Appends a time. A time outside of the years -9999 to 9999 is written as 1970.
    pub fn write(&self, time: SystemTime, out: &mut Vec<u8>) {
        let instant = instant(time);
        let info = self.zone.to_offset_info(instant);
        let local = info.offset().to_datetime(instant);
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
                Piece::Part(Part::ZoneName) => out.extend_from_slice(info.abbreviation().as_bytes()),
                Piece::Part(Part::Offset(form)) => write_offset(*form, info.offset(), out),
                Piece::Part(part) => write_part(*part, local, out),
                Piece::Fraction { separator, digits, is_trimmed } => {
                    fraction(*separator, *digits, *is_trimmed, local.subsec_nanosecond().unsigned_abs(), out);
                }
            }
        }
    }

    /// Returns a time as text; otherwise as [`write`](Self::write).
    pub fn text(&self, time: SystemTime) -> String {
        let mut out = Vec::new();
        self.write(time, &mut out);
        // All pieces are UTF-8.
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Returns the part at the start of `rest`, and its length in bytes.
fn part_at(rest: &str) -> Option<(Piece, usize)> {
    if let Some(separator @ ('.' | ',')) = rest.chars().next() {
        let digit = rest[1..].bytes().next().filter(|byte| matches!(byte, b'0' | b'9'))?;
        let digits = rest[1..].bytes().take_while(|byte| *byte == digit).count();
        // Further digits make it a number of another kind, such as a second after a point.
        let is_fraction = !rest[1 + digits..].bytes().next().is_some_and(|byte| byte.is_ascii_digit());
        let fraction = Piece::Fraction { separator, digits, is_trimmed: digit == b'9' };
        return is_fraction.then_some((fraction, 1 + digits));
    }
    // Go reads the year in `_2006`, not a day.
    if rest.starts_with("_2006") {
        return None;
    }
    let (form, part) = FORMS.iter().find(|(form, part)| {
        let is_short_name = matches!(part, Part::MonthNameShort | Part::WeekdayNameShort);
        rest.strip_prefix(form)
            .is_some_and(|after| !is_short_name || !after.starts_with(|next: char| next.is_ascii_lowercase()))
    })?;
    Some((Piece::Part(*part), form.len()))
}

/// Returns the instant of a time, 1970 for one that is out of range.
fn instant(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Zone {
    fn time_zone(self) -> TimeZone {
        match self {
            Self::Utc => TimeZone::UTC,
            Self::Local => TimeZone::system(),
        }
    }

    /// Returns the date and time of day in this zone.
    pub(crate) fn civil(self, time: SystemTime) -> DateTime {
        self.time_zone().to_datetime(instant(time))
    }
}

fn write_part(part: Part, at: DateTime, out: &mut Vec<u8>) {
    let name = |names: &[&'static str], index: i8| names[usize::from(index.unsigned_abs())];
    let hour12 = match at.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    // Writing to a vector cannot fail.
    let _ = match part {
        Part::Year => write!(out, "{:04}", at.year()),
        Part::YearShort => write!(out, "{:02}", at.year().rem_euclid(100)),
        Part::MonthName => write!(out, "{}", name(&MONTHS, at.month() - 1)),
        Part::MonthNameShort => write!(out, "{}", &name(&MONTHS, at.month() - 1)[..3]),
        Part::MonthPadded => write!(out, "{:02}", at.month()),
        Part::Month => write!(out, "{}", at.month()),
        Part::WeekdayName => write!(out, "{}", name(&DAYS, at.weekday().to_sunday_zero_offset())),
        Part::WeekdayNameShort => write!(out, "{}", &name(&DAYS, at.weekday().to_sunday_zero_offset())[..3]),
        Part::Day => write!(out, "{}", at.day()),
        Part::DaySpaced => write!(out, "{:2}", at.day()),
        Part::DayPadded => write!(out, "{:02}", at.day()),
        Part::YearDaySpaced => write!(out, "{:3}", at.date().day_of_year()),
        Part::YearDayPadded => write!(out, "{:03}", at.date().day_of_year()),
        Part::Hour => write!(out, "{:02}", at.hour()),
        Part::Hour12 => write!(out, "{hour12}"),
        Part::Hour12Padded => write!(out, "{hour12:02}"),
        Part::Minute => write!(out, "{}", at.minute()),
        Part::MinutePadded => write!(out, "{:02}", at.minute()),
        Part::Second => write!(out, "{}", at.second()),
        Part::SecondPadded => write!(out, "{:02}", at.second()),
        Part::Half => write!(out, "{}", if at.hour() < 12 { "AM" } else { "PM" }),
        Part::HalfLower => write!(out, "{}", if at.hour() < 12 { "am" } else { "pm" }),
        Part::ZoneName | Part::Offset(_) => Ok(()),
    };
}

fn write_offset(form: OffsetForm, offset: Offset, out: &mut Vec<u8>) {
    let seconds = offset.seconds();
    if form.has_z && seconds == 0 {
        out.push(b'Z');
        return;
    }
    out.push(if seconds < 0 { b'-' } else { b'+' });
    let seconds = seconds.unsigned_abs();
    for (index, part) in [seconds / 3600, seconds / 60 % 60, seconds % 60].iter().enumerate().take(form.parts.into()) {
        if index > 0 && form.has_colons {
            out.push(b':');
        }
        let _ = write!(out, "{part:02}");
    }
}

fn fraction(separator: char, digits: usize, is_trimmed: bool, nanoseconds: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let _ = write!(out, "{separator}{nanoseconds:09}");
    // Beyond nanoseconds all digits are zero.
    out.resize(start + 1 + digits, b'0');
    if is_trimmed {
        while out.len() > start + 1 && out.last() == Some(&b'0') {
            out.pop();
        }
        if out.len() == start + 1 {
            out.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    // Go, package time: the examples of Layout and of Time.Format.
    #[test]
    fn gos_layouts() {
        let time = UNIX_EPOCH + Duration::new(1_795_294_465, 12_300_000);
        for (layout, want) in [
            ("2006-01-02T15:04:05Z07:00", "2026-11-21T20:54:25Z"),
            ("2006-01-02T15:04:05.999999999Z07:00", "2026-11-21T20:54:25.0123Z"),
            ("2006/01/02 15:04:05.000", "2026/11/21 20:54:25.012"),
            ("2006/01/02 15:04:05.000000000", "2026/11/21 20:54:25.012300000"),
            ("02/Jan/2006:15:04:05 -0700", "21/Nov/2026:20:54:25 +0000"),
            ("Mon Jan _2 15:04:05 2006", "Sat Nov 21 20:54:25 2026"),
            ("Monday, 02-Jan-06 15:04:05 MST", "Saturday, 21-Nov-26 20:54:25 UTC"),
            ("3:04PM 3:4:5pm 03", "8:54PM 8:54:25pm 08"),
            ("January 1 002 __2", "November 11 325 325"),
            ("Januaryx Janx Monx Mon. _2006", "Novemberx Janx Monx Sat. _2026"),
            ("15h,000 .00 5.001", "20h,012 .01 25.011"),
            ("no parts", "no parts"),
            ("", ""),
            ("-07:00 -07:00:00 -07 Z0700", "+00:00 +00:00:00 +00 Z"),
        ] {
            let mut out = Vec::new();
            TimeLayout::new(layout, Zone::Utc).write(time, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{layout}");
        }
    }

    #[test]
    fn dates() {
        for (seconds, want) in [
            (0, "1970/01/01 00:00:00.000"),
            (951_782_399, "2000/02/28 23:59:59.000"),
            (951_782_400, "2000/02/29 00:00:00.000"),
        ] {
            let mut out = Vec::new();
            let layout = TimeLayout::new("2006/01/02 15:04:05.000", Zone::Utc);
            layout.write(UNIX_EPOCH + Duration::from_secs(seconds), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want);
        }
    }
}

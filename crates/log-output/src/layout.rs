//! Times in Go's notation for layouts, as configurations write them: `2006-01-02T15:04:05.000Z07:00`.

use std::io::{self, Write as _};
use std::ops::RangeInclusive;
use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};

use crate::go_layout::{Digits, LayoutPart, MONTHS, OffsetForm, WEEKDAYS, Zeros, next_part};

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
    Part(LayoutPart),
}

impl TimeLayout {
    /// Compiles a layout. Every text is one: text without parts of a time is written unchanged.
    pub fn new(layout: &str, zone: Zone) -> Self {
        let (mut pieces, mut rest) = (Vec::new(), layout);
        loop {
            let (text, part) = next_part(rest);
            if !text.is_empty() {
                pieces.push(Piece::Text(text.into()));
            }
            let Some((part, after)) = part else { break };
            pieces.push(Piece::Part(part));
            rest = after;
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
                Piece::Part(LayoutPart::ZoneName) => out.extend_from_slice(info.abbreviation().as_bytes()),
                Piece::Part(LayoutPart::Offset(form)) => write_offset(*form, info.offset(), out),
                Piece::Part(LayoutPart::Fraction(separator, digits, zeros)) => {
                    fraction(*separator, *digits, *zeros, local.subsec_nanosecond().unsigned_abs(), out);
                }
                Piece::Part(part) => write_part(*part, local, out),
            }
        }
    }

    /// Returns whether [`write`](Self::write) may have written this text.
    pub(crate) fn is_written(&self, text: &str) -> bool {
        is_written(&self.pieces, text.as_bytes())
    }

    /// Returns a time as text; otherwise as [`write`](Self::write).
    pub fn text(&self, time: SystemTime) -> String {
        let mut out = Vec::new();
        self.write(time, &mut out);
        // All pieces are UTF-8.
        String::from_utf8_lossy(&out).into_owned()
    }
}

/// Returns whether `text` begins with these pieces and has no more. Numbers count by their digits: a 13th month is one
/// too.
fn is_written(pieces: &[Piece], text: &[u8]) -> bool {
    match pieces {
        [] => text.is_empty(),
        [Piece::Text(piece), rest @ ..] => {
            text.strip_prefix(piece.as_bytes()).is_some_and(|text| is_written(rest, text))
        }
        [Piece::Part(part), rest @ ..] => {
            let (lengths, may_have): (RangeInclusive<usize>, fn(&u8) -> bool) = match part {
                LayoutPart::MonthName | LayoutPart::WeekdayName => (3..=9, u8::is_ascii_alphabetic),
                LayoutPart::MonthShort | LayoutPart::WeekdayShort => (3..=3, u8::is_ascii_alphabetic),
                LayoutPart::Year => (4..=4, u8::is_ascii_digit),
                LayoutPart::YearShort | LayoutPart::Hour => (2..=2, u8::is_ascii_digit),
                LayoutPart::Month(_)
                | LayoutPart::Day(_)
                | LayoutPart::Hour12(_)
                | LayoutPart::Minute(_)
                | LayoutPart::Second(_) => (1..=2, |byte| matches!(byte, b'0'..=b'9' | b' ')),
                LayoutPart::YearDay(_) => (1..=3, |byte| matches!(byte, b'0'..=b'9' | b' ')),
                LayoutPart::HalfUpper | LayoutPart::HalfLower => (2..=2, u8::is_ascii_alphabetic),
                LayoutPart::ZoneName => (1..=6, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-')),
                LayoutPart::Offset(_) => (1..=9, |byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b':' | b'Z')),
                LayoutPart::Fraction(_, digits, zeros) => {
                    let least = if *zeros == Zeros::Cut { 0 } else { digits + 1 };
                    (least..=digits + 1, |byte| matches!(byte, b'0'..=b'9' | b'.' | b','))
                }
            };
            lengths.rev().any(|length| {
                text.split_at_checked(length)
                    .is_some_and(|(part, text)| part.iter().all(may_have) && is_written(rest, text))
            })
        }
    }
}

/// Returns the instant of a time, 1970 for one that is out of range.
pub(crate) fn instant(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

impl Zone {
    pub(crate) fn time_zone(self) -> TimeZone {
        match self {
            Self::Utc => TimeZone::UTC,
            Self::Local => TimeZone::system(),
        }
    }
}

fn write_part(part: LayoutPart, at: DateTime, out: &mut Vec<u8>) {
    let name = |names: &[&'static str], index: i8| names[usize::from(index.unsigned_abs())];
    let month = name(&MONTHS, at.month() - 1);
    let weekday = name(&WEEKDAYS, at.weekday().to_sunday_zero_offset());
    let hour12 = match at.hour() % 12 {
        0 => 12,
        hour => hour,
    };
    // Writing to a vector cannot fail.
    let _ = match part {
        LayoutPart::Year => write!(out, "{:04}", at.year()),
        LayoutPart::YearShort => write!(out, "{:02}", at.year().rem_euclid(100)),
        LayoutPart::MonthName => out.write_all(month.as_bytes()),
        LayoutPart::MonthShort => out.write_all(&month.as_bytes()[..3]),
        LayoutPart::WeekdayName => out.write_all(weekday.as_bytes()),
        LayoutPart::WeekdayShort => out.write_all(&weekday.as_bytes()[..3]),
        LayoutPart::Month(digits) => write_number(at.month().into(), digits, 2, out),
        LayoutPart::Day(digits) => write_number(at.day().into(), digits, 2, out),
        LayoutPart::YearDay(digits) => write_number(at.date().day_of_year(), digits, 3, out),
        LayoutPart::Hour => write!(out, "{:02}", at.hour()),
        LayoutPart::Hour12(digits) => write_number(hour12.into(), digits, 2, out),
        LayoutPart::Minute(digits) => write_number(at.minute().into(), digits, 2, out),
        LayoutPart::Second(digits) => write_number(at.second().into(), digits, 2, out),
        LayoutPart::HalfUpper => write!(out, "{}", if at.hour() < 12 { "AM" } else { "PM" }),
        LayoutPart::HalfLower => write!(out, "{}", if at.hour() < 12 { "am" } else { "pm" }),
        LayoutPart::ZoneName | LayoutPart::Offset(_) | LayoutPart::Fraction(..) => Ok(()),
    };
}

fn write_number(number: i16, digits: Digits, width: usize, out: &mut Vec<u8>) -> io::Result<()> {
    match digits {
        Digits::Plain => write!(out, "{number}"),
        Digits::Space => write!(out, "{number:width$}"),
        Digits::Zero => write!(out, "{number:0width$}"),
    }
}

fn write_offset(form: OffsetForm, offset: Offset, out: &mut Vec<u8>) {
    let seconds = offset.seconds();
    if form.has_z && seconds == 0 {
        out.push(b'Z');
        return;
    }
    out.push(if seconds < 0 { b'-' } else { b'+' });
    let seconds = seconds.unsigned_abs();
    for (index, part) in [seconds / 3600, seconds / 60 % 60, seconds % 60].iter().enumerate().take(form.numbers) {
        if index > 0 && form.has_colons {
            out.push(b':');
        }
        let _ = write!(out, "{part:02}");
    }
}

fn fraction(separator: char, digits: usize, zeros: Zeros, nanoseconds: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let _ = write!(out, "{separator}{nanoseconds:09}");
    // Beyond nanoseconds all digits are zero.
    out.resize(start + 1 + digits, b'0');
    if zeros == Zeros::Cut {
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
            let compiled = TimeLayout::new(layout, Zone::Utc);
            compiled.write(time, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), want, "{layout}");
            assert!(compiled.is_written(want), "{layout}");
            assert!(!compiled.is_written(&format!("{want}-size")), "{layout}");
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

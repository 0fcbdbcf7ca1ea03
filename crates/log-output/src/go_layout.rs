//! The parts of Go's layouts: a time is written as the second of January 2006, 15:04:05, in a zone 7 hours west of UTC
//! (Go, package time, Layout).

/// A part of a layout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LayoutPart {
    /// `January`.
    MonthName,
    /// `Jan`.
    MonthShort,
    /// `1`, `01`.
    Month(Digits),
    /// `Monday`.
    WeekdayName,
    /// `Mon`.
    WeekdayShort,
    /// `2`, `_2`, `02`.
    Day(Digits),
    /// `__2`, `002`.
    YearDay(Digits),
    /// `15`.
    Hour,
    /// `3`, `03`.
    Hour12(Digits),
    /// `4`, `04`.
    Minute(Digits),
    /// `5`, `05`.
    Second(Digits),
    /// `2006`.
    Year,
    /// `06`: the last two digits.
    YearShort,
    /// `PM`.
    HalfUpper,
    /// `pm`.
    HalfLower,
    /// `MST`.
    ZoneName,
    /// `-0700` and its kin.
    Offset(OffsetForm),
    /// A fraction of a second: its separator, its digits, and whether zeros at its end are written.
    Fraction(char, usize, Zeros),
}

/// How a number with fewer digits than its width is filled up.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Digits {
    /// Not at all.
    Plain,
    /// With spaces.
    Space,
    /// With zeros.
    Zero,
}

/// Whether a fraction has zeros at its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Zeros {
    /// `.000`: with them.
    Kept,
    /// `.999`: without them.
    Cut,
}

/// The form of an offset from UTC.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OffsetForm {
    /// Whether UTC is `Z`.
    pub has_z: bool,
    /// Whether colons are between the numbers.
    pub has_colons: bool,
    /// 1 for hours, 2 for hours and minutes, 3 for seconds too.
    pub numbers: usize,
}

/// The names of the months.
pub const MONTHS: [&str; 12] = [
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
/// The names of the weekdays, from Sunday.
pub const WEEKDAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// The parts with a fixed text; longer ones before their beginnings. Go's order decides between the others.
const TEXTS: &[(&str, LayoutPart)] = &[
    ("January", LayoutPart::MonthName),
    ("Monday", LayoutPart::WeekdayName),
    ("MST", LayoutPart::ZoneName),
    ("002", LayoutPart::YearDay(Digits::Zero)),
    ("01", LayoutPart::Month(Digits::Zero)),
    ("02", LayoutPart::Day(Digits::Zero)),
    ("03", LayoutPart::Hour12(Digits::Zero)),
    ("04", LayoutPart::Minute(Digits::Zero)),
    ("05", LayoutPart::Second(Digits::Zero)),
    ("06", LayoutPart::YearShort),
    ("15", LayoutPart::Hour),
    ("1", LayoutPart::Month(Digits::Plain)),
    ("2006", LayoutPart::Year),
    ("2", LayoutPart::Day(Digits::Plain)),
    ("__2", LayoutPart::YearDay(Digits::Space)),
    ("_2", LayoutPart::Day(Digits::Space)),
    ("3", LayoutPart::Hour12(Digits::Plain)),
    ("4", LayoutPart::Minute(Digits::Plain)),
    ("5", LayoutPart::Second(Digits::Plain)),
    ("PM", LayoutPart::HalfUpper),
    ("pm", LayoutPart::HalfLower),
];

/// The texts of offsets after their sign or `Z`, longer ones before their beginnings.
const OFFSETS: &[(&str, usize)] = &[("070000", 3), ("07:00:00", 3), ("0700", 2), ("07:00", 2), ("07", 1)];

/// Returns the text before the next part, the part, and the layout after it.
pub fn next_part(layout: &str) -> (&str, Option<(LayoutPart, &str)>) {
    for (at, _) in layout.char_indices() {
        let rest = &layout[at..];
        // The year has precedence over the day, and the underscore before it is literal.
        if let Some(after) = rest.strip_prefix("_2006") {
            return (&layout[..=at], Some((LayoutPart::Year, after)));
        }
        if let Some((part, after)) = part_at(rest) {
            return (&layout[..at], Some((part, after)));
        }
    }
    (layout, None)
}

fn part_at(rest: &str) -> Option<(LayoutPart, &str)> {
    if let Some((text, part)) = TEXTS.iter().find(|(text, _)| rest.starts_with(text)) {
        return Some((*part, &rest[text.len()..]));
    }
    // A short name within a word is not a part of the layout.
    for (text, part) in [("Jan", LayoutPart::MonthShort), ("Mon", LayoutPart::WeekdayShort)] {
        if let Some(after) = rest.strip_prefix(text)
            && !after.starts_with(|next: char| next.is_ascii_lowercase())
        {
            return Some((part, after));
        }
    }
    if let Some(after) = rest.strip_prefix(['-', 'Z']) {
        let (text, numbers) = OFFSETS.iter().find(|(text, _)| after.starts_with(text))?;
        let form = OffsetForm { has_z: rest.starts_with('Z'), has_colons: text.contains(':'), numbers: *numbers };
        return Some((LayoutPart::Offset(form), &after[text.len()..]));
    }
    let separator = rest.chars().next().filter(|first| matches!(first, '.' | ','))?;
    let digits = &rest[1..];
    let kind = digits.chars().next().filter(|digit| matches!(digit, '0' | '9'))?;
    let after = digits.trim_start_matches(kind);
    // A digit after them makes them another number.
    if after.starts_with(|next: char| next.is_ascii_digit()) {
        return None;
    }
    let zeros = if kind == '0' { Zeros::Kept } else { Zeros::Cut };
    Some((LayoutPart::Fraction(separator, digits.len() - after.len(), zeros), after))
}

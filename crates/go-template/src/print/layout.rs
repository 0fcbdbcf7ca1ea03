//! Width, sign, zeros and the prefix of a base.

use super::float;
use super::verb::{Flags, Printer};
use crate::error::FunctionError;
use crate::format::{is_printable, quoted, quoted_ascii, quoted_char};

fn characters(text: &[u8]) -> usize {
    bstr::ByteSlice::chars(text).count()
}

impl Printer<'_> {
    fn padding(&mut self, count: usize, allows_zero: bool) -> Result<(), FunctionError> {
        let byte = if self.flags.zero && !self.flags.minus && allows_zero { b"0" } else { b" " };
        Ok(self.out.repeat(byte, count)?)
    }

    pub(super) fn pad(&mut self, text: &[u8], allows_zero: bool) -> Result<(), FunctionError> {
        let width = match self.flags.width {
            Some(width) => width.saturating_sub(characters(text)),
            None => 0,
        };
        if self.flags.minus {
            self.out.push(text)?;
            return self.padding(width, allows_zero);
        }
        self.padding(width, allows_zero)?;
        Ok(self.out.push(text)?)
    }

    /// Cuts the text to the precision, which counts characters.
    fn cut<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(precision) = self.flags.precision else { return text };
        let end = bstr::ByteSlice::char_indices(text).nth(precision).map_or(text.len(), |(start, _, _)| start);
        &text[..end]
    }

    pub(super) fn string(&mut self, text: &[u8]) -> Result<(), FunctionError> {
        self.pad(self.cut(text), true)
    }

    pub(super) fn quoted(&mut self, text: &[u8]) -> Result<(), FunctionError> {
        let text = self.cut(text);
        let is_raw = self.flags.sharp
            && std::str::from_utf8(text)
                .is_ok_and(|text| text.chars().all(|c| c == '\t' || !c.is_control() && c != '`' && c != '\u{feff}'));
        let shown = if is_raw {
            format!("`{}`", String::from_utf8_lossy(text))
        } else if self.flags.plus {
            quoted_ascii(text)
        } else {
            quoted(text)
        };
        self.pad(shown.as_bytes(), true)
    }

    /// The bytes in hexadecimal.
    pub(super) fn bytes(&mut self, text: &[u8], upper: bool) -> Result<(), FunctionError> {
        let Flags { sharp, space, width, minus, precision, .. } = self.flags;
        let text = &text[..text.len().min(precision.unwrap_or(usize::MAX))];
        let prefix: &[u8] = match (sharp, upper) {
            (false, _) => b"",
            (true, false) => b"0x",
            (true, true) => b"0X",
        };
        let mut shown = self.out.sibling();
        for (index, byte) in text.iter().enumerate() {
            if index == 0 || space {
                shown.push(if index > 0 { b" " } else { b"" })?;
                shown.push(prefix)?;
            }
            let digits = if upper { format!("{byte:02X}") } else { format!("{byte:02x}") };
            shown.push(digits.as_bytes())?;
        }
        let shown = shown.into_bytes();
        let padding = width.unwrap_or(0).saturating_sub(shown.len());
        if !minus || text.is_empty() {
            self.padding(padding, true)?;
        }
        self.out.push(&shown)?;
        if minus && !text.is_empty() {
            self.padding(padding, true)?;
        }
        Ok(())
    }

    /// Writes an integer in a base, with Go's flags, width and precision.
    pub(super) fn integer(&mut self, value: i128, base: u32, verb: char) -> Result<(), FunctionError> {
        let Flags { sharp, zero, minus, plus, space, width, precision, .. } = self.flags;
        let (is_negative, number) = (value < 0, value.unsigned_abs());
        let mut digits_min = 0;
        if let Some(precision) = precision {
            if precision == 0 && number == 0 {
                return Ok(self.out.repeat(b" ", width.unwrap_or(0))?);
            }
            digits_min = precision;
        } else if zero
            && !minus
            && let Some(width) = width
        {
            digits_min = width - usize::from(width > 0 && (is_negative || plus || space));
        }
        let digits = match (base, verb) {
            (2, _) => format!("{number:b}"),
            (8, _) => format!("{number:o}"),
            (16, 'X') => format!("{number:X}"),
            (16, _) => format!("{number:x}"),
            _ => number.to_string(),
        };
        let mut shown = self.out.sibling();
        shown.push(match (is_negative, plus, space) {
            (true, ..) => b"-",
            (_, true, _) => b"+",
            (_, _, true) => b" ",
            _ => b"",
        })?;
        let zeros = digits_min.saturating_sub(digits.len());
        shown.push(match (base, verb) {
            (_, 'O') => b"0o",
            (2, _) if sharp => b"0b",
            (8, _) if sharp && zeros == 0 && !digits.starts_with('0') => b"0",
            (16, 'X') if sharp => b"0X",
            (16, _) if sharp => b"0x",
            _ => b"",
        })?;
        shown.repeat(b"0", zeros)?;
        shown.push(digits.as_bytes())?;
        self.pad(&shown.into_bytes(), false)
    }

    /// `U+0041`, with `%#U` also the character.
    pub(super) fn unicode(&mut self, value: i128) -> Result<(), FunctionError> {
        let number = value as u64;
        let least = self.flags.precision.unwrap_or(4).max(4);
        let digits = format!("{number:X}");
        let mut shown = self.out.sibling();
        shown.push(b"U+")?;
        shown.repeat(b"0", least.saturating_sub(digits.len()))?;
        shown.push(digits.as_bytes())?;
        if self.flags.sharp
            && let Some(c) = u32::try_from(number).ok().and_then(char::from_u32).filter(|c| is_printable(*c))
        {
            shown.push(format!(" '{c}'").as_bytes())?;
        }
        self.pad(&shown.into_bytes(), false)
    }

    pub(super) fn character(&mut self, value: i128) -> Result<(), FunctionError> {
        self.pad(to_char(value).encode_utf8(&mut [0; 4]).as_bytes(), true)
    }

    pub(super) fn quoted_character(&mut self, value: i128) -> Result<(), FunctionError> {
        let shown = quoted_char(to_char(value), self.flags.plus);
        self.pad(shown.as_bytes(), true)
    }

    pub(super) fn float(&mut self, value: f64, verb: char, default: Option<usize>) -> Result<(), FunctionError> {
        let Flags { sharp, zero, minus, plus, space, width, precision, .. } = self.flags;
        // The text is built before the budget is charged: the maximum precision bounds its length.
        let precision = precision.or(default);
        let text = float(value, verb, precision);
        let (sign, digits) = match text.as_bytes().first() {
            Some(b'-') => ("-", &text[1..]),
            Some(b'+') => ("+", &text[1..]),
            _ => ("+", &text[..]),
        };
        let sign = if space && sign == "+" && !plus { " " } else { sign };
        if !value.is_finite() {
            // As in Go, only NaN has no sign without a flag.
            let shown = if value.is_nan() && !plus && !space { digits.to_owned() } else { format!("{sign}{digits}") };
            return self.pad(shown.as_bytes(), false);
        }
        let digits = if sharp { with_point(digits, verb, precision) } else { digits.to_owned() };
        let shows_sign = plus || sign != "+";
        let length = digits.len() + usize::from(shows_sign);
        if shows_sign && zero && !minus && width.is_some_and(|width| width > length) {
            self.out.push(sign.as_bytes())?;
            self.out.repeat(b"0", width.unwrap_or(0).saturating_sub(length))?;
            return Ok(self.out.push(digits.as_bytes())?);
        }
        let shown = if shows_sign { format!("{sign}{digits}") } else { digits };
        self.pad(shown.as_bytes(), true)
    }
}

fn to_char(value: i128) -> char {
    u32::try_from(value).ok().and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// `%#g`: with a point, and with the zeros that the precision has.
fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let mut wanted = if verb.eq_ignore_ascii_case(&'g') { precision.unwrap_or(6) } else { 0 };
    let split = text.find(['e', 'E']).unwrap_or(text.len());
    let (digits, tail) = text.split_at(split);
    let significant = digits.bytes().filter(u8::is_ascii_digit).skip_while(|byte| *byte == b'0').count();
    wanted = wanted.saturating_sub(significant);
    let has_point = digits.contains('.');
    if !has_point && digits == "0" {
        wanted = wanted.saturating_sub(1);
    }
    format!("{digits}{}{}{tail}", if has_point { "" } else { "." }, "0".repeat(wanted))
}

//! Go's `fmt`: the printed form of values, and `printf`.

mod float;
mod layout;
mod verb;

use crate::budget::{Budget, Text};
use crate::error::FunctionError;
use crate::value::Value;

pub(crate) use float::float;
use verb::{Flags, Printer};

/// As in Go, a width or precision from an argument counts as absent beyond it, and one in the format may have one digit
/// more.
const WIDTH_OR_PRECISION_MAX: i64 = 1_000_000;

/// Returns the value as `%v` prints it.
pub(crate) fn plain(budget: &Budget, value: &Value) -> Result<Vec<u8>, FunctionError> {
    let mut printer = Printer::new(budget);
    printer.argument(value, 'v')?;
    Ok(printer.into_bytes())
}

/// Prints the arguments, with a space between two that are both not strings.
pub(crate) fn print(budget: &Budget, args: &[Value]) -> Result<Vec<u8>, FunctionError> {
    let mut printer = Printer::new(budget);
    let mut after_string = true;
    for arg in args {
        let is_string = matches!(arg, Value::String(_));
        if !is_string && !after_string {
            printer.out.push(b" ")?;
        }
        printer.argument(arg, 'v')?;
        after_string = is_string;
    }
    Ok(printer.into_bytes())
}

/// Prints the arguments with a space between any two, and a line break at the end.
pub(crate) fn println(budget: &Budget, args: &[Value]) -> Result<Vec<u8>, FunctionError> {
    let mut printer = Printer::new(budget);
    for (index, arg) in args.iter().enumerate() {
        if index > 0 {
            printer.out.push(b" ")?;
        }
        printer.argument(arg, 'v')?;
    }
    printer.out.push(b"\n")?;
    Ok(printer.into_bytes())
}

/// Prints the arguments by the verbs of a format.
pub(crate) fn printf(budget: &Budget, format: &[u8], args: &[Value]) -> Result<Vec<u8>, FunctionError> {
    let mut reader =
        FormatReader { format, at: 0, args, next_argument: 0, after_index: false, is_good: true, is_reordered: false };
    let mut printer = Printer::new(budget);
    while reader.at < format.len() {
        let rest = &format[reader.at..];
        let text = bstr::ByteSlice::find_byte(rest, b'%').unwrap_or(rest.len());
        printer.out.push(&rest[..text])?;
        reader.at += text;
        if reader.at < format.len() {
            reader.at += 1;
            reader.verb(&mut printer)?;
        }
    }
    reader.extra(&mut printer)?;
    Ok(printer.into_bytes())
}

struct FormatReader<'a> {
    format: &'a [u8],
    at: usize,
    args: &'a [Value],
    /// The position of the next argument.
    next_argument: usize,
    /// Whether an index such as `[3]` has just been read.
    after_index: bool,
    is_good: bool,
    is_reordered: bool,
}

impl FormatReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    fn verb(&mut self, printer: &mut Printer<'_>) -> Result<(), FunctionError> {
        self.is_good = true;
        self.after_index = false;
        let mut flags = Flags::default();
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => flags.sharp = true,
                b'0' => flags.zero = true,
                b'+' => flags.plus = true,
                b'-' => flags.minus = true,
                b' ' => flags.space = true,
                _ => break,
            }
            self.at += 1;
        }
        self.index();
        self.width(&mut flags, &mut printer.out)?;
        self.precision(&mut flags, &mut printer.out)?;
        if !self.after_index {
            self.index();
        }
        let (decoded, size) = bstr::decode_utf8(&self.format[self.at..]);
        if size == 0 {
            return Ok(printer.out.push(b"%!(NOVERB)")?);
        }
        self.at += size;
        let verb = decoded.unwrap_or(char::REPLACEMENT_CHARACTER);
        if verb == '%' {
            return Ok(printer.out.push(b"%")?);
        }
        if !self.is_good {
            return Ok(printer.out.push(format!("%!{verb}(BADINDEX)").as_bytes())?);
        }
        let Some(arg) = self.args.get(self.next_argument) else {
            return Ok(printer.out.push(format!("%!{verb}(MISSING)").as_bytes())?);
        };
        if matches!(verb, 'v' | 'w') {
            flags.sharp_v = std::mem::take(&mut flags.sharp);
            flags.plus_v = std::mem::take(&mut flags.plus);
        }
        self.next_argument += 1;
        printer.flags = flags;
        printer.argument(arg, verb)
    }

    fn width(&mut self, flags: &mut Flags, out: &mut Text<'_>) -> Result<(), FunctionError> {
        if self.peek() == Some(b'*') {
            self.at += 1;
            match self.integer_argument() {
                Some(width) => {
                    if width < 0 {
                        flags.minus = true;
                        flags.zero = false;
                    }
                    flags.width = usize::try_from(width.unsigned_abs()).ok();
                }
                None => out.push(b"%!(BADWIDTH)")?,
            }
            self.after_index = false;
        } else {
            flags.width = self.decimal();
            self.is_good &= !(self.after_index && flags.width.is_some());
        }
        Ok(())
    }

    fn precision(&mut self, flags: &mut Flags, out: &mut Text<'_>) -> Result<(), FunctionError> {
        if self.peek() != Some(b'.') || self.at + 1 >= self.format.len() {
            return Ok(());
        }
        self.at += 1;
        self.is_good &= !self.after_index;
        self.index();
        if self.peek() == Some(b'*') {
            self.at += 1;
            let precision = self.integer_argument().and_then(|number| usize::try_from(number).ok());
            if precision.is_none() {
                out.push(b"%!(BADPREC)")?;
            }
            flags.precision = precision;
            self.after_index = false;
        } else {
            flags.precision = Some(self.decimal().unwrap_or(0));
        }
        Ok(())
    }

    fn integer_argument(&mut self) -> Option<i64> {
        let arg = self.args.get(self.next_argument)?;
        self.next_argument += 1;
        arg.as_integer().filter(|number| (-WIDTH_OR_PRECISION_MAX..=WIDTH_OR_PRECISION_MAX).contains(number))
    }

    /// Reads a number. As in Go, one that is too large ends the format.
    fn decimal(&mut self) -> Option<usize> {
        let mut value = None;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            let number = value.unwrap_or(0_usize);
            if number > WIDTH_OR_PRECISION_MAX as usize {
                self.at = self.format.len();
                return None;
            }
            value = Some(number * 10 + usize::from(digit - b'0'));
            self.at += 1;
        }
        value
    }

    /// Reads the index of an argument, `[n]`, from 1.
    fn index(&mut self) {
        self.after_index = false;
        if self.peek() != Some(b'[') {
            return;
        }
        self.is_reordered = true;
        let rest = &self.format[self.at..];
        let Some(end) = bstr::ByteSlice::find_byte(rest, b']') else {
            self.is_good = false;
            self.at += 1;
            return;
        };
        let number = std::str::from_utf8(&rest[1..end]).ok().and_then(|digits| {
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<usize>().ok()).flatten()
        });
        self.at += end + 1;
        match number {
            Some(number) if (1..=self.args.len()).contains(&number) => {
                self.next_argument = number - 1;
                self.after_index = true;
            }
            _ => self.is_good = false,
        }
    }

    fn extra(&self, printer: &mut Printer<'_>) -> Result<(), FunctionError> {
        if self.is_reordered || self.next_argument >= self.args.len() {
            return Ok(());
        }
        printer.flags = Flags::default();
        printer.out.push(b"%!(EXTRA ")?;
        for (index, arg) in self.args[self.next_argument..].iter().enumerate() {
            if index > 0 {
                printer.out.push(b", ")?;
            }
            if !matches!(arg, Value::Absent | Value::Nil) {
                printer.out.push(format!("{}=", arg.type_name()).as_bytes())?;
            }
            printer.argument(arg, 'v')?;
        }
        Ok(printer.out.push(b")")?)
    }
}

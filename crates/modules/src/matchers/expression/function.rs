//! The functions of CEL and of its string extension, as far as route conditions need them. Positions in strings count
//! characters; as in Go, a byte that is not part of a valid character counts as one.

use std::borrow::Cow;
use std::io::Write as _;
use std::ops::Range;

use super::evaluate::{Evaluated, Halt, no_overload};
use super::time;
use super::value::{Memory, Value, ValueRange};
use crate::replace::char_len;

pub(super) const ARGUMENTS_MAX: usize = 4;

/// The type of a value, as far as it is known at load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Unknown: it depends on the request.
    Dyn,
    Null,
    Bool,
    Int,
    Double,
    Text,
    List,
    Time,
    Duration,
}

impl Type {
    pub(super) fn fits(self, other: Self) -> bool {
        self == other || self == Self::Dyn || other == Self::Dyn
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dyn => "any",
            Self::Null => "null",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Double => "double",
            Self::Text => "string",
            Self::List => "list",
            Self::Time => "timestamp",
            Self::Duration => "duration",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    StartsWith,
    EndsWith,
    Contains,
    Size,
    CharAt,
    IndexOf,
    LastIndexOf,
    LowerAscii,
    UpperAscii,
    Trim,
    Replace,
    Split,
    Substring,
    Join,
    Int,
    Double,
    String,
    Bool,
    Dyn,
    Timestamp,
    Duration,
}

/// Whether a function is called on a value. If so, that value is its first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallForm {
    OnValue,
    Plain,
}

/// One signature of a function.
struct Overload {
    name: &'static str,
    form: CallForm,
    parameters: &'static [Type],
    result: Type,
    function: Function,
}

/// A signature of the form `value.name(…)`.
const fn on(name: &'static str, parameters: &'static [Type], result: Type, function: Function) -> Overload {
    Overload { name, form: CallForm::OnValue, parameters, result, function }
}

/// A signature of the form `name(…)`.
const fn plain(name: &'static str, parameters: &'static [Type], result: Type, function: Function) -> Overload {
    Overload { name, form: CallForm::Plain, parameters, result, function }
}

const OVERLOADS: &[Overload] = {
    use Type::{Bool, Double, Duration, Dyn, Int, List, Text, Time};
    &[
        on("startsWith", &[Text, Text], Bool, Function::StartsWith),
        on("endsWith", &[Text, Text], Bool, Function::EndsWith),
        on("contains", &[Text, Text], Bool, Function::Contains),
        on("size", &[Text], Int, Function::Size),
        on("size", &[List], Int, Function::Size),
        plain("size", &[Text], Int, Function::Size),
        plain("size", &[List], Int, Function::Size),
        on("charAt", &[Text, Int], Text, Function::CharAt),
        on("indexOf", &[Text, Text], Int, Function::IndexOf),
        on("indexOf", &[Text, Text, Int], Int, Function::IndexOf),
        on("lastIndexOf", &[Text, Text], Int, Function::LastIndexOf),
        on("lastIndexOf", &[Text, Text, Int], Int, Function::LastIndexOf),
        on("lowerAscii", &[Text], Text, Function::LowerAscii),
        on("upperAscii", &[Text], Text, Function::UpperAscii),
        on("trim", &[Text], Text, Function::Trim),
        on("replace", &[Text, Text, Text], Text, Function::Replace),
        on("replace", &[Text, Text, Text, Int], Text, Function::Replace),
        on("split", &[Text, Text], List, Function::Split),
        on("split", &[Text, Text, Int], List, Function::Split),
        on("substring", &[Text, Int], Text, Function::Substring),
        on("substring", &[Text, Int, Int], Text, Function::Substring),
        on("join", &[List], Text, Function::Join),
        on("join", &[List, Text], Text, Function::Join),
        plain("int", &[Int], Int, Function::Int),
        plain("int", &[Double], Int, Function::Int),
        plain("int", &[Text], Int, Function::Int),
        plain("double", &[Double], Double, Function::Double),
        plain("double", &[Int], Double, Function::Double),
        plain("double", &[Text], Double, Function::Double),
        plain("string", &[Text], Text, Function::String),
        plain("string", &[Int], Text, Function::String),
        plain("string", &[Double], Text, Function::String),
        plain("string", &[Bool], Text, Function::String),
        plain("bool", &[Bool], Bool, Function::Bool),
        plain("bool", &[Text], Bool, Function::Bool),
        plain("int", &[Time], Int, Function::Int),
        plain("int", &[Duration], Int, Function::Int),
        plain("string", &[Time], Text, Function::String),
        plain("string", &[Duration], Text, Function::String),
        plain("timestamp", &[Time], Time, Function::Timestamp),
        plain("timestamp", &[Int], Time, Function::Timestamp),
        plain("timestamp", &[Text], Time, Function::Timestamp),
        plain("duration", &[Duration], Duration, Function::Duration),
        plain("duration", &[Text], Duration, Function::Duration),
        plain("dyn", &[Dyn], Dyn, Function::Dyn),
    ]
};

impl Function {
    /// Returns the values that a conversion has, for an error; `None` for any other function.
    pub(super) fn conversion(self) -> Option<&'static str> {
        Some(match self {
            Self::Int => "an integer such as '7'",
            Self::Double => "a number such as '1.5'",
            Self::Bool => "'true' or 'false'",
            Self::String => "a text",
            Self::Timestamp => "a time such as '2026-01-31T08:00:00Z'",
            Self::Duration => "a duration such as '1h30m'",
            _ => return None,
        })
    }
}

/// Returns whether a function of this name exists.
pub(super) fn is_known(name: &str, form: CallForm) -> bool {
    OVERLOADS.iter().any(|overload| overload.name == name && overload.form == form)
}

/// Finds the signature for these argument types. Returns the function and its result type.
pub(super) fn find(name: &str, form: CallForm, parameters: &[Type]) -> Option<(Function, Type)> {
    // The first signature that fits decides; `Dyn` fits every type.
    let found = OVERLOADS.iter().find(|overload| {
        let fits = overload.parameters.len() == parameters.len()
            && overload.parameters.iter().zip(parameters).all(|(one, other)| one.fits(*other));
        overload.name == name && overload.form == form && fits
    });
    found.map(|overload| (overload.function, overload.result))
}

fn text(value: Value) -> Result<ValueRange, Halt> {
    match value {
        Value::Text(span) => Ok(span),
        _ => no_overload(),
    }
}

fn int(value: Value) -> Result<i64, Halt> {
    match value {
        Value::Int(number) => Ok(number),
        _ => no_overload(),
    }
}

fn outside<T>() -> Result<T, Halt> {
    Err(Halt::Error("an expression's index is outside of its string"))
}

/// Iterates over the byte ranges of the characters.
fn characters(text: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let mut start = 0;
    text.utf8_chunks().flat_map(move |chunk| {
        let at = start;
        start += chunk.valid().len() + chunk.invalid().len();
        let valid = chunk.valid().char_indices().map(move |(from, ch)| at + from..at + from + ch.len_utf8());
        let invalid_at = at + chunk.valid().len();
        valid.chain((0..chunk.invalid().len()).map(move |from| invalid_at + from..invalid_at + from + 1))
    })
}

/// Returns the length in bytes of the first character; 0 for an empty text. O(1).
fn first_character(text: &[u8]) -> usize {
    if text.is_empty() { 0 } else { char_len(text) }
}

/// Converts a character index to a byte offset. The index after the last character is the end. O(length).
fn place(text: &[u8], number: i64) -> Result<usize, Halt> {
    let Ok(number) = usize::try_from(number) else { return outside() };
    let starts = characters(text).map(|range| range.start).chain([text.len()]);
    starts.into_iter().nth(number).map_or_else(outside, Ok)
}

/// Converts a byte offset to a character index. O(length).
fn number_at(text: &[u8], place: usize) -> i64 {
    characters(text).take_while(|range| range.start < place).count() as i64
}

/// A substring that shares the memory of `of`.
fn part(of: ValueRange, range: Range<usize>) -> Value {
    let start = of.range().start;
    Value::Text(ValueRange::new(start + range.start..start + range.end))
}

impl Function {
    pub(super) fn call(self, arguments: &[Value], memory: &mut Memory) -> Evaluated {
        let first = arguments[0];
        match self {
            Self::StartsWith | Self::EndsWith | Self::Contains => {
                let (whole, wanted) = (memory.text(text(first)?), memory.text(text(arguments[1])?));
                return Ok(Value::Bool(match self {
                    Self::StartsWith => whole.starts_with(wanted),
                    Self::EndsWith => whole.ends_with(wanted),
                    _ => memchr::memmem::find(whole, wanted).is_some(),
                }));
            }
            Self::Size => {
                return Ok(Value::Int(match first {
                    Value::List(list) => memory.list(list).len() as i64,
                    _ => characters(memory.text(text(first)?)).count() as i64,
                }));
            }
            Self::Join => return join(first, arguments.get(1), memory),
            Self::Dyn => return Ok(first),
            Self::Int | Self::Double | Self::String | Self::Bool | Self::Timestamp | Self::Duration => {
                return self.convert(first, memory);
            }
            _ => {}
        }
        // All remaining functions take a string first.
        let span = text(first)?;
        let whole = memory.text(span);
        Ok(match self {
            Self::CharAt => {
                let start = place(whole, int(arguments[1])?)?;
                let end = start + first_character(&whole[start..]);
                part(span, start..end)
            }
            Self::IndexOf => {
                let wanted = memory.text(text(arguments[1])?);
                let from = arguments.get(2).map_or(Ok(0), |from| place(whole, int(*from)?))?;
                let found = memchr::memmem::find(&whole[from..], wanted);
                Value::Int(found.map_or(-1, |at| number_at(whole, from + at)))
            }
            Self::LastIndexOf => {
                let wanted = memory.text(text(arguments[1])?);
                let last = arguments.get(2).map_or(Ok(whole.len()), |last| place(whole, int(*last)?))?;
                // The argument is the last index at which a match may begin.
                let end = whole.len().min(last + wanted.len());
                let found = memchr::memmem::rfind(&whole[..end], wanted);
                Value::Int(found.map_or(-1, |at| number_at(whole, at)))
            }
            Self::Trim => {
                // Go trims Unicode white space; for invalid UTF-8 only ASCII is trimmed.
                let trimmed = match std::str::from_utf8(whole) {
                    Ok(text) => text.trim().as_bytes(),
                    Err(_) => whole.trim_ascii(),
                };
                // `trim` returns a subslice, so pointer arithmetic recovers its offset.
                let start = trimmed.as_ptr() as usize - whole.as_ptr() as usize;
                part(span, start..start + trimmed.len())
            }
            Self::Substring => {
                let start = place(whole, int(arguments[1])?)?;
                let end = arguments.get(2).map_or(Ok(whole.len()), |end| place(whole, int(*end)?))?;
                // CEL: an inverted range is an error, not an empty string.
                if end < start {
                    return outside();
                }
                part(span, start..end)
            }
            Self::LowerAscii | Self::UpperAscii => {
                // Unlike a substring, the changed text needs its own bytes.
                let copy = memory.write(|out| out.extend_from_within(span.range()))?;
                let copied = &mut memory.text[copy.range()];
                match self {
                    Self::LowerAscii => copied.make_ascii_lowercase(),
                    _ => copied.make_ascii_uppercase(),
                }
                Value::Text(copy)
            }
            Self::Replace => return replace(span, arguments, memory),
            _ => return split(span, arguments, memory),
        })
    }

    pub(super) fn convert(self, value: Value, memory: &mut Memory) -> Evaluated {
        const BAD: Halt = Halt::Error("an expression cannot convert a value to the requested type");
        // Conversions from a string parse it.
        let read = |value| match value {
            Value::Text(span) => std::str::from_utf8(memory.text(span)).ok(),
            _ => None,
        };
        match (self, value) {
            (Self::Int, Value::Int(_)) | (Self::Double, Value::Double(_)) | (Self::Bool, Value::Bool(_)) => Ok(value),
            (Self::Timestamp, Value::Time(_)) | (Self::Duration, Value::Duration(_)) => Ok(value),
            (Self::Timestamp, Value::Int(seconds)) => time::from_seconds(seconds).map(Value::Time).ok_or(BAD),
            (Self::Timestamp, _) => read(value).and_then(time::timestamp).map(Value::Time).ok_or(BAD),
            (Self::Duration, _) => read(value).and_then(time::duration).map(Value::Duration).ok_or(BAD),
            (Self::Int, Value::Time(time)) => Ok(Value::Int(time.as_second())),
            (Self::Int, Value::Duration(span)) => i64::try_from(span.as_nanos()).map(Value::Int).or(Err(BAD)),
            (Self::String, Value::Time(time)) => memory.write(|out| time::write_timestamp(time, out)).map(Value::Text),
            (Self::String, Value::Duration(span)) => {
                memory.write(|out| time::write_duration(span, out)).map(Value::Text)
            }
            (Self::Int, Value::Double(number)) => {
                // 2^63, the smallest value above the range.
                const END: f64 = 9_223_372_036_854_775_808.0;
                let fits = number > -END && number < END;
                if fits { Ok(Value::Int(number as i64)) } else { Err(BAD) }
            }
            (Self::Int, _) => read(value).and_then(|text| text.parse().ok()).map(Value::Int).ok_or(BAD),
            (Self::Double, Value::Int(number)) => Ok(Value::Double(number as f64)),
            (Self::Double, _) => read(value).and_then(float).map(Value::Double).ok_or(BAD),
            (Self::Bool, _) => match read(value) {
                // The spellings of Go's strconv.ParseBool.
                Some("1" | "t" | "T" | "TRUE" | "true" | "True") => Ok(Value::Bool(true)),
                Some("0" | "f" | "F" | "FALSE" | "false" | "False") => Ok(Value::Bool(false)),
                _ => Err(BAD),
            },
            (_, Value::Text(span)) => Ok(Value::Text(span)),
            (_, Value::Int(number)) => memory.write(|out| format(out, format_args!("{number}"))).map(Value::Text),
            (_, Value::Bool(truth)) => memory.write(|out| format(out, format_args!("{truth}"))).map(Value::Text),
            (_, Value::Double(number)) => memory.write(|out| double(number, out)).map(Value::Text),
            _ => no_overload(),
        }
    }
}

fn format(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to a vector cannot fail.
    let _ = out.write_fmt(text);
}

// Go, strconv.ParseFloat: an underscore may stand between digits, and a number that is too large is an error. The
// numbers in hexadecimal digits that Go reads too are errors here.
fn float(text: &str) -> Option<f64> {
    let is_digit = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_digit);
    let mut underscores = text.match_indices('_');
    if !underscores.all(|(at, _)| at > 0 && is_digit(at - 1) && is_digit(at + 1)) {
        return None;
    }
    // Copied only if there is an underscore: most texts are parsed without an allocation.
    let digits = if text.contains('_') { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) };
    let number: f64 = digits.parse().ok()?;
    let is_in_range = number.is_finite() || !text.contains(|ch: char| ch.is_ascii_digit());
    is_in_range.then_some(number)
}

/// Formats as Go's 'g': with an exponent of at least two digits for values from 10^6 and below 10^-4.
fn double(number: f64, out: &mut Vec<u8>) {
    match number {
        f64::INFINITY => return out.extend_from_slice(b"+Inf"),
        f64::NEG_INFINITY => return out.extend_from_slice(b"-Inf"),
        _ if number.is_nan() => return out.extend_from_slice(b"NaN"),
        _ => {}
    }
    let start = out.len();
    format(out, format_args!("{number:e}"));
    let at = out.iter().rposition(|&byte| byte == b'e').expect("`{:e}` writes an exponent") + 1;
    // The text has the exact exponent: a logarithm is rounded, so that that of 999999.9999999999 is 6.
    let exponent = std::str::from_utf8(&out[at..]).ok().and_then(|exponent| exponent.parse::<i32>().ok());
    if exponent.is_some_and(|exponent| (-4..6).contains(&exponent)) {
        out.truncate(start);
        return format(out, format_args!("{number}"));
    }
    if out[at] != b'-' {
        out.insert(at, b'+');
    }
    if out.len() - at == 2 {
        out.insert(at + 1, b'0');
    }
}

fn join(list: Value, separator: Option<&Value>, memory: &mut Memory) -> Evaluated {
    let Value::List(list) = list else { return no_overload() };
    let separator = separator.map(|value| text(*value)).transpose()?;
    let start = memory.text.len();
    for (number, at) in list.range().enumerate() {
        if let (Some(separator), true) = (separator, number > 0) {
            memory.append(separator.range())?;
        }
        // CEL joins lists of strings only.
        let item = text(memory.values[at])?;
        memory.append(item.range())?;
    }
    Ok(Value::Text(ValueRange::new(start..memory.text.len())))
}

/// Returns the maximum number of replacements or parts. A negative number means no limit.
fn limit(argument: Option<&Value>) -> Result<usize, Halt> {
    let limit = argument.map_or(Ok(-1), |value| int(*value))?;
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

fn replace(span: ValueRange, arguments: &[Value], memory: &mut Memory) -> Evaluated {
    let (old, new) = (text(arguments[1])?, text(arguments[2])?);
    let mut left = limit(arguments.get(3))?;
    let start = memory.text.len();
    let (mut from, end) = (span.range().start, span.range().end);
    if old.range().is_empty() {
        // An empty pattern matches before each character and at the end.
        while left > 0 {
            memory.append(new.range())?;
            left -= 1;
            let length = first_character(&memory.text[from..end]);
            if length == 0 {
                break;
            }
            memory.append(from..from + length)?;
            from += length;
        }
        memory.append(from..end)?;
        return Ok(Value::Text(ValueRange::new(start..memory.text.len())));
    }
    while left > 0
        && let Some(at) = memchr::memmem::find(&memory.text[from..end], &memory.text[old.range()])
    {
        memory.append(from..from + at)?;
        memory.append(new.range())?;
        from += at + old.range().len();
        left -= 1;
    }
    memory.append(from..end)?;
    Ok(Value::Text(ValueRange::new(start..memory.text.len())))
}

fn split(span: ValueRange, arguments: &[Value], memory: &mut Memory) -> Evaluated {
    let separator = text(arguments[1])?;
    let limit = limit(arguments.get(2))?;
    let start = memory.values.len();
    let (mut from, end) = (span.range().start, span.range().end);
    let push = |range: Range<usize>, memory: &mut Memory| {
        memory.values.push(Value::Text(ValueRange::new(range)));
        memory.check()
    };
    if limit > 0 {
        let mut left = limit - 1;
        while left > 0 {
            let rest = &memory.text[from..end];
            let found = match separator.range().is_empty() {
                // An empty separator splits into characters.
                true => Some(first_character(rest)).filter(|length| *length < rest.len()),
                false => memchr::memmem::find(rest, &memory.text[separator.range()]),
            };
            let Some(at) = found else { break };
            push(from..from + at, memory)?;
            from += at + separator.range().len();
            left -= 1;
        }
        // An empty separator yields no empty last part.
        if from < end || !separator.range().is_empty() {
            push(from..end, memory)?;
        }
    }
    Ok(Value::List(ValueRange::new(start..memory.values.len())))
}

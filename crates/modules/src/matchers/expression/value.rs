//! The values of an expression. Values are small and are copied; strings and lists are spans in the evaluation's
//! memory.

use std::cmp::Ordering;
use std::ops::Range;

use jiff::{SignedDuration, Timestamp};

use super::evaluate::Halt;

/// Most bytes of strings, and most list items, in one evaluation. An expression can multiply the client's input
/// (`replace`, nested lists), so both are bounded.
const BYTES_MAX: usize = 64 * 1024 * 1024;
const VALUES_MAX: usize = 1024 * 1024;
/// Most list items that the macros of one evaluation may visit in total. An evaluation occupies its worker, so its time
/// must be bounded too.
const STEPS_MAX: u32 = 128 * 1024;

/// A range of bytes in [`Memory::text`], or of values in [`Memory::values`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueRange {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl ValueRange {
    pub(super) fn new(range: Range<usize>) -> Self {
        let index = |at| u32::try_from(at).expect("an evaluation's memory is far below 4 GiB");
        Self { start: index(range.start), end: index(range.end) }
    }

    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Int(i64),
    Double(f64),
    Text(ValueRange),
    List(ValueRange),
    Time(Timestamp),
    Duration(SignedDuration),
}

/// The strings and lists of one evaluation.
#[derive(Default)]
pub(super) struct Memory {
    /// Begins with the program's constants.
    pub(super) text: Vec<u8>,
    pub(super) values: Vec<Value>,
    /// The current items of the macros' variables, the outermost first.
    pub(super) locals: Vec<Value>,
    steps: u32,
}

impl Memory {
    pub(super) const EMPTY: Self = Self { text: Vec::new(), values: Vec::new(), locals: Vec::new(), steps: 0 };

    /// Prepares the memory for an evaluation.
    pub(super) fn begin(&mut self, constants: &[u8]) {
        self.text.clear();
        self.text.extend_from_slice(constants);
        self.values.clear();
        self.locals.clear();
        self.steps = 0;
    }

    /// Clears the memory after an evaluation, and frees the capacity above the limits.
    pub(super) fn give_back(&mut self, bytes_max: usize, values_max: usize) {
        self.text.clear();
        self.values.clear();
        self.text.shrink_to(bytes_max);
        self.values.shrink_to(values_max);
    }

    pub(super) fn text(&self, span: ValueRange) -> &[u8] {
        &self.text[span.range()]
    }

    pub(super) fn list(&self, span: ValueRange) -> &[Value] {
        &self.values[span.range()]
    }

    /// Appends a string and returns its span. Fails above the limit.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<ValueRange, Halt> {
        let start = self.text.len();
        write(&mut self.text);
        self.check()?;
        Ok(ValueRange::new(start..self.text.len()))
    }

    /// Fails above the limits. Must be called after each growth.
    pub(super) fn check(&self) -> Result<(), Halt> {
        match self.text.len() > BYTES_MAX || self.values.len() > VALUES_MAX {
            true => Err(Halt::Error("an expression's strings or lists exceed their size limit")),
            false => Ok(()),
        }
    }

    /// Counts a visited list item. Fails above the limit.
    pub(super) fn step(&mut self) -> Result<(), Halt> {
        self.steps += 1;
        match self.steps > STEPS_MAX {
            true => Err(Halt::Error("an expression visits too many list items")),
            false => Ok(()),
        }
    }

    /// Appends a copy of a range of the text.
    pub(super) fn append(&mut self, range: Range<usize>) -> Result<(), Halt> {
        self.text.extend_from_within(range);
        self.check()
    }

    /// Appends a list of nulls and returns its span. Fails above the limit.
    pub(super) fn reserve(&mut self, length: usize) -> Result<ValueRange, Halt> {
        let start = self.values.len();
        self.values.resize(start + length, Value::Null);
        self.check()?;
        Ok(ValueRange::new(start..start + length))
    }

    /// Compares two values as CEL's `==`. Values of different types are unequal, except that numbers are compared by
    /// value.
    pub(super) fn equal(&self, one: Value, other: Value) -> bool {
        match (one, other) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(one), Value::Bool(other)) => one == other,
            (Value::Text(one), Value::Text(other)) => self.text(one) == self.text(other),
            (Value::List(one), Value::List(other)) => {
                let (one, other) = (self.list(one), self.list(other));
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| self.equal(*one, *other))
            }
            (Value::Time(one), Value::Time(other)) => one == other,
            (Value::Duration(one), Value::Duration(other)) => one == other,
            _ => compare_numbers(one, other) == Some(Ordering::Equal),
        }
    }

    /// Orders two values. Returns `None` for types without an order, and for NaN.
    pub(super) fn compare(&self, one: Value, other: Value) -> Option<Ordering> {
        match (one, other) {
            (Value::Bool(one), Value::Bool(other)) => Some(one.cmp(&other)),
            (Value::Text(one), Value::Text(other)) => Some(self.text(one).cmp(self.text(other))),
            (Value::Time(one), Value::Time(other)) => Some(one.cmp(&other)),
            (Value::Duration(one), Value::Duration(other)) => Some(one.cmp(&other)),
            _ => compare_numbers(one, other),
        }
    }

    /// Returns the value of a placeholder that is a number or a boolean. An integer if possible.
    pub(super) fn scalar(&self, span: ValueRange) -> Value {
        let text = std::str::from_utf8(self.text(span)).unwrap_or_default();
        let value = match text {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => text.parse().map(Value::Int).or_else(|_| text.parse().map(Value::Double)).ok(),
        };
        value.unwrap_or(Value::Text(span))
    }
}

impl Value {
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Int(_) | Self::Double(_))
    }
}

fn compare_numbers(one: Value, other: Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Int(one), Value::Int(other)) => Some(one.cmp(&other)),
        // CEL compares numbers of different types by value.
        (Value::Int(one), Value::Double(other)) => (one as f64).partial_cmp(&other),
        (Value::Double(one), Value::Int(other)) => one.partial_cmp(&(other as f64)),
        (Value::Double(one), Value::Double(other)) => one.partial_cmp(&other),
        _ => None,
    }
}

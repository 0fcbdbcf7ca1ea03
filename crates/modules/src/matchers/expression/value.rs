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
/// Most work of one evaluation, in bytes of strings that are read or written. An evaluation occupies its worker, so its
/// time must be bounded too: a list that the client sends, and a string that is as long, would be read once for each
/// item.
const WORK_MAX: usize = 128 * 1024 * 1024;
/// The work to visit a list item in a macro, with a small body.
const VISIT_WORK: usize = 1024;
/// The work to search one byte of a message's head, in which names may be decoded and compared.
const SEARCH_WORK: usize = 8;
/// The work to compare, copy or make a list item, besides its string.
const ITEM_WORK: usize = 16;

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
    work: usize,
}

impl Memory {
    pub(super) const EMPTY: Self = Self { text: Vec::new(), values: Vec::new(), locals: Vec::new(), work: 0 };

    /// Prepares the memory for an evaluation.
    pub(super) fn begin(&mut self, constants: &[u8]) {
        self.text.clear();
        self.text.extend_from_slice(constants);
        self.values.clear();
        self.locals.clear();
        self.work = 0;
    }

    /// Clears the memory after an evaluation, and frees the capacity above the limits.
    pub(super) fn release_memory(&mut self, bytes_max: usize, values_max: usize) {
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

    /// Counts a list item that a macro visits. Fails above the limit.
    pub(super) fn charge_visit(&mut self) -> Result<(), Halt> {
        self.charge(VISIT_WORK)
    }

    /// Counts a placeholder or a matcher that searches so many bytes. Fails above the limit.
    pub(super) fn charge_search(&mut self, bytes: usize) -> Result<(), Halt> {
        self.charge(VISIT_WORK + bytes * SEARCH_WORK)
    }

    /// Counts the work to read the values to their ends. Fails above the limit.
    pub(super) fn charge_reading(&mut self, values: &[Value]) -> Result<(), Halt> {
        let work = values.iter().map(|value| match value {
            Value::Text(span) => span.range().len(),
            Value::List(span) => span.range().len() * ITEM_WORK,
            _ => 0,
        });
        self.charge(work.sum())
    }

    /// Counts the work to write the strings and list items after these lengths. Fails above the limit.
    pub(super) fn charge_writing(&mut self, bytes: usize, values: usize) -> Result<(), Halt> {
        self.charge((self.text.len() - bytes) + (self.values.len() - values) * ITEM_WORK)
    }

    fn charge(&mut self, work: usize) -> Result<(), Halt> {
        self.work += work;
        match self.work > WORK_MAX {
            true => Err(Halt::Error("an expression does too much work")),
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
    /// value. Fails above the limit of work.
    pub(super) fn equal(&mut self, lhs: Value, rhs: Value) -> Result<bool, Halt> {
        self.charge(ITEM_WORK)?;
        Ok(match (lhs, rhs) {
            (Value::Null, Value::Null) => true,
            (Value::Bool(lhs), Value::Bool(rhs)) => lhs == rhs,
            (Value::Text(lhs), Value::Text(rhs)) => {
                if lhs.range().len() != rhs.range().len() {
                    return Ok(false);
                }
                self.charge(lhs.range().len())?;
                self.text(lhs) == self.text(rhs)
            }
            (Value::List(lhs), Value::List(rhs)) => {
                if lhs.range().len() != rhs.range().len() {
                    return Ok(false);
                }
                for (lhs, rhs) in lhs.range().zip(rhs.range()) {
                    if !self.equal(self.values[lhs], self.values[rhs])? {
                        return Ok(false);
                    }
                }
                true
            }
            (Value::Time(lhs), Value::Time(rhs)) => lhs == rhs,
            (Value::Duration(lhs), Value::Duration(rhs)) => lhs == rhs,
            _ => compare_numbers(lhs, rhs) == Some(Ordering::Equal),
        })
    }

    /// Returns CEL's `in`: whether the list has an equal item. Fails above the limit of work.
    pub(super) fn contains(&mut self, list: ValueRange, wanted: Value) -> Result<bool, Halt> {
        for at in list.range() {
            if self.equal(wanted, self.values[at])? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Orders two values. Returns `None` for types without an order, and for NaN.
    pub(super) fn compare(&self, lhs: Value, rhs: Value) -> Option<Ordering> {
        match (lhs, rhs) {
            (Value::Bool(lhs), Value::Bool(rhs)) => Some(lhs.cmp(&rhs)),
            (Value::Text(lhs), Value::Text(rhs)) => Some(self.text(lhs).cmp(self.text(rhs))),
            (Value::Time(lhs), Value::Time(rhs)) => Some(lhs.cmp(&rhs)),
            (Value::Duration(lhs), Value::Duration(rhs)) => Some(lhs.cmp(&rhs)),
            _ => compare_numbers(lhs, rhs),
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

fn compare_numbers(lhs: Value, rhs: Value) -> Option<Ordering> {
    match (lhs, rhs) {
        (Value::Int(lhs), Value::Int(rhs)) => Some(lhs.cmp(&rhs)),
        // CEL compares numbers of different types by value.
        (Value::Int(lhs), Value::Double(rhs)) => (lhs as f64).partial_cmp(&rhs),
        (Value::Double(lhs), Value::Int(rhs)) => lhs.partial_cmp(&(rhs as f64)),
        (Value::Double(lhs), Value::Double(rhs)) => lhs.partial_cmp(&rhs),
        _ => None,
    }
}

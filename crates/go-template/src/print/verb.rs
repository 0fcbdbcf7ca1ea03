//! A value by a verb.

use crate::budget::{Budget, LimitError, Text, VALUE_DEPTH_MAX};
use crate::error::FunctionError;
use crate::value::{IntegerType, Value};

/// The flags of a verb, its width and its precision.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "Go has as many flags")]
pub(super) struct Flags {
    pub(super) sharp: bool,
    pub(super) zero: bool,
    pub(super) plus: bool,
    pub(super) minus: bool,
    pub(super) space: bool,
    /// `%#v`, the form of Go's source.
    pub(super) sharp_v: bool,
    /// `%+v`.
    pub(super) plus_v: bool,
    pub(super) width: Option<usize>,
    pub(super) precision: Option<usize>,
}

pub(super) struct Printer<'a> {
    pub(super) out: Text<'a>,
    pub(super) flags: Flags,
    /// Whether a verb does not fit its value. Then text forms of objects are not used.
    is_erroring: bool,
}

impl<'a> Printer<'a> {
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self { out: Text::new(budget), flags: Flags::default(), is_erroring: false }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out.into_bytes()
    }

    /// Prints an argument.
    pub(super) fn argument(&mut self, value: &Value, verb: char) -> Result<(), FunctionError> {
        match value {
            Value::Absent | Value::Nil if matches!(verb, 'T' | 'v') => self.pad(b"<nil>", true),
            Value::Absent | Value::Nil => self.bad_verb(value, verb),
            _ if verb == 'T' => self.string(value.type_name().as_bytes()),
            _ => self.value(value, verb, 0),
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) -> Result<(), FunctionError> {
        self.is_erroring = true;
        self.out.push(format!("%!{verb}(").as_bytes())?;
        if matches!(value, Value::Absent | Value::Nil) {
            self.out.push(b"<nil>")?;
        } else {
            self.out.push(format!("{}=", value.type_name()).as_bytes())?;
            self.value(value, 'v', 0)?;
        }
        self.out.push(b")")?;
        self.is_erroring = false;
        Ok(())
    }

    fn value(&mut self, value: &Value, verb: char, depth: u32) -> Result<(), FunctionError> {
        if depth > VALUE_DEPTH_MAX {
            return Err(LimitError::ValueDepth.into());
        }
        self.out.budget().charge_steps(1)?;
        match value {
            Value::Absent | Value::Nil => {
                Ok(self.out.push(if self.flags.sharp_v { b"interface {}(nil)" } else { b"<nil>" })?)
            }
            Value::Bool(truth) => match verb {
                't' | 'v' => self.pad(if *truth { b"true" } else { b"false" }, true),
                _ => self.bad_verb(value, verb),
            },
            Value::Int(number) => self.number(value, i128::from(*number), verb),
            Value::Integer(number, IntegerType::Uint8) if self.flags.sharp_v && verb == 'v' => {
                self.unsigned_source(i128::from(*number))
            }
            Value::Integer(number, _) => self.number(value, i128::from(*number), verb),
            Value::Uint(number) if self.flags.sharp_v && verb == 'v' => self.unsigned_source(i128::from(*number)),
            Value::Uint(number) => self.number(value, i128::from(*number), verb),
            Value::Float(number) => match verb {
                'v' => self.float(*number, 'g', None),
                'g' | 'G' => self.float(*number, verb, None),
                'e' | 'E' | 'f' => self.float(*number, verb, Some(6)),
                'F' => self.float(*number, 'f', Some(6)),
                _ => self.bad_verb(value, verb),
            },
            Value::String(text) => self.text(text, verb),
            Value::List(list) => {
                let (open, between, close) = self.brackets(value, list.is_nil(), b"[", b"]");
                self.out.push(&open)?;
                for (index, item) in list.items().iter().enumerate() {
                    self.out.push(if index > 0 { between } else { b"" })?;
                    self.value(item, verb, depth + 1)?;
                }
                Ok(self.out.push(close)?)
            }
            Value::Map(map) => {
                let (open, between, close) = self.brackets(value, false, b"map[", b"]");
                self.out.push(&open)?;
                for (index, (key, item)) in map.entries().iter().enumerate() {
                    self.out.push(if index > 0 { between } else { b"" })?;
                    self.text(key, verb)?;
                    self.out.push(b":")?;
                    self.value(item, verb, depth + 1)?;
                }
                Ok(self.out.push(close)?)
            }
            Value::Object(object) => match (object.text(), object.underlying()) {
                // Go's `%#v` has no text form.
                (Some(text), inner)
                    if !self.is_erroring
                        && matches!(verb, 'v' | 's' | 'q' | 'x' | 'X')
                        && !(self.flags.sharp_v && inner.is_some()) =>
                {
                    self.text(text.as_bytes(), verb)
                }
                (_, Some(inner)) => self.value(&inner, verb, depth + 1),
                (Some(text), None) => self.pad(text.as_bytes(), true),
                (None, None) => match object.members() {
                    Some(members) => {
                        let (open, between, close) = self.brackets(value, false, b"{", b"}");
                        self.out.push(&open)?;
                        for (index, (name, member)) in members.iter().enumerate() {
                            self.out.push(if index > 0 { between } else { b"" })?;
                            if self.flags.plus_v || self.flags.sharp_v {
                                self.out.push(format!("{name}:").as_bytes())?;
                            }
                            self.value(member, verb, depth + 1)?;
                        }
                        Ok(self.out.push(close)?)
                    }
                    None => Ok(self.out.push(format!("{{{}}}", object.type_name()).as_bytes())?),
                },
            },
        }
    }

    /// The text before, between and after the elements.
    fn brackets(
        &self,
        value: &Value,
        is_nil: bool,
        open: &[u8],
        close: &'static [u8],
    ) -> (Vec<u8>, &'static [u8], &'static [u8]) {
        if !self.flags.sharp_v {
            return (open.to_vec(), b" ", close);
        }
        let name = value.type_name();
        if is_nil {
            (format!("{name}(nil").into_bytes(), b"", b")")
        } else {
            (format!("{name}{{").into_bytes(), b", ", b"}")
        }
    }

    fn text(&mut self, text: &[u8], verb: char) -> Result<(), FunctionError> {
        match verb {
            'v' if self.flags.sharp_v => self.quoted(text),
            'v' | 's' => self.string(text),
            'x' => self.bytes(text, false),
            'X' => self.bytes(text, true),
            'q' => self.quoted(text),
            _ => self.bad_verb(&Value::from(text), verb),
        }
    }

    /// `%#v` of an integer without sign.
    fn unsigned_source(&mut self, number: i128) -> Result<(), FunctionError> {
        let sharp = std::mem::replace(&mut self.flags.sharp, true);
        let result = self.integer(number, 16, 'v');
        self.flags.sharp = sharp;
        result
    }

    fn number(&mut self, value: &Value, number: i128, verb: char) -> Result<(), FunctionError> {
        match verb {
            'v' | 'd' => self.integer(number, 10, verb),
            'b' => self.integer(number, 2, verb),
            'o' | 'O' => self.integer(number, 8, verb),
            'x' | 'X' => self.integer(number, 16, verb),
            'c' => self.character(number),
            'q' => self.quoted_character(number),
            'U' => self.unicode(number),
            _ => self.bad_verb(value, verb),
        }
    }
}

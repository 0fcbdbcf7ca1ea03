//! A value as JSON.

use crate::budget::{LimitError, Text, VALUE_DEPTH_MAX};
use crate::error::FunctionError;
use crate::functions::CallContext;
use crate::print::float;
use crate::sprig::chars::decode;
use crate::value::Value;

/// How a text is written.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(super) enum Form {
    /// In one line, with escapes for `<`, `>` and `&`, so that it can stand in HTML.
    Html,
    /// Like `Html`, with a line for each element.
    Indented,
    /// In one line, without these escapes.
    Raw,
}

pub(super) struct Written {
    pub(super) text: Vec<u8>,
    /// A number that JSON does not have.
    pub(super) unsupported: Option<&'static str>,
}

/// Writes a value.
pub(super) fn write_json(call: &CallContext<'_>, value: &Value, form: Form) -> Result<Written, FunctionError> {
    let mut writer = JsonWriter { out: call.text(), form, depth: 0, unsupported: None };
    writer.value(call, value)?;
    Ok(Written { text: writer.out.into_bytes(), unsupported: writer.unsupported })
}

struct JsonWriter<'a> {
    out: Text<'a>,
    form: Form,
    depth: u32,
    unsupported: Option<&'static str>,
}

impl JsonWriter<'_> {
    fn value(&mut self, call: &CallContext<'_>, value: &Value) -> Result<(), FunctionError> {
        call.charge_steps(1)?;
        match value {
            Value::Absent | Value::Nil => Ok(self.out.push(b"null")?),
            Value::Bool(value) => Ok(self.out.push(if *value { b"true" } else { b"false" })?),
            Value::Int(value) | Value::Integer(value, _) => Ok(self.out.push(value.to_string().as_bytes())?),
            Value::Uint(value) => Ok(self.out.push(value.to_string().as_bytes())?),
            Value::Float(value) => self.float(*value),
            Value::String(text) => self.string(text),
            Value::List(list) if list.is_nil() => Ok(self.out.push(b"null")?),
            Value::List(list) => self.container(b"[", b"]", list.items(), |writer, item| writer.value(call, item)),
            Value::Map(map) => self.container(b"{", b"}", &*map.entries(), |writer, (key, value)| {
                writer.string(key)?;
                writer.out.push(if writer.form == Form::Indented { b": " } else { b":" })?;
                writer.value(call, value)
            }),
            Value::Object(object) => match (object.underlying(), object.json_text()) {
                (Some(inner), _) => self.value(call, &inner),
                (None, Some(text)) => self.string(text.as_bytes()),
                (None, None) => Err(format!("{} cannot be written as JSON", object.type_name()).into()),
            },
        }
    }

    fn container<T>(
        &mut self,
        open: &[u8],
        close: &[u8],
        items: impl IntoIterator<Item = T>,
        write: impl Fn(&mut Self, T) -> Result<(), FunctionError>,
    ) -> Result<(), FunctionError> {
        if self.depth == VALUE_DEPTH_MAX {
            return Err(LimitError::ValueDepth.into());
        }
        self.depth += 1;
        self.out.push(open)?;
        let mut is_empty = true;
        for item in items {
            self.out.push(if is_empty { b"" } else { b"," })?;
            self.line()?;
            write(self, item)?;
            is_empty = false;
        }
        self.depth -= 1;
        if !is_empty {
            self.line()?;
        }
        Ok(self.out.push(close)?)
    }

    fn line(&mut self) -> Result<(), FunctionError> {
        if self.form == Form::Indented {
            self.out.push(b"\n")?;
            self.out.repeat(b"  ", self.depth as usize)?;
        }
        Ok(())
    }

    /// Writes the shortest digits, with an exponent only if the number is very small or large.
    fn float(&mut self, value: f64) -> Result<(), FunctionError> {
        if !value.is_finite() {
            let name = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "+Inf"
            } else {
                "-Inf"
            };
            self.unsupported.get_or_insert(name);
            return Ok(());
        }
        let is_plain = value == 0.0 || (1e-6..1e21).contains(&value.abs());
        let text = float(value, if is_plain { 'f' } else { 'e' }, None);
        // An exponent below ten has one digit.
        Ok(self.out.push(if is_plain { text } else { text.replace("e-0", "e-") }.as_bytes())?)
    }

    fn string(&mut self, text: &[u8]) -> Result<(), FunctionError> {
        self.out.push(b"\"")?;
        let (mut start, mut at) = (0, 0);
        while at < text.len() {
            let (c, size) = decode(&text[at..]);
            let escape = match c {
                '"' => "\\\"",
                '\\' => "\\\\",
                '\n' => "\\n",
                '\r' => "\\r",
                '\t' => "\\t",
                '\x08' => "\\b",
                '\x0c' => "\\f",
                '<' | '>' | '&' if self.form == Form::Raw => "",
                // The separators of lines would end a string in JavaScript.
                '\0'..='\x1f' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => &format!("\\u{:04x}", u32::from(c)),
                char::REPLACEMENT_CHARACTER if size == 1 => "\\ufffd",
                _ => "",
            };
            if !escape.is_empty() {
                self.out.push(&text[start..at])?;
                self.out.push(escape.as_bytes())?;
                start = at + size;
            }
            at += size;
        }
        self.out.push(&text[start..])?;
        Ok(self.out.push(b"\"")?)
    }
}

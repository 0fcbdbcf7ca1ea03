//! JSON as a value.

use std::sync::Arc;

use crate::budget::{LimitError, VALUE_DEPTH_MAX};
use crate::error::FunctionError;
use crate::functions::CallContext;
use crate::sprig::chars::decode;
use crate::value::{Element, Entries, Map, Value};

/// A text that was read.
pub(super) struct ReadJson {
    pub(super) value: Value,
    /// Why the text is no JSON, or has a number that no float can hold. In the second case the value has nil in its
    /// place.
    pub(super) error: Option<String>,
}

/// Reads a text. Numbers are floats, as Go decodes them. The failures are those of the budget.
pub(super) fn value(call: &CallContext<'_>, text: &[u8]) -> Result<ReadJson, FunctionError> {
    let mut reader = JsonReader { call, text, at: 0, depth: 0, overflow: None };
    let read = reader.value().and_then(|value| {
        reader.space();
        if reader.at == text.len() { Ok(value) } else { Err(Stop::Syntax) }
    });
    match read {
        Ok(value) => Ok(ReadJson { value, error: reader.overflow }),
        Err(Stop::Syntax) => {
            let error = match text.get(reader.at) {
                None => "unexpected end of JSON input".to_owned(),
                Some(byte) => format!("invalid character '{}' in JSON at byte {}", byte.escape_ascii(), reader.at),
            };
            Ok(ReadJson { value: Value::Nil, error: Some(error) })
        }
        Err(Stop::Exhausted(exhausted)) => Err(exhausted.into()),
    }
}

enum Stop {
    /// At the position of the reader.
    Syntax,
    Exhausted(LimitError),
}

impl From<LimitError> for Stop {
    fn from(exhausted: LimitError) -> Self {
        Self::Exhausted(exhausted)
    }
}

struct JsonReader<'a> {
    call: &'a CallContext<'a>,
    text: &'a [u8],
    at: usize,
    depth: u32,
    overflow: Option<String>,
}

impl JsonReader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn demand(&mut self, byte: u8) -> Result<(), Stop> {
        if self.take(byte) { Ok(()) } else { Err(Stop::Syntax) }
    }

    fn value(&mut self) -> Result<Value, Stop> {
        self.call.charge_memory(64)?;
        self.space();
        match self.peek() {
            Some(b'n') => self.word(b"null", Value::Nil),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'"') => Ok(self.string()?.into()),
            Some(b'[') => self.nested(Self::list),
            Some(b'{') => self.nested(Self::object),
            _ => self.number(),
        }
    }

    fn word(&mut self, word: &[u8], value: Value) -> Result<Value, Stop> {
        for byte in word {
            self.demand(*byte)?;
        }
        Ok(value)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Stop>) -> Result<Value, Stop> {
        if self.depth == VALUE_DEPTH_MAX {
            return Err(LimitError::ValueDepth.into());
        }
        self.depth += 1;
        self.at += 1;
        self.space();
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn list(&mut self) -> Result<Value, Stop> {
        let mut items = Vec::new();
        if !self.take(b']') {
            loop {
                items.push(self.value()?);
                self.space();
                if self.take(b']') {
                    break;
                }
                self.demand(b',')?;
            }
        }
        Ok(Value::list(items))
    }

    fn object(&mut self) -> Result<Value, Stop> {
        let mut entries = Entries::new();
        if !self.take(b'}') {
            loop {
                self.space();
                let key: Arc<[u8]> = self.string()?.into();
                self.space();
                self.demand(b':')?;
                entries.insert(key, self.value()?);
                self.space();
                if self.take(b'}') {
                    break;
                }
                self.demand(b',')?;
            }
        }
        Ok(Value::Map(Map::new(entries, Element::Any)))
    }

    fn digits(&mut self) -> Result<(), Stop> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > start { Ok(()) } else { Err(Stop::Syntax) }
    }

    fn number(&mut self) -> Result<Value, Stop> {
        let start = self.at;
        self.take(b'-');
        // No digit follows a zero at the start.
        if !self.take(b'0') {
            self.digits()?;
        }
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = String::from_utf8_lossy(&self.text[start..self.at]);
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            _ => {
                let error = || format!("json: cannot unmarshal number {text} into Go value of type float64");
                self.overflow.get_or_insert_with(error);
                Ok(Value::Nil)
            }
        }
    }

    fn string(&mut self) -> Result<Vec<u8>, Stop> {
        self.demand(b'"')?;
        let mut out = self.call.text();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let c = self.escape()?;
                    out.push(c.encode_utf8(&mut [0; 4]).as_bytes())?;
                }
                None | Some(0..0x20) => return Err(Stop::Syntax),
                Some(_) => {
                    let (c, size) = decode(&self.text[self.at..]);
                    self.at += size;
                    out.push(c.encode_utf8(&mut [0; 4]).as_bytes())?;
                }
            }
        }
        self.at += 1;
        Ok(out.into_bytes())
    }

    fn escape(&mut self) -> Result<char, Stop> {
        let c = match self.peek() {
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            _ => return Err(Stop::Syntax),
        };
        self.at += 1;
        Ok(c)
    }

    fn hexadecimal(&mut self) -> Result<u32, Stop> {
        let mut value = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16)).ok_or(Stop::Syntax)?;
            value = value << 4 | digit;
            self.at += 1;
        }
        Ok(value)
    }

    /// Reads the digits of `\u`, and those of the second half of a pair. A half without the other is U+FFFD.
    fn unicode(&mut self) -> Result<char, Stop> {
        let first = self.hexadecimal()?;
        let Some(c) = char::from_u32(first) else {
            let after = self.at;
            if (0xd800..0xdc00).contains(&first) && self.take(b'\\') && self.take(b'u') {
                let second = self.hexadecimal()?;
                if (0xdc00..0xe000).contains(&second) {
                    let pair = 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                    return Ok(char::from_u32(pair).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
            }
            self.at = after;
            return Ok(char::REPLACEMENT_CHARACTER);
        };
        Ok(c)
    }
}

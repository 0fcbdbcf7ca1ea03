//! Splits a template's text into texts and the tokens of actions.

use crate::format::{character, quoted};

/// A kind of token.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Error,
    Bool,
    Char,
    CharConstant,
    Complex,
    Assign,
    Declare,
    /// The end of the text.
    Eof,
    Field,
    Identifier,
    LeftDelim,
    LeftParen,
    Number,
    Pipe,
    RawString,
    RightDelim,
    RightParen,
    Space,
    String,
    Text,
    Variable,
    Dot,
    Keyword(Keyword),
}

/// A reserved word.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Keyword {
    Block,
    Break,
    Continue,
    Define,
    Else,
    End,
    If,
    Nil,
    Range,
    Template,
    With,
}

const KEYWORDS: &[(&[u8], Keyword)] = &[
    (b"block", Keyword::Block),
    (b"break", Keyword::Break),
    (b"continue", Keyword::Continue),
    (b"define", Keyword::Define),
    (b"else", Keyword::Else),
    (b"end", Keyword::End),
    (b"if", Keyword::If),
    (b"nil", Keyword::Nil),
    (b"range", Keyword::Range),
    (b"template", Keyword::Template),
    (b"with", Keyword::With),
];

/// A token: its kind, where it begins, and its source, or the message of an error.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: usize,
    pub(crate) text: Vec<u8>,
}

impl Token {
    /// Returns the token as messages show it.
    pub(crate) fn describe(&self) -> String {
        match self.kind {
            Kind::Eof => "EOF".to_owned(),
            Kind::Error => String::from_utf8_lossy(&self.text).into_owned(),
            // Go counts the dot among the keywords.
            Kind::Keyword(_) | Kind::Dot => format!("<{}>", String::from_utf8_lossy(&self.text)),
            _ if self.text.len() > 10 => format!("{}...", quoted(&self.text[..10])),
            _ => quoted(&self.text),
        }
    }
}

/// The lexer of one text.
pub(crate) struct Lexer<'a> {
    input: &'a [u8],
    left: &'a [u8],
    right: &'a [u8],
    at: usize,
    start: usize,
    parens: u32,
    inside: bool,
    /// After an error there is nothing more.
    failed: bool,
}

const SPACES: &[u8] = b" \t\r\n";

fn is_space(byte: u8) -> bool {
    SPACES.contains(&byte)
}

/// Returns whether an identifier may contain the character.
pub(crate) fn is_alphanumeric(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(input: &'a [u8], left: &'a [u8], right: &'a [u8]) -> Self {
        Self { input, left, right, at: 0, start: 0, parens: 0, inside: false, failed: false }
    }

    /// Returns the next token, [`Kind::Eof`] after the last one.
    pub(crate) fn token(&mut self) -> Token {
        if self.failed {
            return Token { kind: Kind::Eof, at: self.start, text: b"EOF".to_vec() };
        }
        if self.inside { self.inside() } else { self.text() }
    }

    fn rest(&self) -> &'a [u8] {
        &self.input[self.at..]
    }

    fn emit(&mut self, kind: Kind) -> Token {
        let token = Token { kind, at: self.start, text: self.input[self.start..self.at].to_vec() };
        self.start = self.at;
        token
    }

    fn error(&mut self, message: impl Into<Vec<u8>>) -> Token {
        self.failed = true;
        Token { kind: Kind::Error, at: self.start, text: message.into() }
    }

    fn peek(&self) -> Option<char> {
        bstr::decode_utf8(self.rest()).0.or_else(|| (!self.rest().is_empty()).then_some(char::REPLACEMENT_CHARACTER))
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += bstr::decode_utf8(self.rest()).1;
        Some(c)
    }

    fn text(&mut self) -> Token {
        loop {
            let Some(found) = bstr::ByteSlice::find(self.rest(), self.left) else {
                self.at = self.input.len();
                return if self.at > self.start {
                    self.emit(Kind::Text)
                } else {
                    Token { kind: Kind::Eof, at: self.at, text: b"EOF".to_vec() }
                };
            };
            let delimiter = self.at + found;
            let after = delimiter + self.left.len();
            let trims = has_left_marker(&self.input[after..]);
            let text = &self.input[self.at..delimiter];
            let kept =
                if trims { bstr::ByteSlice::trim_end_with(text, |c| c.is_ascii() && is_space(c as u8)) } else { text };
            if !kept.is_empty() {
                self.at += kept.len();
                let token = self.emit(Kind::Text);
                self.at = delimiter;
                self.start = delimiter;
                return token;
            }
            self.at = after;
            self.start = delimiter;
            let marker = if trims { 2 } else { 0 };
            if self.input[after + marker..].starts_with(b"/*") {
                self.at += marker;
                self.start = self.at;
                if let Err(message) = self.comment() {
                    return self.error(message);
                }
                continue;
            }
            let token = self.emit(Kind::LeftDelim);
            self.inside = true;
            self.at += marker;
            self.start = self.at;
            self.parens = 0;
            return token;
        }
    }

    fn comment(&mut self) -> Result<(), &'static str> {
        self.at += 2;
        let end = bstr::ByteSlice::find(self.rest(), b"*/").ok_or("unclosed comment")?;
        self.at += end + 2;
        match self.right_delimiter() {
            None => return Err("comment ends before closing delimiter"),
            Some(trims) => self.skip_right(trims),
        }
        self.start = self.at;
        Ok(())
    }

    fn skip_right(&mut self, trims: bool) {
        if trims {
            self.at += 2;
        }
        self.at += self.right.len();
        if trims {
            self.at += self.rest().iter().take_while(|&&byte| is_space(byte)).count();
        }
    }

    /// Returns whether the right delimiter is next, and then whether it trims.
    fn right_delimiter(&self) -> Option<bool> {
        let rest = self.rest();
        if has_right_marker(rest) && rest[2..].starts_with(self.right) {
            return Some(true);
        }
        rest.starts_with(self.right).then_some(false)
    }

    fn inside(&mut self) -> Token {
        if let Some(trims) = self.right_delimiter() {
            if self.parens > 0 {
                return self.error("unclosed left paren");
            }
            return self.close(trims);
        }
        let Some(c) = self.peek() else { return self.error("unclosed action") };
        if c.is_ascii() && is_space(c as u8) {
            return self.space();
        }
        self.next();
        match c {
            '=' => self.emit(Kind::Assign),
            ':' => {
                if self.next() == Some('=') {
                    self.emit(Kind::Declare)
                } else {
                    self.error("expected :=")
                }
            }
            '|' => self.emit(Kind::Pipe),
            '"' => self.quoted('"', Kind::String, "unterminated quoted string"),
            '\'' => self.quoted('\'', Kind::CharConstant, "unterminated character constant"),
            '`' => match bstr::ByteSlice::find_byte(self.rest(), b'`') {
                None => self.error("unterminated raw quoted string"),
                Some(end) => {
                    self.at += end + 1;
                    self.emit(Kind::RawString)
                }
            },
            '$' => self.name(Kind::Variable, Kind::Variable),
            '.' if !self.rest().is_empty() && !self.rest()[0].is_ascii_digit() => self.name(Kind::Field, Kind::Dot),
            '.' | '+' | '-' | '0'..='9' => {
                self.at = self.start;
                self.number()
            }
            c if is_alphanumeric(c) => self.identifier(),
            '(' => {
                self.parens += 1;
                self.emit(Kind::LeftParen)
            }
            ')' => {
                if self.parens == 0 {
                    return self.error("unexpected right paren");
                }
                self.parens -= 1;
                self.emit(Kind::RightParen)
            }
            ' '..='~' => self.emit(Kind::Char),
            c => self.error(format!("unrecognized character in action: {}", character(c))),
        }
    }

    fn close(&mut self, trims: bool) -> Token {
        if trims {
            self.at += 2;
            self.start = self.at;
        }
        self.at += self.right.len();
        let token = self.emit(Kind::RightDelim);
        if trims {
            self.at += self.rest().iter().take_while(|&&byte| is_space(byte)).count();
            self.start = self.at;
        }
        self.inside = false;
        token
    }

    fn space(&mut self) -> Token {
        let count = self.rest().iter().take_while(|&&byte| is_space(byte)).count();
        self.at += count;
        // The last space may belong to a marker that trims.
        let last = &self.input[self.at - 1..];
        if has_right_marker(last) && last[2..].starts_with(self.right) {
            self.at -= 1;
            if count == 1 {
                // As in Go, this closes the action without a look at parentheses, and the parser refuses it.
                return self.close(true);
            }
        }
        self.emit(Kind::Space)
    }

    fn quoted(&mut self, quote: char, kind: Kind, message: &'static str) -> Token {
        loop {
            match self.next() {
                Some('\\') => {
                    if matches!(self.next(), None | Some('\n')) {
                        return self.error(message);
                    }
                }
                None | Some('\n') => return self.error(message),
                Some(c) if c == quote => return self.emit(kind),
                Some(_) => {}
            }
        }
    }

    fn at_terminator(&self) -> bool {
        match self.peek() {
            None | Some(' ' | '\t' | '\r' | '\n' | '.' | ',' | '|' | ':' | ')' | '(') => true,
            Some(_) => self.rest().starts_with(self.right),
        }
    }

    fn bad_character(&mut self) -> Token {
        let c = self.peek().unwrap_or(char::REPLACEMENT_CHARACTER);
        self.error(format!("bad character {}", character(c)))
    }

    fn name(&mut self, kind: Kind, alone: Kind) -> Token {
        if self.at_terminator() {
            return self.emit(alone);
        }
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        if self.at_terminator() { self.emit(kind) } else { self.bad_character() }
    }

    fn identifier(&mut self) -> Token {
        while self.peek().is_some_and(is_alphanumeric) {
            self.next();
        }
        if !self.at_terminator() {
            return self.bad_character();
        }
        let word = &self.input[self.start..self.at];
        if let Some((_, keyword)) = KEYWORDS.iter().find(|(name, _)| *name == word) {
            return self.emit(Kind::Keyword(*keyword));
        }
        self.emit(if word == b"true" || word == b"false" { Kind::Bool } else { Kind::Identifier })
    }

    fn number(&mut self) -> Token {
        let mut is_good = self.scan_number();
        let mut kind = Kind::Number;
        if is_good && matches!(self.peek(), Some('+' | '-')) {
            is_good = self.scan_number() && self.input[self.at - 1] == b'i';
            kind = Kind::Complex;
        }
        if is_good {
            return self.emit(kind);
        }
        let source = quoted(&self.input[self.start..self.at]);
        self.error(format!("bad number syntax: {source}"))
    }

    fn accept(&mut self, set: &[u8]) -> bool {
        let found = self.rest().first().is_some_and(|byte| set.contains(byte));
        self.at += usize::from(found);
        found
    }

    fn scan_number(&mut self) -> bool {
        let decimal = b"0123456789_".as_slice();
        self.accept(b"+-");
        let mut digits = decimal;
        if self.accept(b"0") {
            if self.accept(b"xX") {
                digits = b"0123456789abcdefABCDEF_";
            } else if self.accept(b"oO") {
                digits = b"01234567_";
            } else if self.accept(b"bB") {
                digits = b"01_";
            }
        }
        while self.accept(digits) {}
        if self.accept(b".") {
            while self.accept(digits) {}
        }
        let exponent: &[u8] = match digits.len() {
            11 => b"eE",
            23 => b"pP",
            _ => b"",
        };
        if self.accept(exponent) {
            self.accept(b"+-");
            while self.accept(decimal) {}
        }
        self.accept(b"i");
        if self.peek().is_some_and(is_alphanumeric) {
            self.next();
            return false;
        }
        true
    }
}

fn has_left_marker(rest: &[u8]) -> bool {
    rest.len() >= 2 && rest[0] == b'-' && is_space(rest[1])
}

fn has_right_marker(rest: &[u8]) -> bool {
    rest.len() >= 2 && is_space(rest[0]) && rest[1] == b'-'
}

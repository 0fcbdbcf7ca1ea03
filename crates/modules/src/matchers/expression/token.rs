//! The lexer.

use super::ExpressionError;

/// Delimiters around a placeholder's name in the lexer's input, to distinguish its braces from those of a map. From
/// Unicode's private use area.
pub(super) const OPEN: char = '\u{e000}';
pub(super) const CLOSE: char = '\u{e001}';

#[derive(Debug, Clone, PartialEq)]
pub(super) enum TokenKind {
    Name(String),
    Int(i64),
    /// 2^63, which is an integer only after a minus.
    IntEnd,
    Double(f64),
    /// Placeholders in the text are delimited by [`OPEN`] and [`CLOSE`].
    Text(String),
    Placeholder(String),
    Sign(&'static str),
    End,
}

/// A token and its position: a 1-based index in characters.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) at: usize,
}

pub(super) const TOO_LARGE: &str = "a number that is too large";

/// Longer signs come before their prefixes.
const SIGNS: &[&str] = &[
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "!", "?", ":", "+", "-", "*", "/", "%", ".", ",", "(", ")", "[", "]",
    "{", "}",
];

/// Splits an expression into tokens; the last one is always `End`.
pub(super) fn tokens(source: &str) -> Result<Vec<Token>, ExpressionError> {
    let (text, places) = mark(source)?;
    let mut lexer = Lexer { text, places, at: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip();
        let start = lexer.at;
        let kind = lexer.token()?;
        let is_last = kind == TokenKind::End;
        tokens.push(Token { kind, at: lexer.place(start) });
        if is_last {
            return Ok(tokens);
        }
    }
}

/// Replaces the braces of placeholders, `{name}`, by delimiters, and removes the backslash of escaped ones, `\{name}`.
/// As in Caddy this happens before lexing, so also inside strings. The second vector maps positions to the source.
fn mark(source: &str) -> Result<(Vec<char>, Vec<usize>), ExpressionError> {
    let chars: Vec<char> = source.chars().collect();
    let (mut text, mut places) = (Vec::with_capacity(chars.len()), Vec::with_capacity(chars.len()));
    let mut at = 0;
    while let Some(&ch) = chars.get(at) {
        if matches!(ch, OPEN | CLOSE) {
            return Err(ExpressionError::new(at + 1, "a private-use character"));
        }
        let escaped = usize::from(ch == '\\');
        let length = placeholder(&chars[at + escaped..]);
        let Some(length) = length else {
            text.push(ch);
            places.push(at + 1);
            at += 1;
            continue;
        };
        let inner = at + escaped..at + escaped + length;
        // An escaped placeholder keeps its braces and loses its backslash.
        for place in inner.clone() {
            text.push(match chars[place] {
                '{' if escaped == 0 => OPEN,
                '}' if escaped == 0 => CLOSE,
                ch => ch,
            });
            places.push(place + 1);
        }
        at = inner.end;
    }
    places.push(chars.len() + 1);
    Ok((text, places))
}

/// Returns the length of the placeholder at the start, by Caddy's syntax for placeholders in expressions.
fn placeholder(chars: &[char]) -> Option<usize> {
    let ['{', first, rest @ ..] = chars else { return None };
    let in_name = |ch: &&char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '.' | '-');
    let length = rest.iter().take_while(in_name).count();
    (first.is_ascii_alphabetic() && length > 0 && rest.get(length) == Some(&'}')).then_some(length + 3)
}

fn integer(digits: &str, radix: u32) -> Option<TokenKind> {
    let number = u64::from_str_radix(digits, radix).ok()?;
    let is_end = number == i64::MIN.unsigned_abs();
    if is_end { Some(TokenKind::IntEnd) } else { number.try_into().ok().map(TokenKind::Int) }
}

struct Lexer {
    text: Vec<char>,
    places: Vec<usize>,
    at: usize,
}

impl Lexer {
    fn place(&self, at: usize) -> usize {
        self.places[at.min(self.text.len())]
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, ch)| self.peek(ahead) == Some(ch))
    }

    fn run(&mut self, of: impl Fn(char) -> bool) -> String {
        let run: String = self.text[self.at..].iter().copied().take_while(|&ch| of(ch)).collect();
        self.at += run.chars().count();
        run
    }

    /// Skips white space and comments.
    fn skip(&mut self) {
        loop {
            self.run(char::is_whitespace);
            if !self.starts_with("//") {
                return;
            }
            self.run(|ch| ch != '\n');
        }
    }

    fn token(&mut self) -> Result<TokenKind, ExpressionError> {
        let start = self.at;
        let Some(ch) = self.peek(0) else { return Ok(TokenKind::End) };
        if ch == OPEN {
            self.at += 1;
            let name = self.run(|ch| ch != CLOSE);
            self.at += 1;
            return Ok(TokenKind::Placeholder(name));
        }
        // Prefixes of strings (`r`, `b`) must be tried before names.
        let quote_at = |lexer: &Self, ahead| matches!(lexer.peek(ahead), Some('"' | '\''));
        if quote_at(self, 0) {
            return self.string(false);
        }
        if matches!(ch, 'r' | 'R') && quote_at(self, 1) {
            self.at += 1;
            return self.string(true);
        }
        if matches!(ch, 'b' | 'B')
            && (quote_at(self, 1) || (matches!(self.peek(1), Some('r' | 'R')) && quote_at(self, 2)))
        {
            return Err(ExpressionError::new(
                self.place(start),
                "byte strings (b'…'), which are not supported (docs/refused.md)",
            ));
        }
        if ch.is_ascii_digit() || (ch == '.' && self.peek(1).is_some_and(|ch| ch.is_ascii_digit())) {
            return self.number();
        }
        if ch.is_ascii_alphabetic() || ch == '_' {
            return Ok(TokenKind::Name(self.run(|ch| ch.is_ascii_alphanumeric() || ch == '_')));
        }
        // `find` returns the first entry, so the order of `SIGNS` makes it the longest.
        match SIGNS.iter().find(|sign| self.starts_with(sign)) {
            Some(sign) => {
                self.at += sign.len();
                Ok(TokenKind::Sign(sign))
            }
            None => Err(ExpressionError::new(
                self.place(start),
                format!("'{ch}', which cannot begin a value or an operator"),
            )),
        }
    }

    fn number(&mut self) -> Result<TokenKind, ExpressionError> {
        let place = self.place(self.at);
        if self.starts_with("0x") || self.starts_with("0X") {
            self.at += 2;
            let digits = self.run(|ch| ch.is_ascii_hexdigit());
            return integer(&digits, 16).ok_or_else(|| ExpressionError::new(place, "an invalid number"));
        }
        let mut text = self.run(|ch| ch.is_ascii_digit());
        let mut whole = true;
        // A dot without a digit after it begins a call, as in `1.size()`.
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|ch| ch.is_ascii_digit()) {
            self.at += 1;
            whole = false;
            text.push('.');
            text.push_str(&self.run(|ch| ch.is_ascii_digit()));
        }
        // An `e` is an exponent only if digits follow.
        if matches!(self.peek(0), Some('e' | 'E')) {
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if self.peek(1 + signed).is_some_and(|ch| ch.is_ascii_digit()) {
                whole = false;
                text.extend(&self.text[self.at..self.at + 1 + signed]);
                self.at += 1 + signed;
                text.push_str(&self.run(|ch| ch.is_ascii_digit()));
            }
        }
        if matches!(self.peek(0), Some('u' | 'U')) {
            return Err(ExpressionError::new(place, "unsigned numbers, which are not supported (docs/refused.md)"));
        }
        let kind = match whole {
            true => integer(&text, 10),
            false => text.parse().ok().map(TokenKind::Double),
        };
        kind.ok_or_else(|| ExpressionError::new(place, TOO_LARGE))
    }

    fn string(&mut self, raw: bool) -> Result<TokenKind, ExpressionError> {
        let start = self.at;
        let quote = self.peek(0).expect("a quote");
        // CEL has triple-quoted strings, which may span lines.
        let length = if self.peek(1) == Some(quote) && self.peek(2) == Some(quote) { 3 } else { 1 };
        self.at += length;
        let mut text = String::new();
        loop {
            let here = self.at;
            let Some(ch) = self.peek(0) else {
                return Err(ExpressionError::new(self.place(start), "a string that is not closed"));
            };
            if (0..length).all(|ahead| self.peek(ahead) == Some(quote)) {
                self.at += length;
                return Ok(TokenKind::Text(text));
            }
            self.at += 1;
            match ch {
                '\n' | '\r' if length == 1 => {
                    return Err(ExpressionError::new(self.place(start), "a string that is not closed on its line"));
                }
                '\\' if !raw => match self.escape() {
                    Some(ch) => text.push(ch),
                    None => return Err(ExpressionError::new(self.place(here), "an invalid escape")),
                },
                // In a raw string a backslash keeps the next quote from ending the string, and both remain in the text.
                '\\' if raw && self.peek(0) == Some(quote) => {
                    text.extend(['\\', quote]);
                    self.at += 1;
                }
                ch => text.push(ch),
            }
        }
    }

    /// Decodes an escape. The backslash is already consumed. `None` if it is not valid.
    fn escape(&mut self) -> Option<char> {
        let ch = self.peek(0)?;
        self.at += 1;
        let (digits, radix) = match ch {
            'a' => return Some('\u{7}'),
            'b' => return Some('\u{8}'),
            'f' => return Some('\u{c}'),
            'n' => return Some('\n'),
            'r' => return Some('\r'),
            't' => return Some('\t'),
            'v' => return Some('\u{b}'),
            '\\' | '?' | '"' | '\'' | '`' => return Some(ch),
            'x' | 'X' => (2, 16),
            'u' => (4, 16),
            'U' => (8, 16),
            // Three octal digits, the first of which is part of the code.
            '0'..='3' => {
                self.at -= 1;
                (3, 8)
            }
            _ => return None,
        };
        let digits = self.text.get(self.at..self.at + digits)?;
        self.at += digits.len();
        // At most eight hexadecimal digits, which fit. Not `from_str_radix`, which accepts a sign.
        let code = digits.iter().try_fold(0, |code, digit| Some(code * radix + digit.to_digit(radix)?));
        char::from_u32(code?)
    }
}

//! Splits text into tokens.
//!
//! White space separates tokens. `"…"` preserves white space and supports `\"`; `` `…` `` preserves everything;
//! `<<MARKER` starts a heredoc; `#` at the start of a token starts a comment; a backslash before a line break joins two
//! lines.

use std::sync::Arc;

use super::environment::{SourceChar, substitute};
use super::error::{Error, ErrorKind};
use super::position::Position;
use super::token::{Quote, Token};

/// Splits `source` into tokens, after substituting environment variables.
pub(crate) fn lex(source: &str, file: &Arc<str>, env: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Token>, Error> {
    let (chars, unset) = substitute(source, file, env);
    if chars.is_empty() && !source.starts_with('\u{feff}') {
        let at = Position { file: file.clone(), line: 1, column: 1 };
        return Err(Error::new(at, ErrorKind::UnexpectedEnd { expected: "a site address" }));
    }
    let mut lexer = Lexer { chars: &chars, next: 0, row: 1, joined: 0, file, comments: Vec::new() };
    let mut tokens = Vec::new();
    let mut ends = Vec::new();
    while let Some((start, token)) = lexer.word()? {
        tokens.push(token);
        ends.push((start, lexer.next));
    }
    let breaks = if unset.is_empty() { Vec::new() } else { lexer.breaks() };
    for (index, variable) in unset {
        if let Some(token) = lexer.owner(index, &ends, &breaks) {
            tokens[token].unset = Some(variable);
        }
    }
    Ok(tokens)
}

struct Lexer<'a> {
    chars: &'a [SourceChar],
    next: usize,
    /// Logical line. A joined line break is added to it only when a real line break follows.
    row: u32,
    joined: u32,
    file: &'a Arc<str>,
    /// Start and end of each comment.
    comments: Vec<(usize, usize)>,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.next).map(|ch| ch.value)
    }

    fn take(&mut self) -> Option<char> {
        let ch = self.peek()?;
        self.next += 1;
        Some(ch)
    }

    fn line_break(&mut self) {
        self.row += 1 + self.joined;
        self.joined = 0;
    }

    fn position(&self, index: usize) -> Position {
        match self.chars.get(index).or(self.chars.last()) {
            Some(ch) => Position { file: self.file.clone(), line: ch.line, column: ch.column },
            None => Position { file: self.file.clone(), line: 1, column: 1 },
        }
    }

    fn token(&self, start: usize, row: u32, text: String, quote: Quote) -> Token {
        let at = self.position(start);
        Token { text: text.into(), quote, at, rows: (row, self.row), imported: None, unset: None, snippet: None }
    }

    /// The indexes of all line breaks and number signs: between tokens, the ends of the tokens' lines.
    fn breaks(&self) -> Vec<usize> {
        let chars = self.chars.iter().enumerate();
        chars.filter(|(_, ch)| matches!(ch.value, '\n' | '#')).map(|(index, _)| index).collect()
    }

    /// The token that an unset variable at `index` belongs to: the token around it, or else the one before or after it
    /// on its line. `None` in a comment, or alone on a line. `tokens` holds the start and end of every token. Takes
    /// logarithmic time, since a text can have many such variables.
    fn owner(&self, index: usize, tokens: &[(usize, usize)], breaks: &[usize]) -> Option<usize> {
        let comment = self.comments.partition_point(|(start, _)| *start < index).checked_sub(1);
        if comment.is_some_and(|comment| index <= self.comments[comment].1) {
            return None;
        }
        let count_before = |index: usize| breaks.partition_point(|at| *at < index);
        let is_one_line = |from: usize, to: usize| count_before(from) == count_before(to);
        // The tokens are sorted, so this is the first one that ends at or after `index`.
        let next = tokens.partition_point(|(_, end)| *end < index);
        let before = next.checked_sub(1).filter(|before| is_one_line(tokens[*before].1, index));
        match tokens.get(next) {
            Some((start, _)) if *start <= index => Some(next),
            Some((start, _)) => before.or_else(|| is_one_line(index, *start).then_some(next)),
            None => before,
        }
    }

    /// Advances to the first character of a token. Returns whether a backslash that belongs to the token precedes it.
    fn skip_blanks(&mut self) -> bool {
        let mut escaped = false;
        while let Some(ch) = self.peek() {
            match ch {
                '\\' if !escaped => escaped = true,
                '\n' if escaped => {
                    self.joined += 1;
                    escaped = false;
                }
                '\n' => self.line_break(),
                // DEVIATES: in Caddy a backslash at the end of a comment joins the next line with the comment's, as
                // after a token, so that its tokens are arguments. Here it is part of the comment.
                '#' => {
                    let start = self.next;
                    while self.peek().is_some_and(|ch| ch != '\n') {
                        self.next += 1;
                    }
                    self.comments.push((start, self.next));
                    escaped = false;
                    continue;
                }
                _ if ch.is_whitespace() => {}
                _ => break,
            }
            self.next += 1;
        }
        escaped
    }

    fn word(&mut self) -> Result<Option<(usize, Token)>, Error> {
        let escaped = self.skip_blanks();
        let (start, row) = (self.next, self.row);
        let token = match self.peek() {
            None => return Ok(None),
            // A backslash does not stop a quote from opening. It escapes the first character after the quote.
            Some('"') => {
                self.next += 1;
                self.quoted(start, row, '"', escaped)?
            }
            Some('`') => {
                self.next += 1;
                self.quoted(start, row, '`', false)?
            }
            Some('<') if !escaped && self.chars.get(start + 1).is_some_and(|ch| ch.value == '<') => {
                self.heredoc(start, row)?
            }
            Some(_) => self.bare(start, row, escaped),
        };
        Ok(Some((start, token)))
    }

    /// Reads a bare token, up to white space. A backslash is kept unless it joins lines or escapes a `<`.
    fn bare(&mut self, start: usize, row: u32, mut escaped: bool) -> Token {
        let mut text = String::new();
        while let Some(ch) = self.peek() {
            if ch == '\\' && !escaped {
                escaped = true;
            } else if ch == '\r' {
                // Only line feeds end lines.
            } else if ch.is_whitespace() {
                // The token ends here, even though the next line continues the logical line.
                if ch == '\n' && escaped {
                    self.next += 1;
                    let token = self.token(start, row, text, Quote::None);
                    self.joined += 1;
                    return token;
                }
                break;
            } else {
                if std::mem::take(&mut escaped) && ch != '<' {
                    text.push('\\');
                }
                text.push(ch);
            }
            self.next += 1;
        }
        self.token(start, row, text, Quote::None)
    }

    /// Reads a quoted token.
    ///
    /// DEVIATES: if the quote is never closed, Caddy takes the rest of the file as the token, so that all directives
    /// after it are lost. Here it is an error.
    fn quoted(&mut self, start: usize, row: u32, quote: char, mut escaped: bool) -> Result<Token, Error> {
        let mut text = String::new();
        let kind = if quote == '"' { Quote::Double } else { Quote::Backtick };
        while let Some(ch) = self.take() {
            if std::mem::take(&mut escaped) {
                if ch != '"' {
                    text.push('\\');
                }
            } else if ch == '\\' && quote == '"' {
                escaped = true;
                continue;
            } else if ch == quote {
                return Ok(self.token(start, row, text, kind));
            }
            if ch == '\n' {
                self.line_break();
            }
            text.push(ch);
        }
        let rule = "the quote {} that begins here is never closed; expected another one before the end of the file";
        Err(Error::new(self.position(start), ErrorKind::Word { rule, found: quote.to_string().into() }))
    }

    /// Reads `<<MARKER`, lines, `MARKER`. The white space before the closing marker is removed from every line. A space
    /// directly after the opening token makes it an ordinary token.
    fn heredoc(&mut self, start: usize, row: u32) -> Result<Token, Error> {
        let mut opening = String::new();
        loop {
            match self.peek() {
                Some('\n') => break,
                None | Some(' ') => return Ok(self.token(start, row, opening, Quote::None)),
                Some('\r') => {}
                Some(ch) => opening.push(ch),
            }
            self.next += 1;
        }
        self.next += 1;
        let fail = |kind| Err(Error::new(self.position(start), kind));
        let marker = &opening["<<".len()..];
        if marker.is_empty() {
            return fail(ErrorKind::HeredocMarkerMissing);
        }
        // `<<<` is probably shell syntax; Caddy has a separate message for it.
        if marker.starts_with('<') {
            return fail(ErrorKind::HeredocBrackets);
        }
        if !marker.chars().all(|ch| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_')) {
            return fail(ErrorKind::HeredocMarker(marker.into()));
        }
        let body = self.next;
        let Some(end) = self.find(marker) else {
            return fail(ErrorKind::HeredocOpen(marker.into()));
        };
        let text = self.unindent(body, end, marker)?;
        let lines = self.chars[body..end].iter().filter(|ch| ch.value == '\n').count();
        self.next = end + marker.len();
        self.row += 1 + self.joined + u32::try_from(lines).unwrap_or(u32::MAX - self.row - self.joined - 1);
        self.joined = 0;
        Ok(self.token(start, row, text, Quote::Heredoc))
    }

    /// Index of the first occurrence of the closing marker, anywhere on a line. The marker is ASCII, and not empty.
    fn find(&self, marker: &str) -> Option<usize> {
        // Knuth, Morris and Pratt, as the length of the marker is unlimited. `borders` has for each prefix of the
        // marker the length of its longest proper prefix that is also its end.
        let marker = marker.as_bytes();
        let longer = |mut len: usize, ch: char, borders: &[usize]| {
            while len > 0 && char::from(marker[len]) != ch {
                len = borders[len - 1];
            }
            len + usize::from(char::from(marker[len]) == ch)
        };
        let mut borders = vec![0; marker.len()];
        for index in 1..marker.len() {
            borders[index] = longer(borders[index - 1], marker[index].into(), &borders);
        }
        let mut len = 0;
        for (index, ch) in self.chars.iter().enumerate().skip(self.next) {
            len = longer(len, ch.value, &borders);
            if len == marker.len() {
                return Some(index + 1 - len);
            }
        }
        None
    }

    // Removes the white space before the closing marker from every line. Lines without text are exempt.
    fn unindent(&self, body: usize, end: usize, marker: &str) -> Result<String, Error> {
        let text = |range: std::ops::Range<usize>| self.chars[range].iter().map(|ch| ch.value).collect::<String>();
        let Some(last_break) = (body..end).rev().find(|&index| self.chars[index].value == '\n') else {
            return Ok(String::new());
        };
        let padding = text(last_break + 1..end);
        let mut out: Vec<String> = Vec::new();
        let mut from = body;
        while from <= last_break {
            let to = (from..=last_break).find(|&index| self.chars[index].value == '\n').unwrap_or(last_break);
            let line = text(from..to);
            if line.is_empty() || line == "\r" {
                out.push(String::new());
            } else if let Some(rest) = line.strip_prefix(&padding) {
                out.push(rest.replace('\r', ""));
            } else {
                let line = line.trim_end_matches('\r').into();
                let kind = ErrorKind::HeredocIndent { marker: marker.into(), line, expected: padding.into() };
                return Err(Error::new(self.position(from), kind));
            }
            from = to + 1;
        }
        Ok(out.join("\n"))
    }
}

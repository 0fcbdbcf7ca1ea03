//! Formats Caddyfiles.
//!
//! [`format()`] changes white space, line breaks and braces only. Tokens, quoted text, comments and heredocs stay as
//! they are. It reads the characters in one pass, as Caddy's formatter does, so that the results are equal to the byte.

use std::sync::Arc;

use super::token::{Quote, Token};
use super::{is_valid_alone, lexer};

/// Blocks nested deeper than this are not indented further.
const INDENT_MAX: usize = 10;
/// Consecutive line breaks that are kept: one empty line.
const BREAKS_MAX: usize = 2;
/// How often a text is formatted until it no longer changes. Ordinary files need one pass. A few odd ones (a quote in
/// the middle of a token, a brace after it) are parsed differently once their white space has changed; they settle
/// within a few passes or never.
const PASSES_MAX: usize = 16;

/// Formats a Caddyfile. Each byte that is not valid UTF-8 becomes U+FFFD, as in Caddy.
///
/// Formatting is idempotent, and preserves the meaning of a valid Caddyfile. Time and space are linear in the length.
///
/// ```
/// use causeway_config::caddyfile::format;
/// assert_eq!(format(b"a.test{\nrespond   hi\n}"), "a.test {\n\trespond hi\n}\n");
/// ```
pub fn format(text: &[u8]) -> String {
    let text = decode(text);
    // DEVIATES: Caddy formats once, regardless of the result. Some texts change again in its second run, some grow with
    // every run, and some tokens (`a}`, or one in backticks at the start of a line) become other tokens. Such a text is
    // returned unchanged here.
    match formatted_to_fixpoint(&text) {
        Some(formatted) if means_the_same(&text, &formatted) => formatted,
        _ => text,
    }
}

/// Formats until the text no longer changes. `None` if it still changes after `PASSES_MAX` passes.
fn formatted_to_fixpoint(text: &str) -> Option<String> {
    let mut formatted = pass(text);
    for _ in 1..PASSES_MAX {
        let again = pass(&formatted);
        if again == formatted {
            return Some(formatted);
        }
        formatted = again;
    }
    None
}

/// Whether both texts have equal tokens on equal lines. If the original is not a valid Caddyfile, formatting may have
/// made it valid by taking braces out of tokens. If it has no tokens, because a quote is not closed for example, the
/// result is always true.
fn means_the_same(before: &str, formatted: &str) -> bool {
    let same = |before: &str, formatted: &str| {
        let file = Arc::from("");
        let Ok(tokens) = lexer::lex(before, &file, &|_| None) else { return true };
        let Ok(formatted) = lexer::lex(formatted, &file, &|_| None) else { return false };
        comparable(whole(&formatted)) == comparable(whole(&tokens))
            || (comparable(without_braces(&formatted)) == comparable(without_braces(&tokens))
                && !is_valid_alone(tokens, &file))
    };
    // Check twice: an unset variable is empty in one reading and a token in the other.
    same(before, formatted) && (!before.contains("{$") || same(&with_variables(before), &with_variables(formatted)))
}

/// A token, and its text or a part of that.
type Part<'a> = (&'a Token, &'a str);

/// Whole tokens.
fn whole(tokens: &[Token]) -> Vec<Part<'_>> {
    tokens.iter().map(|token| (token, &*token.text)).collect()
}

/// The tokens, each with whether it starts a line. Braces are exempt, since the formatter may move them.
fn comparable(parts: Vec<Part<'_>>) -> Vec<(&str, Quote, bool)> {
    let brace = |(token, text): Part<'_>| !token.quoted() && matches!(text, "{" | "}");
    let mut comparable = Vec::with_capacity(parts.len());
    let mut before = None;
    for part in parts {
        let (token, text) = part;
        let ends_line = |before: Part<'_>| !brace(before) && before.0.line_ends_before(token);
        comparable.push((text, token.quote, !brace(part) && before.is_some_and(ends_line)));
        before = Some(part);
    }
    // An unclosed quote at the end of the file includes the last line break.
    if let Some((text, quote, starts)) = comparable.pop_if(|(_, quote, _)| *quote == Quote::None)
        && !text.trim_end().is_empty()
    {
        comparable.push((text.trim_end(), quote, starts));
    }
    comparable
}

/// Takes the braces out of bare tokens: `a.test{` becomes `a.test` and `{`.
fn without_braces(tokens: &[Token]) -> Vec<Part<'_>> {
    let mut parts = Vec::with_capacity(tokens.len());
    for token in tokens {
        let mut rest = &*token.text;
        while let Some(at) = rest.find(['{', '}']).filter(|_| token.quote == Quote::None && rest.len() > 1) {
            let (part, after) = rest.split_at(at.max(1));
            parts.push((token, part));
            rest = after;
        }
        if !rest.is_empty() || token.text.is_empty() {
            parts.push((token, rest));
        }
    }
    parts
}

/// Replaces each variable without a default by `1`, which is valid as a name, a port and a number.
fn with_variables(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, inside)) = rest.split_once("{$") {
        out.push_str(before);
        rest = inside;
        // The search ends at the next `{`, so that the time is linear.
        match inside.find(['}', ':', '{', '\n']) {
            Some(end @ 1..) if inside.as_bytes()[end] == b'}' => {
                out.push('1');
                rest = &inside[end + 1..];
            }
            _ => out.push_str("{$"),
        }
    }
    out + rest
}

/// Line and column, counted from 1, of the first character that [`format()`] would change. `None` for a formatted text.
/// CRLF counts as a plain line break.
pub fn unformatted_at(text: &str) -> Option<(u32, u32)> {
    let text = text.replace("\r\n", "\n");
    let formatted = format(text.as_bytes());
    if formatted == text {
        return None;
    }
    let (mut line, mut column) = (1, 1);
    let mut wanted = formatted.chars();
    for ch in text.chars() {
        if wanted.next() != Some(ch) {
            break;
        }
        (line, column) = if ch == '\n' { (line + 1, 1) } else { (line, column + 1) };
    }
    Some((line, column))
}

fn decode(text: &[u8]) -> String {
    let mut decoded = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        decoded.push_str(chunk.valid());
        decoded.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    decoded
}

fn pass(text: &str) -> String {
    let mut formatter = Formatter::new(text.len());
    for ch in text.trim().chars() {
        formatter.read(ch);
    }
    formatter.finish()
}

/// The construct that the current character belongs to.
enum Within {
    Words,
    Comment,
    /// After `<<`: a heredoc's marker or an ordinary token.
    Marker(String),
    Heredoc {
        marker: String,
        /// The current line so far, which may turn out to be the closing marker.
        line: String,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quoted {
    None,
    Double,
    Backtick,
    /// A backtick inside double quotes, where a brace is text too.
    DoubleBacktick,
}

/// The last opening brace read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brace {
    None,
    /// Not written yet: the next characters decide whether it opens a block.
    Pending {
        /// Whether blanks, but no line break, precede it.
        spaced: bool,
        /// Whether it is the first character of its line.
        alone: bool,
    },
    /// Part of a token, such as `{path}`.
    InWord,
}

/// Tracks whether the line before a lone brace is an `import` between blocks. Such a brace opens the global options and
/// stays on its line.
#[derive(Default)]
struct TopImport {
    word: String,
    /// Whether the first token of this line is `import`; `None` until that token is complete.
    this_line: Option<bool>,
    previous_line: bool,
}

impl TopImport {
    fn word_ends(&mut self) {
        if !self.word.is_empty() {
            self.this_line.get_or_insert(self.word == "import");
            self.word.clear();
        }
    }

    fn line_ends(&mut self, nesting: usize, brace: Brace) {
        self.word_ends();
        if let Some(import) = self.this_line.take() {
            self.previous_line = import && nesting == 0;
        } else if !matches!(brace, Brace::Pending { alone: true, .. }) {
            self.previous_line = false;
        }
    }
}

struct Formatter {
    out: String,
    within: Within,
    quotes: Quoted,
    /// Whether a backslash precedes this character.
    escaped: bool,
    /// Whether this token contains `\<`, so that no heredoc starts in it.
    guarded: bool,
    /// Whether this character follows white space or is the first.
    space: bool,
    /// Whether the current output line is still empty.
    line_start: bool,
    brace: Brace,
    /// Line breaks read but not yet written.
    breaks: usize,
    nesting: usize,
    imports: TopImport,
}

impl Formatter {
    fn new(length: usize) -> Self {
        Self {
            out: String::with_capacity(length + length / 8 + 1),
            within: Within::Words,
            quotes: Quoted::None,
            escaped: false,
            guarded: false,
            space: true,
            line_start: true,
            brace: Brace::None,
            breaks: 0,
            nesting: 0,
            imports: TopImport::default(),
        }
    }

    fn finish(mut self) -> String {
        self.settle_brace();
        let trimmed = self.out.trim();
        format!("{trimmed}\n")
    }

    fn read(&mut self, ch: char) {
        // A second `<` at the start of a token starts a heredoc.
        if matches!(self.within, Within::Words)
            && (ch, self.quotes, self.guarded, self.space) == ('<', Quoted::None, false, true)
            && self.out.ends_with('<')
        {
            self.out.push(ch);
            self.within = Within::Marker(String::new());
            self.space = false;
            return;
        }
        if self.heredoc(ch) {
            return;
        }
        if self.out.ends_with('<') && self.space {
            self.space = false;
        }
        if matches!(self.within, Within::Comment) {
            if ch == '\n' {
                self.within = Within::Words;
                self.space = true;
                self.break_line();
            } else {
                self.out.push(ch);
            }
        } else if self.escaped {
            self.guarded |= ch == '<';
            self.out.push(ch);
            self.escaped = false;
        } else if ch == '\\' {
            if self.space {
                self.out.push(' ');
                self.space = false;
            }
            self.out.push(ch);
            self.escaped = true;
        } else if !self.quoted(ch) {
            self.bare(ch);
        }
    }

    /// Handles a character of a heredoc or its marker. Returns `false` if it is neither; white space that ends them is
    /// not.
    fn heredoc(&mut self, ch: char) -> bool {
        match &mut self.within {
            Within::Words | Within::Comment => return false,
            Within::Marker(marker) if ch == '\n' => {
                let valid = marker.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
                if !marker.is_empty() && valid {
                    let marker = std::mem::take(marker);
                    self.within = Within::Heredoc { marker, line: String::new() };
                    self.out.push(ch);
                } else {
                    self.within = Within::Words;
                    self.break_line();
                }
            }
            Within::Marker(_) if ch.is_whitespace() => {
                self.within = Within::Words;
                return false;
            }
            Within::Marker(marker) => {
                marker.push(ch);
                self.out.push(ch);
            }
            Within::Heredoc { marker, line } => {
                if ch.is_whitespace() && line.ends_with(&*marker) {
                    self.within = Within::Words;
                    return false;
                }
                if ch == '\n' {
                    line.clear();
                } else {
                    line.push(ch);
                }
                self.out.push(ch);
            }
        }
        true
    }

    /// Handles a character inside quotes. Returns `false` for others, including an opening quote or a closing backtick.
    fn quoted(&mut self, ch: char) -> bool {
        if ch == '`' {
            self.quotes = match self.quotes {
                Quoted::None => Quoted::Backtick,
                Quoted::Backtick => Quoted::None,
                Quoted::Double => Quoted::DoubleBacktick,
                Quoted::DoubleBacktick => Quoted::Double,
            };
        }
        if self.quotes == Quoted::Double {
            if ch == '"' {
                self.quotes = Quoted::None;
            }
            self.out.push(ch);
            return true;
        }
        if ch == '"' {
            match self.quotes {
                Quoted::None if self.space => self.quotes = Quoted::Double,
                Quoted::DoubleBacktick => self.quotes = Quoted::None,
                _ => {}
            }
        }
        if matches!(self.quotes, Quoted::Backtick | Quoted::DoubleBacktick) {
            if ch == '`' && self.space && !self.line_start {
                self.out.push(' ');
            }
            self.out.push(ch);
            self.space = false;
            return true;
        }
        false
    }

    /// Handles a character of a bare token, a brace, a blank, or the start of a comment.
    fn bare(&mut self, ch: char) {
        if ch.is_whitespace() {
            self.imports.word_ends();
            self.space = true;
            self.guarded = false;
            if ch == '\n' {
                self.imports.line_ends(self.nesting, self.brace);
                self.breaks += 1;
            }
            return;
        }
        let spaced = std::mem::take(&mut self.space);
        if ch == '#' {
            self.within = Within::Comment;
        }
        // After white space a pending brace is known to open a block.
        if spaced {
            self.settle_brace();
        }
        match ch {
            '{' => {
                self.imports.word_ends();
                self.settle_brace();
                let spaced = spaced && !self.line_start;
                if spaced && self.breaks == 0 {
                    self.out.push(' ');
                }
                self.brace = Brace::Pending { spaced, alone: self.breaks > 0 };
            }
            // Otherwise, as in `{path}`, the brace closes one in its own token.
            '}' if spaced || self.brace == Brace::None => {
                self.imports.word_ends();
                if !self.out.ends_with('\n') {
                    self.break_line();
                }
                self.nesting = self.nesting.saturating_sub(1);
                self.indent();
                self.out.push('}');
                self.breaks = 0;
            }
            _ => self.letter(ch, spaced),
        }
    }

    fn letter(&mut self, ch: char, spaced: bool) {
        for _ in 0..std::mem::take(&mut self.breaks).min(BREAKS_MAX) {
            self.break_line();
        }
        if self.line_start {
            self.indent();
            // An empty line separates blocks at the top level.
            if self.nesting == 0 && self.out.ends_with('}') {
                self.break_line();
                self.break_line();
            }
        } else if spaced {
            self.out.push(' ');
        }
        if matches!(self.brace, Brace::Pending { .. }) {
            self.out.push('{');
            self.brace = Brace::InWord;
        }
        // Remembers for one more character that this `<` starts a token, in case another follows.
        self.space = spaced && ch == '<';
        self.imports.word.push(ch);
        self.out.push(ch);
        self.line_start = false;
    }

    fn break_line(&mut self) {
        self.out.push('\n');
        self.line_start = true;
    }

    fn indent(&mut self) {
        self.out.extend(std::iter::repeat_n('\t', self.nesting));
    }

    /// Writes a pending brace as the start of a block.
    fn settle_brace(&mut self) {
        let Brace::Pending { spaced, alone } = self.brace else { return };
        self.brace = Brace::None;
        if self.nesting == 0 && self.out.ends_with('}') {
            self.break_line();
            self.break_line();
        }
        if alone && self.imports.previous_line {
            if !self.out.ends_with('\n') {
                self.break_line();
            }
            self.indent();
        } else if self.line_start {
            self.indent();
        } else if !spaced || !self.out.ends_with(char::is_whitespace) {
            self.out.push(' ');
        }
        self.out.push('{');
        self.break_line();
        self.breaks = 0;
        self.nesting = (self.nesting + 1).min(INDENT_MAX);
    }
}

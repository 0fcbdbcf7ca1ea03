//! A word of a Caddyfile.

use std::sync::Arc;

use super::position::Position;

/// What a word was enclosed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// A bare word; only these can be structural braces.
    None,
    /// `"…"`
    Double,
    /// `` `…` ``
    Backtick,
    /// `<<MARKER … MARKER`
    Heredoc,
}

/// A word with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The text without its quotes, escapes resolved.
    pub text: Box<str>,
    /// How it was quoted.
    pub quote: Quote,
    /// Its first character (an opening quote included).
    pub at: Position,
    /// Logical line of its start and of its end: an escaped line break does not count, one from the environment does.
    /// Only differences matter, so that `at` can stay what the operator sees.
    pub(crate) rows: (u32, u32),
    /// The import that brought it; words of different imports never share a line.
    pub(crate) imported: Option<Arc<Imported>>,
    /// The snippet it was defined in.
    pub(crate) snippet: Option<Arc<str>>,
}

/// An `import` that brought words, and the one that had brought them before, into a snippet for instance.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) at: Position,
    /// The line that its block ends on, if it has one; Caddy names that one.
    pub(crate) ends: u32,
    /// The snippet's name; `None` for a file.
    pub(crate) snippet: Option<Arc<str>>,
    pub(crate) before: Option<Arc<Imported>>,
}

impl Token {
    /// Whether it was enclosed in quotes of any kind.
    pub fn quoted(&self) -> bool {
        self.quote != Quote::None
    }

    /// The text with its quotes put back; a heredoc has none that fit on a line.
    pub fn raw(&self) -> String {
        match self.quote {
            Quote::Double => format!("\"{}\"", self.text),
            Quote::Backtick => format!("`{}`", self.text),
            Quote::None | Quote::Heredoc => self.text.to_string(),
        }
    }

    pub(crate) fn opens(&self) -> bool {
        !self.quoted() && &*self.text == "{"
    }

    pub(crate) fn closes(&self) -> bool {
        !self.quoted() && &*self.text == "}"
    }

    /// Whether one import brought both words.
    fn together_with(&self, other: &Self) -> bool {
        match (&self.imported, &other.imported) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Whether `next` starts a line of its own after `self`.
    pub(crate) fn line_ends_before(&self, next: &Self) -> bool {
        self.at.file != next.at.file || !self.together_with(next) || self.rows.1 < next.rows.0
    }
}

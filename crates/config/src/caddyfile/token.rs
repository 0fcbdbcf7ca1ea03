//! A token of a Caddyfile.

use std::sync::Arc;

use super::environment::Unset;
use super::position::Position;

/// The kind of quotes around a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quote {
    /// A bare token. Only these can be structural braces.
    None,
    /// `"…"`
    Double,
    /// `` `…` ``
    Backtick,
    /// `<<MARKER … MARKER`
    Heredoc,
}

/// A token with its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The text without quotes, with escapes resolved.
    pub text: Box<str>,
    /// The quotes that enclosed it.
    pub quote: Quote,
    /// Position of its first character, or of its opening quote.
    pub at: Position,
    /// Logical lines of its start and end. An escaped line break does not count; one from an environment variable does.
    /// Only differences between rows are meaningful. They are separate from `at`, which holds the line in the file.
    pub(crate) rows: (u32, u32),
    /// The import that inserted the token. Tokens of different imports are never on one line.
    pub(crate) imported: Option<Arc<Imported>>,
    /// An unset variable in the token, or next to it on its line.
    pub(crate) unset: Option<Unset>,
    /// The snippet that the token was defined in.
    pub(crate) snippet: Option<Arc<str>>,
}

/// An `import` that inserted tokens, linked to the import that inserted the `import` line itself, if any.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Imported {
    pub(crate) at: Position,
    /// The last line of the import, including its block. Caddy's messages name this line.
    pub(crate) last_line: u32,
    /// The snippet's name; `None` for a file.
    pub(crate) snippet: Option<Arc<str>>,
    pub(crate) before: Option<Arc<Imported>>,
}

impl Token {
    /// Whether it was enclosed in quotes of any kind.
    pub fn quoted(&self) -> bool {
        self.quote != Quote::None
    }

    /// The text with its quotes. A heredoc is returned without: its quotes need lines of their own.
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

    /// Whether one import inserted both tokens, or neither was imported.
    fn together_with(&self, other: &Self) -> bool {
        match (&self.imported, &other.imported) {
            (Some(own), Some(other)) => Arc::ptr_eq(own, other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }

    /// Whether `next` starts a new line after `self`.
    pub(crate) fn line_ends_before(&self, next: &Self) -> bool {
        self.at.file != next.at.file || !self.together_with(next) || self.rows.1 < next.rows.0
    }
}

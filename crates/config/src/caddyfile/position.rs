//! The position of a word.

use std::fmt;
use std::sync::Arc;

/// A position in a Caddyfile or in an imported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file's name as given to [`adapt`](super::adapt), or the imported file's path.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

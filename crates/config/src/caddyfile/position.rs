//! Where a word stands.

use std::fmt;
use std::sync::Arc;

/// A place in a Caddyfile or an imported file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file's name as given to [`adapt`](super::adapt), or the imported file's path.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
    /// Counted from 1, in characters.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

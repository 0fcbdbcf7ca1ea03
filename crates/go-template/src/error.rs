//! The errors of parsing and of execution.

use std::fmt;

use crate::budget::LimitError;

/// A template that cannot be parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ParseError {
    /// The name of the text that was parsed.
    pub template: String,
    /// The line, from 1.
    pub line: usize,
    /// The byte in the line, from 0, as in Go's messages.
    pub column: usize,
    /// Go's message.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { template, line, column, message } = self;
        write!(f, "template: {template}:{line}:{column}: {message}")
    }
}

impl std::error::Error for ParseError {}

/// The reason why a function or a method fails. The execution adds the place.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum FunctionError {
    /// The execution has reached a limit.
    Limit(LimitError),
    /// The template's mistake.
    Message(String),
}

impl fmt::Display for FunctionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit(limit) => limit.fmt(f),
            Self::Message(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for FunctionError {}

impl From<String> for FunctionError {
    fn from(message: String) -> Self {
        Self::Message(message)
    }
}

impl From<&str> for FunctionError {
    fn from(message: &str) -> Self {
        Self::Message(message.to_owned())
    }
}

impl From<LimitError> for FunctionError {
    fn from(limit: LimitError) -> Self {
        Self::Limit(limit)
    }
}

/// An execution that failed. The output ends before the failure.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ExecuteError {
    /// The name of the template that was being executed.
    pub template: String,
    /// Go's message, with the name of the text, the line, the column and the source at this place.
    pub message: String,
}

impl fmt::Display for ExecuteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ExecuteError {}

#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`translate()`], [`Translated`], [`PatternError`]: the syntax
//! - [`as_characters`], [`before_repair`]: text that is not valid UTF-8
//! - [`COMPILED_BYTES_MAX`]: the size of an expression

mod repair;
mod translate;

pub use repair::{as_characters, before_repair};
pub use translate::{PatternError, Translated, translate};

/// The bound on the compiled form of an operator's expression, for `size_limit` of the crate regex, whose default of
/// 10 MiB is too small: Go holds a class such as `\p{L}` in one step, that crate in some hundred. It is Go's bound on its
/// own steps.
pub const COMPILED_BYTES_MAX: usize = 128 * 1024 * 1024;

#[cfg(test)]
mod tests;

#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`translate()`], [`Translated`], [`PatternError`], [`error_reason`]: the syntax
//! - [`as_characters`], [`before_repair`]: text that is not valid UTF-8
//! - [`replacement_pieces`], [`group_number`]: replacements with `$1` and `${name}`
//! - [`COMPILED_BYTES_MAX`]: the size of an expression

mod repair;
mod replacement;
mod translate;

pub use repair::{as_characters, before_repair};
pub use replacement::{ReplacementPiece, group_number, is_letter_or_digit, replacement_pieces};
pub use translate::{PatternError, Translated, error_reason, translate};

/// The bound on the compiled form of an operator's expression, for `size_limit` of the crate regex. The default of 10
/// MiB is too small: Go has one step for a class such as `\p{L}`, and the crate some hundred. This is Go's bound on its
/// own steps.
pub const COMPILED_BYTES_MAX: usize = 128 * 1024 * 1024;

#[cfg(test)]
mod tests;

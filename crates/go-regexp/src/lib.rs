#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`translate()`], [`Translated`], [`PatternError`]: the syntax
//! - [`as_characters`], [`before_repair`]: text that is not valid UTF-8

mod repair;
mod translate;

pub use repair::{as_characters, before_repair};
pub use translate::{PatternError, Translated, translate};

#[cfg(test)]
mod tests;

#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`TemplateSet`]: templates that know each other by name; [`ParseError`], [`ExecuteError`]
//! - [`Value`], [`Object`], [`List`], [`Map`]: the data
//! - [`Functions`], [`Signature`], [`Type`], [`CallContext`]: the functions, and their resources
//! - [`ExecutionLimits`], [`Budget`], [`LimitError`]: the bounds of an execution; [`NESTING_MAX`], [`TEXT_BYTES_MAX`]
//! - `lex`, `parse`, `tree`: from a text to a tree, and its source in normal form
//! - `bounds`, `budget`, `error`, `functions`, `set`, `value`: the modules of the items above
//! - `execute`, `evaluate`: nodes, and the values of pipelines
//! - `builtins`, `print`: Go's functions, and its `fmt`; `sprig`: functions of Sprig
//! - `format`: Go's forms of strings and characters

mod bounds;
mod budget;
mod builtins;
mod error;
mod evaluate;
mod execute;
mod format;
mod functions;
mod lex;
mod parse;
mod print;
mod set;
mod sprig;
mod tree;
mod value;

pub use bounds::{NESTING_MAX, TEXT_BYTES_MAX};
pub use budget::{
    Budget, DEPTH_MAX, ExecutionLimits, LimitError, MEMORY_BYTES_DEFAULT, OUTPUT_BYTES_DEFAULT, STEPS_DEFAULT,
    VALUE_DEPTH_MAX,
};
pub use error::{ExecuteError, FunctionError, ParseError};
pub use functions::{CallContext, Functions, Signature, Type};
pub use set::TemplateSet;
pub use value::{Element, Entries, IntegerType, List, Map, Object, Value};

#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`TraceSettings`]: the environment variables of OpenTelemetry
//! - [`span`]: a span in the form that a collector reads
//! - [`TraceOutput`]: an open output; configurations with equal settings share it
//! - `queue`: the spans that wait for an output's thread
//! - `exporter`: the thread of an output
//! - `client`: one request to a collector; `answer`: the messages that a collector returns

mod answer;
mod client;
mod exporter;
mod output;
mod queue;
mod settings;
pub mod span;

pub use output::{SpanCounts, TraceOutput, flush_all, span_counts};
pub use settings::{ExportProtocol, ExportSettings, Sampler, SettingError, TraceSettings};

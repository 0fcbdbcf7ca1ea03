#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`TraceSettings`], [`MetricSettings`]: the environment variables of OpenTelemetry
//! - [`span`]: a span in the form that a collector reads
//! - [`TraceOutput`]: an open output; configurations with equal settings share it
//! - `queue`: the spans that wait for an output's thread
//! - `exporter`: the thread of an output
//! - [`MetricOutput`]: the export of metrics; [`MetricWriter`]: metrics in the form that a collector reads
//! - `delivery`: attempts to send a batch of spans or metrics, and the report of losses
//! - `client`: one request to a collector; `answer`: the messages that a collector returns

mod answer;
mod client;
mod delivery;
mod exporter;
mod metric;
mod metric_output;
mod output;
mod queue;
mod settings;
pub mod span;

pub use metric::{MetricKind, MetricWriter};
pub use metric_output::{MetricOutput, PointCounts, PreparedMetricOutput, point_counts};
pub use output::{OpenError, SpanCounts, TraceOutput, flush_all, span_counts};
pub use settings::{
    CollectorSettings, ExportProtocol, ExportSettings, MetricSettings, Sampler, SettingError, Signal, TraceSettings,
};

//! Logs: `logging.logs` of a configuration. Records of requests and the server's own messages are entries, which every
//! log takes whose names and level admit them.
//!
//! In reading order:
//! - [`Entry`], [`Fields`]: a message and its fields, which are visited and never copied
//! - [`Logs`], [`Log`]: all logs of a configuration
//! - `sampling`: how many similar entries a log takes
//! - `destination`: the outputs, as JSON describes them
//! - `format`: an entry as a line

mod destination;
mod entry;
mod format;
mod log;
mod sampling;

pub use causeway_log_output::{
    DropWhenFull, Output, end_all, flush_all, flush_streams, is_journal, lost_lines, reopen_all,
};
pub(crate) use entry::{EachField, key};
pub use entry::{Entry, FieldSink, Fields, Level, LogKey, LogValue, TextList};
pub use format::JsonSink;
pub(crate) use format::json_text;
pub use log::{Log, Logs};

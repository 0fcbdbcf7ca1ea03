#![doc = include_str!("../README.md")]
//!
//! # In reading order
//! - [`Output`]: an open output; servers and configurations that name the same output share it
//! - `queue`: the lines that wait for an output's thread; `batch`: those that it writes together
//! - `writer`: the thread of an output
//! - `file`: a file with its permissions; `roll`: when it is renamed, compressed and removed
//! - `net`: a connection to a collector
//! - [`TimeLayout`]: times in Go's notation, for lines and for the names of files; [`go_layout`]: the parts of that
//!   notation

mod batch;
mod file;
pub mod go_layout;
mod layout;
mod net;
mod output;
mod queue;
mod roll;
mod writer;

pub use file::{DirectoryMode, FileSpec};
pub use layout::{TimeLayout, Zone};
pub use net::{NetSpec, Network};
pub use output::{
    DropWhenFull, LostLines, Output, OutputSpec, WhenFull, end_all, flush_all, flush_streams, is_journal, lost_lines,
    reopen_all,
};
pub use roll::{Compression, RollSpec};

//! A causal profiler: it predicts how much faster the whole program would be if one part of it took less time.
//!
//! A program reports its progress and the waits between its threads through [`progress`]. From these events the
//! profiler predicts the gain of a faster function, line, inlined frame, call path or named span. Each prediction has
//! an interval; where there is no prediction, the report gives a reason.
//!
//! There are two modes, and the report marks the targets for which they disagree:
//! - **screening**: records short windows and replays them with each target made faster. It pauses nothing.
//! - **confirming**: in further windows, pauses all other threads whenever the target runs, so that the target
//!   is faster relative to them (Curtsinger & Berger, "Coz", SOSP 2015). One target at a time, within a budget of lost
//!   time.
//!
//! The modules, in the order in which data passes through them:
//! - `clock`: a cheap nanosecond clock.
//! - `kinds`: kinds of work: a thread name, the nested spans, and the last synchronisation site.
//! - `policy`: the action of each hook; `trace`: the events of a window; `varint`: variable-length integers.
//! - `machine`: assumptions about the machine; `modules`: the files mapped into the process; `sample`, `symbols`,
//!   `target`: samples, their names, and the fraction of each kind of work that belongs to each target.
//! - `outcome`: the progress of one window.
//! - `own`: the processor time of the profiler's own threads, and their pause while a window is open.
//! - `replay`: screening: replays a recorded window with one target made faster.
//! - `ledger`: confirming: the delay of each thread, and the pauses that follow from it.
//! - `peers`: the processes on this machine that hold connections to this one.
//! - `experiment`, `load`, `statistics`, `estimate`: the order of windows, the kind of load, the intervals, and the
//!   predictions.
//! - `constants`: the values on which the results depend, with their calibration.
//! - `profiler`: runs a profile; `env`: starts one from an environment variable; `report`: the result and its formats.

pub mod clock;
mod constants;
mod env;
pub mod estimate;
pub mod experiment;
pub mod kinds;
pub mod ledger;
pub mod load;
mod machine;
mod modules;
pub mod outcome;
mod own;
pub mod peers;
pub mod policy;
pub mod profiler;
pub mod replay;
pub mod report;
pub mod sample;
pub mod statistics;
pub mod symbols;
pub mod target;
pub mod trace;
mod varint;

pub use env::{Guard, run_from_env};
pub use profiler::{Builder, Modes, Phase, Profiler, StartError, Status};
/// The crate through which a program reports its progress. A program that profiles itself gets it from here. A library
/// that only reports progress can depend on `progress` alone, without the profiler.
#[doc(inline)]
pub use progress;
pub use report::Report;

//! A causal profiler: what, if it were faster, would make the whole program faster, and by how much?
//!
//! A program says by [`progress`] what its progress is and who waits for whom. From that the profiler answers, for functions, lines,
//! inlined frames, call paths and named spans, what the program would gain if each of them took less time; with an interval, and with a
//! reason wherever it has no answer.
//!
//! It has two ways, and says where they disagree:
//! - **screening** (mode A): short windows are recorded, and replayed with every target made faster. Nothing is paused for it.
//! - **confirming** (mode B): in other windows, whenever the target runs, everything else is paused, so that the target is faster by
//!   comparison (Curtsinger & Berger, "Coz", SOSP 2015). One target at a time, within a budget of lost time.
//!
//! The rooms, in the order in which a profile passes them:
//! - `clock`: nanoseconds, cheaply.
//! - `kinds`: kinds of work: which thread, in which spans, behind which meeting with other threads.
//! - `policy`: what happens at each hook; `trace`: what a window recorded; `varint`: numbers in few octets.
//! - `machine`: what is known of it beforehand; `modules`: what is mapped into the process; `sample`, `symbols`, `target`: where the time
//!   goes, by name; which part of each kind of work is a target's.
//! - `outcome`: what a window came to.
//! - `own`: what the profiler's own threads take, and when they rest.
//! - `replay`: mode A: a recorded window, once more, with something faster.
//! - `ledger`: mode B: who owes which pause, and when it is paid.
//! - `experiment`, `load`, `statistics`, `estimate`: which windows come when, what drives the load, and what follows from them all.
//! - `profiler`: the run of it all; `env`: one that the environment asks for; `report`: what comes out.

pub mod clock;
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
/// How a program tells. Who profiles itself needs no other dependency; a library that only tells, and is profiled by whoever uses it, needs
/// that one alone.
#[doc(inline)]
pub use progress;
pub use report::Report;

//! Programs that generate their own load in plain threads. They are compiled twice: with `progress`'s threads and locks
//! for our profiler, and with the standard library's for Coz (`benches/causal/coz_twin.rs`). Only `kit` differs.

#[path = "programs/barrier.rs"]
mod barrier;
#[path = "programs/burner.rs"]
mod burner;
#[path = "programs/lock.rs"]
mod lock;
#[path = "programs/pipeline.rs"]
mod pipeline;

/// Starts the threads of a program; returns false when the name is unknown.
pub(crate) fn start(name: &str) -> bool {
    match name {
        "barrier" => barrier::start(),
        "burner" => burner::start(),
        "lock" => lock::start(),
        "pipeline" => pipeline::start(),
        _ => return false,
    }
    true
}

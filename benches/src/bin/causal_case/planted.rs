//! The planted functions: each appears as a function of its own in a profile, with the cost on one line.
//!
//! Their argument is the cost in steps.

use std::hint::black_box;

/// The cost itself. A macro of plain operators, so that the whole cost belongs to the line of its use: profilers are
/// queried for functions and lines, and Coz does not attribute inlined code to the caller's line. The salt prevents the
/// compiler from merging two planted functions.
#[collapse_debuginfo(yes)]
macro_rules! spin {
    ($steps:expr, $salt:literal) => {{
        let (mut word, mut left) = ($steps | $salt, $steps);
        while left > 0 {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << $salt;
            left -= 1;
        }
        word
    }};
}

/// The part of a request's cost that the knob can reduce.
#[inline(never)]
pub(crate) fn hot_function(steps: u64) {
    let word = spin!(steps, 11);
    black_box(word);
}

/// The rest of a request's cost.
#[inline(never)]
pub(crate) fn cold_function(steps: u64) {
    let word = spin!(steps, 12);
    black_box(word);
}

/// Work while the lock is held.
#[inline(never)]
pub(crate) fn inside_lock(steps: u64) {
    let word = spin!(steps, 13);
    black_box(word);
}

/// Work without the lock.
#[inline(never)]
pub(crate) fn outside_lock(steps: u64) {
    let word = spin!(steps, 14);
    black_box(word);
}

/// Work of a pipeline before the channel.
#[inline(never)]
pub(crate) fn first_stage(steps: u64) {
    let word = spin!(steps, 15);
    black_box(word);
}

/// Work of a pipeline after the channel.
#[inline(never)]
pub(crate) fn second_stage(steps: u64) {
    let word = spin!(steps, 16);
    black_box(word);
}

/// Work that does not contribute to progress.
#[inline(never)]
pub(crate) fn burner(steps: u64) {
    let word = spin!(steps, 17);
    black_box(word);
}

/// Work that contributes to progress.
#[inline(never)]
pub(crate) fn purpose(steps: u64) {
    let word = spin!(steps, 18);
    black_box(word);
}

/// Work before a barrier, by the thread that then waits there.
#[inline(never)]
pub(crate) fn early_side(steps: u64) {
    let word = spin!(steps, 19);
    black_box(word);
}

/// Work before the barrier, by the thread that slept first.
#[inline(never)]
pub(crate) fn late_side(steps: u64) {
    let word = spin!(steps, 20);
    black_box(word);
}

/// Start-up work of a fresh writer, before it writes.
#[inline(never)]
pub(crate) fn start_up(steps: u64) {
    let word = spin!(steps, 21);
    black_box(word);
}

/// Work for a response before its first frame.
#[inline(never)]
pub(crate) fn render(steps: u64) {
    let word = spin!(steps, 22);
    black_box(word);
}

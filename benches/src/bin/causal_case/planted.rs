//! The planted functions: each is one of its own in a profile, with a line of its own that costs.
//!
//! What they get is how many steps they are to cost.

use std::hint::black_box;

/// The cost itself. A macro of plain operators, so that all of it belongs to the line that it stands on: profilers are asked for
/// functions and lines, and Coz does not find a line above what was inlined from elsewhere. The salt keeps two planted functions from
/// being one to the compiler.
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

/// What a request costs that could be cheaper.
#[inline(never)]
pub(crate) fn hot_function(steps: u64) {
    let word = spin!(steps, 11);
    black_box(word);
}

/// What a request costs besides.
#[inline(never)]
pub(crate) fn cold_function(steps: u64) {
    let word = spin!(steps, 12);
    black_box(word);
}

/// Done with the lock held.
#[inline(never)]
pub(crate) fn inside_lock(steps: u64) {
    let word = spin!(steps, 13);
    black_box(word);
}

/// Done without it.
#[inline(never)]
pub(crate) fn outside_lock(steps: u64) {
    let word = spin!(steps, 14);
    black_box(word);
}

/// Of a pipeline, the part before the channel.
#[inline(never)]
pub(crate) fn first_stage(steps: u64) {
    let word = spin!(steps, 15);
    black_box(word);
}

/// The part behind it.
#[inline(never)]
pub(crate) fn second_stage(steps: u64) {
    let word = spin!(steps, 16);
    black_box(word);
}

/// What is done beside the program's purpose.
#[inline(never)]
pub(crate) fn burner(steps: u64) {
    let word = spin!(steps, 17);
    black_box(word);
}

/// What the program is there for.
#[inline(never)]
pub(crate) fn purpose(steps: u64) {
    let word = spin!(steps, 18);
    black_box(word);
}

/// Done before a barrier by the thread that then waits there.
#[inline(never)]
pub(crate) fn early_side(steps: u64) {
    let word = spin!(steps, 19);
    black_box(word);
}

/// Done before the barrier by the thread that slept.
#[inline(never)]
pub(crate) fn late_side(steps: u64) {
    let word = spin!(steps, 20);
    black_box(word);
}

/// What a fresh writer costs before it writes.
#[inline(never)]
pub(crate) fn start_up(steps: u64) {
    let word = spin!(steps, 21);
    black_box(word);
}

/// What an answer costs before its first frame.
#[inline(never)]
pub(crate) fn render(steps: u64) {
    let word = spin!(steps, 22);
    black_box(word);
}

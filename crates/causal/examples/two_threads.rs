//! Two threads each do half of a unit, and wait for each other. The thread that always arrives first has nearly half of
//! all samples, and a faster version of its work gains nothing.
//!
//! ```sh
//! CAUSAL=5s cargo run --release -p causeway-causal --example two_threads
//! FASTER=slow:0.2 cargo run --release -p causeway-causal --example two_threads # the ground truth
//! ```

mod work;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use causal::progress::sync::Barrier;
use causal::progress::{progress, thread};
use work::{rounds, spin};

#[inline(never)]
fn slow(rounds: u64) {
    spin::<3>(rounds);
}

#[inline(never)]
fn quick(rounds: u64) {
    spin::<5>(rounds);
}

fn main() {
    let _profile = causal::run_from_env();
    let (slowly, quickly) = (rounds("slow", 1_000_000), rounds("quick", 700_000));
    let (began, ends) = (Instant::now(), work::ends());
    let (barrier, is_over) = (Barrier::new(2), AtomicBool::new(false));
    let mut units = 0;
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                quick(quickly);
                barrier.wait();
                barrier.wait();
            }
        });
        while !is_over.load(Ordering::Relaxed) {
            slow(slowly);
            barrier.wait();
            progress!("unit");
            units += 1;
            is_over.store(Instant::now() > ends, Ordering::Relaxed);
            barrier.wait();
        }
    });
    work::say(units, began);
}

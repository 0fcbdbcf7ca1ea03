//! Two threads share a lock: a faster critical section helps both, faster work outside it hardly helps at all.
//!
//! ```sh
//! CAUSAL=5s cargo run --release -p causeway-causal --example lock
//! FASTER=inside:0.5 cargo run --release -p causeway-causal --example lock # the ground truth
//! ```

mod work;

use std::time::Instant;

use causal::progress::sync::Mutex;
use causal::progress::{progress, thread};
use work::{rounds, spin};

#[inline(never)]
fn inside(rounds: u64) {
    spin::<3>(rounds);
}

#[inline(never)]
fn outside(rounds: u64) {
    spin::<5>(rounds);
}

fn main() {
    let _profile = causal::run_from_env();
    let (inner, outer) = (rounds("inside", 300_000), rounds("outside", 200_000));
    let (began, ends) = (Instant::now(), work::ends());
    let total = Mutex::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while Instant::now() < ends {
                    outside(outer);
                    let mut total = total.lock().unwrap();
                    inside(inner);
                    *total += 1;
                    drop(total);
                    progress!("unit");
                }
            });
        }
    });
    work::say(total.into_inner().unwrap(), began);
}

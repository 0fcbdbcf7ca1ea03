//! A pipeline of two stages with a short queue between them: only the slower stage limits the rate.
//!
//! ```sh
//! CAUSAL=5s cargo run --release -p causeway-causal --example pipeline
//! FASTER=pack:0.5 cargo run --release -p causeway-causal --example pipeline # the ground truth
//! ```

mod work;

use std::time::Instant;

use causal::progress::sync::mpsc::sync_channel;
use causal::progress::{progress, thread};
use work::{rounds, spin};

#[inline(never)]
fn read(rounds: u64) {
    spin::<3>(rounds);
}

#[inline(never)]
fn parse(rounds: u64) {
    spin::<5>(rounds);
}

#[inline(never)]
fn pack(rounds: u64) {
    spin::<7>(rounds);
}

fn main() {
    let _profile = causal::run_from_env();
    let (reading, parsing, packing) = (rounds("read", 100_000), rounds("parse", 100_000), rounds("pack", 300_000));
    let (began, ends) = (Instant::now(), work::ends());
    let (sender, receiver) = sync_channel(8);
    let first = thread::spawn(move || {
        while Instant::now() < ends {
            read(reading);
            parse(parsing);
            if sender.send(()).is_err() {
                break;
            }
        }
    });
    let mut units = 0;
    while receiver.recv().is_ok() {
        pack(packing);
        progress!("item");
        units += 1;
    }
    drop(first.join());
    work::say(units, began);
}

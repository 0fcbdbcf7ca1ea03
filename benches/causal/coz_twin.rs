//! The programs of `./bench causal` for Coz: the same source, with the standard library's threads and locks and Coz's
//! progress point. It is compiled by rustc alone, with no crate except the standard library, since Coz reads DWARF 4
//! and aborts on the DWARF 5 of a workspace's libraries. Usage: `coz_twin PROGRAM SECONDS`, or `coz_twin served SECONDS
//! PORT HOT COLD` with costs in microseconds.

#![allow(dead_code, reason = "no program uses all items")]

use std::time::Duration;

mod kit;
#[path = "../src/bin/causal_case/knob.rs"]
mod knob;
#[path = "../src/bin/causal_case/planted.rs"]
mod planted;
#[path = "../src/bin/causal_case/programs.rs"]
mod programs;
mod served;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (Some(program), Some(Ok(seconds))) = (arguments.next(), arguments.next().map(|text| text.parse())) else {
        panic!("usage: coz_twin PROGRAM SECONDS")
    };
    knob::begin();
    let numbers: Vec<u64> = arguments.filter_map(|text| text.parse().ok()).collect();
    match (program.as_str(), &numbers[..]) {
        ("served", &[port, hot, cold]) => served::start(port as u16, hot, cold),
        (name, _) => assert!(programs::start(name), "unknown program '{name}'"),
    }
    std::thread::sleep(Duration::from_secs(seconds));
    println!("{}", kit::units());
    // Returning from `main` runs Coz's exit handler.
}

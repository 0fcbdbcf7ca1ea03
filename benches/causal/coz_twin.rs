//! The programs of `./bench causal` for Coz: the same text with the standard library's threads and locks and with Coz's progress point.
//! A file by itself for rustc, without a crate besides the standard library, since Coz reads DWARF 4 and aborts on DWARF 5, which the
//! libraries of a workspace have. Usage: `coz_twin PROGRAM SECONDS`, or `coz_twin served SECONDS PORT HOT COLD` with costs in microseconds.

#![allow(dead_code, reason = "a program uses some of what there is")]

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
        (name, _) => assert!(programs::start(name), "there is no program '{name}'"),
    }
    std::thread::sleep(Duration::from_secs(seconds));
    println!("{}", kit::units());
    // Returning runs what Coz has to do at the end of a program.
}

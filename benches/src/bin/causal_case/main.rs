//! The programs that `./bench causal` profiles, each with a planted cost and a knob that actually reduces it. Usage:
//! `causal_case PROGRAM [ARGUMENT…]`; `causal_case calibrate` prints the steps of a cost per millisecond.
//! `STEPS_PER_MS`, `KNOB` (percent) and `KNOB_ON` (the function whose cost is reduced) are environment variables.
//!
//! A program prints `ready` and then executes commands from standard input, with one line per command and per result:
//! `knob PERCENT`, `count` (units so far, and the time), `profile JSON` (see `profile`). It ends with the input.
//!
//! - `knob`, `planted`: costs, and the functions that have them
//! - `programs`: threads with locks, channels and barriers
//! - `serve`: our engine with a handler that has a cost
//! - `writers`: HTTP/2 with a fresh writer for each frame
//! - `profile`: the causal profiler, run once

mod kit;
mod knob;
mod planted;
mod profile;
mod programs;
mod serve;
mod writers;

use std::io::{BufRead, Write};
use std::time::Instant;

use serde_json::json;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // As in our server: mimalloc would repeatedly clear huge pages if much memory is freed between two windows.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut arguments = std::env::args().skip(1);
    let program = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    if program == "calibrate" {
        return println!("{}", knob::calibrate());
    }
    knob::begin();
    let started = match program.as_str() {
        "serve" => serve::start(&rest),
        "writers" => writers::start(&rest),
        other => programs::start(other),
    };
    assert!(started, "usage: causal_case PROGRAM [ARGUMENT…]; there is no program '{program}' with arguments {rest:?}");
    say("ready");
    let began = Instant::now();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        match (command, argument.parse::<u32>()) {
            ("knob", Ok(percent)) => {
                knob::turn(percent);
                say("turned");
            }
            ("count", _) => {
                say(&json!({ "units": kit::units(), "ns": began.elapsed().as_nanos() as u64 }).to_string());
            }
            ("profile", _) => say(&profile::run(argument).to_string()),
            _ => panic!("'{line}' is none of knob PERCENT, count, profile JSON"),
        }
    }
    // The program's threads run until the process exits.
    std::process::exit(0);
}

fn say(line: &str) {
    let mut output = std::io::stdout().lock();
    // Ignore errors: a reader that has gone away also closes the input.
    let _ = writeln!(output, "{line}");
    let _ = output.flush();
}

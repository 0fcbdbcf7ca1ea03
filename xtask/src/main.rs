//! The house's own checks: `./test` is `cargo xtask test`.
//!
//! In reading order:
//! - [`steps`]: which steps there are, and what each one runs
//! - [`stage`]: runs one command of a step, shows that it lives, keeps its output
//! - [`report`]: what a step came to, and the summary
//! - [`tools`]: programs from outside, found or installed
//! - [`layering`]: which crate may know which
//! - [`fuzz`]: a short run of every fuzz target
//! - [`conformance`]: other systems' HTTP/1.1 cases against the built server
//! - [`h2spec`]: HTTP/2's cases against it
//! - [`interop`]: gRPC and httpgrpc with programs in Go at the other end
//! - [`pages`]: the server's pages in a real browser
//! - [`server`]: the built binary, started for a step and ended with it

mod conformance;
mod fuzz;
mod h2spec;
mod interop;
mod layering;
mod pages;
mod report;
mod server;
mod stage;
mod steps;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test [--install] [quick | STEP…]
       cargo xtask layering
       cargo xtask pages URL…";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((first, rest)) if first == "test" => steps::main(rest),
        Some((first, [])) if first == "layering" => layering::main(),
        Some((first, urls)) if first == "pages" && !urls.is_empty() => pages::main(urls),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

//! The project's own checks: `./test` runs `cargo xtask test`.
//!
//! In reading order:
//! - [`steps`]: the list of steps, and the commands of each
//! - [`stage`]: runs a command of a step, shows its progress, and captures its output
//! - [`report`]: the outcome of a step, and the summary
//! - [`tools`]: external programs, found or installed
//! - [`layering`]: the allowed dependencies between crates
//! - [`prose`]: limits for unclear wording, missing comments, repeated type names and long commit subjects
//! - [`fuzz`]: a short run of every fuzz target
//! - [`conformance`]: independent HTTP/1.1 cases against the built server
//! - [`h2spec`]: HTTP/2 cases against the built server
//! - [`differential`]: random Caddyfiles and requests against the built server and Caddy
//! - [`interop`]: gRPC, httpgrpc and ACME with Go peers
//! - [`package`]: Debian's package and a tarball, and their installation
//! - [`pages`]: the server's pages in a real browser
//! - [`server`]: starts the built binary for a step and stops it afterwards

mod conformance;
mod crates;
mod dependents;
mod differential;
mod fuzz;
mod h2spec;
mod interop;
mod layering;
mod package;
mod pages;
mod prose;
mod report;
mod server;
mod stage;
mod steps;
mod tools;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask test [--install] [quick | STEP…]
       cargo xtask layering
       cargo xtask prose [--lower | --list COUNT]
       cargo xtask differential [--help | OPTION…]
       cargo xtask package [--binary FILE] [--out DIRECTORY]
       cargo xtask pages URL…";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.split_first() {
        Some((first, rest)) if first == "differential" => differential::main(rest),
        Some((first, rest)) if first == "test" => steps::main(rest),
        Some((first, [])) if first == "layering" => layering::main(),
        Some((first, rest)) if first == "prose" => prose::main(rest),
        Some((first, rest)) if first == "package" => package::main(rest),
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

//! Prints the JSON of a Caddyfile: `cargo run --example adapt -- adapt --config Caddyfile`.
//!
//! Uses the whole interface of the library: a table of directives, an environment, the text. For an error it prints
//! this project's message, with line and column, and then Caddy's wording.

use std::process::ExitCode;

use causeway_config::caddyfile::{Directives, adapt};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let given = arguments.iter().position(|argument| argument == "--config").map(|index| arguments.get(index + 1));
    let file = match given {
        None => "Caddyfile",
        Some(Some(file)) => file,
        Some(None) => {
            eprintln!("--config: expected a file name after it");
            return ExitCode::FAILURE;
        }
    };
    let source = match std::fs::read_to_string(file) {
        Ok(source) => source,
        Err(error) => {
            eprintln!("{file}: {error}");
            return ExitCode::FAILURE;
        }
    };
    match adapt(&source, file, &Directives::standard(), &|name| std::env::var(name).ok()) {
        Ok(adapted) => {
            for warning in &adapted.warnings {
                eprintln!("{}: warning: {}", warning.at, warning.message);
            }
            println!("{:#}", adapted.json);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}\n{}", error.caddy_message());
            ExitCode::FAILURE
        }
    }
}

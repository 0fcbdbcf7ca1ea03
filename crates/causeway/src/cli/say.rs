//! What is told to the operator: results on standard output, everything else on standard error.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, anyhow};
use clap::CommandFactory as _;
use clap::error::ErrorKind as Refused;

/// A result. Whoever closes the pipe early, as `head` does, has what they wanted.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    print_as_is(&format!("{text}\n"))
}

/// A result that brings its own line breaks.
pub(super) fn print_as_is(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}

/// A line about what goes on; nobody may read what cannot be printed.
pub(super) fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// What the flags' reader says: help and version as they are, a mistake as one line.
pub(super) fn refused_flags(error: &clap::Error) -> anyhow::Result<()> {
    match error.kind() {
        Refused::DisplayHelp | Refused::DisplayVersion | Refused::DisplayHelpOnMissingArgumentOrSubcommand => {
            print(error.render().to_string().trim_end())
        }
        _ => Err(anyhow!("{}", one_line(error))),
    }
}

/// The sentence and the tips of a refusal, without the usage that clap prints below them.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.split("\nUsage:").next().unwrap_or_default();
    let said = said.split("\nFor more information").next().unwrap_or_default();
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // A flag's list ends in a colon: what is missing follows on lines of its own.
    let sentence = lines.join("; ").replace(":; ", ": ");
    let given = std::env::args().nth(1).unwrap_or_default();
    let command = match super::Cli::command().find_subcommand(&given) {
        Some(command) => format!("causeway {}", command.get_name()),
        None => "causeway".to_owned(),
    };
    format!("{sentence}; `{command} --help` lists what there is")
}

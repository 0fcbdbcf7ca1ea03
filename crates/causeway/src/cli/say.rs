//! What is told to the operator: results on standard output, everything else on standard error.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, anyhow};
use clap::error::{ContextKind, ErrorKind as Refused};

/// A result. Whoever closes the pipe early, as `head` does, has what they wanted.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
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
    let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
    let command = usage.trim().trim_start_matches("Usage: ").split([' ', '\n']).take(2);
    let words: Vec<_> = command.filter(|word| word.starts_with(|c: char| c.is_ascii_lowercase())).collect();
    let command = if words.is_empty() { "causeway".to_owned() } else { words.join(" ") };
    format!("{}; `{command} --help` lists what there is", lines.join("; "))
}

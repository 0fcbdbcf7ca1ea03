//! Output to the operator: results on standard output, everything else on standard error.

use std::io::{ErrorKind, Write as _};

use anyhow::{Context as _, anyhow};
use causeway_modules::logs::is_journal;
use clap::CommandFactory as _;
use clap::error::ErrorKind as Refused;

/// Prints a result with a line break. A closed pipe, as by `head`, is not an error.
pub(super) fn print(text: &str) -> anyhow::Result<()> {
    print_as_is(&format!("{text}\n"))
}

/// Prints a result without adding a line break. A closed pipe is not an error.
pub(super) fn print_as_is(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}

/// Prints a line on standard error, ignoring failures. One write, since another process may write to the same file. The
/// journal gets the line's priority (sd-daemon(3)).
pub(super) fn note(line: &str) {
    let mut stderr = std::io::stderr();
    let priority = match line {
        _ if !is_journal(&stderr) => "",
        line if line.starts_with("Error: ") => "<3>",
        line if line.starts_with("Warning: ") => "<4>",
        _ => "<6>",
    };
    let _ = stderr.write_all(format!("{priority}{line}\n").as_bytes());
}

/// Handles clap's errors: prints help and version, and returns a mistake as one line.
pub(super) fn refused_flags(error: &clap::Error) -> anyhow::Result<()> {
    match error.kind() {
        Refused::DisplayHelp | Refused::DisplayVersion | Refused::DisplayHelpOnMissingArgumentOrSubcommand => {
            print(error.render().to_string().trim_end())
        }
        _ => Err(anyhow!("{}", one_line(error))),
    }
}

/// Returns the message and tips of a clap error, without the usage text that follows them.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let said = text.split("\nUsage:").next().unwrap_or_default();
    let said = said.split("\nFor more information").next().unwrap_or_default();
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // A line that ends in a colon introduces the missing arguments on the next lines.
    let sentence = lines.join("; ").replace(":; ", ": ");
    let (mut known, mut command) = (super::Cli::command(), "causeway".to_owned());
    for word in std::env::args().skip(1) {
        let Some(inner) = known.find_subcommand(&word) else { break };
        command = format!("{command} {}", inner.get_name());
        known = inner.clone();
    }
    format!("{sentence}; see `{command} --help`")
}

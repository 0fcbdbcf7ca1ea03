//! `fmt`: a Caddyfile as it should look.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use causeway_config::caddyfile;
use clap::Args;
use similar::{ChangeTag, TextDiff};

use super::say;
use super::source::CADDYFILE;

#[derive(Args)]
pub(super) struct Fmt {
    /// The Caddyfile; `-` reads standard input
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The same, as a flag
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the result into the file instead of printing it
    #[arg(short = 'w', long)]
    overwrite: bool,
    /// Print which lines change, marked with - and +
    #[arg(short, long)]
    diff: bool,
}

impl Fmt {
    /// Prints or writes the result; refuses a file that was not formatted, unless it now is.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let path = self.file.as_ref().or(self.config.as_ref()).cloned().unwrap_or_else(|| CADDYFILE.into());
        if path.as_os_str() == "-" {
            let mut octets = Vec::new();
            std::io::stdin().read_to_end(&mut octets).context("standard input: reading the Caddyfile")?;
            return say::print_as_is(&caddyfile::format(&octets));
        }
        let name = path.display();
        let octets = std::fs::read(&path).with_context(|| format!("{name}: reading the Caddyfile"))?;
        let formatted = caddyfile::format(&octets);
        if self.overwrite {
            return std::fs::write(&path, formatted)
                .with_context(|| format!("{name}: writing the formatted Caddyfile"));
        }
        let text = String::from_utf8_lossy(&octets);
        say::print_as_is(&if self.diff { changes(&text, &formatted) } else { formatted })?;
        match caddyfile::unformatted_at(&text) {
            Some((line, column)) => {
                bail!("{name}:{line}:{column}: the file is not formatted as printed above; --overwrite writes it so")
            }
            None => Ok(()),
        }
    }
}

/// Every line of both texts, with `- ` before what goes, `+ ` before what comes and two spaces before what stays.
fn changes(before: &str, after: &str) -> String {
    let (before, after) = (Vec::from_iter(before.split('\n')), Vec::from_iter(after.split('\n')));
    let mut lines = String::new();
    for change in TextDiff::from_slices(&before, &after).iter_all_changes() {
        lines += match change.tag() {
            ChangeTag::Equal => "  ",
            ChangeTag::Delete => "- ",
            ChangeTag::Insert => "+ ",
        };
        lines += change.value();
        lines += "\n";
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    // Caddy marks lines so; what follows the last line break is a line too.
    #[test]
    fn lines_that_change_are_marked() {
        for (before, after, want) in [
            ("a\n", "a\n", "  a\n  \n"),
            ("a", "a\n", "  a\n+ \n"),
            ("a\n b\nc\n", "a\n\tb\nc\n", "  a\n-  b\n+ \tb\n  c\n  \n"),
            ("a\n\n\nb\n", "a\n\nb\n", "  a\n  \n- \n  b\n  \n"),
        ] {
            assert_eq!(changes(before, after), want, "{before:?} {after:?}");
        }
    }
}

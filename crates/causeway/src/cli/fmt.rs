//! `fmt`: formats a Caddyfile.

use std::io::Read as _;
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use causeway_config::caddyfile;
use clap::Args;
use similar::{ChangeTag, TextDiff};

use super::output;
use super::replace::{FileMode, replace_file};
use super::source::CADDYFILE;

#[derive(Args)]
pub(super) struct Fmt {
    /// The Caddyfile; `-` reads standard input
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
    /// The Caddyfile, as a flag
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Write the result into the file instead of printing it
    #[arg(short = 'w', long)]
    overwrite: bool,
    /// Print all lines, the changed ones marked with - and +
    #[arg(short, long)]
    diff: bool,
}

impl Fmt {
    /// Prints or writes the formatted file. Without `--overwrite`, returns an error if the file was not formatted.
    pub(super) fn run(&self) -> anyhow::Result<()> {
        let path = self.file.as_ref().or(self.config.as_ref()).cloned().unwrap_or_else(|| CADDYFILE.into());
        let is_stdin = path.as_os_str() == "-";
        let name = if is_stdin { "standard input".to_owned() } else { path.display().to_string() };
        let bytes = if is_stdin {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        } else {
            std::fs::read(&path)
        };
        let bytes = bytes.with_context(|| format!("{name}: reading the Caddyfile"))?;
        // The formatter would replace other bytes, and `--overwrite` them in the file.
        let Ok(text) = std::str::from_utf8(&bytes) else {
            bail!("{name}: found bytes that are not UTF-8, expected text")
        };
        let formatted = caddyfile::format(&bytes);
        if is_stdin {
            return output::print_as_is(&formatted);
        }
        if self.overwrite {
            return replace_file(&path, formatted.as_bytes(), FileMode::Kept)
                .with_context(|| format!("{name}: writing the formatted Caddyfile"));
        }
        output::print_as_is(&if self.diff { changes(text, &formatted) } else { formatted })?;
        match caddyfile::unformatted_at(text) {
            Some((line, column)) => {
                bail!("{name}:{line}:{column}: the file is not formatted as printed above; --overwrite rewrites it")
            }
            None => Ok(()),
        }
    }
}

/// Lists every line of both texts, prefixed with `- ` if removed, `+ ` if added, and two spaces if unchanged.
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

    // The format of Caddy's diff: the text after the last line break is a line too.
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

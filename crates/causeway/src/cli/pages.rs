//! `completion` and `manpage`: text for shells and for `man`, from the definitions of the commands.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::Shell;
use clap_mangen::Man;

use super::{Cli, RunFlags, VERSION, output};

/// The manual's section: system administration, as Caddy's.
const SECTION: &str = "8";

#[derive(Args)]
pub(crate) struct Completion {
    /// The shell
    shell: ShellName,
}

/// The shells of Caddy's command.
#[derive(Clone, Copy, ValueEnum)]
enum ShellName {
    Bash,
    Zsh,
    Fish,
    Powershell,
}

#[derive(Args)]
pub(crate) struct Manpage {
    /// The directory, which is created if it does not exist
    #[arg(short = 'o', long, value_name = "DIRECTORY")]
    directory: PathBuf,
}

impl Completion {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let shell = match self.shell {
            ShellName::Bash => Shell::Bash,
            ShellName::Zsh => Shell::Zsh,
            ShellName::Fish => Shell::Fish,
            ShellName::Powershell => Shell::PowerShell,
        };
        let mut script = Vec::new();
        // clap_complete lists hidden flags too, and `run` has one for `start`.
        let mut command = Cli::command().mut_subcommand("run", |run| {
            let about = run.get_about().cloned().unwrap_or_default();
            RunFlags::augment_args(clap::Command::new("run")).about(about)
        });
        clap_complete::generate(shell, &mut command, "causeway", &mut script);
        output::print_as_is(&String::from_utf8(script).context("the script is not UTF-8")?)
    }
}

impl Manpage {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let directory = self.directory.display();
        std::fs::create_dir_all(&self.directory).with_context(|| format!("--directory {directory}"))?;
        let mut root = Cli::command();
        // Gives the commands their full names.
        root.build();
        write(&root, "causeway", &self.directory)
    }
}

/// Writes the page of a command, named `full`, and those of its commands.
fn write(command: &clap::Command, full: &str, directory: &Path) -> anyhow::Result<()> {
    let path = directory.join(format!("{full}.{SECTION}"));
    let mut page = Vec::new();
    // The page writes the `v` of the version itself.
    let command = command.clone().version(env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).title(full).section(SECTION).source(format!("causeway {VERSION}"));
    man.render(&mut page).with_context(|| path.display().to_string())?;
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write(inner, &format!("{full}-{}", inner.get_name()), directory)?;
    }
    Ok(())
}

//! Commands and their flags: Caddy's names and meanings, and a few of our own.
//!
//! - `source`: where the configuration comes from
//! - `environment`: the variables that a Caddyfile may name
//! - `fmt`: a Caddyfile's look
//! - `hash_password`: what a password becomes before it stands in a configuration
//! - `quick`: `file-server` and `respond`, which write their own configuration
//! - `serve`: from a configuration to a running server and its end
//! - `say`: what is told to the operator, and how
//!
//! An operator's mistake is one line on standard error and the exit status 1, and nothing is left running. Only `adapt` says
//! a Caddyfile's mistake twice, the second time in Caddy's own words, for scripts that look for them.

mod environment;
mod fmt;
mod hash_password;
mod quick;
mod say;
mod serve;
mod source;

use std::process::ExitCode;

use anyhow::Context as _;
use causeway_config::{caddyfile, plan};
use clap::{Args, Parser, Subcommand};

use source::ConfigFlags;

/// Causeway: a web server that runs Caddyfiles.
#[derive(Parser)]
#[command(name = "causeway", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a Caddyfile, a JSON configuration, or the welcome site where there is neither
    Run(Run),
    /// Serve the files of a folder
    FileServer(quick::FileServer),
    /// Answer every request the same way
    Respond(quick::Respond),
    /// Print a Caddyfile as JSON
    Adapt(Adapt),
    /// Put a Caddyfile's indentation and blanks in order
    Fmt(fmt::Fmt),
    /// Check a configuration without serving it
    Validate(ConfigFlags),
    /// Print the hash of a password, for `basic_auth`
    HashPassword(hash_password::HashPassword),
    /// Print the version
    Version,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    config: ConfigFlags,
    /// Where the welcome site listens, as in `:8081` or `127.0.0.1:0`
    #[arg(short, long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<String>,
    /// Print the environment before anything else
    #[arg(short, long)]
    environ: bool,
    #[command(flatten)]
    serve: serve::ServeFlags,
}

#[derive(Args)]
struct Adapt {
    #[command(flatten)]
    config: ConfigFlags,
    /// Indent the JSON for people
    #[arg(short, long)]
    pretty: bool,
    /// Also check that what it says can be served
    #[arg(long)]
    validate: bool,
}

/// Does what the command line says.
pub(crate) fn main() -> ExitCode {
    let outcome = match Cli::try_parse() {
        Ok(cli) => cli.run(),
        Err(error) => say::refused_flags(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::note(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::FileServer(flags) => flags.run(),
            Command::Respond(flags) => flags.run(),
            Command::Adapt(adapt) => adapt.run(),
            Command::Fmt(fmt) => fmt.run(),
            Command::Validate(flags) => {
                let source = flags.find()?.context(NOTHING_NAMED)?;
                source.load()?;
                say::print(&format!("{} is valid", source.name))
            }
            Command::HashPassword(flags) => flags.run(),
            Command::Version => say::print(&format!("causeway v{}", env!("CARGO_PKG_VERSION"))),
        }
    }
}

const NOTHING_NAMED: &str = "no configuration: there is no Caddyfile in this folder, and --config names no file";

impl Run {
    fn run(&self) -> anyhow::Result<()> {
        if self.environ {
            environment::print()?;
        }
        let (source, site) = match (self.config.find()?, &self.listen) {
            (Some(source), Some(_)) => {
                anyhow::bail!("--listen is for the welcome site; {} names its own addresses", source.name)
            }
            (Some(source), None) => (source, serve::Site::Configured),
            (None, listen) => (source::welcome(listen.as_deref()), serve::Site::Welcome),
        };
        let adapted = source.load()?;
        serve::serve(adapted.loaded, &source.name, site, adapted.verbosity.max(self.serve.verbosity()), &self.serve)
    }
}

impl Adapt {
    fn run(&self) -> anyhow::Result<()> {
        let source = self.config.find()?.context(NOTHING_NAMED)?;
        let json = source.adapt(&caddyfile::Directives::standard()).map_err(in_caddys_words_too)?.json;
        if self.validate {
            source.load()?;
        }
        say::print(&if self.pretty { serde_json::to_string_pretty(&json)? } else { json.to_string() })
    }
}

/// A Caddyfile's mistake with Caddy's wording on a second line, unless the first holds it already.
fn in_caddys_words_too(error: anyhow::Error) -> anyhow::Error {
    let Some(mistake) = error.downcast_ref::<caddyfile::Error>() else { return error };
    let (ours, theirs) = (mistake.to_string(), mistake.caddy_message());
    if ours.contains(&theirs) { error } else { anyhow::anyhow!("{ours}\n{theirs}") }
}

/// Compiles a configuration that one of our own commands wrote.
fn compile(json: &serde_json::Value) -> anyhow::Result<plan::Loaded> {
    Ok(plan::load(json, &causeway::registry())?)
}

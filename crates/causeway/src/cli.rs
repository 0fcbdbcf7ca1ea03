//! Commands and their flags: Caddy's names and meanings, and a few of our own.
//!
//! - `source`: where the configuration comes from
//! - `quick`: `file-server` and `respond`, which write their own
//! - `serve`: from a configuration to a running server and its end

mod quick;
mod serve;
mod source;

use anyhow::Context as _;
use causeway_config::plan;
use clap::{Args, Parser, Subcommand};

use source::ConfigFlags;

/// Causeway: a web server that runs Caddyfiles.
#[derive(Parser)]
#[command(name = "causeway", version, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
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
    /// Check a configuration without serving it
    Validate(ConfigFlags),
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

impl Cli {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(run) => run.run(),
            Command::FileServer(flags) => flags.run(),
            Command::Respond(flags) => flags.run(),
            Command::Adapt(adapt) => adapt.run(),
            Command::Validate(flags) => {
                let source =
                    flags.find()?.context("no configuration: there is no Caddyfile here, and --config names none")?;
                source.load()?;
                println!("Valid configuration");
                Ok(())
            }
            Command::Version => {
                println!("causeway v{}", env!("CARGO_PKG_VERSION"));
                Ok(())
            }
        }
    }
}

impl Run {
    fn run(&self) -> anyhow::Result<()> {
        let (source, site) = match (self.config.find()?, &self.listen) {
            (Some(source), Some(_)) => {
                anyhow::bail!("--listen is for the welcome site; {} names its own addresses", source.name)
            }
            (Some(source), None) => (source, serve::Site::Configured),
            (None, listen) => (source::welcome(listen.as_deref()), serve::Site::Welcome),
        };
        serve::serve(&source, site, &self.serve)
    }
}

impl Adapt {
    fn run(&self) -> anyhow::Result<()> {
        let source = self.config.find()?.context("no Caddyfile here, and --config names none")?;
        let json = if self.validate {
            source.load()?.0
        } else {
            source.adapt(&causeway_config::caddyfile::Directives::standard())?.json
        };
        if self.pretty {
            println!("{}", serde_json::to_string_pretty(&json)?);
        } else {
            println!("{json}");
        }
        Ok(())
    }
}

/// Compiles a configuration that one of our own commands wrote.
fn compile(json: &serde_json::Value) -> anyhow::Result<plan::Loaded> {
    Ok(plan::load(json, &causeway::registry())?)
}

//! Commands and their flags: Caddy's names and meanings, and a few of our own.
//!
//! - `source`: where the configuration comes from
//! - `environment`: the variables that a Caddyfile may name
//! - `fmt`: a Caddyfile's look
//! - `hash_password`: what a password becomes before it stands in a configuration
//! - `quick`: `file-server` and `respond`, which write their own configuration
//! - `serve`: from a configuration to a running server and its end
//! - `start`: the same in the background
//! - `client`: `stop` and `reload`, which talk to a server that runs
//! - `profile`: `profile`, which does so for the causal profiler
//! - `modules`: `list-modules`
//! - `say`: what is told to the operator, and how
//!
//! An operator's mistake is one line on standard error and the exit status 1, and nothing is left running. Only `adapt` says
//! a Caddyfile's mistake twice, the second time in Caddy's own words, for scripts that look for them.

mod client;
mod environment;
mod fmt;
mod hash_password;
mod modules;
mod profile;
mod quick;
mod say;
mod serve;
mod source;
mod start;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use causeway::document::{Document, Language, Mistake};
use causeway::server::{self, autosave_path};
use causeway_config::caddyfile;
use clap::{Args, Parser, Subcommand};

use serve::{Serving, Site, Watch};
use source::{ConfigFlags, Source};

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
    /// Do what `run` does in the background, and return once it serves
    Start(start::Start),
    /// Stop a server by way of its admin API
    Stop(client::Stop),
    /// Give a server that runs another configuration, by way of its admin API
    Reload(client::Reload),
    /// Find out what would make a server that runs faster, and by how much
    Profile(profile::Profile),
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
    /// Print the names of all modules that a configuration may use
    ListModules(modules::ListModules),
    /// Print the environment as `run` would see it
    Environ(Environ),
    /// Print the version
    Version,
}

#[derive(Args)]
struct Run {
    #[command(flatten)]
    run: RunFlags,
    /// Who waits to hear that it serves: `start`
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pingback: Option<SocketAddr>,
}

/// What `run` and `start` may be told.
#[derive(Args)]
struct RunFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Where the welcome site listens, as in `:8081` or `127.0.0.1:0`
    #[arg(short, long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<String>,
    /// Print the environment before anything else
    #[arg(short, long)]
    environ: bool,
    /// Serve the configuration that was loaded last, if one was kept, rather than --config
    #[arg(short, long)]
    resume: bool,
    /// Look at the configuration's file every second and load what changed; for development
    #[arg(short, long)]
    watch: bool,
    #[command(flatten)]
    serve: serve::ServeFlags,
}

#[derive(Args)]
struct Environ {
    /// A file of NAME=value lines; may be repeated
    #[arg(long, value_name = "FILE")]
    envfile: Vec<PathBuf>,
}

/// A mistake that another process has told the operator.
#[derive(Debug)]
struct AlreadySaid;

impl std::fmt::Display for AlreadySaid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server did not start")
    }
}

impl std::error::Error for AlreadySaid {}

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
        Err(error) if error.is::<AlreadySaid>() => ExitCode::FAILURE,
        Err(error) => {
            say::note(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

impl Cli {
    fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(Run { run, pingback }) => run.run(pingback),
            Command::Start(start) => start.run(),
            Command::Stop(stop) => stop.run(),
            Command::Reload(reload) => reload.run(),
            Command::Profile(profile) => profile.run(),
            Command::FileServer(flags) => flags.run(),
            Command::Respond(flags) => flags.run(),
            Command::Adapt(adapt) => adapt.run(),
            Command::Fmt(fmt) => fmt.run(),
            Command::Validate(flags) => {
                let source = flags.read()?;
                let adapted = source.adapt()?;
                source::warn(&adapted);
                source.validate(&adapted)?;
                say::print(&format!("{} is valid", source.name()))
            }
            Command::HashPassword(flags) => flags.run(),
            Command::ListModules(list) => list.run(),
            Command::Environ(environ) => environment::print(&environ.envfile),
            Command::Version => say::print(&format!("causeway v{}", env!("CARGO_PKG_VERSION"))),
        }
    }
}

impl RunFlags {
    fn run(&self, pingback: Option<SocketAddr>) -> anyhow::Result<()> {
        if self.environ {
            environment::print(&self.config.envfile)?;
        }
        let (source, site) = self.source()?;
        let adapted = source.adapt()?;
        source::warn(&adapted);
        let follows = source.file.clone().map(|file| {
            let adapter = source.document.language.adapter().to_owned();
            let watch = if self.watch { Watch::EverySecond } else { Watch::No };
            serve::followed(&self.config, server::Source { file, adapter }, watch)
        });
        if self.watch && follows.is_none() {
            bail!("--watch: found {}, expected a configuration in a file", source.name());
        }
        let name = source.name().to_owned();
        let Source { document, environment, .. } = source;
        serve::serve(Serving { site, name, document, adapted, environment, follows, pingback }, &self.serve)
    }

    fn source(&self) -> anyhow::Result<(Source, Site)> {
        if self.resume
            && let Some(source) = self.resumed()?
        {
            return Ok((source, Site::Configured));
        }
        Ok(match (self.config.find()?, &self.listen) {
            (Some(source), Some(_)) => {
                bail!("--listen is for the welcome site; {} names its own addresses", source.name())
            }
            (Some(source), None) => (source, Site::Configured),
            (None, listen) => (source::welcome(listen.as_deref()), Site::Welcome),
        })
    }

    /// The configuration that was loaded last; `None` when none was kept.
    fn resumed(&self) -> anyhow::Result<Option<Source>> {
        let path = autosave_path().context("--resume: neither XDG_CONFIG_HOME nor HOME says where it was kept")?;
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                say::note(&format!("--resume: there is no {name} yet"));
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| format!("{name}: reading the configuration")),
        };
        if self.config.config.is_some() {
            say::note(&format!("Warning: --config is ignored: --resume goes on with {name}"));
        }
        let environment = environment::Environment::read(&self.config.envfile)?;
        let document = Document { name, text, language: Language::Json };
        Ok(Some(Source { document, environment: environment.into(), file: None }))
    }
}

impl Adapt {
    fn run(&self) -> anyhow::Result<()> {
        let source = self.config.read()?;
        let adapted = source.adapt_with(&caddyfile::Directives::standard()).map_err(in_caddys_words_too)?;
        source::warn(&adapted);
        if self.validate {
            source.validate(&source.adapt()?)?;
        }
        let json = &adapted.json;
        say::print(&if self.pretty { serde_json::to_string_pretty(json)? } else { json.to_string() })
    }
}

/// A Caddyfile's mistake with Caddy's wording on a second line, unless the first holds it already.
fn in_caddys_words_too(error: anyhow::Error) -> anyhow::Error {
    let Some(Mistake::Caddyfile(mistake)) = error.downcast_ref() else { return error };
    let (ours, theirs) = (mistake.to_string(), mistake.caddy_message());
    if ours.contains(&theirs) { error } else { anyhow::anyhow!("{ours}\n{theirs}") }
}

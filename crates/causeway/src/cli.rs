//! Commands and their flags. Names and meanings are Caddy's, with a few additions.
//!
//! - `source`: finds and reads the configuration
//! - `environment`: the variables available to a Caddyfile
//! - `fmt`: formats a Caddyfile
//! - `hash_password`: hashes a password for a configuration
//! - `quick`: `file-server`, `respond` and `reverse-proxy`, which generate their configuration
//! - `serve`: runs a server from its start to its shutdown
//! - `start`: runs a server in the background
//! - `client`: `stop`, `reload`, `upgrade` and `status`, clients of a running server's admin API
//! - `profile`: `profile`, a client of the causal profiler
//! - `trust`: `trust` and `untrust`
//! - `storage`: `storage export` and `storage import`
//! - `modules`: `list-modules`; `build`: `build-info`
//! - `pages`: `completion` and `manpage`
//! - `output`: output to the operator
//!
//! A mistake of the operator prints one line on standard error and exits with status 1; nothing keeps running. Only
//! `adapt` prints a Caddyfile's mistake on two lines: the second has Caddy's wording, for scripts that search for it.

mod build;
mod client;
mod environment;
mod fmt;
mod hash_password;
mod modules;
mod output;
mod pages;
mod profile;
mod quick;
mod replace;
mod serve;
mod source;
mod start;
mod storage;
mod trust;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use causeway::document::{Document, DocumentError, Language};
use causeway::server::{self, autosave_path};
use causeway_config::caddyfile;
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use serve::{Predecessor, Serving, SiteKind, Watch};
use source::{ConfigFlags, ConfigSource};

/// The version, as printed by `version` and `--version`.
const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Causeway: a web server that runs Caddyfiles.
#[derive(Parser)]
#[command(name = "causeway", version = VERSION, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a Caddyfile, a JSON configuration, or the welcome site if there is neither
    Run(RunCommand),
    /// Run a server in the background, and return once it accepts connections
    Start(start::Start),
    /// Stop a running server through its admin API
    Stop(client::StopCommand),
    /// Load another configuration into a running server, through its admin API
    Reload(client::Reload),
    /// Let a new process take the place of a running server, without closing a connection
    Upgrade(client::UpgradeCommand),
    /// Print the state of a running server, from its admin API
    Status(client::StatusCommand),
    /// Measure which code would make a running server faster, and by how much
    Profile(profile::Profile),
    /// Add the root certificate of a local authority to the trust stores of this machine
    Trust(trust::Trust),
    /// Remove a root certificate from the trust stores of this machine
    Untrust(trust::Untrust),
    /// Export or import the certificates, keys and accounts in a storage
    #[command(subcommand)]
    Storage(storage::StorageCommand),
    /// Serve the files of a directory
    FileServer(quick::FileServer),
    /// Answer every request with a fixed response
    Respond(quick::Respond),
    /// Pass requests on to other servers
    ReverseProxy(quick::ReverseProxy),
    /// Print a Caddyfile as JSON
    Adapt(Adapt),
    /// Format a Caddyfile's indentation and spacing
    Fmt(fmt::Fmt),
    /// Check a configuration without serving it
    Validate(ConfigFlags),
    /// Print the hash of a password, for `basic_auth`
    HashPassword(hash_password::HashPassword),
    /// Print the names of all modules that a configuration may use
    ListModules(modules::ListModules),
    /// Print facts about this build
    BuildInfo,
    /// Print a script that completes commands and flags in a shell
    Completion(pages::Completion),
    /// Write the manual pages of all commands into a directory
    Manpage(pages::Manpage),
    /// Print the environment as `run` would see it
    Environ(Environ),
    /// Print the version
    Version,
}

#[derive(Args)]
struct RunCommand {
    #[command(flatten)]
    run: RunFlags,
    /// Address at which `start` waits for the message that the server is running
    #[arg(long, value_name = "ADDRESS", hide = true)]
    pingback: Option<SocketAddr>,
}

/// Flags of `run` and `start`.
#[derive(Args)]
struct RunFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Address of the welcome site, such as `:8081` or `127.0.0.1:0`
    #[arg(short, long, value_name = "ADDRESS", conflicts_with = "config")]
    listen: Option<String>,
    /// Print the environment before anything else
    #[arg(short, long)]
    environ: bool,
    /// Serve the last loaded configuration, if one was saved, instead of --config
    #[arg(short, long)]
    resume: bool,
    /// Check the configuration file every second and reload it when it changes; for development
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

/// An error which another process has already printed.
#[derive(Debug)]
struct AlreadyReported;

impl std::fmt::Display for AlreadyReported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the server did not start")
    }
}

impl std::error::Error for AlreadyReported {}

#[derive(Args)]
struct Adapt {
    #[command(flatten)]
    config: ConfigFlags,
    /// Indent the JSON
    #[arg(short, long)]
    pretty: bool,
    /// Also check that the configuration can be served
    #[arg(long)]
    validate: bool,
    /// Language of the output: `json`, or `caddyfile` with `--adapter nginx`
    #[arg(long, value_name = "LANGUAGE", default_value = "json")]
    to: OutputLanguage,
}

/// The language of `adapt`'s output.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq)]
enum OutputLanguage {
    Json,
    Caddyfile,
}

/// Parses the command line and runs the command.
pub(crate) fn main() -> ExitCode {
    if let Some(status) = serve::run_launcher() {
        return status;
    }
    let command = accept_values_of_switches(Cli::command()).args_override_self(true);
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let outcome = match parsed {
        Ok(cli) => cli.run(),
        Err(error) => output::refused_flags(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<AlreadyReported>() => ExitCode::FAILURE,
        Err(error) => {
            output::note(&format!("Error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Lets every switch have a value, such as `--watch=false`. As in Caddy, the last of repeated flags applies, so a
/// script can append its own.
fn accept_values_of_switches(command: clap::Command) -> clap::Command {
    let accept = |switch: Arg| match switch.get_action() {
        ArgAction::SetTrue => switch
            .action(ArgAction::Set)
            .num_args(0..=1)
            .require_equals(true)
            .value_name("true|false")
            .value_parser(BoolishValueParser::new())
            .default_value("false")
            .default_missing_value("true")
            .hide_default_value(true)
            .hide_possible_values(true),
        _ => switch,
    };
    command.mut_args(accept).mut_subcommands(accept_values_of_switches)
}

impl Cli {
    fn run(self) -> anyhow::Result<()> {
        match self.command {
            Command::Run(RunCommand { run, pingback }) => run.run(pingback),
            Command::Start(start) => start.run(),
            Command::Stop(stop) => stop.run(),
            Command::Reload(reload) => reload.run(),
            Command::Upgrade(upgrade) => upgrade.run(),
            Command::Status(status) => status.run(),
            Command::Profile(profile) => profile.run(),
            Command::Trust(trust) => trust.run(),
            Command::Untrust(untrust) => untrust.run(),
            Command::Storage(command) => command.run(),
            Command::FileServer(flags) => flags.run(),
            Command::Respond(flags) => flags.run(),
            Command::ReverseProxy(flags) => flags.run(),
            Command::Adapt(adapt) => adapt.run(),
            Command::Fmt(fmt) => fmt.run(),
            Command::Validate(flags) => {
                let source = flags.read()?;
                source.print_notes();
                let adapted = source.adapt()?;
                source::warn_before_load(&source.document, &adapted);
                for note in source.validate(&adapted)? {
                    output::note(&format!("Warning: {}", source.document.explain_note(&adapted, &note)));
                }
                output::print(&format!("{} is valid", source.name()))
            }
            Command::HashPassword(flags) => flags.run(),
            Command::ListModules(list) => list.run(),
            Command::BuildInfo => output::print(&build::facts()),
            Command::Completion(completion) => completion.run(),
            Command::Manpage(manpage) => manpage.run(),
            Command::Environ(environ) => environment::print(&environ.envfile),
            Command::Version => output::print(&format!("causeway {VERSION}")),
        }
    }
}

impl RunFlags {
    fn run(&self, pingback: Option<SocketAddr>) -> anyhow::Result<()> {
        let predecessor = Predecessor::connect()?;
        let stream = predecessor.as_ref().and_then(Predecessor::stream);
        Predecessor::report(stream, self.run_after(predecessor, pingback))
    }

    fn run_after(&self, predecessor: Option<Predecessor>, pingback: Option<SocketAddr>) -> anyhow::Result<()> {
        if self.environ {
            environment::print(&self.config.envfile)?;
        }
        let (source, site) = match &predecessor {
            Some(predecessor) => predecessor.source(&self.config)?,
            None => self.source()?,
        };
        source.print_notes();
        let adapted = source.adapt()?;
        source::warn_before_load(&source.document, &adapted);
        // Only a configuration from a file can be reloaded by SIGUSR1 or a watch.
        let (file, is_replaced) = match &predecessor {
            Some(predecessor) => predecessor.file(),
            None => {
                let adapter = source.document.language.adapter().to_owned();
                (source.file.clone().map(|file| server::ConfigFile { file, adapter }), false)
            }
        };
        let watch = if self.watch { Watch::EverySecond } else { Watch::No };
        let follows = file.map(|file| serve::followed(&self.config, file, watch, is_replaced));
        // A former process has sent its last word to the `start` that waits for it.
        let pingback = pingback.filter(|_| predecessor.is_none());
        let name = source.name().to_owned();
        let ConfigSource { document, environment, .. } = source;
        serve::serve(
            Serving { site, name, document, adapted, environment, follows, pingback, predecessor },
            &self.serve,
        )
    }

    fn source(&self) -> anyhow::Result<(ConfigSource, SiteKind)> {
        if self.resume
            && let Some(source) = self.resumed()?
        {
            return Ok((source, SiteKind::Configured));
        }
        let (source, site) = match (self.config.find()?, &self.listen) {
            (Some(source), Some(_)) => {
                bail!("--listen is for the welcome site; {} names its own addresses", source.name())
            }
            (Some(source), None) => (source, SiteKind::Configured),
            (None, listen) => (source::welcome(listen.as_deref()), SiteKind::Welcome),
        };
        if self.watch && source.file.is_none() {
            bail!("--watch: found {}, expected a configuration in a file", source.name());
        }
        Ok((source, site))
    }

    /// Reads the last loaded configuration; `None` when none was saved.
    fn resumed(&self) -> anyhow::Result<Option<ConfigSource>> {
        let environment = environment::EnvironmentFiles::read(&self.config.envfile)?;
        let path = autosave_path(&|name| environment.get(name))
            .context("--resume: neither XDG_CONFIG_HOME nor HOME is set")?;
        let name = path.display().to_string();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                output::note(&format!("--resume: there is no {name} yet"));
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| format!("{name}: reading the configuration")),
        };
        if self.config.config.is_some() {
            output::note(&format!("Warning: --config is ignored: --resume loads {name}"));
        }
        if self.watch {
            // No error: a command line with both flags would start a server only as long as nothing was saved.
            output::note(&format!("Warning: --watch is ignored: --resume loads {name}"));
        }
        let document = Document { name, text, language: Language::Json };
        Ok(Some(ConfigSource {
            document,
            environment: environment.into(),
            file: None,
            notes: Vec::new(),
            is_translated: false,
        }))
    }
}

impl Adapt {
    fn run(&self) -> anyhow::Result<()> {
        let mut config = self.config.clone();
        // As in Caddy, the input is a Caddyfile by any name. Only JSON's own name means JSON.
        if config.config.as_deref().and_then(Path::extension).is_none_or(|extension| extension != "json") {
            config.adapter.get_or_insert_with(|| Language::Caddyfile.adapter().to_owned());
        }
        let source = config.read()?;
        source.print_notes();
        if self.to == OutputLanguage::Caddyfile {
            if self.config.adapter.as_deref() != Some("nginx") {
                bail!(
                    "--to caddyfile: found no --adapter nginx, expected it: other configurations are printed as JSON"
                );
            }
            if self.validate {
                source.validate(&source.adapt()?)?;
            }
            return output::print(source.document.text.trim_end());
        }
        let adapted = source.adapt_with(&caddyfile::Directives::standard()).map_err(with_caddy_message)?;
        source::warn(&adapted.warnings);
        if self.validate {
            source.validate(&source.adapt()?)?;
        }
        let json = &adapted.json;
        output::print(&if self.pretty { serde_json::to_string_pretty(json)? } else { json.to_string() })
    }
}

/// Adds Caddy's wording of a Caddyfile's mistake on a second line, unless the first line contains it.
fn with_caddy_message(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<DocumentError>() {
        Some(mistake) => anyhow::anyhow!("{}", mistake.with_caddys_words()),
        None => error,
    }
}

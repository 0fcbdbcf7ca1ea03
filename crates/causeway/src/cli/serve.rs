//! From a compiled configuration to a running server and its end.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use causeway_config::plan::Loaded;
use causeway_engine::{BlockingSpec, Engine, EngineSpec, StartError};
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::say;

/// The exit status when a second signal ends what the first let finish; Caddy's number.
const FORCED: i32 = 2;

/// How the server runs, whatever it serves.
#[derive(Args)]
pub(crate) struct ServeFlags {
    /// Worker threads; by default one per core
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How long requests under way may take to end when the server is stopped, in seconds
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Write the process id to this file while the server runs
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Also print what is only of use when something is wrong
    #[arg(short = 'v', long)]
    debug: bool,
}

impl ServeFlags {
    pub(crate) fn verbosity(&self) -> Verbosity {
        if self.debug { Verbosity::Debug } else { Verbosity::Normal }
    }
}

/// How much the server says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    Normal,
    Debug,
}

/// What is served, as far as the first lines differ by it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// The embedded one.
    Welcome,
    /// The operator's own, from a configuration.
    Configured,
    /// What the flags of `file-server` say.
    Flags,
    /// What the flags of `respond` say; like Caddy's it prints its addresses for programs too.
    Answer,
}

/// Serves, under the name that messages give it, until a signal ends it.
pub(crate) fn serve(
    loaded: Loaded,
    name: &str,
    site: Site,
    verbosity: Verbosity,
    flags: &ServeFlags,
) -> anyhow::Result<()> {
    log_to_stderr(verbosity);
    let descriptors = raise_descriptor_limit();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = flags.workers.map_or(cores, usize::from);
    let grace = flags.grace.map_or(loaded.grace, Duration::from_secs);
    tracing::debug!(workers, grace_s = grace.as_secs(), ?descriptors, "starting with these bounds");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        // Before the first line is out, so that whoever waits for it may signal at once.
        let mut signals = Signals::new()?;
        let spec = EngineSpec {
            workers,
            listeners: loaded.listeners,
            plan: Arc::new(loaded.plan),
            blocking: BlockingSpec::default(),
            access: Box::new(std::io::stderr()),
        };
        let engine = Engine::start(spec).map_err(|error| explain(error, name, site))?;
        // Only now: a start that fails leaves no file, nor overwrites that of a server that runs.
        let pidfile = flags.pidfile.as_deref().map(PidFile::write).transpose()?;
        say::note(&first_line(name, site, engine.addresses(), workers));
        if site == Site::Answer {
            let lines: Vec<_> = engine.addresses().iter().map(|address| format!("Server address: {address}")).collect();
            say::print(&lines.join("\n"))?;
        }
        signals.end().await;
        say::note(&format!("Stopping: requests have {} s to end; a second signal ends them at once", grace.as_secs()));
        tokio::select! {
            () = engine.drain(grace) => Ok(()),
            () = signals.end() => {
                drop(pidfile);
                std::process::exit(FORCED)
            }
        }
    })
}

/// The signals that end a server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        // A terminal that closes sends this to what was left running; once listened for, it ends nothing, as in Caddy.
        drop(listen(SignalKind::hangup())?);
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Until the next one comes.
    async fn end(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// A file with our process id; gone when this is dropped.
struct PidFile<'p>(&'p Path);

impl<'p> PidFile<'p> {
    fn write(path: &'p Path) -> anyhow::Result<Self> {
        std::fs::write(path, format!("{}\n", std::process::id()))
            .with_context(|| format!("{}: writing the process id", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        // Someone may have removed it already.
        let _ = std::fs::remove_file(self.0);
    }
}

fn explain(error: StartError, name: &str, site: Site) -> anyhow::Error {
    let taken = matches!(&error, StartError::Bind(bind) if bind.error.kind() == std::io::ErrorKind::AddrInUse);
    let command = match site {
        Site::Configured => return anyhow!("{name}: {error}"),
        Site::Welcome => "run",
        Site::Flags => "file-server",
        Site::Answer => "respond",
    };
    if !taken {
        return error.into();
    }
    anyhow!("{error}; choose another with --listen, as in `causeway {command} --listen :8081`")
}

fn first_line(name: &str, site: Site, addresses: &[SocketAddr], workers: usize) -> String {
    let urls: Vec<_> = addresses.iter().map(url).collect();
    let urls = if urls.is_empty() { "nothing: it names no site".to_owned() } else { urls.join(", ") };
    if site == Site::Welcome {
        return format!("Causeway serves the welcome site on {urls}; write a Caddyfile here to serve your own");
    }
    let threads = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    format!("Causeway serves {name} on {urls} with {threads}")
}

/// An address that a person can open: the wildcard is reached by way of localhost.
fn url(address: &SocketAddr) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let port = if address.port() == 80 { String::new() } else { format!(":{}", address.port()) };
    format!("http://{host}{port}")
}

fn log_to_stderr(verbosity: Verbosity) {
    let level = match verbosity {
        Verbosity::Debug => tracing::Level::DEBUG,
        Verbosity::Normal => tracing::Level::INFO,
    };
    // Fails only when a subscriber is there already, as in a program that embeds us.
    let _ = tracing_subscriber::fmt()
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .with_writer(std::io::stderr)
        .with_max_level(level)
        .with_target(false)
        .try_init();
}

/// Every connection is a descriptor: the soft limit, often 1024, is raised to the hard one. Where that is refused, accepting
/// pauses when they run out. Says what holds then; `None` is no limit.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current
}

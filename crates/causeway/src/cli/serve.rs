//! From a configuration to a running server and its end.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use causeway_config::plan::Loaded;
use causeway_engine::{BlockingSpec, Engine, EngineSpec, StartError};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::source::Source;

/// How the server runs, whatever it serves.
#[derive(Args)]
pub(crate) struct ServeFlags {
    /// Worker threads; by default one per core
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How long requests under way may take to end when the server is stopped, in seconds
    #[arg(long, value_name = "SECONDS")]
    grace: Option<u64>,
    /// Also print what is only of use when something is wrong
    #[arg(short = 'v', long)]
    debug: bool,
}

/// What the first line says is served.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// The embedded one.
    Welcome,
    /// The operator's own.
    Configured,
}

/// Serves until a signal ends it.
pub(crate) fn serve(source: &Source, site: Site, flags: &ServeFlags) -> anyhow::Result<()> {
    let (_, loaded) = source.load()?;
    serve_loaded(loaded, &source.name, site, flags)
}

/// Serves what was compiled already, under the name that messages give it.
pub(crate) fn serve_loaded(loaded: Loaded, name: &str, site: Site, flags: &ServeFlags) -> anyhow::Result<()> {
    log_to_stderr(flags.debug);
    raise_descriptor_limit();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = flags.workers.map_or(cores, usize::from);
    let grace = flags.grace.map_or(loaded.grace, Duration::from_secs);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        // Before the first line is out, so that whoever waits for it may signal at once.
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let spec = EngineSpec {
            workers,
            listeners: loaded.listeners,
            plan: Arc::new(loaded.plan),
            blocking: BlockingSpec::default(),
            access: Box::new(std::io::stderr()),
        };
        let engine = Engine::start(spec).map_err(|error| explain(error, site))?;
        eprintln!("{}", first_line(name, site, engine.addresses(), workers));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        eprintln!("Stopping: requests under way have {} s to end; a second signal ends them at once", grace.as_secs());
        tokio::select! {
            () = engine.drain(grace) => Ok(()),
            _ = interrupt.recv() => std::process::exit(1),
            _ = terminate.recv() => std::process::exit(1),
        }
    })
}

fn explain(error: StartError, site: Site) -> anyhow::Error {
    let taken = matches!(&error, StartError::Bind(bind) if bind.error.kind() == std::io::ErrorKind::AddrInUse);
    if taken && site == Site::Welcome {
        anyhow::anyhow!("{error}; choose another with --listen, as in `causeway run --listen :8081`")
    } else {
        error.into()
    }
}

fn first_line(name: &str, site: Site, addresses: &[SocketAddr], workers: usize) -> String {
    let urls: Vec<_> = addresses.iter().map(url).collect();
    let urls = if urls.is_empty() { "nothing: it names no site".to_owned() } else { urls.join(", ") };
    match site {
        Site::Welcome => {
            format!("Causeway serves the welcome site on {urls}; write a Caddyfile here to serve your own")
        }
        Site::Configured => {
            let threads = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
            format!("Causeway serves {name} on {urls} with {threads}")
        }
    }
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

fn log_to_stderr(debug: bool) {
    let level = if debug { tracing::Level::DEBUG } else { tracing::Level::INFO };
    // Fails only when a subscriber is there already, as in a program that embeds us.
    let _ = tracing_subscriber::fmt().with_writer(std::io::stderr).with_max_level(level).with_target(false).try_init();
}

/// Every connection is a descriptor: the soft limit, often 1024, is raised to the hard one. Where that is refused, accepting
/// pauses when they run out.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

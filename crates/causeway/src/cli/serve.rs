//! From a configuration to a running server and its end.
//!
//! - `signals`: what the system tells it
//! - `follow`: the file it came from, read again
//! - `log`: how much is said

mod follow;
mod log;
mod signals;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use causeway::document::{AdaptedDocument, Document};
use causeway::server::{self, LoadFault, Server, Settings, autosave_path, data_folder, root_words};
use causeway_config::plan::Level;
use clap::Args;

use super::environment::Environment;
use super::source::{self, ConfigFlags};
use super::{client, say};
use follow::Followed;
pub(super) use signals::End;

/// The exit status when a second signal ends what the first let finish; Caddy's number.
const FORCED: i32 = 2;

/// How the server runs, whatever it serves.
#[derive(Args)]
pub(crate) struct ServeFlags {
    /// Worker threads; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
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

/// What to serve.
pub(crate) struct Serving {
    pub(crate) site: Site,
    /// What the first line calls it.
    pub(crate) name: String,
    /// Where its mistakes are.
    pub(crate) document: Document,
    pub(crate) adapted: AdaptedDocument,
    pub(crate) environment: Arc<Environment>,
    /// The file that SIGUSR1, or a watch, reads again.
    pub(crate) follows: Option<Followed>,
    /// Who waits to hear that it serves.
    pub(crate) pingback: Option<SocketAddr>,
}

/// Whether a file that is followed is looked at without being told to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    No,
    EverySecond,
}

/// The file that a server's configuration came from.
pub(crate) fn followed(flags: &ConfigFlags, source: server::Source, watch: Watch) -> Followed {
    Followed { flags: flags.clone(), source, watch }
}

/// Serves until a signal, or the admin API, ends it.
pub(crate) fn serve(serving: Serving, flags: &ServeFlags) -> anyhow::Result<()> {
    let least = if flags.debug { Level::Debug } else { Level::Info };
    let level = log::to_stderr(least.max(written_level(&serving.adapted)));
    let descriptors = raise_descriptor_limit();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = flags.workers.map_or(cores, usize::from);
    let grace = flags.grace.map(Duration::from_secs);
    tracing::debug!(workers, ?grace, ?descriptors, "starting with these bounds");
    let environment = Arc::clone(&serving.environment);
    let registry = source::registry(&serving.environment);
    let settings = Settings {
        workers,
        grace,
        directives: Arc::new(causeway::directives(&registry)),
        registry: Arc::new(registry),
        environment: Arc::new(move |name| environment.get(name)),
        admin: Some(client::default_address()?),
        data: data_folder(),
        autosave: autosave_path().filter(|_| serving.site == Site::Configured),
        access: Box::new(std::io::stderr()),
        level: Box::new(move |wanted| level.set(wanted.max(least))),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    runtime.block_on(async {
        // Before the first line is out, so that whoever waits for it may signal at once.
        let (mut end, mut reload) = signals::listen()?;
        let source = serving.follows.as_ref().map(|followed| followed.source.clone());
        let server = Server::start(settings, serving.adapted.json.clone(), source).await;
        let server = server.map_err(|fault| explain(&fault, &serving))?;
        // Only now: a start that fails leaves no file, nor overwrites that of a server that runs.
        let pidfile = flags.pidfile.as_deref().map(PidFile::write).transpose()?;
        say::note(&first_line(&serving, server.places(), workers));
        for (id, root) in server.authorities() {
            say::note(&root_words(&id, &root));
        }
        if let Some(address) = server.admin_address() {
            say::note(&format!("The admin API is on {}", url(address, false)));
        }
        if serving.site == Site::Answer {
            let addresses = server.addresses().iter();
            let lines: Vec<_> = addresses.map(|address| format!("Server address: {address}")).collect();
            say::print(&lines.join("\n"))?;
        }
        if let Some(address) = serving.pingback {
            ping_back(address)?;
        }
        let control = server.control();
        let mut run = std::pin::pin!(server.run());
        if let Some(followed) = serving.follows.as_ref().filter(|followed| followed.watch == Watch::EverySecond) {
            tokio::spawn(followed.clone().watch(control.clone(), serving.adapted.json.clone()));
        }
        loop {
            tokio::select! {
                () = &mut run => return Ok(()),
                () = reload.next() => drop(tokio::spawn(follow::again(serving.follows.clone(), control.clone()))),
                () = end.next() => break,
            }
        }
        let ends = async {
            if let Some(stopping) = control.stop().await {
                let (delay, grace) = (stopping.delay.as_secs(), stopping.grace.as_secs());
                let begins = if delay == 0 { String::new() } else { format!(" in {delay} s") };
                say::note(&format!(
                    "Stopping{begins}: requests have {grace} s to end; a second signal ends them at once"
                ));
                stopping.ended().await;
            }
            // The admin API's last answers are not waited for here: `run` does.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = &mut run => Ok(()),
            () = ends => Ok(()),
            () = end.next() => {
                drop(pidfile);
                std::process::exit(FORCED)
            }
        }
    })
}

/// Tells the process that started this one, by what only that process can have sent, that it serves.
fn ping_back(address: SocketAddr) -> anyhow::Result<()> {
    let mut token = Vec::new();
    std::io::stdin().read_to_end(&mut token).context("reading the token for --pingback from standard input")?;
    let mut stream = TcpStream::connect(address).with_context(|| format!("--pingback {address}"))?;
    stream.write_all(&token).with_context(|| format!("--pingback {address}"))
}

/// How much a configuration wants to be said, before it is compiled: what compiling says counts too.
fn written_level(adapted: &AdaptedDocument) -> Level {
    match adapted.json["logging"]["logs"]["default"]["level"].as_str() {
        Some(level) if level.eq_ignore_ascii_case("debug") => Level::Debug,
        _ => Level::Info,
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

fn explain(fault: &LoadFault, serving: &Serving) -> anyhow::Error {
    let LoadFault::Sites(error) = fault else { return source::explain(&serving.document, &serving.adapted, fault) };
    let command = match serving.site {
        Site::Configured => return anyhow!("{}: {error}", serving.name),
        Site::Welcome => "run",
        Site::Flags => "file-server",
        Site::Answer => "respond",
    };
    if !fault.is_port_in_use() {
        return anyhow!("{error}");
    }
    anyhow!("{error}; choose another with --listen, as in `causeway {command} --listen :8081`")
}

fn first_line(serving: &Serving, places: Vec<(SocketAddr, bool)>, workers: usize) -> String {
    let urls: Vec<_> = places.into_iter().map(|(address, secure)| url(address, secure)).collect();
    let urls = if urls.is_empty() { "nothing: it names no site".to_owned() } else { urls.join(", ") };
    if serving.site == Site::Welcome {
        return format!("Causeway serves the welcome site on {urls}; write a Caddyfile here to serve your own");
    }
    let threads = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    format!("Causeway serves {} on {urls} with {threads}", serving.name)
}

/// An address that a person can open: the wildcard is reached by way of localhost.
fn url(address: SocketAddr, secure: bool) -> String {
    let host = match address.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let (scheme, usual) = if secure { ("https", 443) } else { ("http", 80) };
    let port = if address.port() == usual { String::new() } else { format!(":{}", address.port()) };
    format!("{scheme}://{host}{port}")
}

/// Every connection is a descriptor: the soft limit, often 1024, is raised to the hard one. Where that is refused, accepting
/// pauses when they run out. Says what holds then; `None` is no limit.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current
}

//! Runs a server from its start to its shutdown.
//!
//! - `signals`: the signals that the server handles
//! - `follow`: reloads the configuration's file
//! - `service_manager`: messages to systemd
//! - `handover`: the sockets and the configuration, from one process to the next
//! - `code_pages`: the memory of the program's code
//! - `log`: the server's own messages, as entries of the configuration's logs

mod code_pages;
mod follow;
mod handover;
mod log;
mod service_manager;
mod signals;

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use causeway::document::{AdaptedDocument, Document};
use causeway::server::{
    self, Control, LoadError, LogsReceiver, Server, ServerSettings, SiteAddress, Stage, StopError, autosave_path,
    data_directory_in, trust_message,
};
use causeway_modules::logs::{Level, reopen_all};
use causeway_pipeline::BoundAddress;
use causeway_pipeline::build::nanoseconds;
use clap::Args;

use super::environment::EnvironmentFiles;
use super::source::{self, ConfigFlags};
use super::{client, output};
use follow::FollowedFile;
use handover::ServerFacts;
pub(crate) use handover::{Predecessor, run_launcher};
pub(super) use signals::StopSignals;
use signals::{StopCause, StopKind};

/// Exit status when SIGQUIT or a second signal ends the process at once; Caddy's number.
const FORCED: i32 = 2;

/// Time that all reads and writes of files have to end after the server has ended: a disk may not respond.
const BLOCKING_END: Duration = Duration::from_secs(5);

/// Flags of all commands that run a server.
#[derive(Args)]
pub(crate) struct ServeFlags {
    /// Worker threads; by default one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How long in-flight requests may take to finish when the server stops: seconds, or a duration such as 1m30s
    #[arg(long, value_name = "DURATION", value_parser = seconds_or_duration)]
    grace: Option<Duration>,
    /// Write the process id to this file while the server runs
    #[arg(long, value_name = "FILE")]
    pidfile: Option<PathBuf>,
    /// Also print debug messages
    #[arg(short = 'v', long)]
    debug: bool,
}

/// Parses a whole number of seconds, or a duration such as `1m30s`.
fn seconds_or_duration(text: &str) -> Result<Duration, &'static str> {
    let seconds = text.parse().ok().map(Duration::from_secs);
    let duration = || u64::try_from(nanoseconds(text)?).ok().map(Duration::from_nanos);
    seconds.or_else(duration).ok_or("expected seconds, or a duration such as 30s or 1m30s")
}

/// The kind of site, which affects the start-up messages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteKind {
    /// The embedded welcome site.
    Welcome,
    /// The operator's configuration.
    Configured,
    /// The site of `file-server`.
    FileServer,
    /// The site of `respond`. As in Caddy, its addresses are also printed for programs.
    Respond,
    /// The site of `reverse-proxy`.
    ReverseProxy,
}

/// A configuration to serve, and how to report on it.
pub(crate) struct Serving {
    pub(crate) site: SiteKind,
    /// The configuration's name in the first line.
    pub(crate) name: String,
    /// The text, for positions in error messages.
    pub(crate) document: Document,
    pub(crate) adapted: AdaptedDocument,
    pub(crate) environment: Arc<EnvironmentFiles>,
    /// The file that the server was started with, to reload on SIGUSR1 or by a watch.
    pub(crate) follows: Option<FollowedFile>,
    /// Address of a waiting `start`, to notify once the server runs.
    pub(crate) pingback: Option<SocketAddr>,
    /// The process whose place this one takes.
    pub(crate) predecessor: Option<Predecessor>,
}

/// Whether a followed file is polled for changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    No,
    EverySecond,
}

/// Describes the file that a server was started with, and whether the API has replaced its configuration.
pub(crate) fn followed(
    flags: &ConfigFlags,
    source: server::ConfigFile,
    watch: Watch,
    is_replaced: bool,
) -> FollowedFile {
    FollowedFile { flags: flags.clone(), source, watch, is_replaced }
}

/// Serves a generated configuration until a signal or the admin API stops the server. The running configuration of a
/// process whose place this one takes comes before it.
pub(crate) fn serve_generated(mut serving: Serving, flags: &ServeFlags) -> anyhow::Result<()> {
    let predecessor = Predecessor::connect()?;
    let stream = predecessor.as_ref().and_then(Predecessor::stream);
    if let Some(predecessor) = predecessor {
        serving.adapted = AdaptedDocument::of(predecessor.config().clone());
        serving.predecessor = Some(predecessor);
    }
    Predecessor::report(stream, serve(serving, flags))
}

/// Serves until a signal or the admin API stops the server, or another process takes its place.
pub(crate) fn serve(mut serving: Serving, flags: &ServeFlags) -> anyhow::Result<()> {
    let mut predecessor = serving.predecessor.take();
    let forced_level = flags.debug.then_some(Level::Debug);
    let own = log::install(forced_level.unwrap_or_else(|| written_level(&serving.adapted)), forced_level)?;
    let _end = log::EndOfLogs;
    let descriptors = raise_descriptor_limit();
    let handed = predecessor.as_mut().map(Predecessor::take_sockets);
    let settings = ServerSettings { handed, ..settings(&serving, flags, Box::new(move |logs| own.set(logs)))? };
    let (workers, grace) = (settings.workers, settings.grace.map(|grace| grace.as_secs_f64()));
    tracing::debug!(workers, grace, descriptors, "starting with these bounds");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the runtime")?;
    let ended = runtime.block_on(async {
        // Register signal handlers before the first output: a supervisor may send a signal as soon as it sees that
        // output.
        let (mut end, mut reload, mut upgrade) = signals::listen()?;
        force_end(flags.pidfile.clone())?;
        let source = serving.follows.as_ref().map(|followed| followed.source.clone());
        let server = Server::start(settings, serving.adapted.json.clone(), source).await;
        let mut server = server.map_err(|error| explain(&error, &serving))?;
        if serving.follows.as_ref().is_some_and(|followed| followed.is_replaced) {
            server.unfollow_file();
        }
        // A failed start must neither leave a file nor overwrite the file of a running server.
        let pidfile = flags.pidfile.as_deref().map(PidFile::write).transpose()?;
        let mut former = None;
        let mut report: fn(&str) = output::note;
        if let Some(predecessor) = predecessor {
            // It blocks this thread only: the workers serve. `causeway upgrade` returns when it is ready, and the file
            // is right then.
            if let Err(error) = predecessor.report_ready() {
                if let Some(pidfile) = pidfile {
                    pidfile.give_back();
                }
                return Err(error);
            }
            former = predecessor.stream();
            server.take_over_socket_files();
            // By the log, which waits for no reader of standard error: this process serves already, and cannot be
            // stopped while it waits.
            report = |line| tracing::info!("{line}");
        }
        announce(&serving, &server, workers, former.is_some(), report)?;
        // The tasks that are spawned from here on end with the runtime.
        tokio::spawn(service_manager::watch(server.liveness()));
        let control = server.control();
        let mut run = std::pin::pin!(server.run());
        let reload_file = || {
            let reload = follow::reload_file(serving.follows.clone(), control.clone());
            tokio::spawn(async {
                // An error means that the runtime ends.
                let _ = tokio::task::spawn_blocking(reopen_all).await;
                reload.await;
            });
        };
        let mut passed_on = std::pin::pin!(Predecessor::wait_for_stop(former, reload_file));
        if let Some(followed) = serving.follows.as_ref().filter(|followed| followed.watch == Watch::EverySecond) {
            tokio::spawn(followed.clone().watch(control.clone(), serving.adapted.json.clone()));
        }
        let cause = loop {
            tokio::select! {
                biased;
                // First, so that this process handles a signal that has arrived, even if another one takes its place in
                // this turn.
                kind = end.next() => break StopCause::Signal(kind),
                () = &mut passed_on => break StopCause::PassedOn,
                () = &mut run => return Ok(()),
                () = reload.next() => reload_file(),
                () = upgrade.next() => {
                    let control = control.clone();
                    tokio::spawn(async move {
                        tracing::info!("SIGUSR2: starting another process");
                        // The server logs a failure.
                        let _ = control.upgrade(None).await;
                    });
                }
            }
        };
        tokio::select! {
            biased;
            () = &mut run => Ok(()),
            () = signals::forced(cause, async || end.next().await) => {
                handover::kill_started();
                drop(pidfile);
                log::end();
                std::process::exit(FORCED)
            }
            () = stop_gracefully(&control) => Ok(()),
        }
    });
    // Without a limit, a configuration that imports a pipe or a file of a dead server would keep the process.
    let until = Instant::now() + BLOCKING_END;
    causeway_modules::cache::finish(until);
    runtime.shutdown_timeout(until.saturating_duration_since(Instant::now()));
    ended
}

/// Returns the settings of the server, without the sockets of a former process.
fn settings(serving: &Serving, flags: &ServeFlags, logs: LogsReceiver) -> anyhow::Result<ServerSettings> {
    let file = serving.follows.as_ref().map(|followed| followed.source.clone());
    let facts = ServerFacts { program: program(), name: serving.name.clone(), site: serving.site, file };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let environment = Arc::clone(&serving.environment);
    let registry = source::registry(&serving.environment);
    Ok(ServerSettings {
        workers: flags.workers.map_or(cores, usize::from),
        grace: flags.grace,
        directives: Arc::new(causeway::directives(&registry)),
        admin: Some(client::default_address(&registry)?),
        registry: Arc::new(registry),
        environment: Arc::new(move |name| environment.get(name)),
        data: data_directory_in(&|name| serving.environment.get(name)),
        autosave: autosave_path(&|name| serving.environment.get(name)).filter(|_| serving.site == SiteKind::Configured),
        logs,
        stages: Box::new(|stage| {
            service_manager::tell(stage);
            if matches!(stage, Stage::Loaded(_)) {
                release_code();
            }
        }),
        successor: Some(Box::new(move |offer| {
            let facts = facts.clone();
            Box::pin(async move {
                let started = tokio::task::spawn_blocking(move || facts.start_successor(offer));
                started.await.unwrap_or_else(|_| Err("starting the new process failed inside the server".into()))
            })
        })),
        handed: None,
    })
}

/// Passes the addresses of the server to `report`, and reports to `start` and to systemd that it serves.
fn announce(
    serving: &Serving,
    server: &Server,
    workers: usize,
    is_successor: bool,
    report: fn(&str),
) -> anyhow::Result<()> {
    log::flush();
    report(&first_line(serving, server.site_addresses(), workers));
    for (id, root) in server.authorities() {
        report(&trust_message(&id, &root));
    }
    if let Some(address) = server.admin_address() {
        report(&format!("The admin API is on {}", url(&address, false)));
    }
    if let Some(address) = server.remote_admin_address() {
        report(&format!("The remote admin API is on {}", url(&address, true)));
    }
    if serving.site == SiteKind::Respond {
        let addresses = server.addresses().iter();
        let lines: Vec<_> = addresses.map(|address| format!("Server address: {address}")).collect();
        // The former process has printed the same addresses.
        if !is_successor {
            output::print(&lines.join("\n"))?;
        }
    }
    if let Some(address) = serving.pingback {
        // Only after the pid file exists and the server listens: `start` returns on this message.
        ping_back(address)?;
    }
    service_manager::ready(&server.site_addresses());
    release_code();
    Ok(())
}

/// Stops the server in good order. The future never completes: the caller waits for the end of `run`, which also waits
/// for the admin API's in-flight responses.
async fn stop_gracefully(control: &Control) {
    match control.stop().await {
        Ok(stopping) => {
            let (delay, grace) = (stopping.delay.as_secs(), stopping.grace.as_secs());
            let begins = if delay == 0 { String::new() } else { format!(" in {delay} s") };
            // The log writes this, not `output::note`, because it does not wait for a reader of standard error.
            tracing::info!("Stopping{begins}: requests have {grace} s to end; a second signal ends them at once");
            stopping.ended().await;
        }
        // The signal was sent to the server, which is the other process by now.
        Err(StopError::Overtaken(process)) => {
            tracing::info!("stopping process {process}, which has taken this one's place at this moment");
            handover::stop_successor();
        }
        Err(_) => {}
    }
    std::future::pending::<()>().await;
}

/// Time in which the process ends in good order after a signal that ends it at once.
const FORCED_WITHIN: Duration = Duration::from_secs(1);

/// Starts a thread that ends the process after SIGQUIT or a second signal, if it has not ended by itself. The main
/// thread cannot while it loads a configuration that blocks, for example on a log file whose file server does not
/// respond.
fn force_end(pidfile: Option<PathBuf>) -> anyhow::Result<()> {
    let watch = move || -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        runtime.block_on(async {
            let mut end = StopSignals::listen()?;
            if end.next().await == StopKind::Graceful {
                end.next().await;
            }
            std::thread::sleep(FORCED_WITHIN);
            handover::kill_started();
            if let Some(pidfile) = pidfile {
                remove_own_pidfile(&pidfile);
            }
            std::process::exit(FORCED)
        })
    };
    let report = move || {
        if let Err(error) = watch() {
            tracing::warn!("a second signal will not end a load that blocks: {error:#}");
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(report).context("starting the thread for signals")?;
    Ok(())
}

/// Removes the code that loading has executed from the resident memory. Not in a debug build, since the breakpoints of
/// a debugger would be lost.
fn release_code() {
    if !cfg!(debug_assertions) && !code_pages::release() {
        tracing::debug!("cannot release the program's code pages");
    }
}

/// Returns the path of this program. Called at the start: the system changes it when another file takes its place.
fn program() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?;
    // proc(5): the file was replaced between the start of the process and this call.
    let text = path.to_str().and_then(|text| text.strip_suffix(" (deleted)").map(PathBuf::from));
    Some(text.unwrap_or(path))
}

/// Notifies the parent process that the server runs. The token from standard input proves that the message is ours.
fn ping_back(address: SocketAddr) -> anyhow::Result<()> {
    let mut token = Vec::new();
    std::io::stdin().read_to_end(&mut token).context("reading the token for --pingback from standard input")?;
    let mut stream = TcpStream::connect(address).with_context(|| format!("--pingback {address}"))?;
    stream.write_all(&token).with_context(|| format!("--pingback {address}"))
}

/// Returns the log level that a configuration sets. Needed before compilation, which already logs.
fn written_level(adapted: &AdaptedDocument) -> Level {
    match adapted.json["logging"]["logs"]["default"]["level"].as_str() {
        Some(level) if level.eq_ignore_ascii_case("debug") => Level::Debug,
        _ => Level::Info,
    }
}

/// A file that holds the process id. Dropping it removes the file.
struct PidFile<'p> {
    path: &'p Path,
    /// The content before.
    former: Option<String>,
}

impl<'p> PidFile<'p> {
    fn write(path: &'p Path) -> anyhow::Result<Self> {
        let former = std::fs::read_to_string(path).ok();
        Self::replace(path, &format!("{}\n", std::process::id()))
            .with_context(|| format!("{}: writing the process id", path.display()))?;
        Ok(Self { path, former })
    }

    /// Restores the file of the server that continues to serve.
    fn give_back(self) {
        if let Some(former) = &self.former {
            // Best effort, as all of this process has failed.
            let _ = Self::replace(self.path, former);
        }
    }

    /// Replaces the content in one step, so that a reader never sees an empty file. A file that cannot be replaced,
    /// such as a device, is written.
    fn replace(path: &Path, text: &str) -> std::io::Result<()> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", std::process::id()));
        let beside = path.with_file_name(name);
        let is_file = std::fs::metadata(path).map_or(true, |metadata| metadata.is_file());
        if is_file && std::fs::write(&beside, text).is_ok() {
            return std::fs::rename(&beside, path).inspect_err(|_| drop(std::fs::remove_file(&beside)));
        }
        std::fs::write(path, text)
    }
}

impl Drop for PidFile<'_> {
    fn drop(&mut self) {
        remove_own_pidfile(self.path);
    }
}

/// Removes the file if it has the id of this process: that of another one is a server that runs, or has taken this
/// one's place.
fn remove_own_pidfile(path: &Path) {
    if std::fs::read_to_string(path).is_ok_and(|text| text.trim() == std::process::id().to_string()) {
        // Ignore a failure: the file may already be removed.
        let _ = std::fs::remove_file(path);
    }
}

fn explain(load_error: &LoadError, serving: &Serving) -> anyhow::Error {
    let LoadError::Sites(error) = load_error else {
        return source::explain(&serving.document, &serving.adapted, load_error);
    };
    let command = match serving.site {
        SiteKind::Configured => return anyhow!("{}: {error}", serving.name),
        SiteKind::Welcome => "run",
        SiteKind::FileServer => "file-server",
        SiteKind::Respond => "respond",
        SiteKind::ReverseProxy => "reverse-proxy",
    };
    if !load_error.is_port_in_use() {
        return anyhow!("{error}");
    }
    if serving.site == SiteKind::ReverseProxy {
        return anyhow!("{error}; choose another with --from, as in `causeway {command} --from :8081`");
    }
    anyhow!("{error}; choose another with --listen, as in `causeway {command} --listen :8081`")
}

fn first_line(serving: &Serving, site_addresses: Vec<SiteAddress>, workers: usize) -> String {
    let urls = urls(&site_addresses);
    if serving.site == SiteKind::Welcome {
        return format!("Causeway serves the welcome site on {urls}; write a Caddyfile here to serve your own");
    }
    let threads = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    format!("Causeway serves {} on {urls} with {threads}", serving.name)
}

fn urls(site_addresses: &[SiteAddress]) -> String {
    let urls: Vec<_> = site_addresses.iter().map(|site| url(&site.address, site.is_tls)).collect();
    if urls.is_empty() { "no address".to_owned() } else { urls.join(", ") }
}

/// Returns a URL that a browser can open; the wildcard address becomes localhost. A Unix socket has none, so its
/// address is returned as a configuration writes it.
fn url(address: &BoundAddress, secure: bool) -> String {
    let Some(address) = address.socket_addr() else { return address.to_string() };
    let host = match address.ip() {
        ip if ip.is_unspecified() => "localhost".to_owned(),
        IpAddr::V6(ip) => format!("[{ip}]"),
        IpAddr::V4(ip) => ip.to_string(),
    };
    let (scheme, usual) = if secure { ("https", 443) } else { ("http", 80) };
    let port = if address.port() == usual { String::new() } else { format!(":{}", address.port()) };
    format!("{scheme}://{host}{port}")
}

/// Raises the soft limit of file descriptors, often 1024, to the hard limit, since each connection needs one. On
/// failure the old limit stays, and the engine pauses accepting when descriptors run out. Returns the resulting limit;
/// `None` is unlimited.
fn raise_descriptor_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current
}

//! The command channel to the server: a cloneable sender, with one reply per command.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use causeway_config::caddyfile::Warning;
use causeway_engine::Observer;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::certificates::{AuthorityFacts, CertificateStatus};
use super::error::{ChangeError, LoadError};
use super::source::ConfigFile;
use super::tree::Verb;
use super::upgrade::UpgradeError;

/// Commands queued before senders have to wait. Each may carry a whole configuration.
pub(super) const WAITING_MAX: usize = 16;

/// Largest configuration that another program sends, as text: 64 MiB.
pub(crate) const CONFIG_BYTES_MAX: usize = 64 << 20;

/// A handle to a running server. The server executes commands one at a time, in the order of their arrival; only a stop
/// precedes those that wait.
#[derive(Clone)]
pub struct Control {
    commands: mpsc::Sender<Command>,
    stops: mpsc::Sender<StopCommand>,
    /// Set once the engine has started.
    engine: Arc<OnceLock<Observer>>,
    /// The process that has taken the server's place.
    successor: Arc<OnceLock<u32>>,
}

/// A request to load a configuration.
#[derive(Debug)]
pub struct LoadRequest {
    /// Caddy's JSON.
    pub config: Value,
    /// Whether to load the configuration even if it equals the current one.
    pub force: Force,
    /// The origin of the request.
    pub by: LoadOrigin,
}

/// Whether a configuration that equals the current one is loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Load only a different configuration.
    IfChanged,
    /// Load an equal configuration too.
    Always,
}

/// The origin of a load or change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadOrigin {
    /// The program that started the server, reading the file that the server follows.
    Owner,
    /// A client of the API, with the source file if the request names one. The server follows its own
    /// file only after a load from that one.
    Peer(Option<ConfigFile>),
    /// The running configuration, which pulls the next one (`admin.config.load`). As Caddy documents it, the next one
    /// is not kept for `run --resume`, and must not pull another one at once.
    Pull,
}

/// A change to one value of the configuration.
#[derive(Debug)]
pub struct Change {
    /// The operation.
    pub verb: Verb,
    /// The path: `/config/…` or `/id/…`.
    pub path: String,
    /// The new value; null for verbs without one.
    pub value: Value,
    /// The entity tag that the configuration must still have.
    pub if_match: Option<String>,
    /// Whether to load the result even if nothing changed.
    pub force: Force,
    /// The origin of the request.
    pub by: LoadOrigin,
}

/// One value of the configuration.
#[derive(Debug)]
pub struct Excerpt {
    /// The JSON on one line, with a final newline.
    pub json: Vec<u8>,
    /// The entity tag, quotes included.
    pub etag: String,
}

/// The reply to a stop command.
pub struct Stopping {
    /// Time for which the server continues to accept connections.
    pub delay: Duration,
    /// Time limit for in-flight exchanges after the delay.
    pub grace: Duration,
    ended: oneshot::Receiver<()>,
}

impl Stopping {
    /// Waits until no exchange is in flight.
    pub async fn ended(self) {
        // An error means that the server is gone, so it has ended.
        let _ = self.ended.await;
    }
}

/// Why a command to stop the server has no effect on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopError {
    /// The server ends already.
    Ending,
    /// While the command waited, the process with this id took the server's place. That process continues to serve.
    Overtaken(u32),
    /// Another process had taken the server's place before.
    Replaced,
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ending => "the server is stopping",
            Self::Overtaken(_) | Self::Replaced => {
                "another process has taken the server's place; send the request again"
            }
        })
    }
}

impl std::error::Error for StopError {}

/// The server's counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Open connections to the sites.
    pub connections: usize,
    /// Configurations in memory: the current one, and older ones that in-flight exchanges still use.
    pub live_plans: usize,
    /// Panics in handlers since the start.
    pub panics: u64,
}

/// A request of the running configuration's loader to load the configuration that it has pulled, unless the server has
/// it already.
pub(super) struct PulledLoad {
    /// Caddy's JSON.
    pub(super) config: Value,
    /// Logged if the configuration is loaded.
    pub(super) warnings: Vec<Warning>,
    /// The number of the configuration that pulls. Refused unless it is the current one: this request may wait in the
    /// channel while another configuration is loaded.
    pub(super) number: ConfigurationNumber,
}

/// Counts the configurations that took effect, so that each has a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ConfigurationNumber(u64);

impl ConfigurationNumber {
    pub(super) fn next(self) -> Self {
        // One each nanosecond would take 500 years.
        Self(self.0.wrapping_add(1))
    }
}

type Reply<T> = oneshot::Sender<T>;

pub(super) enum Command {
    Load(LoadRequest, Reply<Result<(), LoadError>>),
    /// Loads a pulled configuration.
    LoadPulled(PulledLoad, Reply<Result<(), LoadError>>),
    Change(Change, Reply<Result<(), ChangeError>>),
    Query(Query),
    FollowedFile(Reply<Option<ConfigFile>>),
    /// Hands over to another process, of this program or the one at the path.
    Upgrade(Option<PathBuf>, Reply<Result<u32, UpgradeError>>),
}

/// A command that changes nothing. The server answers it also during an upgrade.
pub(super) enum Query {
    /// Checks the path and the entity tag of a change.
    Check(String, Option<String>, Reply<Result<(), ChangeError>>),
    Read(String, Reply<Result<Excerpt, ChangeError>>),
    /// Resolves `/id/NAME` to a path below `/config`.
    Resolve(String, Reply<Result<String, ChangeError>>),
    Authority(String, Reply<Result<Option<AuthorityFacts>, causeway_certs::Error>>),
    Certificates(Reply<Vec<CertificateStatus>>),
}

/// Stops the server. It has a channel of its own: the other one may be full while the server loads a configuration or
/// waits for another process.
pub(super) struct StopCommand {
    /// `Some` overrides the configuration's grace period.
    pub(super) grace: Option<Duration>,
    pub(super) reply: Reply<Stopping>,
}

/// The server's ends of the channels.
pub(super) struct CommandQueues {
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) stops: mpsc::Receiver<StopCommand>,
}

impl CommandQueues {
    /// Accepts no further command, and drops those that wait. Their callers get `LoadError::Stopping` or a
    /// [`StopError`].
    pub(super) fn close(&mut self) {
        self.commands.close();
        self.stops.close();
        while self.commands.try_recv().is_ok() {}
        while self.stops.try_recv().is_ok() {}
    }
}

impl Control {
    pub(super) fn channel() -> (Self, CommandQueues) {
        let (commands, waiting) = mpsc::channel(WAITING_MAX);
        let (stops, waiting_stops) = mpsc::channel(WAITING_MAX);
        let control = Self { commands, stops, engine: Arc::default(), successor: Arc::default() };
        (control, CommandQueues { commands: waiting, stops: waiting_stops })
    }

    /// Sets the process that takes the server's place. Call it before the waiting commands are dropped: their
    /// callers read it.
    pub(super) fn succeeded_by(&self, process: u32) {
        // A server leaves once.
        let _ = self.successor.set(process);
    }

    /// Sets the engine whose counters [`status`](Self::status) returns.
    pub(super) fn observe(&self, engine: Observer) {
        // The engine starts once.
        let _ = self.engine.set(engine);
    }

    pub(super) fn stopping(delay: Duration, grace: Duration) -> (oneshot::Sender<()>, Stopping) {
        let (done, ended) = oneshot::channel();
        (done, Stopping { delay, grace, ended })
    }

    /// Loads a configuration as a whole.
    ///
    /// # Errors
    /// Returns the reason when the configuration is refused; the previous one stays in effect.
    pub async fn load(&self, load: LoadRequest) -> Result<(), LoadError> {
        self.request(|reply| Command::Load(load, reply)).await.unwrap_or(Err(LoadError::Stopping))
    }

    /// Loads a pulled configuration as a whole.
    ///
    /// # Errors
    /// As [`load`](Self::load), and [`LoadError::Superseded`].
    pub(super) async fn load_pulled(&self, load: PulledLoad) -> Result<(), LoadError> {
        self.request(|reply| Command::LoadPulled(load, reply)).await.unwrap_or(Err(LoadError::Stopping))
    }

    /// Changes one value of the configuration and loads the result.
    ///
    /// # Errors
    /// Returns the reason when the change is refused; the configuration then stays as it was.
    pub async fn change(&self, change: Change) -> Result<(), ChangeError> {
        let stopping = Err(ChangeError::Load(LoadError::Stopping));
        self.request(|reply| Command::Change(change, reply)).await.unwrap_or(stopping)
    }

    /// Checks the path and the entity tag of a [`Change`] whose value could not be parsed.
    ///
    /// # Errors
    /// As of [`change`](Self::change), for the path and the entity tag.
    pub(crate) async fn check(&self, path: String, if_match: Option<String>) -> Result<(), ChangeError> {
        let stopping = Err(ChangeError::Load(LoadError::Stopping));
        self.request(|reply| Command::Query(Query::Check(path, if_match, reply))).await.unwrap_or(stopping)
    }

    /// Reads one value of the configuration: `/config/…` or `/id/…`.
    ///
    /// # Errors
    /// When the path does not lead to a value.
    pub async fn read(&self, path: String) -> Result<Excerpt, ChangeError> {
        let stopping = Err(ChangeError::Load(LoadError::Stopping));
        self.request(|reply| Command::Query(Query::Read(path, reply))).await.unwrap_or(stopping)
    }

    /// Returns the path below `/config` for one below `/id`, and others unchanged.
    ///
    /// # Errors
    /// When no object has the name.
    pub(crate) async fn resolve(&self, path: String) -> Result<String, ChangeError> {
        let stopping = Err(ChangeError::Load(LoadError::Stopping));
        self.request(|reply| Command::Query(Query::Resolve(path, reply))).await.unwrap_or(stopping)
    }

    /// Returns the data of a certificate authority; `None` when there is none with this id, or the server is gone.
    ///
    /// # Errors
    /// When the local authority was missing and could not be created.
    pub async fn authority(&self, id: String) -> Result<Option<AuthorityFacts>, causeway_certs::Error> {
        self.request(|reply| Command::Query(Query::Authority(id, reply))).await.unwrap_or(Ok(None))
    }

    /// Describes every name whose certificate the server obtains, sorted by name; `None` when the server is gone.
    pub async fn certificates(&self) -> Option<Vec<CertificateStatus>> {
        self.request(|reply| Command::Query(Query::Certificates(reply))).await
    }

    /// Returns the server's counters, also while it loads a configuration; `None` once it stops.
    pub fn status(&self) -> Option<Status> {
        let engine = self.engine.get().filter(|_| !self.is_stopping())?;
        let total = engine.total();
        Some(Status { connections: total.connections, live_plans: engine.live_plans(), panics: total.panics })
    }

    /// Returns the file that the configuration was read from; `None` after the API has loaded another configuration.
    /// Waits for the end of an upgrade.
    pub async fn followed_file(&self) -> Option<ConfigFile> {
        self.request(Command::FollowedFile).await.flatten()
    }

    /// Starts another process, of this program or of `binary`, which takes the server's place with its sockets and its
    /// configuration; this server then drains and ends. Returns the id of the process, which serves.
    ///
    /// # Errors
    /// The reason when the other process does not serve. This server continues.
    pub async fn upgrade(&self, binary: Option<PathBuf>) -> Result<u32, UpgradeError> {
        self.request(|reply| Command::Upgrade(binary, reply)).await.unwrap_or(Err(UpgradeError::Stopping))
    }

    /// Stops the server.
    ///
    /// # Errors
    /// The server ends already, or another process has taken its place.
    pub async fn stop(&self) -> Result<Stopping, StopError> {
        self.ask_to_stop(None).await
    }

    /// Stops the server like [`stop`](Self::stop), with `grace` in place of the configuration's grace period.
    ///
    /// # Errors
    /// As of [`stop`](Self::stop).
    pub async fn stop_within(&self, grace: Duration) -> Result<Stopping, StopError> {
        self.ask_to_stop(Some(grace)).await
    }

    async fn ask_to_stop(&self, grace: Option<Duration>) -> Result<Stopping, StopError> {
        let (reply, answer) = oneshot::channel();
        let had_successor = self.successor.get().is_some();
        if self.stops.send(StopCommand { grace, reply }).await.is_ok()
            && let Ok(stopping) = answer.await
        {
            return Ok(stopping);
        }
        Err(match self.successor.get() {
            Some(process) if !had_successor => StopError::Overtaken(*process),
            Some(_) => StopError::Replaced,
            None => StopError::Ending,
        })
    }

    /// Returns whether the server accepts no command any more: it stops, or another process has taken its place.
    pub fn is_stopping(&self) -> bool {
        self.commands.is_closed()
    }

    async fn request<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

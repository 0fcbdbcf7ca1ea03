//! How everybody else talks to the server: a channel that may be cloned, and an answer for each thing that was asked.

use std::time::Duration;

use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::certificates::AuthorityFacts;
use super::fault::{ChangeFault, LoadFault};
use super::source::Source;
use super::tree::Verb;

/// Commands that wait for the server before whoever asks next has to wait too; each may carry a whole configuration.
const WAITING_MAX: usize = 16;

/// A way to a running server. All that is asked is answered in order, one after the other.
#[derive(Clone)]
pub struct Control(mpsc::Sender<Command>);

/// A configuration for a server.
#[derive(Debug)]
pub struct Load {
    /// Caddy's JSON.
    pub config: Value,
    /// Whether to load it even if it is the one that runs.
    pub force: Force,
    /// Who asks.
    pub by: By,
}

/// Whether a configuration that is the running one is loaded again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Force {
    /// Only another one.
    IfChanged,
    /// This one too.
    Always,
}

/// Who asks for a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum By {
    /// Whoever started the server, from the file that it follows.
    Owner,
    /// Somebody by way of the API, with the file that it comes from where they said so: from another one, the server follows
    /// its file no more.
    Peer(Option<Source>),
}

/// A change to one place of the configuration.
#[derive(Debug)]
pub struct Change {
    /// What happens.
    pub verb: Verb,
    /// Where: `/config/…`, or `/id/…`.
    pub path: String,
    /// The value; null where the verb needs none.
    pub value: Value,
    /// The entity tag that must still hold.
    pub if_match: Option<String>,
    /// Whether to load again what did not change.
    pub force: Force,
    /// Who asks.
    pub by: By,
}

/// One place of the configuration.
#[derive(Debug)]
pub struct Excerpt {
    /// Its JSON on one line, with a line's end.
    pub json: Vec<u8>,
    /// Its entity tag, quotes included.
    pub etag: String,
}

/// The server is ending.
pub struct Stopping {
    /// How long it goes on as before.
    pub delay: Duration,
    /// How long exchanges under way may take then.
    pub grace: Duration,
    ended: oneshot::Receiver<()>,
}

impl Stopping {
    /// Until no exchange is under way.
    pub async fn ended(self) {
        // A server that is gone has ended.
        let _ = self.ended.await;
    }
}

/// How a server stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// Connections to the sites that are open.
    pub connections: usize,
    /// Configurations that are not freed yet: the one that is served, and older ones while exchanges that began under them are
    /// under way.
    pub live_plans: usize,
    /// Handlers that panicked since the start.
    pub panics: u64,
}

type Reply<T> = oneshot::Sender<T>;

pub(super) enum Command {
    Load(Load, Reply<Result<(), LoadFault>>),
    Change(Change, Reply<Result<(), ChangeFault>>),
    Read(String, Reply<Result<Excerpt, ChangeFault>>),
    Authority(String, Reply<Result<Option<AuthorityFacts>, causeway_certs::Error>>),
    Status(Reply<Status>),
    Follows(Reply<Option<Source>>),
    /// The grace in place of the configuration's.
    Stop(Option<Duration>, Reply<Stopping>),
}

impl Control {
    pub(super) fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (sender, commands) = mpsc::channel(WAITING_MAX);
        (Self(sender), commands)
    }

    pub(super) fn stopping(delay: Duration, grace: Duration) -> (oneshot::Sender<()>, Stopping) {
        let (done, ended) = oneshot::channel();
        (done, Stopping { delay, grace, ended })
    }

    /// Loads a configuration as a whole.
    ///
    /// # Errors
    /// Why it is not served; what ran before runs on.
    pub async fn load(&self, load: Load) -> Result<(), LoadFault> {
        self.ask(|reply| Command::Load(load, reply)).await.unwrap_or(Err(LoadFault::Stopping))
    }

    /// Changes one place of the configuration and loads the result.
    ///
    /// # Errors
    /// Why not; the configuration is then as before.
    pub async fn change(&self, change: Change) -> Result<(), ChangeFault> {
        let stopping = Err(ChangeFault::Load(LoadFault::Stopping));
        self.ask(|reply| Command::Change(change, reply)).await.unwrap_or(stopping)
    }

    /// One place of the configuration: `/config/…`, or `/id/…`.
    ///
    /// # Errors
    /// When the path leads nowhere.
    pub async fn read(&self, path: String) -> Result<Excerpt, ChangeFault> {
        let stopping = Err(ChangeFault::Load(LoadFault::Stopping));
        self.ask(|reply| Command::Read(path, reply)).await.unwrap_or(stopping)
    }

    /// An authority of its own; `None` when there is none of this id, or the server is gone already.
    ///
    /// # Errors
    /// When the local one had to be made for this and could not be.
    pub async fn authority(&self, id: String) -> Result<Option<AuthorityFacts>, causeway_certs::Error> {
        self.ask(|reply| Command::Authority(id, reply)).await.unwrap_or(Ok(None))
    }

    /// How it stands; `None` when it is gone already.
    pub async fn status(&self) -> Option<Status> {
        self.ask(Command::Status).await
    }

    /// The file that the server's configuration comes from, unless the API has changed it since.
    pub async fn follows(&self) -> Option<Source> {
        self.ask(Command::Follows).await.flatten()
    }

    /// Ends the server; `None` when it is gone already.
    pub async fn stop(&self) -> Option<Stopping> {
        self.ask(|reply| Command::Stop(None, reply)).await
    }

    /// The same with so long for exchanges under way, whatever the configuration says.
    pub async fn stop_within(&self, grace: Duration) -> Option<Stopping> {
        self.ask(|reply| Command::Stop(Some(grace), reply)).await
    }

    async fn ask<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.0.send(command(reply)).await.ok()?;
        answer.await.ok()
    }
}

//! The start parameters of a server, and the parts of a load that depend on them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_certs::Certificate;
use causeway_config::caddyfile::Directives;
use causeway_config::plan::{AdminAddress, Loaded};
use causeway_modules::logs::Logs;
use causeway_pipeline::Registry;
use serde_json::Value;

use super::SiteAddress;
use super::admins::{AdminListener, AdminListeners};
use super::autosave::autosave_path;
use super::certificates::Custody;
use super::compiled::{Compiled, compile};
use super::control::{Control, LoadOrigin};
use super::error::LoadError;
use super::pull::{PullError, PulledConfig, Puller, ServerIdentity};
use super::storage;
use super::upgrade::{Handover, SuccessorStart};
use crate::admin::{AcceptedClients, AdminState, ListenerAccess};

/// Looks up `{$NAME}` in Caddyfiles.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Start parameters of a server, apart from its configuration.
pub struct ServerSettings {
    /// Number of worker threads.
    pub workers: usize,
    /// Time limit for in-flight exchanges at shutdown. `Some` overrides the grace period of every configuration.
    pub grace: Option<Duration>,
    /// Modules that configurations may name.
    pub registry: Arc<Registry>,
    /// Directives for Caddyfiles that clients send to the admin API.
    pub directives: Arc<Directives>,
    /// Environment for Caddyfiles that clients send to the admin API.
    pub environment: Environment,
    /// Admin API address for configurations that set none. `None`: such a configuration has no admin API.
    pub admin: Option<AdminAddress>,
    /// Certificate directory for configurations that set none; see [`data_directory`](super::data_directory).
    pub data: PathBuf,
    /// File that receives each loaded configuration, unless the configuration disables persistence. `None`: never
    /// saved.
    pub autosave: Option<PathBuf>,
    /// Called with the logs of each configuration that takes effect, which the server's own messages may go to.
    pub logs: LogsReceiver,
    /// Called at each stage after the start.
    pub stages: StageReceiver,
    /// Called to start another process that takes this server's place. `None`: the server does not hand over.
    pub successor: Option<SuccessorStart>,
    /// The sockets of a server whose place this one takes; others are bound. `None`: it takes no server's place.
    pub handed: Option<Handover>,
}

/// A stage in the life of a server after its start.
pub enum Stage<'s> {
    /// A load begins. [`Loaded`](Self::Loaded) or [`Refused`](Self::Refused) follows.
    Loading,
    /// A load has ended: the server serves this configuration at these addresses, each with whether it serves TLS.
    Loaded(&'s [SiteAddress]),
    /// A load has ended: the server keeps its configuration.
    Refused(&'s LoadError),
    /// The server begins to stop, which takes at most this time, and a moment for the last bytes.
    Stopping(Duration),
}

/// Receives the stages of a server. It must not block.
pub type StageReceiver = Box<dyn Fn(&Stage<'_>) + Send + Sync>;

/// Receives the logs of a configuration.
pub type LogsReceiver = Box<dyn Fn(&Arc<Logs>) + Send + Sync>;

impl ServerSettings {
    /// Compiles on a blocking thread: other callers wait for the server's task, and workers must not stall.
    pub(super) async fn compile(&self, config: Value) -> Result<Compiled, LoadError> {
        let registry = Arc::clone(&self.registry);
        // No site may serve a saved configuration, even if this server saves none: another server may have.
        let autosave = self.autosave.clone().or_else(|| autosave_path(&|name| (self.environment)(name)));
        let data = self.data.clone();
        let compiled = tokio::task::spawn_blocking(move || compile(config, &registry, &data, autosave.as_deref()));
        compiled.await.unwrap_or(Err(LoadError::Panicked))
    }

    /// Obtains the certificates that the configuration manages, reusing those of `before`.
    pub(super) async fn custody(
        &self,
        loaded: &Loaded,
        certificates: Vec<Certificate>,
        before: Option<&Custody>,
    ) -> Result<Custody, LoadError> {
        let storage = storage::open(&loaded.storage, &self.data)?;
        Custody::open(&loaded.certificates, certificates, storage, &self.data, before).await
    }

    /// Obtains the certificates of the server's identity, reusing those of `before`.
    pub(super) async fn identity(
        &self,
        loaded: &Loaded,
        before: Option<&Custody>,
    ) -> Result<Option<Custody>, LoadError> {
        let Some(identity) = &loaded.admin.identity else { return Ok(None) };
        let storage = storage::open(&loaded.storage, &self.data)?;
        Custody::open(&identity.certificates, Vec::new(), storage, &self.data, before).await.map(Some)
    }

    /// Returns the puller of the next configuration, and the configuration that it pulls at once.
    pub(super) async fn pull(
        &self,
        loaded: &Loaded,
        by: &LoadOrigin,
        identity: Option<&Custody>,
    ) -> Result<(Option<Puller>, Option<PulledConfig>), LoadError> {
        let Some(pull) = &loaded.admin.pull else { return Ok((None, None)) };
        let names = loaded.admin.identity.iter().flat_map(|identity| &identity.identifiers);
        let identity = identity.zip(names.into_iter().next());
        let identity =
            identity.map(|(custody, name)| ServerIdentity { certificates: custody.finder(), name: name.clone() });
        let puller = Puller::new(pull, &self.directives, &self.environment, identity);
        let pull_error = |error| LoadError::Pull(puller.name().to_owned(), error);
        if *by == LoadOrigin::Pull && puller.is_immediate() {
            return Err(pull_error(PullError::Recursive));
        }
        let pulled = puller.pull_at_once().await.map_err(pull_error)?;
        Ok((Some(puller), pulled))
    }

    /// Returns the listeners of the admin API under this configuration.
    pub(super) fn admin_listeners(
        &self,
        loaded: &Loaded,
        remote: Option<ListenerAccess>,
        identity: Option<&Custody>,
    ) -> AdminListeners {
        let local = self.access(loaded).map(|access| AdminListener { access, certificates: None });
        let certificates = identity.map(Custody::finder);
        AdminListeners { local, remote: remote.map(|access| AdminListener { access, certificates }) }
    }

    /// Returns the admin API's rules under this configuration; `None` when it is off.
    fn access(&self, loaded: &Loaded) -> Option<ListenerAccess> {
        let admin = &loaded.admin;
        let address = admin.listen.as_ref().or(self.admin.as_ref()).filter(|_| admin.is_enabled)?;
        let (address, origins) = (address.clone(), admin.origins.clone());
        Some(ListenerAccess {
            address,
            clients: AcceptedClients::Local { enforce_origin: admin.enforce_origin, origins },
        })
    }

    pub(super) fn admin_state(&self, control: &Control) -> Arc<AdminState> {
        Arc::new(AdminState {
            control: control.clone(),
            directives: Arc::clone(&self.directives),
            environment: Arc::clone(&self.environment),
            metrics: Arc::clone(self.registry.metrics()),
        })
    }
}

//! The running server: one task that owns the engine and the configuration. A load replaces both or neither.
//!
//! In reading order:
//! - [`Server`]: the life cycle
//! - `settings`: the start parameters; `compiled`: a configuration that passed every check
//! - `builder`: the API for embedding; [`RunningServer`] is the handle to an embedded server
//! - `control`: the command channel through which other tasks use the server
//! - `tree`: reads and changes one value of the configuration
//! - `ids`: configuration objects addressed by `@id`
//! - `certificates`: the certificates of the current configuration, obtained and renewed
//! - `renewals`: the tasks of those of public authorities; `issuance_plan`: one certificate from the first issuer that
//!   signs it; `order_limits`: rate limits that orders have met; `issuers`: the issuers by the configuration
//! - [`AutomaticCertificates`]: the same for a server of the embedding program
//! - `on_demand`: certificates for which a handshake waits; `getters`: those of other servers, which handshakes query;
//!   `staples`: OCSP responses
//! - `tickets`: the keys of session tickets; `trust_endpoint`: authorities that other servers send
//! - `storage`: opens the storage of certificates
//! - `pull`: pulls configurations from another server
//! - `range_fetches`: fetches the networks of trusted proxies
//! - `measures`: the metrics of the process and the server
//! - `source`: the file that the configuration was read from
//! - `autosave`: the path of the last loaded configuration, for the next start
//! - `admins`: the listeners of the admin API
//! - `conflicts`: detects address conflicts between sites and the admin API
//! - `upgrade`: the handover to another process
//! - `blocking`: work on threads that may block
//! - `error`: the reasons for refusing a configuration
//!
//! The admin API uses [`Control`] like every other caller. This module holds its listener only because the
//! configuration sets its address.

mod admins;
mod automatic;
mod autosave;
mod blocking;
mod builder;
mod certificates;
mod compiled;
mod conflicts;
mod control;
mod error;
mod getters;
mod ids;
mod issuance_plan;
mod issuers;
mod measures;
mod on_demand;
mod order_limits;
mod order_slots;
mod pull;
mod range_fetches;
mod renewals;
mod settings;
mod source;
mod staples;
mod storage;
mod tickets;
mod tree;
mod trust_endpoint;
mod upgrade;

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use causeway_certs::{Durability, replace};
use causeway_config::plan::Loaded;
use causeway_engine::{BlockingSpec, Engine, EngineSpec, WorkerLiveness};
use causeway_modules::logs::{self, Logs};
use causeway_modules::metric_push::{MetricPush, PreparedPush};
use causeway_modules::trace;
use causeway_pipeline::BoundAddress;
use serde_json::{Value, json};
use tokio::sync::{oneshot, watch};

pub use automatic::AutomaticCertificates;
pub use autosave::autosave_path;
pub use builder::{Builder, Configuration, RefusedConfiguration, RunningServer, ServerError};
pub use causeway_certs::NameRecord;
pub use certificates::{AuthorityFacts, CertificateStatus, data_directory, data_directory_in};
pub use compiled::validate;
pub use control::{Change, Control, Excerpt, Force, LoadOrigin, LoadRequest, Status, StopError, Stopping};
pub use error::{ChangeError, LoadError};
pub use ids::IdError;
pub use pull::PullError;
pub use renewals::Attempt;
pub use settings::{Environment, LogsReceiver, ServerSettings, Stage, StageReceiver};
pub use source::ConfigFile;
pub use storage::open_storage;
pub use tree::{TreeError, Verb};
pub use upgrade::{Handover, SuccessorStart, UpgradeError, UpgradeOffer};

/// The address for [`Builder::admin`].
pub use causeway_config::plan::AdminAddress;

use crate::admin;
use crate::document::log_warnings;
pub(crate) use admins::AdminListener;
use admins::Admins;
use certificates::Custody;
use compiled::{Compiled, Ids};
use conflicts::as_configured;
pub(crate) use control::CONFIG_BYTES_MAX;
use control::{Command, CommandQueues, ConfigurationNumber, PulledLoad, Query, StopCommand, WAITING_MAX};
use pull::PullTask;
use range_fetches::RangeFetches;

/// Time limit for writing the queued log lines at the end.
const LOG_GRACE: Duration = Duration::from_secs(5);
/// Time that a reload or an upgrade waits for workers which wait for room in the queue of a log (`queue_full wait`).
const LOG_WAIT_MAX: Duration = Duration::from_secs(5);
/// Time limit for a collector to accept the last spans.
const TRACE_GRACE: Duration = Duration::from_secs(5);

/// A running server. It executes the commands of its [`Control`]s while [`run`](Self::run) is polled. Dropping it stops
/// it at once.
pub struct Server {
    engine: Engine,
    /// The bound addresses, each with whether it serves TLS.
    site_addresses: watch::Sender<Vec<SiteAddress>>,
    custody: Custody,
    /// The certificates of the server's identity.
    identity: Option<Custody>,
    admins: Admins,
    tree: Value,
    ids: Ids,
    grace: Duration,
    shutdown_delay: Duration,
    /// The file that the server was started with.
    own_file: Option<ConfigFile>,
    /// The same while the configuration is the file's, for a later signal, which loads the file again.
    followed_file: Option<ConfigFile>,
    /// Pulls the next configuration.
    pulling: Option<PullTask>,
    /// Fetches the networks of trusted proxies.
    range_fetches: RangeFetches,
    /// Sends metrics to a collector.
    metric_push: Option<MetricPush>,
    /// When its counters began at zero.
    started_at: SystemTime,
    /// The number of the current configuration.
    configuration_number: ConfigurationNumber,
    settings: ServerSettings,
    control: Control,
    queues: CommandQueues,
}

/// Commands that arrived during an upgrade.
#[derive(Default)]
struct DeferredCommands {
    commands: VecDeque<Command>,
    stop: Option<StopCommand>,
}

/// A bound address of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteAddress {
    /// The address.
    pub address: BoundAddress,
    /// Whether the site serves TLS there.
    pub is_tls: bool,
}

impl Server {
    /// Returns a builder for a server embedded in another program. It has no configuration yet.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts serving `config`; `followed_file` is the file that it was read from. Requires a tokio runtime. On
    /// failure, nothing keeps running.
    ///
    /// # Errors
    /// Returns the reason when `config` cannot be served.
    pub async fn start(
        mut settings: ServerSettings,
        config: Value,
        followed_file: Option<ConfigFile>,
    ) -> Result<Self, LoadError> {
        let (workers, handed) = (settings.workers, settings.handed.take());
        // The former process has saved its configuration, or had a reason not to, such as a pull.
        let is_new = handed.is_none();
        let handed = handed.unwrap_or_default();
        let (control, queues) = Control::channel();
        let Compiled { ids, loaded, remote, logs, certificates, metric_push } =
            settings.compile(config.clone()).await?;
        let identity = settings.identity(&loaded, None).await?;
        let wanted = settings.admin_listeners(&loaded, remote, identity.as_ref());
        wanted.refuse_conflicts(loaded.listeners.iter().map(|listener| listener.socket.clone()))?;
        // The API opens before the engine starts: if a later step fails, dropping it closes its sockets again.
        let admins = Admins::open(wanted, &settings.admin_state(&control), handed.admin)?;
        let custody = settings.custody(&loaded, certificates, None).await?;
        let (puller, pulled) = settings.pull(&loaded, &LoadOrigin::Owner, identity.as_ref()).await?;
        let secure = secure(&loaded);
        let spec = EngineSpec {
            workers,
            listeners: loaded.listeners,
            plan: Arc::new(loaded.plan),
            certificates: Some(custody.finder()),
            blocking: BlockingSpec::default(),
        };
        let engine = Engine::start_with(spec, handed.sites);
        let engine = engine.map_err(LoadError::Sites)?;
        control.observe(engine.observer());
        measures::install(settings.registry.metrics(), engine.observer());
        let mut server = Self {
            site_addresses: watch::Sender::new(site_addresses(&engine, &secure)),
            engine,
            custody,
            identity,
            admins,
            tree: Value::Null,
            ids,
            grace: settings.grace.unwrap_or(loaded.grace),
            shutdown_delay: loaded.shutdown_delay,
            own_file: followed_file.clone(),
            followed_file,
            pulling: None,
            range_fetches: RangeFetches::default(),
            metric_push: None,
            started_at: SystemTime::now(),
            configuration_number: ConfigurationNumber::default(),
            settings,
            control,
            queues,
        };
        server.activate_certificates();
        server.activate_logs(&logs, &loaded.warnings);
        server.pulling = puller.map(|puller| puller.start(pulled, server.configuration_number, server.control.clone()));
        server.range_fetches.switch(loaded.range_fetches);
        server.switch_metric_push(metric_push);
        server.store_tree(json!({ "config": config }), loaded.admin.persists_config && is_new).await;
        Ok(server)
    }

    /// Returns a handle for commands to this server.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Returns the bound IP addresses of the current configuration's sites.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.engine.addresses()
    }

    /// Returns the bound addresses of the current configuration's sites.
    pub fn site_addresses(&self) -> Vec<SiteAddress> {
        self.site_addresses.borrow().clone()
    }

    /// Returns a handle for checking that the workers run.
    pub fn liveness(&self) -> WorkerLiveness {
        self.engine.liveness()
    }

    /// Returns a receiver that follows [`site_addresses`](Self::site_addresses) across reloads.
    pub(crate) fn watch_site_addresses(&self) -> watch::Receiver<Vec<SiteAddress>> {
        self.site_addresses.subscribe()
    }

    /// Returns the authorities that sign certificates for the sites, each with the place of the root certificate that
    /// clients must trust.
    pub fn authorities(&self) -> Vec<(String, String)> {
        let mut roots = self.custody.roots();
        let more = self.identity.as_ref().map(Custody::roots).unwrap_or_default();
        for root in more {
            if !roots.contains(&root) {
                roots.push(root);
            }
        }
        roots
    }

    /// Returns the admin API's bound address; `None` while the API is off.
    pub fn admin_address(&self) -> Option<BoundAddress> {
        self.admins.local_address()
    }

    /// Returns the bound address of the admin API for clients with a certificate; `None` while it is off.
    pub fn remote_admin_address(&self) -> Option<BoundAddress> {
        self.admins.remote_address()
    }

    /// Executes commands until one of them stops the server, then drains in-flight exchanges.
    pub async fn run(mut self) {
        // Commands that arrived during an upgrade which failed; they precede those in the channel.
        let mut deferred = DeferredCommands::default();
        let StopCommand { grace, reply } = loop {
            if let Some(stop) = deferred.stop.take() {
                break stop;
            }
            let next = async {
                match deferred.commands.pop_front() {
                    Some(command) => Some(command),
                    None => self.queues.commands.recv().await,
                }
            };
            let command = tokio::select! {
                biased;
                Some(stop) = self.queues.stops.recv() => break stop,
                command = next => command,
            };
            let Some(command) = command else { return };
            match command {
                // The caller may have gone away by now; the command is executed anyway.
                Command::Load(load, reply) => drop(reply.send(self.load(load).await)),
                Command::LoadPulled(load, reply) => drop(reply.send(self.load_pulled(load).await)),
                Command::Change(change, reply) => drop(reply.send(self.change(change).await)),
                Command::Query(query) => self.answer(query).await,
                Command::FollowedFile(reply) => drop(reply.send(self.followed_file.clone())),
                Command::Upgrade(binary, reply) => match self.upgrade(binary, &mut deferred).await {
                    Ok(process) => {
                        self.control.succeeded_by(process);
                        let _ = reply.send(Ok(process));
                        // The callers of waiting commands get `LoadError::Stopping` or `StopError::Overtaken`, and may
                        // send them to the other process.
                        drop(deferred);
                        return self.drain_after_handover(process).await;
                    }
                    Err(error) => {
                        match error {
                            UpgradeError::Cancelled => tracing::info!("ending the upgrade: {error}"),
                            _ => tracing::error!("the upgrade failed; this process continues to serve: {error}"),
                        }
                        let _ = reply.send(Err(error));
                    }
                },
            }
        };
        self.grace = grace.unwrap_or(self.grace);
        let (done, stopping) = Control::stopping(self.shutdown_delay, self.grace);
        let _ = reply.send(stopping);
        // Their callers get `LoadError::Stopping` now, not after the drain.
        drop(deferred);
        self.end(done).await;
    }

    /// Drains the sites, then closes the admin API. From here on every command fails because the server is stopping.
    async fn end(mut self, done: oneshot::Sender<()>) {
        (self.settings.stages)(&Stage::Stopping(self.shutdown_delay.saturating_add(self.grace)));
        self.pulling = None;
        self.queues.close();
        // During the delay the server still serves normally, so that load balancers can notice: placeholders expose the
        // deadline.
        self.engine.announce_shutdown(Instant::now() + self.shutdown_delay);
        tokio::time::sleep(self.shutdown_delay).await;
        without_blocked_workers(self.grace, self.engine.drain(self.grace)).await;
        // Not before: when the stop command came through the API, its response is still to be sent.
        let _ = done.send(());
        self.admins.close();
        self.admins.closed().await;
        // A closed output sends the metrics once more, and `flush` waits for it.
        self.metric_push = None;
        flush().await;
    }

    /// Stops following the file until a load from it: `config` was not read from it.
    pub fn unfollow_file(&mut self) {
        self.followed_file = None;
    }

    /// Makes the files of Unix sockets this server's, after it has taken the place of another one.
    pub fn take_over_socket_files(&mut self) {
        self.engine.take_over_socket_files();
        self.admins.take_over_socket_files();
    }

    /// Lets another process take the place of this one. Returns its id once it serves. Meanwhile commands that change
    /// the configuration are deferred, at most as many as may wait in the channel; a command to stop ends the other
    /// process.
    async fn upgrade(&mut self, binary: Option<PathBuf>, deferred: &mut DeferredCommands) -> Result<u32, UpgradeError> {
        let start = self.settings.successor.as_ref().ok_or(UpgradeError::Embedded)?;
        let sites = without_blocked_workers(LOG_WAIT_MAX, self.engine.duplicate_sockets())
            .await
            .map_err(UpgradeError::Sockets)?;
        let admin = self.admins.duplicate_sockets().await.map_err(UpgradeError::Sockets)?;
        let config = self.tree.get("config").cloned().unwrap_or_default();
        let (followed_file, sockets) = (self.followed_file.clone(), Handover { sites, admin });
        let is_withdrawn = Arc::new(AtomicBool::new(false));
        let offer = UpgradeOffer { config, followed_file, sockets, binary, is_withdrawn: Arc::clone(&is_withdrawn) };
        let mut started = start(offer);
        loop {
            let command = tokio::select! {
                started = &mut started => return started.map_err(|message| match is_withdrawn.load(Ordering::Relaxed) {
                    true => UpgradeError::Cancelled,
                    false => UpgradeError::Successor(message),
                }),
                // Further ones wait in the channel, for the same result.
                Some(stop) = self.queues.stops.recv(), if deferred.stop.is_none() => {
                    is_withdrawn.store(true, Ordering::Relaxed);
                    deferred.stop = Some(stop);
                    continue;
                }
                Some(command) = self.queues.commands.recv(), if deferred.commands.len() < WAITING_MAX => command,
            };
            match command {
                Command::Query(query) => self.answer(query).await,
                // Also the query for the followed file: its caller is about to load that.
                command => deferred.commands.push_back(command),
            }
        }
    }

    async fn answer(&mut self, query: Query) {
        match query {
            Query::Check(path, if_match, reply) => {
                drop(reply.send(self.check_change(&path, if_match.as_deref()).map(drop)));
            }
            Query::Read(path, reply) => drop(reply.send(self.read(&path))),
            Query::Resolve(path, reply) => drop(reply.send(self.resolve(&path))),
            Query::Authority(id, reply) => drop(reply.send(self.custody.authority(id).await)),
            Query::Certificates(reply) => drop(reply.send(self.certificates())),
        }
    }

    /// Ends after another process has taken this one's place: accepts no more, and drains without a delay.
    async fn drain_after_handover(mut self, process: u32) {
        let grace = self.grace.as_secs();
        tracing::info!("process {process} serves now; requests of this process have {grace} s to end");
        self.pulling = None;
        self.queues.close();
        self.engine.release_socket_files();
        // At once, so that the other process answers all further requests.
        self.admins.release_socket_files_and_close();
        // The last request of an idle connection has the other half of the time.
        without_blocked_workers(self.grace, self.engine.drain_with_idle_grace(self.grace, self.grace / 2)).await;
        self.admins.closed().await;
        self.metric_push = None;
        flush().await;
    }

    async fn load(&mut self, load: LoadRequest) -> Result<(), LoadError> {
        self.replace_and_report(json!({ "config": load.config }), load.force, &load.by).await?;
        self.follow_if_same(&load.by);
        Ok(())
    }

    async fn load_pulled(&mut self, load: PulledLoad) -> Result<(), LoadError> {
        // An operator's configuration, which came first, must stay.
        if load.number != self.configuration_number {
            return Err(LoadError::Superseded);
        }
        if Some(&load.config) == self.tree.get("config") {
            // Quietly: this is the usual result of a poll.
            tracing::debug!("the pulled configuration is unchanged");
            return Ok(());
        }
        self.replace_and_report(json!({ "config": load.config }), Force::IfChanged, &LoadOrigin::Pull).await?;
        log_warnings(&load.warnings);
        Ok(())
    }

    async fn change(&mut self, change: Change) -> Result<(), ChangeError> {
        let path = self.check_change(&change.path, change.if_match.as_deref())?;
        // Change a copy, so that a failure at any step leaves the current tree intact.
        let mut tree = self.tree.clone();
        tree::change(&mut tree, change.verb, &path, change.value)?;
        self.replace_and_report(tree, change.force, &change.by).await.map_err(ChangeError::Load)?;
        self.follow_if_same(&change.by);
        Ok(())
    }

    /// Checks the path and the entity tag of a change. Returns the path below `/config`.
    fn check_change(&self, path: &str, if_match: Option<&str>) -> Result<String, ChangeError> {
        let path = self.resolve(path)?;
        if let Some(tag) = if_match {
            self.still_matches(tag)?;
        }
        Ok(path)
    }

    /// Describes every name whose certificate the server obtains, sorted by name.
    fn certificates(&self) -> Vec<CertificateStatus> {
        let mut names = self.custody.names();
        names.extend(self.identity.iter().flat_map(Custody::names));
        names.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        names
    }

    fn read(&self, path: &str) -> Result<Excerpt, ChangeError> {
        let path = self.resolve(path)?;
        let json = encode(tree::read(&self.tree, &path)?);
        let etag = format!("\"{path} {}\"", hash(&json));
        Ok(Excerpt { json, etag })
    }

    /// Resolves `/id/NAME/…` to a path under `/config`. Other paths are returned unchanged.
    fn resolve(&self, path: &str) -> Result<String, ChangeError> {
        let Some(named) = path.strip_prefix("/id/") else { return Ok(path.to_owned()) };
        let (id, rest) = named.split_once('/').unwrap_or((named, ""));
        if id.is_empty() {
            return Err(ChangeError::NoId);
        }
        let place = self.ids.get(id).ok_or_else(|| ChangeError::UnknownId(id.to_owned()))?;
        let rest = rest.trim_end_matches('/');
        Ok(if rest.is_empty() { place.clone() } else { format!("{place}/{rest}") })
    }

    /// Compares an `If-Match` tag with the tree. Caddy's entity tags include their path, so the tag of an object also
    /// guards a change deeper inside it.
    fn still_matches(&self, tag: &str) -> Result<(), ChangeError> {
        let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        let inner = inner.ok_or(ChangeError::BadIfMatch("quoted string"))?;
        let words: Vec<_> = inner.split_whitespace().collect();
        let [path, tag] = words[..] else { return Err(ChangeError::BadIfMatch("format \"<path> <hash>\"")) };
        if hash(&encode(tree::read(&self.tree, path)?)) == tag { Ok(()) } else { Err(ChangeError::Changed) }
    }

    /// After a load by a peer the server follows its own file only if the new configuration comes from that file: a
    /// later SIGUSR1 must not overwrite another one. A server that no longer follows its file does so again only after
    /// a load of exactly that file.
    fn follow_if_same(&mut self, by: &LoadOrigin) {
        let LoadOrigin::Peer(source) = by else { return };
        let is_following = self.followed_file.is_some();
        let is_same = |ours: &ConfigFile| {
            source
                .as_ref()
                .is_some_and(|source| if is_following { ours.is_same(source) } else { ours.is_identical(source) })
        };
        self.followed_file = self.own_file.clone().filter(is_same);
    }

    /// Serves the configuration in `tree`, and records a refusal in the metrics.
    async fn replace_and_report(&mut self, tree: Value, force: Force, by: &LoadOrigin) -> Result<(), LoadError> {
        (self.settings.stages)(&Stage::Loading);
        let replaced = self.replace(tree, force, by).await;
        match &replaced {
            Ok(()) => (self.settings.stages)(&Stage::Loaded(&self.site_addresses.borrow())),
            Err(error) => {
                self.settings.registry.metrics().record_load(false);
                (self.settings.stages)(&Stage::Refused(error));
            }
        }
        replaced
    }

    /// Serves the configuration in `tree`. Does nothing when it is unchanged and `force` allows that. Every step that
    /// can fail comes before the first change that cannot be withdrawn.
    async fn replace(&mut self, tree: Value, force: Force, by: &LoadOrigin) -> Result<(), LoadError> {
        let config = tree.get("config").cloned().unwrap_or_default();
        if force == Force::IfChanged && Some(&config) == self.tree.get("config") {
            tracing::info!("the configuration is unchanged");
            // As in Caddy: a bad change was taken back.
            self.settings.registry.metrics().record_load(true);
            return Ok(());
        }
        let Compiled { ids, loaded, remote, logs, certificates, metric_push } = self.settings.compile(config).await?;
        let custody = self.settings.custody(&loaded, certificates, Some(&self.custody)).await?;
        let identity = self.settings.identity(&loaded, self.identity.as_ref()).await?;
        let (puller, pulled) = self.settings.pull(&loaded, by, identity.as_ref()).await?;
        let secure = secure(&loaded);
        let before = (self.admin_address(), self.remote_admin_address());
        let wanted = self.settings.admin_listeners(&loaded, remote, identity.as_ref());
        let sites = loaded.listeners.iter().map(|listener| listener.socket.clone());
        let current_sites = self.engine.bound_addresses().iter().map(as_configured);
        let state = self.settings.admin_state(&self.control);
        let change = self.admins.prepare(wanted, &state, sites, current_sites).await?;
        let reload = self.engine.reload(loaded.listeners, Arc::new(loaded.plan), Some(custody.finder()));
        if let Err(error) = without_blocked_workers(LOG_WAIT_MAX, reload).await {
            // Withdraw the wider rules: the configuration stays as it was.
            self.admins.withdraw(change).await;
            return Err(LoadError::Sites(error));
        }
        // The engine serves the new configuration now; no later step can fail the load.
        let known = self.authorities();
        self.custody = custody;
        self.identity = identity;
        self.activate_certificates();
        self.site_addresses.send_replace(site_addresses(&self.engine, &secure));
        for (id, root) in self.authorities().iter().filter(|root| !known.contains(root)) {
            tracing::info!("{}", trust_message(id, root));
        }
        self.admins.commit(change).await;
        self.log_admin_addresses(&before);
        self.activate_logs(&logs, &loaded.warnings);
        self.ids = ids;
        self.grace = self.settings.grace.unwrap_or(loaded.grace);
        self.shutdown_delay = loaded.shutdown_delay;
        self.store_tree(tree, loaded.admin.persists_config && *by != LoadOrigin::Pull).await;
        self.configuration_number = self.configuration_number.next();
        // The former configuration's loader may be the one that waits for the end of this load.
        self.pulling = puller.map(|puller| puller.start(pulled, self.configuration_number, self.control.clone()));
        self.range_fetches.switch(loaded.range_fetches);
        self.switch_metric_push(metric_push);
        admin::configuration_changed();
        self.log_site_addresses();
        Ok(())
    }

    /// Uses the certificates of the current configuration from now on. The engine serves that configuration already.
    fn activate_certificates(&mut self) {
        self.custody.install_authorities();
        self.custody.start_orders();
        self.identity.iter_mut().for_each(Custody::start_orders);
        let metrics = self.settings.registry.metrics();
        measures::install_certificates(metrics, self.custody.store());
        metrics.record_load(true);
    }

    /// Sends metrics by the current configuration. A running export with the same settings continues.
    fn switch_metric_push(&mut self, wanted: Option<PreparedPush>) {
        let is_same = |wanted: &PreparedPush| self.metric_push.as_ref().is_some_and(|running| wanted.is(running));
        if wanted.as_ref().is_some_and(is_same) {
            return;
        }
        self.metric_push = wanted.and_then(|wanted| {
            let metrics = self.settings.registry.metrics();
            wanted.start(metrics, self.started_at).map_err(|error| tracing::error!("sending metrics: {error}")).ok()
        });
    }

    /// Logs to the outputs of the current configuration from now on, first its `warnings`.
    fn activate_logs(&self, logs: &Arc<Logs>, warnings: &[String]) {
        logs.activate();
        (self.settings.logs)(logs);
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
    }

    /// Logs the addresses of the admin API that differ from those before: of its local and its remote listener.
    fn log_admin_addresses(&self, before: &(Option<BoundAddress>, Option<BoundAddress>)) {
        match self.admin_address() {
            after if after == before.0 => {}
            Some(address) => tracing::info!("the admin API is on {} now", address_text(&address)),
            None => tracing::info!("the admin API is off now"),
        }
        match self.remote_admin_address() {
            after if after == before.1 => {}
            Some(address) => tracing::info!("the remote admin API is on https://{address} now"),
            None => tracing::info!("the remote admin API is off now"),
        }
    }

    /// Logs the addresses of the sites after a load.
    fn log_site_addresses(&self) {
        match self.engine.bound_addresses() {
            [] => tracing::info!("configuration replaced; it has no site"),
            addresses => {
                let texts: Vec<_> = addresses.iter().map(BoundAddress::to_string).collect();
                tracing::info!("serving another configuration on {}", texts.join(", "));
            }
        }
    }

    /// Makes `tree` the current configuration. `persist`: its file for `run --resume` is written too.
    async fn store_tree(&mut self, mut tree: Value, persist: bool) {
        // Objects are unordered in Caddy's API, which shows their keys sorted.
        tree.sort_all_objects();
        self.tree = tree;
        let config = self.tree.get("config").filter(|config| persist && !config.is_null());
        // A null configuration is not saved: resuming it would serve no site.
        let (Some(config), Some(path)) = (config, self.settings.autosave.clone()) else { return };
        let text = encode(config);
        let kept = tokio::task::spawn_blocking(move || {
            replace(&path, &text, Durability::Flushed).map_err(|error| (path, error))
        });
        if let Ok(Err((path, error))) = kept.await {
            tracing::warn!("{}: keeping the configuration for --resume: {error}", path.display());
        }
    }
}

/// Sends the last spans and writes the last log lines, within their limits.
async fn flush() {
    let _ = tokio::task::spawn_blocking(|| trace::flush_all(TRACE_GRACE)).await;
    let _ = tokio::task::spawn_blocking(|| logs::end_all(LOG_GRACE)).await;
}

fn site_addresses(engine: &Engine, secure: &[bool]) -> Vec<SiteAddress> {
    let bound = engine.bound_addresses().iter().zip(secure);
    bound.map(|(address, is_tls)| SiteAddress { address: address.clone(), is_tls: *is_tls }).collect()
}

/// Returns the address as a URL, or as a configuration writes it for a Unix socket.
fn address_text(address: &BoundAddress) -> String {
    address.socket_addr().map_or_else(|| address.to_string(), |address| format!("http://{address}"))
}

/// Waits for `work`, in which every worker takes part. After `timeout`, workers that wait for room in the queue of a
/// log drop their lines instead, so that an absent collector holds up no shutdown and no reload.
async fn without_blocked_workers<T>(timeout: Duration, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(timeout, &mut work).await {
        return done;
    }
    let _dropping = logs::DropWhenFull::begin();
    work.await
}

fn secure(loaded: &Loaded) -> Vec<bool> {
    loaded.listeners.iter().map(|listener| listener.tls.is_some()).collect()
}

/// Returns the message for the operator that clients must trust the root certificate of a local authority.
pub fn trust_message(id: &str, root: &str) -> String {
    format!("Clients must trust the authority '{id}': its root certificate is {root}")
}

/// Encodes JSON on one line, with a final newline, as Caddy sends it.
fn encode(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn hash(json: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(json);
    format!("{:016x}", hasher.finish())
}

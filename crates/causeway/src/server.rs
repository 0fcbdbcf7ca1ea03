//! The server as its owner sees it: one task that holds the engine and the configuration, and replaces both at once or not at all.
//!
//! In reading order:
//! - [`Settings`], [`Server`]: what it is started with, and its life
//! - `builder`: a server in another program, [`Running`] there
//! - `control`: how everybody else talks to it
//! - `tree`: one place of the configuration, read and changed
//! - `ids`: places by name
//! - `certificates`: those of the configuration in place, obtained and renewed
//! - `source`: the file that it came from
//! - `autosave`: the last configuration, kept for the next start
//! - `apart`: its sites and the admin API in each other's way
//! - `fault`: why a configuration is not served
//!
//! The admin API is a caller like the command line; this room holds its listener only because a configuration says where that is.

mod apart;
mod autosave;
mod builder;
mod certificates;
mod control;
mod fault;
mod ids;
mod source;
mod tree;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher as _};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_certs::Certificate;
use causeway_config::caddyfile::Directives;
use causeway_config::plan::{self, AdminAddress, Level, Loaded};
use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_pipeline::Registry;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

pub use autosave::autosave_path;
pub use builder::{Builder, Configuration, Refused, Running, StartFault};
pub use certificates::{AuthorityFacts, data_folder};
pub use control::{By, Change, Control, Excerpt, Force, Load, Status, Stopping};
pub use fault::{ChangeFault, LoadFault};
pub use ids::IdFault;
pub use source::Source;
pub use tree::{TreeFault, Verb};

use crate::admin::{self, Admin, Office, Rules};
use apart::{apart, written};
use certificates::{Custody, Reader};
use control::Command;

/// How long the admin API's last answers may take when its listener goes.
const ADMIN_GRACE: Duration = Duration::from_secs(10);

/// Answers `{$NAME}` of Caddyfiles.
pub type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What a server is started with besides its configuration.
pub struct Settings {
    /// Worker threads.
    pub workers: usize,
    /// How long exchanges under way may take to end, whatever configurations say.
    pub grace: Option<Duration>,
    /// The modules that configurations may name.
    pub registry: Arc<Registry>,
    /// The directives of Caddyfiles that the API is sent.
    pub directives: Arc<Directives>,
    /// What Caddyfiles that the API is sent see of the environment.
    pub environment: Environment,
    /// Where the admin API listens when a configuration does not say; `None`: nowhere then.
    pub admin: Option<AdminAddress>,
    /// Where certificates are kept when a configuration does not say; see [`data_folder`].
    pub data: PathBuf,
    /// Where the last configuration is kept, unless it says that it is not to be.
    pub autosave: Option<PathBuf>,
    /// Where access records go.
    pub access: Box<dyn io::Write + Send>,
    /// Told how much a configuration wants to be said.
    pub level: Box<dyn Fn(Level) + Send + Sync>,
}

/// A running server. It does what its [`Control`]s ask while [`run`](Self::run) is polled; dropping it ends it at once.
pub struct Server {
    engine: Engine,
    /// Its addresses, and which of them are spoken to over TLS.
    places: watch::Sender<Places>,
    custody: Custody,
    admin: Option<Admin>,
    /// Admin listeners that are on their way out.
    retiring: JoinSet<()>,
    tree: Value,
    ids: Ids,
    grace: Duration,
    shutdown_delay: Duration,
    follows: Option<Source>,
    fixed: Fixed,
    control: Control,
    commands: mpsc::Receiver<Command>,
}

/// Where sites are reached, and whether it is over TLS.
pub(crate) type Places = Vec<(SocketAddr, bool)>;

/// Names of places, and their paths.
type Ids = BTreeMap<String, String>;

/// What no configuration changes.
struct Fixed {
    grace: Option<Duration>,
    registry: Arc<Registry>,
    directives: Arc<Directives>,
    environment: Environment,
    admin: Option<AdminAddress>,
    data: PathBuf,
    autosave: Option<PathBuf>,
    level: Box<dyn Fn(Level) + Send + Sync>,
}

/// A configuration that can be served, as far as that is known without listening.
struct Compiled {
    ids: Ids,
    loaded: Loaded,
    /// What it loads of certificates.
    certificates: Vec<Certificate>,
}

/// What a load does to the admin API, prepared so far that nothing can fail.
enum AdminChange {
    /// It stays as it is.
    Keep,
    /// It answers by other rules, or at another place, and still at the old one.
    Widened(Rules),
    /// There was none.
    Opened(Box<Admin>),
    /// There is to be none.
    Close,
}

impl Server {
    /// A server for another program, without a configuration yet.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts serving a configuration, `follows` being the file that it came from. Needs a tokio runtime. Nothing is left behind
    /// when it fails.
    ///
    /// # Errors
    /// Why it is not served.
    pub async fn start(settings: Settings, config: Value, follows: Option<Source>) -> Result<Self, LoadFault> {
        let Settings { workers, grace, registry, directives, environment, admin, data, autosave, access, level } =
            settings;
        let fixed = Fixed { grace, registry, directives, environment, admin, data, autosave, level };
        let (control, commands) = Control::channel();
        let Compiled { ids, loaded, certificates } = fixed.compile(config.clone()).await?;
        let rules = fixed.rules(&loaded);
        apart(loaded.listeners.iter().map(|listener| listener.address), rules.iter().map(|rules| &rules.address))?;
        let admin = rules.map(|rules| Admin::open(rules, fixed.office(&control))).transpose()?;
        let custody = fixed.custody(&loaded, certificates, None).await?;
        let secure = secure(&loaded);
        let engine = Engine::start(EngineSpec {
            workers,
            listeners: loaded.listeners,
            plan: Arc::new(loaded.plan),
            certificates: Some(custody.finder()),
            blocking: BlockingSpec::default(),
            access,
        });
        let engine = engine.map_err(LoadFault::Sites)?;
        (fixed.level)(loaded.level);
        loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
        let mut server = Self {
            places: watch::Sender::new(places(&engine, &secure)),
            engine,
            custody,
            admin,
            retiring: JoinSet::new(),
            tree: Value::Null,
            ids,
            grace: fixed.grace.unwrap_or(loaded.grace),
            shutdown_delay: loaded.shutdown_delay,
            follows,
            fixed,
            control,
            commands,
        };
        server.keep(json!({ "config": config }), loaded.admin.persist).await;
        Ok(server)
    }

    /// A way to it.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Where the configuration's sites are reached.
    pub fn addresses(&self) -> &[SocketAddr] {
        self.engine.addresses()
    }

    /// The same, with whether it is over TLS.
    pub fn places(&self) -> Vec<(SocketAddr, bool)> {
        self.places.borrow().clone()
    }

    /// The same while it runs.
    pub(crate) fn watch_places(&self) -> watch::Receiver<Places> {
        self.places.subscribe()
    }

    /// The authorities that sign certificates for its sites, each with the file that clients must trust.
    pub fn authorities(&self) -> Vec<(String, PathBuf)> {
        self.custody.roots()
    }

    /// Where the admin API is reached.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(Admin::address)
    }

    /// Does what is asked until somebody asks for the end; then lets exchanges under way end.
    pub async fn run(mut self) {
        let done = loop {
            let Some(command) = self.commands.recv().await else { return };
            match command {
                // Whoever asked may have gone away meanwhile; what was asked for is done all the same.
                Command::Load(load, reply) => drop(reply.send(self.load(load).await)),
                Command::Change(change, reply) => drop(reply.send(self.change(change).await)),
                Command::Read(path, reply) => drop(reply.send(self.read(&path))),
                Command::Authority(id, reply) => drop(reply.send(self.custody.authority(id).await)),
                Command::Status(reply) => drop(reply.send(self.status())),
                Command::Follows(reply) => drop(reply.send(self.follows.clone())),
                Command::Stop(grace, reply) => {
                    self.grace = grace.unwrap_or(self.grace);
                    let (done, stopping) = Control::stopping(self.shutdown_delay, self.grace);
                    let _ = reply.send(stopping);
                    break done;
                }
            }
        };
        self.end(done).await;
    }

    /// Whoever asks for anything from here on is told that the server is stopping.
    async fn end(mut self, done: oneshot::Sender<()>) {
        self.commands.close();
        while self.commands.try_recv().is_ok() {}
        // Balancers in front see a server that is well, and may be told by then: placeholders say when it ends.
        self.engine.announce_shutdown(Instant::now() + self.shutdown_delay);
        tokio::time::sleep(self.shutdown_delay).await;
        self.engine.drain(self.grace).await;
        // Only now: who asked for the end by way of the API has an answer to come.
        let _ = done.send(());
        if let Some(admin) = self.admin {
            self.retiring.spawn(admin.close(ADMIN_GRACE));
        }
        while self.retiring.join_next().await.is_some() {}
    }

    async fn load(&mut self, load: Load) -> Result<(), LoadFault> {
        self.replace(json!({ "config": load.config }), load.force).await?;
        self.changed(&load.by);
        Ok(())
    }

    async fn change(&mut self, change: Change) -> Result<(), ChangeFault> {
        let path = self.resolve(&change.path)?;
        if let Some(tag) = &change.if_match {
            self.still_matches(tag)?;
        }
        let mut tree = self.tree.clone();
        tree::change(&mut tree, change.verb, &path, change.value)?;
        self.replace(tree, change.force).await.map_err(ChangeFault::Load)?;
        self.changed(&change.by);
        Ok(())
    }

    fn status(&self) -> Status {
        let engine = &self.engine;
        Status { connections: engine.connections(), live_plans: engine.live_plans(), panics: engine.panics() }
    }

    fn read(&self, path: &str) -> Result<Excerpt, ChangeFault> {
        let path = self.resolve(path)?;
        let json = encode(tree::read(&self.tree, &path)?);
        let etag = format!("\"{path} {}\"", hash(&json));
        Ok(Excerpt { json, etag })
    }

    /// The path below `/config` of a path by name.
    fn resolve(&self, path: &str) -> Result<String, ChangeFault> {
        let Some(named) = path.strip_prefix("/id/") else { return Ok(path.to_owned()) };
        let (id, rest) = named.split_once('/').unwrap_or((named, ""));
        if id.is_empty() {
            return Err(ChangeFault::NoId);
        }
        let place = self.ids.get(id).ok_or_else(|| ChangeFault::UnknownId(id.to_owned()))?;
        let rest = rest.trim_end_matches('/');
        Ok(if rest.is_empty() { place.clone() } else { format!("{place}/{rest}") })
    }

    /// Caddy's entity tags name the place that they are of: one of a wider place guards a narrower one.
    fn still_matches(&self, tag: &str) -> Result<(), ChangeFault> {
        let inner = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
        let inner = inner.ok_or(ChangeFault::BadIfMatch("quoted string"))?;
        let words: Vec<_> = inner.split_whitespace().collect();
        let [path, tag] = words[..] else { return Err(ChangeFault::BadIfMatch("format \"<path> <hash>\"")) };
        if hash(&encode(tree::read(&self.tree, path)?)) == tag { Ok(()) } else { Err(ChangeFault::Changed) }
    }

    /// After a success of somebody else than the owner.
    fn changed(&mut self, by: &By) {
        let By::Peer(source) = by else { return };
        let same = |ours: &Source| source.as_ref().is_some_and(|source| ours.is_same(source));
        if !self.follows.as_ref().is_some_and(same) {
            self.follows = None;
        }
    }

    /// Serves another configuration, or the one it has where nothing differs. Everything that can fail comes first.
    async fn replace(&mut self, tree: Value, force: Force) -> Result<(), LoadFault> {
        let config = tree.get("config").cloned().unwrap_or_default();
        if force == Force::IfChanged && Some(&config) == self.tree.get("config") {
            tracing::info!("the configuration is unchanged");
            return Ok(());
        }
        let Compiled { ids, loaded, certificates } = self.fixed.compile(config).await?;
        let custody = self.fixed.custody(&loaded, certificates, Some(&self.custody)).await?;
        let secure = secure(&loaded);
        let before = self.admin_address();
        let change = self.prepare_admin(&loaded).await?;
        if let Err(error) = self.engine.reload(loaded.listeners, Arc::new(loaded.plan), Some(custody.finder())).await {
            if let (AdminChange::Widened(_), Some(admin)) = (change, &mut self.admin) {
                admin.settle(admin.rules().clone()).await;
            }
            return Err(LoadFault::Sites(error));
        }
        let known = self.custody.roots();
        self.custody = custody;
        self.places.send_replace(places(&self.engine, &secure));
        for (id, root) in self.custody.roots().iter().filter(|root| !known.contains(root)) {
            tracing::info!("{}", root_words(id, root));
        }
        self.commit_admin(change).await;
        match self.admin_address() {
            after if after == before => {}
            Some(address) => tracing::info!("the admin API is on http://{address} now"),
            None => tracing::info!("the admin API is off now"),
        }
        while self.retiring.try_join_next().is_some() {}
        (self.fixed.level)(loaded.level);
        loaded.notes.iter().for_each(|note| tracing::warn!("{note}"));
        self.ids = ids;
        self.grace = self.fixed.grace.unwrap_or(loaded.grace);
        self.shutdown_delay = loaded.shutdown_delay;
        self.keep(tree, loaded.admin.persist).await;
        admin::configuration_changed();
        match self.engine.addresses() {
            [] => tracing::info!("serving another configuration, which names no site"),
            addresses => {
                let places: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
                tracing::info!("serving another configuration on {}", places.join(", "));
            }
        }
        Ok(())
    }

    async fn prepare_admin(&mut self, loaded: &Loaded) -> Result<AdminChange, LoadFault> {
        let rules = self.fixed.rules(loaded);
        let (now, next) =
            (self.admin.as_ref().map(|admin| &admin.rules().address), rules.as_ref().map(|rules| &rules.address));
        let sites = loaded.listeners.iter().map(|listener| listener.address);
        apart(sites, now.into_iter().chain(next))?;
        // Sites that go are closed only when the API has its place.
        apart(self.engine.addresses().iter().map(written), next.into_iter())?;
        Ok(match (&mut self.admin, rules) {
            (None, None) => AdminChange::Keep,
            (Some(admin), Some(rules)) if *admin.rules() == rules => AdminChange::Keep,
            (Some(admin), Some(rules)) => {
                admin.widen(&rules).await?;
                AdminChange::Widened(rules)
            }
            (None, Some(rules)) => AdminChange::Opened(Box::new(Admin::open(rules, self.fixed.office(&self.control))?)),
            (Some(_), None) => AdminChange::Close,
        })
    }

    async fn commit_admin(&mut self, change: AdminChange) {
        match (change, &mut self.admin) {
            (AdminChange::Widened(rules), Some(admin)) => admin.settle(rules).await,
            (AdminChange::Opened(admin), _) => self.admin = Some(*admin),
            (AdminChange::Close, _) => {
                if let Some(admin) = self.admin.take() {
                    // Not waited for: the answer that says this worked is one of those that it has to give.
                    self.retiring.spawn(admin.close(ADMIN_GRACE));
                }
            }
            (AdminChange::Keep | AdminChange::Widened(_), _) => {}
        }
    }

    async fn keep(&mut self, mut tree: Value, persist: bool) {
        // Objects have no order in Caddy's API, which shows their keys sorted.
        tree.sort_all_objects();
        self.tree = tree;
        let config = self.tree.get("config").filter(|config| persist && !config.is_null());
        let (Some(config), Some(path)) = (config, self.fixed.autosave.clone()) else { return };
        let text = encode(config);
        let kept = tokio::task::spawn_blocking(move || autosave::write(&path, &text).map_err(|error| (path, error)));
        if let Ok(Err((path, error))) = kept.await {
            tracing::warn!("{}: keeping the configuration for --resume: {error}", path.display());
        }
    }
}

impl Fixed {
    /// Off the workers, and off the task that others wait for.
    async fn compile(&self, config: Value) -> Result<Compiled, LoadFault> {
        let registry = Arc::clone(&self.registry);
        let compiled = tokio::task::spawn_blocking(move || compile(config, &registry));
        compiled.await.unwrap_or(Err(LoadFault::Broken))
    }

    /// The certificates that it wants.
    async fn custody(
        &self,
        loaded: &Loaded,
        certificates: Vec<Certificate>,
        before: Option<&Custody>,
    ) -> Result<Custody, LoadFault> {
        let storage = certificates::storage(&loaded.storage, &self.data);
        Custody::open(&loaded.certificates, certificates, storage, before).await
    }

    /// What the admin API is by this configuration; `None` where it is off.
    fn rules(&self, loaded: &Loaded) -> Option<Rules> {
        let admin = &loaded.admin;
        let address = admin.listen.as_ref().or(self.admin.as_ref()).filter(|_| admin.switch == plan::Switch::On)?;
        let (address, origins) = (address.clone(), admin.origins.clone());
        Some(Rules { address, enforce_origin: admin.enforce_origin, origins })
    }

    fn office(&self, control: &Control) -> Arc<Office> {
        Arc::new(Office {
            control: control.clone(),
            directives: Arc::clone(&self.directives),
            environment: Arc::clone(&self.environment),
        })
    }
}

/// Checks a configuration without serving it. What only shows when it listens is not seen.
///
/// # Errors
/// Why it could not be served.
pub fn validate(config: Value, registry: &Registry) -> Result<(), LoadFault> {
    compile(config, registry).map(drop)
}

fn compile(mut config: Value, registry: &Registry) -> Result<Compiled, LoadFault> {
    let ids = ids::index(&config).map_err(LoadFault::Ids)?;
    ids::strip(&mut config);
    let reader = Reader::default();
    let loaded = plan::load_with(&config, registry, &|sources| reader.names_of(sources)).map_err(LoadFault::Config)?;
    Ok(Compiled { ids, loaded, certificates: reader.into_read() })
}

fn places(engine: &Engine, secure: &[bool]) -> Places {
    engine.addresses().iter().copied().zip(secure.iter().copied()).collect()
}

fn secure(loaded: &Loaded) -> Vec<bool> {
    loaded.listeners.iter().map(|listener| listener.tls.is_some()).collect()
}

/// What an operator has to do so that clients believe an authority of ours.
pub fn root_words(id: &str, root: &Path) -> String {
    format!("Clients must trust the authority '{id}': its root certificate is {}", root.display())
}

/// JSON on one line, with its end, as Caddy sends it.
fn encode(value: &Value) -> Vec<u8> {
    format!("{value}\n").into_bytes()
}

fn hash(json: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    hasher.write(json);
    format!("{:016x}", hasher.finish())
}

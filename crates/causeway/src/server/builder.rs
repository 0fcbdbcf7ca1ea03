//! A server embedded in another program: its builder, and the handle to it while it runs.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::caddyfile::{Directives, Order, RegisterError, Syntax, Warning};
use causeway_config::plan::AdminAddress;
use causeway_modules::access_log;
use causeway_modules::logs::Output;
use causeway_pipeline::{Build, BuildError, Handler, Matcher, Registry};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::certificates::data_directory;
use super::{
    Control, Environment, Force, LoadError, LoadOrigin, LoadRequest, Server, ServerSettings, SiteAddress, Status,
};
use crate::document::{AdaptedDocument, Document, DocumentError, Language, log_warnings};

/// Name of an embedded Caddyfile in messages.
const CADDYFILE: &str = "Caddyfile";

/// A configuration in memory.
#[derive(Debug, Clone)]
pub enum Configuration {
    /// The text of a Caddyfile.
    Caddyfile(String),
    /// Caddy's JSON.
    Json(Value),
}

impl From<&str> for Configuration {
    fn from(text: &str) -> Self {
        Self::Caddyfile(text.to_owned())
    }
}

impl From<String> for Configuration {
    fn from(text: String) -> Self {
        Self::Caddyfile(text)
    }
}

impl From<Value> for Configuration {
    fn from(json: Value) -> Self {
        Self::Json(json)
    }
}

/// Builds an embedded server. Defaults: all built-in modules, one worker per core, access records on standard error,
/// and no admin API unless the configuration sets its address.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use causeway::Server;
///
/// let server = Server::builder().caddyfile(":0\nbind 127.0.0.1\nrespond hello\n").workers(1).start().await?;
/// println!("http://{}", server.addresses()[0]);
/// server.reload(":0\nbind 127.0.0.1\nrespond \"hello again\"\n").await?;
/// server.drain(std::time::Duration::from_secs(1)).await;
/// # Ok::<_, causeway::server::ServerError>(())
/// # }).unwrap();
/// ```
#[must_use]
pub struct Builder {
    configuration: Option<Configuration>,
    registry: Registry,
    directives: Vec<(String, Order<'static>, Syntax)>,
    environment: Environment,
    workers: usize,
    grace: Option<Duration>,
    admin: Option<AdminAddress>,
    data: PathBuf,
    access: Option<Box<dyn io::Write + Send>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            configuration: None,
            registry: crate::registry(),
            directives: Vec::new(),
            environment: Arc::new(|name| std::env::var(name).ok()),
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            grace: None,
            admin: None,
            data: data_directory(),
            access: None,
        }
    }
}

impl Builder {
    /// Sets the configuration to a Caddyfile.
    pub fn caddyfile(mut self, text: impl Into<String>) -> Self {
        self.configuration = Some(Configuration::Caddyfile(text.into()));
        self
    }

    /// Sets the configuration to Caddy's JSON.
    pub fn json(mut self, json: Value) -> Self {
        self.configuration = Some(Configuration::Json(json));
        self
    }

    /// Adds a handler module, replacing a module of this name, built-in ones included. `make` receives the handler's
    /// JSON. It may capture state that its handlers use.
    pub fn handler(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.registry.register_handler(name, make);
        self
    }

    /// Adds a matcher module. Only JSON can name it: the Caddyfile reader does not support custom matchers yet.
    pub fn matcher(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.registry.register_matcher(name, make);
        self
    }

    /// Adds a Caddyfile directive at a position in the directive order. [`Directives::register`] shows how a directive
    /// is parsed.
    pub fn directive(mut self, name: impl Into<String>, order: Order<'static>, syntax: Syntax) -> Self {
        self.directives.push((name.into(), order, syntax));
        self
    }

    /// Sets the lookup for `{$NAME}` and `{env.NAME}`. Default: the environment of the process.
    pub fn environment(mut self, look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.environment = Arc::new(look_up);
        self
    }

    /// Sets the number of worker threads. Default: one per core.
    ///
    /// # Panics
    /// When `workers` is 0.
    pub fn workers(mut self, workers: usize) -> Self {
        assert!(workers > 0, "a server has at least one worker");
        self.workers = workers;
        self
    }

    /// Sets the time limit for in-flight exchanges at shutdown. It overrides the grace period of every configuration.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Sets the admin API's address for configurations that set none. Default: such a configuration has no admin API.
    pub fn admin(mut self, address: AdminAddress) -> Self {
        self.admin = Some(address);
        self
    }

    /// Sets the certificate directory for configurations that set none. Default: the command line's directory,
    /// [`data_directory`].
    pub fn data_directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = directory.into();
        self
    }

    /// Sets the writer for access records that the configuration sends to standard error, as a `log` without an output
    /// does, and for entries about failed requests. Default: standard error; without logs in the configuration there
    /// are no such entries then.
    pub fn access_records(mut self, into: impl io::Write + Send + 'static) -> Self {
        self.access = Some(Box::new(into));
        self
    }

    /// Starts the server. Requires a tokio runtime with I/O and time enabled; the workers have threads and runtimes of
    /// their own. On failure, nothing keeps running.
    ///
    /// # Errors
    /// Returns the reason when the server cannot start.
    pub async fn start(mut self) -> Result<RunningServer, ServerError> {
        let environment = Arc::clone(&self.environment);
        self.registry.set_environment(move |name| environment(name));
        match self.access {
            Some(stream) => {
                let stream = Output::to_stream(stream).map_err(ServerError::Thread)?;
                let errors = Arc::clone(&stream);
                self.registry.register_handler("access_log", move |value, build| {
                    access_log::make_with(value, build, Some(Arc::clone(&stream)))
                });
                self.registry.register_handler("error_log", move |value, build| {
                    access_log::error::make_with(value, build, Some(Arc::clone(&errors)))
                });
            }
            None => self.registry.register_handler("error_log", access_log::error::make_configured),
        }
        let mut directives = crate::directives(&self.registry);
        for (name, order, syntax) in self.directives {
            directives.register(&name, order, syntax).map_err(|error| ServerError::Directive(name, error))?;
        }
        let directives = Arc::new(directives);
        let written = self.configuration.ok_or(ServerError::NoConfiguration)?;
        let (document, adapted) = adapt(written, &directives, &self.environment)?;
        let settings = ServerSettings {
            workers: self.workers,
            grace: self.grace,
            registry: Arc::new(self.registry),
            directives: Arc::clone(&directives),
            environment: Arc::clone(&self.environment),
            admin: self.admin,
            data: self.data,
            autosave: None,
            // The embedding program owns the tracing subscriber, so the server's messages are its own.
            logs: Box::new(|_| {}),
            // The service manager, if any, is the embedding program's own business.
            stages: Box::new(|_| {}),
            successor: None,
            handed: None,
        };
        let server = match Server::start(settings, adapted.json.clone(), None).await {
            Ok(server) => server,
            Err(error) => {
                return Err(ServerError::Load(Box::new(RefusedConfiguration { document, adapted, error })));
            }
        };
        // `run` takes the server, so the handle only has channels to it.
        let (control, site_addresses) = (server.control(), server.watch_site_addresses());
        let admin = server.admin_address().and_then(|address| address.socket_addr());
        let warnings = adapted.warnings;
        let environment = self.environment;
        let task = tokio::spawn(server.run());
        Ok(RunningServer { control, site_addresses, admin, warnings, directives, environment, task })
    }

    /// Serves until `signal` completes, then drains in-flight exchanges. Returns earlier when the admin API stops the
    /// server.
    ///
    /// # Errors
    /// Returns the reason when the server cannot start.
    pub async fn run_until(self, signal: impl Future) -> Result<(), ServerError> {
        let mut running = self.start().await?;
        tokio::select! {
            _ = signal => running.stop().await,
            () = running.joined() => {}
        }
        Ok(())
    }
}

fn adapt(
    written: Configuration,
    directives: &Directives,
    environment: &Environment,
) -> Result<(Document, AdaptedDocument), ServerError> {
    let document = |text, language| Document { name: CADDYFILE.to_owned(), text, language };
    match written {
        Configuration::Caddyfile(text) => {
            let document = document(text, Language::Caddyfile);
            let mut adapted = document.adapt(directives, &**environment).map_err(ServerError::Document)?;
            adapted.warnings.extend(document.root_warnings(&adapted));
            Ok((document, adapted))
        }
        Configuration::Json(json) => {
            let document = Document { name: "JSON".to_owned(), ..document(json.to_string(), Language::Json) };
            let mut adapted = AdaptedDocument::of(json);
            adapted.warnings = document.root_warnings(&adapted);
            Ok((document, adapted))
        }
    }
}

/// A handle to a running embedded server. Dropping it stops the server at once; [`drain`](Self::drain) lets in-flight
/// exchanges finish first.
pub struct RunningServer {
    control: Control,
    site_addresses: watch::Receiver<Vec<SiteAddress>>,
    admin: Option<SocketAddr>,
    warnings: Vec<Warning>,
    directives: Arc<Directives>,
    environment: Environment,
    task: JoinHandle<()>,
}

impl RunningServer {
    /// Returns the bound IP addresses of the current configuration's sites.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.site_addresses.borrow().iter().filter_map(|site| site.address.socket_addr()).collect()
    }

    /// Returns the bound addresses of the current configuration's sites.
    pub fn site_addresses(&self) -> Vec<SiteAddress> {
        self.site_addresses.borrow().clone()
    }

    /// Returns the admin API's IP address at the start of the server; a reload does not update it.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Returns the warnings of the configuration that the server started with.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// Returns the handle for all other commands.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Returns the server's counters; `None` after the admin API has stopped it.
    pub fn status(&self) -> Option<Status> {
        self.control.status()
    }

    /// Serves another configuration. Connections and in-flight exchanges continue. A refused configuration changes
    /// nothing.
    ///
    /// # Errors
    /// Returns the reason when the configuration is refused.
    pub async fn reload(&self, configuration: impl Into<Configuration>) -> Result<(), ServerError> {
        let (document, adapted) = adapt(configuration.into(), &self.directives, &self.environment)?;
        log_warnings(&adapted.warnings);
        let load = LoadRequest { config: adapted.json.clone(), force: Force::IfChanged, by: LoadOrigin::Owner };
        let loaded = self.control.load(load).await;
        loaded.map_err(|error| ServerError::Load(Box::new(RefusedConfiguration { document, adapted, error })))
    }

    /// Stops accepting connections and waits at most `grace` for in-flight exchanges.
    pub async fn drain(mut self, grace: Duration) {
        if let Ok(stopping) = self.control.stop_within(grace).await {
            stopping.ended().await;
        }
        self.joined().await;
    }

    /// Like [`drain`](Self::drain), with the grace period that the builder or the configuration sets.
    pub async fn stop(mut self) {
        if let Ok(stopping) = self.control.stop().await {
            stopping.ended().await;
        }
        self.joined().await;
    }

    /// Waits for the end of the server, which the admin API may cause.
    pub async fn ended(mut self) {
        self.joined().await;
    }

    async fn joined(&mut self) {
        // A panic of the task was already reported by its thread.
        let _ = (&mut self.task).await;
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for RunningServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningServer").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// The reason why a server does not start, or refuses another configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServerError {
    /// A custom directive cannot be added: a mistake of the embedding program.
    Directive(String, RegisterError),
    /// The builder received neither a Caddyfile nor JSON.
    NoConfiguration,
    /// The system refuses a thread for access records.
    Thread(io::Error),
    /// A mistake in the configuration's text.
    Document(DocumentError),
    /// The configuration cannot be served.
    Load(Box<RefusedConfiguration>),
}

/// A configuration that was refused, with its text for the error message.
#[derive(Debug)]
pub struct RefusedConfiguration {
    document: Document,
    adapted: AdaptedDocument,
    error: LoadError,
}

impl RefusedConfiguration {
    /// Returns the reason.
    pub fn load_error(&self) -> &LoadError {
        &self.error
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directive(name, error) => write!(f, "directive '{name}': {error}"),
            Self::NoConfiguration => f.write_str("no configuration; expected a Caddyfile or JSON"),
            Self::Thread(error) => write!(f, "starting the thread for access records: {error}"),
            Self::Document(mistake) => mistake.fmt(f),
            Self::Load(refused) => f.write_str(&refused.document.explain_load_error(&refused.adapted, &refused.error)),
        }
    }
}

impl std::error::Error for ServerError {}

//! A server in another program: what it is made of, and the handle to it while it runs.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::caddyfile::{Directives, Order, RegisterError, Syntax, Warning};
use causeway_config::plan::AdminAddress;
use causeway_pipeline::{Build, BuildError, Handler, Matcher, Registry};
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::certificates::data_folder;
use super::{By, Control, Environment, Force, Load, LoadFault, Places, Server, Settings, Status};
use crate::document::{AdaptedDocument, Document, Language, Mistake};

/// What a Caddyfile is called in messages.
const CADDYFILE: &str = "Caddyfile";

/// A configuration that a program holds as text or JSON.
#[derive(Debug, Clone)]
pub enum Configuration {
    /// A Caddyfile's text.
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

/// A server before it starts. It has all built-in modules, no admin API unless its configuration says where, one worker per
/// core, and writes access records to standard error.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// use causeway::Server;
///
/// let server = Server::builder().caddyfile(":0\nbind 127.0.0.1\nrespond hello\n").workers(1).start().await?;
/// println!("http://{}", server.addresses()[0]);
/// server.reload(":0\nbind 127.0.0.1\nrespond \"hello again\"\n").await?;
/// server.drain(std::time::Duration::from_secs(1)).await;
/// # Ok::<_, causeway::server::StartFault>(())
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
    access: Box<dyn io::Write + Send>,
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
            data: data_folder(),
            access: Box::new(io::stderr()),
        }
    }
}

impl Builder {
    /// Serves what a Caddyfile says.
    pub fn caddyfile(mut self, text: impl Into<String>) -> Self {
        self.configuration = Some(Configuration::Caddyfile(text.into()));
        self
    }

    /// Serves what Caddy's JSON says.
    pub fn json(mut self, json: Value) -> Self {
        self.configuration = Some(Configuration::Json(json));
        self
    }

    /// Adds a handler module; one of the same name, ours too, is replaced. `make` is told the handler's JSON and may hold what
    /// its handlers talk to.
    pub fn handler(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Handler>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.registry.handler(name, make);
        self
    }

    /// Adds a matcher module. A Caddyfile cannot name it: kinds of matchers are not open to others yet; JSON can.
    pub fn matcher(
        mut self,
        name: impl Into<String>,
        make: impl Fn(&Value, &mut Build<'_>) -> Result<Box<dyn Matcher>, BuildError> + Send + Sync + 'static,
    ) -> Self {
        self.registry.matcher(name, make);
        self
    }

    /// Adds a directive of Caddyfiles, with its place among the others. [`Directives::register`] shows how one is read.
    pub fn directive(mut self, name: impl Into<String>, order: Order<'static>, syntax: Syntax) -> Self {
        self.directives.push((name.into(), order, syntax));
        self
    }

    /// What `{$NAME}` and `{env.NAME}` stand for; by default the process's environment.
    pub fn environment(mut self, look_up: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        self.environment = Arc::new(look_up);
        self
    }

    /// Worker threads; by default one per core.
    ///
    /// # Panics
    /// When it is none.
    pub fn workers(mut self, workers: usize) -> Self {
        assert!(workers > 0, "a server has at least one worker");
        self.workers = workers;
        self
    }

    /// How long exchanges under way may take to end, whatever configurations say.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// Where the admin API listens when the configuration does not say; by default there is none then.
    pub fn admin(mut self, address: AdminAddress) -> Self {
        self.admin = Some(address);
        self
    }

    /// Where certificates are kept when the configuration does not say; by default where the command line keeps them.
    pub fn data_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data = folder.into();
        self
    }

    /// Where access records go.
    pub fn access_records(mut self, into: impl io::Write + Send + 'static) -> Self {
        self.access = Box::new(into);
        self
    }

    /// Starts serving. Needs a tokio runtime with I/O and time; the workers have threads and runtimes of their own. Nothing is left
    /// behind when it fails.
    ///
    /// # Errors
    /// Why it does not serve.
    pub async fn start(mut self) -> Result<Running, StartFault> {
        let environment = Arc::clone(&self.environment);
        self.registry.environment(move |name| environment(name));
        let mut directives = crate::directives(&self.registry);
        for (name, order, syntax) in self.directives {
            directives.register(&name, order, syntax).map_err(|error| StartFault::Directive(name, error))?;
        }
        let directives = Arc::new(directives);
        let written = self.configuration.ok_or(StartFault::NoConfiguration)?;
        let (document, adapted) = adapt(written, &directives, &self.environment)?;
        let settings = Settings {
            workers: self.workers,
            grace: self.grace,
            registry: Arc::new(self.registry),
            directives: Arc::clone(&directives),
            environment: Arc::clone(&self.environment),
            admin: self.admin,
            data: self.data,
            autosave: None,
            access: self.access,
            // How much is said is for the program to decide, whose subscriber it is.
            level: Box::new(|_| {}),
        };
        let server = match Server::start(settings, adapted.json.clone(), None).await {
            Ok(server) => server,
            Err(fault) => return Err(StartFault::Load(Box::new(Refused { document, adapted, fault }))),
        };
        let (control, places) = (server.control(), server.watch_places());
        let admin = server.admin_address();
        let warnings = adapted.warnings;
        let environment = self.environment;
        let task = tokio::spawn(server.run());
        Ok(Running { control, places, admin, warnings, directives, environment, task })
    }

    /// Serves until `signal` comes, then lets exchanges under way end; or until the admin API asks for the end.
    ///
    /// # Errors
    /// Why it does not serve.
    pub async fn run_until(self, signal: impl Future) -> Result<(), StartFault> {
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
) -> Result<(Document, AdaptedDocument), StartFault> {
    let document = |text, language| Document { name: CADDYFILE.to_owned(), text, language };
    match written {
        Configuration::Caddyfile(text) => {
            let document = document(text, Language::Caddyfile);
            let adapted = document.adapt(directives, &**environment).map_err(StartFault::Mistake)?;
            Ok((document, adapted))
        }
        Configuration::Json(json) => {
            let document = Document { name: "JSON".to_owned(), ..document(String::new(), Language::Json) };
            Ok((document, AdaptedDocument::of(json)))
        }
    }
}

/// A server that serves. Dropping it ends it at once; [`drain`](Self::drain) lets exchanges end first.
pub struct Running {
    control: Control,
    places: watch::Receiver<Places>,
    admin: Option<SocketAddr>,
    warnings: Vec<Warning>,
    directives: Arc<Directives>,
    environment: Environment,
    task: JoinHandle<()>,
}

impl Running {
    /// Where its sites are reached, by the configuration in place.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.places.borrow().iter().map(|(address, _)| *address).collect()
    }

    /// The same, with whether it is over TLS.
    pub fn places(&self) -> Vec<(SocketAddr, bool)> {
        self.places.borrow().clone()
    }

    /// Where the admin API was reached when the server started.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// What the configuration that it started with says and deserves a look.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// What else may be asked of it.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// How it stands; `None` when the admin API has ended it.
    pub async fn status(&self) -> Option<Status> {
        self.control.status().await
    }

    /// Serves another configuration. No connection is lost, and no exchange under way; one that is refused changes nothing.
    ///
    /// # Errors
    /// Why it is not served.
    pub async fn reload(&self, configuration: impl Into<Configuration>) -> Result<(), StartFault> {
        let (document, adapted) = adapt(configuration.into(), &self.directives, &self.environment)?;
        let load = Load { config: adapted.json.clone(), force: Force::IfChanged, by: By::Owner };
        let loaded = self.control.load(load).await;
        loaded.map_err(|fault| StartFault::Load(Box::new(Refused { document, adapted, fault })))
    }

    /// Accepts nothing more, and lets exchanges under way end, for so long at most.
    pub async fn drain(mut self, grace: Duration) {
        if let Some(stopping) = self.control.stop_within(grace).await {
            stopping.ended().await;
        }
        self.joined().await;
    }

    /// The same with the grace that was set, or that the configuration names.
    pub async fn stop(mut self) {
        if let Some(stopping) = self.control.stop().await {
            stopping.ended().await;
        }
        self.joined().await;
    }

    /// Until its end, which the admin API may ask for.
    pub async fn ended(mut self) {
        self.joined().await;
    }

    async fn joined(&mut self) {
        // Its own panic, if there was one, was reported by its thread.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// Why a server does not start, or does not serve another configuration.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartFault {
    /// A directive of one's own cannot be added: the programmer's mistake.
    Directive(String, RegisterError),
    /// Neither a Caddyfile nor JSON was given.
    NoConfiguration,
    /// A mistake in the text.
    Mistake(Mistake),
    /// It cannot be served.
    Load(Box<Refused>),
}

/// A configuration that cannot be served.
#[derive(Debug)]
pub struct Refused {
    document: Document,
    adapted: AdaptedDocument,
    fault: LoadFault,
}

impl Refused {
    /// Why.
    pub fn fault(&self) -> &LoadFault {
        &self.fault
    }
}

impl fmt::Display for StartFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Directive(name, error) => write!(f, "directive '{name}': {error}"),
            Self::NoConfiguration => f.write_str("no configuration; expected a Caddyfile or JSON"),
            Self::Mistake(mistake) => mistake.fmt(f),
            Self::Load(refused) => f.write_str(&refused.document.explain_fault(&refused.adapted, &refused.fault)),
        }
    }
}

impl std::error::Error for StartFault {}

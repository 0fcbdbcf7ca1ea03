//! An engine with every test handler, on a port of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::{BlockingSpec, Certificates, Engine, EngineSpec, StartError};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, HeadLimits, ListenAddress, ListenerSpec, Plan, Protocols, Timeouts, TlsSpec};
use serde_json::json;

use super::client::Client;
use super::handlers::{self, Given};
use super::http2::Http2;
use super::probe::Probe;

/// Whether the server has error routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    Handled,
    Default,
}

/// What a test may change of its server.
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) timeouts: Timeouts,
    pub(crate) head: HeadLimits,
    pub(crate) protocols: Protocols,
    pub(crate) http2: causeway_pipeline::Http2,
    pub(crate) blocking: BlockingSpec,
    pub(crate) errors: Errors,
    /// The server's name, which the handler `plan` tells.
    pub(crate) name: &'static str,
    /// Whether the program is there for it.
    pub(crate) is_progress: bool,
    /// Servers of the plan before it, so that its number differs.
    pub(crate) servers_before: usize,
    pub(crate) states: States,
    /// How every listener protects its connections.
    pub(crate) tls: Option<TlsSpec>,
    pub(crate) certificates: Option<Arc<dyn Certificates>>,
}

/// What the plan's workers keep for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum States {
    None,
    /// So much that nobody overlooks it.
    Ballast,
    /// One that cannot be made on the second worker.
    Panicking,
}

impl Setup {
    fn new(tweak: impl FnOnce(&mut Self)) -> Self {
        let mut setup = Self {
            workers: 1,
            listen: vec![loopback()],
            timeouts: Timeouts::default(),
            head: HeadLimits::default(),
            protocols: Protocols::default(),
            http2: causeway_pipeline::Http2::default(),
            blocking: BlockingSpec::default(),
            errors: Errors::Default,
            name: "test",
            is_progress: true,
            servers_before: 0,
            states: States::None,
            tls: None,
            certificates: None,
        };
        tweak(&mut setup);
        setup
    }

    fn build(&self, given: &Given) -> (Vec<ListenerSpec>, Arc<Plan>) {
        let (mut routes, errors) = (handlers::routes(given), handlers::errors(given));
        let state = match self.states {
            States::None => None,
            States::Ballast => Some("ballast"),
            States::Panicking => Some("panic-state"),
        };
        if let (Some(routes), Some(state)) = (routes.as_array_mut(), state) {
            let handler = json!({"handler": state, "probe": given.probe.id(), "files": given.files});
            routes.push(json!({"handle": [handler]}));
        }
        let registry = handlers::registry();
        let mut build = Build::new(&registry);
        let nothing = json!([]);
        for _ in 0..self.servers_before {
            build.server(&ServerSpec::new("before", &nothing)).unwrap_or_else(|error| panic!("{error}"));
        }
        let errors = (self.errors == Errors::Handled).then_some(&errors);
        let server = ServerSpec { errors, is_progress: self.is_progress, ..ServerSpec::new(self.name, &routes) };
        let server = build.server(&server).unwrap_or_else(|error| panic!("{error}"));
        let listener = |address: &ListenAddress| ListenerSpec {
            timeouts: self.timeouts,
            head: self.head,
            protocols: self.protocols,
            tls: self.tls.clone(),
            http2: self.http2,
            ..ListenerSpec::new(*address, server)
        };
        (self.listen.iter().map(listener).collect(), Arc::new(build.finish()))
    }
}

/// A running engine. Dropping it ends it at once.
pub(crate) struct Server {
    engine: Option<Engine>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) files: PathBuf,
}

pub(crate) fn loopback() -> ListenAddress {
    ListenAddress { host: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port: 0 }
}

impl Server {
    /// One worker on a loopback port, defaults otherwise, as `tweak` leaves it.
    #[track_caller]
    pub(crate) fn start(tweak: impl FnOnce(&mut Setup)) -> Self {
        Self::try_start(tweak).expect("an engine on a free port")
    }

    pub(crate) fn try_start(tweak: impl FnOnce(&mut Setup)) -> Result<Self, StartError> {
        let setup = Setup::new(tweak);
        let probe = Probe::new();
        let files = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", std::process::id(), probe.id()));
        std::fs::create_dir_all(&files).expect("a folder for a test's files");
        let (listeners, plan) = setup.build(&Given { probe: Arc::clone(&probe), files: files.clone() });
        let engine = Engine::start(EngineSpec {
            workers: setup.workers,
            listeners,
            plan,
            certificates: setup.certificates,
            blocking: setup.blocking,
            access: Box::new(std::io::sink()),
        })?;
        Ok(Self { engine: Some(engine), probe, files })
    }

    /// Another plan and other listeners: those of [`start`](Self::start), as `tweak` leaves them.
    pub(crate) fn reload(&mut self, tweak: impl FnOnce(&mut Setup)) -> Result<(), StartError> {
        let reload = self.reloading(tweak);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(reload)
    }

    /// A reload that has not begun.
    pub(crate) fn reloading(
        &mut self,
        tweak: impl FnOnce(&mut Setup),
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        let given = Given { probe: Arc::clone(&self.probe), files: self.files.clone() };
        let setup = Setup::new(tweak);
        let (listeners, plan) = setup.build(&given);
        self.engine.as_mut().expect("it was not drained").reload(listeners, plan, setup.certificates)
    }

    /// Waits until so many plans are left.
    #[track_caller]
    pub(crate) fn await_plans(&self, count: usize) {
        let end = std::time::Instant::now() + super::PATIENCE;
        while self.engine().live_plans() != count {
            assert!(std::time::Instant::now() < end, "{} plans, not {count}", self.engine().live_plans());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("it was not drained")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.engine().addresses()[0]
    }

    pub(crate) fn pools(&self) -> causeway_engine::Pools {
        self.engine().pools()
    }

    #[track_caller]
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.address())
    }

    #[track_caller]
    pub(crate) fn http2(&self) -> Http2 {
        Http2::connect(self.address())
    }

    /// Waits until so many connections are open.
    #[track_caller]
    pub(crate) fn await_connections(&self, count: usize) {
        let end = std::time::Instant::now() + super::PATIENCE;
        while self.engine().connections() != count {
            assert!(std::time::Instant::now() < end, "{} connections, not {count}", self.engine().connections());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Drains the engine on a thread of its own.
    pub(crate) fn drain(&mut self, grace: Duration) -> std::thread::JoinHandle<()> {
        let engine = self.engine.take().expect("drained once");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(engine.drain(grace));
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Blocking jobs would outlast the test otherwise.
        self.probe.release_blocking();
        drop(self.engine.take());
        // What is left behind lies in the build's own folder.
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

//! An engine with all test handlers, on a port of its own.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::{BlockingSpec, Certificates, Engine, EngineSpec, StartError};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{
    Build, HeadLimits, ListenAddress, ListenerSpec, MetricsSpec, Plan, Protocols, Timeouts, TlsSpec,
};
use serde_json::json;

use super::client::TestClient;
use super::handlers::{self, Given};
use super::http2::Http2;
use super::probe::Probe;

/// Whether the server has error routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Errors {
    Handled,
    Default,
}

/// The settings of a server that a test may change.
pub(crate) struct Setup {
    pub(crate) workers: usize,
    pub(crate) listen: Vec<ListenAddress>,
    pub(crate) timeouts: Timeouts,
    pub(crate) head: HeadLimits,
    pub(crate) protocols: Protocols,
    pub(crate) http2: causeway_pipeline::Http2,
    pub(crate) blocking: BlockingSpec,
    pub(crate) errors: Errors,
    /// The server's name, with which the handler `plan` responds.
    pub(crate) name: &'static str,
    /// Whether the server's requests count as progress for the profiler.
    pub(crate) is_progress: bool,
    /// The number of servers before it in the plan, so that its index differs.
    pub(crate) servers_before: usize,
    pub(crate) states: States,
    /// TLS for every listener.
    pub(crate) tls: Option<TlsSpec>,
    pub(crate) certificates: Option<Arc<dyn Certificates>>,
    /// The metrics that count the requests, if any do.
    pub(crate) metrics: Option<MetricsSpec>,
}

/// State that each worker holds for the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum States {
    None,
    /// A state large enough to show up in the process's memory.
    Ballast,
    /// A state whose creation panics on the second worker.
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
            metrics: None,
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
        if let Some(metrics) = self.metrics {
            build.measure(metrics);
        }
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
pub(crate) struct TestServer {
    engine: Option<Engine>,
    pub(crate) probe: Arc<Probe>,
    pub(crate) files: PathBuf,
}

pub(crate) fn loopback() -> ListenAddress {
    ListenAddress { host: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port: 0, zone: 0 }
}

impl TestServer {
    /// Starts a server with one worker on a loopback port and default settings, changed by `tweak`.
    #[track_caller]
    pub(crate) fn start(tweak: impl FnOnce(&mut Setup)) -> Self {
        Self::try_start(tweak).expect("an engine on a free port")
    }

    pub(crate) fn try_start(tweak: impl FnOnce(&mut Setup)) -> Result<Self, StartError> {
        let setup = Setup::new(tweak);
        let probe = Probe::new();
        let files = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{}", std::process::id(), probe.id()));
        std::fs::create_dir_all(&files).expect("a directory for a test's files");
        let (listeners, plan) = setup.build(&Given { probe: Arc::clone(&probe), files: files.clone() });
        let engine = Engine::start(EngineSpec {
            workers: setup.workers,
            listeners,
            plan,
            certificates: setup.certificates,
            blocking: setup.blocking,
        })?;
        Ok(Self { engine: Some(engine), probe, files })
    }

    /// Reloads with the plan and listeners of [`start`](Self::start), changed by `tweak`.
    pub(crate) fn reload(&mut self, tweak: impl FnOnce(&mut Setup)) -> Result<(), StartError> {
        let reload = self.reloading(tweak);
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(reload)
    }

    /// Returns the future of a reload.
    pub(crate) fn reloading(
        &mut self,
        tweak: impl FnOnce(&mut Setup),
    ) -> impl Future<Output = Result<(), StartError>> + Send {
        let given = Given { probe: Arc::clone(&self.probe), files: self.files.clone() };
        let setup = Setup::new(tweak);
        let (listeners, plan) = setup.build(&given);
        self.engine.as_mut().expect("it was not drained").reload(listeners, plan, setup.certificates)
    }

    /// Waits until `count` plans are alive.
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

    pub(crate) fn counts(&self) -> causeway_engine::WorkerCounts {
        self.engine().observer().total()
    }

    /// The high-water marks of the pools of slots, blocks and write lists.
    pub(crate) fn pools(&self) -> [u64; 3] {
        let counts = self.counts();
        [counts.slots_allocated, counts.blocks_allocated, counts.lists_allocated]
    }

    #[track_caller]
    pub(crate) fn client(&self) -> TestClient {
        TestClient::connect(self.address())
    }

    #[track_caller]
    pub(crate) fn http2(&self) -> Http2 {
        Http2::connect(self.address())
    }

    /// Waits until `count` connections are open.
    #[track_caller]
    pub(crate) fn await_connections(&self, count: usize) {
        let end = std::time::Instant::now() + super::PATIENCE;
        while self.counts().connections != count {
            assert!(std::time::Instant::now() < end, "{} connections, not {count}", self.counts().connections);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Drains the engine on a thread of its own.
    pub(crate) fn drain(&mut self, grace: Duration) -> std::thread::JoinHandle<()> {
        self.draining(grace, Duration::ZERO)
    }

    /// As [`drain`](Self::drain), but idle connections have all of the time.
    pub(crate) fn drain_with_idle_grace(&mut self, grace: Duration) -> std::thread::JoinHandle<()> {
        self.draining(grace, grace)
    }

    fn draining(&mut self, grace: Duration, idle_grace: Duration) -> std::thread::JoinHandle<()> {
        let engine = self.engine.take().expect("drained once");
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
            runtime.block_on(engine.drain_with_idle_grace(grace, idle_grace));
        })
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        // Blocking jobs would outlast the test otherwise.
        self.probe.release_blocking();
        drop(self.engine.take());
        // Best effort: the directory is within the build's own.
        let _ = std::fs::remove_dir_all(&self.files);
    }
}

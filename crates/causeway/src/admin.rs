//! The admin API. It is Caddy's API on a separate engine with one worker, so it responds even while the sites are
//! overloaded.
//!
//! In reading order:
//! - [`Admin`]: the listener, with a plan that consists of one handler
//! - `rules`: the checks of Host and Origin
//! - `remote`: the clients of the remote listener, and their permissions
//! - `handler`: the handler; parses a request into a command
//! - `work`: executes commands on the server
//! - `causal`: executes commands on the causal profiler
//! - `response`: builds responses
//!
//! Like the command line, it reaches the server only through [`Control`].

mod causal;
mod handler;
mod remote;
mod response;
mod rules;
mod work;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::caddyfile::Directives;
use causeway_engine::{BlockingSpec, Engine, EngineSpec, HandedSockets};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{BoundAddress, Build, ListenerSpec, ListeningSocket, Metrics, Plan, Registry, Timeouts};
use serde_json::json;

pub(crate) use causal::configuration_changed;
pub(crate) use remote::RemoteGuard;
pub(crate) use rules::{AcceptedClients, ListenerAccess};

use crate::server::{AdminListener, Control, Environment, LoadError};
use handler::AdminHandler;

/// Idle timeout between requests of a connection; Caddy's value.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Bounds of the pool for blocking work. Few clients use the API, so few large bodies are parsed at once.
const BLOCKING: BlockingSpec = BlockingSpec { threads_max: 4, queue_max: 64 };

/// The handler's shared dependencies.
pub(crate) struct AdminState {
    pub(crate) control: Control,
    pub(crate) directives: Arc<Directives>,
    pub(crate) environment: Environment,
    pub(crate) metrics: Arc<Metrics>,
}

/// The admin API's listener and engine.
pub(crate) struct Admin {
    listener: AdminListener,
    state: Arc<AdminState>,
    engine: Engine,
}

impl Admin {
    /// Binds the address, or takes the sockets of a former process, and starts to serve requests.
    pub(crate) fn open(
        listener: AdminListener,
        state: Arc<AdminState>,
        handed: Vec<HandedSockets>,
    ) -> Result<Self, LoadError> {
        let (listeners, plan) = listener_and_plan(&listener.access, &state);
        let certificates = listener.certificates.clone();
        let spec = EngineSpec { workers: 1, listeners, plan, certificates, blocking: BLOCKING };
        let engine = Engine::start_with(spec, handed);
        match engine {
            Ok(engine) => Ok(Self { listener, state, engine }),
            Err(error) => Err(LoadError::Admin(listener.access.address, error)),
        }
    }

    pub(crate) fn access(&self) -> &ListenerAccess {
        &self.listener.access
    }

    /// Returns the rules and the certificates.
    pub(crate) fn listener(&self) -> &AdminListener {
        &self.listener
    }

    /// Returns the bound address.
    pub(crate) fn address(&self) -> Option<BoundAddress> {
        self.engine.bound_addresses().first().cloned()
    }

    /// Serves `wanted` on its address, and still on the old one: [`apply`](Self::apply) then drops one of the two.
    pub(crate) async fn widen(&mut self, wanted: &AdminListener) -> Result<(), LoadError> {
        let (address, old) = (&wanted.access.address, &self.listener.access.address);
        let (mut listeners, plan) = listener_and_plan(&wanted.access, &self.state);
        // The permission bits of a Unix socket's file can change while it is open.
        let is_same = match (&address.listen, &old.listen) {
            (ListeningSocket::Unix(wanted), ListeningSocket::Unix(old)) => wanted.path == old.path,
            (wanted, old) => wanted == old,
        };
        if !is_same {
            // The old address stays open, so that a failed load can return to it.
            listeners.push(ListenerSpec { socket: old.listen.clone(), ..listeners[0].clone() });
        }
        let widened = self.engine.reload(listeners, plan, wanted.certificates.clone()).await;
        widened.map_err(|error| LoadError::Admin(address.clone(), error))
    }

    /// Serves `wanted`, on its address only.
    pub(crate) async fn apply(&mut self, wanted: AdminListener) {
        let (listeners, plan) = listener_and_plan(&wanted.access, &self.state);
        match self.engine.reload(listeners, plan, wanted.certificates.clone()).await {
            Ok(()) => self.listener = wanted,
            // The socket is already open, so only the system itself can fail here.
            // It has the rules of `widen` then, until the next load.
            Err(error) => {
                tracing::error!("the admin API keeps the rules of the load in progress on both addresses: {error}");
            }
        }
    }

    /// Duplicates its socket for another process.
    pub(crate) async fn duplicate_sockets(&self) -> io::Result<Vec<HandedSockets>> {
        self.engine.duplicate_sockets().await
    }

    /// Makes the file of its Unix socket this process's.
    pub(crate) fn take_over_socket_files(&mut self) {
        self.engine.take_over_socket_files();
    }

    /// Leaves the file of its Unix socket to another process.
    pub(crate) fn release_socket_files(&mut self) {
        self.engine.release_socket_files();
    }

    /// Stops accepting, and drains in-flight requests for at most `grace`.
    pub(crate) async fn close(self, grace: Duration) {
        self.engine.drain(grace).await;
    }
}

/// Builds the listener and plan for `access`.
fn listener_and_plan(access: &ListenerAccess, state: &Arc<AdminState>) -> (Vec<ListenerSpec>, Arc<Plan>) {
    let handler = AdminHandler::new(access, Arc::clone(state));
    let mut registry = Registry::default();
    registry.register_handler("admin", move |_, _| Ok(Box::new(handler.clone())));
    let mut build = Build::new(&registry);
    let routes = json!([{ "handle": [{ "handler": "admin" }] }]);
    // Requests for a profile's status must not count as progress in that profile.
    let spec = ServerSpec { is_progress: false, ..ServerSpec::new("admin", &routes) };
    let server = build.server(&spec).expect("the routes above are right");
    let timeouts = Timeouts { keep_alive: KEEP_ALIVE, ..Timeouts::default() };
    let tls = access.tls();
    let listener = ListenerSpec { timeouts, tls, ..ListenerSpec::new(access.address.listen.clone(), server) };
    (vec![listener], Arc::new(build.finish()))
}

//! The admin API: Caddy's, on an engine of its own with one worker, so that it answers whatever the sites do.
//!
//! In reading order:
//! - [`Admin`]: its listener, and the plan of one handler that stands behind it
//! - `rules`: who may ask
//! - `door`: the handler; what is asked, and of whom
//! - `work`: what is done for it
//! - `causal`: the same for the causal profiler
//! - `answer`: what is told
//!
//! It talks to the server through [`Control`] only, as the command line does.

mod answer;
mod causal;
mod door;
mod rules;
mod work;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_config::caddyfile::Directives;
use causeway_engine::{BlockingSpec, Engine, EngineSpec};
use causeway_pipeline::build::ServerSpec;
use causeway_pipeline::{Build, ListenerSpec, Plan, Registry, Timeouts};
use serde_json::json;

pub(crate) use causal::configuration_changed;
pub(crate) use rules::Rules;

use crate::server::{Control, Environment, LoadFault};
use door::Door;

/// How long a connection without a request is kept; Caddy's.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Bodies that are read at once: the pool is for large ones, and nobody sends many.
const BLOCKING: BlockingSpec = BlockingSpec { threads_max: 4, queue_max: 64 };

/// What the API needs to do what it is asked.
pub(crate) struct Office {
    pub(crate) control: Control,
    pub(crate) directives: Arc<Directives>,
    pub(crate) environment: Environment,
}

/// A listening admin API.
pub(crate) struct Admin {
    rules: Rules,
    office: Arc<Office>,
    engine: Engine,
}

impl Admin {
    /// Listens and answers.
    pub(crate) fn open(rules: Rules, office: Arc<Office>) -> Result<Self, LoadFault> {
        let (listeners, plan) = behind(&rules, &office);
        let engine = Engine::start(EngineSpec {
            workers: 1,
            listeners,
            plan,
            certificates: None,
            blocking: BLOCKING,
            access: Box::new(io::sink()),
        });
        match engine {
            Ok(engine) => Ok(Self { rules, office, engine }),
            Err(error) => Err(LoadFault::Admin(rules.address, error)),
        }
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Where it is reached.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.engine.addresses().first().copied()
    }

    /// Answers by other rules, at their place and still at its own: [`settle`](Self::settle) leaves one of the two.
    pub(crate) async fn widen(&mut self, rules: &Rules) -> Result<(), LoadFault> {
        let (mut listeners, plan) = behind(rules, &self.office);
        if rules.address.listen != self.rules.address.listen {
            listeners.push(ListenerSpec { address: self.rules.address.listen, ..listeners[0].clone() });
        }
        let widened = self.engine.reload(listeners, plan, None).await;
        widened.map_err(|error| LoadFault::Admin(rules.address.clone(), error))
    }

    /// Answers by these rules, and at their place only.
    pub(crate) async fn settle(&mut self, rules: Rules) {
        let (listeners, plan) = behind(&rules, &self.office);
        match self.engine.reload(listeners, plan, None).await {
            Ok(()) => self.rules = rules,
            // Its socket is there already, so only the system itself can refuse.
            Err(error) => tracing::error!("the admin API keeps its rules: {error}"),
        }
    }

    /// Answers what it was asked already, and ends.
    pub(crate) async fn close(self, grace: Duration) {
        self.engine.drain(grace).await;
    }
}

fn behind(rules: &Rules, office: &Arc<Office>) -> (Vec<ListenerSpec>, Arc<Plan>) {
    let door = Door::new(rules, Arc::clone(office));
    let mut registry = Registry::default();
    registry.handler("admin", move |_, _| Ok(Box::new(door.clone())));
    let mut build = Build::new(&registry);
    let routes = json!([{ "handle": [{ "handler": "admin" }] }]);
    // Who asks how a profile stands is no progress in it.
    let spec = ServerSpec { is_progress: false, ..ServerSpec::new("admin", &routes) };
    let server = build.server(&spec).expect("the routes above are right");
    let timeouts = Timeouts { keep_alive: KEEP_ALIVE, ..Timeouts::default() };
    let listener = ListenerSpec { timeouts, ..ListenerSpec::new(rules.address.listen, server) };
    (vec![listener], Arc::new(build.finish()))
}

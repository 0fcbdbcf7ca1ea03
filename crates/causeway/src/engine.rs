//! Stands in for `Engine::reload` until that is built: the old engine drains before the new one starts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::{BlockingSpec, EngineSpec, StartError};
use causeway_pipeline::{ListenerSpec, Plan};

pub(crate) struct Engine {
    inner: Option<causeway_engine::Engine>,
    workers: usize,
    listeners: Vec<ListenerSpec>,
    plan: Arc<Plan>,
}

impl Engine {
    pub(crate) fn start(spec: EngineSpec) -> Result<Self, StartError> {
        let (workers, listeners, plan) = (spec.workers, spec.listeners.clone(), Arc::clone(&spec.plan));
        Ok(Self { inner: Some(causeway_engine::Engine::start(spec)?), workers, listeners, plan })
    }

    pub(crate) async fn reload(&mut self, listeners: Vec<ListenerSpec>, plan: Arc<Plan>) -> Result<(), StartError> {
        if let Some(engine) = self.inner.take() {
            engine.drain(Duration::from_millis(500)).await;
        }
        match self.fresh(&listeners, &plan) {
            Ok(engine) => {
                self.inner = Some(engine);
                (self.listeners, self.plan) = (listeners, plan);
                Ok(())
            }
            Err(error) => {
                self.inner = Some(self.fresh(&self.listeners, &self.plan)?);
                Err(error)
            }
        }
    }

    fn fresh(&self, listeners: &[ListenerSpec], plan: &Arc<Plan>) -> Result<causeway_engine::Engine, StartError> {
        causeway_engine::Engine::start(EngineSpec {
            workers: self.workers,
            listeners: listeners.to_vec(),
            plan: Arc::clone(plan),
            blocking: BlockingSpec::default(),
            access: Box::new(std::io::stderr()),
        })
    }

    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        self.inner.as_ref().map_or(&[], |engine| engine.addresses())
    }

    pub(crate) async fn drain(mut self, grace: Duration) {
        if let Some(engine) = self.inner.take() {
            engine.drain(grace).await;
        }
    }
}

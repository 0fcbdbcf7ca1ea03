//! A worker's thread: its runtime, and the loop that executes the engine's commands.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Command;
use crate::accept::Workers;
use crate::blocks::BLOCK_BYTES_MIN;
use crate::clock;
use crate::listener::{Change, Listeners};
use crate::pools::WorkPools;
use crate::worker::{Core, Services};

/// The parameters of a worker.
pub(super) struct WorkerSpec {
    pub(super) number: usize,
    pub(super) inbox: UnboundedReceiver<Command>,
    pub(super) change: Change,
    pub(super) pools: WorkPools,
    pub(super) workers: Workers,
}

impl WorkerSpec {
    /// Runs the worker on the calling thread until it ends. `report` receives the result of its start.
    pub(super) fn run(self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(progress::before_block)
            .on_thread_unpark(|| {
                // The thread may have slept for long, so the cached time is stale.
                clock::refresh();
                progress::after_block();
            })
            .build_local(LocalOptions::default());
        match runtime {
            Ok(runtime) => {
                progress::worker_began();
                runtime.block_on(self.serve(report));
                // Dropping it would wait for each running `spawn_blocking` of a handler, for any time.
                runtime.shutdown_background();
            }
            Err(error) => drop(report.send(Err(error))),
        }
    }

    /// Prepares and activates the first plan, then executes commands.
    async fn serve(mut self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let counters = Arc::clone(&self.workers.counters[self.number]);
        counters.observed.begin();
        let services = Services::for_this_thread(self.number as u32, BLOCK_BYTES_MIN, self.pools, counters);
        let core = services.core();
        tokio::task::spawn_local(Rc::clone(core).keep_time());
        let mut listeners = Listeners::new(Rc::clone(core), self.workers);
        let prepared = listeners.prepare(self.change);
        let is_ready = prepared.is_ok();
        listeners.commit();
        // Sending fails only when the engine's start has failed already; its `Stop` follows.
        let _ = report.send(prepared);
        if is_ready {
            run_commands(core, &mut listeners, &mut self.inbox).await;
        }
        core.close();
    }
}

/// Executes the engine's commands until `Stop`, or after `EndWhenIdle` until the last connection has ended.
async fn run_commands(core: &Core, listeners: &mut Listeners, inbox: &mut UnboundedReceiver<Command>) {
    let mut idle = std::pin::pin!(core.lifecycle.idle());
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = &mut idle, if core.lifecycle.is_ending() => return,
        };
        match command {
            Some(Command::Adopt(adopted)) => listeners.adopt(adopted),
            Some(Command::Prepare(change, report)) => {
                // The channel has room for every worker's report. Sending fails only when the reload was dropped.
                let _ = report.try_send(listeners.prepare(change));
            }
            // The drop of the sender is the report.
            Some(Command::Abandon(_done)) => listeners.abandon(),
            Some(Command::Commit(done)) => {
                listeners.commit();
                listeners.when_closed(done);
            }
            Some(Command::Forget(keys)) => listeners.forget(&keys),
            Some(Command::ReportAlive(report)) => {
                // The channel has room for every worker's message.
                let _ = report.try_send(());
            }
            Some(Command::DuplicateSockets(report)) => {
                // The channel has room for every worker's report.
                let _ = report.try_send(listeners.duplicate_sockets());
            }
            Some(Command::Announce(at)) => core.lifecycle.announce_shutdown(at),
            Some(Command::Drain { idle_grace, emptied }) => {
                listeners.drain(idle_grace).await;
                // The drop is the report: the engine waits until no worker has a sender.
                drop(emptied);
            }
            Some(Command::EndWhenIdle) => core.lifecycle.end_when_idle(),
            Some(Command::EnterPhase(phase)) => core.lifecycle.enter_phase(phase),
            Some(Command::Stop) | None => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;
    use std::time::Duration;

    use causeway_pipeline::build::ServerSpec;
    use causeway_pipeline::{Build, ListenAddress, ListenerSpec, Registry};
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::server::{Engine, EngineSpec};

    /// A drain does not reach all workers at the same time. A worker without connections must outlast it, because the
    /// others still hand over connections: its end would reset them.
    #[test]
    fn an_idle_worker_outlasts_the_acceptors_of_other_workers() {
        let registry = Registry::default();
        let mut build = Build::new(&registry);
        let server = build.server(&ServerSpec::new("test", &json!([]))).unwrap();
        let address = ListenAddress { host: Some([127, 0, 0, 1].into()), port: 0, zone: 0 };
        let engine = Engine::start(EngineSpec {
            workers: 2,
            listeners: vec![ListenerSpec::new(address, server)],
            plan: Arc::new(build.finish()),
            certificates: None,
            blocking: crate::BlockingSpec::default(),
        })
        .unwrap();
        // Only worker 1 has the command; its port is closed when the message arrives, so worker 0 accepts all.
        let (emptied, mut all_emptied) = mpsc::channel(1);
        let idle_grace = Duration::from_secs(60);
        assert!(engine.commands[1].send(Command::Drain { idle_grace, emptied }).is_ok());
        assert!(all_emptied.blocking_recv().is_none());
        let connect = || {
            let mut stream = TcpStream::connect(engine.addresses()[0]).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
            stream
        };
        // Worker 0 keeps the first, and hands over the second.
        let mut streams = [connect(), connect()];
        let read = |stream: &mut TcpStream| {
            let mut head = [0; 15];
            stream.read_exact(&mut head).map(|()| head)
        };
        for stream in &mut streams {
            assert_eq!(read(stream).unwrap(), *b"HTTP/1.1 200 OK");
        }
    }
}

//! A worker's thread: its runtime, and the loop that executes the engine's commands.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Command;
use crate::accept::Peers;
use crate::blocks::BLOCK_BYTES_MIN;
use crate::clock;
use crate::listener::{Change, Listeners};
use crate::pools::WorkPools;
use crate::worker::Core;

/// The parameters of a worker.
pub(super) struct WorkerSpec {
    pub(super) number: usize,
    pub(super) inbox: UnboundedReceiver<Command>,
    pub(super) change: Change,
    pub(super) pools: WorkPools,
    pub(super) peers: Peers,
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
            }
            Err(error) => drop(report.send(Err(error))),
        }
    }

    /// Prepares and activates the first plan, then executes commands.
    async fn serve(mut self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let load = Arc::clone(&self.peers.loads[self.number]);
        load.observed.begin();
        let services = Core::begin(self.number as u32, BLOCK_BYTES_MIN, self.pools, load);
        let core = services.core();
        tokio::task::spawn_local(Rc::clone(core).keep_time());
        let mut listeners = Listeners::new(Rc::clone(core), self.peers);
        let prepared = listeners.prepare(self.change);
        let is_ready = prepared.is_ok();
        listeners.commit();
        // Sending fails only when the engine's start has failed already; its `Stop` follows.
        let _ = report.send(prepared);
        if is_ready {
            obey(core, &mut listeners, &mut self.inbox).await;
        }
        core.close();
    }
}

/// Executes the engine's commands until `Stop`, or until a drain has ended the last connection.
async fn obey(core: &Core, listeners: &mut Listeners, inbox: &mut UnboundedReceiver<Command>) {
    let mut drained = std::pin::pin!(core.lifecycle.idle());
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = &mut drained, if core.lifecycle.is_draining() => return,
        };
        match command {
            Some(Command::Adopt(adopted)) => listeners.adopt(adopted),
            Some(Command::Prepare(change, report)) => {
                // The channel has room for every worker's report. Sending fails only when the reload was dropped.
                let _ = report.try_send(listeners.prepare(change));
            }
            Some(Command::Abandon(_done)) => listeners.abandon(),
            Some(Command::Commit(done)) => {
                listeners.commit();
                listeners.when_closed(done);
            }
            Some(Command::Forget(keys)) => listeners.forget(&keys),
            Some(Command::Pulse(beat)) => {
                // The channel has room for every worker's message.
                let _ = beat.try_send(());
            }
            Some(Command::Lend(report)) => {
                // The channel has room for every worker's report.
                let _ = report.try_send(listeners.lend());
            }
            Some(Command::Announce(at)) => core.lifecycle.announce_shutdown(at),
            Some(Command::Drain(patience)) => listeners.drain(patience).await,
            Some(Command::Stop) | None => return,
        }
    }
}

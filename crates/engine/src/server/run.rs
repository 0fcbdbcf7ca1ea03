//! A worker's thread: its runtime, and the commands that it obeys.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedReceiver;

use super::Command;
use crate::accept::Peers;
use crate::access::AccessSink;
use crate::blocking::BlockingPools;
use crate::blocks::BLOCK_OCTETS_MIN;
use crate::clock;
use crate::listener::{Change, Listeners};
use crate::worker::Core;

/// What a worker starts with.
pub(super) struct WorkerSpec {
    pub(super) number: usize,
    pub(super) inbox: UnboundedReceiver<Command>,
    pub(super) change: Change,
    pub(super) pools: BlockingPools,
    pub(super) sink: AccessSink,
    pub(super) peers: Peers,
}

impl WorkerSpec {
    pub(super) fn run(self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .on_thread_park(progress::before_block)
            .on_thread_unpark(|| {
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

    async fn serve(mut self, report: &std::sync::mpsc::Sender<io::Result<()>>) {
        let load = Arc::clone(&self.peers.loads[self.number]);
        let core = Core::new(self.number as u32, BLOCK_OCTETS_MIN, self.pools, load, self.sink);
        tokio::task::spawn_local(Rc::clone(&core).keep_time());
        let mut listeners = Listeners::new(Rc::clone(&core), self.peers);
        let prepared = listeners.prepare(self.change);
        let is_ready = prepared.is_ok();
        listeners.commit();
        // Nobody waits for the report only when the engine gave up already; its `Stop` follows.
        let _ = report.send(prepared);
        if is_ready {
            obey(&core, &mut listeners, &mut self.inbox).await;
        }
        core.close();
    }
}

/// Does what the engine says until the worker is to end.
async fn obey(core: &Core, listeners: &mut Listeners, inbox: &mut UnboundedReceiver<Command>) {
    let mut drained = std::pin::pin!(core.idle());
    loop {
        let command = tokio::select! {
            command = inbox.recv() => command,
            () = &mut drained, if core.is_draining() => return,
        };
        match command {
            Some(Command::Adopt(adopted)) => listeners.adopt(adopted),
            Some(Command::Prepare(change, report)) => {
                // It has room for every worker's; nobody listens when the load was given up meanwhile.
                let _ = report.try_send(listeners.prepare(change));
            }
            Some(Command::Abandon(_done)) => listeners.abandon(),
            Some(Command::Commit(done)) => {
                listeners.commit();
                listeners.when_closed(done);
            }
            Some(Command::Forget(keys)) => listeners.forget(&keys),
            Some(Command::Announce(at)) => core.announce_shutdown(at),
            Some(Command::Drain) => listeners.drain().await,
            Some(Command::Stop) | None => return,
        }
    }
}

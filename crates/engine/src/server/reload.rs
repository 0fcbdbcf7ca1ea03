//! Replaces the plan and the listeners of a running engine.
//!
//! The reload has two phases, so that the plan becomes active on every worker or on none. First every worker prepares
//! all that may fail (sockets, modules' state). Then every worker activates it, each in one step.

use std::io;
use std::sync::Arc;

use causeway_pipeline::{BoundAddress, ListenerSpec, Plan};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Command, Engine, StartError};
use crate::listener::ListenerKey;
use crate::observer;
use crate::tls::{Certificates, TlsPlan};

impl Engine {
    /// Replaces the plan and the listeners. Completes when every worker uses the plan and removed listeners are closed.
    ///
    /// - A listener whose address was in the old plan too keeps its sockets and their backlog. Its idle connections
    ///   stay open; their next request uses the new plan, server, timeouts and limits.
    /// - Running exchanges finish under the plan with which they started. It is freed after the last of them
    ///   ([`live_plans`](Self::live_plans)).
    /// - A removed listener accepts its backlog and closes. Its idle connections close; busy ones end gracefully after
    ///   their exchange.
    /// - TLS connections keep their negotiated parameters, and older sessions can be resumed.
    ///
    /// Dropping the future early leaves either the old plan or the new one active, never a part of each.
    ///
    /// # Errors
    /// The first listener that cannot be bound or whose TLS policy is invalid, or a worker that could not prepare the
    /// plan. The old plan and listeners then stay active, and all new sockets are closed.
    pub async fn reload(
        &mut self,
        listeners: Vec<ListenerSpec>,
        plan: Arc<Plan>,
        certificates: Option<Arc<dyn Certificates>>,
    ) -> Result<(), StartError> {
        let tls = TlsPlan::all(&listeners, certificates.as_ref(), &self.tickets).map_err(StartError::Tls)?;
        let arranged =
            self.sockets.arrange(listeners, self.commands.len(), &mut Vec::new()).map_err(StartError::Bind)?;
        let (changes, taken) = arranged.hand_out(&plan, &tls, certificates.as_ref());
        observer::remember(&self.plans, &plan);
        drop(plan);

        let (report, mut reports) = mpsc::channel(self.commands.len());
        let (abandoned, mut all_abandoned) = mpsc::channel(1);
        let mut unless_ready = Abandon { inboxes: &self.commands, done: abandoned };
        for (inbox, change) in self.commands.iter().zip(changes) {
            // If a worker has ended, its report is missing below.
            let _ = inbox.send(Command::Prepare(change, report.clone()));
        }
        drop(report);
        for _ in &self.commands {
            let ready = reports.recv().await.unwrap_or_else(|| Err(io::Error::other("a worker has ended")));
            if let Err(error) = ready {
                drop(unless_ready);
                while all_abandoned.recv().await.is_some() {}
                return Err(StartError::System(error));
            }
        }
        // All workers are prepared. There is no await before `Commit` is sent, so the guard is not needed any more.
        unless_ready.inboxes = &[];

        self.sockets.adopt(taken);
        self.bound_addresses = self.sockets.addresses().collect();
        self.addresses = self.bound_addresses.iter().filter_map(BoundAddress::socket_addr).collect();
        let (done, mut all_done) = mpsc::channel(1);
        let closing = Arc::new(Closing { keys: self.sockets.closing(), inboxes: self.commands.clone(), done });
        self.broadcast(|| Command::Commit(Arc::clone(&closing)));
        drop(closing);
        while all_done.recv().await.is_some() {}
        // Only here: while a dropped reload's sockets may still be open, they occupy their addresses.
        self.sockets.closed();
        Ok(())
    }
}

/// The removed listeners, shared by all workers until each has closed their sockets. The worker that drops it last
/// tells all workers to forget the listeners; so this does not depend on the reload's future, which may have been
/// dropped.
pub(crate) struct Closing {
    keys: Arc<[ListenerKey]>,
    inboxes: Vec<UnboundedSender<Command>>,
    #[expect(dead_code, reason = "its drop tells the reload that all workers are done")]
    done: mpsc::Sender<()>,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if self.keys.is_empty() {
            return;
        }
        for inbox in &self.inboxes {
            // Connections of these listeners that one worker handed to another precede this command in that worker's
            // queue. Sending fails only when the worker has ended.
            let _ = inbox.send(Command::Forget(Arc::clone(&self.keys)));
        }
    }
}

/// A drop guard that makes the workers drop the prepared plan, on an error or when the reload's future is dropped.
struct Abandon<'e> {
    inboxes: &'e [UnboundedSender<Command>],
    /// Every worker drops its clone when its sockets are closed.
    done: mpsc::Sender<()>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        for inbox in self.inboxes {
            // Sending fails only when the worker has ended.
            let _ = inbox.send(Command::Abandon(self.done.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    /// Dropping a reload's future after `Commit` must not keep the removed listeners in the workers' memory.
    #[test]
    fn the_last_worker_to_close_sends_forget_to_all_workers() {
        let (inboxes, mut commands): (Vec<_>, Vec<_>) = (0..2).map(|_| unbounded_channel()).unzip();
        let (done, mut all_done) = mpsc::channel(1);
        let first = Arc::new(Closing { keys: Arc::from([ListenerKey(3)]), inboxes: inboxes.clone(), done });
        let second = Arc::clone(&first);
        drop(first);
        assert!(commands.iter_mut().all(|commands| commands.try_recv().is_err()), "one worker still accepts");
        drop(second);
        for commands in &mut commands {
            let Ok(Command::Forget(keys)) = commands.try_recv() else { panic!("no worker is left out") };
            assert_eq!(*keys, [ListenerKey(3)]);
        }
        assert_eq!(all_done.try_recv(), Err(mpsc::error::TryRecvError::Disconnected), "the reload completes");
        let (done, _all_done) = mpsc::channel(1);
        drop(Closing { keys: Arc::default(), inboxes, done });
        assert!(commands.iter_mut().all(|commands| commands.try_recv().is_err()), "nothing to forget");
    }
}

//! Another plan and other listeners, while the engine serves.
//!
//! In two steps, so that they take over on every worker or on none: what may fail (sockets, a module's state) is made ready
//! first, then every worker switches, each at once.

use std::io;
use std::sync::Arc;

use causeway_pipeline::{ListenerSpec, Plan};
use tokio::sync::mpsc::{self, UnboundedSender};

use super::{Command, Engine, StartError};
use crate::tls::{Certificates, TlsPlan};

impl Engine {
    /// Puts another plan in place; answers once every worker has it and listeners that it does not name are closed.
    ///
    /// - A listener whose address was listened on before keeps its sockets and what the kernel holds for them. Its idle
    ///   connections stay; their next request meets the new plan, server, timeouts and limits.
    /// - Exchanges under way end under the plan that they started under, which is freed with the last of them
    ///   ([`live_plans`](Self::live_plans)).
    /// - A listener that is not named any more accepts what the kernel holds for it and closes; its idle connections close,
    ///   busy ones end gracefully behind their exchange.
    ///
    /// What is dropped before it was answered leaves the old plan or the new one in place, never part of each.
    ///
    /// Connections over TLS keep what their handshake agreed on; sessions that began before are resumed.
    ///
    /// # Errors
    /// The first listener that cannot be bound or whose TLS cannot be set up, or a worker that could not be made ready. Then
    /// nothing has changed, and nobody listens on what was new.
    pub async fn reload(
        &mut self,
        listeners: Vec<ListenerSpec>,
        plan: Arc<Plan>,
        certificates: Option<Arc<dyn Certificates>>,
    ) -> Result<(), StartError> {
        let tls = TlsPlan::all(&listeners, certificates.as_ref(), &self.tickets).map_err(StartError::Tls)?;
        let arranged = self.ports.arrange(listeners, self.commands.len()).map_err(StartError::Bind)?;
        let (changes, taken) = arranged.hand_out(&plan, &tls);
        self.plans.retain(|known| known.strong_count() > 0 && !std::ptr::eq(known.as_ptr(), Arc::as_ptr(&plan)));
        self.plans.push(Arc::downgrade(&plan));
        drop(plan);

        let (report, mut reports) = mpsc::channel(self.commands.len());
        let (abandoned, mut all_abandoned) = mpsc::channel(1);
        let mut unless_ready = Abandon { inboxes: &self.commands, done: abandoned };
        for (inbox, change) in self.commands.iter().zip(changes) {
            // A worker that has ended is missed below.
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
        unless_ready.inboxes = &[];

        self.ports.adopt(taken);
        self.addresses = self.ports.addresses().collect();
        let (done, mut all_done) = mpsc::channel(1);
        self.tell(|| Command::Commit(done.clone()));
        drop(done);
        while all_done.recv().await.is_some() {}
        // What one worker accepted for a listener that ended has reached the other before this word does.
        let closed = self.ports.closed();
        if !closed.is_empty() {
            self.tell(|| Command::Forget(Arc::clone(&closed)));
        }
        Ok(())
    }
}

/// Tells the workers, when it is dropped, that the next plan does not take over, and gives them what they drop when that is done.
struct Abandon<'e> {
    inboxes: &'e [UnboundedSender<Command>],
    done: mpsc::Sender<()>,
}

impl Drop for Abandon<'_> {
    fn drop(&mut self) {
        for inbox in self.inboxes {
            // A worker that has ended needs no telling.
            let _ = inbox.send(Command::Abandon(self.done.clone()));
        }
    }
}

//! The listeners of the admin API: the local one, and the remote one for clients with a certificate.
//!
//! A load changes them in two steps. `prepare` does everything that can fail, and leaves the old addresses open; then
//! `commit` closes these, or `withdraw` the new ones.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use causeway_engine::{Certificates, HandedSockets};
use causeway_pipeline::{BoundAddress, ListeningSocket};
use tokio::task::JoinSet;

use super::conflicts::refuse_conflicts;
use super::error::LoadError;
use crate::admin::{Admin, AdminState, ListenerAccess};

/// Time limit for the in-flight responses of a listener that closes.
const GRACE: Duration = Duration::from_secs(10);

/// A listener as a configuration describes it.
#[derive(Clone)]
pub(crate) struct AdminListener {
    pub(crate) access: ListenerAccess,
    /// The source of its certificates; `None`: it is in cleartext.
    pub(crate) certificates: Option<Arc<dyn Certificates>>,
}

/// Both listeners of a configuration; `None`: it has no such listener.
#[derive(Clone)]
pub(super) struct AdminListeners {
    pub(super) local: Option<AdminListener>,
    pub(super) remote: Option<AdminListener>,
}

impl AdminListeners {
    fn addresses(&self) -> impl Iterator<Item = &causeway_config::plan::AdminAddress> {
        self.local.iter().chain(&self.remote).map(|listener| &listener.access.address)
    }

    /// Returns an error for the first address of two listeners. `sites`: those of the configuration.
    pub(super) fn refuse_conflicts(
        &self,
        sites: impl Iterator<Item = ListeningSocket> + Clone,
    ) -> Result<(), LoadError> {
        refuse_conflicts(sites, self.addresses())?;
        let local = self.local.iter().map(|listener| listener.access.address.listen.clone());
        refuse_conflicts(local, self.remote.iter().map(|listener| &listener.access.address))
    }
}

/// The open listeners.
#[derive(Default)]
pub(super) struct Admins {
    local: Option<Admin>,
    remote: Option<Admin>,
    /// Closing listeners which still have responses in flight.
    retiring: JoinSet<()>,
}

/// The change that a load makes to one listener. Every step that can fail has succeeded by then.
enum AdminChange {
    /// No change.
    Keep,
    /// The rules, the address or the certificates change. Until [`Admin::apply`] the new rules apply at both the old
    /// and the new address.
    Widened(AdminListener),
    /// The listener was off and is opened.
    Opened(Box<Admin>),
    /// The listener is closed.
    Close,
}

/// The change that a load makes to both listeners.
pub(super) struct AdminChanges {
    local: AdminChange,
    remote: AdminChange,
}

impl Admins {
    /// Binds the addresses, or takes the sockets of a former process.
    pub(super) fn open(
        wanted: AdminListeners,
        state: &Arc<AdminState>,
        mut handed: Vec<HandedSockets>,
    ) -> Result<Self, LoadError> {
        // Both listeners may have one name, as port 0. The local one's sockets come first then.
        let name = wanted.local.as_ref().map(|local| local.access.address.listen.to_string());
        let place = handed.iter().position(|handed| Some(&handed.name) == name.as_ref());
        let of_local: Vec<_> = place.map(|place| handed.remove(place)).into_iter().collect();
        let local = wanted.local.map(|local| Admin::open(local, Arc::clone(state), of_local)).transpose()?;
        let remote = wanted.remote.map(|remote| Admin::open(remote, Arc::clone(state), handed)).transpose()?;
        Ok(Self { local, remote, retiring: JoinSet::new() })
    }

    /// Returns the bound address of the local listener.
    pub(super) fn local_address(&self) -> Option<BoundAddress> {
        self.local.as_ref()?.address()
    }

    /// Returns the bound address of the remote listener.
    pub(super) fn remote_address(&self) -> Option<BoundAddress> {
        self.remote.as_ref()?.address()
    }

    /// Opens the addresses of `wanted`. The old ones stay open until [`commit`](Self::commit). `sites` and
    /// `current_sites`: those of the next configuration and those that are still open.
    pub(super) async fn prepare(
        &mut self,
        wanted: AdminListeners,
        state: &Arc<AdminState>,
        sites: impl Iterator<Item = ListeningSocket> + Clone,
        current_sites: impl Iterator<Item = ListeningSocket> + Clone,
    ) -> Result<AdminChanges, LoadError> {
        wanted.refuse_conflicts(sites.clone())?;
        let now = [&self.local, &self.remote].map(|admin| admin.as_ref().map(|admin| &admin.access().address));
        refuse_conflicts(sites, now.into_iter().flatten())?;
        // The engine closes the listeners of removed sites only after the API has bound its address, so the API must
        // not use the address of a current site either.
        refuse_conflicts(current_sites, wanted.addresses())?;
        // Likewise, no listener may move to the address that another one leaves.
        let [local, remote] = now;
        let listen =
            |address: Option<&causeway_config::plan::AdminAddress>| address.map(|at| at.listen.clone()).into_iter();
        refuse_conflicts(listen(local), wanted.remote.iter().map(|listener| &listener.access.address))?;
        refuse_conflicts(listen(remote), wanted.local.iter().map(|listener| &listener.access.address))?;
        let local = prepare(&mut self.local, wanted.local, state).await?;
        match prepare(&mut self.remote, wanted.remote, state).await {
            Ok(remote) => Ok(AdminChanges { local, remote }),
            Err(error) => {
                withdraw(&mut self.local, local).await;
                Err(error)
            }
        }
    }

    /// Returns to the former addresses and rules.
    pub(super) async fn withdraw(&mut self, changes: AdminChanges) {
        withdraw(&mut self.local, changes.local).await;
        withdraw(&mut self.remote, changes.remote).await;
    }

    /// Closes the former addresses.
    pub(super) async fn commit(&mut self, changes: AdminChanges) {
        commit(&mut self.local, changes.local, &mut self.retiring).await;
        commit(&mut self.remote, changes.remote, &mut self.retiring).await;
        // Collect closed listeners, so that repeated loads do not accumulate them.
        while self.retiring.try_join_next().is_some() {}
    }

    /// Duplicates the sockets for another process.
    pub(super) async fn duplicate_sockets(&self) -> io::Result<Vec<HandedSockets>> {
        let mut sockets = Vec::new();
        for admin in self.local.iter().chain(&self.remote) {
            sockets.extend(admin.duplicate_sockets().await?);
        }
        Ok(sockets)
    }

    /// Makes the files of Unix sockets this process's.
    pub(super) fn take_over_socket_files(&mut self) {
        self.local.iter_mut().chain(&mut self.remote).for_each(Admin::take_over_socket_files);
    }

    /// Leaves the files of Unix sockets to another process, and begins to close.
    pub(super) fn release_socket_files_and_close(&mut self) {
        self.local.iter_mut().chain(&mut self.remote).for_each(Admin::release_socket_files);
        self.close();
    }

    /// Stops accepting, and begins to drain in-flight requests.
    pub(super) fn close(&mut self) {
        for admin in self.local.take().into_iter().chain(self.remote.take()) {
            self.retiring.spawn(admin.close(GRACE));
        }
    }

    /// Waits until every closing listener has sent its responses.
    pub(super) async fn closed(&mut self) {
        while self.retiring.join_next().await.is_some() {}
    }
}

async fn prepare(
    slot: &mut Option<Admin>,
    wanted: Option<AdminListener>,
    state: &Arc<AdminState>,
) -> Result<AdminChange, LoadError> {
    Ok(match (slot, wanted) {
        (None, None) => AdminChange::Keep,
        // Certificates belong to one configuration, so a listener that has some always changes.
        (Some(admin), Some(wanted)) if *admin.access() == wanted.access && wanted.certificates.is_none() => {
            AdminChange::Keep
        }
        (Some(admin), Some(wanted)) => {
            // Both addresses stay open until the engine has reloaded, so that the load can still be withdrawn.
            admin.widen(&wanted).await?;
            AdminChange::Widened(wanted)
        }
        (None, Some(wanted)) => AdminChange::Opened(Box::new(Admin::open(wanted, Arc::clone(state), Vec::new())?)),
        (Some(_), None) => AdminChange::Close,
    })
}

async fn withdraw(slot: &mut Option<Admin>, change: AdminChange) {
    if let (AdminChange::Widened(_), Some(admin)) = (change, slot) {
        admin.apply(admin.listener().clone()).await;
    }
}

async fn commit(slot: &mut Option<Admin>, change: AdminChange, retiring: &mut JoinSet<()>) {
    match (change, &mut *slot) {
        (AdminChange::Widened(listener), Some(admin)) => admin.apply(listener).await,
        (AdminChange::Opened(admin), _) => *slot = Some(*admin),
        (AdminChange::Close, _) => {
            if let Some(admin) = slot.take() {
                // Not awaited: the response to this very request may be one of those in flight.
                retiring.spawn(admin.close(GRACE));
            }
        }
        (AdminChange::Keep | AdminChange::Widened(_), _) => {}
    }
}

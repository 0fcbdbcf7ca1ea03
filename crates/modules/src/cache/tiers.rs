//! The two tiers of stored responses: memory, and a directory.

use std::sync::Arc;

use causeway_message::FieldMap;
use causeway_pipeline::Worker;

use super::disk::DiskHandle;
use super::store::{CacheKey, Store};
use super::stored::StoredResponse;

/// Memory, and the directory if there is one. A removal concerns both, also while other workers store responses.
#[derive(Clone)]
pub(super) struct Tiers {
    pub(super) store: Arc<Store>,
    pub(super) disk: Option<Arc<DiskHandle>>,
}

impl Tiers {
    /// Stores a response, unless responses of the key were removed since `epoch` ([`Store::epoch`]).
    pub(super) fn put(
        &self,
        key: CacheKey<'_>,
        request: &FieldMap,
        stored: &Arc<StoredResponse>,
        epoch: u64,
        worker: &dyn Worker,
    ) {
        if let Some(replaced) = self.store.put(key, request, Arc::clone(stored), epoch)
            && let Some(disk) = &self.disk
        {
            disk.write(key.text(), stored, &replaced, worker.now(), worker.wall());
            // A removal between the two steps did not find the file.
            if self.store.is_removed_since(key, epoch) {
                disk.remove(key.text());
            }
        }
    }

    /// Removes the responses of a key.
    pub(super) fn remove(&self, key: CacheKey<'_>) {
        self.store.remove(key);
        if let Some(disk) = &self.disk {
            disk.remove(key.text());
            // Another worker may have read the file into memory meanwhile.
            self.store.remove(key);
        }
    }
}

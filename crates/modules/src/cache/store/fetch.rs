//! Fetches under way: one request of a key fetches, and others wait for it (single-flight).

use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use causeway_message::FieldMap;
use futures_channel::oneshot::{Receiver, Sender, channel};

use super::shard::Shard;
use super::{CacheKey, Store};

/// Requests that wait for the fetch of another one; more of them fetch for themselves.
const WAITING_MAX: usize = 4096;
/// How long requests wait for the content of a response whose head has arrived: a client that reads slowly must not
/// hold up others.
pub(in crate::cache) const CONTENT_WAIT_MAX: Duration = Duration::from_secs(1);

/// A fetch that is under way.
#[derive(Debug, Default)]
pub(super) struct FetchUnderWay {
    /// The requests that wait for it.
    waiting: Vec<Sender<()>>,
    /// A request waited in vain: its response has no end, or takes very long. No further request waits for it.
    is_slow: bool,
    /// When the response's head arrived.
    headed_at: Option<Instant>,
}

impl FetchUnderWay {
    /// Returns whether no request waits for the fetch any longer.
    fn is_slow(&self, now: Instant) -> bool {
        self.is_slow || self.headed_at.is_some_and(|at| now >= at + CONTENT_WAIT_MAX)
    }
}

/// A fetch under way: a hash of the key and of the request fields that select one of its responses. Its shard is that
/// of the key.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct FetchUnderWayId(u64);

impl Store {
    /// Returns the fetch for a request. Requests that the origin answers differently must not wait for each other, and
    /// it will most likely vary its response by the same fields as the latest one. `scratch` is an empty buffer.
    fn fetch_id(
        &self,
        shard: &mut Shard,
        key: CacheKey<'_>,
        request: &FieldMap,
        scratch: &mut Vec<u8>,
    ) -> FetchUnderWayId {
        let Some(latest) = shard.slot_mut(key).and_then(|slot| slot.variants.last()) else {
            return FetchUnderWayId(key.hash);
        };
        latest.vary.write_values(request, scratch);
        let of_values = if scratch.is_empty() { 0 } else { self.hasher.hash_one(&scratch) };
        // The upper half selects the shard.
        FetchUnderWayId(key.hash ^ of_values & u64::from(u32::MAX))
    }

    /// Adds a request of this key to the fetch under way, or begins one.
    pub(in crate::cache) fn join_fetch(
        self: &Arc<Self>,
        key: CacheKey<'_>,
        request: &FieldMap,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> FetchRole {
        let mut shard = self.shard(key.hash);
        if shard.is_coalescing_paused(key, now) {
            return FetchRole::Independent;
        }
        let id = self.fetch_id(&mut shard, key, request, scratch);
        if let Some(fetch) = shard.fetches.get_mut(&id.0) {
            let is_slow = fetch.is_slow(now);
            let waiting = &mut fetch.waiting;
            // Before the vector grows, so that a burst of requests passes over it a few times only.
            if waiting.len() == waiting.capacity() {
                waiting.retain(|sender| !sender.is_canceled());
            }
            if is_slow || waiting.len() == WAITING_MAX {
                return FetchRole::Independent;
            }
            let (sender, receiver) = channel();
            waiting.push(sender);
            return FetchRole::Follower(receiver, id);
        }
        shard.fetches.insert(id.0, FetchUnderWay::default());
        FetchRole::Leader(FetchGuard { store: Arc::clone(self), id })
    }

    /// Begins a fetch for which no request waits yet. `None` if one is under way, or if requests of this key do not
    /// wait for each other.
    pub(in crate::cache) fn try_fetch(
        self: &Arc<Self>,
        key: CacheKey<'_>,
        request: &FieldMap,
        scratch: &mut Vec<u8>,
        now: Instant,
    ) -> Option<FetchGuard> {
        let mut shard = self.shard(key.hash);
        if shard.is_coalescing_paused(key, now) {
            return None;
        }
        let id = self.fetch_id(&mut shard, key, request, scratch);
        if shard.fetches.contains_key(&id.0) {
            return None;
        }
        shard.fetches.insert(id.0, FetchUnderWay::default());
        Some(FetchGuard { store: Arc::clone(self), id })
    }

    /// Returns whether the fetch is one that no request waits for.
    pub(in crate::cache) fn is_slow(&self, FetchUnderWayId(id): FetchUnderWayId, now: Instant) -> bool {
        self.shard(id).fetches.get(&id).is_some_and(|fetch| fetch.is_slow(now))
    }

    /// Records that a request waited for the fetch in vain.
    pub(in crate::cache) fn mark_slow(&self, FetchUnderWayId(id): FetchUnderWayId) {
        if let Some(fetch) = self.shard(id).fetches.get_mut(&id) {
            fetch.is_slow = true;
        }
    }
}

/// The role of a request without a usable stored response in the fetch of its key (single-flight).
pub(in crate::cache) enum FetchRole {
    /// The request fetches the response; others may wait for it.
    Leader(FetchGuard),
    /// Another request fetches the response. The receiver ends when that request has its outcome.
    Follower(Receiver<()>, FetchUnderWayId),
    /// The request fetches the response for itself alone.
    Independent,
}

/// Held by the request that fetches a response. Its drop wakes the waiting requests, with any outcome.
#[derive(Debug)]
pub(in crate::cache) struct FetchGuard {
    store: Arc<Store>,
    id: FetchUnderWayId,
}

impl FetchGuard {
    /// Records that the head of the response has arrived, and that it is storable.
    pub(in crate::cache) fn mark_headed(&self, now: Instant) {
        let FetchUnderWayId(id) = self.id;
        if let Some(fetch) = self.store.shard(id).fetches.get_mut(&id) {
            fetch.headed_at = Some(now);
        }
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let FetchUnderWayId(id) = self.id;
        let fetch = self.store.shard(id).fetches.remove(&id).unwrap_or_default();
        for sender in fetch.waiting {
            // The receiver is gone if its request was cancelled.
            let _ = sender.send(());
        }
    }
}

//! Fetches under way: one request of a key fetches, and others wait for it (single-flight).

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_channel::oneshot::{Receiver, Sender, channel};

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

impl Store {
    /// Adds a request of this key to the fetch under way, or begins one.
    pub(in crate::cache) fn join_fetch(self: &Arc<Self>, key: CacheKey<'_>, now: Instant) -> FetchRole {
        let mut shard = self.shard(key.hash);
        if shard.is_coalescing_paused(key, now) {
            return FetchRole::Independent;
        }
        if let Some(fetch) = shard.fetches.get_mut(&key.hash) {
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
            return FetchRole::Follower(receiver);
        }
        shard.fetches.insert(key.hash, FetchUnderWay::default());
        FetchRole::Leader(FetchGuard { store: Arc::clone(self), hash: key.hash })
    }

    /// Begins a fetch for which no request waits yet. `None` if one is under way, or if requests of this key do not
    /// wait for each other.
    pub(in crate::cache) fn try_fetch(self: &Arc<Self>, key: CacheKey<'_>, now: Instant) -> Option<FetchGuard> {
        let mut shard = self.shard(key.hash);
        if shard.is_coalescing_paused(key, now) || shard.fetches.contains_key(&key.hash) {
            return None;
        }
        shard.fetches.insert(key.hash, FetchUnderWay::default());
        Some(FetchGuard { store: Arc::clone(self), hash: key.hash })
    }

    /// Records that the head of the response to the fetch of this key has arrived, and that it is storable.
    pub(in crate::cache) fn mark_headed(&self, key: CacheKey<'_>, now: Instant) {
        if let Some(fetch) = self.shard(key.hash).fetches.get_mut(&key.hash) {
            fetch.headed_at = Some(now);
        }
    }

    /// Returns whether the fetch of this key is one that no request waits for.
    pub(in crate::cache) fn is_slow(&self, key: CacheKey<'_>, now: Instant) -> bool {
        self.shard(key.hash).fetches.get(&key.hash).is_some_and(|fetch| fetch.is_slow(now))
    }

    /// Records that a request waited for the fetch of this key in vain.
    pub(in crate::cache) fn mark_slow(&self, key: CacheKey<'_>) {
        if let Some(fetch) = self.shard(key.hash).fetches.get_mut(&key.hash) {
            fetch.is_slow = true;
        }
    }
}

/// The role of a request without a usable stored response in the fetch of its key (single-flight).
pub(in crate::cache) enum FetchRole {
    /// The request fetches the response; others may wait for it.
    Leader(FetchGuard),
    /// Another request fetches the response. The receiver ends when that request has its outcome.
    Follower(Receiver<()>),
    /// The request fetches the response for itself alone.
    Independent,
}

/// Held by the request that fetches a response. Its drop wakes the waiting requests, with any outcome.
#[derive(Debug)]
pub(in crate::cache) struct FetchGuard {
    store: Arc<Store>,
    hash: u64,
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let fetch = self.store.shard(self.hash).fetches.remove(&self.hash).unwrap_or_default();
        for sender in fetch.waiting {
            // The receiver is gone if its request was cancelled.
            let _ = sender.send(());
        }
    }
}

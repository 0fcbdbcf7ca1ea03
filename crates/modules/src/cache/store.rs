//! The stored responses by key, which all workers share, and the fetches that are under way.
//!
//! A key's hash selects one of a fixed number of shards, each with a lock that is held for one lookup. Above its bound
//! the store drops keys by CLOCK: a hand passes over the slots of one shard after the other, and drops those that were
//! not used since it last passed.

mod fetch;
mod shard;
mod usage;

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_message::FieldMap;

pub(super) use fetch::{CONTENT_WAIT_MAX, FetchGuard, FetchRole, FetchUnderWayId};
pub(super) use shard::CacheKey;
use shard::{Shard, Slot};
pub use usage::{Lookup, Usage};

use super::stored::StoredResponse;

/// Parts of a store with a lock each, so that workers seldom wait for each other.
const SHARDS: usize = 64;
/// Estimated memory of a key in bytes, in addition to its text.
const SLOT_BYTES: usize = 160;
/// Responses that a key may have, by the request fields that Vary names; a further one replaces the oldest.
pub(super) const VARIANTS_MAX: usize = 64;
/// The responses of one key may have `bytes_max / KEY_DIVISOR` bytes, or else there is one; a further one replaces the
/// oldest. Otherwise the key that was stored last, which is not evicted, could exceed the bound of the store.
const KEY_DIVISOR: usize = 4;
/// How long the requests of a key do not wait for each other after a response that was not storable.
pub(super) const UNSTORABLE_PAUSE: Duration = Duration::from_secs(10);
/// As above, after a fetch that failed: the next one may succeed.
pub(super) const FAILURE_PAUSE: Duration = Duration::from_secs(1);
/// Responses that are being received may have `bytes_max / RECEIVING_DIVISOR` bytes, beside the stored ones.
pub(super) const RECEIVING_DIVISOR: usize = 4;

/// The stored responses of a process, in memory.
#[derive(Debug)]
pub(super) struct Store {
    bytes_max: usize,
    /// Memory of all shards.
    bytes: AtomicUsize,
    /// Memory of responses that are being received.
    receiving: AtomicUsize,
    /// Keyed with random numbers, so that clients cannot choose keys that collide.
    hasher: RandomState,
    shards: Box<[ShardCell]>,
    /// The shard in which the hand of CLOCK is.
    hand: AtomicUsize,
    evicted: AtomicU64,
}

/// A shard, and the results of the lookups of its keys.
#[derive(Debug, Default)]
struct ShardCell {
    shard: Mutex<Shard>,
    lookups: [AtomicU64; Lookup::ALL.len()],
}

impl ShardCell {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum Found {
    /// The latest response that fits the request.
    Match(Arc<StoredResponse>),
    /// The key has responses to other requests only.
    Other,
    Nothing,
}

/// How a stored response relates to one that is being stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replacement {
    /// The new response replaces the stored one.
    Replaced,
    /// The stored response is newer than the new one, which is not stored.
    Newer,
    /// The stored response is for other requests.
    Other,
}

/// The counts of the stores that no longer exist: the counters of a process never fall.
static ENDED: EndedCounts =
    EndedCounts { evicted: AtomicU64::new(0), lookups: [const { AtomicU64::new(0) }; Lookup::ALL.len()] };

struct EndedCounts {
    evicted: AtomicU64,
    lookups: [AtomicU64; Lookup::ALL.len()],
}

impl Drop for Store {
    fn drop(&mut self) {
        ENDED.evicted.fetch_add(*self.evicted.get_mut(), Ordering::Relaxed);
        for cell in &self.shards {
            for (sum, count) in ENDED.lookups.iter().zip(&cell.lookups) {
                sum.fetch_add(count.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        }
    }
}

/// The stores that exist, by their settings.
static STORES: LazyLock<Mutex<HashMap<usize, Weak<Store>>>> = LazyLock::new(Mutex::default);

impl Store {
    /// Returns the process's store with this bound in bytes. It exists until the last plan that uses it is gone, so it
    /// survives a reload.
    pub(super) fn of(bytes_max: usize) -> Arc<Self> {
        let mut stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = stores.get(&bytes_max).and_then(Weak::upgrade) {
            return store;
        }
        stores.retain(|_, store| store.strong_count() > 0);
        let store = Arc::new(Self::new(bytes_max));
        stores.insert(bytes_max, Arc::downgrade(&store));
        store
    }

    /// Returns all stores that exist.
    pub(super) fn all() -> Vec<Arc<Self>> {
        let stores = STORES.lock().unwrap_or_else(PoisonError::into_inner);
        stores.values().filter_map(Weak::upgrade).collect()
    }

    /// Returns the counts of all stores that no longer exist.
    pub(super) fn ended_usage() -> Usage {
        Usage {
            evicted: ENDED.evicted.load(Ordering::Relaxed),
            lookups: std::array::from_fn(|at| ENDED.lookups[at].load(Ordering::Relaxed)),
            ..Usage::default()
        }
    }

    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            bytes_max,
            bytes: AtomicUsize::new(0),
            receiving: AtomicUsize::new(0),
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| ShardCell::default()).collect(),
            hand: AtomicUsize::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    pub(super) fn key<'k>(&self, text: &'k [u8]) -> CacheKey<'k> {
        CacheKey { hash: self.hasher.hash_one(text), text }
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        self.shards[shard_index(hash)].lock()
    }

    /// Looks up the response to a request with these fields, and marks its slot as used. Does not allocate in steady
    /// state; `scratch` is an empty buffer.
    pub(super) fn find(&self, key: CacheKey<'_>, request: &FieldMap, scratch: &mut Vec<u8>) -> Found {
        let mut shard = self.shard(key.hash);
        let Some(slot) = shard.slot_mut(key) else { return Found::Nothing };
        slot.is_used = true;
        let matching = slot.variants.iter().filter(|stored| stored.vary.matches(request, scratch));
        match matching.max_by(|one, other| one.freshness.cmp_generated(&other.freshness)) {
            Some(stored) => Found::Match(Arc::clone(stored)),
            None if slot.variants.is_empty() => Found::Nothing,
            None => Found::Other,
        }
    }

    /// Returns the number that [`put`](Self::put) needs, before a response is fetched.
    pub(super) fn epoch(&self, key: CacheKey<'_>) -> u64 {
        self.shard(key.hash).removals.count
    }

    /// Returns whether responses of the key may have been removed since `epoch`.
    pub(super) fn is_removed_since(&self, key: CacheKey<'_>, epoch: u64) -> bool {
        self.shard(key.hash).removals.contain(key.hash, epoch)
    }

    /// Stores a response in place of those for the same request, and returns these; `None` if responses of the key
    /// may have been removed since `epoch`, if one of those is newer, or if it is too large.
    pub(super) fn put(
        &self,
        key: CacheKey<'_>,
        request: &FieldMap,
        stored: Arc<StoredResponse>,
        epoch: u64,
    ) -> Option<Vec<Arc<StoredResponse>>> {
        let mut scratch = Vec::new();
        self.insert(key, stored, epoch, |old, new| match old.vary.matches(request, &mut scratch) {
            true if old.freshness.is_newer_than(&new.freshness) => Replacement::Newer,
            true => Replacement::Replaced,
            false => Replacement::Other,
        })
    }

    /// As [`put`](Self::put), for a response that was read from a file: in place of an older one with the same request
    /// fields. Returns whether it is stored.
    pub(super) fn put_read(&self, key: CacheKey<'_>, stored: Arc<StoredResponse>, epoch: u64) -> bool {
        let replaced = self.insert(key, stored, epoch, |old, new| match old.vary.parts() == new.vary.parts() {
            true if old.freshness.cmp_generated(&new.freshness).is_gt() => Replacement::Newer,
            true => Replacement::Replaced,
            false => Replacement::Other,
        });
        replaced.is_some()
    }

    /// Stores a response in place of those for which `compare` returns [`Replacement::Replaced`], and drops other keys
    /// until it fits. Returns those that it replaces; `None` if it is not stored.
    fn insert(
        &self,
        key: CacheKey<'_>,
        stored: Arc<StoredResponse>,
        epoch: u64,
        mut compare: impl FnMut(&StoredResponse, &StoredResponse) -> Replacement,
    ) -> Option<Vec<Arc<StoredResponse>>> {
        let bytes = stored.bytes();
        let slot_bytes = SLOT_BYTES + key.text.len();
        if bytes + slot_bytes > self.bytes_max {
            return None;
        }
        let mut replaced = Vec::new();
        {
            let mut shard = self.shard(key.hash);
            if shard.removals.contain(key.hash, epoch) {
                return None;
            }
            let slot = shard.slot_or_insert(key, slot_bytes, &self.bytes);
            slot.coalescing_paused_until = None;
            let variants = &mut slot.variants;
            if variants.iter().any(|old| compare(old, &stored) == Replacement::Newer) {
                return None;
            }
            variants.retain(|old| {
                let is_replaced = compare(old, &stored) == Replacement::Replaced;
                if is_replaced {
                    replaced.push(Arc::clone(old));
                }
                !is_replaced
            });
            if variants.len() == VARIANTS_MAX {
                variants.remove(0);
            }
            variants.push(stored);
            let mut of_variants = variants.iter().map(|stored| stored.bytes()).sum::<usize>();
            while of_variants > self.bytes_max / KEY_DIVISOR && variants.len() > 1 {
                of_variants -= variants.remove(0).bytes();
            }
            let now = slot_bytes + of_variants;
            let before = std::mem::replace(&mut slot.bytes, now);
            self.bytes.fetch_add(now, Ordering::Relaxed);
            self.bytes.fetch_sub(before, Ordering::Relaxed);
        }
        self.shrink(key);
        Some(replaced)
    }

    /// Records that a fetch of this key has stored no response, so that its requests do not wait for each other until
    /// then.
    pub(super) fn pause_coalescing(&self, key: CacheKey<'_>, until: Instant) {
        {
            let mut shard = self.shard(key.hash);
            shard.slot_or_insert(key, SLOT_BYTES + key.text.len(), &self.bytes).coalescing_paused_until = Some(until);
        }
        self.shrink(key);
    }

    /// Drops keys until the bound holds, but never `kept`, whose slot is new.
    fn shrink(&self, kept: CacheKey<'_>) {
        // The first revolution may only clear the marks of use, and the second one drops.
        let mut passed = 0;
        while self.bytes.load(Ordering::Relaxed) > self.bytes_max && passed <= 2 * SHARDS {
            let at = self.hand.load(Ordering::Relaxed);
            match self.shards[at].lock().evict(kept.hash) {
                Some(bytes) => {
                    self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                }
                None => {
                    passed += 1;
                    // Another worker may have moved it.
                    let next = (at + 1) % SHARDS;
                    let _ = self.hand.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
                }
            }
        }
    }

    /// Drops all responses of a key; returns how many they were.
    pub(super) fn remove(&self, key: CacheKey<'_>) -> usize {
        let mut shard = self.shard(key.hash);
        shard.removals.add(key.hash);
        let Some(&at) = shard.indexes.get(&key.hash) else { return 0 };
        if *shard.ring.slots[at].key != *key.text {
            return 0;
        }
        let slot = shard.take_out(at);
        self.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
        slot.variants.len()
    }

    /// Drops the responses for which `purges` returns true; returns how many they were. O(responses), one shard after
    /// the other.
    pub(super) fn purge(&self, purges: impl Fn(&[u8], &StoredResponse) -> bool) -> usize {
        let mut purged = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.removals.add_any();
            // From the end: `take_out` moves the last slot into the gap.
            for at in (0..shard.ring.slots.len()).rev() {
                let Slot { key, variants, bytes, .. } = &mut shard.ring.slots[at];
                let before = variants.len();
                variants.retain(|stored| {
                    let is_kept = !purges(key, stored);
                    if !is_kept {
                        *bytes -= stored.bytes();
                        self.bytes.fetch_sub(stored.bytes(), Ordering::Relaxed);
                    }
                    is_kept
                });
                purged += before - variants.len();
                if before > 0 && variants.is_empty() {
                    let slot = shard.take_out(at);
                    self.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
                }
            }
        }
        purged
    }

    /// Begins to count the memory of a response that is being received.
    pub(super) fn receive(self: &Arc<Self>) -> ReceivingMemory {
        ReceivingMemory { store: Arc::clone(self), bytes: 0 }
    }

    /// Counts the result of a lookup.
    pub(super) fn count(&self, key: CacheKey<'_>, lookup: Lookup) {
        self.shards[shard_index(key.hash)].lookups[lookup as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the statistics of the store.
    pub(super) fn usage(&self) -> Usage {
        let count = |cell: &ShardCell| cell.lock().ring.slots.iter().map(|slot| slot.variants.len()).sum::<usize>();
        let lookups = |at: usize| self.shards.iter().map(|cell| cell.lookups[at].load(Ordering::Relaxed)).sum();
        Usage {
            bytes: self.bytes.load(Ordering::Relaxed),
            bytes_max: self.bytes_max,
            responses: self.shards.iter().map(count).sum(),
            evicted: self.evicted.load(Ordering::Relaxed),
            files: 0,
            file_bytes: 0,
            lookups: std::array::from_fn(lookups),
        }
    }
}

/// Returns the shard of a hash; the maps in it use other bits.
fn shard_index(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Memory of a response that is being received.
#[derive(Debug)]
pub(super) struct ReceivingMemory {
    store: Arc<Store>,
    bytes: usize,
}

impl ReceivingMemory {
    /// Reserves more memory; returns false if too much is reserved.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let before = self.store.receiving.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before + bytes <= self.store.bytes_max / RECEIVING_DIVISOR
    }
}

impl Drop for ReceivingMemory {
    fn drop(&mut self) {
        self.store.receiving.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
pub(super) mod tests;

//! The stored responses by key, which all workers share, and the fetches that are under way.
//!
//! A key's hash selects one of a fixed number of shards, each with a lock that is held for one lookup. Above its bound the store
//! drops keys by CLOCK: a hand passes over the slots of one shard after the other, and drops those that were not used since it last
//! passed.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use causeway_message::FieldMap;
use futures_channel::oneshot::{Receiver, Sender, channel};

use super::stored::StoredResponse;

/// Parts of a store with a lock each, so that workers seldom wait for each other.
const SHARDS: usize = 64;
/// Estimated memory of a key in bytes, in addition to its text.
const SLOT_BYTES: usize = 160;
/// Responses that a key may have, by the request fields that Vary names; a further one replaces the oldest.
const VARIANTS_MAX: usize = 64;
/// Requests that wait for the fetch of another one; more of them fetch for themselves.
const WAITING_MAX: usize = 4096;
/// How long the requests of a key do not wait for each other after a response that was not storable.
const COALESCING_PAUSE: Duration = Duration::from_secs(10);
/// How long requests wait for the content of a response whose head has arrived: a client that reads slowly must not hold up others.
pub(super) const CONTENT_WAIT_MAX: Duration = Duration::from_secs(1);
/// The removed keys that a shard remembers; a fetch during which there were more of them is not stored.
const REMOVALS_KEPT: usize = 32;
/// A store holds back this share of its memory from responses that are still being received.
const RECEIVING_SHARE: usize = 4;

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

/// The result of a lookup, for the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// A fresh response was served.
    Hit,
    /// A stale response was served.
    Stale,
    /// The key has no response.
    UriMiss,
    /// The key has responses to other requests only.
    VaryMiss,
    /// The request's directives required the origin.
    Request,
    /// The response was stale.
    Expired,
}

impl Lookup {
    /// All results.
    pub const ALL: [Self; 6] = [Self::Hit, Self::Stale, Self::UriMiss, Self::VaryMiss, Self::Request, Self::Expired];

    /// The result's name in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::UriMiss => "uri_miss",
            Self::VaryMiss => "vary_miss",
            Self::Request => "request",
            Self::Expired => "expired",
        }
    }
}

/// A key with its hash.
#[derive(Debug, Clone, Copy)]
pub(super) struct CacheKey<'k> {
    hash: u64,
    text: &'k [u8],
}

impl<'k> CacheKey<'k> {
    pub(super) fn text(self) -> &'k [u8] {
        self.text
    }
}

#[derive(Debug, Default)]
struct Shard {
    places: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    slots: Vec<Slot>,
    /// The slot that the hand of CLOCK passes next.
    hand: usize,
    removals: Removals,
    /// The keys that a request fetches, with the requests that wait for it.
    fetches: HashMap<u64, FetchUnderWay, BuildHasherDefault<AsItIs>>,
}

/// The latest removals of a shard: a response that was fetched before its key was removed is not stored.
#[derive(Debug, Default)]
struct Removals {
    count: u64,
    /// The count after the latest removal that may be of any key.
    of_any: u64,
    /// The hashes of the latest keys; that of removal `n` stands at `n % REMOVALS_KEPT`.
    hashes: [u64; REMOVALS_KEPT],
}

impl Removals {
    /// Counts the removal of a key.
    fn add(&mut self, hash: u64) {
        self.hashes[self.count as usize % REMOVALS_KEPT] = hash;
        self.count += 1;
    }

    /// Counts a removal of keys that are not known.
    fn add_any(&mut self) {
        self.count += 1;
        self.of_any = self.count;
    }

    /// Returns whether the key may have been removed since the count was `epoch`.
    fn contain(&self, hash: u64, epoch: u64) -> bool {
        let since = self.count - epoch;
        epoch < self.of_any
            || since > REMOVALS_KEPT as u64
            || (epoch..self.count).any(|at| self.hashes[at as usize % REMOVALS_KEPT] == hash)
    }
}

/// A fetch that is under way.
#[derive(Debug, Default)]
struct FetchUnderWay {
    /// The requests that wait for it.
    waiting: Vec<Sender<()>>,
    /// A request waited in vain: its response has no end, or takes very long. No further request waits for it.
    is_slow: bool,
    /// When the response's head arrived.
    headed_at: Option<Instant>,
}

impl FetchUnderWay {
    /// Whether a request does not wait for it, or no longer.
    fn is_slow(&self, now: Instant) -> bool {
        self.is_slow || self.headed_at.is_some_and(|at| now >= at + CONTENT_WAIT_MAX)
    }
}

#[derive(Debug)]
struct Slot {
    hash: u64,
    key: Box<[u8]>,
    variants: Vec<Arc<StoredResponse>>,
    /// Until then, requests of this key do not wait for each other.
    coalescing_paused_until: Option<Instant>,
    bytes: usize,
    used: bool,
}

/// A hasher of numbers that are hashes already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Only numbers are keys here.
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// The result of a lookup.
#[derive(Debug)]
pub(super) enum Found {
    /// The latest response that answers the request.
    Match(Arc<StoredResponse>),
    /// The key has responses to other requests only.
    Other,
    Nothing,
}

/// How a stored response relates to one that is being stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replacement {
    /// The new one replaces it.
    Replaced,
    /// It is newer than the new one, which is not stored.
    Newer,
    /// It answers other requests.
    Other,
}

/// How a request that was not answered from the store continues.
pub(super) enum FetchTurn {
    /// It fetches the response; others may wait for it.
    Fetch(FetchGuard),
    /// Another request fetches the response. The receiver ends when that request has its outcome.
    Wait(Receiver<()>),
    /// It fetches the response for itself.
    Alone,
}

/// The stores that exist, by their settings.
static STORES: LazyLock<Mutex<HashMap<usize, Weak<Store>>>> = LazyLock::new(Mutex::default);

impl Store {
    /// Returns the process's store with this bound in bytes. It exists until the last plan that uses it is gone, so it survives a reload.
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
        self.shards[place(hash)].lock()
    }

    /// Looks up the response to a request with these fields, and marks its slot as used. Does not allocate in steady state; `scratch` is
    /// an empty buffer.
    pub(super) fn find(&self, key: CacheKey<'_>, request: &FieldMap, scratch: &mut Vec<u8>) -> Found {
        let mut shard = self.shard(key.hash);
        let Some(slot) = shard.slot_mut(key) else { return Found::Nothing };
        slot.used = true;
        let matching = slot.variants.iter().filter(|stored| stored.vary.matches(request, scratch));
        match matching.max_by_key(|stored| stored.freshness.received) {
            Some(stored) => Found::Match(Arc::clone(stored)),
            None if slot.variants.is_empty() => Found::Nothing,
            None => Found::Other,
        }
    }

    /// Decides whether a request of this key fetches, or waits for one that does.
    pub(super) fn take_turn(self: &Arc<Self>, key: CacheKey<'_>, now: Instant) -> FetchTurn {
        let mut shard = self.shard(key.hash);
        if shard.slot_mut(key).is_some_and(|slot| slot.coalescing_paused_until.is_some_and(|until| now < until)) {
            return FetchTurn::Alone;
        }
        if let Some(fetch) = shard.fetches.get_mut(&key.hash) {
            let is_slow = fetch.is_slow(now);
            let waiting = &mut fetch.waiting;
            // Before the vector grows, so that a burst of requests passes over it a few times only.
            if waiting.len() == waiting.capacity() {
                waiting.retain(|sender| !sender.is_canceled());
            }
            if is_slow || waiting.len() == WAITING_MAX {
                return FetchTurn::Alone;
            }
            let (sender, receiver) = channel();
            waiting.push(sender);
            return FetchTurn::Wait(receiver);
        }
        shard.fetches.insert(key.hash, FetchUnderWay::default());
        FetchTurn::Fetch(FetchGuard { store: Arc::clone(self), hash: key.hash })
    }

    /// Records that the head of the response to the fetch of this key has arrived, and that it is storable.
    pub(super) fn mark_headed(&self, key: CacheKey<'_>, now: Instant) {
        if let Some(fetch) = self.shard(key.hash).fetches.get_mut(&key.hash) {
            fetch.headed_at = Some(now);
        }
    }

    /// Returns whether the fetch of this key is one that no request waits for.
    pub(super) fn is_slow(&self, key: CacheKey<'_>, now: Instant) -> bool {
        self.shard(key.hash).fetches.get(&key.hash).is_some_and(|fetch| fetch.is_slow(now))
    }

    /// Records that a request waited for the fetch of this key in vain.
    pub(super) fn mark_slow(&self, key: CacheKey<'_>) {
        if let Some(fetch) = self.shard(key.hash).fetches.get_mut(&key.hash) {
            fetch.is_slow = true;
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

    /// Stores a response in place of those that answer the same request; returns false if responses of the key may have been removed since
    /// `epoch`, or if it is too large.
    pub(super) fn put(&self, key: CacheKey<'_>, request: &FieldMap, stored: Arc<StoredResponse>, epoch: u64) -> bool {
        let mut scratch = Vec::new();
        self.insert(key, stored, epoch, |old, _| match old.vary.matches(request, &mut scratch) {
            true => Replacement::Replaced,
            false => Replacement::Other,
        })
    }

    /// As [`put`](Self::put), for a response that was read from a file: in place of an older one with the same request fields.
    pub(super) fn put_read(&self, key: CacheKey<'_>, stored: Arc<StoredResponse>, epoch: u64) -> bool {
        self.insert(key, stored, epoch, |old, new| match old.vary.parts() == new.vary.parts() {
            true if old.freshness.received > new.freshness.received => Replacement::Newer,
            true => Replacement::Replaced,
            false => Replacement::Other,
        })
    }

    /// Stores a response in place of those for which `compare` returns [`Replacement::Replaced`], and drops other keys until it fits.
    fn insert(
        &self,
        key: CacheKey<'_>,
        stored: Arc<StoredResponse>,
        epoch: u64,
        mut compare: impl FnMut(&StoredResponse, &StoredResponse) -> Replacement,
    ) -> bool {
        let bytes = stored.bytes();
        let slot_bytes = SLOT_BYTES + key.text.len();
        if bytes + slot_bytes > self.bytes_max {
            return false;
        }
        {
            let mut shard = self.shard(key.hash);
            if shard.removals.contain(key.hash, epoch) {
                return false;
            }
            let slot = shard.slot_or_insert(key, slot_bytes, &self.bytes);
            slot.coalescing_paused_until = None;
            let variants = &mut slot.variants;
            let mut has_newer = false;
            variants.retain(|old| {
                let replacement = compare(old, &stored);
                has_newer |= replacement == Replacement::Newer;
                replacement != Replacement::Replaced
            });
            if has_newer {
                return false;
            }
            if variants.len() == VARIANTS_MAX {
                variants.remove(0);
            }
            variants.push(stored);
            let now = slot_bytes + variants.iter().map(|stored| stored.bytes()).sum::<usize>();
            let before = std::mem::replace(&mut slot.bytes, now);
            self.bytes.fetch_add(now, Ordering::Relaxed);
            self.bytes.fetch_sub(before, Ordering::Relaxed);
        }
        self.shrink(key);
        true
    }

    /// Records that the response to this key was not storable, so that its requests do not wait for each other.
    pub(super) fn pause_coalescing(&self, key: CacheKey<'_>, now: Instant) {
        {
            let mut shard = self.shard(key.hash);
            shard.slot_or_insert(key, SLOT_BYTES + key.text.len(), &self.bytes).coalescing_paused_until =
                Some(now + COALESCING_PAUSE);
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
        let Some(&at) = shard.places.get(&key.hash) else { return 0 };
        if *shard.slots[at].key != *key.text {
            return 0;
        }
        let slot = shard.take_out(at);
        self.bytes.fetch_sub(slot.bytes, Ordering::Relaxed);
        slot.variants.len()
    }

    /// Drops the responses for which `purges` returns true; returns how many they were. O(responses), one shard after the other.
    pub(super) fn purge(&self, purges: impl Fn(&[u8], &StoredResponse) -> bool) -> usize {
        let mut purged = 0;
        for shard in &self.shards {
            let mut shard = shard.lock();
            shard.removals.add_any();
            // From the end: `take_out` moves the last slot into the gap.
            for at in (0..shard.slots.len()).rev() {
                let Slot { key, variants, bytes, .. } = &mut shard.slots[at];
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
    pub(super) fn receive(self: &Arc<Self>) -> Receiving {
        Receiving { store: Arc::clone(self), bytes: 0 }
    }

    /// Counts the result of a lookup.
    pub(super) fn count(&self, key: CacheKey<'_>, lookup: Lookup) {
        self.shards[place(key.hash)].lookups[lookup as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the statistics of the store.
    pub(super) fn usage(&self) -> Usage {
        let count = |cell: &ShardCell| cell.lock().slots.iter().map(|slot| slot.variants.len()).sum::<usize>();
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
fn place(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

/// Statistics of the caches of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Memory in use, in bytes.
    pub bytes: usize,
    /// The bound on it.
    pub bytes_max: usize,
    /// Stored responses.
    pub responses: usize,
    /// Keys that were dropped because of the bound.
    pub evicted: u64,
    /// Files in folders.
    pub files: usize,
    /// Their bytes on the disk.
    pub file_bytes: u64,
    /// Lookups by their result, in the order of [`Lookup::ALL`].
    pub lookups: [u64; Lookup::ALL.len()],
}

impl Usage {
    /// Adds the numbers of another store.
    pub(super) fn add(&mut self, other: &Self) {
        let Self { bytes, bytes_max, responses, evicted, files, file_bytes, lookups } = self;
        *bytes += other.bytes;
        *bytes_max += other.bytes_max;
        *responses += other.responses;
        *evicted += other.evicted;
        *files += other.files;
        *file_bytes += other.file_bytes;
        lookups.iter_mut().zip(other.lookups).for_each(|(sum, more)| *sum += more);
    }
}

impl Shard {
    fn slot_mut(&mut self, key: CacheKey<'_>) -> Option<&mut Slot> {
        let slot = &mut self.slots[*self.places.get(&key.hash)?];
        // Two keys share a hash with a probability of 2^-64.
        (*slot.key == *key.text).then_some(slot)
    }

    fn slot_or_insert(&mut self, key: CacheKey<'_>, bytes: usize, total: &AtomicUsize) -> &mut Slot {
        let known = self.places.get(&key.hash).copied();
        if let Some(at) = known
            && *self.slots[at].key != *key.text
        {
            let other = self.take_out(at);
            total.fetch_sub(other.bytes, Ordering::Relaxed);
        }
        let at = *self.places.entry(key.hash).or_insert_with(|| {
            total.fetch_add(bytes, Ordering::Relaxed);
            // Starts unused, so that keys requested once are dropped before keys requested again.
            self.slots.push(Slot {
                hash: key.hash,
                key: key.text.into(),
                variants: Vec::new(),
                coalescing_paused_until: None,
                bytes,
                used: false,
            });
            self.slots.len() - 1
        });
        &mut self.slots[at]
    }

    /// Drops the next slot that was not used since the hand last passed it, other than that of the hash `kept`; returns its memory. `None`
    /// if the hand has passed all slots of the shard.
    fn evict(&mut self, kept: u64) -> Option<usize> {
        while let Some(slot) = self.slots.get_mut(self.hand) {
            let at = self.hand;
            // Also past a slot that is dropped: the last one moves there, and stays for this revolution.
            self.hand += 1;
            if slot.hash != kept && !std::mem::take(&mut slot.used) {
                return Some(self.take_out(at).bytes);
            }
        }
        self.hand = 0;
        None
    }

    fn take_out(&mut self, at: usize) -> Slot {
        let slot = self.slots.swap_remove(at);
        self.places.remove(&slot.hash);
        if let Some(moved) = self.slots.get(at) {
            self.places.insert(moved.hash, at);
        }
        slot
    }
}

/// Held by the request that fetches a response. Its drop wakes the waiting requests, with any outcome.
#[derive(Debug)]
pub(super) struct FetchGuard {
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

/// Memory of a response that is being received.
#[derive(Debug)]
pub(super) struct Receiving {
    store: Arc<Store>,
    bytes: usize,
}

impl Receiving {
    /// Reserves more memory; returns false if too much is reserved.
    pub(super) fn grow(&mut self, bytes: usize) -> bool {
        let before = self.store.receiving.fetch_add(bytes, Ordering::Relaxed);
        self.bytes += bytes;
        before + bytes <= self.store.bytes_max / RECEIVING_SHARE
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.store.receiving.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::{Context as Task, Waker};
    use std::time::SystemTime;

    use causeway_message::{Chunk, FieldValue, StatusCode, names};

    use super::super::directives::ResponseDirectives;
    use super::super::stored::{Freshness, StoredFields};
    use super::super::vary::Vary;
    use super::*;

    fn stored(bytes: usize, vary: Vary, received: Instant) -> Arc<StoredResponse> {
        Arc::new(StoredResponse {
            status: StatusCode::OK,
            fields: StoredFields::of(FieldMap::new(), &FieldMap::new(), SystemTime::UNIX_EPOCH),
            body: Chunk::from(vec![0; bytes]),
            vary,
            freshness: Freshness {
                received,
                initial_age: Duration::ZERO,
                lifetime: Duration::from_secs(1),
                is_implied: false,
            },
            directives: ResponseDirectives::default(),
            modified: None,
        })
    }

    fn put(store: &Store, key: &str, bytes: usize) {
        let key = store.key(key.as_bytes());
        store.put(key, &FieldMap::new(), stored(bytes, Vary::default(), Instant::now()), store.epoch(key));
    }

    fn has(store: &Store, key: &str) -> bool {
        matches!(store.find(store.key(key.as_bytes()), &FieldMap::new(), &mut Vec::new()), Found::Match(_))
    }

    #[track_caller]
    fn check(store: &Store) {
        let mut bytes = 0;
        for shard in &store.shards {
            let shard = shard.lock();
            assert_eq!(shard.places.len(), shard.slots.len());
            for (hash, at) in &shard.places {
                let slot = &shard.slots[*at];
                assert_eq!(slot.hash, *hash);
                let of_variants: usize = slot.variants.iter().map(|stored| stored.bytes()).sum();
                assert_eq!(slot.bytes, SLOT_BYTES + slot.key.len() + of_variants);
                bytes += slot.bytes;
            }
        }
        assert_eq!(store.bytes.load(Ordering::Relaxed), bytes);
        assert!(bytes <= store.bytes_max);
    }

    #[test]
    fn memory_is_bounded_and_used_keys_are_kept() {
        let store = Store::new(1 << 20);
        put(&store, "kept", 1000);
        for round in 0..3000 {
            assert!(has(&store, "kept"), "round {round}");
            put(&store, &format!("key {round}"), 3000);
            if round % 100 == 0 {
                check(&store);
            }
        }
        check(&store);
        let usage = store.usage();
        assert!(usage.responses > 150 && usage.evicted > 2000, "{usage:?}");
        put(&store, "too large", 1 << 20);
        assert!(!has(&store, "too large") && has(&store, "kept"));
        assert_eq!(store.remove(store.key(b"kept")), 1);
        assert!(!has(&store, "kept"));
        check(&store);
        store.purge(|_, _| true);
        check(&store);
        assert_eq!((store.usage().responses, store.usage().bytes), (0, 0));
    }

    /// A response that was just stored is not dropped for itself, and stays for half a revolution of the hand on average.
    #[test]
    fn a_full_store_keeps_the_newest() {
        let store = Store::new(16 << 20);
        for key in 0..10_000 {
            put(&store, &format!("key {key}"), 1000);
        }
        assert!(store.usage().evicted > 1000);
        for bytes in [3000, 30_000, 300_000, 3_000_000] {
            let mut kept = 0;
            for round in 0..100 {
                let key = format!("{bytes} {round}");
                put(&store, &key, bytes);
                for small in 0..20 {
                    put(&store, &format!("small {bytes} {round} {small}"), 1000);
                }
                kept += usize::from(has(&store, &key));
                check(&store);
            }
            assert!(kept >= 60, "{kept} of 100 with {bytes} bytes");
        }
    }

    // RFC 9111 §4.1: of several matching responses, the latest; a new response replaces those that answer its request.
    #[test]
    fn variants() {
        let (store, now) = (Store::new(1 << 20), Instant::now());
        let key = store.key(b"k");
        let fields = |name: causeway_message::KnownName, value: &'static str| {
            let mut fields = FieldMap::new();
            fields.append(name, FieldValue::from_static(value));
            fields
        };
        let vary = fields(names::VARY, "Accept-Language");
        for (language, bytes) in [("de", 1), ("en", 2), ("de", 3)] {
            let request = fields(names::ACCEPT_LANGUAGE, language);
            store.put(key, &request, stored(bytes, Vary::of(&vary, &request), now), 0);
        }
        let find = |language| match store.find(key, &fields(names::ACCEPT_LANGUAGE, language), &mut Vec::new()) {
            Found::Match(stored) => Ok(stored.body.len()),
            Found::Other => Err(true),
            Found::Nothing => Err(false),
        };
        assert_eq!((find("de"), find("en"), find("fr")), (Ok(3), Ok(2), Err(true)));
        assert_eq!(store.usage().responses, 2);
        for number in 0..2 * VARIANTS_MAX {
            let mut request = FieldMap::new();
            request.insert_number(names::ACCEPT_LANGUAGE, number as u64);
            store.put(key, &request, stored(1, Vary::of(&vary, &request), now), 0);
        }
        assert_eq!(store.usage().responses, VARIANTS_MAX);
        check(&store);
        // A response that does not vary replaces all.
        store.put(key, &FieldMap::new(), stored(9, Vary::default(), now + Duration::from_secs(1)), 0);
        assert_eq!(find("fr"), Ok(9));
        check(&store);
    }

    // RFC 9111 §4.4: a response that was fetched before its key was removed is not stored. Removals of other keys do not matter.
    #[test]
    fn removals_during_a_fetch() {
        let store = Store::new(1 << 20);
        let put = |key: &str, epoch| {
            let stored = stored(10, Vary::default(), Instant::now());
            store.put(store.key(key.as_bytes()), &FieldMap::new(), stored, epoch)
        };
        let epoch = || store.epoch(store.key(b"a"));
        let before = epoch();
        // In each of 64 shards one or another, and not too many.
        for other in 0..SHARDS * REMOVALS_KEPT / 8 {
            store.remove(store.key(format!("other-{other}").as_bytes()));
        }
        assert!(put("a", before) && has(&store, "a"));
        let before = epoch();
        store.remove(store.key(b"a"));
        assert!(!put("a", before) && !has(&store, "a"));
        assert!(put("a", epoch()));
        let before = epoch();
        store.purge(|_, _| false);
        assert!(!put("a", before), "a purge may be of any key");
        let before = epoch();
        for _ in 0..=REMOVALS_KEPT {
            store.shard(store.key(b"a").hash).removals.add(7);
        }
        assert!(!put("a", before), "more removals than are remembered");
    }

    #[test]
    fn one_fetches_and_others_wait() {
        let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
        let key = store.key(b"k");
        let FetchTurn::Fetch(guard) = store.take_turn(key, now) else { panic!("the first one fetches") };
        let FetchTurn::Wait(mut waiting) = store.take_turn(key, now) else { panic!("the second one waits") };
        assert!(matches!(store.take_turn(store.key(b"other"), now), FetchTurn::Fetch(_)), "another key");
        let mut task = Task::from_waker(Waker::noop());
        let poll = |waiting: &mut Receiver<()>, task: &mut Task<'_>| std::pin::Pin::new(waiting).poll(task).is_ready();
        assert!(!poll(&mut waiting, &mut task));
        drop(guard);
        assert!(poll(&mut waiting, &mut task));
        // The response was not storable: for a time all fetch for themselves.
        store.pause_coalescing(key, now);
        assert!(matches!(store.take_turn(key, now), FetchTurn::Alone));
        assert!(matches!(store.find(key, &FieldMap::new(), &mut Vec::new()), Found::Nothing));
        assert!(matches!(store.take_turn(key, now + COALESCING_PAUSE), FetchTurn::Fetch(_)));
    }

    // A response without an end: after one request has waited in vain, others do not wait for this fetch.
    #[test]
    fn a_slow_fetch_delays_no_further_request() {
        let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
        let key = store.key(b"k");
        store.mark_slow(key);
        let FetchTurn::Fetch(guard) = store.take_turn(key, now) else { panic!("the first one fetches") };
        assert!(matches!(store.take_turn(key, now), FetchTurn::Wait(_)));
        store.mark_slow(key);
        let later = now + 2 * COALESCING_PAUSE;
        assert!(matches!(store.take_turn(key, later), FetchTurn::Alone));
        drop(guard);
        assert!(matches!(store.take_turn(key, later), FetchTurn::Fetch(_)));
    }

    // A response whose client reads nothing holds up no other client for long.
    #[test]
    fn a_slow_reader_delays_no_other_request() {
        let (store, now) = (Arc::new(Store::new(1 << 20)), Instant::now());
        let key = store.key(b"k");
        let FetchTurn::Fetch(_guard) = store.take_turn(key, now) else { panic!("the first one fetches") };
        assert!(matches!(store.take_turn(key, now + CONTENT_WAIT_MAX), FetchTurn::Wait(_)), "for the head");
        store.mark_headed(key, now);
        assert!(matches!(store.take_turn(key, now + CONTENT_WAIT_MAX / 2), FetchTurn::Wait(_)), "for the content");
        assert!(store.is_slow(key, now + CONTENT_WAIT_MAX));
        assert!(matches!(store.take_turn(key, now + CONTENT_WAIT_MAX), FetchTurn::Alone));
    }

    // A file that is read late does not replace the response that was fetched meanwhile.
    #[test]
    fn an_older_file_replaces_no_newer_response() {
        let (store, now) = (Store::new(1 << 20), Instant::now());
        let key = store.key(b"k");
        let later = now + Duration::from_secs(1);
        assert!(store.put(key, &FieldMap::new(), stored(2, Vary::default(), later), 0));
        assert!(!store.put_read(key, stored(1, Vary::default(), now), 0));
        let find = || match store.find(key, &FieldMap::new(), &mut Vec::new()) {
            Found::Match(stored) => stored.body.len(),
            other => panic!("found {other:?}"),
        };
        assert_eq!(find(), 2);
        check(&store);
        assert!(store.put_read(key, stored(3, Vary::default(), later), 0));
        assert_eq!((find(), store.usage().responses), (3, 1));
        check(&store);
    }

    #[test]
    fn responses_that_are_received_have_a_bound() {
        let store = Arc::new(Store::new(4000));
        let mut one = store.receive();
        assert!(one.grow(600) && one.grow(400) && !store.receive().grow(1));
        assert!(!one.grow(1));
        drop(one);
        assert!(store.receive().grow(1000));
    }
}

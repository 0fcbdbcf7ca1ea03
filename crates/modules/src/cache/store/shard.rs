//! A part of a store: its keys with their responses, the latest removals, and the fetches that are under way.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use super::super::stored::StoredResponse;
use super::fetch::FetchUnderWay;
use crate::clock_ring::{ClockRing, ClockSlot};

/// The removed keys that a shard remembers; a fetch during which there were more of them is not stored.
pub(super) const REMOVALS_KEPT: usize = 32;

/// A key with its hash.
#[derive(Debug, Clone, Copy)]
pub(in crate::cache) struct CacheKey<'k> {
    pub(super) hash: u64,
    pub(super) text: &'k [u8],
}

impl<'k> CacheKey<'k> {
    pub(in crate::cache) fn text(self) -> &'k [u8] {
        self.text
    }
}

#[derive(Debug, Default)]
pub(super) struct Shard {
    pub(super) indexes: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    pub(super) ring: ClockRing<Slot>,
    pub(super) removals: Removals,
    /// The fetches under way, with the requests that wait for them.
    pub(super) fetches: HashMap<u64, FetchUnderWay, BuildHasherDefault<AsItIs>>,
}

/// The latest removals of a shard: a response that was fetched before its key was removed is not stored.
#[derive(Debug, Default)]
pub(super) struct Removals {
    pub(super) count: u64,
    /// The count after the latest removal that may be of any key.
    of_any: u64,
    /// The hashes of the latest keys; that of removal `n` stands at `n % REMOVALS_KEPT`.
    hashes: [u64; REMOVALS_KEPT],
}

impl Removals {
    /// Counts the removal of a key.
    pub(super) fn add(&mut self, hash: u64) {
        self.hashes[self.count as usize % REMOVALS_KEPT] = hash;
        self.count += 1;
    }

    /// Counts a removal of keys that are not known.
    pub(super) fn add_any(&mut self) {
        self.count += 1;
        self.of_any = self.count;
    }

    /// Returns whether the key may have been removed since the count was `epoch`.
    pub(super) fn contain(&self, hash: u64, epoch: u64) -> bool {
        let since = self.count - epoch;
        epoch < self.of_any
            || since > REMOVALS_KEPT as u64
            || (epoch..self.count).any(|at| self.hashes[at as usize % REMOVALS_KEPT] == hash)
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    pub(super) hash: u64,
    pub(super) key: Box<[u8]>,
    pub(super) variants: Vec<Arc<StoredResponse>>,
    /// Until then, requests of this key do not wait for each other.
    pub(super) coalescing_paused_until: Option<Instant>,
    pub(super) bytes: usize,
    pub(super) is_used: bool,
}

impl ClockSlot for Slot {
    fn take_used(&mut self) -> bool {
        std::mem::take(&mut self.is_used)
    }
}

/// A hasher of numbers that are hashes already.
#[derive(Debug, Default)]
pub(super) struct AsItIs(u64);

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

impl Shard {
    pub(super) fn slot_mut(&mut self, key: CacheKey<'_>) -> Option<&mut Slot> {
        let slot = &mut self.ring.slots[*self.indexes.get(&key.hash)?];
        // Two keys share a hash with a probability of 2^-64.
        (*slot.key == *key.text).then_some(slot)
    }

    /// Returns whether the requests of a key do not wait for each other, after a response that was not storable.
    pub(super) fn is_coalescing_paused(&mut self, key: CacheKey<'_>, now: Instant) -> bool {
        self.slot_mut(key).is_some_and(|slot| slot.coalescing_paused_until.is_some_and(|until| now < until))
    }

    pub(super) fn slot_or_insert(&mut self, key: CacheKey<'_>, bytes: usize, total: &AtomicUsize) -> &mut Slot {
        let known = self.indexes.get(&key.hash).copied();
        if let Some(at) = known
            && *self.ring.slots[at].key != *key.text
        {
            let other = self.take_out(at);
            total.fetch_sub(other.bytes, Ordering::Relaxed);
        }
        let at = *self.indexes.entry(key.hash).or_insert_with(|| {
            total.fetch_add(bytes, Ordering::Relaxed);
            self.ring.slots.push(Slot {
                hash: key.hash,
                key: key.text.into(),
                variants: Vec::new(),
                coalescing_paused_until: None,
                bytes,
                is_used: false,
            });
            self.ring.slots.len() - 1
        });
        &mut self.ring.slots[at]
    }

    /// Drops the next slot that was not used since the hand last passed it, other than that of the hash `kept`; returns
    /// its memory. `None` if the hand has passed all slots of the shard.
    pub(super) fn evict(&mut self, kept: u64) -> Option<usize> {
        let at = self.ring.find_unused(|slot| slot.hash == kept)?;
        Some(self.take_out(at).bytes)
    }

    pub(super) fn take_out(&mut self, at: usize) -> Slot {
        let slot = self.ring.slots.swap_remove(at);
        self.indexes.remove(&slot.hash);
        if let Some(moved) = self.ring.slots.get(at) {
            self.indexes.insert(moved.hash, at);
        }
        slot
    }
}

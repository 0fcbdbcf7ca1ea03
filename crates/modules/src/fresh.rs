//! A per-worker cache of file system lookups with stale-while-revalidate semantics.
//!
//! A value is fresh for one second, counted from the start of the lookup that produced it. The first reader after that
//! second gets [`CachedValue::Stale`] and revalidates; until its lookup ends (or is dropped, for example because its
//! client disconnected) other readers get the old value. So no reader gets a value older than one second plus one
//! lookup.
//!
//! The cache lives in a state that survives a reload ([`causeway_pipeline::Build::allocate_kept_state`]). The state's
//! key must name everything that its values depend on.
//!
//! Above its bounds the cache evicts by CLOCK. Values that hold open files have a clock of their own, so that eviction
//! for one resource never scans the values that do not use it.
//!
//! All caches of the process together keep files open within [`OpenFiles`], since connections need descriptors too. A
//! task closes those without requests ([`close_idle_files`]).

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use causeway_pipeline::Worker;
use causeway_pipeline::worker::Sleep;

use crate::clock_ring::{ClockRing, ClockSlot};

/// How long a value is served without revalidation.
const FRESH_FOR: Duration = Duration::from_secs(1);
/// The part of the process's file descriptors that the caches may keep.
const OPEN_PART: u64 = 8;
/// The time without a request after which a file is closed, up to this time later. A deleted file takes space until
/// then, and its file system cannot be unmounted.
const OPEN_IDLE_MAX: Duration = Duration::from_secs(10);
/// Estimated overhead of a slot in bytes, in addition to its value and its key.
const SLOT_BYTES: usize = 256;

/// The memory and file descriptors that a value holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cost {
    pub(crate) bytes: usize,
    /// Number of open files.
    pub(crate) open: usize,
}

/// The files that caches keep open together.
struct OpenFiles {
    kept: AtomicUsize,
    most: usize,
}

impl OpenFiles {
    const fn new(most: usize) -> Self {
        Self { kept: AtomicUsize::new(0), most }
    }

    /// The open files of the process. The limit of descriptors is read at the first use, when the server has raised it.
    fn of_process() -> &'static Self {
        static OF_PROCESS: LazyLock<OpenFiles> = LazyLock::new(|| {
            let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
            OpenFiles::new(limit.map_or(usize::MAX, |limit| usize::try_from(limit / OPEN_PART).unwrap_or(usize::MAX)))
        });
        &OF_PROCESS
    }

    /// Counts files as kept until the result is dropped. `None` if there are too many.
    fn keep(&'static self, count: usize) -> Option<KeptFiles> {
        let add = |kept: usize| kept.checked_add(count).filter(|kept| *kept <= self.most);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(KeptFiles { of: self, count })
    }
}

/// A number of files that a cache keeps open.
struct KeptFiles {
    of: &'static OpenFiles,
    count: usize,
}

impl Drop for KeptFiles {
    fn drop(&mut self) {
        self.of.kept.fetch_sub(self.count, Ordering::Relaxed);
    }
}

/// A value whose cost the cache can count.
pub(crate) trait Costly {
    fn cost(&self) -> Cost;
}

/// The result of a cache lookup.
pub(crate) enum CachedValue<T> {
    /// Looked up less than a second ago, or another reader is already revalidating it.
    Fresh(Rc<T>),
    /// Expired: the caller must revalidate the value, then call [`Fresh::touch`] or [`Fresh::put`].
    Stale(Rc<T>, RevalidationGuard),
    /// Not cached.
    Nothing,
}

/// Held while a reader revalidates. Dropping it without a result makes the next reader revalidate.
pub(crate) struct RevalidationGuard(#[expect(dead_code, reason = "only that it is held counts")] Rc<()>);

struct CacheSlot<T> {
    key: Rc<[u8]>,
    value: Rc<T>,
    cost: Cost,
    /// `None` for a value without open files.
    _kept: Option<KeptFiles>,
    checked_at: Instant,
    requested_at: Instant,
    revalidation: Weak<()>,
    is_used: bool,
}

impl<T> ClockSlot for CacheSlot<T> {
    fn take_used(&mut self) -> bool {
        std::mem::take(&mut self.is_used)
    }
}

/// Slots and the cost of their values.
struct Round<T> {
    ring: ClockRing<CacheSlot<T>>,
    cost: Cost,
}

impl<T> Round<T> {
    const fn new() -> Self {
        Self { ring: ClockRing::new(), cost: Cost { bytes: 0, open: 0 } }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SlotIndex {
    round: usize,
    at: usize,
}

/// The cached values of one type on one worker.
pub(crate) struct Fresh<T> {
    most: Cost,
    open_files: &'static OpenFiles,
    indexes: HashMap<Rc<[u8]>, SlotIndex>,
    /// First the values without open files, then those with open files.
    rounds: [Round<T>; 2],
    /// A task closes idle files ([`close_idle_files`]).
    has_closer: bool,
}

/// Starts the task that closes the files without requests, unless it runs or the cache has no open file. For each new
/// value: an idle worker has no such task.
pub(crate) fn close_idle_files<T: Costly + 'static>(cache: &Rc<RefCell<Fresh<T>>>, worker: &Rc<dyn Worker>) {
    let mut fresh = cache.borrow_mut();
    if fresh.has_closer || fresh.rounds[1].ring.slots.is_empty() {
        return;
    }
    fresh.has_closer = true;
    let (cache, worker) = (Rc::downgrade(cache), Rc::clone(worker));
    let ours = Rc::clone(&worker);
    worker.spawn(Box::pin(async move {
        loop {
            Sleep::until(Rc::clone(&ours), ours.now() + OPEN_IDLE_MAX).await;
            // Without its last plan the cache is gone, with all its files.
            let Some(cache) = cache.upgrade() else { return };
            let mut fresh = cache.borrow_mut();
            fresh.close_idle(ours.now());
            fresh.has_closer = !fresh.rounds[1].ring.slots.is_empty();
            if !fresh.has_closer {
                return;
            }
        }
    }));
}

impl<T: Costly> Fresh<T> {
    /// Creates an empty cache. `most` bounds the total cost of all values, keys included.
    pub(crate) fn new(most: Cost) -> Self {
        let rounds = [Round::new(), Round::new()];
        Self { most, open_files: OpenFiles::of_process(), indexes: HashMap::new(), rounds, has_closer: false }
    }

    /// Looks up a key and marks its slot as used. O(1); allocates only if the value is stale.
    pub(crate) fn find(&mut self, key: &[u8], now: Instant) -> CachedValue<T> {
        let Some(&index) = self.indexes.get(key) else { return CachedValue::Nothing };
        let slot = &mut self.rounds[index.round].ring.slots[index.at];
        slot.is_used = true;
        slot.requested_at = now;
        let value = Rc::clone(&slot.value);
        // `revalidation` has an owner exactly while another reader holds a `RevalidationGuard`.
        if now.saturating_duration_since(slot.checked_at) < FRESH_FOR || slot.revalidation.strong_count() > 0 {
            return CachedValue::Fresh(value);
        }
        let revalidation = Rc::new(());
        slot.revalidation = Rc::downgrade(&revalidation);
        CachedValue::Stale(value, RevalidationGuard(revalidation))
    }

    /// Confirms a value after a lookup that started at `began` and found it unchanged.
    pub(crate) fn touch(&mut self, key: &[u8], began: Instant) {
        if let Some(index) = self.indexes.get(key) {
            self.rounds[index.round].ring.slots[index.at].checked_at = began;
        }
    }

    /// Stores the result of a lookup that started at `began`, and evicts other values until it fits. A value that alone
    /// exceeds a bound is not stored, nor is one with open files while other caches keep all that the process may.
    pub(crate) fn put(&mut self, key: &[u8], value: Rc<T>, began: Instant) {
        self.remove(key);
        let mut cost = value.cost();
        cost.bytes += SLOT_BYTES + key.len();
        if cost.bytes > self.most.bytes || cost.open > self.most.open {
            return;
        }
        // Only the second clock holds open files, so it must make room for them first. The loop ends: the new value
        // fits alone.
        while self.rounds[1].cost.open + cost.open > self.most.open {
            self.evict(1);
        }
        let kept = match cost.open {
            0 => None,
            open => match self.keep(open) {
                Some(kept) => Some(kept),
                None => return,
            },
        };
        while self.bytes() + cost.bytes > self.most.bytes {
            // Evict from the clock that holds more memory; one of them has a slot, since the new value fits into an
            // empty cache.
            self.evict(usize::from(self.rounds[1].cost.bytes > self.rounds[0].cost.bytes));
        }
        let key: Rc<[u8]> = key.into();
        let number = usize::from(cost.open > 0);
        let round = &mut self.rounds[number];
        round.cost.bytes += cost.bytes;
        round.cost.open += cost.open;
        self.indexes.insert(Rc::clone(&key), SlotIndex { round: number, at: round.ring.slots.len() });
        round.ring.slots.push(CacheSlot {
            key,
            value,
            cost,
            _kept: kept,
            checked_at: began,
            requested_at: began,
            revalidation: Weak::new(),
            is_used: false,
        });
    }

    /// Counts files as kept, and evicts others of this cache until the process may keep them.
    fn keep(&mut self, open: usize) -> Option<KeptFiles> {
        loop {
            if let Some(kept) = self.open_files.keep(open) {
                return Some(kept);
            }
            if self.rounds[1].ring.slots.is_empty() {
                return None;
            }
            self.evict(1);
        }
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        if let Some(&index) = self.indexes.get(key) {
            self.take_out(index);
        }
    }

    /// Removes the values with open files that were not requested for [`OPEN_IDLE_MAX`].
    fn close_idle(&mut self, now: Instant) {
        // From the end, since removing a slot moves the last one into its place.
        for at in (0..self.rounds[1].ring.slots.len()).rev() {
            if now.saturating_duration_since(self.rounds[1].ring.slots[at].requested_at) >= OPEN_IDLE_MAX {
                self.take_out(SlotIndex { round: 1, at });
            }
        }
    }

    fn bytes(&self) -> usize {
        self.rounds.iter().map(|round| round.cost.bytes).sum()
    }

    /// Evicts a value of a clock that has one.
    fn evict(&mut self, round: usize) {
        let ring = &mut self.rounds[round].ring;
        // The first revolution may only clear the marks of use; another one then finds a slot.
        let at = loop {
            if let Some(at) = ring.find_unused(|_| false) {
                break at;
            }
        };
        self.take_out(SlotIndex { round, at });
    }

    fn take_out(&mut self, index: SlotIndex) {
        let round = &mut self.rounds[index.round];
        let slot = round.ring.slots.swap_remove(index.at);
        round.cost.bytes -= slot.cost.bytes;
        round.cost.open -= slot.cost.open;
        self.indexes.remove(&slot.key);
        // `swap_remove` moved the last slot into the gap: its index entry must follow.
        if let Some(moved) = round.ring.slots.get(index.at) {
            self.indexes.insert(Rc::clone(&moved.key), index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Cost);

    impl Costly for Thing {
        fn cost(&self) -> Cost {
            self.0
        }
    }

    fn thing(bytes: usize, open: usize) -> Rc<Thing> {
        Rc::new(Thing(Cost { bytes, open }))
    }

    fn fresh() -> Fresh<Thing> {
        Fresh::new(Cost { bytes: 1 << 20, open: 16 })
    }

    fn is_cached(fresh: &mut Fresh<Thing>, key: &str, now: Instant) -> bool {
        !matches!(fresh.find(key.as_bytes(), now), CachedValue::Nothing)
    }

    #[track_caller]
    fn check(fresh: &Fresh<Thing>) {
        let (mut bytes, mut open) = (0, 0);
        for slot in fresh.rounds.iter().flat_map(|round| &round.ring.slots) {
            bytes += slot.cost.bytes;
            open += slot.cost.open;
        }
        assert_eq!((fresh.bytes(), fresh.rounds[1].cost.open, fresh.rounds[0].cost.open), (bytes, open, 0));
        assert!(bytes <= fresh.most.bytes && open <= fresh.most.open);
        assert_eq!(fresh.indexes.len(), fresh.rounds.iter().map(|round| round.ring.slots.len()).sum::<usize>());
        for (key, index) in &fresh.indexes {
            assert_eq!(fresh.rounds[index.round].ring.slots[index.at].key, *key);
        }
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_used_entries() {
        let (mut fresh, now) = (fresh(), Instant::now());
        fresh.put(b"/kept", thing(1000, 0), now);
        fresh.put(b"/kept-open", thing(10, 1), now);
        for round in 0..2000 {
            assert!(is_cached(&mut fresh, "/kept", now) && is_cached(&mut fresh, "/kept-open", now), "round {round}");
            fresh.put(format!("/{round}").as_bytes(), thing(4000 * (round % 3), round % 3), now);
            check(&fresh);
        }
        assert!(fresh.rounds[1].cost.open >= 15 && fresh.rounds[0].ring.slots.len() > 50);
        for round in 0..2000 {
            fresh.remove(format!("/{round}").as_bytes());
        }
        check(&fresh);
        assert_eq!(fresh.indexes.len(), 2);
        // Larger than the whole cache.
        fresh.put(b"/kept", thing(1 << 20, 0), now);
        fresh.put(b"/kept-open", thing(1, 17), now);
        assert_eq!((fresh.indexes.len(), fresh.bytes()), (0, 0));
    }

    // CLOCK: of values that were not used again, the hand evicts the oldest ones first.
    #[test]
    fn new_values_outlast_old_unused_ones() {
        let (mut fresh, now) = (fresh(), Instant::now());
        for number in 0..100 {
            fresh.put(format!("/{number}").as_bytes(), thing(10, 1), now);
        }
        // Once in a revolution the hand is at the end, where the latest value is.
        let mut is_kept = |number: &i32| is_cached(&mut fresh, &format!("/{number}"), now);
        assert!((92..100).filter(|number| is_kept(number)).count() >= 7);
        check(&fresh);
    }

    // The caches of all workers and options together keep a part of the process's descriptors; clients need the others.
    #[test]
    fn open_files_of_all_caches_are_bounded() {
        static FEW: OpenFiles = OpenFiles::new(4);
        let now = Instant::now();
        let mut caches = [fresh(), fresh(), fresh()];
        caches.iter_mut().for_each(|cache| cache.open_files = &FEW);
        let [one, two, three] = &mut caches;
        for number in 0..3 {
            one.put(format!("/{number}").as_bytes(), thing(1, 1), now);
        }
        two.put(b"/a", thing(1, 1), now);
        // The cache replaces its own file; one without any keeps none, and still keeps values without files.
        two.put(b"/b", thing(1, 1), now);
        three.put(b"/c", thing(1, 1), now);
        three.put(b"/d", thing(1, 0), now);
        let cached = |cache: &mut Fresh<Thing>, keys: &[&str]| -> Vec<bool> {
            keys.iter().map(|key| is_cached(cache, key, now)).collect()
        };
        assert_eq!(cached(one, &["/0", "/1", "/2"]), [true, true, true]);
        assert_eq!(cached(two, &["/a", "/b"]), [false, true]);
        assert_eq!(cached(three, &["/c", "/d"]), [false, true]);
        assert_eq!(FEW.kept.load(Ordering::Relaxed), 4);
        // A file with variants needs several, and takes the place of all others of its cache if it must.
        one.put(b"/three", thing(1, 3), now);
        assert_eq!(cached(one, &["/0", "/1", "/2", "/three"]), [false, false, false, true]);
        two.put(b"/five", thing(1, 5), now);
        assert_eq!(cached(two, &["/a", "/b", "/five"]), [false, false, false]);
        // A removed value leaves its files to the others, and so does a cache.
        one.remove(b"/three");
        three.put(b"/c", thing(1, 4), now);
        assert!(is_cached(three, "/c", now));
        caches.iter().for_each(check);
        drop(caches);
        assert_eq!(FEW.kept.load(Ordering::Relaxed), 0);
    }

    // docs/limits.md: a large file without a request for 10 seconds is closed.
    #[test]
    fn values_with_open_files_leave_when_idle() {
        let (mut fresh, now) = (fresh(), Instant::now());
        for number in 0..6 {
            fresh.put(format!("/{number}").as_bytes(), thing(1, number % 2), now);
        }
        assert!(is_cached(&mut fresh, "/3", now + Duration::from_millis(1)));
        fresh.close_idle(now + OPEN_IDLE_MAX - Duration::from_millis(1));
        assert_eq!(fresh.indexes.len(), 6);
        fresh.close_idle(now + OPEN_IDLE_MAX);
        check(&fresh);
        let cached: Vec<_> = (0..6).map(|number| is_cached(&mut fresh, &format!("/{number}"), now)).collect();
        assert_eq!(cached, [true, false, true, true, true, false]);
    }

    #[test]
    fn one_caller_refreshes_while_others_get_the_old_value() {
        let (mut fresh, now) = (fresh(), Instant::now());
        fresh.put(b"/a", thing(1, 0), now);
        assert!(matches!(fresh.find(b"/a", now + Duration::from_millis(999)), CachedValue::Fresh(_)));
        let later = now + FRESH_FOR;
        let CachedValue::Stale(_, revalidation) = fresh.find(b"/a", later) else { panic!("the value has expired") };
        assert!(matches!(fresh.find(b"/a", later + 5 * FRESH_FOR), CachedValue::Fresh(_)));
        // The lookup was dropped: the next reader must revalidate at once.
        drop(revalidation);
        let CachedValue::Stale(_, revalidation) = fresh.find(b"/a", later) else { panic!("no lookup is in progress") };
        fresh.touch(b"/a", later);
        drop(revalidation);
        assert!(matches!(fresh.find(b"/a", later + Duration::from_millis(999)), CachedValue::Fresh(_)));
        assert!(matches!(fresh.find(b"/a", later + FRESH_FOR), CachedValue::Stale(..)));
        fresh.remove(b"/a");
        assert!(matches!(fresh.find(b"/a", later), CachedValue::Nothing));
    }
}

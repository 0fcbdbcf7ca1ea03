//! The limit of connections to an address, which the pools of all workers share.
//!
//! A pool takes a slot for each connection. When no slot is free, a pool whose calls wait claims the next one. Each
//! pool that has slots then gives up an idle connection, and a busy one after its call unless calls of its own have
//! waited about as long, so that no worker keeps all connections for itself.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Waker;
use std::time::Instant;

/// The limits of a transport: at most so many connections to each address.
pub struct ConnectionLimits {
    max: usize,
    by_address: Mutex<HashMap<Box<str>, Weak<ConnectionLimit>>>,
}

impl ConnectionLimits {
    /// `max` is the number of connections to each address, of all workers together.
    pub fn new(max: usize) -> Self {
        Self { max, by_address: Mutex::default() }
    }

    /// Returns the number of connections to each address.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Adds a pool of connections to `address` (`host:port`).
    pub fn join(&self, address: &str) -> LimitMembership {
        let mut by_address = lock(&self.by_address);
        let limit = match by_address.get(address).and_then(Weak::upgrade) {
            Some(limit) => limit,
            None => {
                by_address.retain(|_, limit| limit.strong_count() > 0);
                let limit = Arc::new(ConnectionLimit::new(self.max));
                by_address.insert(address.into(), Arc::downgrade(&limit));
                limit
            }
        };
        limit.join()
    }
}

impl fmt::Debug for ConnectionLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionLimits").field("max", &self.max).finish_non_exhaustive()
    }
}

/// The slots of one address.
struct ConnectionLimit {
    state: Mutex<LimitState>,
    /// Number of pools with a claim: lets a pool see without a lock that there is none.
    claims: AtomicUsize,
    is_multiplexed: AtomicBool,
}

struct LimitState {
    /// Above 0 only while no pool has a claim.
    free: usize,
    pools: Vec<PoolState>,
    next_id: PoolId,
}

type PoolId = u64;

struct PoolState {
    id: PoolId,
    claim: Claim,
    /// The slots that its connections have.
    held: usize,
    waker: Waker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Claim {
    None,
    /// The time since which the first call waits for which the pool opens no connection.
    Since(Instant),
    /// The pool has a slot, and has not taken it yet.
    Granted,
}

impl Claim {
    fn since(self) -> Option<Instant> {
        match self {
            Self::Since(since) => Some(since),
            Self::None | Self::Granted => None,
        }
    }
}

impl ConnectionLimit {
    fn new(max: usize) -> Self {
        let state = LimitState { free: max, pools: Vec::new(), next_id: 0 };
        Self { state: Mutex::new(state), claims: AtomicUsize::new(0), is_multiplexed: AtomicBool::new(false) }
    }

    fn join(self: &Arc<Self>) -> LimitMembership {
        let mut state = lock(&self.state);
        let id = state.next_id;
        state.next_id += 1;
        state.pools.push(PoolState { id, claim: Claim::None, held: 0, waker: Waker::noop().clone() });
        LimitMembership { limit: Arc::clone(self), id }
    }

    /// Gives a slot back that `holder` had, or was granted and did not take: to the pool whose call has waited longest,
    /// if any waits.
    fn release(&self, holder: Option<PoolId>) {
        let mut state = lock(&self.state);
        if let Some(pool) = state.pools.iter_mut().find(|pool| Some(pool.id) == holder) {
            pool.held -= 1;
        }
        let waiting = state.pools.iter_mut().filter_map(|pool| Some((pool.claim.since()?, pool)));
        match waiting.min_by_key(|(since, _)| *since) {
            Some((_, pool)) => {
                pool.claim = Claim::Granted;
                pool.waker.wake_by_ref();
                self.count(&state);
            }
            None => state.free += 1,
        }
    }

    fn count(&self, state: &LimitState) {
        let claims = state.pools.iter().filter(|pool| pool.claim.since().is_some()).count();
        self.claims.store(claims, Ordering::Relaxed);
    }
}

/// A pool's membership in the limit of its address. Dropping it withdraws the pool's claim.
pub struct LimitMembership {
    limit: Arc<ConnectionLimit>,
    id: PoolId,
}

impl LimitMembership {
    /// Takes a free slot.
    pub fn take(&self) -> Option<ConnectionSlot> {
        let mut state = lock(&self.limit.state);
        state.free = state.free.checked_sub(1)?;
        state.pools.iter_mut().find(|pool| pool.id == self.id)?.held += 1;
        Some(self.slot())
    }

    /// Returns a slot that was granted or is free. Otherwise claims the next one for a call that began to wait at
    /// `since`; `None` withdraws the claim. `waker` is woken when a slot is granted, and, if this pool has slots, when
    /// another pool begins to claim one.
    pub fn claim(&self, since: Option<Instant>, waker: &Waker) -> Option<ConnectionSlot> {
        let mut state = lock(&self.limit.state);
        let is_free = since.is_some() && state.free > 0;
        let pool = state.pools.iter_mut().find(|pool| pool.id == self.id)?;
        pool.waker.clone_from(waker);
        let former = std::mem::replace(&mut pool.claim, since.map_or(Claim::None, Claim::Since));
        if former == Claim::Granted || is_free {
            pool.claim = Claim::None;
            pool.held += 1;
            if former != Claim::Granted {
                state.free -= 1;
            }
            self.limit.count(&state);
            return Some(self.slot());
        }
        if former.since().is_none() && since.is_some() {
            let holders = state.pools.iter().filter(|pool| pool.id != self.id && pool.held > 0);
            holders.for_each(|pool| pool.waker.wake_by_ref());
        }
        self.limit.count(&state);
        None
    }

    /// Returns the time since which the first call of another pool waits for a slot.
    pub fn claimed_since(&self) -> Option<Instant> {
        // Relaxed: a claim that is not visible here yet wakes this pool afterwards.
        if self.limit.claims.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let state = lock(&self.limit.state);
        state.pools.iter().filter(|pool| pool.id != self.id).filter_map(|pool| pool.claim.since()).min()
    }

    /// Sets whether a connection to the address can carry many calls. A change to true wakes the pools with claims.
    pub fn set_multiplexed(&self, is_multiplexed: bool) {
        let was_multiplexed = self.limit.is_multiplexed.swap(is_multiplexed, Ordering::Relaxed);
        if is_multiplexed && !was_multiplexed {
            let state = lock(&self.limit.state);
            state.pools.iter().filter(|pool| pool.claim.since().is_some()).for_each(|pool| pool.waker.wake_by_ref());
        }
    }

    /// Returns whether a connection to the address can carry many calls, as far as is known.
    pub fn is_multiplexed(&self) -> bool {
        self.limit.is_multiplexed.load(Ordering::Relaxed)
    }

    fn slot(&self) -> ConnectionSlot {
        ConnectionSlot(Some((Arc::clone(&self.limit), self.id)))
    }
}

impl Drop for LimitMembership {
    fn drop(&mut self) {
        let mut state = lock(&self.limit.state);
        let Some(at) = state.pools.iter().position(|pool| pool.id == self.id) else { return };
        let pool = state.pools.swap_remove(at);
        self.limit.count(&state);
        drop(state);
        if pool.claim == Claim::Granted {
            self.limit.release(None);
        }
    }
}

/// The right to have a connection. Dropping it gives it back.
pub struct ConnectionSlot(Option<(Arc<ConnectionLimit>, PoolId)>);

impl ConnectionSlot {
    /// A slot that counts for no limit.
    pub fn unlimited() -> Self {
        Self(None)
    }

    /// Returns whether it counts for a limit.
    pub fn is_counted(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some((limit, pool)) = &self.0 {
            limit.release(Some(*pool));
        }
    }
}

/// Ignores poisoning: no code that runs under the locks panics between two changes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A pool with a waker that counts.
    struct Pool {
        share: LimitMembership,
        wakes: Arc<Wakes>,
    }

    impl Pool {
        fn of(limits: &ConnectionLimits) -> Self {
            let pool = Self { share: limits.join("a:1"), wakes: Arc::default() };
            assert!(pool.claim(None).is_none());
            pool
        }

        fn claim(&self, since: Option<Instant>) -> Option<ConnectionSlot> {
            self.share.claim(since, &Waker::from(Arc::clone(&self.wakes)))
        }

        fn wakes(&self) -> u32 {
            self.wakes.0.swap(0, Ordering::Relaxed)
        }
    }

    #[test]
    fn all_pools_of_an_address_share_the_limit() {
        let limits = ConnectionLimits::new(2);
        let (one, other) = (Pool::of(&limits), Pool::of(&limits));
        let slots = [one.share.take().unwrap(), other.share.take().unwrap()];
        assert!(one.share.take().is_none() && other.share.take().is_none());
        assert!(limits.join("b:1").take().is_some(), "another address");
        drop(slots);
        assert!(one.share.take().is_some());
        // The address has no pool any more, and then one with all slots.
        drop((one, other));
        let next = Pool::of(&limits);
        let slots = [next.share.take(), next.share.take(), next.share.take()].map(|slot| slot.is_some());
        assert_eq!(slots, [true, true, false]);
    }

    #[test]
    fn the_oldest_claim_gets_a_free_slot() {
        let limits = ConnectionLimits::new(1);
        let pools = [Pool::of(&limits), Pool::of(&limits), Pool::of(&limits)];
        let now = Instant::now();
        let slot = pools[0].share.take().unwrap();
        assert!(pools[1].claim(Some(now)).is_none());
        assert_eq!((pools[0].wakes(), pools[1].wakes(), pools[2].wakes()), (1, 0, 0), "the holder");
        assert!(pools[2].claim(Some(now - Duration::from_secs(1))).is_none());
        assert_eq!(pools[0].share.claimed_since(), Some(now - Duration::from_secs(1)));
        assert_eq!(pools[2].share.claimed_since(), Some(now));
        drop(slot);
        assert_eq!((pools[1].wakes(), pools[2].wakes()), (0, 1));
        assert!(pools[0].share.take().is_none(), "the slot is granted");
        let slot = pools[2].claim(None).expect("the slot that was granted");
        assert_eq!(pools[0].share.claimed_since(), Some(now));
        // A claim that is withdrawn gets none.
        assert!(pools[1].claim(None).is_none());
        assert_eq!(pools[0].share.claimed_since(), None);
        drop(slot);
        assert_eq!(pools[1].wakes(), 0);
        assert!(pools[1].claim(Some(now)).is_some(), "a free one");
    }

    #[test]
    fn a_dropped_pool_frees_its_slot() {
        let limits = ConnectionLimits::new(1);
        let (one, other, next) = (Pool::of(&limits), Pool::of(&limits), Pool::of(&limits));
        let slot = one.share.take().unwrap();
        assert!(other.claim(Some(Instant::now())).is_none());
        drop(slot);
        assert!(next.claim(Some(Instant::now())).is_none());
        drop(other);
        assert!(next.claim(None).is_some());
        assert!(one.share.take().is_some());
    }
}

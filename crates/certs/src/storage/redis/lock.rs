//! Locks of a server: a key with a random token, which expires unless its holder refreshes it.
//!
//! One thread for each storage refreshes the held locks and releases the dropped ones, while there are any. Dropping a
//! lock therefore never waits for the network.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use redis::{Cmd, Value};

use super::super::{HeldLock, Storage as _};
use super::RedisStorage;
use super::connection_pool::ConnectionPool;
use crate::Error;
use crate::replace::Durability;

/// How long a lock outlives its holder, which has died, is suspended or cannot reach the server.
const EXPIRY: Duration = Duration::from_secs(10);
/// Leaves time for two more attempts until the lock expires.
const REFRESH_INTERVAL: Duration = Duration::from_secs(3);
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Takes a lock that is free. Repeatable: a lock with the same token is taken too, because the response to an earlier
/// attempt may have been lost.
const TAKE: &str = "local held = redis.call('GET', KEYS[1]) \
    if held and held ~= ARGV[1] then return 0 end \
    redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) return 1";
/// Prolongs a lock. One that has expired is not taken again: another process may have held it meanwhile.
const REFRESH: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";
/// Releases a lock, unless another process holds it by now.
const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end return 1";

/// The locks of one storage.
pub(super) struct Locks {
    pool: Arc<ConnectionPool>,
    state: Mutex<LocksState>,
    /// Notified when a lock is to be released.
    released: Condvar,
}

#[derive(Default)]
struct LocksState {
    held: Vec<HeldKey>,
    /// Dropped, and not released yet.
    dropped: Vec<HeldKey>,
    has_thread: bool,
}

#[derive(Clone, PartialEq, Eq)]
struct HeldKey {
    key: String,
    token: String,
}

/// A held lock, and the storage that it protects.
pub(super) struct HeldRedisLock {
    pub(super) storage: RedisStorage,
    pub(super) key: String,
    pub(super) token: String,
}

impl Locks {
    pub(super) fn new(pool: Arc<ConnectionPool>) -> Self {
        Self { pool, state: Mutex::default(), released: Condvar::new() }
    }

    /// Waits until the lock is free and takes it. Returns its token.
    pub(super) fn wait(self: &Arc<Self>, key: &str, location: &str, timeout: Duration) -> Result<String, Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|_| Error::Random)?;
        let token = format!("{:032x}", u128::from_ne_bytes(bytes));
        let begun = Instant::now();
        while !self
            .pool
            .query(&evaluation(TAKE, key, &token))
            .map_err(|error| Error::Write(location.to_owned(), error))?
        {
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::Locked(location.to_owned()));
            }
            thread::sleep(CHECK_INTERVAL.min(left));
        }
        let mut state = self.state();
        state.held.push(HeldKey { key: key.to_owned(), token: token.clone() });
        if !state.has_thread {
            let locks = Arc::clone(self);
            let thread = thread::Builder::new().name("redis-locks".to_owned()).spawn(move || locks.maintain());
            // Without a thread the lock expires early, and the storage then refuses its writes.
            state.has_thread = thread.is_ok();
        }
        Ok(token)
    }

    /// Runs until no lock is held. All locks share one round trip: one for each would take longer than the locks live,
    /// if there are many of them and the server is far away.
    fn maintain(&self) {
        // The beginning of the last refresh.
        let mut refreshed = Instant::now();
        loop {
            let mut state = self.state();
            while state.dropped.is_empty() && refreshed.elapsed() < REFRESH_INTERVAL {
                let left = REFRESH_INTERVAL.saturating_sub(refreshed.elapsed());
                state = self.released.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            let dropped = std::mem::take(&mut state.dropped);
            let held = if refreshed.elapsed() < REFRESH_INTERVAL {
                Vec::new()
            } else {
                refreshed = Instant::now();
                state.held.clone()
            };
            drop(state);
            // If this fails, the next refresh is another attempt, and the dropped locks expire.
            let answers = self.release_and_refresh(&dropped, &held).unwrap_or_default();
            for (lock, answer) in held.iter().zip(answers.into_iter().skip(dropped.len())) {
                if matches!(redis::from_redis_value(answer), Ok(false)) {
                    tracing::warn!("{}: lost this lock: it was not refreshed for {} s", lock.key, EXPIRY.as_secs());
                    self.state().held.retain(|other| other != lock);
                }
            }
            let mut state = self.state();
            if state.held.is_empty() && state.dropped.is_empty() {
                state.has_thread = false;
                return;
            }
        }
    }

    /// Returns the server's answers in this order.
    fn release_and_refresh(&self, dropped: &[HeldKey], held: &[HeldKey]) -> std::io::Result<Vec<Value>> {
        let mut pipeline = redis::pipe();
        for (script, locks) in [(RELEASE, dropped), (REFRESH, held)] {
            for lock in locks {
                pipeline.add_command(evaluation(script, &lock.key, &lock.token));
            }
        }
        self.pool.query_all(&pipeline)
    }

    /// Ignores poisoning: every change is one insertion or removal.
    fn state(&self) -> MutexGuard<'_, LocksState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every script gets the key, the token and the expiry, and returns whether it succeeded.
fn evaluation(script: &str, key: &str, token: &str) -> Cmd {
    let expiry = u64::try_from(EXPIRY.as_millis()).unwrap_or(u64::MAX);
    let mut command = redis::cmd("EVAL");
    command.arg(script).arg(1).arg(key).arg(token).arg(expiry);
    command
}

impl HeldLock for HeldRedisLock {
    fn store(&self, key: &str, value: &[u8], _durability: Durability) -> Result<(), Error> {
        if self.storage.write(key, value, Some((&self.key, &self.token)))? {
            return Ok(());
        }
        let within = self.key.strip_prefix(&*self.storage.shared.prefix).unwrap_or(&self.key);
        Err(Error::LockLost(self.storage.location(within.trim_start_matches('/'))))
    }
}

impl Drop for HeldRedisLock {
    fn drop(&mut self) {
        let locks = &self.storage.shared.locks;
        let mut state = locks.state();
        if let Some(index) = state.held.iter().position(|held| held.token == self.token) {
            let held = state.held.swap_remove(index);
            state.dropped.push(held);
        }
        drop(state);
        locks.released.notify_one();
    }
}

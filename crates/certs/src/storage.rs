//! Keys and values in the layout of Caddy's storage, so that Caddy and Causeway can share it.
//!
//! - `file`: a directory, Caddy's `file_system`; `lock`: mutual exclusion between the processes that use it
//! - `redis`: a Redis or Valkey server, as the Caddy plugin caddy-storage-redis uses it

mod file;
mod lock;
mod redis;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

pub use file::FileStorage;
pub use redis::{Compression, RedisSpec, RedisStorage, RedisTls};

use super::Error;
use super::replace::Durability;

/// How long a lock may be held elsewhere before its holder is assumed to be stuck.
pub(crate) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Storage that the parts of a server share.
pub type SharedStorage = Arc<dyn Storage>;

/// Values under keys such as `pki/authorities/local/root.crt`. Several processes may use one storage, also on several
/// machines. Every function blocks.
pub trait Storage: Send + Sync + fmt::Debug {
    /// A description that differs between any two storages.
    fn identity(&self) -> String;

    /// Where a key's value is, for messages to the operator: a file path, or the address of a server with the key. Does
    /// not need the value to exist.
    fn location(&self, key: &str) -> String;

    /// Reads a value; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Read`] if the storage fails, [`Error::BadValue`] if another program has written a value of another
    /// form.
    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error>;

    /// Returns when a value was written; `None` if there is none.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error>;

    /// Replaces a value atomically: a reader sees the old value or the new one.
    ///
    /// # Errors
    /// [`Error::Write`] if the storage fails. The old value is then unchanged.
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error>;

    /// Removes a value, if there is one.
    ///
    /// # Errors
    /// [`Error::Write`] if the storage fails.
    fn delete(&self, key: &str) -> Result<(), Error>;

    /// Returns all keys that begin with `prefix` and a slash, in any order; with an empty prefix, all keys. Locks are
    /// not among them.
    ///
    /// # Errors
    /// [`Error::Read`] if the storage fails.
    fn list(&self, prefix: &str) -> Result<Vec<String>, Error>;

    /// Waits until no other process or thread holds the lock `name`, and holds it until the result is dropped. The lock
    /// of a process that has died is released.
    ///
    /// # Errors
    /// [`Error::Locked`] if the lock is not free within `timeout`, [`Error::Write`] if the storage fails,
    /// [`Error::Random`] if the system has no random bytes for the lock's token.
    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error>;

    /// As [`lock_within`](Self::lock_within), with a timeout of 30 seconds.
    ///
    /// # Errors
    /// As `lock_within`.
    fn lock(&self, name: &str) -> Result<Lock, Error> {
        self.lock_within(name, LOCK_TIMEOUT)
    }
}

impl PartialEq for dyn Storage {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

/// A held lock. Dropping it releases the lock.
///
/// A lock can end earlier: a server such as Redis cannot see that a holder has died, so its locks expire unless the
/// holder refreshes them, and a holder that was suspended for longer than that has lost its lock without noticing. It
/// must not overwrite a value that the next holder has written. Therefore values that the lock protects are written
/// with [`Lock::store`]: the storage compares the lock's random token and writes the value in one atomic step.
pub struct Lock {
    held: Box<dyn HeldLock>,
}

/// A storage's part of a lock; dropping it releases the lock.
trait HeldLock: Send + Sync {
    /// As [`Storage::store`], if the lock is still held.
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error>;
}

impl Lock {
    fn new(held: impl HeldLock + 'static) -> Self {
        Self { held: Box::new(held) }
    }

    /// Replaces a value of the lock's storage atomically, if the lock is still held. Blocks.
    ///
    /// # Errors
    /// [`Error::LockLost`] if the lock has expired, [`Error::Write`] if the storage fails. The old value is then
    /// unchanged.
    pub fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.held.store(key, value, durability)
    }
}

/// Takes a lock as [`Storage::lock`] does. If the storage cannot be written, returns a lock that protects nothing and
/// with which every write fails: the values in storage can still be used.
///
/// # Errors
/// [`Error::Locked`].
pub(crate) fn lock_if_writable(storage: &dyn Storage, name: &str, timeout: Duration) -> Result<Lock, Error> {
    match storage.lock_within(name, timeout) {
        Err(Error::Write(location, error)) => {
            Ok(Lock::new(NotWritable { location, kind: error.kind(), words: error.to_string() }))
        }
        lock => lock,
    }
}

/// As [`lock_if_writable`], also if the lock is held elsewhere for longer than `left`. The time of the wait is deducted
/// from `left`: the wait for all locks of one load is bounded.
///
/// # Errors
/// [`Error::Random`].
pub(crate) fn lock_if_free(storage: &dyn Storage, name: &str, left: &mut Duration) -> Result<Lock, Error> {
    let begun = Instant::now();
    let lock = lock_if_writable(storage, name, *left);
    *left = left.saturating_sub(begun.elapsed());
    match lock {
        Err(Error::Locked(location)) => Ok(Lock::new(NotFree(location))),
        lock => lock,
    }
}

/// A new certificate is used without being in storage from this time before the end of the older one.
const STORED_BEFORE_END: Duration = Duration::from_secs(5 * 60);

/// Whether a new certificate may be used without being in storage.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StorageRequirement {
    /// It must be in storage: until then an older certificate serves.
    Required,
    /// It need not be; a failure to store it is logged.
    Optional,
}

impl StorageRequirement {
    /// The requirement while a certificate that ends at `not_after` serves.
    pub(crate) fn while_served(not_after: SystemTime, now: SystemTime) -> Self {
        if now + STORED_BEFORE_END < not_after { Self::Required } else { Self::Optional }
    }

    /// Returns a value that was read. If storage is optional, a failure goes to `unread`, and counts as no value.
    pub(crate) fn read<T>(
        self,
        found: Result<Option<T>, Error>,
        unread: &mut Option<Error>,
    ) -> Result<Option<T>, Error> {
        match found {
            Err(error) if self == Self::Optional => {
                *unread = Some(error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Returns the failure to store, unless that is only to be logged.
    pub(crate) fn check(self, subject: &str, stored: Result<(), Error>) -> Result<(), Error> {
        match (self, stored) {
            (Self::Optional, Err(error)) => tracing::error!("{subject}, but only in memory: {error}"),
            (_, Err(error)) => return Err(error),
            (_, Ok(())) => tracing::info!("{subject}"),
        }
        Ok(())
    }
}

/// The lock of a storage that cannot be written, and the failure.
struct NotWritable {
    location: String,
    kind: io::ErrorKind,
    words: String,
}

impl HeldLock for NotWritable {
    fn store(&self, _: &str, _: &[u8], _: Durability) -> Result<(), Error> {
        Err(Error::Write(self.location.clone(), io::Error::new(self.kind, self.words.clone())))
    }
}

/// The lock that is held elsewhere: its location.
struct NotFree(String);

impl HeldLock for NotFree {
    fn store(&self, _: &str, _: &[u8], _: Durability) -> Result<(), Error> {
        Err(Error::Locked(self.0.clone()))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Encodes a name as one part of a key, as Caddy does: `*.a.example` becomes `wildcard_.a.example`.
pub fn safe_key(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let mut name = name.replace(' ', "_").replace('+', "_plus_").replace('*', "wildcard_").replace(':', "-");
    name.retain(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '@' | '.' | '-'));
    // `..` would lead out of the directory. Removed last, because dropping characters above can bring two dots
    // together.
    name.replace("..", "")
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod tests;

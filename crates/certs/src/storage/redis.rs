//! Storage in a Redis or Valkey server, in the layout of the Caddy plugin `caddy-storage-redis`: a Caddy with that
//! plugin and Causeway read the values of each other.
//!
//! ```text
//! PREFIX/KEY          string: a record in JSON with the value (`record`)
//! PREFIX/DIRECTORY    sorted set: the names in that directory, those of directories with a slash at the end
//! PREFIX/locks/NAME   string with an expiry: the random token of the lock's holder (`lock`)
//! ```
//! - `record`: one value with its date, optionally compressed and encrypted
//! - `connection_pool`: the connections; after a failure, calls fail at once for a second
//! - `lock`: locks that expire unless their holder refreshes them

mod connection_pool;
mod lock;
mod record;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use super::{Lock, Storage};
use crate::Error;
use crate::replace::Durability;
use connection_pool::ConnectionPool;
use lock::Locks;
use record::Codec;

pub use record::Compression;

/// The plugin's default of `timeout`.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Deepest nesting of directories that [`Storage::list`] reads.
const DEPTH_MAX: usize = 16;
/// Directories that one round trip lists, at most.
const LISTED_AT_ONCE: usize = 256;

/// Writes a value and enters it into the index: `KEYS` = value, lock, directories from the inside; `ARGV` = record,
/// token, date, names in the directories. An empty token stands for a write without a lock. Returns 0 without a write
/// if the lock has another token.
const STORE: &str = "if ARGV[2] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[2] then return 0 end \
    for i = 3, #KEYS do redis.call('ZADD', KEYS[i], ARGV[3], ARGV[i + 1]) end \
    redis.call('SET', KEYS[1], ARGV[1]) return 1";
/// Removes a value, and the directories that are then empty: `KEYS` = value, directories from the inside; `ARGV` =
/// names in the directories.
const DELETE: &str = "redis.call('DEL', KEYS[1]) \
    for i = 2, #KEYS do \
        redis.call('ZREM', KEYS[i], ARGV[i - 1]) \
        if redis.call('EXISTS', KEYS[i]) == 1 then break end \
    end return 1";

/// The settings of a [`RedisStorage`].
#[derive(Clone)]
pub struct RedisSpec {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The name of an ACL user; empty: the default user.
    pub username: String,
    /// The password; empty: none is sent.
    pub password: String,
    /// The number of the database.
    pub db: u32,
    /// Limit for a connection's start, and for each wait for a response; `None`: 5 s.
    pub timeout: Option<Duration>,
    /// The beginning of each key, without a slash at its ends.
    pub key_prefix: String,
    /// The key with which values are encrypted by AES-256-GCM.
    pub encryption_key: Option<[u8; 32]>,
    /// How values are compressed.
    pub compression: Compression,
    /// `None`: without TLS.
    pub tls: Option<RedisTls>,
}

/// TLS settings of a [`RedisSpec`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisTls {
    /// Whether any certificate of the server is accepted.
    pub insecure: bool,
    /// The roots to trust, as PEM; `None`: the system's.
    pub roots: Option<Vec<u8>>,
}

impl RedisSpec {
    /// A server at this address, with the plugin's defaults: the database 0, the prefix `caddy`, no TLS.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            username: String::new(),
            password: String::new(),
            db: 0,
            timeout: None,
            key_prefix: "caddy".to_owned(),
            encryption_key: None,
            compression: Compression::None,
            tls: None,
        }
    }

    /// The address as a URL, without the password.
    fn location(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let Self { host, port, db, .. } = self;
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}/{db}")
        } else {
            format!("{scheme}://{host}:{port}/{db}")
        }
    }
}

impl fmt::Debug for RedisSpec {
    /// Without the secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisSpec").field(&self.location()).field(&self.key_prefix).finish()
    }
}

/// A server that several machines share. Clones share their connections. Opening makes no connection: each call makes
/// one if there is none.
#[derive(Clone)]
pub struct RedisStorage {
    shared: Arc<Shared>,
}

struct Shared {
    location: String,
    user: String,
    prefix: String,
    codec: Codec,
    pool: Arc<ConnectionPool>,
    locks: Arc<Locks>,
}

impl RedisStorage {
    /// Storage in this server.
    ///
    /// # Errors
    /// [`Error::StorageSetting`] if a setting cannot be used, such as a root that is not PEM.
    pub fn new(spec: &RedisSpec) -> Result<Self, Error> {
        let pool = Arc::new(ConnectionPool::new(spec)?);
        let shared = Shared {
            location: spec.location(),
            user: spec.username.clone(),
            prefix: spec.key_prefix.clone(),
            codec: Codec::new(spec.encryption_key.as_ref(), spec.compression)?,
            locks: Arc::new(Locks::new(Arc::clone(&pool))),
            pool,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    fn key(&self, key: &str) -> String {
        if key.is_empty() { self.shared.prefix.clone() } else { format!("{}/{key}", self.shared.prefix) }
    }

    /// Writes a value, under a lock if there is one. Returns whether the lock, if any, was still held.
    fn write(&self, key: &str, value: &[u8], lock: Option<(&str, &str)>) -> Result<bool, Error> {
        let now = SystemTime::now();
        let record = self.shared.codec.encode(value, now)?;
        let at = self.key(key);
        let directories = directories(&at);
        let (lock_key, token) = lock.unwrap_or((&at, ""));
        let mut store = redis::cmd("EVAL");
        store.arg(STORE).arg(directories.len() + 2).arg(&at).arg(lock_key);
        for (directory, _) in &directories {
            store.arg(directory);
        }
        let date = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        store.arg(record).arg(token).arg(date);
        for (_, name) in &directories {
            store.arg(name);
        }
        self.shared.pool.query(&store).map_err(|error| Error::Write(self.location(key), error))
    }

    /// Reads a value's record.
    fn record(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let value = self.shared.pool.query(redis::cmd("GET").arg(self.key(key)));
        value.map_err(|error| Error::Read(self.location(key), error))
    }
}

impl fmt::Debug for RedisStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedisStorage").field(&self.shared.location).field(&self.shared.prefix).finish()
    }
}

impl Storage for RedisStorage {
    fn identity(&self) -> String {
        format!("redis {} {} {}", self.shared.location, self.shared.user, self.shared.prefix)
    }

    fn location(&self, key: &str) -> String {
        format!("{} key {}", self.shared.location, self.key(key))
    }

    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let record = self.record(key)?;
        let decode = |record: Vec<u8>| self.shared.codec.decode(&record);
        record.map(decode).transpose().map_err(|why| Error::BadValue(self.location(key), why))
    }

    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error> {
        let modified = self.record(key)?.map(|record| record::modified(&record));
        modified.transpose().map_err(|why| Error::BadValue(self.location(key), why))
    }

    /// Redis's own settings say whether a value survives a power failure.
    fn store(&self, key: &str, value: &[u8], _durability: Durability) -> Result<(), Error> {
        self.write(key, value, None).map(drop)
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        let at = self.key(key);
        let directories = directories(&at);
        let mut delete = redis::cmd("EVAL");
        delete.arg(DELETE).arg(directories.len() + 1).arg(&at);
        for (directory, _) in &directories {
            delete.arg(directory);
        }
        for (_, name) in &directories {
            delete.arg(name);
        }
        let done: Result<Value, _> = self.shared.pool.query(&delete);
        done.map(drop).map_err(|error| Error::Write(self.location(key), error))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        let mut level = vec![prefix.to_owned()];
        for _ in 0..DEPTH_MAX {
            let mut next = Vec::new();
            for part in level.chunks(LISTED_AT_ONCE) {
                let mut pipeline = redis::pipe();
                for directory in part {
                    pipeline.cmd("ZRANGE").arg(self.key(directory)).arg(0).arg(-1);
                }
                let names: Vec<Value> =
                    self.shared.pool.query_all(&pipeline).map_err(|error| Error::Read(self.location(prefix), error))?;
                for (directory, names) in part.iter().zip(names) {
                    // A value in the place of a directory: it has no keys below it.
                    let Ok(names) = redis::from_redis_value::<Vec<String>>(names) else { continue };
                    let within =
                        |name: &str| if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") };
                    for name in names {
                        match name.strip_suffix('/') {
                            Some(name) => next.push(within(name)),
                            None => keys.push(within(&name)),
                        }
                    }
                }
            }
            level = next;
        }
        Ok(keys)
    }

    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        let key = format!("locks/{name}");
        let token = self.shared.locks.wait(&self.key(&key), &self.location(&key), timeout)?;
        Ok(Lock::new(lock::HeldRedisLock { storage: self.clone(), key: self.key(&key), token }))
    }
}

/// The directories of a key from the inside, each with the name that its index has for the next inner one.
fn directories(key: &str) -> Vec<(&str, String)> {
    let mut directories = Vec::new();
    let (mut rest, mut end) = (key, "");
    while let Some((directory, name)) = rest.rsplit_once('/') {
        directories.push((directory, format!("{name}{end}")));
        (rest, end) = (directory, "/");
    }
    directories
}

#[cfg(test)]
mod tests;

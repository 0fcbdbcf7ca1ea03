//! An open exchange with a server, and the table of all exchanges of the process.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

use crate::RedisServer;
use crate::connection::RedisConnection;
use crate::rounds;

/// Rounds begin at least this far apart.
pub const ROUND_INTERVAL: Duration = Duration::from_millis(100);
/// Keys in one round; further ones wait for the next. A round of this size takes Redis some 20 ms.
pub const KEYS_PER_ROUND: usize = 4096;

/// The open exchanges by their server.
static EXCHANGES: LazyLock<Mutex<HashMap<RedisServer, Weak<CountExchange>>>> = LazyLock::new(Mutex::default);

/// A counter of events by key. The thread of an exchange calls these methods. Workers use the same counter, so a method
/// must not hold a lock for long.
pub trait CountedKeys: Send + Sync {
    /// Appends the deltas of keys with new events, at most `max`, and takes their new events: either [`Self::update`]
    /// or [`Self::restore`] follows for each. Returns whether keys are left for the next round.
    fn collect(&self, now: Instant, max: usize, deltas: &mut Vec<KeyDelta>) -> bool;
    /// Sets the counts of all servers for the key; its events are now included.
    fn update(&self, delta: &KeyDelta, all: WindowCounts);
    /// The events could not be sent: they are new again.
    fn restore(&self, delta: &KeyDelta);
    /// The beginning of the names in Redis, such as `causeway/rate_limit/ZONE`.
    fn prefix(&self) -> &str;
}

/// The new events of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyDelta {
    /// The number by which the counter finds the key.
    pub local: u64,
    /// The key in Redis, the same on all servers.
    pub id: [u8; 16],
    /// The window that is counted, at least 1 ms.
    pub window: Duration,
    /// Events since the last delta; with 0, the counts of all servers are read without a change.
    pub events: u32,
}

/// The events of all servers. Time is cut into periods as long as the window, by the clock of the Redis server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowCounts {
    /// The number of the present period.
    pub period: u64,
    /// When it began, by the clock of this process.
    pub began: Instant,
    /// Events in the present period.
    pub current: u32,
    /// Events in the period before.
    pub previous: u32,
}

/// An exchange of counts. Dropping the last reference ends its thread.
pub struct CountExchange {
    shared: Arc<ExchangeState>,
}

/// The state that the thread of an exchange and its users share.
#[derive(Default)]
pub(crate) struct ExchangeState {
    members: Mutex<Vec<Weak<dyn CountedKeys>>>,
    /// Whether a key has new events since the last round began.
    is_pending: AtomicBool,
    closed: AtomicBool,
    /// Whether the last round has failed.
    down: AtomicBool,
    thread: OnceLock<Thread>,
}

/// The state of an open exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeStatus {
    /// The server, without its login.
    pub server: String,
    /// Whether the last round has succeeded; true before the first one.
    pub is_up: bool,
}

/// Returns the states of all open exchanges, in the order of their servers.
pub fn statuses() -> Vec<ExchangeStatus> {
    let exchanges = lock(&EXCHANGES);
    let open = exchanges.iter().filter_map(|(server, exchange)| Some((server, exchange.upgrade()?)));
    let status = |(server, exchange): (&RedisServer, Arc<CountExchange>)| {
        let is_up = !exchange.shared.down.load(Ordering::Relaxed);
        ExchangeStatus { server: server.to_string(), is_up }
    };
    let mut statuses: Vec<_> = open.map(status).collect();
    drop(exchanges);
    statuses.sort_by(|one, two| (&one.server, one.is_up).cmp(&(&two.server, two.is_up)));
    // Logins of one server are not distinguished: it is down if any of them fails.
    statuses.dedup_by(|two, one| one.server == two.server);
    statuses
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CountExchange {
    /// Returns the exchange with this server: the open one, or one that is opened now. It connects when a key has new
    /// events.
    ///
    /// # Errors
    /// The system refuses a thread, or the settings of TLS cannot be used.
    pub fn open(server: &RedisServer) -> io::Result<Arc<Self>> {
        // The lock is held while the exchange is opened, so that two threads cannot open it twice.
        let mut exchanges = lock(&EXCHANGES);
        if let Some(open) = exchanges.get(server).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let exchange = Arc::new(Self::start(server)?);
        exchanges.retain(|_, exchange| exchange.strong_count() > 0);
        exchanges.insert(server.clone(), Arc::downgrade(&exchange));
        Ok(exchange)
    }

    /// Opens an exchange that is not in the table.
    pub(crate) fn start(server: &RedisServer) -> io::Result<Self> {
        let connection = RedisConnection::new(server)?;
        let shared = Arc::new(ExchangeState::default());
        let of_thread = Arc::clone(&shared);
        let run = move || rounds::run(&of_thread, connection);
        let thread = std::thread::Builder::new().name("shared counts".into()).spawn(run)?;
        let _ = shared.thread.set(thread.thread().clone());
        Ok(Self { shared })
    }

    /// Adds a counter, until it is dropped.
    pub fn join(&self, member: Weak<dyn CountedKeys>) {
        let mut members = lock(&self.shared.members);
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    /// Marks the exchange as having new events to send. Wakes the thread if it sleeps; otherwise the cost is a read of
    /// an atomic.
    pub fn mark_pending(&self) {
        self.shared.mark_pending();
    }
}

impl ExchangeState {
    fn mark_pending(&self) {
        if !self.is_pending.load(Ordering::Relaxed) && !self.is_pending.swap(true, Ordering::Release) {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// Takes the mark of new events; the next one wakes the thread again.
    pub(crate) fn take_pending(&self) -> bool {
        self.is_pending.swap(false, Ordering::Acquire)
    }

    /// Makes the next round begin without new events.
    pub(crate) fn set_pending(&self) {
        self.is_pending.store(true, Ordering::Release);
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.down.store(is_down, Ordering::Relaxed);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns the members that exist.
    pub(crate) fn members(&self) -> Vec<Arc<dyn CountedKeys>> {
        lock(&self.members).iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for CountExchange {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.wake();
    }
}

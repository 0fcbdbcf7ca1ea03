//! An open output: the queue of its thread, and the table of all outputs of the process.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::client::CollectorClient;
use crate::delivery::Counts;
use crate::exporter;
use crate::queue::SpanQueue;
use crate::settings::{ExportSettings, SettingError};

/// The open outputs by their settings.
static OUTPUTS: LazyLock<Mutex<HashMap<ExportSettings, Weak<TraceOutput>>>> = LazyLock::new(Mutex::default);

/// The states of the threads that run, those of dropped outputs too, which still send queued spans.
static THREADS: Mutex<Vec<Weak<dyn Flush>>> = Mutex::new(Vec::new());

/// The state that the thread of an output and its users share.
pub(crate) trait Flush: Send + Sync {
    /// Lets the thread send everything now. The receiver gets a value, or an error, when it is sent or lost.
    fn flush(&self) -> Receiver<()>;
}

pub(crate) static SPANS: Counts = Counts::new();
static DROPPED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spans since the process started, by outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanCounts {
    /// Accepted by the collector.
    pub sent: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Not sent: the collector was absent for too long, or refused the request.
    pub failed: u64,
    /// Rejected by the collector, which accepted the rest of the request.
    pub rejected: u64,
}

/// Returns the counts of all outputs.
pub fn span_counts() -> SpanCounts {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let Counts { sent, failed, rejected } = &SPANS;
    SpanCounts { sent: read(sent), dropped: read(&DROPPED), failed: read(failed), rejected: read(rejected) }
}

/// Waits until every span that is queued in this process, and the current metrics, are sent or lost, at most for
/// `limit`. To be called before the process ends.
pub fn flush_all(limit: Duration) {
    let end = Instant::now() + limit;
    // Holds no sender itself: when a thread ends, its last sender is dropped and the wait for it ends.
    let flushes: Vec<_> = lock(&THREADS).iter().filter_map(|shared| Some(shared.upgrade()?.flush())).collect();
    for flushed in flushes {
        // The other error means that the thread has ended.
        if let Err(RecvTimeoutError::Timeout) = flushed.recv_timeout(end.saturating_duration_since(Instant::now())) {
            tracing::warn!("a collector did not accept the last spans or metrics within {limit:?}");
        }
    }
}

/// Why an output cannot be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// A setting cannot be used.
    Setting(SettingError),
    /// The system refuses a thread.
    Thread(io::Error),
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setting(error) => error.fmt(f),
            Self::Thread(error) => write!(f, "cannot start the thread that sends spans: {error}"),
        }
    }
}

impl std::error::Error for OpenError {}

/// An output. Dropping the last reference ends its thread after the queued spans are sent.
pub struct TraceOutput {
    shared: Arc<OutputState>,
}

/// The state that the thread of an output and its users share.
pub(crate) struct OutputState {
    pub(crate) queue: SpanQueue,
    pub(crate) flushes: Mutex<Vec<SyncSender<()>>>,
}

impl TraceOutput {
    /// Returns the output of these settings: the open one, or one that is opened now. It connects when it has spans.
    ///
    /// # Errors
    /// A file of certificates cannot be used, or the system refuses a thread.
    pub fn open(settings: &ExportSettings) -> Result<Arc<Self>, OpenError> {
        // The lock is held while the output is opened, so that two threads cannot open it twice.
        let mut outputs = lock(&OUTPUTS);
        if let Some(open) = outputs.get(settings).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let client = CollectorClient::new(&settings.collector).map_err(OpenError::Setting)?;
        let shared = Arc::new(OutputState {
            queue: SpanQueue::new(settings.queue_max, settings.batch_max),
            flushes: Mutex::default(),
        });
        let (state, owned) = (Arc::clone(&shared), settings.clone());
        let run = move |runtime: Runtime| runtime.block_on(exporter::run(&state, &client, &owned));
        let state: Arc<dyn Flush> = Arc::clone(&shared) as _;
        start("traces", &state, run).map_err(OpenError::Thread)?;
        let output = Arc::new(Self { shared });
        outputs.retain(|_, output| output.strong_count() > 0);
        outputs.insert(settings.clone(), Arc::downgrade(&output));
        Ok(output)
    }

    /// Queues a span, which `write` appends to the buffer given ([`crate::span`]). In steady state it allocates nothing
    /// and locks nothing. A span for which the queue has no room is dropped and counted.
    pub fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut span = self.shared.queue.storage();
        write(&mut span);
        if !self.shared.queue.push(span) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Flush for OutputState {
    fn flush(&self) -> Receiver<()> {
        let (done, flushed) = sync_channel(1);
        lock(&self.flushes).push(done);
        self.queue.wake();
        flushed
    }
}

impl Drop for TraceOutput {
    fn drop(&mut self) {
        self.shared.queue.close();
    }
}

/// Starts the thread of an output.
pub(crate) fn start(name: &str, state: &Arc<dyn Flush>, run: impl FnOnce(Runtime) + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut threads = lock(&THREADS);
    threads.retain(|thread| thread.strong_count() > 0);
    threads.push(Arc::downgrade(state));
    std::thread::Builder::new().name(name.into()).spawn(move || run(runtime))?;
    Ok(())
}

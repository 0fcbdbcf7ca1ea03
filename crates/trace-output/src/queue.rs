//! Spans that wait for the thread of an output. Neither side locks: a worker's request must not wait for the thread.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

use crossbeam_queue::ArrayQueue;
use tokio::sync::Notify;

/// Bytes of spans that may wait, beside the bound of their number.
const BYTES_MAX: usize = 16 * 1024 * 1024;
/// Bytes of spans in a request, beside the bound of their number. A collector that refuses a longer message (4 MiB by
/// default over gRPC) drops all of its spans, also those of other clients.
const BATCH_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Bytes that the storage of a span keeps for the next one.
const SPAN_BYTES_KEPT: usize = 4 * 1024;

pub(crate) struct SpanQueue {
    spans: ArrayQueue<Vec<u8>>,
    /// Storage of spans that were sent.
    spare: ArrayQueue<Vec<u8>>,
    bytes: AtomicUsize,
    /// Spans dropped since the last report.
    dropped: AtomicU64,
    /// The number of spans at which the thread is woken.
    batch_max: usize,
    /// Whether the thread sleeps and was not woken yet.
    is_idle: AtomicBool,
    is_closed: AtomicBool,
    wake: Notify,
}

impl SpanQueue {
    pub(crate) fn new(spans_max: usize, batch_max: usize) -> Self {
        Self {
            spans: ArrayQueue::new(spans_max),
            spare: ArrayQueue::new(spans_max),
            bytes: AtomicUsize::new(0),
            dropped: AtomicU64::new(0),
            batch_max,
            is_idle: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            wake: Notify::new(),
        }
    }

    /// Returns empty storage for a span.
    pub(crate) fn storage(&self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Appends a span. Returns false if the queue is full: the span is dropped and counted.
    pub(crate) fn push(&self, span: Vec<u8>) -> bool {
        let len = span.len();
        let refused = if self.bytes.fetch_add(len, Ordering::Relaxed) + len > BYTES_MAX {
            Some(span)
        } else {
            self.spans.push(span).err()
        };
        if let Some(span) = refused {
            self.bytes.fetch_sub(len, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.recycle(span);
            return false;
        }
        if self.has_batch() {
            // Pairs with the fence in `wait`: either this thread sees the idle one, or that one sees the span.
            fence(Ordering::SeqCst);
            if self.is_idle.swap(false, Ordering::AcqRel) {
                self.wake.notify_one();
            }
        }
        true
    }

    fn recycle(&self, mut span: Vec<u8>) {
        span.clear();
        span.shrink_to(SPAN_BYTES_KEPT);
        // Beyond the capacity it is freed.
        let _ = self.spare.push(span);
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Lets the thread end after everything that is queued.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.wake();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// For the output's thread.
impl SpanQueue {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Returns whether the spans fill a batch.
    pub(crate) fn has_batch(&self) -> bool {
        self.spans.len() >= self.batch_max || self.bytes.load(Ordering::Relaxed) >= BATCH_BYTES_MAX
    }

    /// Calls `each` with at most `max` spans, and with none after [`BATCH_BYTES_MAX`] bytes. Returns their number.
    pub(crate) fn take(&self, max: usize, mut each: impl FnMut(&[u8])) -> usize {
        let (mut count, mut bytes) = (0, 0);
        while count < max && bytes < BATCH_BYTES_MAX {
            let Some(span) = self.spans.pop() else { break };
            bytes += span.len();
            self.bytes.fetch_sub(span.len(), Ordering::Relaxed);
            each(&span);
            self.recycle(span);
            count += 1;
        }
        count
    }

    pub(crate) fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }

    /// Sleeps until a batch is full or [`wake`](Self::wake) is called.
    pub(crate) async fn wait(&self) {
        self.is_idle.store(true, Ordering::Release);
        // A push before the store has not woken the thread. Without the fence, the length could be read before the
        // store is visible to a push, and neither side would see the other.
        fence(Ordering::SeqCst);
        if !self.has_batch() && !self.is_closed() {
            self.wake.notified().await;
        }
        self.is_idle.store(false, Ordering::Relaxed);
    }
}

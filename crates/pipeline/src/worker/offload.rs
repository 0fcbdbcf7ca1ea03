//! Offloads work to other threads, because it blocks, or computes for more than about 100 µs.

use std::future::Future;
use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::pin::Pin;
use std::task::{Context as PollContext, Poll};
use std::time::Duration;

use futures_channel::oneshot;
use progress::Stamp;

use super::{Busy, Worker};

/// The kind of a job. Each kind has its own threads and queue, so no kind can delay or reject another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkKind {
    /// Reads files, or queries the file system.
    File,
    /// Resolves a name. A resolver may hang for many seconds.
    Resolve,
    /// Compares a password with a deliberately slow hash.
    Password,
    /// Signs a TLS handshake with a key whose signatures are slow.
    Signature,
    /// Compresses content that a client waits for.
    Compress,
    /// Compresses content that is cached for later requests; no client waits for it.
    Precompress,
    /// Other blocking work: for modules of programs that embed the server.
    Blocking,
    /// Other computation: for modules of programs that embed the server.
    Computing,
}

impl WorkKind {
    /// All kinds, in the order of their discriminants.
    pub const ALL: [Self; 8] = [
        Self::File,
        Self::Resolve,
        Self::Password,
        Self::Signature,
        Self::Compress,
        Self::Precompress,
        Self::Blocking,
        Self::Computing,
    ];
}

/// A job's kind, and the parties that it counts against. Each party may hold only a share of the kind's queue and
/// threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    kind: WorkKind,
    /// Hashes of the parties; 0 for an unused entry.
    parties: [u64; Self::PARTIES_MAX],
}

impl Work {
    /// The most parties of one job.
    pub const PARTIES_MAX: usize = 2;

    /// Creates work that counts against no party.
    pub fn of(kind: WorkKind) -> Self {
        Self { kind, parties: [0; Self::PARTIES_MAX] }
    }

    /// Counts the work against one more party, such as an account, a client's address, or a name to resolve. `domain`
    /// separates parties of different kinds.
    ///
    /// # Panics
    /// If the work has [`PARTIES_MAX`](Self::PARTIES_MAX) parties already.
    #[must_use]
    pub fn for_party(mut self, domain: &str, party: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        (domain, party).hash(&mut hasher);
        let free = self.parties.iter_mut().find(|party| **party == 0).expect("no more parties than there is room for");
        // 0 marks an unused entry.
        *free = hasher.finish().max(1);
        self
    }

    /// Returns the kind, which selects the queue.
    pub fn kind(self) -> WorkKind {
        self.kind
    }

    /// Returns the hashes of the parties.
    pub fn parties(self) -> impl Iterator<Item = u64> {
        self.parties.into_iter().filter(|party| *party != 0)
    }
}

/// A queued job.
pub trait Job: Send {
    /// Does the work, unless the job is abandoned.
    fn run(self: Box<Self>);

    /// Returns whether the result is no longer awaited. The queue drops such a job and reuses its slot.
    fn is_abandoned(&self) -> bool;
}

struct OffloadJob<T, F> {
    work: F,
    done: oneshot::Sender<(T, Stamp)>,
}

impl<T: Send, F: FnOnce() -> T + Send> Job for OffloadJob<T, F> {
    fn run(self: Box<Self>) {
        let Self { work, done } = *self;
        // The job may have been abandoned while it was queued.
        if !done.is_canceled() {
            let result = work();
            let mut stamp = Stamp::default();
            progress::before_send(&mut stamp);
            let _ = done.send((result, stamp));
        }
    }

    fn is_abandoned(&self) -> bool {
        self.done.is_canceled()
    }
}

/// The pending result of offloaded work. Dropping it abandons the job, unless a thread has started it.
pub struct Offloaded<T>(oneshot::Receiver<(T, Stamp)>);

impl<T> Future for Offloaded<T> {
    /// `None` if the job panicked.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, poll_cx: &mut PollContext<'_>) -> Poll<Option<T>> {
        let received = std::task::ready!(Pin::new(&mut self.0).poll(poll_cx));
        Poll::Ready(received.ok().map(|(result, stamp)| {
            progress::after_receive(stamp, Duration::ZERO);
            result
        }))
    }
}

/// Runs `job` on another thread. Allocates the job and its result channel.
///
/// # Errors
/// [`Busy`] if the kind's queue is full, or the share of it that one of the work's parties may hold; the job is
/// dropped.
pub fn offload<T: Send + 'static>(
    worker: &dyn Worker,
    work: Work,
    job: impl FnOnce() -> T + Send + 'static,
) -> Result<Offloaded<T>, Busy> {
    let (done, result) = oneshot::channel();
    worker.offload(work, Box::new(OffloadJob { work: job, done }))?;
    Ok(Offloaded(result))
}

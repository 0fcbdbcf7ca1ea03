//! The profiler's state for each thread: a cell that the thread writes, that its signal handler reads, and that the
//! profiler's thread reads concurrently.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::hooks;
use crate::log::Log;
use crate::span_stack::{self, SpanStack};

/// A thread's account. Never freed: the registry reuses it for a later thread.
///
/// Fields marked "Policy" are reserved for the profiler; only the owning thread writes them.
#[derive(Debug, Default)]
pub struct Account {
    number: u32,
    name: Mutex<String>,
    /// The kernel's thread id; 0 while no thread owns the account.
    tid: AtomicI32,
    /// Lowest address of the thread's stack.
    stack_low: AtomicUsize,
    /// One past its highest address.
    stack_end: AtomicUsize,
    is_worker: AtomicBool,
    log: OnceLock<Log>,
    /// Whether the thread is blocked in a primitive of this crate.
    pub(crate) is_blocked: AtomicBool,
    /// Units of progress counted while a profile ran; only the owning thread writes it.
    hits: AtomicU64,
    /// Policy: the thread's current kind of work; 0 if unknown.
    pub kind: AtomicU32,
    /// Policy: the window to which the other cells belong.
    pub window: AtomicU32,
    /// Policy: when the thread's time was last credited.
    pub credited_until_ns: AtomicU64,
    /// Policy: the delay that the thread has slept or was credited with.
    pub delay_ns: AtomicU64,
    /// Policy: how far sleeps overshot the requested delay.
    pub excess_ns: AtomicU64,
    /// Policy: when the thread blocked; 0 while it runs.
    pub blocked_since_ns: AtomicU64,
    /// Policy: virtual time of the message that the thread processes.
    pub cause_time: AtomicU64,
    /// Policy: number of messages numbered in recorded windows, over all threads that had the account.
    pub message_count: AtomicU64,
    /// Policy: in a window with pauses, whether the thread works, or since when it waited.
    pub activity: AtomicU64,
}

impl Account {
    /// An account without a thread, for a simulation.
    #[must_use]
    pub fn new(number: u32, name: &str) -> Self {
        Self { number, name: Mutex::new(name.into()), ..Self::default() }
    }

    /// Index among all accounts, from 0, without gaps.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The thread's name at registration; `main` for the main thread, empty for an unnamed one.
    pub fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernel's thread id; `None` after the thread ended.
    pub fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Relaxed)).filter(|&tid| tid != 0)
    }

    /// The address range of the thread's stack; empty if unknown.
    pub fn stack(&self) -> std::ops::Range<usize> {
        self.stack_low.load(Relaxed)..self.stack_end.load(Relaxed)
    }

    /// Whether the thread runs an event loop: it processes events in order of arrival, not in program order.
    pub fn is_worker(&self) -> bool {
        self.is_worker.load(Relaxed)
    }

    /// Marks the thread as one that runs an event loop, or not.
    pub fn set_worker(&self, is_worker: bool) {
        self.is_worker.store(is_worker, Relaxed);
    }

    /// Whether the thread is blocked in [`crate::sync`] or [`crate::thread`]: it then does no kind of work.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.is_blocked.load(Relaxed)
    }

    /// Units of progress that the account's threads completed while a profile ran, at any
    /// [`Attention`](crate::Attention).
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    #[inline]
    pub(crate) fn count_hit(&self) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
    }

    /// The thread's log. The first call creates it; its memory is allocated by the first entry.
    pub fn log(&self) -> &Log {
        self.log.get_or_init(Log::new)
    }
}

/// All accounts, and those that no thread owns.
#[derive(Default)]
struct Registry {
    all: Vec<&'static Account>,
    free: Vec<&'static Account>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { all: Vec::new(), free: Vec::new() });

thread_local! {
    /// `const` and without a destructor, so that a signal handler may read it.
    static CURRENT: Cell<Option<&'static Account>> = const { Cell::new(None) };
    static RELEASE: AccountRelease = const { AccountRelease };
}

/// Returns the account to the registry when its thread ends.
struct AccountRelease;

impl Drop for AccountRelease {
    fn drop(&mut self) {
        if let Some(account) = CURRENT.take() {
            hooks::thread_ended(account);
            // Reset, so that samplers skip the account until another thread owns it.
            account.tid.store(0, Relaxed);
            account.kind.store(0, Relaxed);
            account.set_worker(false);
            account.is_blocked.store(false, Relaxed);
            span_stack::here(SpanStack::clear);
            registry(|registry| registry.free.push(account));
        }
    }
}

fn registry<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// This thread's account, if it is registered. Safe to call in a signal handler.
#[inline]
pub fn current() -> Option<&'static Account> {
    CURRENT.try_with(Cell::get).ok().flatten()
}

/// This thread's account; registers the thread first if needed. `None` during the thread's exit.
pub(crate) fn register() -> Option<&'static Account> {
    current().or_else(first)
}

#[cold]
fn first() -> Option<&'static Account> {
    // Fails once thread-locals are being destroyed: an account taken now would never be returned.
    RELEASE.try_with(|_| ()).ok()?;
    let account = registry(|registry| {
        registry.free.pop().unwrap_or_else(|| {
            let account: &'static Account = Box::leak(Box::new(Account {
                number: u32::try_from(registry.all.len()).unwrap_or(u32::MAX),
                ..Account::default()
            }));
            registry.all.push(account);
            account
        })
    });
    let thread = std::thread::current();
    *account.name.lock().unwrap_or_else(PoisonError::into_inner) = thread.name().unwrap_or_default().to_owned();
    let (low, high) = stack();
    account.stack_low.store(low, Relaxed);
    account.stack_end.store(high, Relaxed);
    account.window.store(0, Relaxed);
    // The name and the stack's bounds are set before the id, by which a sampler recognises a live account.
    account.tid.store(thread_id(), Relaxed);
    CURRENT.set(Some(account));
    hooks::thread_began(account);
    Some(account)
}

#[expect(unsafe_code, reason = "the kernel's number of a thread, which only the C library gives")]
fn thread_id() -> i32 {
    // SAFETY: takes no arguments and cannot fail.
    unsafe { libc::gettid() }
}

#[expect(unsafe_code, reason = "where a thread's stack lies is known to the C library only")]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one question in the form of four calls")]
fn stack() -> (usize, usize) {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, read only if it succeeded, and destroyed once; the
    // pointers are to locals of the types that the calls write.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    (low as usize, low as usize + size)
}

/// All accounts, including those of threads that ended.
#[must_use]
pub fn accounts() -> Vec<&'static Account> {
    registry(|registry| registry.all.clone())
}

/// Registers this thread, so that the profiler samples it from the start. Threads from [`crate::thread`] register
/// themselves, and any other thread registers at its first hook while a profile runs. Meant for a runtime's "on thread
/// start" callback.
pub fn register_thread() {
    register();
}

//! What the profiler keeps for each thread: a cell that the thread writes, its signal handler reads, and the profiler's own
//! thread looks at from afar.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::hooks;
use crate::log::Log;
use crate::open::{self, Open};

/// A thread's account. Never freed: a thread that ends leaves it to a later one.
///
/// The fields that say `policy` are the profiler's to use as it likes; only the thread itself writes them.
#[derive(Debug, Default)]
pub struct Account {
    number: u32,
    name: Mutex<String>,
    /// The kernel's number of the thread; 0 when no thread has the account.
    tid: AtomicI32,
    /// Lowest address of the thread's stack, and the one behind its highest.
    stack: (AtomicUsize, AtomicUsize),
    is_worker: AtomicBool,
    log: OnceLock<Log>,
    /// Whether the thread waits in one of our primitives.
    pub(crate) stands: AtomicBool,
    /// Units of progress while a profile ran; only the thread itself writes it.
    hits: AtomicU64,
    /// Policy: what kind of work the thread does now; 0 when nothing is known.
    pub kind: AtomicU32,
    /// Policy: the window that the other cells belong to.
    pub window: AtomicU32,
    /// Policy: when the thread's time was last credited.
    pub mark: AtomicU64,
    /// Policy: the delay that the thread has been through or was credited with, nanoseconds.
    pub delay: AtomicU64,
    /// Policy: what was slept beyond what was owed, nanoseconds.
    pub excess: AtomicI64,
    /// Policy: since when the thread is blocked; 0 when it is not.
    pub blocked_since: AtomicU64,
    /// Policy: virtual time of the message that the thread works on.
    pub cause: AtomicU64,
    /// Policy: how many stamps were given out, whoever had the account; where windows pause, what the thread is at in this one.
    pub stamps: AtomicU64,
}

impl Account {
    /// An account that belongs to no thread, for a simulation.
    #[must_use]
    pub fn new(number: u32, name: &str) -> Self {
        Self { number, name: Mutex::new(name.into()), ..Self::default() }
    }

    /// Its place among all accounts, from 0, without gaps.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The thread's name when it was registered; `main` or empty when it has none.
    pub fn name(&self) -> String {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The kernel's number of the thread; `None` when it has ended.
    pub fn tid(&self) -> Option<i32> {
        Some(self.tid.load(Relaxed)).filter(|&tid| tid != 0)
    }

    /// The addresses that the thread's stack may have; empty when they are not known.
    pub fn stack(&self) -> std::ops::Range<usize> {
        self.stack.0.load(Relaxed)..self.stack.1.load(Relaxed)
    }

    /// Whether the thread runs an event loop: what it works on next is what arrived first, not what its program says next.
    pub fn is_worker(&self) -> bool {
        self.is_worker.load(Relaxed)
    }

    /// Says that the thread runs an event loop, or that it does not.
    pub fn set_worker(&self, is_worker: bool) {
        self.is_worker.store(is_worker, Relaxed);
    }

    /// Whether the thread waits in one of [`crate::sync`]'s or [`crate::thread`]'s: it is at nothing meanwhile.
    #[inline]
    pub fn stands_still(&self) -> bool {
        self.stands.load(Relaxed)
    }

    /// How many units of progress its threads did so far while a profile ran, whether the policy was told of each or not.
    pub fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    #[inline]
    pub(crate) fn count_hit(&self) {
        self.hits.store(self.hits.load(Relaxed) + 1, Relaxed);
    }

    /// What the thread writes down; its memory is taken when this is first asked for.
    pub fn log(&self) -> &Log {
        self.log.get_or_init(Log::new)
    }
}

/// All accounts there are, and those that no thread has.
#[derive(Default)]
struct Registry {
    all: Vec<&'static Account>,
    free: Vec<&'static Account>,
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry { all: Vec::new(), free: Vec::new() });

thread_local! {
    /// Without a destructor and initialised at compile time, so that a signal handler may read it.
    static CURRENT: Cell<Option<&'static Account>> = const { Cell::new(None) };
    static LEAVE: Leave = const { Leave };
}

/// Gives the account back when its thread ends.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(account) = CURRENT.take() {
            hooks::thread_ended(account);
            account.tid.store(0, Relaxed);
            account.kind.store(0, Relaxed);
            account.set_worker(false);
            account.stands.store(false, Relaxed);
            open::here(Open::clear);
            registry(|registry| registry.free.push(account));
        }
    }
}

fn registry<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The account of this thread, if it has one already. Safe in a signal handler.
#[inline]
pub fn current() -> Option<&'static Account> {
    CURRENT.try_with(Cell::get).ok().flatten()
}

/// The account of this thread, which is registered if it was not. `None` while the thread ends.
pub(crate) fn enrol() -> Option<&'static Account> {
    current().or_else(first)
}

#[cold]
fn first() -> Option<&'static Account> {
    LEAVE.try_with(|_| ()).ok()?;
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
    account.stack.0.store(low, Relaxed);
    account.stack.1.store(high, Relaxed);
    account.window.store(0, Relaxed);
    account.tid.store(thread_id(), Relaxed);
    CURRENT.set(Some(account));
    hooks::thread_began(account);
    Some(account)
}

#[expect(unsafe_code, reason = "the kernel's number of a thread, which only the C library gives")]
fn thread_id() -> i32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::gettid() }
}

#[expect(unsafe_code, reason = "where a thread's stack lies is known to the C library only")]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "one question in the form of four calls")]
fn stack() -> (usize, usize) {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, read only if it succeeded, and destroyed once; the pointers
    // are to locals of the types that the calls write.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut low, &raw mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
    }
    (low as usize, low as usize + size)
}

/// Every account that there is, also those of threads that ended.
#[must_use]
pub fn accounts() -> Vec<&'static Account> {
    registry(|registry| registry.all.clone())
}

/// Registers this thread, so that the profiler samples it from the start. What [`crate::thread`] spawns is registered by
/// itself, and so is any thread at its first hook while a profile runs. For a runtime's "on thread start".
pub fn on_each_thread() {
    enrol();
}

//! The policy, and the hook functions that call it.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::account::{self, Account};
use crate::point::Point;
use crate::span::Span;
use crate::span_stack;
use crate::stamp::{Lock, Sharing, Stamp};

static POLICY: OnceLock<&'static dyn Policy> = OnceLock::new();
static ATTENTION: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = Attention::Nothing as u8;
const SPANS: u8 = Attention::Spans as u8;

/// How much of the instrumentation is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Attention {
    /// Off: a hook is one load and one branch.
    Nothing,
    /// Each thread keeps its open spans and its last synchronisation site for a sampler, at a few ns per hook, and
    /// counts units of progress. The policy is called only around [`before_block`] and [`after_block`].
    Spans,
    /// On: every hook calls the policy.
    Everything,
}

/// A profiler's reaction to each hook. Every method runs on the thread that owns `account`, and only at
/// [`Attention::Everything`], with two exceptions: [`thread_began`](Self::thread_began) and
/// [`thread_ended`](Self::thread_ended) are always called, and [`before_block`](Self::before_block) and
/// [`after_block`](Self::after_block) are called at [`Attention::Spans`] too. Every `before_block` is followed by an
/// `after_block`, even if the profile ends during the wait. No method may block longer than the delay that it inserts.
pub trait Policy: Sync {
    /// The thread got an account: it was registered.
    fn thread_began(&self, account: &'static Account);
    /// The thread ends, and releases its account.
    fn thread_ended(&self, account: &'static Account);
    /// A span began. Returns the thread's previous kind of work.
    fn entered(&self, account: &'static Account, span: Span) -> u32;
    /// A span ended: the thread returns to the kind of work in `before`, which [`entered`](Self::entered) returned or
    /// [`recompute_kinds`](crate::recompute_kinds) stored. If other spans were opened inside it and are still open,
    /// `entered` is called for each of them again.
    fn left(&self, account: &'static Account, before: &AtomicU32);
    /// The thread passed a synchronisation site. Its work until the next site is a kind of work of its own.
    fn at(&self, account: &'static Account, site: Span);
    /// The thread is about to send a message to another thread of the program; `stamp` travels with the message.
    fn before_send(&self, account: &'static Account, stamp: &mut Stamp);
    /// The thread received the message after it was blocked for `blocked`.
    fn after_receive(&self, account: &'static Account, stamp: Stamp, blocked: Duration);
    /// The thread took a message that had waited in a queue until the thread's present work made room. The work that
    /// follows needs both.
    fn after_queue(&self, account: &'static Account, stamp: Stamp) {
        self.after_receive(account, stamp, Duration::ZERO);
    }
    /// The thread is about to wait for an event of unknown source, such as the next event of an event loop.
    fn before_block(&self, account: &'static Account);
    /// The wait ended.
    fn after_block(&self, account: &'static Account);
    /// The thread is about to take a lock, and may block on it.
    fn before_lock(&self, account: &'static Account) {
        let _ = account;
    }
    /// The thread took the lock after it was blocked for `blocked`. The span of the lock's site is already open.
    fn lock_acquired(&self, account: &'static Account, lock: &Lock, sharing: Sharing, blocked: Duration);
    /// The thread is about to release the lock; `contended` if other threads wait for it.
    fn before_unlock(&self, account: &'static Account, lock: &Lock, sharing: Sharing, contended: bool);
    /// Bytes are about to be written to a connection, whose peer is outside the program and cannot be paused.
    fn before_write(&self, account: &'static Account, connection: &mut Stamp);
    /// How long input that arrived on the connection at `arrived` must be held before the thread may process it.
    fn hold(&self, account: &'static Account, connection: Stamp, arrived: u64) -> Option<Duration>;
    /// The thread starts to process input that arrived on a connection at `arrived`.
    fn arrived(&self, account: &'static Account, connection: &mut Stamp, arrived: u64);
    /// A request to an upstream was sent; the time until its answer arrives belongs to the span `callee`.
    fn called(&self, account: &'static Account, call: &mut Stamp, callee: Span);
    /// The thread starts to process the upstream's answer, which arrived at `arrived`.
    fn answered(&self, account: &'static Account, call: Stamp, arrived: u64);
    /// The thread, or a task on it, started a timer.
    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp);
    /// The timer expired, and caused the work that follows. `blocked` is how long the thread itself slept for it; zero
    /// for a task's timer.
    fn sleep_ended(&self, account: &'static Account, timer: Stamp, blocked: Duration);
    /// One unit of progress.
    fn hit(&self, account: &'static Account, point: Point);
    /// A unit of progress began with the message that the thread processes.
    fn visit_began(&self, account: &'static Account, visit: &mut Stamp);
    /// The unit is complete.
    fn visit_ended(&self, account: &'static Account, visit: Stamp, point: Point);
}

/// Installs the policy for the life of the process. It stays inactive until [`set_attention`] enables it.
///
/// # Errors
/// Returns the given policy if one is installed already.
pub fn install(policy: &'static dyn Policy) -> Result<(), &'static dyn Policy> {
    POLICY.set(policy)
}

/// Sets how much is reported from now on. Does nothing while no policy is installed.
pub fn set_attention(attention: Attention) {
    // Without a policy no hook may become active.
    let attention = if POLICY.get().is_some() { attention } else { Attention::Nothing };
    ATTENTION.store(attention as u8, Ordering::SeqCst);
}

/// Whether a profile runs, so that at least spans are tracked. One load.
#[inline]
pub fn is_active() -> bool {
    // Relaxed: a hook that is missed at the start or the end of a profile does no harm.
    ATTENTION.load(Ordering::Relaxed) != NOTHING
}

/// Whether every hook calls the policy. One load.
#[inline]
pub fn is_policy_called() -> bool {
    ATTENTION.load(Ordering::Relaxed) == Attention::Everything as u8
}

/// Registers this thread as one that runs an event loop, which processes events in order of arrival. Works without a
/// policy.
pub fn worker_began() {
    if let Some(account) = account::register() {
        account.set_worker(true);
    }
}

pub(crate) fn thread_began(account: &'static Account) {
    if let Some(policy) = POLICY.get() {
        policy.thread_began(account);
    }
}

pub(crate) fn thread_ended(account: &'static Account) {
    if let Some(policy) = POLICY.get() {
        policy.thread_ended(account);
    }
}

/// Calls the policy. Out of line, so that an inactive hook is one load and one branch.
#[cold]
#[inline(never)]
fn call_policy<T>(hook: impl FnOnce(&'static dyn Policy, &'static Account) -> T) -> Option<T> {
    Some(hook(*POLICY.get()?, account::register()?))
}

/// Opens a span. The path without a policy call is inlined, because programs open spans often.
#[inline]
pub(crate) fn entered(span: Span) -> Option<NonZeroU32> {
    match ATTENTION.load(Ordering::Relaxed) {
        NOTHING => None,
        SPANS => span_stack::here(|open| open.push(span)),
        _ => call_policy(|policy, account| {
            span_stack::here(|open| open.open(span, |span| policy.entered(account, span)))
        })
        .flatten(),
    }
}

#[inline]
pub(crate) fn left(token: NonZeroU32) {
    if is_policy_called() {
        call_policy(|policy, account| {
            span_stack::here(|open| {
                open.close(token, |before| policy.left(account, before), |span| policy.entered(account, span));
            });
        });
    } else {
        span_stack::here(|open| open.pop(token));
    }
}

/// The thread passed a synchronisation site; see [`Policy::at`].
#[inline]
pub fn at(site: Span) {
    if is_policy_called() {
        call_policy(|policy, account| {
            policy.at(account, site);
            span_stack::here(|open| open.set_site(site));
        });
    } else if is_active() {
        span_stack::here(|open| open.set_site(site));
    }
}

thread_local! {
    /// Whether `before_block` was reported for this thread, and `after_block` was not.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// To be called before the thread waits for an event of unknown source: an event loop before it polls.
#[inline]
pub fn before_block() {
    if is_active() {
        // Remembered, so that `after_block` reaches the policy even after the profile.
        WAITS.set(true);
        call_policy(Policy::before_block);
    }
}

/// To be called after [`before_block`]. It reaches the policy even if the profile ended during the wait, so that the
/// wait does not seem to continue.
#[inline]
pub fn after_block() {
    if WAITS.replace(false) || is_active() {
        call_policy(Policy::after_block);
    }
}

/// Completes a unit of progress: counts it while a profile runs, and calls `tell` at [`Attention::Everything`].
#[inline]
pub(crate) fn done(tell: impl FnOnce(&'static dyn Policy, &'static Account)) {
    match ATTENTION.load(Ordering::Relaxed) {
        NOTHING => {}
        SPANS => {
            if let Some(account) = account::register() {
                account.count_hit();
            }
        }
        _ => drop(call_policy(|policy, account| {
            account.count_hit();
            tell(policy, account);
        })),
    }
}

pub(crate) fn visit_began(visit: &mut Stamp) {
    call_policy(|policy, account| policy.visit_began(account, visit));
}

/// See [`Policy::hold`]; `None` unless [`is_policy_called`].
#[inline]
pub fn hold(connection: Stamp, arrived: u64) -> Option<Duration> {
    if !is_policy_called() {
        return None;
    }
    call_policy(|policy, account| policy.hold(account, connection, arrived)).flatten()
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name($($arg: $kind),*) {
            if is_policy_called() {
                call_policy(|policy, account| policy.$name(account, $($arg),*));
            }
        }
    )*};
}

hooks! {
    /// Before a message is passed to another thread: sleeps off the thread's pending delay, and stamps the message.
    before_send(stamp: &mut Stamp);
    /// After a message that [`before_send`] stamped was taken. `blocked` is how long the thread waited for it; zero if
    /// it was available at once.
    after_receive(stamp: Stamp, blocked: Duration);
    /// After a message that [`before_send`] stamped was taken from a queue in which it waited until the thread's
    /// present work made room: a call that gets the connection of a finished one. The work that follows waits for both.
    after_queue(stamp: Stamp);
    /// Before a lock is requested, free or not: sleeps off the thread's pending delay, so that it does not overtake
    /// others.
    before_lock();
    /// After a lock was taken; `blocked` is how long the thread waited for it.
    lock_acquired(lock: &Lock, sharing: Sharing, blocked: Duration);
    /// Before a lock is released; `contended` if other threads wait for it.
    before_unlock(lock: &Lock, sharing: Sharing, contended: bool);
    /// Before bytes of a connection are passed to the kernel.
    before_write(connection: &mut Stamp);
    /// When the thread starts to process bytes that arrived on a connection. `arrived` is when the kernel received
    /// them, in nanoseconds since the Unix epoch; 0 if unknown.
    arrived(connection: &mut Stamp, arrived: u64);
    /// When a request is sent to an upstream: the time until [`answered`] belongs to the span `callee`.
    called(call: &mut Stamp, callee: Span);
    /// When the thread starts to process an upstream's answer; `arrived` as in [`arrived`](fn@arrived).
    answered(call: Stamp, arrived: u64);
    /// When a task starts a timer, or a thread is about to sleep.
    sleep_began(timer: &mut Stamp);
    /// When the timer expired; `blocked` is how long the thread itself slept.
    sleep_ended(timer: Stamp, blocked: Duration);
}

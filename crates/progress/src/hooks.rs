//! The policy, and the functions by which a program reaches it.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::account::{self, Account};
use crate::open;
use crate::point::Point;
use crate::span::Span;
use crate::stamp::{Lock, Sharing, Stamp};

static POLICY: OnceLock<&'static dyn Policy> = OnceLock::new();
static ATTENTION: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = Attention::Nothing as u8;
const SPANS: u8 = Attention::Spans as u8;

/// How much of what a program tells is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Attention {
    /// Nothing: a hook is one load and one branch.
    Nothing,
    /// In which spans each thread is, and behind which meeting, for a sampler: a few ns each; and units of progress are counted. The
    /// policy is asked only around the waits of threads that do not know what they wait for.
    Spans,
    /// Everything: the policy is asked at each hook.
    Everything,
}

/// What a profiler does at each hook. Every method is called on the thread that `account` is of, and only at
/// [`Attention::Everything`], except for the thread's begin and end, and for its waits, which are told at [`Attention::Spans`] too; the
/// end of a wait whose begin was told always is. None may block longer than the delay that it means to add.
pub trait Policy: Sync {
    /// The thread has an account from now on.
    fn thread_began(&self, account: &'static Account);
    /// The thread ends.
    fn thread_ended(&self, account: &'static Account);
    /// A span began; what the thread's kind of work was before.
    fn entered(&self, account: &'static Account, span: Span) -> u32;
    /// A span ended; back to the kind of work in `before`, which is what [`entered`](Self::entered) answered or
    /// [`retell`](crate::retell) put there. Where it was not the innermost, those inside of it that are still open are entered anew.
    fn left(&self, account: &'static Account, before: &AtomicU32);
    /// The thread passed a place where threads meet; what it does until the next one is a kind of work of its own.
    fn at(&self, account: &'static Account, site: Span);
    /// A message to another thread of the program is about to be sent, and carries the stamp.
    fn before_send(&self, account: &'static Account, stamp: &mut Stamp);
    /// The message was received, after the thread was blocked for it so long.
    fn after_receive(&self, account: &'static Account, stamp: Stamp, blocked: Duration);
    /// The thread is about to wait for it does not know what.
    fn before_block(&self, account: &'static Account);
    /// The thread is back from waiting.
    fn after_block(&self, account: &'static Account);
    /// The thread is about to take a lock, and may have to wait for it.
    fn before_lock(&self, account: &'static Account) {
        let _ = account;
    }
    /// The thread took the lock, after it was blocked for it so long. The span of the lock's place was entered before.
    fn lock_acquired(&self, account: &'static Account, lock: &Lock, sharing: Sharing, blocked: Duration);
    /// The thread is about to give up the lock; whether others wait for it.
    fn before_unlock(&self, account: &'static Account, lock: &Lock, sharing: Sharing, contended: bool);
    /// Octets are about to leave on a connection, for a world that answers when it likes.
    fn written(&self, account: &'static Account, connection: &mut Stamp);
    /// How long what came on the connection at `arrived` must wait until the thread may look at it.
    fn hold(&self, account: &'static Account, connection: Stamp, arrived: u64) -> Option<Duration>;
    /// What came on a connection at `arrived` is worked on from now.
    fn arrived(&self, account: &'static Account, connection: &mut Stamp, arrived: u64);
    /// Somebody outside was asked; what passes until the answer comes is `whom`'s.
    fn called(&self, account: &'static Account, call: &mut Stamp, whom: Span);
    /// The answer came at `arrived` and is worked on from now.
    fn answered(&self, account: &'static Account, call: Stamp, arrived: u64);
    /// The thread, or a task on it, asked to be woken after a time.
    fn sleep_began(&self, account: &'static Account, timer: &mut Stamp);
    /// The time is over; what follows is because of it. The thread slept for it so long itself, if it did.
    fn sleep_ended(&self, account: &'static Account, timer: Stamp, blocked: Duration);
    /// One unit of progress.
    fn hit(&self, account: &'static Account, point: Point);
    /// A unit of progress began with the message that the thread works on.
    fn visit_began(&self, account: &'static Account, visit: &mut Stamp);
    /// The unit is done.
    fn visit_ended(&self, account: &'static Account, visit: Stamp, point: Point);
}

/// Puts the policy in place for the life of the process; it hears nothing until [`attend`] says so.
///
/// # Errors
/// The policy itself, when one is in place already.
pub fn install(policy: &'static dyn Policy) -> Result<(), &'static dyn Policy> {
    POLICY.set(policy)
}

/// Says how much is heard from now on. Does nothing while no policy is installed.
pub fn attend(attention: Attention) {
    let attention = if POLICY.get().is_some() { attention } else { Attention::Nothing };
    ATTENTION.store(attention as u8, Ordering::SeqCst);
}

/// Whether a profile runs: spans are kept at least. One load.
#[inline]
pub fn is_active() -> bool {
    // Relaxed: a hook that is missed at the edges is no harm.
    ATTENTION.load(Ordering::Relaxed) != NOTHING
}

/// Whether the policy is asked at each hook. One load.
#[inline]
pub fn is_heard() -> bool {
    ATTENTION.load(Ordering::Relaxed) == Attention::Everything as u8
}

/// Registers this thread as one that runs an event loop: it works on what arrived first. Independent of any policy.
pub fn worker_began() {
    if let Some(account) = account::enrol() {
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

/// Out of line, so that a hook which is off is one load and one branch.
#[cold]
#[inline(never)]
fn ask<T>(hook: impl FnOnce(&'static dyn Policy, &'static Account) -> T) -> Option<T> {
    Some(hook(*POLICY.get()?, account::enrol()?))
}

/// What is heard of spans alone is kept in line: there are many of them.
#[inline]
pub(crate) fn entered(span: Span) -> Option<NonZeroU32> {
    match ATTENTION.load(Ordering::Relaxed) {
        NOTHING => None,
        SPANS => open::here(|open| open.push(span)),
        _ => ask(|policy, account| open::here(|open| open.open(span, |span| policy.entered(account, span)))).flatten(),
    }
}

#[inline]
pub(crate) fn left(token: NonZeroU32) {
    if is_heard() {
        ask(|policy, account| {
            open::here(|open| {
                open.close(token, |before| policy.left(account, before), |span| policy.entered(account, span));
            });
        });
    } else {
        open::here(|open| open.pop(token));
    }
}

/// The thread passed a place where threads meet; see [`Policy::at`].
#[inline]
pub fn at(site: Span) {
    if is_heard() {
        ask(|policy, account| {
            policy.at(account, site);
            open::here(|open| open.meet(site));
        });
    } else if is_active() {
        open::here(|open| open.meet(site));
    }
}

thread_local! {
    /// Whether the policy was told that this thread waits.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// Before the thread waits for it does not know what: an event loop for its next event.
#[inline]
pub fn before_block() {
    if is_active() {
        WAITS.set(true);
        ask(Policy::before_block);
    }
}

/// After [`before_block`]. A profile may have ended meanwhile: the policy is told all the same, so that a wait never seems to last.
#[inline]
pub fn after_block() {
    if WAITS.replace(false) || is_active() {
        ask(Policy::after_block);
    }
}

/// A unit of progress is done: it is counted while a profile runs, and told of where the policy is asked.
#[inline]
pub(crate) fn done(tell: impl FnOnce(&'static dyn Policy, &'static Account)) {
    match ATTENTION.load(Ordering::Relaxed) {
        NOTHING => {}
        SPANS => {
            if let Some(account) = account::enrol() {
                account.count_hit();
            }
        }
        _ => drop(ask(|policy, account| {
            account.count_hit();
            tell(policy, account);
        })),
    }
}

pub(crate) fn visit_began(visit: &mut Stamp) {
    ask(|policy, account| policy.visit_began(account, visit));
}

/// See [`Policy::hold`]; `None` while the policy is not asked.
#[inline]
pub fn hold(connection: Stamp, arrived: u64) -> Option<Duration> {
    if !is_heard() {
        return None;
    }
    ask(|policy, account| policy.hold(account, connection, arrived)).flatten()
}

macro_rules! hooks {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        #[inline]
        pub fn $name($($arg: $kind),*) {
            if is_heard() {
                ask(|policy, account| policy.$name(account, $($arg),*));
            }
        }
    )*};
}

hooks! {
    /// Before a message is handed to another thread: pays what the thread owes, and stamps the message.
    before_send(stamp: &mut Stamp);
    /// After a message was taken that [`before_send`] stamped. `blocked` is how long the thread stood still for it; zero when it was there.
    after_receive(stamp: Stamp, blocked: Duration);
    /// Before a lock is asked for, free or not: pays what the thread owes, so that it does not get there too early.
    before_lock();
    /// After a lock was taken, for which the thread stood still so long.
    lock_acquired(lock: &Lock, sharing: Sharing, blocked: Duration);
    /// Before a lock is given up; `contended` when others wait for it.
    before_unlock(lock: &Lock, sharing: Sharing, contended: bool);
    /// Before octets are handed to the kernel on a connection.
    written(connection: &mut Stamp);
    /// When octets that came on a connection are worked on. `arrived` is when the kernel had them, nanoseconds since the Unix
    /// epoch; 0 when that is not known.
    arrived(connection: &mut Stamp, arrived: u64);
    /// When somebody outside is asked, an upstream: what passes until [`answered`] is the span's.
    called(call: &mut Stamp, whom: Span);
    /// When an answer of somebody outside is worked on; `arrived` as in [`arrived`](fn@arrived).
    answered(call: Stamp, arrived: u64);
    /// When a task asks to be woken after a time, or a thread is about to sleep.
    sleep_began(timer: &mut Stamp);
    /// When the time is over.
    sleep_ended(timer: Stamp, blocked: Duration);
}

//! Named sections of work.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::hooks;

/// A named section of work that the profiler can measure and speed up virtually. Copy, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span(u32);

/// Interned names; an id is an index.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<String>,
    known: HashMap<String, u32>,
    /// By id: its number of leases; `None` if it has its name for good.
    users: Vec<Option<usize>>,
    /// Ids without a user. They keep their names until they get another one.
    free: Vec<u32>,
}

/// While there are any of these, ids without a user keep their names.
static KEPT: AtomicUsize = AtomicUsize::new(0);

impl Names {
    /// Returns the id of a name, for good.
    pub(crate) fn intern(&mut self, name: &str) -> u32 {
        let id = self.lease(name);
        self.users[id as usize] = None;
        id
    }

    /// Returns the id of a name until [`release`](Self::release).
    pub(crate) fn lease(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.known.get(name) {
            if let Some(users) = &mut self.users[known as usize] {
                if *users == 0 {
                    self.free.retain(|&free| free != known);
                }
                *users += 1;
            }
            return known;
        }
        let id = match self.free.pop_if(|_| KEPT.load(Ordering::Acquire) == 0) {
            Some(id) => {
                let before = std::mem::replace(&mut self.names[id as usize], name.to_owned());
                self.known.remove(&before);
                self.users[id as usize] = Some(1);
                id
            }
            None => {
                let id = u32::try_from(self.names.len()).expect("fewer than 2^32 names");
                self.names.push(name.to_owned());
                self.users.push(Some(1));
                id
            }
        };
        self.known.insert(name.to_owned(), id);
        id
    }

    /// Ends a lease. Returns whether it was the last one.
    pub(crate) fn release(&mut self, id: u32) -> bool {
        let Some(users) = &mut self.users[id as usize] else { return false };
        *users -= 1;
        let is_last = *users == 0;
        if is_last {
            self.free.push(id);
        }
        is_last
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.names.clone()
    }
}

fn names<T>(work: impl FnOnce(&mut Names) -> T) -> T {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names = Names::default();
        // Interned first and in this order, because the constants below are these ids.
        stage::NAMES.iter().chain([&WAKE_NAME]).for_each(|name| {
            names.intern(name);
        });
        Mutex::new(names)
    });
    work(&mut names.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The name of [`Span::WAKE`].
const WAKE_NAME: &str = "wake threads";

impl Span {
    /// The wakeup of a waiting thread. It costs the waker about 10 µs on a virtual machine whose processors halt, and
    /// almost no time if no thread waits.
    pub const WAKE: Self = Self(stage::NAMES.len() as u32);

    /// Returns the span of that name; equal names give equal spans. Takes a lock: call it at load time (for a route's
    /// handler), never per request.
    #[must_use]
    pub fn intern(name: &str) -> Self {
        Self(names(|names| names.intern(name)))
    }

    /// Returns the span of a name that is only used for a while, as that of a route until the next configuration.
    #[must_use]
    pub fn lease(name: &str) -> Leased<Self> {
        let release = |span: Self| {
            names(|names| names.release(span.0));
        };
        Leased { named: Self(names(|names| names.lease(name))), release }
    }

    /// Returns the span of a source location, named after it: `lock src/main.rs:12`. `operation` is the first word.
    #[must_use]
    pub fn at(operation: &str, call_site: &Location<'_>) -> Self {
        Self::intern(&format!("{operation} {}:{}", call_site.file(), call_site.line()))
    }

    /// The span of an id from [`Self::id`].
    #[must_use]
    pub const fn from_id(id: u32) -> Self {
        Self(id)
    }

    /// The span's number in a policy: an index into [`span_names`].
    #[inline]
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }

    /// Returns whether a server named the span, after a stage, a route or a handler, and not the author of the program.
    /// Takes a lock.
    #[must_use]
    pub fn is_server_span(self) -> bool {
        let is_leased = |names: &mut Names| names.users.get(self.0 as usize).is_some_and(Option::is_some);
        (self.0 as usize) < stage::NAMES.len() || names(is_leased)
    }

    /// Opens the span until the guard is dropped, on this thread. Spans nest, and their guards may be dropped in any
    /// order: the thread is in all open spans, in the order in which they were opened. A span beyond 32 open entries is
    /// ignored.
    #[inline]
    #[must_use = "the span ends when the guard is dropped"]
    pub fn enter(self) -> Entered {
        Entered { token: hooks::entered(self), here: PhantomData }
    }
}

/// Runs `notify`, which wakes a waiting thread, inside [`Span::WAKE`].
#[inline]
pub(crate) fn wake<T>(notify: impl FnOnce() -> T) -> T {
    let _waking = Span::WAKE.enter();
    notify()
}

/// Runs `notify`, inside [`Span::WAKE`] if a thread is known to wait.
#[inline]
pub(crate) fn wake_if<T>(is_awaited: bool, notify: impl FnOnce() -> T) -> T {
    if is_awaited { wake(notify) } else { notify() }
}

/// The span or the point of a name, until this is dropped. When the last lease of a name ends, its id may get another
/// name, but not during a profile ([`NamePin`]).
#[derive(Debug)]
pub struct Leased<T: Copy> {
    pub(crate) named: T,
    pub(crate) release: fn(T),
}

impl<T: Copy> Deref for Leased<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.named
    }
}

impl<T: Copy> Drop for Leased<T> {
    fn drop(&mut self) {
        (self.release)(self.named);
    }
}

/// Until this is dropped, no span and no point gets another name: a profiler's records contain only ids.
#[derive(Debug)]
pub struct NamePin(());

impl NamePin {
    /// Pins all names.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a value has an effect on the whole process")]
    pub fn new() -> Self {
        KEPT.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for NamePin {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The names of all spans, indexed by [`Span::id`]. Those without a lease are included.
#[must_use]
pub fn span_names() -> Vec<String> {
    names(|names| names.all())
}

/// Guard of an open [`Span`]: dropping it closes the span.
#[derive(Debug)]
pub struct Entered {
    /// Identifies the span among the thread's open ones; `None` if it is not tracked.
    token: Option<NonZeroU32>,
    /// Makes the guard `!Send`, as a lock's guard is: a span belongs to its thread.
    here: PhantomData<MutexGuard<'static, ()>>,
}

impl Entered {
    /// A guard without a span.
    pub(crate) const fn nothing() -> Self {
        Self { token: None, here: PhantomData }
    }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        if let Some(token) = self.token {
            hooks::left(token);
        }
    }
}

/// Opens a span by its name, and returns its guard. The name is looked up once per call site.
///
/// ```
/// # fn encode() {}
/// let _encoding = progress::span!("encode");
/// encode();
/// ```
#[macro_export]
macro_rules! span {
    ($name:expr) => {{
        const NAME: &str = $name;
        static SPAN: ::std::sync::OnceLock<$crate::Span> = ::std::sync::OnceLock::new();
        SPAN.get_or_init(|| $crate::Span::intern(NAME)).enter()
    }};
}

/// The spans of a server's stages, in the order in which a request passes through them.
pub mod stage {
    use super::Span;

    /// Accepting a connection.
    pub const ACCEPT: Span = Span(0);
    /// Performing a TLS handshake.
    pub const HANDSHAKE: Span = Span(1);
    /// Reading bytes from the kernel.
    pub const READ: Span = Span(2);
    /// The protocol state machine: from bytes to events.
    pub const PARSE: Span = Span(3);
    /// Matching routes and running handlers; handlers have spans of their own inside this one.
    pub const ROUTE: Span = Span(4);
    /// The protocol state machine: from a response to bytes.
    pub const ENCODE: Span = Span(5);
    /// Encrypting and decrypting TLS records.
    pub const TLS: Span = Span(6);
    /// Writing bytes to the kernel.
    pub const WRITE: Span = Span(7);

    pub(super) const NAMES: [&str; 8] = ["accept", "handshake", "read", "parse", "route", "encode", "tls", "write"];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that loads a thousand configurations needs the names of one of them.
    #[test]
    fn ids_without_a_lease_get_other_names() {
        let mut names = Names::default();
        let lasting = names.intern("for good");
        let route = names.lease("route /a");
        assert_eq!((names.lease("route /a"), names.lease("for good")), (route, lasting));
        assert!(!names.release(route), "it has another lease");
        assert!(!names.release(lasting));
        assert!(names.release(route));
        // The next configuration has the route again.
        assert_eq!(names.lease("route /a"), route);
        assert_ne!(names.lease("route /b"), route);
        assert!(names.release(route));
        // A profile refers to names by ids.
        let kept = NamePin::new();
        assert_eq!(names.lease("route /c"), 3);
        assert_eq!(names.all(), ["for good", "route /a", "route /b", "route /c"]);
        drop(kept);
        assert_eq!(names.lease("route /d"), route);
        assert_eq!(names.all(), ["for good", "route /d", "route /b", "route /c"]);
        assert_eq!((names.lease("route /a"), names.intern("for good")), (4, lasting));
    }
}

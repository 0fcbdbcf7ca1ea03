//! Stretches of work by name.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::hooks;

/// A stretch of work that the profiler can measure and speed up virtually. Copy, 4 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span(u32);

/// Names and what they stand for; a span is an index.
#[derive(Default)]
pub(crate) struct Names {
    names: Vec<String>,
    known: HashMap<String, u32>,
}

impl Names {
    pub(crate) fn named(&mut self, name: &str) -> u32 {
        if let Some(&known) = self.known.get(name) {
            return known;
        }
        let id = u32::try_from(self.names.len()).expect("fewer than 2^32 names");
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), id);
        id
    }

    pub(crate) fn all(&self) -> Vec<String> {
        self.names.clone()
    }
}

fn names<T>(work: impl FnOnce(&mut Names) -> T) -> T {
    static NAMES: OnceLock<Mutex<Names>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names = Names::default();
        stage::NAMES.iter().chain([&WAKE_NAME]).for_each(|name| {
            names.named(name);
        });
        Mutex::new(names)
    });
    work(&mut names.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The name of [`Span::WAKE`].
const WAKE_NAME: &str = "wake threads";

impl Span {
    /// Telling the kernel that a thread which waits may go on. It takes the waker's time, about 10 µs on a virtual machine whose
    /// processors halt, and next to none where nobody waits.
    pub const WAKE: Self = Self(stage::NAMES.len() as u32);

    /// The span of that name; the same one for the same name. For what is known at load time (a handler of a route), never per
    /// request: it takes a lock.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(names(|names| names.named(name)))
    }

    /// The span of a place in the source, which is named after it: `lock src/main.rs:12`.
    #[must_use]
    pub fn at(what: &str, place: &Location<'_>) -> Self {
        Self::named(&format!("{what} {}:{}", place.file(), place.line()))
    }

    /// The span of a number that [`Self::id`] gave.
    #[must_use]
    pub const fn of(id: u32) -> Self {
        Self(id)
    }

    /// The number that a policy knows the span by: an index into [`spans`].
    #[inline]
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }

    /// Opens the span until the guard is dropped, on the same thread. Spans nest, and may end in any order: the thread is in
    /// those that are open, in the order in which they were opened. Beyond 32 at once a span is not told.
    #[inline]
    #[must_use = "the span ends when the guard is dropped"]
    pub fn enter(self) -> Entered {
        Entered { token: hooks::entered(self), here: PhantomData }
    }
}

/// Does what wakes a thread that waits.
#[inline]
pub(crate) fn wake<T>(notify: impl FnOnce() -> T) -> T {
    let _waking = Span::WAKE.enter();
    notify()
}

/// Does what wakes a thread if one waits, and nothing else where none does; whether it is known that one waits.
#[inline]
pub(crate) fn wake_if<T>(is_awaited: bool, notify: impl FnOnce() -> T) -> T {
    if is_awaited { wake(notify) } else { notify() }
}

/// The names of all spans there are, by their ids.
#[must_use]
pub fn spans() -> Vec<String> {
    names(|names| names.all())
}

/// Guard of an open [`Span`].
#[derive(Debug)]
pub struct Entered {
    /// Which of the thread's open spans it is; `None` when nobody measured.
    token: Option<NonZeroU32>,
    /// Spans belong to their thread, as guards of locks do.
    here: PhantomData<MutexGuard<'static, ()>>,
}

impl Entered {
    /// Of a span that nobody measures.
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

/// Opens a span by its name until the guard that it gives is dropped.
///
/// ```
/// # fn encode() {}
/// let _encoding = progress::span!("encode");
/// encode();
/// ```
#[macro_export]
macro_rules! span {
    ($name:expr) => {{
        static SPAN: ::std::sync::OnceLock<$crate::Span> = ::std::sync::OnceLock::new();
        SPAN.get_or_init(|| $crate::Span::named($name)).enter()
    }};
}

/// The spans of a server's stages, in the order in which a request passes them.
pub mod stage {
    use super::Span;

    /// Taking a connection from the kernel.
    pub const ACCEPT: Span = Span(0);
    /// Making a TLS handshake.
    pub const HANDSHAKE: Span = Span(1);
    /// Taking octets from the kernel.
    pub const READ: Span = Span(2);
    /// The protocol machine: octets to events.
    pub const PARSE: Span = Span(3);
    /// Matching routes and running handlers; handlers have spans of their own inside.
    pub const ROUTE: Span = Span(4);
    /// The protocol machine: response to octets.
    pub const ENCODE: Span = Span(5);
    /// Sealing and opening TLS records.
    pub const TLS: Span = Span(6);
    /// Handing octets to the kernel.
    pub const WRITE: Span = Span(7);

    pub(super) const NAMES: [&str; 8] = ["accept", "handshake", "read", "parse", "route", "encode", "tls", "write"];
}

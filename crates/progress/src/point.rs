//! Progress points: what the program is there for, counted and timed.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::hooks;
use crate::span::Names;
use crate::stamp::Stamp;

/// A point whose hits are the program's progress. Copy, 4 octets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point(u32);

/// Names, and the visits that were begun by name and not yet ended.
#[derive(Default)]
struct Points {
    names: Names,
    open: Vec<VecDeque<Visit>>,
}

/// Visits by name that are open at once; the oldest is forgotten beyond.
const OPEN_MAX: usize = 1 << 16;

fn table<T>(work: impl FnOnce(&mut Points) -> T) -> T {
    static POINTS: OnceLock<Mutex<Points>> = OnceLock::new();
    work(&mut POINTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner))
}

impl Point {
    /// The point of that name; the same one for the same name. Takes a lock: for what is known at load time.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self(table(|points| points.names.named(name)))
    }

    /// The number that a policy knows the point by: an index into [`points`].
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }

    /// One unit of progress.
    #[inline]
    pub fn hit(self) {
        hooks::done(|policy, account| policy.hit(account, self));
    }

    /// A unit began; [`end`](Self::end) ends the one that began first. Takes a lock while a window is open.
    #[inline]
    pub fn begin(self) {
        if hooks::is_heard() {
            let visit = Visit::begin();
            table(|points| {
                if points.open.len() <= self.0 as usize {
                    points.open.resize_with(self.0 as usize + 1, VecDeque::new);
                }
                let open = &mut points.open[self.0 as usize];
                if open.len() == OPEN_MAX {
                    open.pop_front();
                }
                open.push_back(visit);
            });
        }
    }

    /// A unit is done: the one that began first. Takes a lock while a profile runs, for it may have begun in a window that is over.
    #[inline]
    pub fn end(self) {
        if hooks::is_active() {
            let begun = table(|points| points.open.get_mut(self.0 as usize).and_then(VecDeque::pop_front));
            begun.unwrap_or_default().end(self);
        }
    }
}

/// The names of all points there are, by their ids.
#[must_use]
pub fn points() -> Vec<String> {
    table(|points| points.names.all())
}

/// One unit of progress on its way, to be carried by whoever carries the work. Its time begins when the message arrived that the
/// thread works on, not when it got round to it. Copy, 8 octets.
///
/// ```
/// use progress::{Point, Visit};
///
/// let answered = Point::named("answered");
/// let visit = Visit::begin();
/// // … the work, wherever it goes; `visit` goes with it …
/// visit.end(answered);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Visit(pub(crate) Stamp);

impl Visit {
    /// Begins a unit.
    #[inline]
    #[must_use]
    pub fn begin() -> Self {
        let mut visit = Self::default();
        if hooks::is_heard() {
            hooks::visit_began(&mut visit.0);
        }
        visit
    }

    /// The unit is done: one hit of `point`, and how long it took where its begin was seen. The same visit may end at several
    /// points (all requests, those of one route).
    #[inline]
    pub fn end(self, point: Point) {
        hooks::done(|policy, account| policy.visit_ended(account, self.0, point));
    }
}

/// One unit of progress: the program did once more what it is there for.
///
/// ```
/// for _item in 0..3 {
///     progress::progress!("item");
/// }
/// ```
#[macro_export]
macro_rules! progress {
    ($name:expr) => {{
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::named($name)).hit();
    }};
}

/// A unit of progress began, whose end is [`end!`](crate::end!) of the same name, on any thread; units end in the order in
/// which they began.
/// Where they do not, carry a [`Visit`] with the work.
///
/// ```
/// use progress::{begin, end};
///
/// begin!("job");
/// let job = std::thread::spawn(|| 6 * 7);
/// assert_eq!(job.join().unwrap(), 42);
/// end!("job");
/// ```
#[macro_export]
macro_rules! begin {
    ($name:expr) => {{
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::named($name)).begin();
    }};
}

/// The unit that [`begin!`] began is done.
#[macro_export]
macro_rules! end {
    ($name:expr) => {{
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::named($name)).end();
    }};
}

//! Progress points: units of the program's progress, counted and timed.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::hooks;
use crate::span::{Leased, Names};
use crate::stamp::Stamp;

/// A point whose hits measure the program's progress. Copy, 4 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Point(u32);

/// The names, and the open visits of each point that were begun by name.
#[derive(Default)]
struct Points {
    names: Names,
    open: Vec<VecDeque<Visit>>,
}

/// Bound on the open visits of one point; beyond it the oldest is dropped.
const OPEN_MAX: usize = 1 << 16;

fn table<T>(work: impl FnOnce(&mut Points) -> T) -> T {
    static POINTS: OnceLock<Mutex<Points>> = OnceLock::new();
    work(&mut POINTS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner))
}

impl Point {
    /// Returns the point of that name; equal names give equal points. Takes a lock: call it at load time.
    #[must_use]
    pub fn intern(name: &str) -> Self {
        Self(table(|points| points.names.intern(name)))
    }

    /// Returns the point of a name that is only used for a while, as that of a route until the next configuration.
    #[must_use]
    pub fn lease(name: &str) -> Leased<Self> {
        let release = |point: Self| {
            table(|points| {
                // Units in progress must not end at a point of another name.
                if points.names.release(point.0)
                    && let Some(open) = points.open.get_mut(point.0 as usize)
                {
                    open.clear();
                }
            });
        };
        Leased { named: Self(table(|points| points.names.lease(name))), release }
    }

    /// The point's number in a policy: an index into [`point_names`].
    #[must_use]
    pub fn id(self) -> u32 {
        self.0
    }

    /// Counts one unit of progress.
    #[inline]
    pub fn hit(self) {
        hooks::done(|policy, account| policy.hit(account, self));
    }

    /// Begins a unit; [`end`](Self::end) ends the oldest open one. Takes a lock while a window is open.
    #[inline]
    pub fn begin(self) {
        if hooks::is_policy_called() {
            let visit = Visit::begin();
            table(|points| {
                if points.open.len() <= self.0 as usize {
                    points.open.resize_with(self.0 as usize + 1, VecDeque::new);
                }
                let open = &mut points.open[self.0 as usize];
                // Units that never end must not grow memory without bound.
                if open.len() == OPEN_MAX {
                    open.pop_front();
                }
                open.push_back(visit);
            });
        }
    }

    /// Ends the oldest open unit. Takes a lock while a profile runs, because the unit may have begun in an earlier
    /// window.
    #[inline]
    pub fn end(self) {
        if hooks::is_active() {
            // A missing or dropped begin yields the default visit: the hit counts, without a latency.
            let begun = table(|points| points.open.get_mut(self.0 as usize).and_then(VecDeque::pop_front));
            begun.unwrap_or_default().end(self);
        }
    }
}

/// The names of all points, indexed by [`Point::id`]. Those without a lease are included.
#[must_use]
pub fn point_names() -> Vec<String> {
    table(|points| points.names.all())
}

/// One unit of progress in flight, passed along with the work. Its latency is measured from the arrival of the message
/// that the thread processes, so it includes the time in queues. Copy, 8 bytes.
///
/// ```
/// use progress::{Point, Visit};
///
/// let answered = Point::intern("answered");
/// let visit = Visit::begin();
/// // … the work; pass `visit` along with it, also to other threads …
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
        if hooks::is_policy_called() {
            hooks::visit_began(&mut visit.0);
        }
        visit
    }

    /// Completes the unit: one hit of `point`, with the latency if the begin was recorded. A visit may end at several
    /// points (all requests, and those of one route).
    #[inline]
    pub fn end(self, point: Point) {
        hooks::done(|policy, account| policy.visit_ended(account, self.0, point));
    }
}

/// Counts one unit of progress: the program completed one more item of its work. The name is a constant; for names that
/// the program learns while it runs, make a [`Point`](crate::Point) of each.
///
/// ```
/// for _item in 0..3 {
///     progress::progress!("item");
/// }
/// ```
#[macro_export]
macro_rules! progress {
    ($name:expr) => {{
        const NAME: &str = $name;
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::intern(NAME)).hit();
    }};
}

/// Begins a unit of progress, which [`end!`](crate::end!) with an equal name ends, on any thread. Units end in the
/// order in which they began; if that does not hold for the program, carry a [`Visit`] with the work.
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
        const NAME: &str = $name;
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::intern(NAME)).begin();
    }};
}

/// Ends the oldest unit that [`begin!`] began.
#[macro_export]
macro_rules! end {
    ($name:expr) => {{
        const NAME: &str = $name;
        static POINT: ::std::sync::OnceLock<$crate::Point> = ::std::sync::OnceLock::new();
        POINT.get_or_init(|| $crate::Point::intern(NAME)).end();
    }};
}

//! The profiler's names of a plan's handlers and routes.

use progress::{Entered, Leased, Point, Span, is_active};

/// A handler's spans, and the progress point of its route.
pub(crate) struct Marks {
    /// The route, named by its matchers and those of the routes around it.
    pub(crate) route: Leased<Span>,
    /// The handler's module; `None` for handlers that only call other routes.
    pub(crate) module: Option<Leased<Span>>,
    /// Passed when the route has produced a response.
    pub(crate) answered: Leased<Point>,
}

/// Open spans. Fields are dropped in order, so the inner span ends first.
pub(crate) struct Within {
    _module: Entered,
    _route: Entered,
}

impl Marks {
    /// Opens the spans if a profile is running.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Within> {
        if is_active() { self.open() } else { None }
    }

    fn open(&self) -> Option<Within> {
        let module = self.module.as_deref()?;
        let route = self.route.enter();
        Some(Within { _module: module.enter(), _route: route })
    }
}

//! The profiler's spans of a plan's handlers and routes.

use progress::{Entered, Leased, Point, Span, is_active};

/// A handler's spans, and the progress point of its route.
pub(crate) struct HandlerSpans {
    /// The route, named by its matchers and those of the routes around it.
    pub(crate) route: Leased<Span>,
    /// The handler's module; `None` for handlers that only call other routes.
    pub(crate) module: Option<Leased<Span>>,
    /// Passed when the route has produced a response.
    pub(crate) progress: Leased<Point>,
}

/// Open spans. Fields are dropped in order, so the inner span ends first.
pub(crate) struct EnteredSpans {
    _module: Entered,
    _route: Entered,
}

impl HandlerSpans {
    /// Opens the spans if a profile is running.
    #[inline]
    pub(crate) fn enter(&self) -> Option<EnteredSpans> {
        if is_active() { self.open() } else { None }
    }

    fn open(&self) -> Option<EnteredSpans> {
        let module = self.module.as_deref()?;
        let route = self.route.enter();
        Some(EnteredSpans { _module: module.enter(), _route: route })
    }
}

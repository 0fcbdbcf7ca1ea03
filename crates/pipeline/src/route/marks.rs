//! What the profiler knows a plan's handlers and routes by.

use progress::{Entered, Point, Span, is_active};

/// A handler's spans and its route's point.
pub(crate) struct Marks {
    /// The route by what it matches, and what is around it.
    pub(crate) route: Span,
    /// The handler's module; `None` for those that only lead to other routes.
    pub(crate) module: Option<Span>,
    /// An answer of the route's.
    pub(crate) answered: Point,
}

/// Open spans, the inner one first: they end in that order.
pub(crate) struct Within {
    _module: Entered,
    _route: Entered,
}

impl Marks {
    /// Opens the spans while a profile runs.
    #[inline]
    pub(crate) fn enter(&self) -> Option<Within> {
        if is_active() { self.open() } else { None }
    }

    fn open(&self) -> Option<Within> {
        let module = self.module?;
        let route = self.route.enter();
        Some(Within { _module: module.enter(), _route: route })
    }
}

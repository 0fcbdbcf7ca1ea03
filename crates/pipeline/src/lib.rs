//! Context, handlers, matchers, routes, bodies, and what builds them

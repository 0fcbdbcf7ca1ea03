//! Built-in handlers and matchers

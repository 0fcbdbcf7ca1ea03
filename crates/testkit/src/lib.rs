//! Runs handlers and matchers without a server, through the same prepare

//! DNS as a client: what do servers answer to a question?
//!
//! - `query`: one message to one server, and its response

pub mod query;

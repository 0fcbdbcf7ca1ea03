//! Administration over the network.
//!
//! - `pull`: configurations that a server pulls from another one
//! - `access`: the remote admin API, with curl and certificates from openssl; without these programs its tests are
//!   skipped with a message

mod access;
mod pull;

//! Administration over the network.
//!
//! - `pull`: configurations that a server pulls from another one

mod pull;

//! The RFC 9113 machine, without I/O: octets in, events and octets out.
//!
//! This room never sees a socket, a clock, a task or a lock; time enters as an argument.

pub mod hpack;

//! The RFC 9112 machine, without I/O

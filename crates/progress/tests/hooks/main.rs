//! The policy calls of each primitive and hook: their order, which of them were blocked, and which stamp reached which
//! receiver. One binary, since a process has one policy.

mod channels;
mod locks;
mod notifications;
mod recorder;
mod spans;
mod threads;

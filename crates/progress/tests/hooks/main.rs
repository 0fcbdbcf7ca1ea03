//! What a policy is told by each primitive, hook by hook: what happened in which order, who was blocked for it, and whose stamp
//! reached whom. One binary, since a process has one policy.

mod channels;
mod locks;
mod notifications;
mod recorder;
mod spans;
mod threads;

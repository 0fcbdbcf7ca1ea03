//! How an exchange ended.

use std::time::Duration;

use causeway_message::StatusCode;

/// What [`crate::Handler::end`] and the access record are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The status that was sent; `None` when no head went out.
    pub status: Option<StatusCode>,
    /// Octets of response content handed to the kernel or queued when the exchange ended.
    pub sent: u64,
    /// Octets of request content received.
    pub received: u64,
    /// From the head's arrival to the end, by the worker's clock.
    pub took: Duration,
    /// Which end it came to.
    pub ending: Ending,
}

/// Which end an exchange came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response was written whole.
    Complete,
    /// A handler chose to abort.
    Aborted,
    /// The peer closed or reset before the end.
    PeerGone,
    /// A deadline passed.
    TimedOut,
    /// The response's body failed after its head was sent.
    BodyFailed,
    /// A handler panicked.
    Panicked,
}

//! How an exchange ended.

use std::time::Duration;

use causeway_message::StatusCode;

/// The result of an exchange, for [`crate::Handler::end`] and the access record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The status that was sent; `None` if no head was sent.
    pub status: Option<StatusCode>,
    /// Bytes of response content handed to the kernel or queued when the exchange ended.
    pub sent: u64,
    /// Bytes of request content received.
    pub received: u64,
    /// Bytes of request content that handlers read. The rest was discarded.
    pub read: u64,
    /// Time from the arrival of the request head to the end, by the worker's clock.
    pub took: Duration,
    /// How the exchange ended.
    pub ending: Ending,
}

impl Outcome {
    /// Status 499, as in nginx and Caddy: the client closed the connection before the response began.
    pub const CLIENT_CLOSED: u16 = 499;
}

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The response was written completely.
    Complete,
    /// A handler aborted the exchange ([`crate::Step::Abort`]).
    Aborted,
    /// The peer closed the connection or reset the stream before the end.
    PeerGone,
    /// A deadline passed.
    TimedOut,
    /// The response body failed after its head was sent.
    BodyFailed,
    /// A handler panicked.
    Panicked,
}

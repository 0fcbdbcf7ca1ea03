//! The results that a protocol machine returns to its driver, in either role and every version. `F` is the machine's
//! type for a violation of its protocol.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use crate::{BodyLength, StreamId};

/// The result of one `handle_bytes` call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled<E> {
    /// Number of bytes of `input` that are processed. While it is not 0, or there is an event, call again with the
    /// rest.
    pub consumed: usize,
    /// The event, if any. With an event, the bytes after `consumed` have not been parsed.
    pub event: Option<E>,
}

/// An event of a server's machine. Ranges are indices into the `input` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerEvent<F> {
    /// A request head is in the caller's `head`. If [`BodyLength::is_empty`], the request is complete.
    Head {
        /// The exchange that the request opens.
        stream: StreamId,
        /// The framing of the content that follows.
        body: BodyLength,
        /// The client offers to switch to another protocol (RFC 9110 §7.8), or requests a tunnel with CONNECT (RFC 8441
        /// included): the response may make the exchange a tunnel.
        upgrade: bool,
    },
    /// Content bytes, or bytes received through a tunnel. With windows, they count against them until they are
    /// released.
    Data {
        /// The exchange that the bytes belong to.
        stream: StreamId,
        /// The position of the bytes in `input`; never empty.
        range: Range<usize>,
    },
    /// A trailer section with at least one field; it replaces the fields of the caller's `head`. The request is
    /// complete.
    Trailers {
        /// The exchange whose request is complete.
        stream: StreamId,
    },
    /// A request's content is complete, without trailers. For a tunnel: the peer has closed its sending side.
    End {
        /// The exchange whose request is complete.
        stream: StreamId,
    },
    /// The exchange is over in both directions: the peer reset it, or violated a rule and received a reset. Further
    /// calls for it have no effect.
    Reset {
        /// The exchange that is over.
        stream: StreamId,
    },
    /// A request that is not served, because of a violation or a limit. One error response may be sent on its stream.
    /// If its response is already under way on a stream of its own, only its content has failed, and the response
    /// continues.
    Fault {
        /// The exchange to respond on: an open one, or one opened only for the error response. `None` if no response is
        /// possible: the peer has closed the connection, its first bytes are of no known protocol, or a response is
        /// already under way.
        stream: Option<StreamId>,
        /// The reason.
        fault: F,
    },
    /// The connection is over: the peer violated the protocol or disappeared. Every exchange ends. The driver writes
    /// the pending output and closes the connection.
    Broken,
}

/// An event of a client's machine. Ranges are indices into the `input` argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientEvent<F> {
    /// An interim response (1xx) is in the caller's `head`; the final head follows.
    Interim {
        /// The exchange that it belongs to.
        stream: StreamId,
    },
    /// The final head is in the caller's `head`. With [`BodyLength::None`] the response is complete; over FastCGI an
    /// [`End`](Self::End) follows when the application is done. If the request offered another protocol, the response
    /// may have made the exchange a tunnel; then the length is unknown.
    Head {
        /// The exchange that it belongs to.
        stream: StreamId,
        /// The framing of the content that follows.
        body: BodyLength,
    },
    /// Content bytes, or bytes received through a tunnel; as [`ServerEvent::Data`].
    Data {
        /// The exchange that the bytes belong to.
        stream: StreamId,
        /// The position of the bytes in `input`; never empty.
        range: Range<usize>,
    },
    /// A trailer section with at least one field; it replaces the fields of the caller's `head`. The response is
    /// complete.
    Trailers {
        /// The exchange whose response is complete.
        stream: StreamId,
    },
    /// A response's content is complete, without trailers. For a tunnel: the peer has closed its sending side.
    End {
        /// The exchange whose response is complete.
        stream: StreamId,
    },
    /// Text for the operator's log, apart from the response (FastCGI's STDERR).
    Diagnostics {
        /// The exchange that it belongs to.
        stream: StreamId,
        /// The position of the text in `input`; never empty.
        range: Range<usize>,
    },
    /// The exchange is over: the server reset it, or violated a rule and received a reset.
    Reset {
        /// The exchange that is over.
        stream: StreamId,
        /// The reason of the reset.
        fault: F,
    },
    /// The exchange is over without any part of a response. In HTTP/2 the server has not processed the request, so it
    /// may be retried (RFC 9113 §8.7). In HTTP/1.1 the connection ended before a byte of a response arrived: most
    /// likely the server closed a reused connection while the request was in transit, but this is not certain, so only
    /// an idempotent request may be retried (RFC 9112 §9.3.1).
    Unprocessed {
        /// The exchange that failed.
        stream: StreamId,
        /// The reason of a reset that states it; `None` by GOAWAY, or because the connection ended.
        fault: Option<F>,
    },
    /// The server is shutting the connection down: no further exchange can be opened. It still responds to those it has
    /// accepted.
    GoAway {
        /// The reason that it gave.
        fault: F,
    },
    /// The connection failed, and every open exchange with it. An incomplete response stays incomplete; its reader must
    /// not treat it as complete.
    Broken {
        /// The server's violation; `None` if the connection ended without one.
        fault: Option<F>,
    },
}

impl<F> ServerEvent<F> {
    /// Converts the fault.
    #[inline]
    pub fn map_fault<G>(self, map: impl FnOnce(F) -> G) -> ServerEvent<G> {
        match self {
            Self::Head { stream, body, upgrade } => ServerEvent::Head { stream, body, upgrade },
            Self::Data { stream, range } => ServerEvent::Data { stream, range },
            Self::Trailers { stream } => ServerEvent::Trailers { stream },
            Self::End { stream } => ServerEvent::End { stream },
            Self::Reset { stream } => ServerEvent::Reset { stream },
            Self::Fault { stream, fault } => ServerEvent::Fault { stream, fault: map(fault) },
            Self::Broken => ServerEvent::Broken,
        }
    }
}

impl<F> ClientEvent<F> {
    /// Converts the fault.
    #[inline]
    pub fn map_fault<G>(self, map: impl FnOnce(F) -> G) -> ClientEvent<G> {
        match self {
            Self::Interim { stream } => ClientEvent::Interim { stream },
            Self::Head { stream, body } => ClientEvent::Head { stream, body },
            Self::Data { stream, range } => ClientEvent::Data { stream, range },
            Self::Trailers { stream } => ClientEvent::Trailers { stream },
            Self::End { stream } => ClientEvent::End { stream },
            Self::Diagnostics { stream, range } => ClientEvent::Diagnostics { stream, range },
            Self::Reset { stream, fault } => ClientEvent::Reset { stream, fault: map(fault) },
            Self::Unprocessed { stream, fault } => ClientEvent::Unprocessed { stream, fault: fault.map(map) },
            Self::GoAway { fault } => ClientEvent::GoAway { fault: map(fault) },
            Self::Broken { fault } => ClientEvent::Broken { fault: fault.map(map) },
        }
    }
}

/// The reason why an exchange did not begin. No byte was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// As many exchanges as the connection allows are open; retry after one has ended.
    Full,
    /// The connection accepts no further request.
    Ending,
    /// The head has no target or no authority, they do not fit the method or the framing, one of its names is not a
    /// token, or it needs an extension that the server does not offer (RFC 8441).
    Head,
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "as many exchanges as the connection allows are open",
            Self::Ending => "the connection accepts no further request",
            Self::Head => "the request head cannot be sent on this connection",
        })
    }
}

impl Error for OpenError {}

/// The URI scheme of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// Cleartext.
    Http,
    /// Over TLS.
    Https,
}

impl Scheme {
    /// Returns the scheme as in a URI.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

//! Why a call has no response.

use std::error::Error;
use std::fmt;
use std::io;

use super::FailureKind;
use crate::body::BodyError;

/// Why a call has no response.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The address could not be resolved: the reason, such as the system's text "Name or service not known".
    Resolve(Box<str>),
    /// The connection was refused, or could not be established.
    Connect(io::ErrorKind),
    /// The connection was not established in time.
    ConnectTimedOut,
    /// The network proxy did not reach the upstream: its reason.
    NetworkProxy(String),
    /// The TLS handshake failed.
    Tls(String),
    /// The connection limit is reached, and the queue of waiting calls is full.
    Busy,
    /// The connection limit is reached, and the call has waited as long as it may.
    QueueTimedOut,
    /// This process, or the system, has as many descriptors open as it may (EMFILE, ENFILE).
    NoDescriptors,
    /// The upstream reported that it lacks a resource for the request (FastCGI's FCGI_OVERLOADED).
    Overloaded,
    /// The upstream did not process the request: a GOAWAY with an earlier last stream (RFC 9113 §8.7).
    Unprocessed,
    /// The upstream closed the connection before its response.
    Closed,
    /// The stream was reset by the upstream, or because it violated the protocol; the name of the code (RFC 9113 §7).
    Reset(&'static str),
    /// As `Closed`, with the upstream's reason.
    Aborted(String),
    /// The upstream sent none of an awaited body, or accepted none of a request, for too long.
    Stalled,
    /// The upstream violated the protocol, by this.
    Malformed(&'static str),
    /// The response's head or trailers exceed the limit.
    TooLarge,
    /// The response's head did not arrive in time.
    HeadTimedOut,
    /// The request cannot be expressed in the upstream's protocol.
    Request,
    /// The request body failed; the call's stream is reset, or its connection closed.
    RequestBody(BodyError),
}

impl CallError {
    /// The reason of [`Self::Resolve`] for a name without an address, or without one of the wanted family.
    pub const NO_ADDRESS: &str = "found no address of this name";

    /// The error of a failed lookup by the system's resolver, in the resolver's words.
    pub fn from_lookup(error: &io::Error) -> Self {
        let reason = error.to_string();
        // The standard library writes this before each text of the system.
        let reason = reason.strip_prefix("failed to lookup address information: ").unwrap_or(&reason);
        Self::Resolve(reason.into())
    }

    /// The error of a lookup whose thread ended without a result.
    pub fn lookup_lost() -> Self {
        Self::Resolve("the lookup ended without a result".into())
    }

    /// Returns the kind of failure for the log, `None` if the client caused it. `is_headed` is whether the response's
    /// head had arrived.
    pub fn kind(&self, is_headed: bool) -> Option<FailureKind> {
        Some(match self {
            // A request that cannot be forwarded would count against an upstream that never got it.
            Self::RequestBody(_) | Self::Request => return None,
            _ if is_headed => FailureKind::BrokenOff,
            Self::Resolve(_) | Self::Connect(_) | Self::ConnectTimedOut | Self::NetworkProxy(_) | Self::Tls(_) => {
                FailureKind::Unreachable
            }
            Self::Busy | Self::QueueTimedOut | Self::NoDescriptors | Self::Overloaded => FailureKind::Unavailable,
            Self::HeadTimedOut | Self::Stalled => FailureKind::TimedOut,
            Self::Unprocessed
            | Self::Closed
            | Self::Reset(_)
            | Self::Aborted(_)
            | Self::Malformed(_)
            | Self::TooLarge => FailureKind::NoResponse,
        })
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(reason) => write!(f, "looking up the address: {reason}"),
            // Only a Unix socket can be missing; for a host that is unknown the lookup fails.
            Self::Connect(io::ErrorKind::NotFound) => f.write_str("connecting: the socket does not exist"),
            Self::Connect(kind) => write!(f, "connecting: {kind}"),
            Self::ConnectTimedOut => f.write_str("connecting took too long"),
            Self::NetworkProxy(reason) => write!(f, "the network proxy: {reason}"),
            Self::Tls(reason) => write!(f, "TLS handshake: {reason}"),
            Self::Busy => f.write_str("too many connections and waiting calls"),
            Self::QueueTimedOut => f.write_str("no connection became free in time"),
            Self::NoDescriptors => f.write_str("this server has too many files and connections open"),
            Self::Overloaded => f.write_str("the upstream is overloaded"),
            Self::Unprocessed => f.write_str("the upstream ended the connection without processing the request"),
            Self::Closed => f.write_str("the connection closed before the response"),
            Self::Reset(code) => write!(f, "the stream was reset: {code}"),
            Self::Aborted(reason) => write!(f, "the connection closed before the response: {reason}"),
            Self::Stalled => f.write_str("no data was transferred in time"),
            Self::TooLarge => {
                f.write_str("the response's head or trailers exceed the limit that max_response_header sets")
            }
            Self::Malformed(error) => write!(f, "the upstream violated the protocol: {error}"),
            Self::HeadTimedOut => f.write_str("the response did not start in time"),
            Self::Request => f.write_str("the request cannot be expressed in the upstream's protocol"),
            Self::RequestBody(error) => write!(f, "reading the request body: {error}"),
        }
    }
}

impl Error for CallError {}

//! Handlers, matchers, and what they may say.

use std::borrow::Cow;
use std::fmt;

use causeway_message::{Chunk, StatusCode};

use crate::body::{Body, BodyFault, BodyStream};
use crate::context::Context;
use crate::outcome::Outcome;
use crate::route::RoutesId;
use crate::wait::Wait;

/// One link of a route's chain. Shared by all workers; what changes per worker lives in a slot allotted at build
/// ([`crate::Build::state`]). Handlers never call each other: the interpreter in [`crate::route`] does.
pub trait Handler: Send + Sync + 'static {
    /// On the way in.
    fn enter(&self, cx: &mut Context) -> Step;

    /// On the way back, for every handler that said [`Step::Next`] or [`Step::Call`] before the answer was found.
    fn leave(&self, _cx: &mut Context, response: Response) -> Step {
        Step::Respond(response)
    }

    /// On the way back when something behind this handler failed.
    fn failed(&self, _cx: &mut Context, fault: Fault) -> Step {
        Step::Fail(fault)
    }

    /// The exchange is over on the wire. For every handler that was entered, in the order of entering.
    fn end(&self, _cx: &Context, _outcome: &Outcome) {}
}

/// A condition of a route. Evaluated when the chain reaches the route, so it sees what earlier handlers changed.
pub trait Matcher: Send + Sync + 'static {
    /// Whether the request matches.
    ///
    /// # Errors
    /// A [`Stop`], when that cannot be said or not yet.
    fn matches(&self, cx: &mut Context) -> Matched;

    /// What it can match at all, as far as that is known at load.
    fn reach(&self) -> Reach<'_> {
        Reach::All
    }
}

/// Whether a request matches; or why that is not known.
pub type Matched = Result<bool, Stop>;

/// Why a matcher gives no answer.
#[derive(Debug)]
pub enum Stop {
    /// Ends the chain; the error routes come next.
    Fail(Fault),
    /// The answer has to be waited for; made by [`Context::wait_to_match`] only.
    Wait(Wait),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fail(fault)
    }
}

/// The requests that a matcher can match: with it a long route list is looked up instead of walked. It may promise too much,
/// never too little.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach<'m> {
    /// Any request.
    All,
    /// Requests for one of these hosts; a label may be `*`, letters count in any case.
    Hosts(Vec<&'m str>),
    /// Requests for one of these paths, in any case, when the path is plain ([`Context::path_is_plain`]).
    Paths(Vec<PathReach<'m>>),
}

/// Paths, decoded, letters in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathReach<'m> {
    /// This one.
    Exact(&'m str),
    /// All that begin so.
    Prefix(&'m str),
}

/// What a handler decides.
#[derive(Debug)]
pub enum Step {
    /// The next handler of the chain.
    Next,
    /// The answer; earlier handlers see it on its way back.
    Respond(Response),
    /// The error routes, or the default answer for the fault's status.
    Fail(Fault),
    /// Run these routes, then go on behind this handler.
    Call(RoutesId),
    /// Close the connection (HTTP/2: reset the stream) without an answer.
    Abort,
    /// Wait for a future; made by [`Context::wait`] only.
    Wait(Wait),
}

/// An answer: its status and body. Its fields live in the context ([`Context::response_mut`]), so that a handler may
/// write them before the body's handler runs, and they survive into the error routes.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The content.
    pub body: Body,
}

impl Response {
    /// An answer without content.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, body: Body::Empty }
    }

    /// An answer whose content is one chunk.
    pub fn chunk(status: StatusCode, chunk: Chunk) -> Self {
        Self { status, body: Body::Chunk(chunk) }
    }

    /// An answer whose content is produced while it is sent.
    pub fn stream(status: StatusCode, stream: impl BodyStream + 'static) -> Self {
        Self { status, body: Body::Stream(Box::new(stream)) }
    }

    /// Gives the connection (HTTP/2: the stream) over to another protocol (RFC 9110 §7.8, RFC 8441): from here on the
    /// request body is the raw inbound octets and `outbound` the raw outbound ones. The caller sets the `Upgrade` field;
    /// the machine does what else its version asks for.
    pub fn switch(outbound: impl BodyStream + 'static) -> Self {
        Self { status: StatusCode::SWITCHING_PROTOCOLS, body: Body::Tunnel(Box::new(outbound)) }
    }
}

/// Something went wrong while handling; reaches one request.
#[derive(Debug, Clone)]
pub struct Fault {
    /// What the peer is told, unless an error route says otherwise.
    pub status: StatusCode,
    /// Why, for error routes and records.
    pub reason: Reason,
}

/// Why an exchange failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The status says it all.
    Status,
    /// A handler's own words.
    Text(Cow<'static, str>),
    /// The system refused.
    Io(std::io::ErrorKind),
    /// The request's body could not be read.
    Body(BodyFault),
    /// The time that the exchange was given is over.
    Deadline,
    /// A handler panicked.
    Panic,
    /// The blocking pool's queue is full.
    Busy,
    /// More handlers or nested routes than [`crate::route::ENTERED_MAX`] and [`crate::route::CALLS_MAX`] allow.
    TooDeep,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Io(kind) => kind.fmt(f),
            Self::Body(fault) => write!(f, "reading the request body: {fault}"),
            Self::Deadline => f.write_str("the time for the answer is over"),
            Self::Panic => f.write_str("a handler panicked"),
            Self::Busy => f.write_str("the queue of blocking work is full"),
            Self::TooDeep => f.write_str("too many handlers or nested routes"),
        }
    }
}

impl Fault {
    /// A fault that its status explains.
    pub fn status(status: StatusCode) -> Self {
        Self { status, reason: Reason::Status }
    }

    /// A fault of the file system, with the status that Caddy's file server gives it.
    pub fn io(error: &std::io::Error) -> Self {
        // Linux's numbers for what `ErrorKind` has no stable name for: out of descriptors (of the process, of the system), a
        // loop of symlinks.
        const EMFILE: i32 = 24;
        const ENFILE: i32 = 23;
        const ELOOP: i32 = 40;
        let status = match error.kind() {
            _ if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => StatusCode::SERVICE_UNAVAILABLE,
            _ if error.raw_os_error() == Some(ELOOP) => StatusCode::NOT_FOUND,
            std::io::ErrorKind::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory | std::io::ErrorKind::InvalidFilename => {
                StatusCode::NOT_FOUND
            }
            std::io::ErrorKind::PermissionDenied => StatusCode::FORBIDDEN,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, reason: Reason::Io(error.kind()) }
    }

    /// The pool that may block is full: 503.
    pub fn busy() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, reason: Reason::Busy }
    }

    /// The time that the exchange was given ([`Context::set_deadline`]) is over: 504.
    pub fn deadline() -> Self {
        Self { status: StatusCode::GATEWAY_TIMEOUT, reason: Reason::Deadline }
    }

    /// A request body that ended before its end.
    pub fn body(fault: BodyFault) -> Self {
        let status = match fault {
            BodyFault::TooLarge => StatusCode::CONTENT_TOO_LARGE,
            BodyFault::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Malformed | BodyFault::PeerGone => StatusCode::BAD_REQUEST,
            BodyFault::Source => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, reason: Reason::Body(fault) }
    }
}

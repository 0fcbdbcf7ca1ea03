//! The traits [`Handler`] and [`Matcher`], and the values that they return.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;

use causeway_message::{Chunk, StatusCode};

use crate::body::{Body, BodyError, BodyStream};
use crate::context::Context;
use crate::outcome::Outcome;
use crate::route::{ROUTED_METHOD_BYTES_MAX, RoutesId};
use crate::wait::Wait;

/// One link of a route's chain. All workers share it; per-worker state lives in a slot that is allotted at build
/// ([`crate::Build::allocate_state`]). Handlers never call each other: the interpreter in [`crate::route`] calls them.
pub trait Handler: Send + Sync + 'static {
    /// Processes the request, in the order of the chain.
    fn enter(&self, cx: &mut Context) -> Step;

    /// Processes the response, in the reverse order of [`enter`](Self::enter). Runs for every handler that returned
    /// [`Step::Next`] or [`Step::Run`] before the chain reached a response.
    fn leave(&self, _cx: &mut Context, response: Response) -> Step {
        Step::Respond(response)
    }

    /// Processes a fault of a later handler, in place of [`leave`](Self::leave).
    fn failed(&self, _cx: &mut Context, fault: Fault) -> Step {
        Step::Fail(fault)
    }

    /// Returns whether [`leave`](Self::leave) reads the whole content of a response with this Content-Type. Later
    /// handlers that can choose then respond with content that is neither encoded nor partial
    /// ([`Context::is_content_read`]).
    fn reads_content(&self, _content_type: &[u8]) -> bool {
        false
    }

    /// Returns whether this handler, as a server's first one, is also entered for requests that are rejected before all
    /// routes.
    fn sees_rejected(&self) -> bool {
        false
    }

    /// Returns whether the server itself adds this handler. The log of handlers leaves it out, because the operator has
    /// not configured it.
    fn is_internal(&self) -> bool {
        false
    }

    /// Runs when the exchange is over on the wire: once for every handler that was entered, in the order of entry.
    fn end(&self, _cx: &Context, _outcome: &Outcome) {}
}

/// A condition of a route. The interpreter evaluates it when the chain reaches the route, so it sees the changes of
/// earlier handlers.
pub trait Matcher: Send + Sync + 'static {
    /// Returns whether the request matches.
    ///
    /// # Errors
    /// A [`Stop`] when evaluation fails, or has to wait for a future.
    fn matches(&self, cx: &mut Context) -> Matched;

    /// Returns a superset of the requests that can match, as far as that is known at load. The route index uses it.
    fn reach(&self) -> Reach<'_> {
        Reach::All
    }
}

/// The result of a matcher: whether the request matches, or why the matcher could not decide.
pub type Matched = Result<bool, Stop>;

/// Why a matcher could not decide.
#[derive(Debug)]
pub enum Stop {
    /// The matcher failed: ends the chain and runs the error routes.
    Fail(Fault),
    /// The matcher waits for a future; only [`Context::wait_to_match`] creates it.
    Wait(Wait),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fail(fault)
    }
}

/// The requests that a matcher can match. The index of a long route list looks routes up by it, in place of walking
/// the list. It may include requests that do not match; it must not exclude one that does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach<'m> {
    /// Any request.
    All,
    /// Requests for one of these hosts. A label may be `*`; comparison ignores case.
    Hosts(Vec<&'m str>),
    /// Requests for one of these paths, if the path is plain ([`Context::path_is_plain`]). Comparison ignores case.
    Paths(Vec<PathReach<'m>>),
}

/// A set of percent-decoded paths. Comparison ignores case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathReach<'m> {
    /// This path only.
    Exact(&'m str),
    /// All paths that start with this text.
    Prefix(&'m str),
}

/// The next step of the interpreter, as returned by a handler.
#[derive(Debug)]
pub enum Step {
    /// Continue with the next handler of the chain.
    Next,
    /// Respond; earlier handlers process the response in [`Handler::leave`].
    Respond(Response),
    /// Fail: run the error routes, or respond with the fault's status if there are none.
    Fail(Fault),
    /// Run the routes of this list, then continue with the handler after this one.
    Run(RoutesId),
    /// Close the connection (HTTP/2: reset the stream) without a response.
    Abort,
    /// Wait for a future; only [`Context::wait`] creates it.
    Wait(Wait),
}

/// A response: its status and body. Its fields live in the context ([`Context::response_mut`]), so that a handler can
/// set them before another one produces the body, and so that they survive into the error routes.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: StatusCode,
    /// The content.
    pub body: Body,
}

impl Response {
    /// Creates a response without content.
    pub fn empty(status: StatusCode) -> Self {
        Self { status, body: Body::Empty }
    }

    /// Creates a response whose content is one chunk.
    pub fn chunk(status: StatusCode, chunk: Chunk) -> Self {
        Self { status, body: Body::Chunk(chunk) }
    }

    /// Creates a response whose content is produced while it is sent.
    pub fn stream(status: StatusCode, stream: impl BodyStream + 'static) -> Self {
        Self { status, body: Body::Stream(Box::new(stream)) }
    }

    /// Switches the connection (HTTP/2: the stream) to another protocol (RFC 9110 §7.8, RFC 8441). From here on the
    /// request body is the raw inbound bytes and `outbound` the raw outbound bytes. The caller sets the `Upgrade`
    /// field; the protocol machine does the rest that its version requires.
    pub fn switch(outbound: impl BodyStream + 'static) -> Self {
        Self { status: StatusCode::SWITCHING_PROTOCOLS, body: Body::tunnel(Chunk::default(), outbound) }
    }
}

/// A failure of one request; other requests of the connection are not affected.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The status of the response, unless an error route chooses another one.
    pub status: StatusCode,
    /// The cause, for error routes and records.
    pub reason: Reason,
}

/// Why an exchange failed.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reason {
    /// The status is the whole explanation.
    Status,
    /// A message from the handler.
    Text(Cow<'static, str>),
    /// A system call failed.
    Io(std::io::ErrorKind),
    /// The request body could not be read.
    Body(BodyError),
    /// The deadline of the exchange passed.
    Deadline,
    /// The queue of blocking work is full.
    Busy,
    /// The method is longer than the ones that routes get.
    MethodTooLong,
    /// The request exceeded [`crate::route::ENTERED_MAX`] handlers or [`crate::route::NESTED_LISTS_MAX`] nested route
    /// lists.
    TooDeep,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => Ok(()),
            Self::Text(text) => f.write_str(text),
            Self::Io(kind) => kind.fmt(f),
            Self::Body(error) => write!(f, "reading the request body: {error}"),
            Self::Deadline => f.write_str("the deadline for the response has passed"),
            Self::Busy => f.write_str("the queue of blocking work is full"),
            Self::MethodTooLong => write!(f, "the method is longer than {ROUTED_METHOD_BYTES_MAX} bytes"),
            Self::TooDeep => f.write_str("too many handlers or nested routes"),
        }
    }
}

/// The fault's message; the text of the status if it has none, as in Caddy.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.reason {
            Reason::Status => f.write_str(self.status.reason()),
            reason => reason.fmt(f),
        }
    }
}

impl Error for Fault {}

/// The id of a fault, on an error page and in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FaultId(pub(crate) u64);

impl FaultId {
    /// The id as text: nine characters of a 32-letter alphabet without look-alikes, as Caddy's.
    #[must_use]
    pub fn text(self) -> [u8; 9] {
        const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
        std::array::from_fn(|at| LETTERS[(self.0 >> (at * 5)) as usize & 31])
    }
}

impl Fault {
    /// Creates a fault with no explanation beyond its status.
    pub fn from_status(status: StatusCode) -> Self {
        Self { status, reason: Reason::Status }
    }

    /// Returns whether the request is at fault, and not this server or an upstream.
    #[must_use]
    pub fn is_of_request(&self) -> bool {
        self.status.as_u16() < 500 || matches!(self.reason, Reason::MethodTooLong)
    }

    /// Creates the fault for a full queue of blocking work: 503.
    pub fn busy() -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, reason: Reason::Busy }
    }

    /// Creates the fault for an exchange whose deadline ([`Context::set_deadline`]) has passed: 504.
    pub fn deadline() -> Self {
        Self { status: StatusCode::GATEWAY_TIMEOUT, reason: Reason::Deadline }
    }

    /// Creates the fault for a request body that failed: 413, 408, 400 or 500, by the kind of failure.
    pub fn from_body_error(error: BodyError) -> Self {
        let status = match error {
            BodyError::TooLarge => StatusCode::CONTENT_TOO_LARGE,
            BodyError::TimedOut => StatusCode::REQUEST_TIMEOUT,
            BodyError::Malformed | BodyError::PeerGone => StatusCode::BAD_REQUEST,
            BodyError::Source => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, reason: Reason::Body(error) }
    }
}

//! Calls to other servers: a request and its response.
//!
//! ```text
//! handler:  CallPool::take ─► Call ─ request, body ─► send ─► poll_event: Interim … Head ─► into_body
//!                                │                                  ▲
//! engine:                     EngineCall ─ connects, writes, reads ─┘
//! ```
//! A call is one shared state with two handles: [`Call`] is the handler's, [`EngineCall`] the engine's. Dropping either
//! handle notifies the other one. Each worker keeps a pool of these states.
//!
//! - `transport`: versions, TLS and limits of calls
//! - `error`: why a call has no response
//! - `report`: log lines for failed calls
//! - `status`: the state of an upstream that all workers share
//! - `breaker`: an upstream's circuit breaker, part of that state
//! - `limit`: the limit of connections to an address, of all workers

mod breaker;
mod error;
mod limit;
mod report;
mod status;
mod transport;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use causeway_message::{FieldMap, Head, ResponseHead, StatusCode, Version};
use progress::Stamp;

use crate::body::{Body, BodyError, Frame, IncomingBody, Mailbox};
use crate::context::Context;
use crate::handler::Step;
use crate::wait::set_waker;
pub use breaker::{
    BASIS_POINTS, BreakerChange, BreakerPhase, BreakerSettings, CallOutcome, CircuitBreaker, LatencyLimit, Permit,
};
pub use error::CallError;
pub use limit::{ConnectionLimits, ConnectionSlot, LimitMembership};
pub use report::{FailureKind, StderrLevel, report_failure, report_stderr};
pub(crate) use status::UpstreamTable;
pub use status::{CheckStatus, FAILURES_MAX, RequestCount, UpstreamStatus};
pub use transport::{
    FastCgi, NetworkProxy, NetworkProxyProtocol, OwnCertificate, ProxyHeader, ProxyProtocolVersion, Roots, TLS_GROUPS,
    TlsClient, UpstreamTransport, Versions,
};

/// Bytes of heads for which a pooled state keeps room.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// Call states that a worker's pool holds.
const CALLS_KEPT_MAX: usize = 1024;

/// The destination of calls. The engine's workers create it ([`crate::Worker::upstream`]).
pub trait Upstream {
    /// Starts a call: on an idle connection, on one that accepts another stream, or on a new one. It never fails or
    /// waits; any failure is reported as the call's result.
    fn start(&self, call: EngineCall);

    /// Returns the pool of call states.
    fn calls(&self) -> &Rc<CallPool>;

    /// Reports a failed call, for an upstream that chooses among several addresses: `attempts` counts those of the
    /// request so far. Returns whether the request, of which nothing was sent, should be sent to another address.
    fn report_failure(&self, _call: &Call, _error: &CallError, _attempts: usize) -> bool {
        false
    }
}

/// A counter of running calls, for example to enforce a limit.
pub trait RunningCallCounter {
    /// A call starts.
    fn begin(&self);
    /// A call ends: its handler has read the whole response, or dropped the call.
    fn end(&self);
}

/// Turns a held response of a call ([`Context::hold_upstream_response`]) into the response of the exchange.
pub trait HeldResponseHandler {
    /// Responds with the call's response, with `status` in place of its own if given.
    fn finish(self: Rc<Self>, cx: &mut Context, call: Call, status: Option<StatusCode>) -> Step;
}

/// Transforms the content of a response body ([`Call::transform_body`]).
pub trait BodyTransform {
    /// Polls for the next transformed frame; reads the original ones by [`Call::poll_content`].
    fn poll_frame(&mut self, call: &Call, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>>;

    /// Returns the bytes of transformed content that remain, if known.
    fn bytes_left(&self) -> Option<u64>;

    /// As [`BodyStream::is_over`](crate::BodyStream::is_over).
    fn is_over(&self) -> bool {
        self.bytes_left() == Some(0)
    }
}

/// An event of a call's response.
#[derive(Debug)]
pub enum CallEvent {
    /// An interim response (RFC 9110 §15.2), such as 103; never 100 or 101.
    Interim(StatusCode, Box<FieldMap>),
    /// The final head has arrived ([`Call::head`]); the body follows.
    Head {
        /// The call is a tunnel: the response is 101, or a 2xx to CONNECT. Inbound bytes are the response body,
        /// outbound bytes are the body that the call was sent with.
        tunnel: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallPhase {
    Open,
    HeadReceived { tunnel: bool },
}

/// The state that both handles share.
struct CallState {
    request: RefCell<Head>,
    /// The parameters of a FastCGI request, encoded.
    parameters: RefCell<Vec<u8>>,
    /// The request body, until the engine takes it.
    body: RefCell<Option<Body>>,
    response: RefCell<ResponseHead>,
    mailbox: RefCell<Mailbox>,
    interims: RefCell<VecDeque<(StatusCode, FieldMap)>>,
    phase: Cell<CallPhase>,
    error: RefCell<Option<CallError>>,
    /// The remote address of the call's connection.
    remote: Cell<Option<SocketAddr>>,
    version: Cell<Version>,
    counter: RefCell<Option<Rc<dyn RunningCallCounter>>>,
    transform: RefCell<Option<Box<dyn BodyTransform>>>,
    reader: RefCell<Option<Waker>>,
    driver: RefCell<Option<Waker>>,
    /// The handler reads the response body.
    taken: Cell<bool>,
    /// The handler dropped its handle.
    given_up: Cell<bool>,
    /// For the profiler: the last notification between the handles.
    stamp: Cell<Stamp>,
    home: Weak<CallPool>,
}

impl CallState {
    fn new(home: &Weak<CallPool>) -> Rc<Self> {
        Rc::new(Self {
            request: RefCell::new(Head::new()),
            parameters: RefCell::default(),
            body: RefCell::default(),
            response: RefCell::new(ResponseHead::new(StatusCode::OK)),
            mailbox: RefCell::default(),
            interims: RefCell::default(),
            phase: Cell::new(CallPhase::Open),
            error: RefCell::default(),
            remote: Cell::default(),
            version: Cell::new(Version::Http11),
            counter: RefCell::default(),
            transform: RefCell::default(),
            reader: RefCell::default(),
            driver: RefCell::default(),
            taken: Cell::default(),
            given_up: Cell::default(),
            stamp: Cell::default(),
            home: home.clone(),
        })
    }

    /// Records a notification to the other handle, for the profiler.
    fn stamp_send(&self) {
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        self.stamp.set(stamp);
    }

    /// Records that this handle continues because of a notification, for the profiler.
    fn stamp_receive(&self) {
        let stamp = self.stamp.take();
        if stamp != Stamp::default() {
            progress::after_receive(stamp, Duration::ZERO);
        }
    }

    fn wake_reader(&self) {
        self.stamp_send();
        let reader = self.reader.borrow_mut().take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    fn wake_driver(&self) {
        let driver = self.driver.borrow_mut().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// Clears the state and keeps its storage.
    fn reset(&self) {
        let mut request = self.request.borrow_mut();
        request.clear();
        request.shrink_to(KEPT_BYTES_MAX);
        let mut parameters = self.parameters.borrow_mut();
        parameters.clear();
        parameters.shrink_to(KEPT_BYTES_MAX);
        let mut response = self.response.borrow_mut();
        response.clear();
        response.shrink_to(KEPT_BYTES_MAX);
        self.mailbox.borrow_mut().reset();
        self.interims.borrow_mut().clear();
        self.phase.set(CallPhase::Open);
        self.error.borrow_mut().take();
        self.remote.set(None);
        self.version.set(Version::Http11);
        self.reader.borrow_mut().take();
        self.driver.borrow_mut().take();
        self.taken.set(false);
        self.given_up.set(false);
        self.stamp.take();
    }
}

/// Returns the state to its pool, if the caller holds its last handle.
fn put_back(state: &Rc<CallState>) {
    if Rc::strong_count(state) > 1 {
        return;
    }
    // Dropping a body may drop another call, which borrows the pool: drop it before any borrow.
    let body = state.body.borrow_mut().take();
    drop(body);
    // The worker is gone: the state is freed.
    let Some(calls) = state.home.upgrade() else { return };
    state.reset();
    let mut kept = calls.kept.borrow_mut();
    if kept.len() < CALLS_KEPT_MAX {
        kept.push(Rc::clone(state));
    }
}

/// A worker's pool of call states.
pub struct CallPool {
    kept: RefCell<Vec<Rc<CallState>>>,
    /// The smallest number of pooled states since the last `shrink`, which is the number not needed.
    unused: Cell<usize>,
    this: Weak<Self>,
}

impl CallPool {
    /// Creates an empty pool.
    pub fn new() -> Rc<Self> {
        Rc::new_cyclic(|this| Self { kept: RefCell::default(), unused: Cell::default(), this: this.clone() })
    }

    /// Takes a state from the pool, or allocates one, and returns the handler's handle: an empty head, no body.
    pub fn take(&self) -> Call {
        let mut resting = self.kept.borrow_mut();
        let kept = resting.pop();
        // The low-water mark since the last `shrink`.
        self.unused.set(self.unused.get().min(resting.len()));
        drop(resting);
        Call(kept.unwrap_or_else(|| CallState::new(&self.this)))
    }

    /// Frees half of the states that were not needed since the last call. The engine calls it every few seconds.
    pub fn shrink(&self) {
        let mut kept = self.kept.borrow_mut();
        let surplus = self.unused.get().min(kept.len()).div_ceil(2);
        let left = kept.len() - surplus;
        kept.truncate(left);
        self.unused.set(left);
    }

    /// Returns the number of states in use. Each state has one weak reference to the pool, as has the pool itself.
    pub fn lent(&self) -> usize {
        self.this.weak_count() - 1 - self.pooled_len()
    }

    /// Returns the number of pooled states.
    pub fn pooled_len(&self) -> usize {
        self.kept.borrow().len()
    }
}

/// The handler's handle to a call. Dropping it cancels the call: its stream is reset, or its connection closed.
pub struct Call(Rc<CallState>);

impl Call {
    /// Returns the request head, to fill with the method, target, `Host` and other fields. The engine adds the
    /// framing and connection fields.
    pub fn request_mut(&self) -> RefMut<'_, Head> {
        self.0.request.borrow_mut()
    }

    /// Returns the request head.
    pub fn request(&self) -> Ref<'_, Head> {
        self.0.request.borrow()
    }

    /// Returns the buffer for the parameters of a FastCGI request, encoded as the protocol's name-value pairs; empty in
    /// a new call.
    pub fn parameters_mut(&self) -> RefMut<'_, Vec<u8>> {
        self.0.parameters.borrow_mut()
    }

    /// Sends the request. A body of unknown length is streamed. [`Body::Tunnel`] requests another protocol; its stream
    /// is read once the response has created a tunnel; until then [`take_unsent_body`](Self::take_unsent_body) returns
    /// it.
    pub fn send(&self, body: Body, upstream: &dyn Upstream) {
        *self.0.body.borrow_mut() = Some(body);
        self.0.stamp_send();
        // `start` may fail the call at once, so the state must be complete before it.
        upstream.start(EngineCall(Rc::clone(&self.0)));
    }

    /// Takes the request body back: if the engine has not taken it, or if it is a tunnel's ([`Body::Tunnel`]) and the
    /// upstream has not switched protocols. Nothing of it was read.
    pub fn take_unsent_body(&self) -> Option<Body> {
        self.0.body.borrow_mut().take()
    }

    /// Polls for the next event of the response; call it again after an [`CallEvent::Interim`].
    pub fn poll_event(&self, poll_cx: &mut PollContext<'_>) -> Poll<Result<CallEvent, CallError>> {
        let interim = self.0.interims.borrow_mut().pop_front();
        if let Some((status, fields)) = interim {
            self.0.stamp_receive();
            return Poll::Ready(Ok(CallEvent::Interim(status, Box::new(fields))));
        }
        if let CallPhase::HeadReceived { tunnel } = self.0.phase.get() {
            self.0.stamp_receive();
            return Poll::Ready(Ok(CallEvent::Head { tunnel }));
        }
        if let Some(error) = self.0.error.borrow().as_ref() {
            self.0.stamp_receive();
            return Poll::Ready(Err(error.clone()));
        }
        set_waker(&mut self.0.reader.borrow_mut(), poll_cx.waker());
        Poll::Pending
    }

    /// Returns the response's status and fields; valid after [`CallEvent::Head`].
    pub fn head(&self) -> Ref<'_, ResponseHead> {
        self.0.response.borrow()
    }

    /// Returns the response's status and fields, to change them before they are forwarded.
    pub fn head_mut(&self) -> RefMut<'_, ResponseHead> {
        self.0.response.borrow_mut()
    }

    /// Returns the HTTP version of the response; HTTP/1.1 until the engine sets it.
    pub fn version(&self) -> Version {
        self.0.version.get()
    }

    /// Counts the call with `counter` until this handle, or the body made from it, is dropped. Replaces, and ends, an
    /// earlier counter.
    pub fn set_counter(&self, counter: Rc<dyn RunningCallCounter>) {
        counter.begin();
        let before = self.0.counter.borrow_mut().replace(counter);
        if let Some(before) = before {
            before.end();
        }
    }

    /// Returns the call's remote address: once it is connected, or once one of several addresses of a name is chosen.
    /// `None` for a Unix socket.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.remote.get()
    }

    /// Converts the call to the body of its response. From here on a tunnel's outbound content is read, so the caller
    /// has to respond with [`crate::Response::switch`] before any other handler runs.
    pub fn into_body(self) -> IncomingBody {
        self.0.taken.set(true);
        if self.0.phase.get() == (CallPhase::HeadReceived { tunnel: true }) {
            self.0.wake_driver();
        }
        IncomingBody::of_call(self)
    }

    /// Polls for the next original frame of the response body.
    pub fn poll_content(&self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.0.taken.set(true);
        self.0.mailbox.borrow().poll_frame(poll_cx)
    }

    /// Returns the bytes of original content that remain, if known.
    pub fn content_len(&self) -> Option<u64> {
        self.0.mailbox.borrow().len()
    }

    /// Replaces the response body by the output of `transform`, for readers from now on.
    pub fn transform_body(&self, transform: Box<dyn BodyTransform>) {
        *self.0.transform.borrow_mut() = Some(transform);
    }

    pub(crate) fn poll_transformed(&self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match &mut *self.0.transform.borrow_mut() {
            Some(transform) => transform.poll_frame(self, poll_cx),
            None => self.0.mailbox.borrow().poll_frame(poll_cx),
        }
    }

    pub(crate) fn is_transformed_over(&self) -> bool {
        match &*self.0.transform.borrow() {
            Some(transform) => transform.is_over(),
            None => self.0.mailbox.borrow().is_over(),
        }
    }

    pub(crate) fn transformed_len(&self) -> Option<u64> {
        match &*self.0.transform.borrow() {
            Some(transform) => transform.bytes_left(),
            None => self.0.mailbox.borrow().len(),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.given_up.set(true);
        // Dropped here: the transformed body has no reader any more.
        let transform = self.0.transform.borrow_mut().take();
        drop(transform);
        let counter = self.0.counter.borrow_mut().take();
        if let Some(counter) = counter {
            counter.end();
        }
        // A call that waits for a connection may hold its body for a long time: drop it now.
        let body = self.0.body.borrow_mut().take();
        drop(body);
        self.0.wake_driver();
        put_back(&self.0);
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({:?})", self.0.phase.get())
    }
}

/// The engine's handle to a call. Dropping it before the end of the response fails the call.
pub struct EngineCall(Rc<CallState>);

impl EngineCall {
    /// Returns the request head.
    pub fn request(&self) -> Ref<'_, Head> {
        self.0.request.borrow()
    }

    /// Returns the parameters of a FastCGI request.
    pub fn parameters(&self) -> Ref<'_, [u8]> {
        Ref::map(self.0.parameters.borrow(), Vec::as_slice)
    }

    /// Records for the profiler that the engine starts the call.
    pub fn note_started(&self) {
        self.0.stamp_receive();
    }

    /// As [`note_started`](Self::note_started), for a call that waited until another one ended.
    pub fn note_dequeued(&self) {
        progress::after_queue(self.0.stamp.take());
    }

    /// Takes the request body; `None` if it was taken before.
    pub fn take_body(&self) -> Option<Body> {
        self.0.body.borrow_mut().take()
    }

    /// Puts back a body that [`take_body`](Self::take_body) returned and from which no frame was read, so that another
    /// call can send it.
    pub fn put_body(&self, body: Body) {
        *self.0.body.borrow_mut() = Some(body);
    }

    /// Returns whether the handler dropped the call.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.get()
    }

    /// Returns whether the handler reads the response body.
    pub fn is_taken(&self) -> bool {
        self.0.taken.get()
    }

    /// Registers the waker to wake when the handler drops the call, or starts to read a tunnel.
    pub fn register(&self, driver: &Waker) {
        set_waker(&mut self.0.driver.borrow_mut(), driver);
    }

    /// Sets the remote address of the connection.
    pub fn set_remote(&self, remote: SocketAddr) {
        self.0.remote.set(Some(remote));
    }

    /// Sets the HTTP version of the connection.
    pub fn set_version(&self, version: Version) {
        self.0.version.set(version);
    }

    /// Delivers an interim response.
    pub fn put_interim(&self, status: StatusCode, fields: FieldMap) {
        self.0.interims.borrow_mut().push_back((status, fields));
        self.0.wake_reader();
    }

    /// Delivers the final head and leaves an empty one in `head`. `length` is the content's length in bytes, if
    /// known.
    pub fn put_head(&self, head: &mut ResponseHead, length: Option<u64>, tunnel: bool) {
        std::mem::swap(&mut *self.0.response.borrow_mut(), head);
        if let Some(bytes) = length {
            // Before the wakeup, because the reader uses the length.
            self.mailbox().announce(bytes);
        }
        self.0.phase.set(CallPhase::HeadReceived { tunnel });
        self.0.wake_reader();
    }

    /// Returns whether the final head was delivered.
    pub fn is_headed(&self) -> bool {
        self.0.phase.get() != CallPhase::Open
    }

    /// Returns the mailbox for the response body.
    pub fn mailbox(&self) -> Ref<'_, Mailbox> {
        self.0.mailbox.borrow()
    }

    /// Fails the call. Before the head, the handler gets `error`. After it, the response body ends with
    /// [`BodyError::Malformed`] if the upstream violated the protocol or a limit, otherwise with
    /// [`BodyError::PeerGone`].
    pub fn fail(&self, error: CallError) {
        if self.is_headed() {
            let is_malformed = matches!(error, CallError::Malformed(_) | CallError::TooLarge);
            let broken = if is_malformed { BodyError::Malformed } else { BodyError::PeerGone };
            return self.mailbox().fail(broken);
        }
        self.0.error.borrow_mut().get_or_insert(error);
        self.0.wake_reader();
    }
}

impl Drop for EngineCall {
    fn drop(&mut self) {
        // Has no effect if the response body is complete.
        self.fail(CallError::Closed);
        // No handle is left that a cancellation would have to wake.
        self.0.driver.borrow_mut().take();
        put_back(&self.0);
    }
}

impl fmt::Debug for EngineCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EngineCall({:?})", self.0.phase.get())
    }
}

#[cfg(test)]
mod tests;

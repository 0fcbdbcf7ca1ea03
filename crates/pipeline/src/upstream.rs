//! Calls to other servers: a request of ours, and its answer.
//!
//! ```text
//! handler:  Upstream::begin ─► Call ─ request, body ─► send ─► poll_answer: Interim … Head ─► into_body
//!                                │                                  ▲
//! engine:                     Carried ─ connects, writes, reads ────┘
//! ```
//! A call is one record with two handles, as a request's body is: [`Call`] is the handler's, [`Carried`] the engine's. Whoever
//! drops its own tells the other one. The record's storage is the worker's and is used again.
//!
//! - `transport`: how calls are carried

mod transport;

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use causeway_message::{FieldMap, Head, ResponseHead, StatusCode, Version};
use progress::Stamp;

use crate::body::{Body, BodyFault, Frame, IncomingBody, Mailbox};
use crate::context::Context;
use crate::handler::Step;
pub use transport::{Roots, TlsClient, Transport, Versions};

/// Octets of heads that a record at rest keeps room for.
const KEPT_OCTETS_MAX: usize = 16 * 1024;
/// Records that a worker keeps for later calls.
const CALLS_KEPT_MAX: usize = 1024;

/// A place that calls go to. The engine's workers make it ([`crate::Worker::upstream`]).
pub trait Upstream {
    /// Carries a call: on an idle connection, on one that has room, or on a new one. What comes of it, the call's own answer
    /// says. Never fails here, never waits.
    fn carry(&self, call: Carried);

    /// A record for a call.
    fn calls(&self) -> &Rc<Calls>;

    /// What a call failed by, for whoever chooses between addresses.
    fn heed(&self, _fault: &CallFault) {}
}

/// Somebody who keeps count of calls, as for a limit.
pub trait Tally {
    /// A call begins.
    fn begin(&self);
    /// Its handler has its answer whole, or gave it up.
    fn end(&self);
}

/// Somebody who makes an exchange's answer of a call's that was left for later ([`Context::hold_answer`]).
pub trait Finish {
    /// Answers with it; with another status, if one is given.
    fn finish(self: Rc<Self>, cx: &mut Context, call: Call, status: Option<StatusCode>) -> Step;
}

/// Somebody who makes other content of what an answer's body brings ([`Call::make_body`]).
pub trait Maker {
    /// The next frame, made of what [`Call::poll_content`] brings.
    fn poll_frame(&mut self, call: &Call, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>>;

    /// Octets still to come, when known.
    fn octets_left(&self) -> Option<u64>;
}

/// Why a call has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallFault {
    /// Its address could not be looked up.
    Resolve(io::ErrorKind),
    /// Nobody takes connections there.
    Connect(io::ErrorKind),
    /// No connection came about in time.
    ConnectTimedOut,
    /// The TLS handshake failed.
    Tls(String),
    /// As many connections are open as may be, and as many calls wait for one.
    Busy,
    /// The upstream closed, reset, or gave the call up before its answer.
    Closed,
    /// The upstream broke its protocol.
    Malformed,
    /// The answer's head did not come in time.
    HeadTimedOut,
    /// The request cannot be said in the upstream's protocol.
    Request,
    /// The request's body failed; what was sent of it is taken back as far as the protocol can.
    RequestBody(BodyFault),
}

impl fmt::Display for CallFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(kind) => write!(f, "looking up its address: {kind}"),
            Self::Connect(kind) => write!(f, "connecting: {kind}"),
            Self::ConnectTimedOut => f.write_str("connecting took too long"),
            Self::Tls(reason) => write!(f, "TLS handshake: {reason}"),
            Self::Busy => f.write_str("too many connections and waiting calls"),
            Self::Closed => f.write_str("it closed before its answer"),
            Self::Malformed => f.write_str("it broke its protocol"),
            Self::HeadTimedOut => f.write_str("its answer did not begin in time"),
            Self::Request => f.write_str("the request cannot be said in its protocol"),
            Self::RequestBody(fault) => write!(f, "reading the request body: {fault}"),
        }
    }
}

/// What came of a call so far.
#[derive(Debug)]
pub enum Answer {
    /// An answer before the answer (RFC 9110 §15.2): 103 and its like, never 100 and 101.
    Interim(StatusCode, Box<FieldMap>),
    /// The final head is there ([`Call::head`]); the body follows.
    Head {
        /// The exchange became a tunnel: 101, or a 2xx to CONNECT. What comes in is the answer's body; what goes out is what the
        /// call was sent with.
        tunnel: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    Headed { tunnel: bool },
}

/// What both handles share.
struct Record {
    request: RefCell<Head>,
    /// The request's content.
    body: RefCell<Option<Body>>,
    response: RefCell<ResponseHead>,
    mailbox: RefCell<Mailbox>,
    interims: RefCell<VecDeque<(StatusCode, FieldMap)>>,
    phase: Cell<Phase>,
    fault: RefCell<Option<CallFault>>,
    /// Where the connection that carries it leads.
    remote: Cell<Option<SocketAddr>>,
    version: Cell<Version>,
    tally: RefCell<Option<Rc<dyn Tally>>>,
    maker: RefCell<Option<Box<dyn Maker>>>,
    reader: RefCell<Option<Waker>>,
    driver: RefCell<Option<Waker>>,
    /// The answer's body has its reader.
    taken: Cell<bool>,
    given_up: Cell<bool>,
    /// For the profiler: what one handle last told the other.
    stamp: Cell<Stamp>,
    home: Weak<Calls>,
}

impl Record {
    fn new(home: &Weak<Calls>) -> Rc<Self> {
        Rc::new(Self {
            request: RefCell::new(Head::new()),
            body: RefCell::default(),
            response: RefCell::new(ResponseHead::new(StatusCode::OK)),
            mailbox: RefCell::default(),
            interims: RefCell::default(),
            phase: Cell::new(Phase::Open),
            fault: RefCell::default(),
            remote: Cell::default(),
            version: Cell::new(Version::Http11),
            tally: RefCell::default(),
            maker: RefCell::default(),
            reader: RefCell::default(),
            driver: RefCell::default(),
            taken: Cell::default(),
            given_up: Cell::default(),
            stamp: Cell::default(),
            home: home.clone(),
        })
    }

    /// The other handle is told something.
    fn tell(&self) {
        let mut stamp = Stamp::default();
        progress::before_send(&mut stamp);
        self.stamp.set(stamp);
    }

    /// This handle goes on because of what it was told.
    fn hear(&self) {
        let stamp = self.stamp.take();
        if stamp != Stamp::default() {
            progress::after_receive(stamp, Duration::ZERO);
        }
    }

    fn wake_reader(&self) {
        self.tell();
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

    /// Empties the record and keeps its storage.
    fn renew(&self) {
        let mut request = self.request.borrow_mut();
        request.clear();
        request.give_back(KEPT_OCTETS_MAX);
        let mut response = self.response.borrow_mut();
        response.clear();
        response.give_back(KEPT_OCTETS_MAX);
        self.mailbox.borrow_mut().renew();
        self.interims.borrow_mut().clear();
        self.phase.set(Phase::Open);
        self.fault.borrow_mut().take();
        self.remote.set(None);
        self.version.set(Version::Http11);
        self.reader.borrow_mut().take();
        self.driver.borrow_mut().take();
        self.taken.set(false);
        self.given_up.set(false);
        self.stamp.take();
    }
}

/// Lets go of one handle: the last one sends the record home.
fn put_back(record: &Rc<Record>) {
    if Rc::strong_count(record) > 1 {
        return;
    }
    // Dropping a body may drop another call: outside of any borrow.
    let body = record.body.borrow_mut().take();
    drop(body);
    let Some(calls) = record.home.upgrade() else { return };
    record.renew();
    let mut kept = calls.kept.borrow_mut();
    if kept.len() < CALLS_KEPT_MAX {
        kept.push(Rc::clone(record));
    }
}

/// A worker's records of calls: those at rest.
pub struct Calls {
    kept: RefCell<Vec<Rc<Record>>>,
    /// How many of them nobody needed since the last look.
    unused: Cell<usize>,
    this: Weak<Self>,
}

impl Calls {
    /// None at first.
    pub fn new() -> Rc<Self> {
        Rc::new_cyclic(|this| Self { kept: RefCell::default(), unused: Cell::default(), this: this.clone() })
    }

    /// A record, as the handler's handle: an empty head, no body.
    pub fn take(&self) -> Call {
        let mut resting = self.kept.borrow_mut();
        let kept = resting.pop();
        self.unused.set(self.unused.get().min(resting.len()));
        drop(resting);
        Call(kept.unwrap_or_else(|| Record::new(&self.this)))
    }

    /// Frees half of what nobody needed since the last call; called every few seconds.
    pub fn shrink(&self) {
        let mut kept = self.kept.borrow_mut();
        let surplus = self.unused.get().min(kept.len()).div_ceil(2);
        let left = kept.len() - surplus;
        kept.truncate(left);
        self.unused.set(left);
    }

    /// Records that a call holds. Each knows its home, and nobody else but the home itself.
    pub fn lent(&self) -> usize {
        self.this.weak_count() - 1 - self.resting()
    }

    /// Records at rest.
    pub fn resting(&self) -> usize {
        self.kept.borrow().len()
    }
}

/// A call, as its handler holds it. Dropping it gives the call up: its stream is reset, or its connection closed.
pub struct Call(Rc<Record>);

impl Call {
    /// The request's head, to fill: method, target, `Host` and other fields. The framing and what belongs to a connection is the
    /// engine's.
    pub fn request_mut(&self) -> RefMut<'_, Head> {
        self.0.request.borrow_mut()
    }

    /// The request's head.
    pub fn request(&self) -> Ref<'_, Head> {
        self.0.request.borrow()
    }

    /// Sends it: content of known length is sent with it, other content as a stream. [`Body::Tunnel`] asks for another
    /// protocol; its stream is read once the answer has made a tunnel, and dropped if it has not.
    pub fn send(&self, body: Body, upstream: &dyn Upstream) {
        *self.0.body.borrow_mut() = Some(body);
        self.0.tell();
        upstream.carry(Carried(Rc::clone(&self.0)));
    }

    /// What came of it; to be asked again after an [`Answer::Interim`].
    pub fn poll_answer(&self, task: &mut Task<'_>) -> Poll<Result<Answer, CallFault>> {
        let interim = self.0.interims.borrow_mut().pop_front();
        if let Some((status, fields)) = interim {
            self.0.hear();
            return Poll::Ready(Ok(Answer::Interim(status, Box::new(fields))));
        }
        if let Phase::Headed { tunnel } = self.0.phase.get() {
            self.0.hear();
            return Poll::Ready(Ok(Answer::Head { tunnel }));
        }
        if let Some(fault) = self.0.fault.borrow().as_ref() {
            self.0.hear();
            return Poll::Ready(Err(fault.clone()));
        }
        let mut reader = self.0.reader.borrow_mut();
        if reader.as_ref().is_none_or(|known| !known.will_wake(task.waker())) {
            *reader = Some(task.waker().clone());
        }
        Poll::Pending
    }

    /// The answer's status and fields, once [`Answer::Head`] was said.
    pub fn head(&self) -> Ref<'_, ResponseHead> {
        self.0.response.borrow()
    }

    /// The same, to change it before it is passed on.
    pub fn head_mut(&self) -> RefMut<'_, ResponseHead> {
        self.0.response.borrow_mut()
    }

    /// The version that the answer's head came in; HTTP/1.1 unless the engine says otherwise.
    pub fn version(&self) -> Version {
        self.0.version.get()
    }

    /// Has the call counted from here until this handle, or the body made of it, is dropped.
    pub fn count(&self, tally: Rc<dyn Tally>) {
        tally.begin();
        let before = self.0.tally.borrow_mut().replace(tally);
        if let Some(before) = before {
            before.end();
        }
    }

    /// The address that the call went to, once it was connected.
    pub fn remote(&self) -> Option<SocketAddr> {
        self.0.remote.get()
    }

    /// The answer's body. From here on a tunnel's outbound content is read: whoever takes the answer over answers with
    /// [`crate::Response::switch`] before anybody else has a turn, so that what is read is the other protocol's.
    pub fn into_body(self) -> IncomingBody {
        self.0.taken.set(true);
        if self.0.phase.get() == (Phase::Headed { tunnel: true }) {
            self.0.wake_driver();
        }
        IncomingBody::of_answer(self)
    }

    /// What the answer's body brings next, to look at before somebody else reads it.
    pub fn poll_content(&self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        self.0.taken.set(true);
        self.0.mailbox.borrow().poll_frame(task)
    }

    /// Has the answer's body be what `maker` makes of it, for whoever reads it from now on.
    pub fn make_body(&self, maker: Box<dyn Maker>) {
        *self.0.maker.borrow_mut() = Some(maker);
    }

    pub(crate) fn poll_made(&self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        match &mut *self.0.maker.borrow_mut() {
            Some(maker) => maker.poll_frame(self, task),
            None => self.0.mailbox.borrow().poll_frame(task),
        }
    }

    pub(crate) fn made_is_over(&self) -> bool {
        match &*self.0.maker.borrow() {
            Some(maker) => maker.octets_left() == Some(0),
            None => self.0.mailbox.borrow().is_over(),
        }
    }

    pub(crate) fn made_len(&self) -> Option<u64> {
        match &*self.0.maker.borrow() {
            Some(maker) => maker.octets_left(),
            None => self.0.mailbox.borrow().len(),
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.given_up.set(true);
        // What is made of the answer nobody reads any more.
        let maker = self.0.maker.borrow_mut().take();
        drop(maker);
        let tally = self.0.tally.borrow_mut().take();
        if let Some(tally) = tally {
            tally.end();
        }
        // What waits for a connection needs nothing to send any more, and may wait for long.
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

/// A call, as the engine holds it while it carries it. Dropping it before the answer's end fails the call.
pub struct Carried(Rc<Record>);

impl Carried {
    /// The request.
    pub fn request(&self) -> Ref<'_, Head> {
        self.0.request.borrow()
    }

    /// The engine begins with it.
    pub fn begin(&self) {
        self.0.hear();
    }

    /// The request's content as it was given; once.
    pub fn take_body(&self) -> Option<Body> {
        self.0.body.borrow_mut().take()
    }

    /// Puts the content back that [`take_body`](Self::take_body) took and of which nothing was read, so that the call can be
    /// carried anew.
    pub fn put_body(&self, body: Body) {
        *self.0.body.borrow_mut() = Some(body);
    }

    /// Whether nobody waits for it any more.
    pub fn is_given_up(&self) -> bool {
        self.0.given_up.get()
    }

    /// Whether the answer's body has its reader.
    pub fn is_taken(&self) -> bool {
        self.0.taken.get()
    }

    /// Whom to wake when it is given up, or a tunnel has its reader.
    pub fn follow(&self, driver: &Waker) {
        let mut known = self.0.driver.borrow_mut();
        if known.as_ref().is_none_or(|known| !known.will_wake(driver)) {
            *known = Some(driver.clone());
        }
    }

    /// Where it is carried.
    pub fn set_remote(&self, remote: SocketAddr) {
        self.0.remote.set(Some(remote));
    }

    /// The version that the connection speaks.
    pub fn set_version(&self, version: Version) {
        self.0.version.set(version);
    }

    /// An answer before the answer.
    pub fn put_interim(&self, status: StatusCode, fields: FieldMap) {
        self.0.interims.borrow_mut().push_back((status, fields));
        self.0.wake_reader();
    }

    /// The final head, in exchange for an empty one. `length` is the content's, where it is known.
    pub fn put_head(&self, head: &mut ResponseHead, length: Option<u64>, tunnel: bool) {
        std::mem::swap(&mut *self.0.response.borrow_mut(), head);
        if let Some(octets) = length {
            self.mailbox().announce(octets);
        }
        self.0.phase.set(Phase::Headed { tunnel });
        self.0.wake_reader();
    }

    /// Whether the final head was put.
    pub fn is_headed(&self) -> bool {
        self.0.phase.get() != Phase::Open
    }

    /// Where the answer's content goes.
    pub fn mailbox(&self) -> Ref<'_, Mailbox> {
        self.0.mailbox.borrow()
    }

    /// There is no answer, or no more of it: `fault` before the head, behind it the body ends as [`BodyFault::PeerGone`], or as
    /// [`BodyFault::Malformed`] where that is what happened.
    pub fn fail(&self, fault: CallFault) {
        if self.is_headed() {
            let broken = if fault == CallFault::Malformed { BodyFault::Malformed } else { BodyFault::PeerGone };
            return self.mailbox().fail(broken);
        }
        self.0.fault.borrow_mut().get_or_insert(fault);
        self.0.wake_reader();
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // A complete body stays complete; anything else ends here.
        self.fail(CallFault::Closed);
        // Nobody is left who would hear that it is given up.
        self.0.driver.borrow_mut().take();
        put_back(&self.0);
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Carried({:?})", self.0.phase.get())
    }
}

#[cfg(test)]
mod tests;

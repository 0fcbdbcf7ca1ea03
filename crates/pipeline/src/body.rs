//! Bodies, the same model for both directions and every protocol version.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};
use std::time::Duration;

use causeway_message::{Chunk, FieldMap};
use progress::Stamp;

use crate::upstream::Call;

/// A piece of a body.
#[derive(Debug)]
pub enum Frame {
    /// Content.
    Chunk(Chunk),
    /// The trailer section (RFC 9110 §6.5); nothing follows it.
    Trailers(Box<FieldMap>),
}

/// Why a body ended before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BodyFault {
    /// The peer broke its framing.
    Malformed,
    /// The peer closed or reset.
    PeerGone,
    /// Nothing arrived for the idle limit.
    TimedOut,
    /// It is longer than this exchange allows ([`crate::Context::limit_body`]).
    TooLarge,
    /// The source failed (a file shrank, a disk refused).
    Source,
}

impl fmt::Display for BodyFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Malformed => "its framing is broken",
            Self::PeerGone => "the peer is gone",
            Self::TimedOut => "nothing arrived in time",
            Self::TooLarge => "it is too large",
            Self::Source => "its source failed",
        })
    }
}

/// A body that is produced piece by piece.
pub trait BodyStream {
    /// The next frame; `None` at the end.
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>>;

    /// Octets still to come, when known: then the response carries `Content-Length`.
    fn len(&self) -> Option<u64> {
        None
    }

    /// Whether [`len`](Self::len) is known to be 0.
    fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// The content of a response.
#[derive(Default)]
pub enum Body {
    /// No content.
    #[default]
    Empty,
    /// One chunk.
    Chunk(Chunk),
    /// A range of a file; the engine reads it without holding the worker.
    File(FileSlice),
    /// Several pieces in order (`multipart/byteranges`).
    Parts(VecDeque<Part>),
    /// Produced while it is sent.
    Stream(Box<dyn BodyStream>),
    /// What comes in from somebody else: the request's own body, or an upstream's answer.
    Incoming(IncomingBody),
    /// Raw octets of another protocol; see [`crate::Response::switch`].
    Tunnel(Box<dyn BodyStream>),
}

/// A piece of [`Body::Parts`].
pub enum Part {
    /// Octets at hand.
    Chunk(Chunk),
    /// A range of a file.
    File(FileSlice),
    /// Produced while it is sent; trailers in it are the whole body's.
    Stream(Box<dyn BodyStream>),
    /// What comes in from somebody else.
    Incoming(IncomingBody),
    /// The trailer section; nothing follows it.
    Trailers(Box<FieldMap>),
}

/// A range of an open file.
#[derive(Debug, Clone)]
pub struct FileSlice {
    /// The file; read with positioned reads only, so it may be shared.
    pub file: Arc<File>,
    /// Where the range starts, in octets.
    pub at: u64,
    /// How many octets it has.
    pub len: u64,
}

impl Part {
    /// As [`Body::len`]. Content that trailers follow ends where its framing says so, so it has no length.
    fn len(&self) -> Option<u64> {
        match self {
            Self::Chunk(chunk) => Some(chunk.len() as u64),
            Self::File(slice) => Some(slice.len),
            Self::Stream(stream) => stream.len(),
            Self::Incoming(body) => body.len(),
            Self::Trailers(_) => None,
        }
    }
}

impl Body {
    /// Octets of content, when known before it is sent. O(parts).
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Chunk(chunk) => Some(chunk.len() as u64),
            Self::File(slice) => Some(slice.len),
            Self::Parts(parts) => parts.iter().map(Part::len).sum(),
            Self::Stream(stream) => stream.len(),
            Self::Incoming(body) => body.len(),
            Self::Tunnel(_) => None,
        }
    }

    /// Whether there is surely no content.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

impl From<Part> for Body {
    fn from(part: Part) -> Self {
        match part {
            Part::Chunk(chunk) => Self::Chunk(chunk),
            Part::File(slice) => Self::File(slice),
            Part::Stream(stream) => Self::Stream(stream),
            Part::Incoming(body) => Self::Incoming(body),
            Part::Trailers(_) => Self::Parts(VecDeque::from([part])),
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Chunk(chunk) => f.debug_tuple("Chunk").field(chunk).finish(),
            Self::File(slice) => f.debug_tuple("File").field(slice).finish(),
            Self::Parts(parts) => f.debug_tuple("Parts").field(parts).finish(),
            Self::Stream(stream) => write!(f, "Stream({:?})", stream.len()),
            Self::Incoming(body) => body.fmt(f),
            Self::Tunnel(_) => f.write_str("Tunnel"),
        }
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk(chunk) => chunk.fmt(f),
            Self::File(slice) => slice.fmt(f),
            Self::Stream(stream) => write!(f, "Stream({:?})", stream.len()),
            Self::Incoming(body) => body.fmt(f),
            Self::Trailers(fields) => fields.fmt(f),
        }
    }
}

/// Octets that a mailbox holds before the driver stops taking more from the peer.
const MAILBOX_OCTETS_MAX: usize = 64 * 1024;
/// Frames that a mailbox holds: a frame of one octet may pin a whole read block.
const MAILBOX_FRAMES_MAX: usize = 16;

#[derive(Default)]
struct Mail {
    frames: VecDeque<Frame>,
    octets: usize,
    taken: u32,
    /// Octets of content that the reader may still get; `None` is no limit.
    left: Option<u64>,
    /// Octets of content that were announced and that the reader has not got yet.
    announced: Option<u64>,
    /// It began as content of unknown length.
    is_unsized: bool,
    end: MailEnd,
    wanted: bool,
    reader: Option<Waker>,
    driver: Option<Waker>,
    /// For the profiler: what a reader that waited is woken by.
    stamp: Stamp,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum MailEnd {
    #[default]
    Open,
    Complete,
    Failed(BodyFault),
}

/// Where the driver puts a request's body and its reader finds it. One per exchange, for that exchange only: the
/// reader's handle may outlive the handler's call and even the exchange.
#[derive(Default)]
pub struct Mailbox(Rc<RefCell<Mail>>);

impl Mailbox {
    /// A second handle to the same box, for the reader.
    pub(crate) fn reader(&self) -> IncomingBody {
        IncomingBody(Source::Peer(Rc::clone(&self.0)))
    }

    /// Lets the reader have so many octets of content at most.
    pub(crate) fn limit(&self, octets_max: u64) {
        let mut mail = self.0.borrow_mut();
        mail.left = Some(mail.left.map_or(octets_max, |left| left.min(octets_max)));
    }

    /// Empties the box for the next exchange; a box that a reader still holds is left to it, failed, and replaced.
    pub(crate) fn renew(&mut self) {
        if let Some(mail) = Rc::get_mut(&mut self.0) {
            let mail = mail.get_mut();
            if !mail.frames.is_empty() {
                mail.frames.clear();
            }
            (mail.octets, mail.taken, mail.left, mail.announced) = (0, 0, None, None);
            (mail.end, mail.is_unsized) = (MailEnd::Open, false);
            (mail.wanted, mail.reader, mail.driver, mail.stamp) = (false, None, None, Stamp::default());
        } else {
            self.fail(BodyFault::PeerGone);
            self.0 = Rc::default();
        }
    }

    /// So many octets of content will come, unless it fails.
    pub fn announce(&self, octets: u64) {
        self.0.borrow_mut().announced = Some(octets);
    }

    /// Content will come, or its end alone, and its length is known then.
    pub fn announce_unsized(&self) {
        self.0.borrow_mut().is_unsized = true;
    }

    /// Puts a frame in, for the reader. The driver asks [`has_room`](Self::has_room) before it reads more, so the bound
    /// is passed by at most one read block.
    pub fn push(&self, frame: Frame) {
        let mut mail = self.0.borrow_mut();
        if let Frame::Chunk(chunk) = &frame {
            mail.octets += chunk.len();
        }
        mail.frames.push_back(frame);
        wake(mail);
    }

    /// The body is complete.
    pub fn complete(&self) {
        let mut mail = self.0.borrow_mut();
        if mail.end == MailEnd::Open {
            mail.end = MailEnd::Complete;
        }
        wake(mail);
    }

    /// The request was complete and became a tunnel: more comes, of another protocol.
    pub fn reopen(&self) {
        let mut mail = self.0.borrow_mut();
        if mail.end == MailEnd::Complete {
            mail.end = MailEnd::Open;
        }
    }

    /// The body ends here, before its end.
    pub fn fail(&self, fault: BodyFault) {
        let mut mail = self.0.borrow_mut();
        if mail.end == MailEnd::Open {
            mail.end = MailEnd::Failed(fault);
        }
        wake(mail);
    }

    /// Whether somebody has begun to read: then a client that waits for 100 (Continue) gets it (RFC 9110 §10.1.1).
    pub fn wanted(&self) -> bool {
        self.0.borrow().wanted
    }

    /// Whether nobody can read it any more.
    pub fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Drops what came and nobody can read any more.
    pub fn discard_unread(&self) {
        if self.is_abandoned() {
            let mut mail = self.0.borrow_mut();
            (mail.frames, mail.octets) = (VecDeque::new(), 0);
        }
    }

    /// Whether more octets may be taken from the peer; if not, `driver` is woken once there is room.
    pub fn has_room(&self, driver: &Waker) -> bool {
        let mut mail = self.0.borrow_mut();
        let room = mail.octets < MAILBOX_OCTETS_MAX && mail.frames.len() < MAILBOX_FRAMES_MAX;
        if !room && mail.driver.as_ref().is_none_or(|waker| !waker.will_wake(driver)) {
            mail.driver = Some(driver.clone());
        }
        room
    }

    /// Wakes `driver` at the reader's next look, if that is its first, or there is anything to take: what it takes makes room in
    /// the receive window.
    pub fn notify(&self, driver: &Waker) {
        let mut mail = self.0.borrow_mut();
        if (!mail.wanted || !mail.frames.is_empty())
            && mail.driver.as_ref().is_none_or(|waker| !waker.will_wake(driver))
        {
            mail.driver = Some(driver.clone());
        }
    }

    /// Whether the reader has taken everything that came.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().frames.is_empty()
    }

    /// Octets that the reader took since this was last asked: what the driver gives back to the receive window.
    pub fn taken(&self) -> u32 {
        std::mem::take(&mut self.0.borrow_mut().taken)
    }
}

fn wake(mut mail: std::cell::RefMut<'_, Mail>) {
    let reader = mail.reader.take();
    if reader.is_some() {
        progress::before_send(&mut mail.stamp);
    }
    // The waker may run foreign code: never while the box is borrowed.
    drop(mail);
    if let Some(reader) = reader {
        reader.wake();
    }
}

/// A body that comes in: a request's, or an upstream's answer's. An owned handle that may outlive the call that took it, so
/// that a proxy uploads while the answer streams. A request's is asked for by its first poll: then the engine sends 100
/// (Continue). Dropping an answer's gives the call up.
pub struct IncomingBody(Source);

enum Source {
    /// What the peer sends.
    Peer(Rc<RefCell<Mail>>),
    /// What an upstream answers.
    Answer(Call),
    /// What a handler put in its place, or what was read already.
    Held(VecDeque<Frame>),
    /// What a handler makes of what came, and how many octets of it may be read, where there is a limit.
    Made(Box<dyn BodyStream>, Option<u64>),
}

impl IncomingBody {
    /// Whether it is complete and all of it was taken: nothing is to be waited for. A request without content has such a body.
    pub fn is_over(&self) -> bool {
        match &self.0 {
            Source::Peer(mail) => mail.borrow().is_over(),
            Source::Answer(call) => call.made_is_over(),
            Source::Held(frames) => frames.is_empty(),
            Source::Made(stream, _) => stream.is_empty(),
        }
    }

    /// A body that is there as a whole.
    pub(crate) fn held(frames: VecDeque<Frame>) -> Self {
        Self(Source::Held(frames))
    }

    /// A body that a handler makes.
    pub(crate) fn of_stream(stream: Box<dyn BodyStream>, octets_max: Option<u64>) -> Self {
        Self(Source::Made(stream, octets_max))
    }

    /// The body of a call's answer.
    pub(crate) fn of_answer(call: Call) -> Self {
        Self(Source::Answer(call))
    }
}

impl BodyStream for IncomingBody {
    fn poll_frame(&mut self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        match &mut self.0 {
            Source::Peer(mail) => poll_mail(mail, task),
            Source::Answer(call) => call.poll_made(task),
            Source::Held(frames) => Poll::Ready(frames.pop_front().map(Ok)),
            Source::Made(stream, left) => {
                let polled = stream.poll_frame(task);
                if let (Poll::Ready(Some(Ok(Frame::Chunk(chunk)))), Some(left)) = (&polled, left) {
                    let Some(rest) = left.checked_sub(chunk.len() as u64) else {
                        return Poll::Ready(Some(Err(BodyFault::TooLarge)));
                    };
                    *left = rest;
                }
                polled
            }
        }
    }

    fn len(&self) -> Option<u64> {
        match &self.0 {
            Source::Peer(mail) => mail.borrow().len(),
            Source::Answer(call) => call.made_len(),
            Source::Held(frames) => octets(frames),
            Source::Made(stream, _) => stream.len(),
        }
    }
}

impl Mail {
    fn is_over(&self) -> bool {
        self.end == MailEnd::Complete && self.frames.is_empty()
    }

    /// Octets of content that the reader will get, as far as that is known.
    fn len(&self) -> Option<u64> {
        if self.end != MailEnd::Complete {
            return self.announced;
        }
        // Content that turns out to be none is not no content, and whoever passes it on has to say its end by itself, whenever it came: gRPC
        // begins calls without messages so, and grpc-go waits for ever for an end that it was told with the head.
        octets(&self.frames).filter(|octets| *octets > 0 || !self.is_unsized)
    }
}

impl Mailbox {
    /// The next frame, for whoever reads.
    pub(crate) fn poll_frame(&self, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        poll_mail(&self.0, task)
    }

    /// Octets of content that the reader will get, as far as that is known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.0.borrow().len()
    }

    /// As [`IncomingBody::is_over`].
    pub(crate) fn is_over(&self) -> bool {
        self.0.borrow().is_over()
    }
}

/// Octets of a whole body. Content that trailers follow is sent as what ends where its framing says so.
fn octets(frames: &VecDeque<Frame>) -> Option<u64> {
    let octets = |frame: &Frame| match frame {
        Frame::Chunk(chunk) => Some(chunk.len() as u64),
        Frame::Trailers(_) => None,
    };
    frames.iter().map(octets).sum()
}

fn poll_mail(mail: &RefCell<Mail>, task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
    let mut mail = mail.borrow_mut();
    if mail.stamp != Stamp::default() {
        progress::after_receive(std::mem::take(&mut mail.stamp), Duration::ZERO);
    }
    if let Some(frame) = mail.frames.pop_front() {
        let mut too_large = false;
        if let Frame::Chunk(chunk) = &frame {
            mail.octets -= chunk.len();
            mail.taken = mail.taken.saturating_add(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
            mail.announced = mail.announced.map(|octets| octets.saturating_sub(chunk.len() as u64));
            if let Some(left) = &mut mail.left {
                too_large = *left < chunk.len() as u64;
                *left = left.saturating_sub(chunk.len() as u64);
            }
        }
        let driver = mail.driver.take();
        drop(mail);
        if let Some(driver) = driver {
            driver.wake();
        }
        return Poll::Ready(Some(if too_large { Err(BodyFault::TooLarge) } else { Ok(frame) }));
    }
    match mail.end {
        MailEnd::Complete => Poll::Ready(None),
        MailEnd::Failed(fault) => Poll::Ready(Some(Err(fault))),
        MailEnd::Open => {
            let first = !std::mem::replace(&mut mail.wanted, true);
            if mail.reader.as_ref().is_none_or(|waker| !waker.will_wake(task.waker())) {
                mail.reader = Some(task.waker().clone());
            }
            let driver = if first { mail.driver.take() } else { None };
            drop(mail);
            if let Some(driver) = driver {
                driver.wake();
            }
            Poll::Pending
        }
    }
}

impl Drop for IncomingBody {
    fn drop(&mut self) {
        let Source::Peer(mail) = &self.0 else { return };
        // What nobody reads is drained by the driver, which may be waiting for room.
        let driver = mail.borrow_mut().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl fmt::Debug for IncomingBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incoming({:?})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // gRPC over HTTP/2, "Requests": a call without messages ends by an empty frame, which a proxy has to send as well.
    #[test]
    fn content_that_is_none_is_not_no_content() {
        let body = |prepare: fn(&Mailbox)| {
            let mailbox = Mailbox::default();
            prepare(&mailbox);
            mailbox.complete();
            mailbox.reader().len()
        };
        assert_eq!(body(|_| {}), Some(0), "none was to come");
        assert_eq!(body(|mailbox| mailbox.announce(0)), Some(0), "its length was told to be 0");
        assert_eq!(body(Mailbox::announce_unsized), None, "its end came by itself");
        let some = |mailbox: &Mailbox| {
            mailbox.announce_unsized();
            mailbox.push(Frame::Chunk(Chunk::from(vec![0; 10])));
        };
        assert_eq!(body(some), Some(10), "known when it is there");
        let mut mailbox = Mailbox::default();
        mailbox.announce_unsized();
        mailbox.renew();
        mailbox.complete();
        assert_eq!(mailbox.reader().len(), Some(0), "the next exchange's has nothing of it");
    }

    // The driver gives an exchange up while its output still waits: what came for it must not wait too.
    #[test]
    fn what_nobody_can_read_is_dropped() {
        let mailbox = Mailbox::default();
        let chunk = || Frame::Chunk(Chunk::from(vec![0; 1000]));
        let reader = mailbox.reader();
        mailbox.push(chunk());
        mailbox.discard_unread();
        assert!(!mailbox.is_empty(), "it may still be read");
        mailbox.complete();
        assert!(!reader.is_over(), "it was not taken");
        drop(reader);
        mailbox.discard_unread();
        assert!(mailbox.reader().is_over());
        assert!(mailbox.is_empty() && mailbox.has_room(Waker::noop()));
    }
}

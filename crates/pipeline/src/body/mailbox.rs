//! The queue between the driver, which receives a body, and the body's reader.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::task::{Context as PollContext, Poll, Waker};
use std::time::Duration;

use causeway_message::Chunk;
use progress::Stamp;

use super::{BodyError, BodySource, Frame, IncomingBody, bytes};
use crate::wait::set_waker;

/// Bytes that a mailbox holds before the driver stops reading from the peer. With several streams on the connection it
/// reads on, and the stream's window bounds the mailbox.
const MAILBOX_BYTES_MAX: usize = 64 * 1024;
/// Frames that a mailbox holds. The byte limit is not enough: a frame of one byte may pin a whole read block.
const MAILBOX_FRAMES_MAX: usize = 16;

/// Bytes of a frame that [`Mailbox::push_small`] joins from smaller ones.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// The state that a [`Mailbox`] and its reader share.
#[derive(Default)]
pub(super) struct Mail {
    frames: VecDeque<Frame>,
    bytes: usize,
    /// Bytes of content taken by the reader since the last [`Mailbox::take_released_bytes`].
    released_bytes: u32,
    /// Bytes of content taken by the reader since the beginning.
    bytes_read: u64,
    /// Bytes of content that the reader may still take; `None` is no limit.
    left: Option<u64>,
    /// Bytes of content that were announced and that the reader has not taken yet.
    announced: Option<u64>,
    /// The content's length was unknown when the body began.
    is_unsized: bool,
    end: MailEnd,
    /// Content that ends the body for its reader before the peer's end; empty once the reader has it.
    last: Option<Chunk>,
    /// The reader has polled an empty, open mailbox at least once.
    has_waited: bool,
    reader: Option<Waker>,
    driver: Option<Waker>,
    /// For the profiler: identifies the event that wakes a waiting reader.
    stamp: Stamp,
}

impl Mail {
    fn reset(&mut self) {
        // Without `..`: a new field that is not reset is a compile error.
        let Self {
            frames,
            bytes,
            released_bytes,
            bytes_read,
            left,
            announced,
            is_unsized,
            end,
            last,
            has_waited,
            reader,
            driver,
            stamp,
        } = self;
        if !frames.is_empty() {
            frames.clear();
        }
        (*bytes, *released_bytes, *bytes_read, *left, *announced) = (0, 0, 0, None, None);
        (*is_unsized, *end, *last, *has_waited) = (false, MailEnd::Open, None, false);
        (*reader, *driver, *stamp) = (None, None, Stamp::default());
    }
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum MailEnd {
    #[default]
    Open,
    Complete,
    Failed(BodyError),
}

/// A bounded queue of frames between the driver, which receives a body, and its reader. Each exchange has its own.
/// The reader's handle may outlive the handler's call, and even the exchange.
#[derive(Default)]
pub struct Mailbox(Rc<RefCell<Mail>>);

impl Mailbox {
    /// Creates the reader's handle to this mailbox.
    pub(crate) fn reader(&self) -> IncomingBody {
        IncomingBody(BodySource::Peer(Rc::clone(&self.0)))
    }

    /// Creates a handle that ends the body for its reader.
    pub(crate) fn ender(&self) -> BodyEnder {
        BodyEnder(Rc::downgrade(&self.0))
    }

    /// Limits the content that the reader may take to `bytes_max` bytes. The smallest of several limits applies.
    pub(crate) fn limit(&self, bytes_max: u64) {
        let mut mail = self.0.borrow_mut();
        mail.left = Some(mail.left.map_or(bytes_max, |left| left.min(bytes_max)));
    }

    /// Resets the mailbox for the next exchange. If a reader still holds the old state, that state fails and is
    /// replaced by a new one.
    pub(crate) fn reset(&mut self) {
        // No reader is left: reuse the allocation, and the capacity of the queue.
        if let Some(mail) = Rc::get_mut(&mut self.0) {
            mail.get_mut().reset();
        } else {
            self.fail(BodyError::PeerGone);
            self.0 = Rc::default();
        }
    }

    /// Announces the content's length in bytes (`Content-Length`).
    pub fn announce(&self, bytes: u64) {
        self.0.borrow_mut().announced = Some(bytes);
    }

    /// Announces content of unknown length: its end arrives as an event of its own.
    pub fn announce_unsized(&self) {
        self.0.borrow_mut().is_unsized = true;
    }

    /// Appends a frame for the reader. With one stream on a connection the driver checks
    /// [`has_room_or_register`](Self::has_room_or_register) before it reads more, so it exceeds the limits by at most
    /// one read block. With several, the stream's flow-control window is the limit.
    pub fn push(&self, frame: Frame) {
        let mut mail = self.0.borrow_mut();
        if let Frame::Chunk(chunk) = &frame {
            mail.bytes += chunk.len();
        }
        mail.frames.push_back(frame);
        wake(mail);
    }

    /// Appends a copy of a small piece of content, joined with small pieces before it. However short the pieces are, a
    /// queue of n bytes has O(log n) small frames, besides those of 8 KiB and more; each byte is copied O(log n) times.
    pub fn push_small(&self, bytes: &[u8]) {
        let mut mail = self.0.borrow_mut();
        mail.bytes += bytes.len();
        let mut piece = bytes.to_vec();
        while let Some(Frame::Chunk(last)) = mail.frames.back()
            && last.len() <= 2 * piece.len()
            && last.len() + piece.len() <= JOINED_BYTES_MAX
        {
            let joined = [last.as_slice(), &piece].concat();
            mail.frames.pop_back();
            piece = joined;
        }
        mail.frames.push_back(Frame::Chunk(piece.into()));
        wake(mail);
    }

    /// Marks the body as complete.
    pub fn complete(&self) {
        let mut mail = self.0.borrow_mut();
        if mail.end == MailEnd::Open {
            mail.end = MailEnd::Complete;
        }
        wake(mail);
    }

    /// Opens a complete body again: a request over HTTP/1.1 has become a tunnel, and bytes of another protocol follow.
    /// A limit on the content does not apply to them.
    pub fn reopen(&self) {
        let mut mail = self.0.borrow_mut();
        mail.left = None;
        if mail.end == MailEnd::Complete {
            mail.end = MailEnd::Open;
        }
    }

    /// Ends the body before it is complete. Has no effect on a body that has ended.
    pub fn fail(&self, error: BodyError) {
        let mut mail = self.0.borrow_mut();
        if mail.end == MailEnd::Open {
            mail.end = MailEnd::Failed(error);
        }
        wake(mail);
    }

    /// Returns whether the reader has started to wait for content; a client that expects 100 (Continue) then gets it
    /// (RFC 9110 §10.1.1).
    pub fn has_reader_waited(&self) -> bool {
        self.0.borrow().has_waited
    }

    /// Returns whether no reader's handle is left.
    pub fn is_abandoned(&self) -> bool {
        Rc::strong_count(&self.0) == 1
    }

    /// Drops the queued frames if no reader's handle is left. Returns the bytes of their content.
    pub fn discard_unread(&self) -> usize {
        if !self.is_abandoned() {
            return 0;
        }
        let mut mail = self.0.borrow_mut();
        mail.frames.clear();
        std::mem::take(&mut mail.bytes)
    }

    /// Returns whether the driver may read more from the peer. If not, `driver` is woken when the reader has made
    /// room.
    pub fn has_room_or_register(&self, driver: &Waker) -> bool {
        let mut mail = self.0.borrow_mut();
        let room = mail.bytes < MAILBOX_BYTES_MAX && mail.frames.len() < MAILBOX_FRAMES_MAX;
        if !room {
            set_waker(&mut mail.driver, driver);
        }
        room
    }

    /// Registers `driver` to be woken by the reader's next poll, if that poll is its first, or can take a frame and
    /// so make room in the receive window.
    pub fn register_driver(&self, driver: &Waker) {
        let mut mail = self.0.borrow_mut();
        if !mail.has_waited || !mail.frames.is_empty() {
            set_waker(&mut mail.driver, driver);
        }
    }

    /// Registers `driver` to be woken when the reader next takes a frame, or drops its handle.
    pub fn register_driver_for_drop(&self, driver: &Waker) {
        set_waker(&mut self.0.borrow_mut().driver, driver);
    }

    /// Returns whether the reader has taken all queued frames.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().frames.is_empty()
    }

    /// Returns the bytes of content taken since the last call, which the driver adds to the receive window.
    pub fn take_released_bytes(&self) -> u32 {
        std::mem::take(&mut self.0.borrow_mut().released_bytes)
    }

    /// Returns the bytes of content that readers have taken, without those that were discarded.
    pub fn bytes_read(&self) -> u64 {
        self.0.borrow().bytes_read
    }
}

/// Ends a body for its reader before the peer ends it. It is no reader, and does not keep the body.
pub struct BodyEnder(Weak<RefCell<Mail>>);

impl BodyEnder {
    /// Gives `last` to the reader as the end of the body, after the content that has arrived.
    pub fn end_with(&self, last: Chunk) {
        if let Some(mail) = self.0.upgrade() {
            let mut mail = mail.borrow_mut();
            mail.last = Some(last);
            wake(mail);
        }
    }
}

fn wake(mut mail: std::cell::RefMut<'_, Mail>) {
    let reader = mail.reader.take();
    if reader.is_some() {
        progress::before_send(&mut mail.stamp);
    }
    // The waker may run code that accesses this mailbox: end the borrow first.
    drop(mail);
    if let Some(reader) = reader {
        reader.wake();
    }
}

impl Mail {
    /// Returns whether the body is complete and its frames are taken.
    pub(super) fn is_over(&self) -> bool {
        self.end == MailEnd::Complete && self.frames.is_empty()
    }

    /// Returns the bytes of content that remain for the reader, if known.
    pub(super) fn len(&self) -> Option<u64> {
        if self.end != MailEnd::Complete {
            return self.announced;
        }
        // A body of unknown length that ends without content has no known length, even after its end. A proxy must
        // forward that end as a separate event: gRPC starts calls without messages this way, and grpc-go hangs if the
        // head carries the end.
        bytes(&self.frames).filter(|bytes| *bytes > 0 || !self.is_unsized)
    }

    /// Wakes the driver when the reader is dropped: it drains an unread body, and may be waiting for room.
    pub(super) fn wake_driver(mail: &RefCell<Self>) {
        let driver = mail.borrow_mut().driver.take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

impl Mailbox {
    /// Polls for the next frame on behalf of a reader that has no handle.
    pub(crate) fn poll_frame(&self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        poll_mail(&self.0, poll_cx)
    }

    /// Returns the bytes of content that remain for the reader, if known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.0.borrow().len()
    }

    /// Returns whether the body is complete and its frames are taken.
    pub(crate) fn is_over(&self) -> bool {
        self.0.borrow().is_over()
    }
}

/// Polls for the next frame.
pub(super) fn poll_mail(mail: &RefCell<Mail>, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
    let mut mail = mail.borrow_mut();
    // The profiler attributes the work from here on to the event that woke this reader.
    if mail.stamp != Stamp::default() {
        progress::after_receive(std::mem::take(&mut mail.stamp), Duration::ZERO);
    }
    if let Some(frame) = mail.frames.pop_front() {
        let mut too_large = false;
        if let Frame::Chunk(chunk) = &frame {
            mail.bytes -= chunk.len();
            mail.released_bytes = mail.released_bytes.saturating_add(u32::try_from(chunk.len()).unwrap_or(u32::MAX));
            mail.bytes_read += chunk.len() as u64;
            mail.announced = mail.announced.map(|bytes| bytes.saturating_sub(chunk.len() as u64));
            if let Some(left) = &mut mail.left {
                // The frame counts as taken even if it exceeds the limit: its bytes must return to the receive
                // window.
                too_large = *left < chunk.len() as u64;
                *left = left.saturating_sub(chunk.len() as u64);
            }
        }
        let driver = mail.driver.take();
        // Room in the mailbox: the driver may be waiting for it.
        drop(mail);
        if let Some(driver) = driver {
            driver.wake();
        }
        return Poll::Ready(Some(if too_large { Err(BodyError::TooLarge) } else { Ok(frame) }));
    }
    if let Some(last) = &mut mail.last {
        let last = std::mem::take(last);
        return Poll::Ready((!last.is_empty()).then_some(Ok(Frame::Chunk(last))));
    }
    match mail.end {
        MailEnd::Complete => Poll::Ready(None),
        MailEnd::Failed(error) => Poll::Ready(Some(Err(error))),
        MailEnd::Open => {
            // The first wait for content is the driver's signal to send 100 (Continue).
            let first = !std::mem::replace(&mut mail.has_waited, true);
            set_waker(&mut mail.reader, poll_cx.waker());
            let driver = if first { mail.driver.take() } else { None };
            drop(mail);
            if let Some(driver) = driver {
                driver.wake();
            }
            Poll::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::BodyStream as _;

    // gRPC over HTTP/2, "Requests": a call without messages ends with an empty frame, which a proxy has to forward.
    #[test]
    fn empty_content_differs_from_no_content() {
        let body = |prepare: fn(&Mailbox)| {
            let mailbox = Mailbox::default();
            prepare(&mailbox);
            mailbox.complete();
            mailbox.reader().len()
        };
        assert_eq!(body(|_| {}), Some(0), "no content was announced");
        assert_eq!(body(|mailbox| mailbox.announce(0)), Some(0), "the announced length is 0");
        assert_eq!(body(Mailbox::announce_unsized), None, "the end arrived as a separate event");
        let some = |mailbox: &Mailbox| {
            mailbox.announce_unsized();
            mailbox.push(Frame::Chunk(Chunk::from(vec![0; 10])));
        };
        assert_eq!(body(some), Some(10), "the length is known once the body is complete");
        let mut mailbox = Mailbox::default();
        mailbox.announce_unsized();
        mailbox.reset();
        mailbox.complete();
        assert_eq!(mailbox.reader().len(), Some(0), "the next exchange does not inherit the flag");
    }

    // A peer may send its content byte by byte, and the reader may not read.
    #[test]
    fn small_pieces_are_joined() {
        for size in [|_| 1, |at| 1 + at % 100, |at| 100 - at % 100] as [fn(usize) -> usize; 3] {
            let mailbox = Mailbox::default();
            let content: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
            let (mut rest, mut pieces) = (&content[..], 0);
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(size(pieces).min(rest.len()));
                mailbox.push_small(piece);
                (rest, pieces) = (after, pieces + 1);
            }
            let mail = mailbox.0.borrow();
            assert_eq!(mail.bytes, content.len());
            assert!(mail.frames.len() < 30, "{} frames of {pieces} pieces", mail.frames.len());
            let frames = mail.frames.iter().map(|frame| match frame {
                Frame::Chunk(chunk) => chunk.as_slice(),
                Frame::Trailers(_) => &[],
            });
            assert_eq!(frames.collect::<Vec<_>>().concat(), content);
        }
    }

    // The driver abandons an exchange while its output is still queued: the unread request body must not stay queued
    // with it.
    #[test]
    fn frames_without_a_reader_are_dropped() {
        let mailbox = Mailbox::default();
        let chunk = || Frame::Chunk(Chunk::from(vec![0; 1000]));
        let reader = mailbox.reader();
        mailbox.push(chunk());
        mailbox.discard_unread();
        assert!(!mailbox.is_empty(), "a reader still holds it");
        mailbox.complete();
        assert!(!reader.is_over(), "a frame was not taken");
        drop(reader);
        mailbox.discard_unread();
        assert!(mailbox.reader().is_over());
        assert!(mailbox.is_empty() && mailbox.has_room_or_register(Waker::noop()));
    }
}

//! Sent content, and the ends of streams.

use causeway_message::{Chunk, FieldMap, WriteList};

use super::{Connection, InputStep};
use crate::encode::{self, EndStream, HeadersFrame};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, flag, kind};
use crate::priority::{INCREMENTAL_BYTES, WHOLE_BYTES};
use crate::stream::{Local, Remote, Stream};

impl Connection {
    /// Whether [`Connection::send`] accepts bytes now.
    #[inline]
    pub(crate) fn writable(&self, id: u32) -> bool {
        self.streams.get(id).is_some_and(|stream| {
            // Without bytes to send no window matters: an ended stream accepts bytes and drops them, so that the driver
            // can end its content, and trailers need no window.
            let needs_window = !stream.is_ended() && !matches!(stream.local, Local::Sized { left: 0, .. });
            !needs_window || stream.send.available() > 0 && self.send.available() > 0
        })
    }

    #[inline]
    pub(crate) fn rank(&self, id: u32) -> u64 {
        self.streams.get(id).map_or(u64::MAX, |stream| self.rotation.rank(id, stream.priority, stream.turn))
    }

    #[inline]
    pub(crate) fn quantum(&self, id: u32) -> usize {
        match self.streams.get(id) {
            Some(stream) if stream.priority.incremental => INCREMENTAL_BYTES,
            _ => WHOLE_BYTES,
        }
    }

    /// Sends as many bytes as both windows allow, in frames up to the peer's limit, and leaves the rest in `chunk`.
    /// Drops bytes that may not be sent on this stream.
    #[inline]
    pub(crate) fn send(&mut self, id: u32, chunk: &mut Chunk, out: &mut WriteList) {
        // The peer may have reset the stream since the driver's decision: no error, the bytes have no use any more.
        let Some(stream) = self.streams.get_mut(id) else { return drop_all(chunk) };
        let wanted = match stream.local {
            Local::Sized { left, .. } => usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len()),
            Local::Stream | Local::Tunnel => chunk.len(),
            Local::HeadPending | Local::Ended | Local::Finished => 0,
        };
        let mut room = wanted.min(stream.send.available()).min(self.send.available());
        // Bytes beyond the declared length are dropped once all sendable ones have been sent.
        let is_rest = room == wanted;
        if room > 0 {
            stream.send.take(room);
            self.send.take(room);
            // One turn per call, however many frames it takes.
            stream.turn = self.rotation.take(stream.priority);
        }
        while room > 0 {
            // RFC 9113 §4.2: a longer frame is a connection error for the peer.
            let len = room.min(self.peer.frame_max as usize);
            room -= len;
            let mut flags = 0;
            if let Local::Sized { left, ends } = &mut stream.local {
                *left -= len as u64;
                if *left == 0 && *ends {
                    stream.local = Local::Ended;
                    // The frame with the last declared byte carries END_STREAM, which saves an empty frame.
                    flags = flag::END_STREAM;
                }
            }
            out.put(&frame::header(len, kind::DATA, flags, id));
            // By reference: the content of a large response is never copied.
            out.put_chunk(chunk.split_to(len));
            // A peer that receives content may send more control frames, such as WINDOW_UPDATE.
            self.budget_use.data_sent(len, &self.settings.budgets);
        }
        if is_rest {
            drop_all(chunk);
        }
    }

    /// Completes our half: sends END_STREAM if it has not been sent. If declared content is missing, resets the
    /// stream.
    pub(crate) fn finish(&mut self, id: u32, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.local {
            // RFC 9113 §8.1.1: END_STREAM before the declared length would make the message malformed.
            Local::HeadPending | Local::Sized { left: 1.., .. } => return self.reset(id, out),
            Local::Sized { left: 0, .. } | Local::Stream | Local::Tunnel => {
                out.put(&frame::header(0, kind::DATA, flag::END_STREAM, id));
            }
            Local::Ended | Local::Finished => {}
        }
        // Both halves are over: the entry is free for another stream.
        stream.local = Local::Finished;
        self.budget_use.restore_reset(&self.settings.budgets);
        if stream.remote == Remote::Done {
            self.forget(id, out);
        }
    }

    /// Lets trailers follow declared content: its last byte does not carry END_STREAM.
    pub(crate) fn expect_trailers(&mut self, id: u32) {
        if let Some(Stream { local: Local::Sized { ends, .. }, .. }) = self.streams.get_mut(id) {
            *ends = false;
        }
    }

    /// Sends trailers, which end our half. Does nothing unless content is open and has its declared length, if any.
    pub(crate) fn send_trailers(&mut self, id: u32, fields: &FieldMap, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        // RFC 9113 §8.1.1: an end before the declared length would make the message malformed.
        if !matches!(stream.local, Local::Stream | Local::Sized { left: 0, .. }) {
            return;
        }
        stream.local = Local::Ended;
        let frame = HeadersFrame::begin(id, out);
        encode::trailers(fields, &mut self.encoder, out);
        frame.end(EndStream::Stream, self.peer.frame_max, out);
    }

    /// Resets a stream. RFC 9113 §8.1: after a complete response this is no error; the rest of the request is just
    /// not needed.
    pub(crate) fn reset(&mut self, id: u32, out: &mut WriteList) {
        // NO_ERROR: the response is whole, and only the rest of the upload is refused.
        let is_ended = self.streams.get(id).is_some_and(Stream::is_ended);
        self.reset_with(id, if is_ended { ErrorCode::NoError } else { ErrorCode::Internal }, out);
    }

    /// Resets a stream with this code.
    pub(crate) fn reset_with(&mut self, id: u32, code: ErrorCode, out: &mut WriteList) {
        let Some(stream) = self.streams.get(id) else { return };
        if !stream.is_closed() {
            self.put_reset(id, code, out);
        }
        self.forget(id, out);
    }

    /// Resets a stream because of the peer. If the stream is in the table and not closed, the step reports the reset.
    #[cold]
    pub(crate) fn reset_for(
        &mut self,
        id: u32,
        code: ErrorCode,
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        let was_open = self.streams.get(id).is_some_and(|stream| !stream.is_closed());
        self.put_reset(id, code, out);
        self.budget_use.count_reset(&self.settings.budgets)?;
        if !was_open {
            return Ok(InputStep::Done);
        }
        self.forget(id, out);
        Ok(InputStep::Reset(id, code))
    }

    #[cold]
    fn put_reset(&mut self, id: u32, code: ErrorCode, out: &mut WriteList) {
        frame::put_reset(id, code, out);
        self.ignore_from_now(id);
    }

    /// Removes a stream from the table. Bytes that the driver has not read are returned to the connection window,
    /// since they will not be released.
    pub(crate) fn forget(&mut self, id: u32, out: &mut WriteList) {
        if let Some(Stream { unread: unread @ 1.., .. }) = self.streams.remove(id) {
            self.credit_connection_window(unread, out);
        }
    }
}

fn drop_all(chunk: &mut Chunk) {
    if !chunk.is_empty() {
        *chunk = Chunk::default();
    }
}

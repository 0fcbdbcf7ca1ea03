//! Content out, and the ends of streams.

use causeway_message::{Chunk, FieldMap, WriteList};

use super::{Connection, Step};
use crate::encode::{self, End, HeadersFrame};
use crate::fault::{ErrorCode, Fault};
use crate::frame::{self, flag, kind};
use crate::priority::{INCREMENTAL_OCTETS, WHOLE_OCTETS};
use crate::stream::{Local, Remote, Stream};

impl Connection {
    /// Whether [`Connection::send`] takes something now.
    #[inline]
    pub(crate) fn writable(&self, id: u32) -> bool {
        self.streams
            .get(id)
            .is_some_and(|stream| stream.is_ended() || stream.send.available() > 0 && self.send.available() > 0)
    }

    #[inline]
    pub(crate) fn rank(&self, id: u32) -> u64 {
        self.streams.get(id).map_or(u64::MAX, |stream| self.turns.rank(id, stream.priority, stream.turn))
    }

    #[inline]
    pub(crate) fn quantum(&self, id: u32) -> usize {
        match self.streams.get(id) {
            Some(stream) if stream.priority.incremental => INCREMENTAL_OCTETS,
            _ => WHOLE_OCTETS,
        }
    }

    /// Sends as much as both windows allow, in frames as large as the peer takes, and leaves the rest. What has no place is
    /// dropped.
    #[inline]
    pub(crate) fn send(&mut self, id: u32, chunk: &mut Chunk, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return drop_all(chunk) };
        let wanted = match stream.local {
            Local::Sized(left) => usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len()),
            Local::Stream | Local::Tunnel => chunk.len(),
            Local::Owed | Local::Ended | Local::Finished => 0,
        };
        let mut room = wanted.min(stream.send.available()).min(self.send.available());
        let is_rest = room == wanted;
        if room > 0 {
            stream.send.take(room);
            self.send.take(room);
            stream.turn = self.turns.take(stream.priority);
        }
        while room > 0 {
            let len = room.min(self.peer.frame_max as usize);
            room -= len;
            let mut flags = 0;
            if let Local::Sized(left) = &mut stream.local {
                *left -= len as u64;
                if *left == 0 {
                    stream.local = Local::Ended;
                    flags = flag::END_STREAM;
                }
            }
            out.put(&frame::header(len, kind::DATA, flags, id));
            out.put_chunk(chunk.split_to(len));
            self.meter.data_went(&self.settings.budgets);
        }
        if is_rest {
            drop_all(chunk);
        }
    }

    /// Our half is complete: END_STREAM goes out if it has not. Where content is owed, the stream is reset.
    pub(crate) fn finish(&mut self, id: u32, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        match stream.local {
            Local::Owed | Local::Sized(1..) => return self.reset(id, out),
            Local::Sized(0) | Local::Stream | Local::Tunnel => {
                out.put(&frame::header(0, kind::DATA, flag::END_STREAM, id));
            }
            Local::Ended | Local::Finished => {}
        }
        stream.local = Local::Finished;
        if stream.remote == Remote::Done {
            self.forget(id, out);
        }
    }

    /// Sends trailers, which end our half, where content of no declared length is under way.
    pub(crate) fn send_trailers(&mut self, id: u32, fields: &FieldMap, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        if stream.local != Local::Stream {
            return;
        }
        stream.local = Local::Ended;
        let frame = HeadersFrame::begin(id, out);
        encode::trailers(fields, &mut self.encoder, out);
        frame.end(End::Stream, self.peer.frame_max, out);
    }

    /// Gives a stream up. RFC 9113 §8.1: behind a complete answer that is no error, only the rest is not wanted.
    pub(crate) fn reset(&mut self, id: u32, out: &mut WriteList) {
        let is_ended = self.streams.get(id).is_some_and(Stream::is_ended);
        self.reset_with(id, if is_ended { ErrorCode::NoError } else { ErrorCode::Internal }, out);
    }

    /// Gives a stream up for this reason.
    pub(crate) fn reset_with(&mut self, id: u32, code: ErrorCode, out: &mut WriteList) {
        let Some(stream) = self.streams.get(id) else { return };
        if !stream.is_closed() {
            self.put_reset(id, code, out);
        }
        self.forget(id, out);
    }

    /// Resets a stream for something that the peer did. Where the owner knew of it and it was not over, the step says so.
    #[cold]
    pub(crate) fn reset_for(&mut self, id: u32, code: ErrorCode, out: &mut WriteList) -> Result<Step<'static>, Fault> {
        let was_open = self.streams.get(id).is_some_and(|stream| !stream.is_closed());
        self.put_reset(id, code, out);
        self.meter.reset(&self.settings.budgets)?;
        if !was_open {
            return Ok(Step::Done);
        }
        self.forget(id, out);
        Ok(Step::Reset(id, code))
    }

    #[cold]
    fn put_reset(&mut self, id: u32, code: ErrorCode, out: &mut WriteList) {
        frame::put_reset(id, code, out);
        self.ignore_from_now(id);
    }

    /// Takes a stream out of the table. What its owner did not read is given back to the connection's window: nobody will.
    pub(crate) fn forget(&mut self, id: u32, out: &mut WriteList) {
        if let Some(Stream { unread: unread @ 1.., .. }) = self.streams.remove(id) {
            self.give_connection(unread, out);
        }
    }
}

fn drop_all(chunk: &mut Chunk) {
    if !chunk.is_empty() {
        *chunk = Chunk::default();
    }
}

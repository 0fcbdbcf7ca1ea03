//! DATA in (RFC 9113 §6.1).

use causeway_message::WriteList;

use super::{Connection, Inbound, Step};
use crate::fault::{ErrorCode, Fault};
use crate::frame::{self, Frame, HEADER_LEN, flag};
use crate::stream::{Local, Remote};
use crate::window::WINDOW_DEFAULT;

impl Connection {
    /// A DATA frame begins: its whole length is counted against the windows, its content goes out as it comes.
    pub(super) fn begin_data<'a>(
        &mut self,
        frame: Frame,
        rest: &[u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<Step<'a>, Fault> {
        if frame.stream == 0 {
            return Err(Fault::PROTOCOL);
        }
        let (mut padding, mut head_len) = (0, HEADER_LEN);
        if frame.has(flag::PADDED) {
            let Some(&octet) = rest.get(HEADER_LEN) else {
                self.partial = true;
                // A padded frame of no length has no padding's length either.
                return if frame.len == 0 { Err(Fault::FRAME_SIZE) } else { Ok(Step::Wait) };
            };
            if usize::from(octet) >= frame.len {
                return Err(if frame.len == 0 { Fault::FRAME_SIZE } else { Fault::PROTOCOL });
            }
            (padding, head_len) = (octet, HEADER_LEN + 1);
        }
        self.partial = false;
        self.receive.take(frame.len, 0)?;
        *at += head_len;
        let left = frame.len + HEADER_LEN - head_len - usize::from(padding);
        let (ends, slack) = (frame.has(flag::END_STREAM), self.slack());
        // What follows of the frame, should it not be wanted.
        self.inbound = match (frame.len + HEADER_LEN - head_len) as u32 {
            0 => Inbound::Frame,
            rest => Inbound::Skip(rest),
        };
        let Some(stream) = self.streams.get_mut(frame.stream) else {
            return self.throw_away(frame, out);
        };
        let Remote::Open(declared) = stream.remote else {
            return self.refuse_content(frame, out);
        };
        // RFC 9113 §8.1: a response begins with its head.
        if stream.kind.awaits_head {
            return self.refuse_frame(frame, ErrorCode::Protocol, out);
        }
        if stream.receive.take(frame.len, slack).is_err() {
            return self.refuse_frame(frame, ErrorCode::FlowControl, out);
        }
        if let Some(declared) = declared {
            // RFC 9113 §8.1.1: more content than was declared.
            let Some(declared) = declared.checked_sub(left as u64) else {
                return self.refuse_frame(frame, ErrorCode::Protocol, out);
            };
            stream.remote = Remote::Open(Some(declared));
        }
        if left > 0 {
            stream.pieces = if stream.unread == 0 { 1 } else { stream.pieces.saturating_add(1) };
            let budgets = &self.settings.budgets;
            if stream.pieces > budgets.tiny_data && stream.unread / u32::from(stream.pieces) < budgets.tiny_data_bytes {
                return Err(Fault::CALM);
            }
            // The client did not wait.
            stream.kind.expects_continue = false;
        } else if !ends {
            self.meter.empty_data(&self.settings.budgets)?;
        }
        let overhead = (frame.len - left) as u32;
        if overhead > 0 {
            self.give(frame.stream, overhead, out);
        }
        self.inbound = Inbound::Data { stream: frame.stream, left: left as u32, padding, ends };
        Ok(Step::Done)
    }

    // The frame's stream is not, or no longer, known.
    #[cold]
    fn throw_away(&mut self, frame: Frame, out: &mut WriteList) -> Result<Step<'static>, Fault> {
        if self.is_untouched(frame.stream) {
            return Err(Fault::PROTOCOL);
        }
        self.check_closed(frame.stream)?;
        if frame.len == 0 {
            self.meter.empty_data(&self.settings.budgets)?;
        }
        self.give_connection(frame.len as u32, out);
        Ok(Step::Done)
    }

    // RFC 9113 §5.1: content behind END_STREAM.
    #[cold]
    fn refuse_content(&mut self, frame: Frame, out: &mut WriteList) -> Result<Step<'static>, Fault> {
        if self.streams.get(frame.stream).is_some_and(|stream| stream.is_closed()) {
            return Err(Fault::STREAM_CLOSED);
        }
        self.refuse_frame(frame, ErrorCode::StreamClosed, out)
    }

    #[cold]
    fn refuse_frame(&mut self, frame: Frame, code: ErrorCode, out: &mut WriteList) -> Result<Step<'static>, Fault> {
        self.give_connection(frame.len as u32, out);
        self.reset_for(frame.stream, code, out)
    }

    /// More of a DATA frame.
    #[inline]
    pub(super) fn next_data<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<Step<'a>, Fault> {
        let Inbound::Data { stream: id, left, padding, ends } = &mut self.inbound else { return Ok(Step::Done) };
        let id = *id;
        let available = input.len() - *at;
        if *left > 0 {
            let len = (*left as usize).min(available);
            if len == 0 {
                return Ok(Step::Wait);
            }
            *left -= len as u32;
            if (*left, *padding, *ends) == (0, 0, false) {
                self.inbound = Inbound::Frame;
            }
            let range = *at..*at + len;
            *at = range.end;
            return Ok(match self.streams.get_mut(id) {
                Some(stream) => {
                    stream.unread += len as u32;
                    Step::Data { stream: id, range }
                }
                // It was reset amid the frame.
                None => {
                    self.give_connection(len as u32, out);
                    Step::Done
                }
            });
        }
        let len = usize::from(*padding).min(available);
        *at += len;
        *padding -= len as u8;
        if *padding > 0 {
            return Ok(Step::Wait);
        }
        let ends = *ends;
        self.inbound = Inbound::Frame;
        if ends { self.end_remote(id, out) } else { Ok(Step::Done) }
    }

    /// The peer's half is complete. Nothing where the stream is gone.
    pub(crate) fn end_remote(&mut self, id: u32, out: &mut WriteList) -> Result<Step<'static>, Fault> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(Step::Done) };
        // RFC 9113 §8.1.1: less content than was declared.
        if matches!(stream.remote, Remote::Open(Some(1..))) {
            return self.reset_for(id, ErrorCode::Protocol, out);
        }
        stream.remote = Remote::Done;
        if stream.local == Local::Finished {
            self.forget(id, out);
        }
        Ok(Step::End(id))
    }

    /// The owner has read octets that it was told of. Beyond those nothing is given back; those of a stream that is over were
    /// given back with it.
    pub(crate) fn release(&mut self, id: u32, octets: u32, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let octets = octets.min(stream.unread);
        if octets == 0 {
            return;
        }
        let left = stream.unread - octets;
        // So many frames are left as there are octets left of them.
        stream.pieces = (u64::from(stream.pieces) * u64::from(left) / u64::from(stream.unread)) as u16;
        stream.unread = left;
        self.give(id, octets, out);
    }

    /// Makes room again in both windows.
    fn give(&mut self, id: u32, octets: u32, out: &mut WriteList) {
        self.give_connection(octets, out);
        let Some(stream) = self.streams.get_mut(id) else { return };
        // A stream whose rest fits what the peer may send anyway needs no announcement.
        let is_needed = match stream.remote {
            Remote::Open(Some(rest)) => i64::from(stream.receive.left()) < rest.min(u64::from(u32::MAX)) as i64,
            Remote::Open(None) => true,
            Remote::Done => false,
        };
        stream.receive.owe(octets);
        let by = if is_needed { stream.receive.announce(self.settings.stream_window) } else { 0 };
        if by > 0 {
            frame::put_window_update(id, by, out);
        }
    }

    pub(super) fn give_connection(&mut self, octets: u32, out: &mut WriteList) {
        self.receive.owe(octets);
        let by = self.receive.announce(self.settings.connection_window.max(WINDOW_DEFAULT));
        if by > 0 {
            frame::put_window_update(0, by, out);
        }
    }
}

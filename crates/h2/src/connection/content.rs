//! Received DATA (RFC 9113 §6.1).

use causeway_message::WriteList;

use super::{Connection, InputState, InputStep, Role};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, FrameHeader, HEADER_LEN, flag};
use crate::stream::{Local, Remote};
use crate::window::{STREAM_STEP_MAX, WINDOW_DEFAULT};

impl Connection {
    /// Begins a DATA frame. Counts its whole length against the windows; its content is passed on as it arrives.
    pub(super) fn begin_data<'a>(
        &mut self,
        frame: FrameHeader,
        rest: &[u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<InputStep<'a>, ConnectionError> {
        if frame.stream == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        let (mut padding, mut head_len) = (0, HEADER_LEN);
        if frame.has(flag::PADDED) {
            let Some(&byte) = rest.get(HEADER_LEN) else {
                self.partial = true;
                // A padded frame of length 0 lacks even the padding length.
                return if frame.len == 0 { Err(ConnectionError::FRAME_SIZE) } else { Ok(InputStep::Wait) };
            };
            if usize::from(byte) >= frame.len {
                return Err(if frame.len == 0 { ConnectionError::FRAME_SIZE } else { ConnectionError::PROTOCOL });
            }
            (padding, head_len) = (byte, HEADER_LEN + 1);
        }
        self.partial = false;
        self.receive.take(frame.len, 0)?;
        *at += head_len;
        let left = frame.len + HEADER_LEN - head_len - usize::from(padding);
        let (ends, slack) = (frame.has(flag::END_STREAM), self.slack());
        // Skip the rest of the frame if a check below rejects it.
        self.inbound = match (frame.len + HEADER_LEN - head_len) as u32 {
            0 => InputState::Frame,
            rest => InputState::Skip(rest),
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
            // RFC 9113 §8.1.1: more content than declared.
            let Some(declared) = declared.checked_sub(left as u64) else {
                return self.refuse_frame(frame, ErrorCode::Protocol, out);
            };
            stream.remote = Remote::Open(Some(declared));
        }
        if left > 0 {
            // The client did not wait for the 100.
            stream.kind.expects_continue = false;
        } else if !ends {
            self.budget_use.empty_data(&self.settings.budgets)?;
        }
        // Padding is never passed to the owner, so its bytes are released here.
        let overhead = (frame.len - left) as u32;
        if overhead > 0 {
            self.give(frame.stream, overhead, out);
        }
        self.inbound = InputState::Data { stream: frame.stream, left: left as u32, padding, ends };
        Ok(InputStep::Done)
    }

    // A DATA frame on a stream that is not in the table.
    #[cold]
    fn throw_away(&mut self, frame: FrameHeader, out: &mut WriteList) -> Result<InputStep<'static>, ConnectionError> {
        if self.is_idle_stream(frame.stream) {
            return Err(ConnectionError::PROTOCOL);
        }
        self.check_closed(frame.stream)?;
        if frame.len == 0 {
            self.budget_use.empty_data(&self.settings.budgets)?;
        }
        self.give_connection(frame.len as u32, out);
        Ok(InputStep::Done)
    }

    // RFC 9113 §5.1: content after END_STREAM.
    #[cold]
    fn refuse_content(
        &mut self,
        frame: FrameHeader,
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        if self.streams.get(frame.stream).is_some_and(|stream| stream.is_closed()) {
            return Err(ConnectionError::STREAM_CLOSED);
        }
        self.refuse_frame(frame, ErrorCode::StreamClosed, out)
    }

    #[cold]
    fn refuse_frame(
        &mut self,
        frame: FrameHeader,
        code: ErrorCode,
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        self.give_connection(frame.len as u32, out);
        self.reset_for(frame.stream, code, out)
    }

    /// Continues a DATA frame.
    #[inline]
    pub(super) fn next_data<'a>(
        &mut self,
        input: &'a [u8],
        at: &mut usize,
        out: &mut WriteList,
    ) -> Result<InputStep<'a>, ConnectionError> {
        let InputState::Data { stream: id, left, padding, ends } = &mut self.inbound else {
            return Ok(InputStep::Done);
        };
        let id = *id;
        let available = input.len() - *at;
        if *left > 0 {
            let len = (*left as usize).min(available);
            if len == 0 {
                return Ok(InputStep::Wait);
            }
            *left -= len as u32;
            if (*left, *padding, *ends) == (0, 0, false) {
                self.inbound = InputState::Frame;
            }
            let range = *at..*at + len;
            *at = range.end;
            return Ok(match self.streams.get_mut(id) {
                Some(stream) => {
                    stream.unread += len as u32;
                    InputStep::Data { stream: id, range }
                }
                // The stream was reset within the frame.
                None => {
                    self.give_connection(len as u32, out);
                    InputStep::Done
                }
            });
        }
        let len = usize::from(*padding).min(available);
        *at += len;
        *padding -= len as u8;
        if *padding > 0 {
            return Ok(InputStep::Wait);
        }
        let ends = *ends;
        self.inbound = InputState::Frame;
        if ends { self.end_remote(id, out) } else { Ok(InputStep::Done) }
    }

    /// Completes the peer's half. Does nothing if the stream is gone.
    pub(crate) fn end_remote(&mut self, id: u32, out: &mut WriteList) -> Result<InputStep<'static>, ConnectionError> {
        let Some(stream) = self.streams.get_mut(id) else { return Ok(InputStep::Done) };
        // RFC 9113 §8.1.1: less content than declared.
        let is_short = matches!(stream.remote, Remote::Open(Some(1..)));
        // A client may stop its upload when the response begins, such as a refusal. It still reads that response.
        if is_short && (self.role == Role::Client || stream.local == Local::HeadPending) {
            return self.reset_for(id, ErrorCode::Protocol, out);
        }
        stream.remote = Remote::Done;
        if stream.local == Local::Finished {
            self.forget(id, out);
        }
        Ok(if is_short { InputStep::ShortEnd(id) } else { InputStep::End(id) })
    }

    /// Releases bytes that the owner has read, at most those passed to it. The bytes of a stream that is over were
    /// released with it.
    pub(crate) fn release(&mut self, id: u32, bytes: u32, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let bytes = bytes.min(stream.unread);
        if bytes == 0 {
            return;
        }
        stream.unread -= bytes;
        self.give(id, bytes, out);
    }

    /// Returns `bytes` to both windows.
    fn give(&mut self, id: u32, bytes: u32, out: &mut WriteList) {
        self.give_connection(bytes, out);
        let Some(stream) = self.streams.get_mut(id) else { return };
        // No announcement is needed if the rest of the declared content fits the peer's window.
        let is_needed = match stream.remote {
            Remote::Open(Some(rest)) => i64::from(stream.receive.left()) < rest.min(u64::from(u32::MAX)) as i64,
            Remote::Open(None) => true,
            Remote::Done => false,
        };
        stream.receive.add_read(bytes);
        let by = if is_needed { stream.receive.announce(self.settings.stream_window, STREAM_STEP_MAX) } else { 0 };
        if by > 0 {
            frame::put_window_update(id, by, out);
        }
    }

    pub(super) fn give_connection(&mut self, bytes: u32, out: &mut WriteList) {
        self.receive.add_read(bytes);
        let by = self.receive.announce(self.settings.connection_window.max(WINDOW_DEFAULT), u32::MAX);
        if by > 0 {
            frame::put_window_update(0, by, out);
        }
    }
}

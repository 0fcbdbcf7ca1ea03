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
        let Some((head_len, padding)) = read_padding(frame, rest)? else {
            self.partial = true;
            return Ok(InputStep::Wait);
        };
        self.partial = false;
        self.receive.take(frame.len, 0)?;
        *at += head_len;
        let payload_left = frame.len + HEADER_LEN - head_len;
        let content_len = payload_left - usize::from(padding);
        let (ends, slack) = (frame.has(flag::END_STREAM), self.slack());
        // Skip the rest of the frame if a check below rejects it.
        self.inbound = if payload_left == 0 { InputState::Frame } else { InputState::Skip(payload_left as u32) };
        let Some(stream) = self.streams.get_mut(frame.stream) else {
            return self.discard_data(frame, out);
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
            let Some(declared) = declared.checked_sub(content_len as u64) else {
                return self.refuse_frame(frame, ErrorCode::Protocol, out);
            };
            stream.remote = Remote::Open(Some(declared));
        }
        if content_len > 0 {
            // The client did not wait for the 100.
            stream.kind.expects_continue = false;
        } else if !ends {
            self.budget_use.count_empty_data(&self.settings.budgets)?;
        }
        // Padding is never passed to the driver, so its bytes are released here.
        let overhead = (frame.len - content_len) as u32;
        if overhead > 0 {
            self.credit_windows(frame.stream, overhead, out);
        }
        self.inbound = InputState::Data { stream: frame.stream, left: content_len as u32, padding, ends };
        Ok(InputStep::Done)
    }

    // Discards a DATA frame on a stream that is not in the table.
    #[cold]
    fn discard_data(&mut self, frame: FrameHeader, out: &mut WriteList) -> Result<InputStep<'static>, ConnectionError> {
        if self.is_idle_stream(frame.stream) {
            return Err(ConnectionError::PROTOCOL);
        }
        self.check_closed(frame.stream)?;
        if frame.len == 0 {
            self.budget_use.count_empty_data(&self.settings.budgets)?;
        }
        self.credit_connection_window(frame.len as u32, out);
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
        self.credit_connection_window(frame.len as u32, out);
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
                    self.credit_connection_window(len as u32, out);
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
        // With a Content-Length, or without one: the end of an upload that the client may have stopped. A tunnel ends
        // in any case.
        let may_be_stopped = is_short || stream.remote == Remote::Open(None) && !stream.kind.is_connect;
        stream.remote = Remote::Done;
        if self.role == Role::Server && may_be_stopped && stream.is_ended() {
            // RFC 9113 §8.1: the response was complete before the request. When curl 7.88 stops an upload because of
            // the status, it waits for this frame, without a time limit. Other clients ignore it, as §5.1 demands for a
            // closed stream.
            frame::put_reset(id, ErrorCode::NoError, out);
        }
        if stream.local == Local::Finished {
            self.forget(id, out);
        }
        Ok(if is_short { InputStep::ShortEnd(id) } else { InputStep::End(id) })
    }

    /// Releases bytes that the driver has read, at most those passed to it. The bytes of a stream that is over were
    /// released with it.
    pub(crate) fn release(&mut self, id: u32, bytes: u32, out: &mut WriteList) {
        let Some(stream) = self.streams.get_mut(id) else { return };
        let bytes = bytes.min(stream.unread);
        if bytes == 0 {
            return;
        }
        stream.unread -= bytes;
        self.credit_windows(id, bytes, out);
    }

    /// Returns `bytes` to both windows.
    fn credit_windows(&mut self, id: u32, bytes: u32, out: &mut WriteList) {
        self.credit_connection_window(bytes, out);
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

    pub(super) fn credit_connection_window(&mut self, bytes: u32, out: &mut WriteList) {
        self.receive.add_read(bytes);
        let by = self.receive.announce(self.settings.connection_window.max(WINDOW_DEFAULT), u32::MAX);
        if by > 0 {
            frame::put_window_update(0, by, out);
        }
    }
}

/// Reads the padding length of a DATA frame. Returns the length of the frame's header, with that byte, and of the
/// padding; `None` if the byte is missing yet.
#[inline]
fn read_padding(frame: FrameHeader, rest: &[u8]) -> Result<Option<(usize, u8)>, ConnectionError> {
    if !frame.has(flag::PADDED) {
        return Ok(Some((HEADER_LEN, 0)));
    }
    // RFC 9113 §6.1: a padded frame of length 0 lacks even the padding length, and padding must be shorter than the
    // payload.
    match rest.get(HEADER_LEN) {
        _ if frame.len == 0 => Err(ConnectionError::FRAME_SIZE),
        Some(&padding) if usize::from(padding) >= frame.len => Err(ConnectionError::PROTOCOL),
        Some(&padding) => Ok(Some((HEADER_LEN + 1, padding))),
        None => Ok(None),
    }
}

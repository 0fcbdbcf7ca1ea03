//! Frames about the connection, and about the life of a stream.

use causeway_message::WriteList;

use super::{Connection, InputStep, Role, depends_on};
use crate::error::{ConnectionError, ErrorCode};
use crate::frame::{self, FrameHeader, flag, kind};
use crate::priority::Priority;
use crate::stream::Local;
use crate::window::WINDOW_DEFAULT;

impl Connection {
    /// Handles a complete frame that is neither DATA nor HEADERS.
    pub(super) fn handle_control_frame(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        // A WINDOW_UPDATE is counted by its increment.
        if frame.kind != kind::WINDOW_UPDATE {
            self.budget_use.count_control(&self.settings.budgets)?;
        }
        match frame.kind {
            kind::WINDOW_UPDATE => self.handle_window_update(frame, payload, out),
            kind::SETTINGS => self.handle_settings(frame, payload, out),
            kind::PING => self.handle_ping(frame, payload, out),
            kind::RST_STREAM => self.handle_reset(frame, payload, out),
            kind::PRIORITY => self.handle_priority(frame, payload, out),
            kind::PRIORITY_UPDATE => self.handle_priority_update(frame, payload),
            kind::GOAWAY => handle_goaway(frame, payload),
            // RFC 9113 §6.10: a CONTINUATION without a block to continue; §8.4: neither side may push here.
            kind::CONTINUATION | kind::PUSH_PROMISE => Err(ConnectionError::PROTOCOL),
            _ => Ok(InputStep::Done),
        }
    }

    // RFC 9113 §6.9.
    fn handle_window_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        let by = frame::number(payload.try_into().map_err(|_| ConnectionError::FRAME_SIZE)?);
        self.budget_use.count_window_update(by, &self.settings.budgets)?;
        if frame.stream == 0 {
            if by == 0 {
                return Err(ConnectionError::PROTOCOL);
            }
            self.send = self.send.grow(i64::from(by)).ok_or(ConnectionError::FLOW_CONTROL)?;
            return Ok(InputStep::Done);
        }
        let Some(stream) = self.streams.get_mut(frame.stream) else { return self.ignore(frame.stream) };
        match stream.send.grow(i64::from(by)) {
            _ if stream.is_closed() => Ok(InputStep::Done),
            _ if by == 0 => self.reset_for(frame.stream, ErrorCode::Protocol, out),
            None => self.reset_for(frame.stream, ErrorCode::FlowControl, out),
            Some(window) => {
                stream.send = window;
                Ok(InputStep::Done)
            }
        }
    }

    // RFC 9113 §5.1: on a closed stream these may arrive late; on a stream that was never opened they are an error.
    fn ignore(&self, stream: u32) -> Result<InputStep<'static>, ConnectionError> {
        if self.is_idle_stream(stream) { Err(ConnectionError::PROTOCOL) } else { Ok(InputStep::Done) }
    }

    // RFC 9113 §6.4.
    #[cold]
    fn handle_reset(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        let code: [u8; 4] = payload.try_into().map_err(|_| ConnectionError::FRAME_SIZE)?;
        if frame.stream == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        match self.streams.get(frame.stream) {
            None => self.ignore(frame.stream),
            Some(stream) if stream.is_closed() => Ok(InputStep::Done),
            Some(stream) => {
                // A stream whose response has begun did its work, as one that is read to its end.
                if stream.local == Local::HeadPending {
                    self.budget_use.count_reset(&self.settings.budgets)?;
                }
                self.forget(frame.stream, out);
                Ok(InputStep::Reset(frame.stream, ErrorCode::of(u32::from_be_bytes(code))))
            }
        }
    }

    // RFC 9113 §6.3: validated only; its meaning is obsolete (§5.3.2).
    #[cold]
    fn handle_priority(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        if frame.stream == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        let code = match payload.first_chunk::<5>() {
            Some(priority) if payload.len() == 5 => {
                if depends_on(priority) != frame.stream {
                    return Ok(InputStep::Done);
                }
                ErrorCode::Protocol
            }
            _ => ErrorCode::FrameSize,
        };
        match self.streams.get(frame.stream) {
            // RFC 9113 §6.4: a stream that was never opened cannot be reset.
            None if self.is_idle_stream(frame.stream) => Err(ConnectionError(code)),
            _ => self.reset_for(frame.stream, code, out),
        }
    }

    // RFC 9113 §6.5.
    fn handle_settings(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        if frame.stream != 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        if frame.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::FRAME_SIZE);
            }
            self.acknowledge();
            return Ok(InputStep::Done);
        }
        self.apply(payload)?;
        frame::put_settings_ack(out);
        // Each acknowledgement is output that the peer causes, so its number is bounded.
        self.budget_use.count_ack(&self.settings.budgets, out)?;
        Ok(InputStep::Done)
    }

    fn acknowledge(&mut self) {
        if !self.acknowledged {
            self.acknowledged = true;
            // RFC 7541 §4.2: until now the peer's encoder may have used the default size.
            self.decoder.handle_acknowledged(self.settings.decoder_table_bytes());
        }
    }

    /// Applies the peer's SETTINGS.
    pub(crate) fn apply(&mut self, payload: &[u8]) -> Result<(), ConnectionError> {
        let before = self.peer;
        self.peer.apply(payload, self.settings.budgets.settings_entries, self.role == Role::Client)?;
        if self.peer.table_bytes != before.table_bytes || self.peer.table_bytes_low != before.table_bytes {
            let own = self.settings.encoder_table_bytes;
            // RFC 7541 §4.2: a reduction between two blocks must be signalled, even if the size was raised again.
            self.encoder.set_table_bytes_max(self.peer.table_bytes_low.min(own));
            self.encoder.set_table_bytes_max(self.peer.table_bytes.min(own));
            self.peer.table_bytes_low = self.peer.table_bytes;
        }
        // RFC 9113 §6.9.2: the difference applies to the windows of all streams. A window may become negative, but
        // not exceed its bound.
        let more = i64::from(self.peer.initial_window) - i64::from(before.initial_window);
        if more != 0 {
            for stream in self.streams.iter_mut() {
                stream.send = stream.send.grow(more).ok_or(ConnectionError::FLOW_CONTROL)?;
            }
        }
        Ok(())
    }

    // RFC 9113 §6.7.
    fn handle_ping(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
        out: &mut WriteList,
    ) -> Result<InputStep<'static>, ConnectionError> {
        let payload: [u8; 8] = payload.try_into().map_err(|_| ConnectionError::FRAME_SIZE)?;
        if frame.stream != 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        if frame.has(flag::ACK) {
            return Ok(InputStep::Pong(payload));
        }
        frame::put_ping(flag::ACK, payload, out);
        self.budget_use.count_ack(&self.settings.budgets, out)?;
        Ok(InputStep::Done)
    }

    /// Handles PRIORITY_UPDATE (RFC 9218 §7.1), which only a client may send.
    #[cold]
    pub(crate) fn handle_priority_update(
        &mut self,
        frame: FrameHeader,
        payload: &[u8],
    ) -> Result<InputStep<'static>, ConnectionError> {
        let (id, value) = payload.split_first_chunk::<4>().ok_or(ConnectionError::FRAME_SIZE)?;
        let id = frame::number(*id);
        if frame.stream != 0 || id & 1 == 0 {
            return Err(ConnectionError::PROTOCOL);
        }
        let priority = Priority::parse(value);
        if let Some(stream) = self.streams.get_mut(id) {
            stream.priority = priority;
        } else if self.is_idle_stream(id) {
            return Ok(InputStep::IdleStreamPriority(id, priority));
        }
        Ok(InputStep::Done)
    }

    /// Number of bytes that the peer may send beyond a stream's window before it has received our smaller one (RFC
    /// 9113 §6.9.3).
    pub(super) fn slack(&self) -> u32 {
        if self.acknowledged { 0 } else { WINDOW_DEFAULT.saturating_sub(self.settings.stream_window) }
    }
}

// RFC 9113 §6.8.
#[cold]
fn handle_goaway(frame: FrameHeader, payload: &[u8]) -> Result<InputStep<'static>, ConnectionError> {
    if frame.stream != 0 {
        return Err(ConnectionError::PROTOCOL);
    }
    let &[l3, l2, l1, l0, c3, c2, c1, c0] = payload.first_chunk::<8>().ok_or(ConnectionError::FRAME_SIZE)?;
    let code = ErrorCode::of(u32::from_be_bytes([c3, c2, c1, c0]));
    Ok(InputStep::GoAway { last: frame::number([l3, l2, l1, l0]), code })
}

//! Field blocks in the client's role: an interim response, a final head, or trailers.

use causeway_message::{BodyLength, ResponseHead, StatusCode, StreamId, WriteList};

use super::Client;
use crate::connection::{Connection, FieldBlock, InputStep};
use crate::error::{ConnectionError, ErrorCode};
use crate::event::ClientEvent;
use crate::head::{NoSink, Response, ResponseSink};
use crate::stream::{Remote, RequestKind};

impl Client {
    pub(super) fn handle_block(
        &mut self,
        block: &FieldBlock<'_>,
        head: &mut ResponseHead,
        out: &mut WriteList,
    ) -> Result<Option<ClientEvent>, ConnectionError> {
        let (id, connection) = (block.stream, &mut self.connection);
        if connection.is_idle_stream(id) {
            return Err(ConnectionError::PROTOCOL);
        }
        let Some(stream) = connection.streams.get(id) else {
            connection.handle_late_block(block)?;
            return Ok(None);
        };
        if stream.is_closed() {
            return Err(ConnectionError::STREAM_CLOSED);
        }
        if stream.remote == Remote::Done {
            connection.decode(block, &mut NoSink)?;
            return reset_for(connection, id, ErrorCode::StreamClosed, out);
        }
        let kind = stream.kind;
        if !kind.awaits_head {
            return trailers(connection, block, head, out);
        }
        let mut sink = ResponseSink::head(head, &connection.settings);
        connection.decode(block, &mut sink)?;
        match sink.finish() {
            Ok(response) => handle_response_head(connection, block, response, kind, out),
            Err(_) => reset_for(connection, id, ErrorCode::Protocol, out),
        }
    }
}

fn handle_response_head(
    connection: &mut Connection,
    block: &FieldBlock<'_>,
    response: Response,
    kind: RequestKind,
    out: &mut WriteList,
) -> Result<Option<ClientEvent>, ConnectionError> {
    let (id, Response { status, declared }) = (block.stream, response);
    let stream = StreamId(id);
    if status.is_informational() {
        // RFC 9113 §8.1: an interim response does not end the stream; §8.6: there is no 101.
        if block.end_stream || status == StatusCode::SWITCHING_PROTOCOLS {
            return reset_for(connection, id, ErrorCode::Protocol, out);
        }
        return Ok(Some(ClientEvent::Interim { stream }));
    }
    // RFC 9110 §6.4.1, §8.6: content declared with HEAD and 304 is not sent; a length with a 2xx to CONNECT is
    // ignored.
    let is_bare = kind.is_head || status.forbids_content();
    let is_tunnel = kind.is_connect && matches!(status.as_u16(), 200..300);
    let expected = match declared {
        _ if is_bare => Some(0),
        _ if is_tunnel => None,
        declared => declared,
    };
    if block.end_stream && !is_bare && expected.is_some_and(|bytes| bytes > 0) {
        return reset_for(connection, id, ErrorCode::Protocol, out);
    }
    if let Some(entry) = connection.streams.get_mut(id) {
        entry.kind.awaits_head = false;
        entry.remote = Remote::Open(expected);
    }
    let body = match expected {
        _ if block.end_stream => BodyLength::None,
        Some(bytes @ 1..) => BodyLength::Sized(bytes),
        // The stream is still open, so an end follows even without content.
        Some(0) | None => BodyLength::Unknown,
    };
    if block.end_stream {
        // The declared length was checked above.
        if let Some(entry) = connection.streams.get_mut(id) {
            entry.remote = Remote::Open(None);
        }
        connection.end_remote(id, out)?;
    }
    Ok(Some(ClientEvent::Head { stream, body }))
}

// RFC 9113 §8.1.
fn trailers(
    connection: &mut Connection,
    block: &FieldBlock<'_>,
    head: &mut ResponseHead,
    out: &mut WriteList,
) -> Result<Option<ClientEvent>, ConnectionError> {
    let id = block.stream;
    let mut sink = ResponseSink::trailers(head, &connection.settings);
    connection.decode(block, &mut sink)?;
    if sink.finish_trailers().is_err() || !block.end_stream {
        return reset_for(connection, id, ErrorCode::Protocol, out);
    }
    let stream = StreamId(id);
    Ok(match connection.end_remote(id, out)? {
        InputStep::End(_) if head.fields().is_empty() => Some(ClientEvent::End { stream }),
        InputStep::End(_) => Some(ClientEvent::Trailers { stream }),
        InputStep::Reset(_, fault) => Some(ClientEvent::Reset { stream, fault }),
        _ => None,
    })
}

#[cold]
fn reset_for(
    connection: &mut Connection,
    id: u32,
    code: ErrorCode,
    out: &mut WriteList,
) -> Result<Option<ClientEvent>, ConnectionError> {
    connection.reset_for(id, code, out)?;
    Ok(Some(ClientEvent::Reset { stream: StreamId(id), fault: code }))
}

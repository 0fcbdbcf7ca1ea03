//! Records (§3.3, §8): the header of each, and their types.

use causeway_message::WriteList;

use crate::error::FastCgiError;

/// Length of a record's header in bytes.
pub(crate) const HEADER_LEN: usize = 8;
/// Length of the content of BEGIN_REQUEST and END_REQUEST in bytes.
pub(crate) const BODY_LEN: usize = 8;
/// The most content bytes of one record that this crate writes: a multiple of eight, and the most that php-fpm accepts
/// in a PARAMS record.
pub(crate) const CONTENT_MAX: usize = 0xfff8;
/// The request id of every request: a connection carries one.
pub(crate) const REQUEST_ID: u16 = 1;
/// The request id of management records, which belong to no request.
const MANAGEMENT: u16 = 0;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const ABORT_REQUEST: u8 = 2;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
const DATA: u8 = 8;

/// The role in which an application produces a response (§6.2).
const RESPONDER: u16 = 1;

/// The type of a record from an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    Stdout,
    Stderr,
    EndRequest,
    /// A management record, of any type that is not a stream's: its content is skipped (§4).
    Skipped,
}

/// The type of a stream of records to an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Params,
    Stdin,
}

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    pub(crate) kind: RecordKind,
    pub(crate) content_len: u16,
    pub(crate) padding_len: u8,
}

impl RecordHeader {
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, FastCgiError> {
        let [version, kind, id1, id0, content1, content0, padding_len, _reserved] = *bytes;
        if version != VERSION {
            return Err(FastCgiError::Version);
        }
        let kind = match (kind, u16::from_be_bytes([id1, id0])) {
            (BEGIN_REQUEST | ABORT_REQUEST | PARAMS | STDIN | DATA, _) => return Err(FastCgiError::RecordType),
            (STDOUT | STDERR | END_REQUEST, id) if id != REQUEST_ID => return Err(FastCgiError::RequestId),
            (STDOUT, _) => RecordKind::Stdout,
            (STDERR, _) => RecordKind::Stderr,
            (END_REQUEST, _) => RecordKind::EndRequest,
            (_, MANAGEMENT) => RecordKind::Skipped,
            _ => return Err(FastCgiError::RecordType),
        };
        let content_len = u16::from_be_bytes([content1, content0]);
        if kind == RecordKind::EndRequest && usize::from(content_len) != BODY_LEN {
            return Err(FastCgiError::EndRequest);
        }
        Ok(Self { kind, content_len, padding_len })
    }
}

/// Appends the record that begins a request. Without FCGI_KEEP_CONN, so the application closes the connection after its
/// response (§5.1).
pub(crate) fn put_begin(out: &mut WriteList) {
    put_header(BEGIN_REQUEST, BODY_LEN, out);
    let [role1, role0] = RESPONDER.to_be_bytes();
    out.put(&[role1, role0, 0, 0, 0, 0, 0, 0]);
}

/// Appends the header of a record of a stream; its content follows. Content of no bytes ends the stream (§3.3).
pub(crate) fn put_stream_header(kind: StreamKind, content_len: usize, out: &mut WriteList) {
    let kind = match kind {
        StreamKind::Params => PARAMS,
        StreamKind::Stdin => STDIN,
    };
    put_header(kind, content_len, out);
}

fn put_header(kind: u8, content_len: usize, out: &mut WriteList) {
    let [id1, id0] = REQUEST_ID.to_be_bytes();
    let [content1, content0] = u16::try_from(content_len).expect("at most CONTENT_MAX").to_be_bytes();
    out.put(&[VERSION, kind, id1, id0, content1, content0, 0, 0]);
}

//! The response as a client receives it.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::task::{Context as PollContext, Poll};

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::{Body, BodyError, BodyPart, FileSlice, Frame};

/// A response, read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestResponse {
    /// The status code; 0 without a response.
    pub status: u16,
    /// The fields for the peer, in order, with their spelling kept. Fields that frame the message are missing: the
    /// protocol machine adds them.
    pub fields: Vec<(String, String)>,
    /// The content; always empty for HEAD.
    pub body: Vec<u8>,
    /// The content's length if it is known before sending: the value for `Content-Length`.
    pub length: Option<u64>,
    /// The trailer section, if there is one.
    pub trailers: Option<FieldMap>,
    /// Interim responses, in order.
    pub interims: Vec<(StatusCode, FieldMap)>,
    /// The handler closed the connection without a response.
    pub aborted: bool,
    /// The reason why the content ended early.
    pub broken: Option<BodyError>,
    /// Whether the exchange writes an access record.
    pub recorded: bool,
    /// Whether the connection switched to another protocol.
    pub tunnel: bool,
}

impl TestResponse {
    /// Returns the only value of a field.
    ///
    /// # Panics
    /// When there are several.
    #[track_caller]
    pub fn field<'a>(&'a self, name: &'a str) -> Option<&'a str> {
        let mut values = self.values(name);
        let first = values.next();
        assert!(values.next().is_none(), "several {name} fields: {:?}", self.fields);
        first
    }

    /// Returns all values of a field.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Returns the content as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

/// Reads a [`Body`] into a [`TestResponse`].
pub(crate) struct Reader {
    body: Body,
}

impl Reader {
    pub(crate) fn new(body: Body) -> Self {
        Self { body }
    }

    /// Reads until the end of the body, or until it is pending.
    pub(crate) fn poll(&mut self, answer: &mut TestResponse, poll_cx: &mut PollContext<'_>) -> Poll<()> {
        // All kinds of bodies are converted to parts, so that one loop reads them.
        let mut rest = match std::mem::take(&mut self.body) {
            Body::Parts(parts) => parts,
            Body::Tunnel(mut tunnel) => {
                answer.tunnel = true;
                let done = read_stream(&mut *tunnel.stream, answer, poll_cx);
                self.body = Body::Tunnel(tunnel);
                return done;
            }
            Body::Empty => VecDeque::new(),
            Body::Chunk(chunk) => VecDeque::from([BodyPart::Chunk(chunk)]),
            Body::File(slice) => VecDeque::from([BodyPart::File(slice)]),
            Body::Stream(stream) => VecDeque::from([BodyPart::Stream(stream)]),
            Body::Incoming(body) => VecDeque::from([BodyPart::Incoming(body)]),
        };
        while let Some(part) = rest.front_mut() {
            let done = match part {
                BodyPart::Chunk(chunk) => {
                    answer.body.extend_from_slice(chunk.as_slice());
                    Poll::Ready(())
                }
                BodyPart::File(slice) => {
                    read_file(slice, answer);
                    Poll::Ready(())
                }
                BodyPart::Stream(stream) => read_stream(&mut **stream, answer, poll_cx),
                BodyPart::Incoming(body) => read_stream(body, answer, poll_cx),
                BodyPart::Trailers(fields) => {
                    answer.trailers = Some(std::mem::take(fields));
                    Poll::Ready(())
                }
            };
            if done.is_pending() {
                break;
            }
            rest.pop_front();
        }
        let done = if rest.is_empty() { Poll::Ready(()) } else { Poll::Pending };
        self.body = Body::Parts(rest);
        done
    }
}

/// Appends a file's slice; a rewritten or shortened file breaks the content off.
fn read_file(slice: &FileSlice, answer: &mut TestResponse) {
    let mut bytes = vec![0; usize::try_from(slice.len).expect("a test's file")];
    match slice.file.file().read_exact_at(&mut bytes, slice.at) {
        Ok(()) if !slice.file.is_rewritten() => answer.body.extend_from_slice(&bytes),
        _ => answer.broken = Some(BodyError::Source),
    }
}

/// Appends a stream's frames until its end or until it is pending.
fn read_stream(
    stream: &mut dyn causeway_pipeline::BodyStream,
    answer: &mut TestResponse,
    poll_cx: &mut PollContext<'_>,
) -> Poll<()> {
    loop {
        match stream.poll_frame(poll_cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(None) => return Poll::Ready(()),
            Poll::Ready(Some(Ok(Frame::Chunk(chunk)))) => answer.body.extend_from_slice(chunk.as_slice()),
            Poll::Ready(Some(Ok(Frame::Trailers(fields)))) => answer.trailers = Some(*fields),
            Poll::Ready(Some(Err(fault))) => {
                answer.broken = Some(fault);
                return Poll::Ready(());
            }
        }
    }
}

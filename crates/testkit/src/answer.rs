//! What a client gets.

use std::collections::VecDeque;
use std::os::unix::fs::FileExt as _;
use std::task::{Context as Task, Poll};

use causeway_message::{FieldMap, StatusCode};
use causeway_pipeline::{Body, BodyFault, FileSlice, Frame, Part};

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// The status code; 0 when there was no answer.
    pub status: u16,
    /// The fields that go to the peer, in order, names as spelled. Those that frame the message are the machine's and
    /// not here.
    pub fields: Vec<(String, String)>,
    /// The content; empty for HEAD, whatever the handler gave.
    pub body: Vec<u8>,
    /// The length that was known before the content was sent: what `Content-Length` will say.
    pub length: Option<u64>,
    /// The trailer section.
    pub trailers: Option<FieldMap>,
    /// Interim responses.
    pub informs: Vec<(StatusCode, FieldMap)>,
    /// The handler closed without an answer.
    pub aborted: bool,
    /// The content broke off.
    pub broken: Option<BodyFault>,
    /// It leaves an access record.
    pub recorded: bool,
    /// The connection was given over to another protocol.
    pub tunnel: bool,
}

impl Answer {
    /// The only value of a field.
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

    /// All values of a field.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.fields.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The content as text.
    ///
    /// # Panics
    /// When it is not UTF-8.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("a text")
    }
}

/// A body on its way to an [`Answer`].
pub(crate) struct Reader {
    body: Body,
}

impl Reader {
    pub(crate) fn new(body: Body) -> Self {
        Self { body }
    }

    /// Reads on until the end or until the body has to be waited for.
    pub(crate) fn poll(&mut self, answer: &mut Answer, task: &mut Task<'_>) -> Poll<()> {
        let mut rest = match std::mem::take(&mut self.body) {
            Body::Parts(parts) => parts,
            Body::Tunnel(mut stream) => {
                answer.tunnel = true;
                let done = read_stream(&mut *stream, answer, task);
                self.body = Body::Tunnel(stream);
                return done;
            }
            Body::Empty => VecDeque::new(),
            Body::Chunk(chunk) => VecDeque::from([Part::Chunk(chunk)]),
            Body::File(slice) => VecDeque::from([Part::File(slice)]),
            Body::Stream(stream) => VecDeque::from([Part::Stream(stream)]),
            Body::Incoming(body) => VecDeque::from([Part::Incoming(body)]),
        };
        while let Some(part) = rest.front_mut() {
            let done = match part {
                Part::Chunk(chunk) => {
                    answer.body.extend_from_slice(chunk.as_slice());
                    Poll::Ready(())
                }
                Part::File(slice) => {
                    read_file(slice, answer);
                    Poll::Ready(())
                }
                Part::Stream(stream) => read_stream(&mut **stream, answer, task),
                Part::Incoming(body) => read_stream(body, answer, task),
                Part::Trailers(fields) => {
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

fn read_file(slice: &FileSlice, answer: &mut Answer) {
    let mut octets = vec![0; usize::try_from(slice.len).expect("a test's file")];
    match slice.file.read_exact_at(&mut octets, slice.at) {
        Ok(()) => answer.body.extend_from_slice(&octets),
        Err(_) => answer.broken = Some(BodyFault::Source),
    }
}

fn read_stream(stream: &mut dyn causeway_pipeline::BodyStream, answer: &mut Answer, task: &mut Task<'_>) -> Poll<()> {
    loop {
        match stream.poll_frame(task) {
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

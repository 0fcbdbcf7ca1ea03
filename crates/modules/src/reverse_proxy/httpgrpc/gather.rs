//! Collects content of unknown length while the call is already open, and sends it after a head with its length.

use std::rc::Rc;
use std::task::{Context as PollContext, Poll, ready};

use causeway_httpgrpc::{ResponseDecoder, encode_request};
use causeway_message::Head;
use causeway_pipeline::{Body, BodyError, BodyStream, Frame, Worker};

use crate::httpgrpc::lend::{DecoderLease, PooledDecoder as _};

pub(super) struct Gathering {
    /// `None` when the content is complete.
    content: Option<Box<dyn BodyStream>>,
    head: Head,
    // Only its list of chunks is used.
    chunks: DecoderLease<ResponseDecoder>,
    worker: Rc<dyn Worker>,
}

impl Gathering {
    pub(super) fn new(
        content: Body,
        head: Head,
        chunks: DecoderLease<ResponseDecoder>,
        worker: &Rc<dyn Worker>,
    ) -> Self {
        let content: Option<Box<dyn BodyStream>> = match content {
            Body::Incoming(content) => Some(Box::new(content)),
            Body::Stream(content) => Some(content),
            _ => None,
        };
        Self { content, head, chunks, worker: Rc::clone(worker) }
    }

    fn poll_whole(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Result<(), BodyError>> {
        let bytes_max = u64::from(self.chunks.limits().message_bytes_max);
        while let Some(content) = &mut self.content {
            match ready!(content.poll_frame(poll_cx)).transpose()? {
                None => self.content = None,
                // A unary message has no trailers.
                Some(Frame::Trailers(_)) => {}
                Some(Frame::Chunk(chunk)) => {
                    let body = self.chunks.body_mut();
                    if body.bytes() + chunk.len() as u64 > bytes_max {
                        return Poll::Ready(Err(BodyError::TooLarge));
                    }
                    body.push(chunk, &mut || self.worker.take_block());
                }
            }
        }
        self.chunks.body_mut().close();
        Poll::Ready(Ok(()))
    }
}

impl BodyStream for Gathering {
    fn poll_frame(&mut self, poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.content.is_some() {
            if let Err(error) = ready!(self.poll_whole(poll_cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            let mut out = Vec::new();
            let encoded = encode_request(&self.head, self.chunks.body().bytes(), &mut out);
            let head = encoded.map(|()| Frame::Chunk(out.into())).map_err(|_| BodyError::TooLarge);
            return Poll::Ready(Some(head));
        }
        Poll::Ready(self.chunks.body_mut().take_next().map(|chunk| Ok(Frame::Chunk(chunk))))
    }
}

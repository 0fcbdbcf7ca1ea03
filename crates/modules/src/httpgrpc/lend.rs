//! A per-worker pool of decoders, so that calls reuse their lists and heads instead of allocating new ones.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context as PollContext, Poll};

use causeway_httpgrpc::{Body, Limits, RequestDecoder, ResponseDecoder};
use causeway_pipeline::{BodyError, BodyStream, Frame};

/// Most unused decoders that a worker keeps.
const KEPT_MAX: usize = 32;
/// Capacity in bytes that each unused decoder keeps: enough for a head and the chunk list of about 64 MiB.
const KEPT_BYTES_MAX: usize = 256 * 1024;

/// A decoder of unary requests or responses.
pub(crate) trait PooledDecoder {
    fn fresh(limits: Limits) -> Self;
    fn body(&self) -> &Body;
    fn body_mut(&mut self) -> &mut Body;
    /// Clears the decoder for another call, and frees capacity above the limit.
    fn recycle(&mut self, bytes_max: usize);
}

macro_rules! pooled_decoder {
    ($decoder:ty) => {
        impl PooledDecoder for $decoder {
            fn fresh(limits: Limits) -> Self {
                Self::new(limits)
            }

            fn body(&self) -> &Body {
                &self.message().body
            }

            fn body_mut(&mut self) -> &mut Body {
                &mut self.message_mut().body
            }

            fn recycle(&mut self, bytes_max: usize) {
                self.clear();
                self.shrink_buffers(bytes_max);
            }
        }
    };
}

pooled_decoder!(RequestDecoder);
pooled_decoder!(ResponseDecoder);

/// The decoders of one worker.
pub(crate) struct Lender<D> {
    limits: Limits,
    // Boxed, so that a decoder moves between the pool and a call as a pointer.
    kept: RefCell<Vec<Box<D>>>,
}

impl<D: PooledDecoder> Lender<D> {
    pub(crate) fn new(limits: Limits) -> Rc<Self> {
        Rc::new(Self { limits, kept: RefCell::default() })
    }

    /// Returns an empty decoder.
    pub(crate) fn lend(self: &Rc<Self>) -> DecoderLease<D> {
        let kept = self.kept.borrow_mut().pop();
        let decoder = kept.unwrap_or_else(|| Box::new(D::fresh(self.limits)));
        DecoderLease { decoder: Some(decoder), lender: Rc::clone(self) }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// A leased decoder. Dropping it clears it and returns it to the pool.
pub(crate) struct DecoderLease<D: PooledDecoder> {
    decoder: Option<Box<D>>,
    lender: Rc<Lender<D>>,
}

impl<D: PooledDecoder> DecoderLease<D> {
    pub(crate) fn limits(&self) -> &Limits {
        self.lender.limits()
    }
}

const ON_LOAN: &str = "it is there until it is given back";

impl<D: PooledDecoder> Deref for DecoderLease<D> {
    type Target = D;

    fn deref(&self) -> &D {
        self.decoder.as_ref().expect(ON_LOAN)
    }
}

impl<D: PooledDecoder> DerefMut for DecoderLease<D> {
    fn deref_mut(&mut self) -> &mut D {
        self.decoder.as_mut().expect(ON_LOAN)
    }
}

impl<D: PooledDecoder> Drop for DecoderLease<D> {
    fn drop(&mut self) {
        let Some(mut decoder) = self.decoder.take() else { return };
        decoder.recycle(KEPT_BYTES_MAX);
        let mut kept = self.lender.kept.borrow_mut();
        // A burst of calls must not keep its memory forever.
        if kept.len() < KEPT_MAX {
            kept.push(decoder);
        }
    }
}

/// The content in a decoder, as a stream of chunks. Each block returns to its pool when the reader drops its chunk.
pub(crate) struct LeasedContent<D: PooledDecoder>(pub(crate) DecoderLease<D>);

impl<D: PooledDecoder> BodyStream for LeasedContent<D> {
    fn poll_frame(&mut self, _poll_cx: &mut PollContext<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        Poll::Ready(self.0.body_mut().take_next().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn len(&self) -> Option<u64> {
        Some(self.0.body().bytes())
    }
}

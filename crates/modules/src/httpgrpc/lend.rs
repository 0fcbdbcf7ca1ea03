//! Decoders that a worker lends to its calls, so that none grows its lists and heads anew.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::task::{Context as Task, Poll};

use causeway_httpgrpc::{Body, Limits, RequestDecoder, ResponseDecoder};
use causeway_pipeline::{BodyFault, BodyStream, Frame};

/// Decoders at rest that a worker keeps.
const KEPT_MAX: usize = 32;
/// Octets that each keeps for its next call: the chunks of some 64 MiB, and a head.
const KEPT_OCTETS_MAX: usize = 256 * 1024;

/// A decoder of unary calls, either way.
pub(crate) trait Unary {
    fn fresh(limits: Limits) -> Self;
    fn body(&self) -> &Body;
    fn body_mut(&mut self) -> &mut Body;
    /// Empties it, for another call.
    fn rest(&mut self, octets_max: usize);
}

macro_rules! unary {
    ($decoder:ty) => {
        impl Unary for $decoder {
            fn fresh(limits: Limits) -> Self {
                Self::new(limits)
            }

            fn body(&self) -> &Body {
                &self.message().body
            }

            fn body_mut(&mut self) -> &mut Body {
                &mut self.message_mut().body
            }

            fn rest(&mut self, octets_max: usize) {
                self.clear();
                self.trim(octets_max);
            }
        }
    };
}

unary!(RequestDecoder);
unary!(ResponseDecoder);

/// One worker's decoders.
pub(crate) struct Lender<D> {
    limits: Limits,
    // Boxed, so that one moves to its call and back by its address.
    kept: RefCell<Vec<Box<D>>>,
}

impl<D: Unary> Lender<D> {
    pub(crate) fn new(limits: Limits) -> Rc<Self> {
        Rc::new(Self { limits, kept: RefCell::default() })
    }

    /// An empty decoder.
    pub(crate) fn lend(self: &Rc<Self>) -> Lease<D> {
        let kept = self.kept.borrow_mut().pop();
        let decoder = kept.unwrap_or_else(|| Box::new(D::fresh(self.limits)));
        Lease { decoder: Some(decoder), lender: Rc::clone(self) }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }
}

/// A decoder on loan; dropping it gives it back empty.
pub(crate) struct Lease<D: Unary> {
    decoder: Option<Box<D>>,
    lender: Rc<Lender<D>>,
}

impl<D: Unary> Lease<D> {
    pub(crate) fn limits(&self) -> &Limits {
        self.lender.limits()
    }
}

const ON_LOAN: &str = "it is there until it is given back";

impl<D: Unary> Deref for Lease<D> {
    type Target = D;

    fn deref(&self) -> &D {
        self.decoder.as_ref().expect(ON_LOAN)
    }
}

impl<D: Unary> DerefMut for Lease<D> {
    fn deref_mut(&mut self) -> &mut D {
        self.decoder.as_mut().expect(ON_LOAN)
    }
}

impl<D: Unary> Drop for Lease<D> {
    fn drop(&mut self) {
        let Some(mut decoder) = self.decoder.take() else { return };
        decoder.rest(KEPT_OCTETS_MAX);
        let mut kept = self.lender.kept.borrow_mut();
        if kept.len() < KEPT_MAX {
            kept.push(decoder);
        }
    }
}

/// The content that a decoder holds, chunk by chunk: each block goes home when its reader lets go of it.
pub(crate) struct Held<D: Unary>(pub(crate) Lease<D>);

impl<D: Unary> BodyStream for Held<D> {
    fn poll_frame(&mut self, _task: &mut Task<'_>) -> Poll<Option<Result<Frame, BodyFault>>> {
        Poll::Ready(self.0.body_mut().take_next().map(|chunk| Ok(Frame::Chunk(chunk))))
    }

    fn len(&self) -> Option<u64> {
        Some(self.0.body().octets())
    }
}

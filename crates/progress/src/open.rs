//! Which spans are open on a thread, so that their guards may be dropped in any order: two locks are often given up in the
//! order in which they were taken, and then the kind of work is what is still open, not what one guard found.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::span::Span;

/// Spans that are open at once on a thread; what would be deeper is its surroundings.
pub(crate) const DEPTH_MAX: usize = 32;

/// The spans that are open, the outermost first. Written by the thread itself only.
#[derive(Debug, Default)]
pub(crate) struct Open {
    depth: AtomicU32,
    given: AtomicU32,
    spans: [Slot; DEPTH_MAX],
}

#[derive(Debug, Default)]
struct Slot {
    token: AtomicU32,
    span: AtomicU32,
    /// The kind of work outside of it.
    before: AtomicU32,
}

impl Slot {
    fn set(&self, token: u32, span: u32, before: u32) {
        self.token.store(token, Relaxed);
        self.span.store(span, Relaxed);
        self.before.store(before, Relaxed);
    }
}

impl Open {
    /// Opens a span, which `enter` tells the policy; `None` when too many are open.
    pub(crate) fn open(&self, span: Span, enter: impl FnOnce(Span) -> u32) -> Option<NonZeroU32> {
        let depth = self.depth.load(Relaxed);
        let slot = self.spans.get(depth as usize)?;
        let token = NonZeroU32::new(self.given.load(Relaxed).wrapping_add(1)).unwrap_or(NonZeroU32::MIN);
        slot.set(token.get(), span.id(), enter(span));
        self.given.store(token.get(), Relaxed);
        self.depth.store(depth + 1, Relaxed);
        Some(token)
    }

    /// Closes the span of that token: back to what was outside of it, and into those again that were opened inside and are
    /// still open.
    pub(crate) fn close(&self, token: NonZeroU32, leave: impl FnOnce(u32), enter: impl Fn(Span) -> u32) {
        let depth = self.depth.load(Relaxed) as usize;
        let open = &self.spans[..depth];
        let Some(at) = open.iter().rposition(|slot| slot.token.load(Relaxed) == token.get()) else { return };
        leave(open[at].before.load(Relaxed));
        for (slot, next) in open[at..].iter().zip(&open[at + 1..]) {
            let span = next.span.load(Relaxed);
            slot.set(next.token.load(Relaxed), span, enter(Span::of(span)));
        }
        self.depth.store(depth as u32 - 1, Relaxed);
    }

    /// Forgets all: the thread ended.
    pub(crate) fn clear(&self) {
        self.depth.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A kind of work is a decimal number here: a digit for each span.
    #[derive(Default)]
    struct Thread {
        open: Open,
        kind: Cell<u32>,
    }

    impl Thread {
        fn enter(&self, span: Span) -> u32 {
            self.kind.replace(self.kind.get() * 10 + span.id())
        }

        fn open(&self, span: u32) -> Option<NonZeroU32> {
            self.open.open(Span::of(span), |span| self.enter(span))
        }

        fn close(&self, token: Option<NonZeroU32>) -> u32 {
            self.open.close(token.expect("it is open"), |before| self.kind.set(before), |span| self.enter(span));
            self.kind.get()
        }
    }

    #[test]
    fn what_is_open_is_what_the_thread_is_in_whatever_is_closed_first() {
        let thread = Thread::default();
        let orders: [(&[usize], &[u32]); 6] = [
            (&[2, 1, 0], &[12, 1, 0]),
            (&[2, 0, 1], &[12, 2, 0]),
            (&[1, 2, 0], &[13, 1, 0]),
            (&[1, 0, 2], &[13, 3, 0]),
            (&[0, 1, 2], &[23, 3, 0]),
            (&[0, 2, 1], &[23, 2, 0]),
        ];
        for (order, want) in orders {
            let tokens = [thread.open(1), thread.open(2), thread.open(3)];
            assert_eq!(thread.kind.get(), 123);
            let kinds: Vec<_> = order.iter().map(|&at| thread.close(tokens[at])).collect();
            assert_eq!(kinds, want, "{order:?}");
        }
    }

    #[test]
    fn hand_over_hand_stays_one_deep() {
        let thread = Thread::default();
        let mut held = thread.open(1);
        for _ in 0..1000 {
            let next = thread.open(2);
            thread.close(held);
            held = next;
            assert_eq!(thread.kind.get(), 2);
        }
        assert_eq!(thread.close(held), 0);
    }

    #[test]
    fn too_deep_is_not_told() {
        let thread = Thread { kind: Cell::new(0), ..Thread::default() };
        let tokens: Vec<_> = (0..DEPTH_MAX).map(|_| thread.open(0)).collect();
        assert_eq!(thread.open(1), None);
        assert_eq!(thread.kind.get(), 0);
        for token in tokens {
            thread.close(token);
        }
        assert_eq!(thread.open.depth.load(Relaxed), 0);
    }

    #[test]
    fn tokens_begin_again_without_0() {
        let thread = Thread::default();
        thread.open.given.store(u32::MAX, Relaxed);
        let token = thread.open(1);
        assert_eq!(token, Some(NonZeroU32::MIN));
        assert_eq!(thread.close(token), 0);
    }
}

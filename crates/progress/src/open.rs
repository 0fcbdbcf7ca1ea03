//! Where a thread is: which spans are open on it, and behind which meeting with other threads. Spans' guards may be dropped in any order:
//! two locks are often given up in the order in which they were taken, and then the kind of work is what is still open, not what
//! one guard found.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicBool, AtomicU32,
    Ordering::{Relaxed, Release},
    compiler_fence,
};

use crate::span::Span;

/// Spans and meetings that are known at once on a thread; what would be deeper is its surroundings.
pub(crate) const DEPTH_MAX: usize = 32;

/// One step from a thread to what it is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Into the span.
    Span(Span),
    /// Past the place where threads meet.
    Site(Span),
}

/// All steps, the outermost first. Written by the thread itself only, and read by its signal handler.
#[derive(Debug, Default)]
pub(crate) struct Open {
    depth: AtomicU32,
    given: AtomicU32,
    stands: AtomicBool,
    slots: [Slot; DEPTH_MAX],
}

#[derive(Debug, Default)]
struct Slot {
    /// Of a span's guard; 0 for a site.
    token: AtomicU32,
    span: AtomicU32,
    /// The kind of work outside of it.
    before: AtomicU32,
}

impl Slot {
    #[inline]
    fn set(&self, token: u32, span: u32, before: u32) {
        self.token.store(token, Relaxed);
        self.span.store(span, Relaxed);
        self.before.store(before, Relaxed);
    }

    fn step(&self) -> Step {
        let span = Span::of(self.span.load(Relaxed));
        if self.token.load(Relaxed) == 0 { Step::Site(span) } else { Step::Span(span) }
    }
}

impl Open {
    /// The steps as they are now.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> {
        self.slots[..self.depth.load(Relaxed) as usize].iter().map(Slot::step)
    }

    #[inline]
    fn set_depth(&self, depth: usize) {
        // A signal handler on this thread sees a slot before it counts.
        compiler_fence(Release);
        self.depth.store(depth as u32, Relaxed);
    }

    /// Opens a span, which `enter` tells the policy; `None` when too many are open.
    #[inline]
    pub(crate) fn open(&self, span: Span, enter: impl FnOnce(Span) -> u32) -> Option<NonZeroU32> {
        let depth = self.depth.load(Relaxed) as usize;
        let slot = self.slots.get(depth)?;
        let token = NonZeroU32::new(self.given.load(Relaxed).wrapping_add(1)).unwrap_or(NonZeroU32::MIN);
        slot.set(token.get(), span.id(), enter(span));
        self.given.store(token.get(), Relaxed);
        self.set_depth(depth + 1);
        Some(token)
    }

    /// Closes the span of that token: back to what was outside of it, which `leave` reads, and into those again that were opened inside
    /// and are still open.
    #[inline]
    pub(crate) fn close(&self, token: NonZeroU32, leave: impl FnOnce(&AtomicU32), enter: impl Fn(Span) -> u32) {
        let last = (self.depth.load(Relaxed) as usize).wrapping_sub(1);
        match self.slots.get(last) {
            // Nearly always.
            Some(slot) if slot.token.load(Relaxed) == token.get() => {
                leave(&slot.before);
                self.set_depth(last);
            }
            _ => self.close_inner(token, leave, enter),
        }
    }

    #[cold]
    #[inline(never)]
    fn close_inner(&self, token: NonZeroU32, leave: impl FnOnce(&AtomicU32), enter: impl Fn(Span) -> u32) {
        let open = &self.slots[..self.depth.load(Relaxed) as usize];
        let Some(at) = open.iter().rposition(|slot| slot.token.load(Relaxed) == token.get()) else { return };
        leave(&open[at].before);
        let mut next = at;
        for slot in &open[at + 1..] {
            if let Step::Span(span) = slot.step() {
                open[next].set(slot.token.load(Relaxed), span.id(), enter(span));
                next += 1;
            }
        }
        self.set_depth(next);
    }

    /// The thread met others: what it does from now on is behind that place, until the next one or the end of the span that it is in.
    #[inline]
    pub(crate) fn meet(&self, site: Span) {
        let depth = self.depth.load(Relaxed) as usize;
        match depth.checked_sub(1).map(|last| &self.slots[last]) {
            Some(last) if last.token.load(Relaxed) == 0 => last.span.store(site.id(), Relaxed),
            _ => {
                if let Some(slot) = self.slots.get(depth) {
                    slot.set(0, site.id(), 0);
                    self.set_depth(depth + 1);
                }
            }
        }
    }

    /// Says anew what the kind of work is outside of each span, from the outermost on: `next` leads from a kind to the next one. The
    /// answer is the kind of all steps.
    pub(crate) fn retell(&self, first: u32, mut next: impl FnMut(u32, Step) -> u32) -> u32 {
        let slots = &self.slots[..self.depth.load(Relaxed) as usize];
        slots.iter().fold(first, |kind, slot| {
            slot.before.store(kind, Relaxed);
            next(kind, slot.step())
        })
    }

    /// Whether the thread waits in one of our primitives, and so does nothing.
    #[inline]
    pub(crate) fn stands(&self) -> bool {
        self.stands.load(Relaxed)
    }

    pub(crate) fn set_stands(&self, stands: bool) {
        self.stands.store(stands, Relaxed);
    }

    /// Forgets all: the thread ended.
    pub(crate) fn clear(&self) {
        self.depth.store(0, Relaxed);
        self.stands.store(false, Relaxed);
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
            self.open.close(
                token.expect("it is open"),
                |before| self.kind.set(before.load(Relaxed)),
                |span| self.enter(span),
            );
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

    /// Steps in words: spans as numbers, places with @.
    fn steps(open: &Open) -> String {
        let word = |step| match step {
            Step::Span(span) => span.id().to_string(),
            Step::Site(site) => format!("@{}", site.id()),
        };
        open.steps().map(word).collect()
    }

    #[test]
    fn a_meeting_lasts_until_the_next_one_or_the_end_of_its_span() {
        let open = Open::default();
        let enter = |span| open.open(Span::of(span), |_| 0).expect("it is not deep");
        let leave = |token| open.close(token, |_| {}, |_| 0);
        open.meet(Span::of(7));
        open.meet(Span::of(8));
        let outer = enter(1);
        assert_eq!(steps(&open), "@81");
        open.meet(Span::of(9));
        let inner = enter(2);
        open.meet(Span::of(6));
        assert_eq!(steps(&open), "@81@92@6");
        leave(inner);
        assert_eq!(steps(&open), "@81@9");
        let inner = enter(3);
        open.meet(Span::of(6));
        leave(outer);
        assert_eq!(steps(&open), "@83", "what was met inside is forgotten, what is open is not");
        leave(inner);
        assert_eq!(steps(&open), "@8");
    }

    #[test]
    fn kinds_are_told_anew_from_the_outermost_on() {
        let open = Open::default();
        open.meet(Span::of(5));
        let token = open.open(Span::of(2), |_| 0).expect("it is not deep");
        let kind = open.retell(1, |kind, step| match step {
            Step::Span(span) => kind * 10 + span.id(),
            Step::Site(site) => kind * 100 + site.id(),
        });
        assert_eq!(kind, 1052);
        let before = Cell::new(0);
        open.close(token, |kind| before.set(kind.load(Relaxed)), |_| 0);
        assert_eq!(before.get(), 105);
    }

    #[test]
    fn too_deep_is_not_told() {
        let thread = Thread { kind: Cell::new(0), ..Thread::default() };
        let tokens: Vec<_> = (0..DEPTH_MAX).map(|_| thread.open(0)).collect();
        assert_eq!(thread.open(1), None);
        thread.open.meet(Span::of(1));
        assert_eq!(thread.open.steps().count(), DEPTH_MAX);
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

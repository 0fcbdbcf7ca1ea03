//! A thread's context: its open spans and its last synchronisation site in each. Guards of spans may be dropped in any
//! order: two locks are often released in the order in which they were taken. The kind of work then follows from the
//! spans that are still open, not from the state that a guard saved.

use std::num::NonZeroU32;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, Release},
    compiler_fence,
};

use crate::account;
use crate::span::Span;

/// Bound on the open spans and sites of a thread; deeper ones are ignored, so their work counts as that of the last one
/// kept.
pub(crate) const DEPTH_MAX: usize = 32;
/// The depth of a thread that has reported nothing yet, and may have no account.
const UNREGISTERED: u32 = u32::MAX;

/// One step of a thread's context, from the outside inwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextStep {
    /// An open span.
    Span(Span),
    /// The last synchronisation site that the thread passed in the enclosing span.
    Site(Span),
}

/// The context of a thread, outermost step first. Only the thread itself writes it; its signal handler reads it.
#[derive(Debug)]
pub(crate) struct SpanStack {
    /// The number of slots in use; `UNREGISTERED` before the first.
    depth: AtomicU32,
    /// The last token issued; always odd, so never 0.
    last_token: AtomicU32,
    /// The upper half is the span's id, the lower half the guard's token, or 0 for a site.
    slots: [AtomicU64; DEPTH_MAX],
    /// The kind of work outside each step, while a policy is called.
    before: [AtomicU32; DEPTH_MAX],
}

thread_local! {
    /// This thread's context. `const` and without a destructor, so that a signal handler may read it.
    static HERE: SpanStack = const { SpanStack::new(UNREGISTERED) };
}

/// Runs `work` on this thread's context.
#[inline]
pub(crate) fn here<T>(work: impl FnOnce(&SpanStack) -> T) -> T {
    HERE.with(work)
}

/// Calls `each` with the open spans of this thread and its synchronisation sites, outermost first, as far as a profile
/// has recorded them. Safe to call in a signal handler.
pub fn steps(each: impl FnMut(ContextStep)) {
    here(|open| open.steps().for_each(each));
}

/// For a policy that becomes active: recomputes the kind of work outside each step of this thread, starting with
/// `first` outside all of them; `next` maps a kind and a step to the kind within it. Returns the innermost kind.
pub fn recompute_kinds(first: u32, next: impl FnMut(u32, ContextStep) -> u32) -> u32 {
    here(|open| open.recompute_kinds(first, next))
}

/// A slot's word: the span's id, and the token of its guard, or 0 for a site.
#[inline]
fn word(token: u32, span: Span) -> u64 {
    u64::from(span.id()) << 32 | u64::from(token)
}

fn step(word: u64) -> ContextStep {
    let span = Span::from_id((word >> 32) as u32);
    if word as u32 == 0 { ContextStep::Site(span) } else { ContextStep::Span(span) }
}

impl SpanStack {
    const fn new(depth: u32) -> Self {
        Self {
            depth: AtomicU32::new(depth),
            last_token: AtomicU32::new(1),
            slots: [const { AtomicU64::new(0) }; DEPTH_MAX],
            before: [const { AtomicU32::new(0) }; DEPTH_MAX],
        }
    }

    /// The words of the current steps.
    fn words(&self) -> impl DoubleEndedIterator<Item = u64> + ExactSizeIterator {
        let used = self.slots.get(..self.depth.load(Relaxed) as usize).unwrap_or_default();
        used.iter().map(|slot| slot.load(Relaxed))
    }

    fn steps(&self) -> impl Iterator<Item = ContextStep> {
        self.words().map(step)
    }

    #[inline]
    fn set_depth(&self, depth: u32) {
        // A signal handler on this thread must see a slot's content before the depth that includes it. A compiler fence
        // suffices within one thread.
        compiler_fence(Release);
        self.depth.store(depth, Relaxed);
    }

    /// Opens a span without a call to a policy; `None` at `DEPTH_MAX`. Kept short, because programs open spans often.
    #[inline]
    pub(crate) fn push(&self, span: Span) -> Option<NonZeroU32> {
        let depth = self.depth.load(Relaxed);
        let Some(slot) = self.slots.get(depth as usize) else { return self.push_first(span) };
        // Tokens advance by 2, so they stay odd across a wrap.
        let token = self.last_token.load(Relaxed).wrapping_add(2);
        self.last_token.store(token, Relaxed);
        slot.store(word(token, span), Relaxed);
        self.set_depth(depth + 1);
        NonZeroU32::new(token)
    }

    #[cold]
    #[inline(never)]
    fn push_first(&self, span: Span) -> Option<NonZeroU32> {
        if self.begin() { self.push(span) } else { None }
    }

    /// Whether this is the thread's first report; if so, the thread is registered and the depth becomes 0.
    fn begin(&self) -> bool {
        let is_first = self.depth.load(Relaxed) == UNREGISTERED && account::register().is_some();
        if is_first {
            self.set_depth(0);
        }
        is_first
    }

    /// Opens a span; `enter` reports it to the policy and returns the kind outside. `None` at `DEPTH_MAX`.
    pub(crate) fn open(&self, span: Span, enter: impl FnOnce(Span) -> u32) -> Option<NonZeroU32> {
        self.begin();
        let before = self.before.get(self.depth.load(Relaxed) as usize)?;
        before.store(enter(span), Relaxed);
        self.push(span)
    }

    /// Closes the span of that token without a call to a policy.
    #[inline]
    pub(crate) fn pop(&self, token: NonZeroU32) {
        let last = self.depth.load(Relaxed).wrapping_sub(1);
        if self.slots[last as usize % DEPTH_MAX].load(Relaxed) as u32 == token.get() {
            // The usual case: the innermost span.
            self.set_depth(last);
        } else {
            self.close(token, |_| {}, |_| 0);
        }
    }

    /// Closes the span of that token: `leave` restores the kind outside it, then `enter` re-enters the spans that were
    /// opened inside it and are still open. Sites inside it are dropped.
    #[inline(never)]
    pub(crate) fn close(&self, token: NonZeroU32, leave: impl FnOnce(&AtomicU32), enter: impl Fn(Span) -> u32) {
        // An unknown token means that the span was closed before, or that the context was cleared: nothing to do.
        let Some(at) = self.words().rposition(|word| word as u32 == token.get()) else { return };
        let open = self.words().len();
        leave(&self.before[at]);
        // A signal handler during the loop sees the spans that have been re-entered so far.
        self.set_depth(at as u32);
        let mut next = at;
        for inside in at + 1..open {
            let word = self.slots[inside].load(Relaxed);
            if let ContextStep::Span(span) = step(word) {
                self.before[next].store(enter(span), Relaxed);
                self.slots[next].store(word, Relaxed);
                next += 1;
                self.set_depth(next as u32);
            }
        }
    }

    /// The thread passed `site`: its work belongs to that site until the next one or the end of the enclosing span.
    #[inline]
    pub(crate) fn set_site(&self, site: Span) {
        self.begin();
        let depth = self.depth.load(Relaxed);
        let met = word(0, site);
        match self.words().next_back().map(step) {
            // A new site replaces the previous one in the enclosing span; sites never nest.
            Some(ContextStep::Site(_)) => self.slots[depth as usize - 1].store(met, Relaxed),
            _ => {
                if let Some(slot) = self.slots.get(depth as usize) {
                    slot.store(met, Relaxed);
                    self.set_depth(depth + 1);
                }
            }
        }
    }

    fn recompute_kinds(&self, first: u32, mut next: impl FnMut(u32, ContextStep) -> u32) -> u32 {
        self.steps().zip(&self.before).fold(first, |kind, (step, before)| {
            before.store(kind, Relaxed);
            next(kind, step)
        })
    }

    /// Resets the context: the thread ended.
    pub(crate) fn clear(&self) {
        self.depth.store(UNREGISTERED, Relaxed);
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// A kind of work is a decimal number here, with one digit for each open span.
    struct Thread {
        open: SpanStack,
        kind: Cell<u32>,
    }

    impl Thread {
        fn new() -> Self {
            Self { open: SpanStack::new(0), kind: Cell::new(0) }
        }

        fn enter(&self, span: Span) -> u32 {
            self.kind.replace(self.kind.get() * 10 + span.id())
        }

        fn open(&self, span: u32) -> Option<NonZeroU32> {
            self.open.open(Span::from_id(span), |span| self.enter(span))
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
    fn open_spans_are_tracked_in_any_closing_order() {
        let thread = Thread::new();
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
    fn overlapping_spans_stay_one_deep() {
        let thread = Thread::new();
        let mut held = thread.open(1);
        for _ in 0..1000 {
            let next = thread.open(2);
            thread.close(held);
            held = next;
            assert_eq!(thread.kind.get(), 2);
        }
        assert_eq!(thread.close(held), 0);
    }

    /// The steps as text: spans as numbers, sites with a leading `@`.
    fn steps(open: &SpanStack) -> String {
        let word = |step| match step {
            ContextStep::Span(span) => span.id().to_string(),
            ContextStep::Site(site) => format!("@{}", site.id()),
        };
        open.steps().map(word).collect()
    }

    #[test]
    fn an_event_lasts_until_the_next_one_or_the_end_of_its_span() {
        let open = SpanStack::new(0);
        let enter = |span| open.open(Span::from_id(span), |_| 0).expect("it is not deep");
        let leave = |token| open.pop(token);
        open.set_site(Span::from_id(7));
        open.set_site(Span::from_id(8));
        let outer = enter(1);
        assert_eq!(steps(&open), "@81");
        open.set_site(Span::from_id(9));
        let inner = enter(2);
        open.set_site(Span::from_id(6));
        assert_eq!(steps(&open), "@81@92@6");
        leave(inner);
        assert_eq!(steps(&open), "@81@9");
        let inner = enter(3);
        open.set_site(Span::from_id(6));
        leave(outer);
        assert_eq!(steps(&open), "@83", "the inner sites are dropped, the open span is kept");
        leave(inner);
        assert_eq!(steps(&open), "@8");
    }

    #[test]
    fn kinds_are_reported_again_from_the_outermost_span() {
        let open = SpanStack::new(0);
        open.set_site(Span::from_id(5));
        let token = open.open(Span::from_id(2), |_| 0).expect("it is not deep");
        let kind = open.recompute_kinds(1, |kind, step| match step {
            ContextStep::Span(span) => kind * 10 + span.id(),
            ContextStep::Site(site) => kind * 100 + site.id(),
        });
        assert_eq!(kind, 1052);
        let before = Cell::new(0);
        open.close(token, |kind| before.set(kind.load(Relaxed)), |_| 0);
        assert_eq!(before.get(), 105);
    }

    #[test]
    fn spans_beyond_the_maximum_depth_are_ignored() {
        let thread = Thread::new();
        let tokens: Vec<_> = (0..DEPTH_MAX).map(|_| thread.open(0)).collect();
        assert_eq!(thread.open(1), None);
        thread.open.set_site(Span::from_id(1));
        assert_eq!(thread.open.steps().count(), DEPTH_MAX);
        assert_eq!(thread.kind.get(), 0);
        for token in tokens {
            thread.close(token);
        }
        assert_eq!(thread.open.depth.load(Relaxed), 0);
    }

    #[test]
    fn tokens_wrap_around_without_0() {
        let thread = Thread::new();
        thread.open.last_token.store(u32::MAX, Relaxed);
        let token = thread.open(1);
        assert_eq!(token, Some(NonZeroU32::MIN));
        assert_eq!(thread.close(token), 0);
    }

    #[test]
    fn unreported_spans_may_end_in_any_order() {
        let open = SpanStack::new(0);
        let enter = |span| open.push(Span::from_id(span)).expect("it is not deep");
        let (a, b, c) = (enter(1), enter(2), enter(3));
        open.pop(b);
        assert_eq!(steps(&open), "13");
        open.pop(b);
        assert_eq!(steps(&open), "13", "once is enough");
        open.pop(c);
        open.pop(a);
        assert_eq!(steps(&open), "");
        open.pop(a);
        assert_eq!(open.depth.load(Relaxed), 0);
        let all: Vec<_> = (0..DEPTH_MAX as u32).map(enter).collect();
        assert_eq!(open.push(Span::from_id(7)), None);
        all.into_iter().for_each(|token| open.pop(token));
        assert_eq!(steps(&open), "");
    }
}

//! Kinds of work: the thread's name, the spans that it is inside of, and the last place where it synchronised with
//! another thread.
//!
//! A kind is a node of a tree: below the root are the threads by name, below those the spans as they nest, and as
//! leaves the sites where threads synchronise (a lock, a channel). The profiler attributes a sampled function's share
//! of a stretch of time by its kind alone. So the finer the kinds, the less time is attributed to work that never runs
//! the function.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use progress::{Account, Span};

/// Maximum number of kinds. When it is reached, a new child is counted as its parent.
pub const KINDS_MAX: usize = 4096;

/// The step from a node's parent to the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NodeStep {
    /// The root: nothing is known about the work.
    Root,
    /// A thread of this name, without trailing digits and separators.
    Thread(Arc<str>),
    /// Inside the span of this number.
    Span(u32),
    /// After the synchronisation site of this number.
    Site(u32),
}

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextKind {
    /// The parent's number; the root is its own parent.
    pub parent: u32,
    /// The step from the parent.
    pub step: NodeStep,
}

struct KindTree {
    kinds: Vec<ContextKind>,
    known: HashMap<(u32, NodeStep), u32>,
}

fn tree<T>(work: impl FnOnce(&mut KindTree) -> T) -> T {
    static TREE: OnceLock<Mutex<KindTree>> = OnceLock::new();
    let tree = TREE.get_or_init(|| {
        Mutex::new(KindTree { kinds: vec![ContextKind { parent: 0, step: NodeStep::Root }], known: HashMap::new() })
    });
    work(&mut tree.lock().unwrap_or_else(PoisonError::into_inner))
}

impl KindTree {
    fn child(&mut self, parent: u32, step: NodeStep) -> u32 {
        if let Some(&known) = self.known.get(&(parent, step.clone())) {
            return known;
        }
        // Without a new node the work is counted as its parent's: coarser, but still right.
        if self.kinds.len() >= KINDS_MAX {
            return parent;
        }
        let id = self.kinds.len() as u32;
        self.kinds.push(ContextKind { parent, step: step.clone() });
        self.known.insert((parent, step), id);
        id
    }
}

/// Returns all kinds seen so far, indexed by number. Holds the lock while it copies them: a thread that meets a new
/// kind is blocked for some microseconds.
#[must_use]
pub fn kinds() -> Vec<ContextKind> {
    tree(|tree| tree.kinds.clone())
}

/// Returns the kind of a thread outside all spans. Takes a lock.
#[must_use]
pub fn of_thread(account: &Account) -> u32 {
    let name = account.name();
    // Threads of a pool do the same work, and share one kind.
    let name = name.trim_end_matches(|ch: char| ch.is_ascii_digit() || matches!(ch, '-' | '_' | '#' | ' '));
    tree(|tree| tree.child(0, NodeStep::Thread(name.into())))
}

/// Returns the kind reached from the account's thread along `steps`, the outermost first.
#[must_use]
pub fn along_steps(account: &Account, steps: impl Iterator<Item = progress::ContextStep>) -> u32 {
    steps.fold(of_thread(account), after_step)
}

/// Returns the kind that `step` leads to from `kind`.
#[must_use]
pub fn after_step(kind: u32, step: progress::ContextStep) -> u32 {
    match step {
        progress::ContextStep::Span(span) => in_span(kind, span),
        progress::ContextStep::Site(site) => after_site(kind, site),
    }
}

/// Entries of a thread's cache of lookups, as a power of two.
const CACHE_BITS: u32 = 9;

thread_local! {
    /// Direct-mapped cache of lookups: (kind + 1, step, child). With it, a span takes the lock only at its first use
    /// in a thread, and where two pairs share an entry. It is all zeroes at first, so it uses no memory in threads that
    /// enter no span.
    static RECENT: RefCell<[(u32, u32, u32); 1 << CACHE_BITS]> = const { RefCell::new([(0, 0, 0); 1 << CACHE_BITS]) };
}

/// Returns the cache index of a pair: Fibonacci hashing, which spreads consecutive numbers.
#[inline]
fn place(kind: u32, step: u32) -> usize {
    // Mix the upper half into the lower one first: the multiplication moves bits upwards only.
    let key = u64::from(kind) << 32 | u64::from(step);
    ((key ^ key >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CACHE_BITS)) as usize
}

/// Returns the kind of `span` entered within `kind`.
#[inline]
#[must_use]
pub fn in_span(kind: u32, span: Span) -> u32 {
    // The lowest bit distinguishes spans from sites.
    cached(kind, span.id() << 1, |tree| tree.child(kind, NodeStep::Span(span.id())))
}

/// Returns the kind of the work after the synchronisation site `site`. It replaces an earlier site at the end of
/// `kind`.
#[inline]
#[must_use]
pub fn after_site(kind: u32, site: Span) -> u32 {
    cached(kind, site.id() << 1 | 1, |tree| {
        let node = &tree.kinds[kind as usize];
        // Only the last site counts: otherwise each loop of a thread would make a longer path.
        let above = if matches!(node.step, NodeStep::Site(_)) { node.parent } else { kind };
        tree.child(above, NodeStep::Site(site.id()))
    })
}

#[inline]
fn cached(kind: u32, step: u32, find: impl FnOnce(&mut KindTree) -> u32) -> u32 {
    RECENT.with_borrow_mut(|recent| {
        let slot = &mut recent[place(kind, step)];
        // Kind + 1, as an unused entry has 0 there.
        if (slot.0, slot.1) != (kind + 1, step) {
            *slot = (kind + 1, step, tree(find));
        }
        slot.2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Two pairs that share an entry and alternate would take the lock each time.
    #[test]
    fn the_kinds_of_a_server_rarely_collide_in_the_cache() {
        let mut places = vec![0; 1 << CACHE_BITS];
        // Span numbers are consecutive, and so are kind numbers, within each of a few threads.
        let accesses = (0..4_u32).flat_map(|thread| (0..32).map(move |at| (1 + 40 * thread + at / 2, 2 * at)));
        accesses.for_each(|(kind, step)| places[place(kind, step)] += 1);
        let shared: u32 = places.iter().filter(|&&count| count > 1).sum();
        assert!(shared < 40, "{shared} of 128");
    }

    #[test]
    fn spans_nest_and_sites_replace_each_other() {
        let worker = of_thread(&Account::new(0, "worker-7"));
        assert_eq!(worker, of_thread(&Account::new(1, "worker-12")));
        let (a, b) = (Span::intern("kinds a"), Span::intern("kinds b"));
        let inner = in_span(in_span(worker, a), b);
        assert_eq!(inner, in_span(in_span(worker, a), b));
        assert_ne!(inner, in_span(in_span(worker, b), a));
        let behind_a = after_site(worker, a);
        assert_eq!(after_site(behind_a, b), after_site(worker, b));
        assert_eq!(kinds()[behind_a as usize], ContextKind { parent: worker, step: NodeStep::Site(a.id()) });
        assert_eq!(kinds()[inner as usize].step, NodeStep::Span(b.id()));
    }
}

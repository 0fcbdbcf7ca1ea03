//! Kinds of work: in which thread, inside which spans, and behind which meeting with other threads.
//!
//! A kind is a node of a tree: below the root the threads by name, below those the spans as they nest, and as leaves the places where
//! threads meet (a lock, a channel). What a sampled function gets of a stretch of time depends on the kind alone, so the more is told
//! apart here, the less is spread over what it does not belong to.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use progress::{Account, Span};

/// How many kinds there may be; what would be another is what it stands below.
pub const KINDS_MAX: usize = 4096;

/// What a node adds to the one above it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing is known.
    Root,
    /// A thread of that name, without its number.
    Thread(Arc<str>),
    /// Inside the span.
    Span(u32),
    /// Behind the place where threads meet.
    Site(u32),
}

/// One kind of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The node above; the root is above itself.
    pub parent: u32,
    /// What it adds to that.
    pub step: Step,
}

struct Tree {
    kinds: Vec<Kind>,
    known: HashMap<(u32, Step), u32>,
}

fn tree<T>(work: impl FnOnce(&mut Tree) -> T) -> T {
    static TREE: OnceLock<Mutex<Tree>> = OnceLock::new();
    let tree = TREE
        .get_or_init(|| Mutex::new(Tree { kinds: vec![Kind { parent: 0, step: Step::Root }], known: HashMap::new() }));
    work(&mut tree.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Tree {
    fn child(&mut self, parent: u32, step: Step) -> u32 {
        if let Some(&known) = self.known.get(&(parent, step.clone())) {
            return known;
        }
        if self.kinds.len() >= KINDS_MAX {
            return parent;
        }
        let id = self.kinds.len() as u32;
        self.kinds.push(Kind { parent, step: step.clone() });
        self.known.insert((parent, step), id);
        id
    }
}

/// All kinds that were met, by number. Who meets a new one waits meanwhile, some microseconds.
#[must_use]
pub fn kinds() -> Vec<Kind> {
    tree(|tree| tree.kinds.clone())
}

/// The kind of a thread outside all spans. Takes a lock.
#[must_use]
pub fn of_thread(account: &Account) -> u32 {
    let name = account.name();
    let name = name.trim_end_matches(|ch: char| ch.is_ascii_digit() || matches!(ch, '-' | '_' | '#' | ' '));
    tree(|tree| tree.child(0, Step::Thread(name.into())))
}

/// What the thread of an account is at, by the steps that lead there.
#[must_use]
pub fn along(account: &Account, steps: impl Iterator<Item = progress::Step>) -> u32 {
    steps.fold(of_thread(account), after)
}

/// The kind that a step leads to.
#[must_use]
pub fn after(kind: u32, step: progress::Step) -> u32 {
    match step {
        progress::Step::Span(span) => inside(kind, span),
        progress::Step::Site(site) => behind(kind, site),
    }
}

const CACHE_BITS: u32 = 9;

thread_local! {
    /// What was looked up last, so that a span costs no lock but for the first time in a thread, and where two share a place: (kind + 1,
    /// step, child). Zeroes at first, which take no memory in threads that enter no span.
    static RECENT: RefCell<[(u32, u32, u32); 1 << CACHE_BITS]> = const { RefCell::new([(0, 0, 0); 1 << CACHE_BITS]) };
}

/// Where in the cache: Fibonacci hashing, which spreads numbers that follow each other.
#[inline]
fn place(kind: u32, step: u32) -> usize {
    let key = u64::from(kind) << 32 | u64::from(step);
    ((key ^ key >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - CACHE_BITS)) as usize
}

/// The kind of a span that is entered within `kind`.
#[inline]
#[must_use]
pub fn inside(kind: u32, span: Span) -> u32 {
    cached(kind, span.id() << 1, |tree| tree.child(kind, Step::Span(span.id())))
}

/// The kind of what follows a meeting of threads at `site`: it takes the place of an earlier meeting.
#[inline]
#[must_use]
pub fn behind(kind: u32, site: Span) -> u32 {
    cached(kind, site.id() << 1 | 1, |tree| {
        let node = &tree.kinds[kind as usize];
        let above = if matches!(node.step, Step::Site(_)) { node.parent } else { kind };
        tree.child(above, Step::Site(site.id()))
    })
}

#[inline]
fn cached(kind: u32, step: u32, find: impl FnOnce(&mut Tree) -> u32) -> u32 {
    RECENT.with_borrow_mut(|recent| {
        let slot = &mut recent[place(kind, step)];
        if (slot.0, slot.1) != (kind + 1, step) {
            *slot = (kind + 1, step, tree(find));
        }
        slot.2
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Two that share a place and take turns would take the lock each time.
    #[test]
    fn what_a_server_meets_hardly_shares_places() {
        let mut places = vec![0; 1 << CACHE_BITS];
        // Spans follow each other in number, and so do kinds, in each of a few threads.
        let met = (0..4_u32).flat_map(|thread| (0..32).map(move |at| (1 + 40 * thread + at / 2, 2 * at)));
        met.for_each(|(kind, step)| places[place(kind, step)] += 1);
        let shared: u32 = places.iter().filter(|&&count| count > 1).sum();
        assert!(shared < 40, "{shared} of 128");
    }

    #[test]
    fn spans_nest_and_meetings_replace_each_other() {
        let worker = of_thread(&Account::new(0, "worker-7"));
        assert_eq!(worker, of_thread(&Account::new(1, "worker-12")));
        let (a, b) = (Span::named("kinds a"), Span::named("kinds b"));
        let inner = inside(inside(worker, a), b);
        assert_eq!(inner, inside(inside(worker, a), b));
        assert_ne!(inner, inside(inside(worker, b), a));
        let behind_a = behind(worker, a);
        assert_eq!(behind(behind_a, b), behind(worker, b));
        assert_eq!(kinds()[behind_a as usize], Kind { parent: worker, step: Step::Site(a.id()) });
        assert_eq!(kinds()[inner as usize].step, Step::Span(b.id()));
    }
}

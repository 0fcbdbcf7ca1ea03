//! Candidates: every function, line and call path in the stacks, with its samples by kind of work.

use std::collections::HashMap;
use std::rc::Rc;

use super::fold::is_runtime;
use super::tree::StackTree;
use crate::symbols::{CodeLocation, Origin, Symbolizer};

/// A named part of a stack; names are numbers of [`Symbolizer::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum CodeItemKey {
    /// A function, inlined or not.
    Function(u32),
    /// A source line.
    Line(u32),
    /// A function as called by another one: caller, callee.
    Path(u32, u32),
}

/// A named part of stacks, with its counts.
#[derive(Clone, Debug)]
pub(super) struct CodeItem {
    pub(super) key: CodeItemKey,
    /// Its samples by kind of work; kinds without any are missing.
    pub(super) kinds: Vec<(u32, u64)>,
    pub(super) all: u64,
    /// A hash of its set of stacks: equal for items in exactly the same samples.
    pub(super) set: u64,
    /// Its largest depth in a stack.
    pub(super) depth: u32,
    pub(super) origin: Origin,
    /// The samples in which it was inlined.
    pub(super) inlined: u64,
    /// Whether it is the program's own code, not a library's.
    pub(super) is_own: bool,
    /// The samples in which it is the innermost of the program's own functions.
    pub(super) own: u64,
    /// Of those, the samples that ended in its own machine code, including functions inlined into it.
    pub(super) ends: u64,
    /// The samples in which another function of the program is further in.
    pub(super) inner: u64,
    /// The program's function that is next in most of its samples, by its name's number, and their count: the next one
    /// further in, for a library's frame the next one further out.
    pub(super) next: Option<(u32, u64)>,
}

/// A hash of a node's index (SplitMix64's finaliser), so that sums of hashes identify sets of nodes.
fn mixed(node: usize) -> u64 {
    let mut word = (node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Collects the items of all stacks. One that is several times in a stack (recursion) counts once.
pub(super) fn all(tree: &StackTree, symbols: &mut Symbolizer) -> Vec<CodeItem> {
    let places: Vec<Rc<[CodeLocation]>> = tree.addresses.iter().map(|&address| symbols.places(address)).collect();
    let inclusive = tree.inclusive();
    // Sums of hashes over the nodes below: items with equal sums are in the same stacks.
    let mut sets: Vec<_> =
        tree.nodes.iter().enumerate().map(|(at, node)| if node.own > 0 { mixed(at) } else { 0 }).collect();
    for at in (0..sets.len()).rev() {
        let parent = tree.nodes[at].parent as usize;
        if parent != at {
            sets[parent] = sets[parent].wrapping_add(sets[at]);
        }
    }
    let symbols = &*symbols;
    // A program that consists of packages only, such as one installed from a registry: these are its own code.
    let is_of_program =
        |place: &CodeLocation| place.origin == Origin::Program && !is_runtime(symbols.name(place.function));
    let own = if places.iter().flat_map(|places| places.iter()).any(is_of_program) {
        Origin::Program
    } else {
        Origin::Package
    };
    let mut runtimes: HashMap<u32, bool> = HashMap::new();
    let mut is_own = |place: &CodeLocation| {
        place.origin == own
            && !*runtimes.entry(place.function).or_insert_with(|| is_runtime(symbols.name(place.function)))
    };
    let mut search = ItemSearch { stack: Vec::new(), next: HashMap::new(), ..ItemSearch::default() };
    let (starts, children) = tree.children();
    for (root, node) in tree.nodes.iter().enumerate().filter(|(at, node)| node.parent as usize == *at) {
        let kind = node.key;
        // A depth-first walk with an explicit stack: enter a node below a caller, or leave the frames entered for it.
        enum WalkStep {
            Into(u32, Option<u32>, u32),
            Leave(usize),
        }
        let below = |node: usize| children[starts[node] as usize..starts[node + 1] as usize].iter();
        let mut steps: Vec<_> = below(root).map(|&child| WalkStep::Into(child, None, 0)).collect();
        while let Some(step) = steps.pop() {
            match step {
                WalkStep::Leave(frames) => search.leave(frames),
                WalkStep::Into(node, mut caller, mut depth) => {
                    let (node, before) = (node as usize, search.stack.len());
                    let samples = inclusive[node];
                    for place in places[tree.nodes[node].key as usize].iter().rev() {
                        depth += 1;
                        let keys = [
                            Some(CodeItemKey::Function(place.function)),
                            place.line.map(CodeItemKey::Line),
                            caller
                                .filter(|&caller| caller != place.function)
                                .map(|caller| CodeItemKey::Path(caller, place.function)),
                        ];
                        let is_own = is_own(place);
                        let mut enter = |key| search.enter(key, place, is_own, kind, samples, sets[node], depth);
                        let items = keys.map(|key| key.map(&mut enter));
                        let CodeLocation { function, is_inlined, .. } = *place;
                        search.stack.push(StackFrame { items, function, is_own, is_inlined });
                        caller = Some(function);
                    }
                    // All frames of this node are on the stack now: credit the samples that end here.
                    search.credit(tree.nodes[node].own);
                    steps.push(WalkStep::Leave(search.stack.len() - before));
                    steps.extend(below(node).map(|&child| WalkStep::Into(child, caller, depth)));
                }
            }
        }
    }
    for ((item, function), samples) in search.next {
        let next = &mut search.found[item as usize].next;
        // Ties are broken by number, so that the result is deterministic.
        if next.is_none_or(|(other, most)| (samples, other) > (most, function)) {
            *next = Some((function, samples));
        }
    }
    search.found
}

/// A function, inlined or not, on the walk's current stack.
struct StackFrame {
    items: [Option<u32>; 3],
    /// The number of its name.
    function: u32,
    is_own: bool,
    is_inlined: bool,
}

#[derive(Default)]
struct ItemSearch {
    found: Vec<CodeItem>,
    known: HashMap<CodeItemKey, u32>,
    /// How many times each item is on the current stack.
    open: Vec<u32>,
    stack: Vec<StackFrame>,
    /// Samples by item and the program's function that is next to it.
    next: HashMap<(u32, u32), u64>,
    /// The number of the last stack credited to each item, and the number of stacks so far.
    credited: Vec<u64>,
    stacks: u64,
}

impl ItemSearch {
    /// Removes the innermost frames.
    fn leave(&mut self, frames: usize) {
        for frame in self.stack.drain(self.stack.len() - frames..) {
            frame.items.iter().flatten().for_each(|&item| self.open[item as usize] -= 1);
        }
    }

    /// Credits samples that end at the current stack's end. An item that is in it several times counts at its
    /// innermost place.
    fn credit(&mut self, samples: u64) {
        if samples == 0 {
            return;
        }
        self.stacks += 1;
        self.credited.resize(self.found.len(), 0);
        // Inwards out: `inner` is the innermost own function so far, `is_end` holds while all frames so far were
        // inlined.
        let (mut inner, mut is_end) = (None, true);
        for (at, frame) in self.stack.iter().enumerate().rev() {
            let mut outer = self.stack[..at].iter().rev().filter(|outer| outer.is_own);
            let next = if frame.is_own { inner } else { outer.next().map(|outer| outer.function) };
            for &number in frame.items.iter().flatten() {
                if std::mem::replace(&mut self.credited[number as usize], self.stacks) == self.stacks {
                    continue;
                }
                let item = &mut self.found[number as usize];
                if inner.is_some() {
                    item.inner += samples;
                } else if frame.is_own {
                    item.own += samples;
                    item.ends += if is_end { samples } else { 0 };
                }
                if let Some(next) = next.filter(|next| *next != frame.function) {
                    *self.next.entry((number, next)).or_default() += samples;
                }
            }
            if frame.is_own {
                inner = Some(frame.function);
            }
            is_end &= frame.is_inlined;
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one place of one node, as the walk meets it")]
    fn enter(
        &mut self,
        key: CodeItemKey,
        place: &CodeLocation,
        is_own: bool,
        kind: u32,
        samples: u64,
        set: u64,
        depth: u32,
    ) -> u32 {
        let next = self.found.len() as u32;
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            let origin = place.origin;
            self.found.push(CodeItem {
                key,
                kinds: Vec::new(),
                all: 0,
                set: 0,
                depth,
                origin,
                inlined: 0,
                is_own,
                own: 0,
                ends: 0,
                inner: 0,
                next: None,
            });
            self.open.push(0);
        }
        let item = &mut self.found[number as usize];
        // Only the outermost of recursive frames counts.
        if self.open[number as usize] == 0 {
            item.all += samples;
            item.set = item.set.wrapping_add(set);
            match item.kinds.last_mut() {
                Some((last, of_kind)) if *last == kind => *of_kind += samples,
                _ => item.kinds.push((kind, samples)),
            }
            if place.is_inlined {
                item.inlined += samples;
            }
        }
        item.depth = item.depth.max(depth);
        // Instances of a function may have several owners: a library's closure may contain the program's code.
        item.origin = item.origin.min(place.origin);
        item.is_own |= is_own;
        self.open[number as usize] += 1;
        number
    }
}

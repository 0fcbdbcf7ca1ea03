//! Everything in the stacks that has a name: which samples it was in, kind by kind.

use std::collections::HashMap;
use std::rc::Rc;

use super::tree::Tree;
use crate::symbols::{Origin, Place, Symbolizer};

/// What stands in a stack, by numbers of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A function, wherever it was compiled to.
    Function(u32),
    /// A line.
    Line(u32),
    /// A function called by another.
    Path(u32, u32),
}

/// One of them.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) key: Key,
    /// Its samples by kind of work, those only where it was.
    pub(super) kinds: Vec<(u32, u64)>,
    pub(super) all: u64,
    /// Equal for those that were in the same samples.
    pub(super) set: u64,
    /// How far in it stands, at most.
    pub(super) depth: u32,
    pub(super) origin: Origin,
    /// In how many of its samples the compiler had put it into its caller.
    pub(super) inlined: u64,
}

/// A number for a node that has nothing to do with its neighbours', so that sums of them tell sets apart.
fn mixed(node: usize) -> u64 {
    let mut word = (node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Looks through all stacks. What stands several times in one (recursion) counts once.
pub(super) fn all(tree: &Tree, symbols: &mut Symbolizer) -> Vec<Candidate> {
    let places: Vec<Rc<[Place]>> = tree.addresses.iter().map(|&address| symbols.places(address)).collect();
    let inclusive = tree.inclusive();
    let mut sets: Vec<_> =
        tree.nodes.iter().enumerate().map(|(at, node)| if node.own > 0 { mixed(at) } else { 0 }).collect();
    for at in (0..sets.len()).rev() {
        let parent = tree.nodes[at].parent as usize;
        if parent != at {
            sets[parent] = sets[parent].wrapping_add(sets[at]);
        }
    }
    let mut search = Search { found: Vec::new(), known: HashMap::new(), open: Vec::new() };
    let (starts, children) = tree.children();
    for (root, node) in tree.nodes.iter().enumerate().filter(|(at, node)| node.parent as usize == *at) {
        let kind = node.what;
        // What is to be done: go into a node, below a function; or leave what was entered there.
        enum Step {
            Into(u32, Option<u32>, u32),
            Leave(Vec<u32>),
        }
        let below = |node: usize| children[starts[node] as usize..starts[node + 1] as usize].iter();
        let mut steps: Vec<_> = below(root).map(|&child| Step::Into(child, None, 0)).collect();
        while let Some(step) = steps.pop() {
            match step {
                Step::Leave(entered) => entered.into_iter().for_each(|candidate| search.open[candidate as usize] -= 1),
                Step::Into(node, mut caller, mut depth) => {
                    let (node, mut entered) = (node as usize, Vec::new());
                    let samples = inclusive[node];
                    for place in places[tree.nodes[node].what as usize].iter().rev() {
                        depth += 1;
                        let keys = [
                            Some(Key::Function(place.function)),
                            place.line.map(Key::Line),
                            caller
                                .filter(|&caller| caller != place.function)
                                .map(|caller| Key::Path(caller, place.function)),
                        ];
                        for key in keys.into_iter().flatten() {
                            entered.push(search.enter(key, place, kind, samples, sets[node], depth));
                        }
                        caller = Some(place.function);
                    }
                    steps.push(Step::Leave(entered));
                    steps.extend(below(node).map(|&child| Step::Into(child, caller, depth)));
                }
            }
        }
    }
    search.found
}

struct Search {
    found: Vec<Candidate>,
    known: HashMap<Key, u32>,
    /// How often each stands on the way to the node.
    open: Vec<u32>,
}

impl Search {
    fn enter(&mut self, key: Key, place: &Place, kind: u32, samples: u64, set: u64, depth: u32) -> u32 {
        let next = self.found.len() as u32;
        let number = *self.known.entry(key).or_insert(next);
        if number == next {
            let (kinds, all, set, inlined) = (Vec::new(), 0, 0, 0);
            self.found.push(Candidate { key, kinds, all, set, depth, origin: place.origin, inlined });
            self.open.push(0);
        }
        let candidate = &mut self.found[number as usize];
        if self.open[number as usize] == 0 {
            candidate.all += samples;
            candidate.set = candidate.set.wrapping_add(set);
            match candidate.kinds.last_mut() {
                Some((last, of_kind)) if *last == kind => *of_kind += samples,
                _ => candidate.kinds.push((kind, samples)),
            }
            if place.is_inlined {
                candidate.inlined += samples;
            }
        }
        candidate.depth = candidate.depth.max(depth);
        // One function may have code of several: of a closure in a library, of the program's own.
        candidate.origin = candidate.origin.min(place.origin);
        self.open[number as usize] += 1;
        number
    }
}

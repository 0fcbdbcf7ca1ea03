//! Samples by stack, as a tree: below each kind of work the outermost functions, below those what they called.
//!
//! Memory is bounded: when there are as many nodes as may be, a stack that is new counts where it leaves the known ones. So nothing is
//! counted wrongly; only what lies further in is not told apart any more.

use std::collections::HashMap;

use crate::sample::Sample;

/// Nodes that there may be; some 50 octets each.
const NODES_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Node {
    /// The node of the caller; a root is its own.
    pub(super) parent: u32,
    /// The address, by number; of a root the kind of work.
    pub(super) what: u32,
    /// Samples that end here.
    pub(super) own: u64,
}

#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Callers come before what they call.
    pub(super) nodes: Vec<Node>,
    /// By parent and what.
    known: HashMap<(u32, u32), u32>,
    roots: HashMap<u32, u32>,
    pub(super) addresses: Vec<usize>,
    numbers: HashMap<usize, u32>,
    nodes_max: usize,
}

impl Tree {
    pub(super) fn new() -> Self {
        Self { nodes_max: NODES_MAX, ..Self::default() }
    }

    #[cfg(test)]
    pub(super) fn bounded(nodes_max: usize) -> Self {
        Self { nodes_max, ..Self::default() }
    }

    pub(super) fn add(&mut self, sample: &Sample<'_>) {
        let mut at = match self.roots.get(&sample.kind) {
            Some(&root) => root,
            None => {
                let root = self.nodes.len() as u32;
                self.nodes.push(Node { parent: root, what: sample.kind, own: 0 });
                self.roots.insert(sample.kind, root);
                root
            }
        };
        for (depth, &frame) in sample.frames.iter().enumerate().rev() {
            // A return address may already belong to the next line, or to the next function.
            let address = if depth == 0 { frame } else { frame.saturating_sub(1) };
            let next = self.numbers.len() as u32;
            let number = *self.numbers.entry(address).or_insert(next);
            if number == next {
                self.addresses.push(address);
            }
            at = match self.known.get(&(at, number)) {
                Some(&known) => known,
                None if self.nodes.len() >= self.nodes_max => break,
                None => {
                    let new = self.nodes.len() as u32;
                    self.nodes.push(Node { parent: at, what: number, own: 0 });
                    self.known.insert((at, number), new);
                    new
                }
            };
        }
        self.nodes[at as usize].own += 1;
    }

    /// For each node, the samples of it and of what it called.
    pub(super) fn inclusive(&self) -> Vec<u64> {
        let mut counts: Vec<_> = self.nodes.iter().map(|node| node.own).collect();
        for at in (0..counts.len()).rev() {
            let parent = self.nodes[at].parent as usize;
            if parent != at {
                let here = counts[at];
                counts[parent] += here;
            }
        }
        counts
    }

    /// For each node what it calls, as ranges of one list.
    pub(super) fn children(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0_u32; self.nodes.len() + 1];
        let inner = || (0_u32..).zip(&self.nodes).filter(|(at, node)| node.parent != *at);
        inner().for_each(|(_, node)| starts[node.parent as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let (mut next, mut all) = (starts.clone(), vec![0; starts.last().copied().unwrap_or(0) as usize]);
        for (at, node) in inner() {
            all[next[node.parent as usize] as usize] = at;
            next[node.parent as usize] += 1;
        }
        (starts, all)
    }
}

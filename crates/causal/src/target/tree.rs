//! A tree of stacks: each kind of work is a root, with its outermost functions below it, and their callees below those.
//!
//! Memory is bounded: once the tree is full, a new stack counts at the last node that it shares with the tree. So no
//! count becomes wrong; only the frames further in are no longer distinguished.

use std::collections::HashMap;

use crate::sample::Sample;

/// Bound on the nodes, of some 50 bytes each.
const NODES_MAX: usize = 1 << 17;

#[derive(Debug)]
pub(super) struct StackNode {
    /// Index of the caller's node; a root's own index.
    pub(super) parent: u32,
    /// Index of the address; for a root the kind of work.
    pub(super) key: u32,
    /// The samples whose stack ends here.
    pub(super) own: u64,
}

#[derive(Debug, Default)]
pub(super) struct StackTree {
    /// A caller's index is lower than its callees'.
    pub(super) nodes: Vec<StackNode>,
    /// Index by parent and `key`.
    known: HashMap<(u32, u32), u32>,
    roots: HashMap<u32, u32>,
    pub(super) addresses: Vec<usize>,
    numbers: HashMap<usize, u32>,
    nodes_max: usize,
}

impl StackTree {
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
                self.nodes.push(StackNode { parent: root, key: sample.kind, own: 0 });
                self.roots.insert(sample.kind, root);
                root
            }
        };
        for (depth, &frame) in sample.frames.iter().enumerate().rev() {
            // A return address may belong to the next line or function: use the byte before it.
            let address = if depth == 0 { frame } else { frame.saturating_sub(1) };
            let number = self.numbers.get(&address).copied();
            at = match number.and_then(|number| self.known.get(&(at, number))) {
                Some(&known) => known,
                None if self.nodes.len() >= self.nodes_max => break,
                None => {
                    // Only with a node, so that addresses are bounded as nodes are.
                    let number = number.unwrap_or_else(|| self.number(address));
                    let new = self.nodes.len() as u32;
                    self.nodes.push(StackNode { parent: at, key: number, own: 0 });
                    self.known.insert((at, number), new);
                    new
                }
            };
        }
        self.nodes[at as usize].own += 1;
    }

    /// Numbers a new address.
    fn number(&mut self, address: usize) -> u32 {
        let number = self.addresses.len() as u32;
        self.addresses.push(address);
        self.numbers.insert(address, number);
        number
    }

    /// For each node, the samples of it and of all below it.
    pub(super) fn inclusive(&self) -> Vec<u64> {
        let mut counts: Vec<_> = self.nodes.iter().map(|node| node.own).collect();
        // Backwards, so that a node's sum is complete before it is added to its parent's.
        for at in (0..counts.len()).rev() {
            let parent = self.nodes[at].parent as usize;
            if parent != at {
                let here = counts[at];
                counts[parent] += here;
            }
        }
        counts
    }

    /// Each node's children, as ranges of one list: first the start of each range, then the list.
    pub(super) fn children(&self) -> (Vec<u32>, Vec<u32>) {
        let mut starts = vec![0_u32; self.nodes.len() + 1];
        let inner = || (0_u32..).zip(&self.nodes).filter(|(at, node)| node.parent != *at);
        inner().for_each(|(_, node)| starts[node.parent as usize + 1] += 1);
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        // A counting sort by parent: `starts` has the prefix sums.
        let (mut next, mut all) = (starts.clone(), vec![0; starts.last().copied().unwrap_or(0) as usize]);
        for (at, node) in inner() {
            all[next[node.parent as usize] as usize] = at;
            next[node.parent as usize] += 1;
        }
        (starts, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_tree_keeps_no_new_addresses() {
        let mut tree = StackTree::bounded(3);
        for at in 1..1000 {
            tree.add(&Sample { account: 0, kind: 1, at: 1, frames: &[at * 16, 9] });
        }
        assert_eq!((tree.nodes.len(), tree.addresses.len(), tree.numbers.len()), (3, 2, 2));
        assert_eq!(tree.inclusive()[0], 999, "all samples count");
        // A known stack is still distinguished.
        let own = tree.nodes[2].own;
        tree.add(&Sample { account: 0, kind: 1, at: 1, frames: &[16, 9] });
        assert_eq!(tree.nodes[2].own, own + 1);
    }
}

//! The graph of imports: files and snippets are its nodes, and it must not have a cycle.

use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of nodes that all searches for cycles of one adaptation visit. Snippets that import each other in
/// long chains would otherwise cost a time that is quadratic in their number.
const VISITS_MAX: usize = 2_000_000;

pub(super) struct ImportGraph {
    /// The index in `imports` of each node, by its name.
    indexes: BTreeMap<String, usize>,
    /// By node: the nodes that it imports.
    imports: Vec<BTreeSet<usize>>,
    visits_left: usize,
}

/// An import that the graph does not take.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImportGraphError {
    Cycle,
    /// More than [`VISITS_MAX`] nodes were visited.
    TooEntangled,
}

impl ImportGraph {
    pub(super) fn new() -> Self {
        Self { indexes: BTreeMap::new(), imports: Vec::new(), visits_left: VISITS_MAX }
    }

    /// Adds the import of `to` by `from`. An error if it closes a cycle.
    pub(super) fn add(&mut self, from: &str, to: &str) -> Result<(), ImportGraphError> {
        let (from, to) = (self.index(from), self.index(to));
        // The graph has no cycle, so an import that it has closes none.
        if !self.imports[from].contains(&to) {
            if self.reaches(to, from)? {
                return Err(ImportGraphError::Cycle);
            }
            self.imports[from].insert(to);
        }
        Ok(())
    }

    fn index(&mut self, name: &str) -> usize {
        if let Some(index) = self.indexes.get(name) {
            return *index;
        }
        self.imports.push(BTreeSet::new());
        self.indexes.insert(name.to_owned(), self.imports.len() - 1);
        self.imports.len() - 1
    }

    /// Returns whether imports lead from one node to the other, or they are the same.
    fn reaches(&mut self, from: usize, to: usize) -> Result<bool, ImportGraphError> {
        // A stack of our own: a chain of imports can be longer than the thread's stack is deep.
        let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(node) = next.pop() {
            if node == to {
                return Ok(true);
            }
            self.visits_left = self.visits_left.checked_sub(1).ok_or(ImportGraphError::TooEntangled)?;
            next.extend(self.imports[node].iter().filter(|import| seen.insert(**import)));
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_that_closes_a_cycle_is_refused() {
        let mut graph = ImportGraph::new();
        for (from, to) in [("a", "b"), ("b", "c"), ("a", "c"), ("a", "b"), ("d", "a")] {
            assert_eq!(graph.add(from, to), Ok(()), "{from} {to}");
        }
        for (from, to) in [("a", "a"), ("b", "a"), ("c", "a"), ("c", "d"), ("x", "x")] {
            assert_eq!(graph.add(from, to), Err(ImportGraphError::Cycle), "{from} {to}");
        }
        assert_eq!(graph.add("c", "e"), Ok(()), "a refused import leaves nothing");
    }

    // The depth of a chain is bounded by the text of a configuration only, and must not exhaust the stack.
    #[test]
    fn long_chains_end() {
        let mut graph = ImportGraph::new();
        let name = |node: u32| node.to_string();
        for node in 0..100_000 {
            graph.add(&name(node), &name(node + 1)).unwrap();
        }
        assert_eq!(graph.add(&name(100_000), &name(0)), Err(ImportGraphError::Cycle));
        let refused = (0..100).find_map(|node| graph.add(&format!("x{node}"), &name(0)).err());
        assert_eq!(refused, Some(ImportGraphError::TooEntangled), "each search visits the whole chain");
    }
}

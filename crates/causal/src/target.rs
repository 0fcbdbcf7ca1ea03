//! Targets: the named parts of the program that could be made faster, and the fraction of each kind of work that is
//! theirs.
//!
//! - `profile`: from samples to targets.
//! - `tree`: samples by stack; `items`: every named item in them; `parts`: from counts to fractions with errors.
//! - `distinct`: merges targets with nearly equal time; `fold`: targets that are not a useful answer by themselves.

mod distinct;
mod fold;
mod items;
mod parts;
mod profile;
mod tree;

use serde::{Deserialize, Serialize};

pub use fold::{FoldReason, Folded};
pub use profile::SampleProfile;

pub use crate::symbols::Symbols;

/// The kind of program part that a target names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A function, including its callees.
    Function,
    /// A line of the source, including its callees.
    Line,
    /// A function that the compiler inlined into its caller.
    Inlined,
    /// A function together with one function above it in the stack.
    Path,
    /// A span reported by the program, including the spans inside it.
    Span,
    /// A service outside the process that the program calls.
    Upstream,
}

/// A part of the program that could be made faster.
#[derive(Clone, Debug)]
pub struct Target {
    /// The name shown in reports.
    pub name: String,
    /// The kind of part that the name refers to.
    pub kind: TargetKind,
    /// Its fraction of all samples: the figure that an ordinary profile would show.
    pub share: f64,
    /// Number of samples that contain it.
    pub samples: u64,
    /// Its fraction of each kind of work.
    pub weights: Weights,
    /// The reason why it is not an answer by itself; `None` if it is one.
    pub folded: Option<Folded>,
}

/// A target's fraction of the time of each kind of work ([`crate::kinds`]).
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// Indexed by the kind's number; fractions from 0 to 1. Kinds beyond the end have none of their time in the
    /// target.
    pub parts: Vec<KindShare>,
    /// The span of outside calls whose whole time belongs to the target.
    pub calls: Option<u32>,
}

/// A fraction of a kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KindShare {
    /// From 0 to 1.
    pub part: f64,
    /// Its standard error; 0 for spans, which are measured and not sampled.
    pub error: f64,
}

impl Weights {
    /// Returns the target's fraction of a kind's time; 0 for kinds not listed.
    #[must_use]
    pub fn part(&self, kind: u32) -> f64 {
        self.parts.get(kind as usize).map_or(0.0, |part| part.part)
    }
}

#[cfg(test)]
mod tests;

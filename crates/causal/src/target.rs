//! What could be made faster: by name, and which part of each kind of work is its.
//!
//! - `profile`: from samples to targets.
//! - `tree`: samples by stack; `candidates`: everything in them that has a name; `parts`: from counts to parts with errors.
//! - `distinct`: of targets that are nearly the same time, one.

mod candidates;
mod distinct;
mod parts;
mod profile;
mod tree;

use serde::{Deserialize, Serialize};

pub use profile::Profile;

pub use crate::symbols::Symbols;

/// What a target is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TargetKind {
    /// A function, with what it calls.
    Function,
    /// A line of the source, with what it calls.
    Line,
    /// A function that the compiler put into its caller.
    Inlined,
    /// A function as called by another one, above it in the stack.
    Path,
    /// A span of the program's own, with what is inside.
    Span,
    /// Somebody outside who is asked and answers.
    Upstream,
}

/// Something that could be made faster.
#[derive(Clone, Debug)]
pub struct Target {
    /// As reports have it.
    pub name: String,
    /// What it is the name of.
    pub kind: TargetKind,
    /// Which part of all samples it has: what an ordinary profile would say.
    pub share: f64,
    /// In how many samples it was.
    pub samples: u64,
    /// Which part of each kind of work is its.
    pub weights: Weights,
}

/// Which part of the time of each kind of work ([`crate::kinds`]) is a target's.
#[derive(Clone, Debug, Default)]
pub struct Weights {
    /// By the kind's number, from 0 to 1; kinds beyond have none.
    pub parts: Vec<Part>,
    /// The span of calls to the outside whose time is the target's, whole.
    pub calls: Option<u32>,
}

/// A part of a kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Part {
    /// From 0 to 1.
    pub part: f64,
    /// Its standard error; 0 for spans, which are measured and not sampled.
    pub error: f64,
}

impl Weights {
    /// The part that a kind's time has.
    #[must_use]
    pub fn part(&self, kind: u32) -> f64 {
        self.parts.get(kind as usize).map_or(0.0, |part| part.part)
    }
}

#[cfg(test)]
mod tests;

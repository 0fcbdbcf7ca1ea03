//! From samples to parts: a target's part of the time of each kind of work, and its standard error.

use std::collections::HashMap;

use super::{KindShare, Weights};
use crate::constants::{KIND_PRIOR_SAMPLES, KIND_SAMPLES_FEW};
use crate::kinds::{ContextKind, NodeStep};

/// Numbers of samples by kind of work.
pub(super) struct KindCounts {
    kinds: Vec<ContextKind>,
    /// Of each kind alone; then including the kinds below it.
    own: Vec<u64>,
    with_inner: Vec<u64>,
}

impl KindCounts {
    pub(super) fn new(kinds: Vec<ContextKind>, sampled: impl Iterator<Item = (u32, u64)>) -> Self {
        let mut own = vec![0; kinds.len()];
        for (kind, samples) in sampled {
            if let Some(own) = own.get_mut(kind as usize) {
                *own += samples;
            }
        }
        let with_inner = sums(&kinds, &own);
        Self { kinds, own, with_inner }
    }

    pub(super) fn all(&self) -> u64 {
        self.own.iter().sum()
    }

    /// The samples of one kind alone.
    pub(super) fn of_kind(&self, kind: u32) -> u64 {
        self.own.get(kind as usize).copied().unwrap_or_default()
    }

    /// The samples of each kind alone, indexed by the kind.
    pub(super) fn times(&self) -> Vec<f64> {
        self.own.iter().map(|&own| own as f64).collect()
    }

    /// The kind's thread; the root's kind, 0, counts as a thread of its own.
    pub(super) fn thread(&self, kind: u32) -> u32 {
        let mut at = kind;
        while let Some(ContextKind { parent, step }) = self.kinds.get(at as usize) {
            if matches!(step, NodeStep::Thread(_) | NodeStep::Root) {
                break;
            }
            at = *parent;
        }
        at
    }

    /// The samples of a whole thread.
    pub(super) fn of_thread(&self, thread: u32) -> u64 {
        let samples = if thread == 0 { &self.own } else { &self.with_inner };
        samples.get(thread as usize).copied().unwrap_or_default()
    }

    /// The outermost span around the kind.
    pub(super) fn outermost_span(&self, kind: u32) -> Option<u32> {
        let (mut at, mut outermost) = (kind, None);
        while let Some(ContextKind { parent, step }) = self.kinds.get(at as usize).filter(|_| at != 0) {
            if let NodeStep::Span(span) = *step {
                outermost = Some(span);
            }
            at = *parent;
        }
        outermost
    }

    /// The samples in each outermost span, by thread.
    pub(super) fn outermost_spans(&self) -> HashMap<u32, HashMap<u32, u64>> {
        let mut spans: HashMap<u32, HashMap<u32, u64>> = HashMap::new();
        for (kind, &samples) in (0..).zip(&self.own).filter(|(_, samples)| **samples > 0) {
            if let Some(span) = self.outermost_span(kind) {
                *spans.entry(self.thread(kind)).or_default().entry(span).or_default() += samples;
            }
        }
        spans
    }

    /// The name of the kind's thread; `thread` if it has none.
    pub(super) fn thread_name(&self, kind: u32) -> &str {
        match self.kinds.get(self.thread(kind) as usize) {
            Some(ContextKind { step: NodeStep::Thread(name), .. }) if !name.is_empty() => name,
            _ => "thread",
        }
    }

    /// All spans, each with the kinds inside it.
    pub(super) fn spans(&self) -> Vec<(u32, Vec<u32>)> {
        let mut spans: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
        for kind in 0..self.kinds.len() as u32 {
            let mut at = kind;
            while at != 0 {
                let ContextKind { parent, step } = &self.kinds[at as usize];
                if let NodeStep::Span(span) = *step {
                    let inside = spans.entry(span).or_default();
                    // Skip a span nested in itself.
                    if inside.last() != Some(&kind) {
                        inside.push(kind);
                    }
                }
                at = *parent;
            }
        }
        spans.into_iter().collect()
    }

    /// A span has all the time inside it. That is measured, not sampled, so its error is 0.
    pub(super) fn of_span(&self, inside: &[u32]) -> (Weights, u64) {
        let (mut parts, mut all) = (vec![KindShare::default(); self.kinds.len()], 0);
        for &kind in inside {
            parts[kind as usize].part = 1.0;
            all += self.own[kind as usize];
        }
        (Weights { parts, calls: None }, all)
    }

    /// The parts of an item with these numbers of samples by kind.
    pub(super) fn of_samples(&self, hits: &[(u32, u64)]) -> Weights {
        let mut own = vec![0; self.kinds.len()];
        for (kind, samples) in hits {
            if let Some(own) = own.get_mut(*kind as usize) {
                *own += samples;
            }
        }
        let inner = sums(&self.kinds, &own);
        // A kind comes after its parent, so the estimate for its surroundings exists already.
        let mut around = vec![0.0; self.kinds.len()];
        let mut parts = vec![KindShare::default(); self.kinds.len()];
        for at in 0..self.kinds.len() {
            let ContextKind { parent, step } = &self.kinds[at];
            let surroundings =
                // A thread has no surroundings: other threads do different work.
                if matches!(step, NodeStep::Thread(_) | NodeStep::Root) { None } else { Some(around[*parent as usize]) };
            if at != 0 {
                around[at] = estimate(inner[at], self.with_inner[at], surroundings).0;
            }
            // A thread's own kind, outside of all spans, leans on the spans inside it.
            let surroundings = if at == 0 { None } else { Some(around[at]) };
            let (part, error) = estimate(own[at], self.own[at], surroundings);
            parts[at] = KindShare { part, error };
        }
        Weights { parts, calls: None }
    }
}

/// Sums each kind's samples with those of the kinds below it.
fn sums(kinds: &[ContextKind], own: &[u64]) -> Vec<u64> {
    let mut sums = own.to_vec();
    for at in (1..sums.len()).rev() {
        let parent = kinds[at].parent as usize;
        let here = sums[at];
        sums[parent] += here;
    }
    sums
}

/// The ratio of `hits` to `all`, and its standard error. `around` is the ratio in the surroundings.
fn estimate(hits: u64, all: u64, around: Option<f64>) -> (f64, f64) {
    let samples = all as f64;
    let own = if all == 0 { 0.0 } else { hits as f64 / samples };
    let lean = KIND_PRIOR_SAMPLES * (1.0 - samples / KIND_SAMPLES_FEW).max(0.0);
    let part = match around {
        Some(around) if lean > 0.0 => (own * samples + around * lean) / (samples + lean),
        _ => own,
    };
    if hits == 0 && part == 0.0 {
        // Never in it, and no surroundings that count: none, none of their samples in it, or too many samples to lean.
        // The error is 0, although Jeffreys' rule would give 3 % for 0 of 20: most kinds of work lack most targets.
        return (0.0, 0.0);
    }
    // Half a sample more in, and half a one out (Jeffreys): 0 or all of a few samples is no certainty.
    let smoothed = (part * samples + 0.5) / (samples + 1.0);
    (part, (smoothed * (1.0 - smoothed) / samples.max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_with_few_samples_use_their_surroundings() {
        let close =
            |(part, error): (f64, f64), want: (f64, f64)| (part - want.0).abs() < 1e-9 && (error - want.1).abs() < 1e-3;
        let cases = [
            ("many", 25, 100, Some(0.9), (0.25, 0.0433)),
            ("many, none", 0, 100, Some(0.9), (0.0, 0.0)),
            ("few, none, as around", 0, 10, Some(0.0), (0.0, 0.0)),
            ("few lean", 0, 10, Some(0.5), (0.5 / 11.0, 0.0890)),
            ("none is the surroundings", 0, 0, Some(0.3), (0.3, 0.5)),
            ("none, and none around", 0, 0, Some(0.0), (0.0, 0.0)),
            ("all", 50, 50, None, (1.0, 0.0139)),
        ];
        for (why, hits, all, around, want) in cases {
            let got = estimate(hits, all, around);
            assert!(close(got, want), "{why}: {got:?}, expected {want:?}");
        }
    }

    #[test]
    fn a_span_counts_fully_and_a_function_by_its_samples() {
        let kind = |parent, step| ContextKind { parent, step };
        let kinds = vec![
            kind(0, NodeStep::Root),
            kind(0, NodeStep::Thread("worker".into())),
            kind(1, NodeStep::Span(7)),
            kind(2, NodeStep::Site(9)),
            kind(2, NodeStep::Span(7)),
            kind(0, NodeStep::Thread("other".into())),
        ];
        let kinds = KindCounts::new(kinds, [(1, 100), (2, 50), (3, 50), (4, 0), (5, 100)].into_iter());
        assert_eq!(kinds.all(), 300);
        assert_eq!(kinds.spans(), [(7, vec![2, 3, 4])]);
        let (weights, all) = kinds.of_span(&[2, 3, 4]);
        assert_eq!(all, 100);
        assert_eq!((0..6).map(|kind| weights.part(kind)).collect::<Vec<_>>(), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
        let weights = kinds.of_samples(&[(2, 50)]);
        assert_eq!([1, 2, 3, 5].map(|kind| weights.part(kind)), [0.0, 1.0, 0.0, 0.0]);
        // Never sampled: it has its surroundings' part.
        assert!((weights.part(4) - 0.5).abs() < 1e-9, "{:?}", weights.parts);
        assert_eq!((kinds.thread(4), kinds.thread_name(4), kinds.of_thread(1)), (1, "worker", 200));
    }
}

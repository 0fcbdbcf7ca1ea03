//! From samples to parts: which part of the time of each kind of work is a target's, and how well that is known.

use super::{Part, Weights};
use crate::kinds::{Kind, Step};

/// A kind with fewer samples leans on what surrounds it.
const FEW: f64 = 20.0;
/// How much: as if so many of its samples were of its surroundings, where it has none itself. Little, since what a span does is mostly
/// not what its thread does elsewhere.
const LEAN: f64 = 2.0;

/// Numbers of samples, by kinds of work.
pub(super) struct Kinds {
    kinds: Vec<Kind>,
    /// In each kind alone, and with the kinds below it.
    own: Vec<u64>,
    with_inner: Vec<u64>,
}

impl Kinds {
    pub(super) fn new(kinds: Vec<Kind>, sampled: impl Iterator<Item = (u32, u64)>) -> Self {
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

    /// The samples of each kind alone, by its number.
    pub(super) fn times(&self) -> Vec<f64> {
        self.own.iter().map(|&own| own as f64).collect()
    }

    /// The kind's thread; the root's kind, 0, is a thread of its own.
    pub(super) fn thread(&self, kind: u32) -> u32 {
        let mut at = kind;
        while let Some(Kind { parent, step }) = self.kinds.get(at as usize) {
            if matches!(step, Step::Thread(_) | Step::Root) {
                break;
            }
            at = *parent;
        }
        at
    }

    /// Samples of a whole thread.
    pub(super) fn of_thread(&self, thread: u32) -> u64 {
        let samples = if thread == 0 { &self.own } else { &self.with_inner };
        samples.get(thread as usize).copied().unwrap_or_default()
    }

    /// The name of the kind's thread.
    pub(super) fn thread_name(&self, kind: u32) -> &str {
        match self.kinds.get(self.thread(kind) as usize) {
            Some(Kind { step: Step::Thread(name), .. }) if !name.is_empty() => name,
            _ => "thread",
        }
    }

    /// Spans that were seen, with the kinds inside each.
    pub(super) fn spans(&self) -> Vec<(u32, Vec<u32>)> {
        let mut spans: std::collections::BTreeMap<u32, Vec<u32>> = std::collections::BTreeMap::new();
        for kind in 0..self.kinds.len() as u32 {
            let mut at = kind;
            while at != 0 {
                let Kind { parent, step } = &self.kinds[at as usize];
                if let Step::Span(span) = *step {
                    let inside = spans.entry(span).or_default();
                    // A span within itself.
                    if inside.last() != Some(&kind) {
                        inside.push(kind);
                    }
                }
                at = *parent;
            }
        }
        spans.into_iter().collect()
    }

    /// All the time inside a span is the span's: measured, so without an error.
    pub(super) fn of_span(&self, inside: &[u32]) -> (Weights, u64) {
        let (mut parts, mut all) = (vec![Part::default(); self.kinds.len()], 0);
        for &kind in inside {
            parts[kind as usize].part = 1.0;
            all += self.own[kind as usize];
        }
        (Weights { parts, calls: None }, all)
    }

    /// Of something that was sampled so often in each of some kinds.
    pub(super) fn of_samples(&self, hits: &[(u32, u64)]) -> Weights {
        let mut own = vec![0; self.kinds.len()];
        for (kind, samples) in hits {
            if let Some(own) = own.get_mut(*kind as usize) {
                *own += samples;
            }
        }
        let inner = sums(&self.kinds, &own);
        // Kinds come after what they are inside, so what surrounds a kind is known before it.
        let mut around = vec![0.0; self.kinds.len()];
        let mut parts = vec![Part::default(); self.kinds.len()];
        for at in 0..self.kinds.len() {
            let Kind { parent, step } = &self.kinds[at];
            let surroundings =
                if matches!(step, Step::Thread(_) | Step::Root) { None } else { Some(around[*parent as usize]) };
            if at != 0 {
                around[at] = estimate(inner[at], self.with_inner[at], surroundings).0;
            }
            // Of a thread itself, outside of all spans, as much is known as of what is inside.
            let surroundings = if at == 0 { None } else { Some(around[at]) };
            let (part, error) = estimate(own[at], self.own[at], surroundings);
            parts[at] = Part { part, error };
        }
        Weights { parts, calls: None }
    }
}

fn sums(kinds: &[Kind], own: &[u64]) -> Vec<u64> {
    let mut sums = own.to_vec();
    for at in (1..sums.len()).rev() {
        let parent = kinds[at].parent as usize;
        let here = sums[at];
        sums[parent] += here;
    }
    sums
}

/// The part that `hits` are of `all`, and its standard error. `around` is the part in the surroundings.
fn estimate(hits: u64, all: u64, around: Option<f64>) -> (f64, f64) {
    let samples = all as f64;
    let own = if all == 0 { 0.0 } else { hits as f64 / samples };
    let lean = LEAN * (1.0 - samples / FEW).max(0.0);
    let part = match around {
        Some(around) if lean > 0.0 => (own * samples + around * lean) / (samples + lean),
        _ => own,
    };
    if hits == 0 && part == 0.0 {
        // Not even its surroundings have it.
        return (0.0, 0.0);
    }
    // As if half a sample more was in and half a one out (Jeffreys): none or all of a few is not certainty.
    let smoothed = (part * samples + 0.5) / (samples + 1.0);
    (part, (smoothed * (1.0 - smoothed) / samples.max(1.0)).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_hits_by_samples_and_lean_on_their_surroundings_where_those_are_few() {
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
    fn a_span_is_whole_and_a_function_is_what_was_sampled() {
        let kind = |parent, step| Kind { parent, step };
        let kinds = vec![
            kind(0, Step::Root),
            kind(0, Step::Thread("worker".into())),
            kind(1, Step::Span(7)),
            kind(2, Step::Site(9)),
            kind(2, Step::Span(7)),
            kind(0, Step::Thread("other".into())),
        ];
        let kinds = Kinds::new(kinds, [(1, 100), (2, 50), (3, 50), (4, 0), (5, 100)].into_iter());
        assert_eq!(kinds.all(), 300);
        assert_eq!(kinds.spans(), [(7, vec![2, 3, 4])]);
        let (weights, all) = kinds.of_span(&[2, 3, 4]);
        assert_eq!(all, 100);
        assert_eq!((0..6).map(|kind| weights.part(kind)).collect::<Vec<_>>(), [0.0, 0.0, 1.0, 1.0, 1.0, 0.0]);
        let weights = kinds.of_samples(&[(2, 50)]);
        assert_eq!([1, 2, 3, 5].map(|kind| weights.part(kind)), [0.0, 1.0, 0.0, 0.0]);
        // Never sampled: as what surrounds it.
        assert!((weights.part(4) - 0.5).abs() < 1e-9, "{:?}", weights.parts);
        assert_eq!((kinds.thread(4), kinds.thread_name(4), kinds.of_thread(1)), (1, "worker", 200));
    }
}

//! All samples of a profile, and the targets that follow from them.

use std::collections::{HashMap, HashSet};

use super::candidates::{self, Candidate, Key};
use super::parts::Kinds;
use super::tree::Tree;
use super::{Target, TargetKind, Weights, distinct};
use crate::kinds;
use crate::report::Stack;
use crate::sample::Sample;
use crate::symbols::{Origin, Symbolizer, Symbols};

/// What has less of all samples is no target, unless it was asked for.
const SHARE_MIN: f64 = 0.005;
/// What has more of every thread that it is in is in all stacks, or all that could be walked to their ends: of those few are kept.
const SHARE_WHOLE: f64 = 0.85;
/// How many.
const WHOLE_MAX: usize = 2;
/// Stacks that a report shows; the rest is one.
const STACKS_MAX: usize = 4096;

/// Where the time went, by stacks. Some tens of mebioctets at most.
pub struct Profile {
    tree: Tree,
    symbols: Symbolizer,
    upstreams: Vec<u32>,
    samples: u64,
    /// What a sample stands for, nanoseconds.
    period: u64,
}

impl Profile {
    /// Without samples, each of which will stand for `period` nanoseconds ([`crate::sample::Rate::period`]).
    #[must_use]
    pub fn new(period: u64) -> Self {
        Self { tree: Tree::new(), symbols: Symbolizer::new(), upstreams: Vec::new(), samples: 0, period }
    }

    #[cfg(test)]
    pub(super) fn bounded(nodes_max: usize, period: u64) -> Self {
        Self { tree: Tree::bounded(nodes_max), ..Self::new(period) }
    }

    /// Adds a sample. A microsecond or two.
    pub fn add(&mut self, sample: &Sample<'_>) {
        self.tree.add(sample);
        self.samples += 1;
    }

    /// How many there are.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How much the program's file tells about its functions and lines.
    #[must_use]
    pub fn is_symbolic(&self) -> Symbols {
        self.symbols.symbols()
    }

    /// Says that calls to these spans were recorded, so that each becomes a target.
    pub fn upstreams(&mut self, spans: &[u32]) {
        for &span in spans {
            if !self.upstreams.contains(&span) {
                self.upstreams.push(span);
            }
        }
    }

    /// What could be made faster, by its share of the samples: at most `max` of what is sampled, then all that were asked for (by their
    /// name, or a part of it), all spans that were seen and all upstreams.
    ///
    /// Of things that were in the same samples (a function and its only line) one stands for all, and of what is in all stacks of its
    /// threads few are kept, unless they were asked for.
    pub fn targets(&mut self, wanted: &[String], max: usize) -> Vec<Target> {
        let kinds = self.kinds();
        let all = kinds.all().max(1) as f64;
        let mut candidates = candidates::all(&self.tree, &mut self.symbols);
        candidates.retain(|candidate| candidate.all > 0);
        let names: Vec<_> = candidates.iter().map(|candidate| self.name(candidate.key)).collect();
        let share = |candidate: &Candidate| candidate.all as f64 / all;

        let mut chosen: Vec<usize> = self.worthwhile(&candidates, &kinds, all, max);
        for name in wanted {
            let mut matches: Vec<_> = (0..names.len()).filter(|&at| names[at] == *name).collect();
            if matches.is_empty() {
                matches = (0..names.len()).filter(|&at| names[at].contains(name.as_str())).collect();
                matches.sort_by_key(|&at| std::cmp::Reverse(candidates[at].all));
                matches.truncate(max.max(1));
            }
            chosen.extend(matches);
        }
        let mut seen = HashSet::new();
        chosen.retain(|at| seen.insert(*at));

        let mut targets: Vec<_> = chosen
            .into_iter()
            .map(|at| {
                let candidate = &candidates[at];
                Target {
                    name: names[at].clone(),
                    kind: kind(candidate),
                    share: share(candidate),
                    samples: candidate.all,
                    weights: kinds.of_samples(&candidate.kinds),
                }
            })
            .collect();
        let spans = progress::spans();
        let span_name = |span: u32| spans.get(span as usize).cloned().unwrap_or_default();
        for (span, inside) in kinds.spans() {
            let (weights, samples) = kinds.of_span(&inside);
            let share = samples as f64 / all;
            targets.push(Target { name: span_name(span), kind: TargetKind::Span, share, samples, weights });
        }
        for &span in &self.upstreams {
            let weights = Weights { parts: Vec::new(), calls: Some(span) };
            targets.push(Target { name: span_name(span), kind: TargetKind::Upstream, share: 0.0, samples: 0, weights });
        }
        let is_wanted = |target: &Target| wanted.iter().any(|name| target.name.contains(name.as_str()));
        targets.retain(|target| is_wanted(target) || !distinct::is_ours(callee(&target.name)));
        distinct::retain(&mut targets, &kinds.times(), is_wanted);
        targets.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
        targets
    }

    /// All names that stand in any stack, and of the spans that were seen: what a target's name can be.
    pub fn names(&mut self) -> Vec<String> {
        let candidates = candidates::all(&self.tree, &mut self.symbols);
        let mut names: Vec<_> = candidates.iter().map(|candidate| self.name(candidate.key)).collect();
        let spans = progress::spans();
        let seen = self.kinds().spans().into_iter().map(|(span, _)| span).chain(self.upstreams.iter().copied());
        names.extend(seen.filter_map(|span| spans.get(span as usize).cloned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Stacks of functions with the thread's name first, the most frequent first. What is beyond the first thousands is
    /// one stack of its thread.
    pub fn stacks(&mut self) -> Vec<Stack> {
        let kinds = self.kinds();
        let mut counts: HashMap<(String, Vec<u32>), u64> = HashMap::new();
        for node in self.tree.nodes.iter().filter(|node| node.own > 0) {
            let (mut frames, mut at) = (Vec::new(), node);
            while self.tree.nodes[at.parent as usize].what != at.what
                || !std::ptr::eq(&self.tree.nodes[at.parent as usize], at)
            {
                frames.extend(
                    self.symbols.places(self.tree.addresses[at.what as usize]).iter().map(|place| place.function),
                );
                at = &self.tree.nodes[at.parent as usize];
            }
            frames.reverse();
            *counts.entry((kinds.thread_name(at.what).to_owned(), frames)).or_default() += node.own;
        }
        let mut stacks: Vec<_> = counts
            .into_iter()
            .map(|((thread, frames), count)| {
                let frames =
                    std::iter::once(thread).chain(frames.iter().map(|&name| self.symbols.name(name).to_owned()));
                Stack { frames: frames.collect(), count, nanoseconds: count.saturating_mul(self.period) }
            })
            .collect();
        stacks.sort_unstable_by(|a, b| b.count.cmp(&a.count).then_with(|| a.frames.cmp(&b.frames)));
        let mut others: Vec<Stack> = Vec::new();
        for stack in stacks.drain(stacks.len().min(STACKS_MAX)..) {
            let frames = vec![stack.frames[0].clone(), "[others]".to_owned()];
            match others.iter_mut().find(|other| other.frames == frames) {
                Some(other) => {
                    other.count += stack.count;
                    other.nanoseconds += stack.nanoseconds;
                }
                None => others.push(Stack { frames, ..stack }),
            }
        }
        stacks.extend(others);
        stacks
    }

    fn kinds(&self) -> Kinds {
        let inclusive = self.tree.inclusive();
        let roots = (0..).zip(&self.tree.nodes).filter(|(at, node)| node.parent == *at);
        Kinds::new(kinds::kinds(), roots.map(|(at, node)| (node.what, inclusive[at as usize])))
    }

    fn name(&self, key: Key) -> String {
        match key {
            Key::Function(name) | Key::Line(name) => self.symbols.name(name).to_owned(),
            Key::Path(caller, callee) => format!("{} > {}", self.symbols.name(caller), self.symbols.name(callee)),
        }
    }

    /// The most sampled of each kind, one of each set, few of what is everywhere.
    fn worthwhile(&self, candidates: &[Candidate], kinds: &Kinds, all: f64, max: usize) -> Vec<usize> {
        let is_seen = |candidate: &Candidate| candidate.all as f64 >= SHARE_MIN * all;
        let mut callers: HashMap<u32, u32> = HashMap::new();
        for candidate in candidates.iter().filter(|candidate| is_seen(candidate)) {
            if let Key::Path(_, callee) = candidate.key {
                *callers.entry(callee).or_default() += 1;
            }
        }
        let is_worthwhile = |candidate: &Candidate| match candidate.key {
            Key::Path(_, callee) => callers.get(&callee).is_some_and(|&callers| callers > 1),
            // Nobody can change a line of Rust's own libraries; the function that it is in says as much.
            Key::Line(_) => matches!(candidate.origin, Origin::Program | Origin::Package),
            Key::Function(_) => true,
        };
        // The program's own code can be made faster; then what stands furthest in, which says most.
        let rank = |at: &usize| {
            let candidate = &candidates[*at];
            let kind = match candidate.key {
                Key::Function(_) => 0,
                Key::Path(..) => 1,
                Key::Line(_) => 2,
            };
            let is_named = match candidate.key {
                Key::Function(name) | Key::Path(_, name) => !self.symbols.name(name).starts_with('['),
                Key::Line(_) => true,
            };
            (!is_named, kind, candidate.origin, std::cmp::Reverse(candidate.depth))
        };
        let mut sets: HashMap<u64, usize> = HashMap::new();
        for at in (0..candidates.len()).filter(|&at| is_seen(&candidates[at]) && is_worthwhile(&candidates[at])) {
            sets.entry(candidates[at].set).and_modify(|best| *best = (*best).min_by_rank(at, rank)).or_insert(at);
        }
        let mut by_share: Vec<_> = sets.into_values().collect();
        by_share.sort_by_key(|&at| (std::cmp::Reverse(candidates[at].all), rank(&at)));

        // By thread, those that are in all of its stacks: the least inclusive come last.
        let mut whole: HashMap<u32, Vec<usize>> = HashMap::new();
        for &at in by_share.iter().rev() {
            if let Some(thread) = whole_of(&candidates[at], kinds) {
                // What runs the program's code is none of its own.
                let thread = if candidates[at].origin == Origin::Program { thread } else { u32::MAX };
                whole.entry(thread).or_default().push(at);
            }
        }
        let few = |thread: u32| if thread == u32::MAX { 0 } else { WHOLE_MAX };
        let superfluous: HashSet<_> =
            whole.iter().flat_map(|(&thread, all)| all.iter().skip(few(thread))).copied().collect();
        by_share.retain(|at| !superfluous.contains(at));

        // A part for each kind, so that lines do not crowd out functions; what one leaves the others take.
        let of = |is_kind: fn(Key) -> bool| by_share.iter().copied().filter(move |&at| is_kind(candidates[at].key));
        let functions = of(|key| matches!(key, Key::Function(_)));
        let lines = of(|key| matches!(key, Key::Line(_)));
        let paths = of(|key| matches!(key, Key::Path(..)));
        let mut chosen: Vec<_> =
            functions.take(max.div_ceil(2)).chain(lines.take(max / 4)).chain(paths.take(max / 4)).collect();
        let rest: Vec<_> =
            by_share.iter().copied().filter(|at| !chosen.contains(at)).take(max - chosen.len()).collect();
        chosen.extend(rest);
        chosen
    }
}

/// What a call path is the path to; any other name as it is.
fn callee(name: &str) -> &str {
    name.rsplit_once(" > ").map_or(name, |(_, callee)| callee)
}

/// The lower one by a rank.
trait ByRank: Sized {
    fn min_by_rank<R: Ord>(self, other: Self, rank: impl Fn(&Self) -> R) -> Self;
}

impl ByRank for usize {
    fn min_by_rank<R: Ord>(self, other: Self, rank: impl Fn(&Self) -> R) -> Self {
        if rank(&other) < rank(&self) { other } else { self }
    }
}

/// The thread in whose stacks it always is, if it is so in each thread where it is at all.
fn whole_of(candidate: &Candidate, kinds: &Kinds) -> Option<u32> {
    let mut by_thread: HashMap<u32, u64> = HashMap::new();
    for (kind, samples) in &candidate.kinds {
        *by_thread.entry(kinds.thread(*kind)).or_default() += samples;
    }
    let is_whole = |(thread, samples): (&u32, &u64)| *samples as f64 >= SHARE_WHOLE * kinds.of_thread(*thread) as f64;
    by_thread.iter().all(is_whole).then(|| by_thread.iter().max_by_key(|of| of.1).map(|of| *of.0)).flatten()
}

fn kind(candidate: &Candidate) -> TargetKind {
    match candidate.key {
        Key::Function(_) if candidate.inlined >= candidate.all => TargetKind::Inlined,
        Key::Function(_) => TargetKind::Function,
        Key::Line(_) => TargetKind::Line,
        Key::Path(..) => TargetKind::Path,
    }
}

impl std::fmt::Debug for Profile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Profile").field("samples", &self.samples).finish_non_exhaustive()
    }
}

//! All samples of a profile, and the targets derived from them.

use std::collections::{HashMap, HashSet};

use super::distinct::{self, DuplicateRole};
use super::items::{self, CodeItem, CodeItemKey};
use super::parts::KindCounts;
use super::tree::StackTree;
use super::{Target, TargetKind, Weights, fold};
use crate::constants::{TARGET_SHARE_MIN, TARGET_THREAD_MIN, TARGET_WHOLE_MAX, TARGET_WHOLE_SHARE};
use crate::kinds;
use crate::report::Stack;
use crate::sample::Sample;
use crate::symbols::{Origin, Symbolizer, Symbols};

/// Bound on the stacks of a report, and on the bytes of their names; further ones are merged into one per thread.
const STACKS_MAX: usize = 4096;
const STACKS_TEXT_MAX: usize = 2 << 20;

/// All samples as a tree of stacks. At most eight mebibytes, plus names.
pub struct SampleProfile {
    tree: StackTree,
    symbols: Symbolizer,
    /// Kinds of work in recorded windows.
    recorded: HashSet<u32>,
    upstreams: Vec<u32>,
    samples: u64,
    /// The time that a sample stands for, nanoseconds.
    period: u64,
}

impl SampleProfile {
    /// An empty profile whose samples stand for `period` nanoseconds each ([`crate::sample::Rate::period`]).
    #[must_use]
    pub fn new(period: u64) -> Self {
        let (recorded, upstreams) = (HashSet::new(), Vec::new());
        Self { tree: StackTree::new(), symbols: Symbolizer::new(), recorded, upstreams, samples: 0, period }
    }

    #[cfg(test)]
    pub(super) fn bounded(nodes_max: usize, period: u64) -> Self {
        Self { tree: StackTree::bounded(nodes_max), ..Self::new(period) }
    }

    /// Adds a sample. Takes a microsecond or two.
    pub fn add(&mut self, sample: &Sample<'_>) {
        self.tree.add(sample);
        self.samples += 1;
    }

    /// The number of samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// How much debug information the program's file has.
    #[must_use]
    pub fn symbols(&self) -> Symbols {
        self.symbols.symbols()
    }

    /// Registers kinds of work in recorded windows, whose spans become targets also without samples, and spans of calls
    /// to upstreams, each of which becomes a target.
    pub fn recorded(&mut self, kinds: &[u32], upstreams: &[u32]) {
        self.recorded.extend(kinds);
        for &span in upstreams {
            if !self.upstreams.contains(&span) {
                self.upstreams.push(span);
            }
        }
    }

    /// The targets by share: at most `max` sampled ones, then for each name in `wanted` those with this name, or if
    /// there is none, up to `max` whose name contains it; all spans that were sampled or recorded, and all upstreams.
    ///
    /// Of items with equal samples (a function and its only line) one is kept, and of those in all stacks of a
    /// thread a few, unless they are wanted.
    pub fn targets(&mut self, wanted: &[String], max: usize) -> Vec<Target> {
        let kinds = self.kinds();
        let all = kinds.all().max(1) as f64;
        let mut items = items::all(&self.tree, &mut self.symbols);
        items.retain(|item| item.all > 0);
        let names: Vec<_> = items.iter().map(|item| self.name(item.key)).collect();
        let share = |item: &CodeItem| item.all as f64 / all;

        let mut chosen: Vec<usize> = self.worthwhile(&items, &kinds, all, max);
        for name in wanted {
            let mut matches: Vec<_> = (0..names.len()).filter(|&at| names[at] == *name).collect();
            // An exact name wins; only without one do partial matches count.
            if matches.is_empty() {
                matches = (0..names.len()).filter(|&at| names[at].contains(name.as_str())).collect();
                matches.sort_by_key(|&at| std::cmp::Reverse(items[at].all));
                matches.truncate(max.max(1));
            }
            chosen.extend(matches);
        }
        let mut seen = HashSet::new();
        chosen.retain(|at| seen.insert(*at));

        let mut targets: Vec<_> = chosen
            .iter()
            .map(|&at| {
                let item = &items[at];
                Target {
                    name: names[at].clone(),
                    kind: kind(item),
                    share: share(item),
                    samples: item.all,
                    weights: kinds.of_samples(&item.kinds),
                    folded: None,
                }
            })
            .collect();
        let spans = progress::span_names();
        let span_name = |span: u32| spans.get(span as usize).cloned().unwrap_or_default();
        let (outermost, mut whole_spans) = (kinds.outermost_spans(), HashSet::new());
        let mut server_spans = HashSet::new();
        for (span, inside) in self.spans(&kinds) {
            let (weights, samples) = kinds.of_span(&inside);
            let share = samples as f64 / all;
            let (name, kind) = (span_name(span), TargetKind::Span);
            let sampled: Vec<_> = inside.iter().map(|&kind| (kind, kinds.of_kind(kind))).collect();
            if is_whole(&sampled, &kinds, &outermost) {
                whole_spans.insert(name.clone());
            }
            // Names of stages, routes and handlers are the same in every program.
            if progress::Span::from_id(span).is_server_span() {
                server_spans.insert(name.clone());
            }
            targets.push(Target { name, kind, share, samples, weights, folded: None });
        }
        for &span in &self.upstreams {
            let weights = Weights { parts: Vec::new(), calls: Some(span) };
            // An upstream's time passes outside the process, so it has no samples.
            let (name, kind) = (span_name(span), TargetKind::Upstream);
            targets.push(Target { name, kind, share: 0.0, samples: 0, weights, folded: None });
        }
        let is_wanted = |target: &Target| wanted.iter().any(|name| target.name.contains(name.as_str()));
        // The profiler's own code, then duplicates.
        targets.retain(|target| is_wanted(target) || !distinct::is_ours(callee(&target.name)));
        // Deduplication and folding need each target's item again, and folding the samples of every function.
        let by_name: HashMap<(&str, TargetKind), usize> =
            chosen.iter().map(|&at| ((names[at].as_str(), kind(&items[at])), at)).collect();
        let role = |target: &Target| match target.kind {
            // A name that the program's author gave to this piece of work.
            TargetKind::Span if !server_spans.contains(&target.name) => DuplicateRole::Named,
            TargetKind::Function | TargetKind::Inlined => {
                let item = by_name.get(&(target.name.as_str(), target.kind)).map(|&at| &items[at]);
                // In most of its samples no other function of the program is further in: callers have the same time.
                let is_hot = item.is_some_and(|item| item.is_own && item.own * 2 >= item.all);
                if is_hot && !distinct::is_of_server(&target.name) { DuplicateRole::Hot } else { DuplicateRole::Other }
            }
            _ => DuplicateRole::Other,
        };
        distinct::retain(&mut targets, &kinds.times(), role, is_wanted);

        let of_function: HashMap<u32, u64> = items
            .iter()
            .filter_map(|it| if let CodeItemKey::Function(name) = it.key { Some((name, it.all)) } else { None })
            .collect();
        let seen: Vec<_> = targets
            .iter()
            .map(|target| match target.kind {
                TargetKind::Span => Err(whole_spans.contains(&target.name)),
                _ => Ok(by_name.get(&(target.name.as_str(), target.kind)).map(|&at| {
                    let item = &items[at];
                    let next = item.next.map(|(function, part)| {
                        let whole = if item.is_own { item.all } else { of_function[&function] };
                        (self.symbols.name(function), part, whole)
                    });
                    let is_whole = is_whole(&item.kinds, &kinds, &outermost);
                    fold::TargetSamples { item, callee: callee(&names[at]), is_whole, next }
                })),
            })
            .collect();
        fold::fold(&mut targets, &seen, is_wanted);
        targets.sort_by(|a, b| b.share.total_cmp(&a.share).then_with(|| a.name.cmp(&b.name)));
        targets
    }

    /// The names of all functions, lines and paths in any stack, and of all spans that were sampled or recorded: every
    /// name that a target can have.
    pub fn names(&mut self) -> Vec<String> {
        let items = items::all(&self.tree, &mut self.symbols);
        let mut names: Vec<_> = items.iter().map(|item| self.name(item.key)).collect();
        let spans = progress::span_names();
        let seen = self.spans(&self.kinds()).into_iter().map(|(span, _)| span).chain(self.upstreams.iter().copied());
        names.extend(seen.filter_map(|span| spans.get(span as usize).cloned()));
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The stacks by number of samples, most first; the first frame is the thread's name. Stacks beyond the bounds are
    /// merged into one `[others]` per thread.
    pub fn stacks(&mut self) -> Vec<Stack> {
        let kinds = self.kinds();
        let mut counts: HashMap<(String, Vec<u32>), u64> = HashMap::new();
        for node in self.tree.nodes.iter().filter(|node| node.own > 0) {
            // Up to the root, whose parent is itself.
            let (mut frames, mut at) = (Vec::new(), node);
            while !std::ptr::eq(&self.tree.nodes[at.parent as usize], at) {
                frames.extend(
                    self.symbols.places(self.tree.addresses[at.key as usize]).iter().map(|place| place.function),
                );
                at = &self.tree.nodes[at.parent as usize];
            }
            frames.reverse();
            *counts.entry((kinds.thread_name(at.key).to_owned(), frames)).or_default() += node.own;
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
        let mut text = 0;
        let shown = stacks.iter().take(STACKS_MAX).take_while(|stack| {
            text += stack.frames.iter().map(|frame| frame.len() + size_of::<String>()).sum::<usize>();
            text <= STACKS_TEXT_MAX
        });
        let shown = shown.count();
        let mut others: Vec<Stack> = Vec::new();
        for stack in stacks.drain(shown..) {
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

    fn kinds(&self) -> KindCounts {
        let inclusive = self.tree.inclusive();
        let roots = (0..).zip(&self.tree.nodes).filter(|(at, node)| node.parent == *at);
        KindCounts::new(kinds::kinds(), roots.map(|(at, node)| (node.key, inclusive[at as usize])))
    }

    /// All spans that were sampled or recorded, each with the kinds inside it.
    fn spans(&self, kinds: &KindCounts) -> Vec<(u32, Vec<u32>)> {
        // The process keeps the kinds of earlier profiles, and a reload may have removed their routes since.
        let is_seen = |kind: &u32| kinds.of_kind(*kind) > 0 || self.recorded.contains(kind);
        let mut spans = kinds.spans();
        spans.retain(|(_, inside)| inside.iter().any(is_seen));
        spans
    }

    fn name(&self, key: CodeItemKey) -> String {
        match key {
            CodeItemKey::Function(name) | CodeItemKey::Line(name) => self.symbols.name(name).to_owned(),
            CodeItemKey::Path(caller, callee) => {
                format!("{} > {}", self.symbols.name(caller), self.symbols.name(callee))
            }
        }
    }

    /// Chooses items: the ones with most samples of each kind, one of each equal set, few of those in all stacks.
    fn worthwhile(&self, items: &[CodeItem], kinds: &KindCounts, all: f64, max: usize) -> Vec<usize> {
        let is_seen = |item: &CodeItem| item.all as f64 >= TARGET_SHARE_MIN * all;
        let mut callers: HashMap<u32, u32> = HashMap::new();
        for item in items.iter().filter(|item| is_seen(item)) {
            if let CodeItemKey::Path(_, callee) = item.key {
                *callers.entry(callee).or_default() += 1;
            }
        }
        let is_worthwhile = |item: &CodeItem| match item.key {
            CodeItemKey::Path(_, callee) => callers.get(&callee).is_some_and(|&callers| callers > 1),
            // A program's author cannot change a line of Rust's own libraries; its function is enough.
            CodeItemKey::Line(_) => matches!(item.origin, Origin::Program | Origin::Package),
            CodeItemKey::Function(_) => true,
        };
        // Prefer the program's own code, which its author can change; then the innermost item, which is most
        // specific.
        let rank = |at: &usize| {
            let item = &items[*at];
            let kind = match item.key {
                CodeItemKey::Function(_) => 0,
                CodeItemKey::Path(..) => 1,
                CodeItemKey::Line(_) => 2,
            };
            let is_named = match item.key {
                CodeItemKey::Function(name) | CodeItemKey::Path(_, name) => !self.symbols.name(name).starts_with('['),
                CodeItemKey::Line(_) => true,
            };
            (!is_named, kind, item.origin, std::cmp::Reverse(item.depth))
        };
        let mut sets: HashMap<u64, usize> = HashMap::new();
        for at in (0..items.len()).filter(|&at| is_seen(&items[at]) && is_worthwhile(&items[at])) {
            sets.entry(items[at].set).and_modify(|best| *best = (*best).min_by_rank(at, rank)).or_insert(at);
        }
        let mut by_share: Vec<_> = sets.into_values().collect();
        by_share.sort_by_key(|&at| (std::cmp::Reverse(items[at].all), rank(&at)));

        // By thread, the items in all of its stacks, from the one with the fewest samples.
        let mut whole: HashMap<u32, Vec<usize>> = HashMap::new();
        for &at in by_share.iter().rev() {
            if let Some(thread) = whole_of(&items[at].kinds, kinds) {
                // Library code in all stacks runs the program's code, and is never a target.
                let thread = if items[at].origin == Origin::Program { thread } else { u32::MAX };
                whole.entry(thread).or_default().push(at);
            }
        }
        // `u32::MAX` stands for library code, of which none is kept.
        let few = |thread: u32| if thread == u32::MAX { 0 } else { TARGET_WHOLE_MAX };
        let superfluous: HashSet<_> =
            whole.iter().flat_map(|(&thread, all)| all.iter().skip(few(thread))).copied().collect();
        by_share.retain(|at| !superfluous.contains(at));

        // Each kind has a quota, so that lines do not displace functions; the remaining items fill an unused
        // quota.
        let of = |is_kind: fn(CodeItemKey) -> bool| by_share.iter().copied().filter(move |&at| is_kind(items[at].key));
        let functions = of(|key| matches!(key, CodeItemKey::Function(_)));
        let lines = of(|key| matches!(key, CodeItemKey::Line(_)));
        let paths = of(|key| matches!(key, CodeItemKey::Path(..)));
        let mut chosen: Vec<_> =
            functions.take(max.div_ceil(2)).chain(lines.take(max / 4)).chain(paths.take(max / 4)).collect();
        let rest: Vec<_> =
            by_share.iter().copied().filter(|at| !chosen.contains(at)).take(max - chosen.len()).collect();
        chosen.extend(rest);
        chosen
    }
}

/// The callee of a call path's name; any other name unchanged.
fn callee(name: &str) -> &str {
    name.rsplit_once(" > ").map_or(name, |(_, callee)| callee)
}

/// The value with the lower rank.
trait ByRank: Sized {
    fn min_by_rank<R: Ord>(self, other: Self, rank: impl Fn(&Self) -> R) -> Self;
}

impl ByRank for usize {
    fn min_by_rank<R: Ord>(self, other: Self, rank: impl Fn(&Self) -> R) -> Self {
        if rank(&other) < rank(&self) { other } else { self }
    }
}

/// The thread with most of the samples, if in every thread that has any the samples are nearly all of that thread's.
fn whole_of(samples: &[(u32, u64)], kinds: &KindCounts) -> Option<u32> {
    let mut by_thread: HashMap<u32, u64> = HashMap::new();
    for (kind, samples) in samples {
        *by_thread.entry(kinds.thread(*kind)).or_default() += samples;
    }
    let is_whole =
        |(thread, samples): (&u32, &u64)| *samples as f64 >= TARGET_WHOLE_SHARE * kinds.of_thread(*thread) as f64;
    by_thread.iter().all(is_whole).then(|| by_thread.iter().max_by_key(|of| of.1).map(|of| *of.0)).flatten()
}

/// The samples by thread: outside of all spans, and inside. Threads with hardly any of them are left out: an admin
/// API's connections, for example, run through the code that serves a site's.
fn by_thread(samples: &[(u32, u64)], kinds: &KindCounts) -> HashMap<u32, [u64; 2]> {
    let mut threads: HashMap<u32, [u64; 2]> = HashMap::new();
    for &(kind, samples) in samples {
        let inside = usize::from(kinds.outermost_span(kind).is_some());
        threads.entry(kinds.thread(kind)).or_default()[inside] += samples;
    }
    let all: u64 = threads.values().flatten().sum();
    threads.retain(|_, [outside, inside]| (*outside + *inside) as f64 > TARGET_THREAD_MIN * all as f64);
    threads
}

/// Whether the samples are nearly all of their threads', or nearly all of those inside spans (for an event loop that
/// also idles or does other work). If one span has them nearly all, they may be one specific piece of work, and do not
/// count.
fn is_whole(samples: &[(u32, u64)], kinds: &KindCounts, spans: &HashMap<u32, HashMap<u32, u64>>) -> bool {
    let threads = by_thread(samples, kinds);
    let has_all = |(thread, [outside, inside]): (&u32, &[u64; 2])| {
        (outside + inside) as f64 >= TARGET_WHOLE_SHARE * kinds.of_thread(*thread) as f64
    };
    let has_all_spans = |(thread, [outside, inside]): (&u32, &[u64; 2])| {
        let Some(spans) = spans.get(thread) else { return false };
        let (all, most) = spans.values().fold((0, 0), |(all, most), &samples| (all + samples, samples.max(most)));
        let part = *inside as f64;
        part >= TARGET_WHOLE_SHARE * all as f64 && part * TARGET_WHOLE_SHARE > most as f64 && inside > outside
    };
    !threads.is_empty() && (threads.iter().all(has_all) || threads.iter().all(has_all_spans))
}

fn kind(item: &CodeItem) -> TargetKind {
    match item.key {
        CodeItemKey::Function(_) if item.inlined >= item.all => TargetKind::Inlined,
        CodeItemKey::Function(_) => TargetKind::Function,
        CodeItemKey::Line(_) => TargetKind::Line,
        CodeItemKey::Path(..) => TargetKind::Path,
    }
}

impl std::fmt::Debug for SampleProfile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SampleProfile").field("samples", &self.samples).finish_non_exhaustive()
    }
}

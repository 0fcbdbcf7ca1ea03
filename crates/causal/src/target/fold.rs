//! Folding: targets that are no answer by themselves, because they are frames around the program's work, or because
//! another target has their time.
//!
//! A profile of a server has `tokio::runtime::…::enter::{closure}` in every stack, and the function that drives a
//! connection in nearly every one. A faster version of either would "gain" all the time, and gives an engineer nothing
//! to change. The rules use only stacks and the names of library crates, so they hold for any program. A folded target
//! keeps its curve and its row in JSON; headlines, ranks and confirmation skip it.

use serde::{Deserialize, Serialize};

use super::items::{CodeItem, CodeItemKey};
use super::{Target, TargetKind};
use crate::constants::{FOLD_INNER_SHARE_MIN, FOLD_SAME_TIME, FOLD_WRAPPER_MIN};
use crate::symbols::Origin;

/// Why a target is folded, and which target is reported in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folded {
    /// The rule that folded it.
    pub why: FoldReason,
    /// The name of the target with its time; empty if its time is spread over several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub into: String,
}

/// The folding rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FoldReason {
    /// It contains nearly all samples of its threads, or of all their spans, and other targets are inside it.
    Whole,
    /// A library's frame that calls the program's code, and spends its time there.
    Wrapper,
    /// Code of the async runtime, of std's thread and panic handling, or of the system, and every line of a library:
    /// the program's author does not change them.
    Runtime,
    /// Nearly all of its samples are in one of its callees: `into`.
    Caller,
    /// A library's function with nearly all samples of the program's function that calls it: `into`.
    Callee,
}

impl FoldReason {
    /// The explanation in reports.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Whole => "contains nearly all work of its threads",
            Self::Wrapper => "a library's wrapper around the program's code",
            Self::Runtime => "code of the runtime, of a library or of the system",
            Self::Caller => "spends its time in one function that it calls",
            Self::Callee => "a library's function with nearly all samples of its caller",
        }
    }
}

/// Crates that run tasks and threads or call the system: their frames are around or below a program's work.
const RUNTIMES: [&str; 38] = [
    "tokio",
    "tokio_util",
    "tokio_stream",
    "mio",
    "futures",
    "futures_channel",
    "futures_core",
    "futures_executor",
    "futures_io",
    "futures_lite",
    "futures_sink",
    "futures_task",
    "futures_util",
    "async_executor",
    "async_global_executor",
    "async_io",
    "async_lock",
    "async_std",
    "async_task",
    "blocking",
    "pollster",
    "polling",
    "smol",
    "glommio",
    "monoio",
    "io_uring",
    "tokio_uring",
    "pin_project_lite",
    "rayon",
    "rayon_core",
    "crossbeam",
    "crossbeam_utils",
    "threadpool",
    "tracing",
    "libc",
    "rustix",
    "nix",
    "socket2",
];

/// Modules of Rust's own libraries that only call a given closure or future.
const WRAPPERS: [&str; 20] = [
    "std::thread",
    "std::rt",
    "std::panic",
    "std::panicking",
    "std::sys::backtrace",
    "std::sys_common",
    "std::sys::thread",
    "std::sys::pal",
    "std::task",
    "std::future",
    "core::ops::function",
    "core::panic",
    "core::pin",
    "core::task",
    "core::future",
    "core::hint",
    "alloc::task",
    "<alloc::boxed::Box",
    "<std::panic",
    "<core::panic",
];

/// Linker symbols that start programs and threads.
const STARTS: [&str; 8] =
    ["_start", "main", "start_thread", "rust_begin_unwind", "lang_start", "clone", "clone3", "thread_start"];

/// Beginnings of such symbols.
const STARTS_LIKE: [&str; 5] = ["__libc_start", "__rust_", "__rustc", "__clone", "__GI___clone"];

/// The first segment of a path; for `<Type as Trait>` of the type's path.
pub(super) fn package(name: &str) -> &str {
    let path = name.trim_start_matches(['<', '&', '*', '(']).trim_start_matches("mut ").trim_start_matches("dyn ");
    path.split("::").next().unwrap_or(path)
}

/// Whether a name is of a runtime, of a wrapper in Rust's own libraries, or of the start of programs and threads.
pub(super) fn is_runtime(name: &str) -> bool {
    let is_in = |module: &str| {
        name.strip_prefix(module)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with("::") || module.starts_with('<'))
    };
    // `<F as FnOnce>::call_once` with a bare type parameter: a wrapper, whatever F is.
    let calls = |name: &str| {
        let of = name.strip_prefix('<').and_then(|rest| rest.split_once(" as "));
        of.is_some_and(|(of, rest)| {
            !of.contains("::")
                && ["FnOnce", "FnMut", "Fn", "Future"].iter().any(|it| rest.split(['<', '>']).next() == Some(it))
        })
    };
    RUNTIMES.contains(&package(name))
        || WRAPPERS.iter().any(|module| is_in(module))
        || STARTS.contains(&name)
        || STARTS_LIKE.iter().any(|start| name.starts_with(start))
        || name.starts_with('[') && !name.contains("::")
        || calls(name)
}

/// The sample counts of one target.
pub(super) struct TargetSamples<'a> {
    pub(super) item: &'a CodeItem,
    /// The callee of a path's name; any other name unchanged.
    pub(super) callee: &'a str,
    /// Whether it has nearly all samples of its threads, or of their spans.
    pub(super) is_whole: bool,
    /// The neighbour: the program's function that is next further in, for a library's frame next further out, in most
    /// of its samples. Then the number of these samples, and the total that they are compared with: the target's, or
    /// for a library's frame that function's.
    pub(super) next: Option<(&'a str, u64, u64)>,
}

/// Folds targets. `seen` has the samples of each target; `Ok(None)` for an upstream, and for a span `Err`: whether it
/// contains nearly all of its threads.
pub(super) fn fold(
    targets: &mut [Target],
    seen: &[Result<Option<TargetSamples<'_>>, bool>],
    is_wanted: impl Fn(&Target) -> bool,
) {
    // A target requested by name is never folded.
    let wanted: Vec<bool> = targets.iter().map(is_wanted).collect();
    for at in (0..targets.len()).filter(|&at| !wanted[at]) {
        if let Ok(Some(seen)) = &seen[at] {
            targets[at].folded = alone(seen).map(|why| Folded { why, into: String::new() });
        }
    }
    // From the innermost outwards, so that the target into which a caller is folded is final.
    let mut order: Vec<usize> = (0..targets.len()).filter(|&at| !wanted[at] && targets[at].folded.is_none()).collect();
    order.sort_by_key(|&at| targets[at].samples);
    for at in order {
        let Ok(Some(seen)) = &seen[at] else { continue };
        let Some((name, part, whole)) = seen.next else { continue };
        if part as f64 >= FOLD_SAME_TIME * whole as f64
            && let Some(into) = stands_for(targets, name)
            && into != targets[at].name
        {
            let why = if seen.item.is_own { FoldReason::Caller } else { FoldReason::Callee };
            targets[at].folded = Some(Folded { why, into });
        }
    }
    // Last the targets that contain everything, if a narrower one remains to be reported.
    for at in (0..targets.len()).filter(|&at| !wanted[at]) {
        // A span is whole by its samples alone; a function only if it rarely ends a stack itself.
        let (is_whole, calls) = match &seen[at] {
            Ok(Some(seen)) => (seen.is_whole && seen.item.is_own && seen.item.ends * 2 < seen.item.all, true),
            Ok(None) => continue,
            Err(is_whole) => (*is_whole, false),
        };
        let samples = targets[at].samples as f64;
        // Narrower by a tenth at least, and large enough to be worth a report.
        let is_inside = |other: &Target| {
            other.folded.is_none()
                && (other.samples as f64) < FOLD_SAME_TIME * samples
                && other.share >= FOLD_INNER_SHARE_MIN
                && other.kind != TargetKind::Upstream
        };
        // A hot loop also contains everything, but is the answer itself: it has the innermost own frame of most
        // samples.
        let mostly_inner = calls && matches!(&seen[at], Ok(Some(seen)) if seen.item.own * 2 < seen.item.all);
        if is_whole && targets[at].folded.is_none() && (mostly_inner || targets.iter().any(is_inside)) {
            targets[at].folded = Some(Folded { why: FoldReason::Whole, into: String::new() });
        }
    }
}

/// The target of that function, or the one into which it is folded.
fn stands_for(targets: &[Target], name: &str) -> Option<String> {
    let is_it =
        |other: &&Target| matches!(other.kind, TargetKind::Function | TargetKind::Inlined) && other.name == name;
    match targets.iter().find(is_it)? {
        Target { folded: None, name, .. } => Some(name.clone()),
        Target { folded: Some(Folded { into, .. }), .. } => Some(into.clone()).filter(|into| !into.is_empty()),
    }
}

/// The rule for a library's frame that does not depend on other targets.
fn alone(seen: &TargetSamples<'_>) -> Option<FoldReason> {
    let TargetSamples { item, callee, is_whole, .. } = seen;
    if item.is_own {
        return None;
    }
    let wraps = item.inner as f64 >= FOLD_WRAPPER_MIN * item.all as f64;
    if wraps {
        return Some(FoldReason::Wrapper);
    }
    // A line of a library is no target: the program's author does not change it.
    if matches!(item.key, CodeItemKey::Line(_)) || is_runtime(callee) || item.origin == Origin::System && item.inner > 0
    {
        return Some(FoldReason::Runtime);
    }
    is_whole.then_some(FoldReason::Whole)
}

#[cfg(test)]
mod tests;

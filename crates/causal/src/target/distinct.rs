//! Deduplication: of targets with nearly the same time, one is kept.
//!
//! A hot span, the function that opens it, that function's only callee, and so on down to the system call have equal
//! numbers, and each would be a row of the report.

use super::{Target, TargetKind};
use crate::constants::{DUPLICATE_APART_MAX, DUPLICATE_OVERLAP_MIN};

/// The part of a target's time that decides between it and its duplicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DuplicateRole {
    /// A span with a name that the program's author chose.
    Named,
    /// A function of the program that does most of its work itself, or in libraries.
    Hot,
    /// Any other target, and a span that a server named.
    Other,
}

/// The preference among duplicates, lower first: a span's name was chosen by the program's author. A server's spans
/// have the same names in any program, so the function that they contain is more specific.
fn rank(target: &Target, role: DuplicateRole) -> (u8, bool) {
    let kind = match (role, target.kind) {
        (DuplicateRole::Named, _) => 0,
        (DuplicateRole::Hot, _) => 1,
        (_, TargetKind::Span | TargetKind::Upstream) => 2,
        (_, TargetKind::Function) => 3,
        (_, TargetKind::Inlined) => 4,
        (_, TargetKind::Path) => 5,
        (_, TargetKind::Line) => 6,
    };
    (kind, is_foreign(&target.name))
}

/// Whether the name is from Rust's own libraries, or from common crates that run tasks or call the system.
fn is_foreign(name: &str) -> bool {
    ["std::", "core::", "alloc::", "tokio::", "rustix::", "libc::", "__", "[", "<"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether the function is part of the server, whose stages have spans.
pub(super) fn is_of_server(name: &str) -> bool {
    let package = super::fold::package(name);
    package == "causeway" || package == "tower_edge" || package.starts_with("causeway_")
}

/// Whether it is the profiler's own code, whose time is absent without a profile.
pub(super) fn is_ours(name: &str) -> bool {
    let modules = ["policy", "ledger", "clock", "kinds", "trace", "sample"];
    let rest = name.strip_prefix("causal::").or_else(|| in_crate(name, "crates/causal/src/", "causeway-causal/src/"));
    name.starts_with("progress::") && !name.contains("::tests::")
        || in_crate(name, "crates/progress/src/", "causeway-progress/src/").is_some()
        || rest.is_some_and(|rest| modules.iter().any(|module| rest.starts_with(module)) && !rest.contains("tests"))
}

/// Returns the part of a line's name after the crate's directory, which is `inside` the repository (this one, or a copy
/// of it that a program depends on) or that of the `published` package.
fn in_crate<'a>(name: &'a str, inside: &str, published: &str) -> Option<&'a str> {
    let in_repository = || name.split_once(inside).filter(|(before, _)| before.is_empty() || before.ends_with('/'));
    name.strip_prefix(published).or_else(|| Some(in_repository()?.1))
}

/// Keeps one of each group of duplicates, and every target for which `keep` returns true. `times` are the samples of
/// each kind.
pub(super) fn retain(
    targets: &mut Vec<Target>,
    times: &[f64],
    role: impl Fn(&Target) -> DuplicateRole,
    keep: impl Fn(&Target) -> bool,
) {
    // In order of preference: a target is dropped if a preferred duplicate was kept.
    targets.sort_by_cached_key(|target| (rank(target, role(target)), std::cmp::Reverse(target.samples)));
    let mut kept: Vec<Target> = Vec::new();
    for target in targets.drain(..) {
        let is_known = |other: &Target| is_same(other, &target, times);
        if keep(&target) || target.weights.calls.is_some() || !kept.iter().any(is_known) {
            kept.push(target);
        }
    }
    *targets = kept;
}

fn is_same(a: &Target, b: &Target, times: &[f64]) -> bool {
    let (mut apart, mut of_a, mut of_b, mut most) = (0.0, 0.0, 0.0, 0.0);
    for (kind, time) in (0..).zip(times) {
        let (in_a, in_b) = (a.weights.part(kind), b.weights.part(kind));
        apart += (in_a - in_b).abs() * time;
        of_a += in_a * time;
        of_b += in_b * time;
        // Both have more than half of this kind, so their times in it must overlap.
        if in_a > DUPLICATE_OVERLAP_MIN && in_b > DUPLICATE_OVERLAP_MIN {
            most += in_a.min(in_b) * time;
        }
    }
    let larger = f64::max(of_a, of_b);
    larger > 0.0 && apart <= DUPLICATE_APART_MAX * larger && most >= (1.0 - 2.0 * DUPLICATE_APART_MAX) * larger
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{KindShare, Weights};

    fn target(name: &str, kind: TargetKind, parts: &[f64]) -> Target {
        let parts = parts.iter().map(|&part| KindShare { part, error: 0.0 }).collect();
        Target {
            name: name.into(),
            kind,
            share: 0.5,
            samples: 10,
            weights: Weights { parts, calls: None },
            folded: None,
        }
    }

    /// Every span is the author's, and no function is hot.
    fn named(target: &Target) -> DuplicateRole {
        if target.kind == TargetKind::Span { DuplicateRole::Named } else { DuplicateRole::Other }
    }

    #[test]
    fn targets_with_the_same_time_have_one_name() {
        let times = [100.0, 100.0, 100.0];
        let mut targets = vec![
            target("core::call", TargetKind::Function, &[0.0, 0.97, 0.0]),
            target("app::send", TargetKind::Function, &[0.02, 0.98, 0.0]),
            target("write", TargetKind::Span, &[0.0, 1.0, 0.0]),
            target("app::left", TargetKind::Function, &[0.5, 0.0, 0.0]),
            target("app::right", TargetKind::Function, &[0.5, 0.0, 0.0]),
            target("app::all", TargetKind::Function, &[1.0, 1.0, 1.0]),
            target("src/app.rs:7", TargetKind::Line, &[0.98, 1.0, 1.0]),
        ];
        retain(&mut targets, &times, named, |_| false);
        let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
        // Two halves of a kind of work may be two different things.
        assert_eq!(names, ["write", "app::left", "app::right", "app::all"]);
    }

    /// Every server has the span `route`, and a faster router would not help: the function that the handler calls is
    /// hot. Its callers, and the server's functions around it, have the same time.
    #[test]
    fn the_hot_function_wins_over_the_spans_of_a_server() {
        let targets = || {
            vec![
                target("causeway_engine::drive::turn", TargetKind::Function, &[1.0, 1.0]),
                target("route", TargetKind::Span, &[0.0, 1.0]),
                target("app::handler", TargetKind::Function, &[0.0, 0.97]),
                target("app::hot", TargetKind::Inlined, &[0.0, 0.96]),
            ]
        };
        let kept = |role: fn(&Target) -> DuplicateRole| -> Vec<String> {
            let mut targets = targets();
            retain(&mut targets, &[2.0, 100.0], role, |_| false);
            targets.into_iter().map(|target| target.name).collect()
        };
        let of_server = |target: &Target| match &*target.name {
            "app::hot" => DuplicateRole::Hot,
            _ => DuplicateRole::Other,
        };
        assert_eq!(kept(of_server), ["app::hot"]);
        assert_eq!(kept(named), ["route"], "a span of the program's author");
        assert!(is_of_server("causeway_engine::drive::turn") && is_of_server("<causeway::Run as Future>::poll"));
        assert!(!is_of_server("app::hot") && !is_of_server("causewayish::hot"));
    }

    #[test]
    fn requested_targets_are_kept() {
        let mut targets =
            vec![target("write", TargetKind::Span, &[1.0]), target("app::send", TargetKind::Function, &[1.0])];
        retain(&mut targets, &[1.0], named, |target| target.name == "app::send");
        assert_eq!(targets.len(), 2);
    }

    #[test]
    fn the_time_of_the_profiler_is_no_target() {
        assert!(is_ours("causal::policy::Recorder::set_kind"));
        assert!(is_ours("progress::hooks::call_policy"));
        assert!(is_ours("crates/causal/src/policy.rs:320"));
        assert!(is_ours("causeway/crates/causal/src/policy.rs:320"), "a dependency from git");
        assert!(is_ours("causeway-causal/src/ledger.rs:20"), "a dependency from an archive");
        assert!(is_ours("causeway-progress/src/hooks.rs:20") && is_ours("causeway/crates/progress/src/hooks.rs:20"));
        assert!(!is_ours("causeway-causal/src/replay.rs:20") && !is_ours("mycrates/causal/src/policy.rs:1"));
        assert!(!is_ours("causeway_engine::drive::turn"));
        assert!(!is_ours("causal::target::tests::busy"));
    }
}

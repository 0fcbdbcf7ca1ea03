//! Of targets that are nearly the same time, one.
//!
//! A hot span is also the function that opens it, the one that this calls for all it does, and so on down to the system call. Each would be
//! a line of the report, with the same numbers.

use super::{Target, TargetKind};

/// Two are one when so small a part of the larger one's time is not the other's too.
const APART: f64 = 0.12;
/// They are surely the same time, and not two halves of it, where each has more than this part of a kind of work.
const MOST: f64 = 0.6;

/// What other names for the same time are worth: a span was named by somebody who meant it.
fn rank(target: &Target) -> (u8, bool) {
    let kind = match target.kind {
        TargetKind::Span | TargetKind::Upstream => 0,
        TargetKind::Function => 1,
        TargetKind::Inlined => 2,
        TargetKind::Path => 3,
        TargetKind::Line => 4,
    };
    (kind, is_foreign(&target.name))
}

/// Whether the name is one of Rust's own libraries', or of those that everybody uses to run tasks and to call the system.
fn is_foreign(name: &str) -> bool {
    ["std::", "core::", "alloc::", "tokio::", "rustix::", "libc::", "__", "[", "<"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Whether it is the profiler's own time, which is gone when nobody measures.
pub(super) fn is_ours(name: &str) -> bool {
    let rooms = ["policy", "ledger", "clock", "kinds", "trace", "sample"];
    let rest = name.strip_prefix("causal::").or_else(|| name.strip_prefix("crates/causal/src/"));
    name.starts_with("progress::") && !name.contains("::tests::")
        || name.starts_with("crates/progress/src/")
        || rest.is_some_and(|rest| rooms.iter().any(|room| rest.starts_with(room)) && !rest.contains("tests"))
}

/// Keeps one of each group of targets that are nearly the same time, and those that `keep` says. `times` are the samples of each kind.
pub(super) fn retain(targets: &mut Vec<Target>, times: &[f64], keep: impl Fn(&Target) -> bool) {
    targets.sort_by(|a, b| rank(a).cmp(&rank(b)).then(b.share.total_cmp(&a.share)));
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
        if in_a > MOST && in_b > MOST {
            most += in_a.min(in_b) * time;
        }
    }
    let larger = f64::max(of_a, of_b);
    larger > 0.0 && apart <= APART * larger && most >= (1.0 - 2.0 * APART) * larger
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Part, Weights};

    fn target(name: &str, kind: TargetKind, parts: &[f64]) -> Target {
        let parts = parts.iter().map(|&part| Part { part, error: 0.0 }).collect();
        Target { name: name.into(), kind, share: 0.5, samples: 10, weights: Weights { parts, calls: None } }
    }

    #[test]
    fn one_name_for_the_same_time() {
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
        retain(&mut targets, &times, |_| false);
        let names: Vec<_> = targets.iter().map(|target| target.name.as_str()).collect();
        // Two halves of a kind of work may well be two things.
        assert_eq!(names, ["write", "app::left", "app::right", "app::all"]);
    }

    #[test]
    fn what_was_asked_for_stays() {
        let mut targets =
            vec![target("write", TargetKind::Span, &[1.0]), target("app::send", TargetKind::Function, &[1.0])];
        retain(&mut targets, &[1.0], |target| target.name == "app::send");
        assert_eq!(targets.len(), 2);
    }

    #[test]
    fn the_profiler_s_own_time_is_no_target() {
        assert!(is_ours("causal::policy::Recorder::set_kind"));
        assert!(is_ours("progress::hooks::ask"));
        assert!(is_ours("crates/causal/src/policy.rs:320"));
        assert!(!is_ours("causeway_engine::drive::turn"));
        assert!(!is_ours("causal::target::tests::busy"));
    }
}

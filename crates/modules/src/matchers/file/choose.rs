//! Selects a candidate by the policy. One implementation serves both sources: the worker's cache and the file system.

use causeway_message::StatusCode;

use super::FileMatcherPlan;
use super::candidate::{Candidate, CandidateForm, FilePattern};
use super::disk::{FileLookup, Stat};

/// An entry of `try_files`.
pub(super) enum Try {
    File(FilePattern),
    /// The request fails with this status.
    Status(StatusCode),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TryPolicy {
    First,
    /// As `First`, but the last entry matches even if it does not exist.
    FirstOrLast,
    Largest,
    Smallest,
    Newest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// The selected candidate, whose text is in the buffer, and whether it is a directory.
    Chosen(Candidate, bool),
    /// No candidate exists.
    None,
    Failed(StatusCode),
    /// The source lacks a result that the choice needs.
    Unknown,
}

/// A source of candidates and of their lookup results.
pub(super) trait CandidateSource {
    /// Expands a pattern to a candidate and replaces `text` by it.
    fn candidate(
        &mut self,
        pattern: &FilePattern,
        number: usize,
        form: CandidateForm,
        text: &mut Vec<u8>,
    ) -> Option<Candidate>;

    /// Passes the lookup result to `look`. Returns false if the source does not have it.
    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&FileLookup)) -> bool;
}

/// Selects a candidate and leaves its path in `text`. `other` is a work buffer.
pub(super) fn choose(
    plan: &FileMatcherPlan,
    source: &mut dyn CandidateSource,
    text: &mut Vec<u8>,
    other: &mut Vec<u8>,
) -> Choice {
    match plan.policy {
        TryPolicy::First | TryPolicy::FirstOrLast => first(plan, source, text, other),
        TryPolicy::Largest => best(plan, source, text, other, |a, b| a.len > b.len),
        TryPolicy::Smallest => best(plan, source, text, other, |a, b| a.len < b.len),
        TryPolicy::Newest => best(plan, source, text, other, |a, b| a.modified > b.modified),
    }
}

fn first(plan: &FileMatcherPlan, source: &mut dyn CandidateSource, text: &mut Vec<u8>, other: &mut Vec<u8>) -> Choice {
    for (number, entry) in plan.tries.iter().enumerate() {
        let pattern = match entry {
            Try::Status(status) => return Choice::Failed(*status),
            Try::File(pattern) => pattern,
        };
        let is_last = plan.policy == TryPolicy::FirstOrLast && number == plan.tries.len() - 1;
        if let Some(candidate) = source.candidate(pattern, number, CandidateForm::Tried, text) {
            if is_last && !candidate.is_glob {
                return Choice::Chosen(candidate, false);
            }
            // The closure sees the result only while the cache is borrowed: copy the hit to `other`.
            let mut hit = None;
            let is_known = source.find(candidate, text, &mut |found| {
                // Caddy: a path with a trailing slash must be a directory, any other path must not.
                let fits = |(path, stat): &(&[u8], Stat)| is_last || path.ends_with(b"/") == stat.is_directory;
                if let Some((path, stat)) = found.iter(candidate.path(text)).find(fits) {
                    hit = Some((keep(candidate, path, text, other), stat.is_directory && !is_last));
                }
            });
            if !is_known {
                return Choice::Unknown;
            }
            if let Some((candidate, is_directory)) = hit {
                std::mem::swap(text, other);
                return Choice::Chosen(candidate, is_directory);
            }
        }
        if is_last && let Some(candidate) = source.candidate(pattern, number, CandidateForm::Literal, text) {
            return Choice::Chosen(candidate, false);
        }
    }
    Choice::None
}

/// Selects the best entry, the earliest among equals. Directories count too.
fn best(
    plan: &FileMatcherPlan,
    source: &mut dyn CandidateSource,
    text: &mut Vec<u8>,
    other: &mut Vec<u8>,
    is_better: fn(&Stat, &Stat) -> bool,
) -> Choice {
    let mut best: Option<(Candidate, Stat)> = None;
    for (number, entry) in plan.tries.iter().enumerate() {
        // Status entries have a meaning only for the policies that try in order.
        let Try::File(pattern) = entry else { continue };
        let Some(candidate) = source.candidate(pattern, number, CandidateForm::Tried, text) else { continue };
        let is_known = source.find(candidate, text, &mut |found| {
            for (path, stat) in found.iter(candidate.path(text)) {
                // Strictly better: the earliest wins among equals.
                if best.is_none_or(|(_, best)| is_better(&stat, &best)) {
                    best = Some((keep(candidate, path, text, other), stat));
                }
            }
        });
        if !is_known {
            return Choice::Unknown;
        }
    }
    std::mem::swap(text, other);
    best.map_or(Choice::None, |(candidate, stat)| Choice::Chosen(candidate, stat.is_directory))
}

/// Copies a found path and the candidate's remainder to `other`.
fn keep(candidate: Candidate, path: &[u8], text: &[u8], other: &mut Vec<u8>) -> Candidate {
    other.clear();
    other.extend_from_slice(path);
    other.extend_from_slice(candidate.remainder(text));
    Candidate { root: candidate.root, end: path.len(), is_glob: false }
}

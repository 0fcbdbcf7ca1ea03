//! Which of the candidates it is, by the policy. Written once for what a worker remembers and for the file system itself.

use causeway_message::StatusCode;

use super::Plan;
use super::candidate::{Candidate, Form, Pattern};
use super::disk::{Found, Stat};

/// An entry of `try_files`.
pub(super) enum Try {
    File(Pattern),
    /// The request fails here.
    Status(StatusCode),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Policy {
    First,
    /// The last entry matches whether it is there or not.
    FirstOrLast,
    Largest,
    Smallest,
    Newest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// This one, whose parts are in the text; and whether it is a folder.
    Chosen(Candidate, bool),
    None,
    Failed(StatusCode),
    /// The source does not know all that is needed.
    Unknown,
}

/// Where candidates and what is found of them come from.
pub(super) trait Source {
    /// Makes the candidate of a pattern in `text`, in place of what is there.
    fn candidate(&mut self, pattern: &Pattern, number: usize, form: Form, text: &mut Vec<u8>) -> Option<Candidate>;

    /// Shows what is there; false when that is not known.
    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&Found)) -> bool;
}

/// Chooses; the chosen path is left in `text`. `other` is room to work in.
pub(super) fn choose(plan: &Plan, source: &mut dyn Source, text: &mut Vec<u8>, other: &mut Vec<u8>) -> Answer {
    match plan.policy {
        Policy::First | Policy::FirstOrLast => first(plan, source, text, other),
        Policy::Largest => best(plan, source, text, other, |a, b| a.len > b.len),
        Policy::Smallest => best(plan, source, text, other, |a, b| a.len < b.len),
        Policy::Newest => best(plan, source, text, other, |a, b| a.modified > b.modified),
    }
}

fn first(plan: &Plan, source: &mut dyn Source, text: &mut Vec<u8>, other: &mut Vec<u8>) -> Answer {
    for (number, entry) in plan.tries.iter().enumerate() {
        let pattern = match entry {
            Try::Status(status) => return Answer::Failed(*status),
            Try::File(pattern) => pattern,
        };
        let is_last = plan.policy == Policy::FirstOrLast && number == plan.tries.len() - 1;
        if let Some(candidate) = source.candidate(pattern, number, Form::Tried, text) {
            if is_last && !candidate.is_glob {
                return Answer::Chosen(candidate, false);
            }
            let mut hit = None;
            let is_known = source.find(candidate, text, &mut |found| {
                // Caddy: a path that ends with a slash must be a folder, another one must not.
                let fits = |(path, stat): &(&[u8], Stat)| is_last || path.ends_with(b"/") == stat.is_folder;
                if let Some((path, stat)) = found.iter(candidate.path(text)).find(fits) {
                    hit = Some((keep(candidate, path, text, other), stat.is_folder && !is_last));
                }
            });
            if !is_known {
                return Answer::Unknown;
            }
            if let Some((candidate, is_folder)) = hit {
                std::mem::swap(text, other);
                return Answer::Chosen(candidate, is_folder);
            }
        }
        if is_last && let Some(candidate) = source.candidate(pattern, number, Form::Literal, text) {
            return Answer::Chosen(candidate, false);
        }
    }
    Answer::None
}

/// The first of those than which none is better; folders count too.
fn best(
    plan: &Plan,
    source: &mut dyn Source,
    text: &mut Vec<u8>,
    other: &mut Vec<u8>,
    is_better: fn(&Stat, &Stat) -> bool,
) -> Answer {
    let mut best: Option<(Candidate, Stat)> = None;
    for (number, entry) in plan.tries.iter().enumerate() {
        let Try::File(pattern) = entry else { continue };
        let Some(candidate) = source.candidate(pattern, number, Form::Tried, text) else { continue };
        let is_known = source.find(candidate, text, &mut |found| {
            for (path, stat) in found.iter(candidate.path(text)) {
                if best.is_none_or(|(_, best)| is_better(&stat, &best)) {
                    best = Some((keep(candidate, path, text, other), stat));
                }
            }
        });
        if !is_known {
            return Answer::Unknown;
        }
    }
    std::mem::swap(text, other);
    best.map_or(Answer::None, |(candidate, stat)| Answer::Chosen(candidate, stat.is_folder))
}

/// Copies what was found for a candidate, with what was split off, to `other`.
fn keep(candidate: Candidate, path: &[u8], text: &[u8], other: &mut Vec<u8>) -> Candidate {
    other.clear();
    other.extend_from_slice(path);
    other.extend_from_slice(candidate.remainder(text));
    Candidate { root: candidate.root, end: path.len(), is_glob: false }
}

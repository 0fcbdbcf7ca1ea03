//! What is asked of the file system; what blocks here runs on the blocking pool.

use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt as _;

use std::time::SystemTime;

use causeway_pipeline::Context;

use super::Plan;
use super::candidate::{self, Candidate, Form, Pattern, has_wildcard};
use super::choose::{Source, Try};
use crate::file_server::of_octets;
use crate::fresh::{Cost, Costly};
use crate::glob::{Space, glob};

/// Files that a pattern stands for at most, in the order of their names; more are left out.
const MATCHES_MAX: usize = 1000;
/// Names that are compared with a pattern at most.
const NAMES_MAX: usize = 100_000;

/// What the file system says of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) is_folder: bool,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { is_folder: metadata.is_dir(), len: metadata.len(), modified }
    }
}

/// What is there for a candidate.
pub(super) enum Found {
    Nothing,
    /// At the candidate's own path.
    One(Stat),
    /// What its wildcards match.
    Several(Box<[(Box<[u8]>, Stat)]>),
}

impl Found {
    /// Paths with what is there; `own` is the candidate's.
    pub(super) fn iter<'f>(&'f self, own: &'f [u8]) -> impl Iterator<Item = (&'f [u8], Stat)> {
        let (one, several) = match self {
            Self::Nothing => (None, &[][..]),
            Self::One(stat) => (Some((own, *stat)), &[][..]),
            Self::Several(several) => (None, &**several),
        };
        one.into_iter().chain(several.iter().map(|(path, stat)| (&**path, *stat)))
    }
}

impl Costly for Found {
    fn cost(&self) -> Cost {
        let octets = match self {
            Self::Nothing | Self::One(_) => 0,
            Self::Several(several) => several.iter().map(|(path, _)| path.len() + size_of::<(Box<[u8]>, Stat)>()).sum(),
        };
        Cost { octets, open: 0 }
    }
}

type Put = Option<(Vec<u8>, Candidate)>;

/// The file system, for the candidates of one request.
pub(super) struct Disk {
    /// For each entry, as it is tried and as it is taken at last.
    candidates: Vec<(Put, Put)>,
    /// What was found, by the key under which it is to be remembered.
    pub(super) seen: Vec<(Vec<u8>, Found)>,
}

impl Disk {
    /// On the worker: renders all that may be asked for.
    pub(super) fn of(plan: &Plan, cx: &mut Context) -> Self {
        let mut put = |pattern: &Pattern, form: Form| {
            let mut text = Vec::new();
            candidate::put(plan, pattern, form, cx, &mut text).map(|candidate| (text, candidate))
        };
        let candidates = plan.tries.iter().map(|entry| match entry {
            Try::File(pattern) => (put(pattern, Form::Tried), put(pattern, Form::Literal)),
            Try::Status(_) => (None, None),
        });
        Self { candidates: candidates.collect(), seen: Vec::new() }
    }

    /// All that is asked for.
    pub(super) fn key(&self) -> Vec<u8> {
        let mut key = Vec::new();
        for put in self.candidates.iter().flat_map(|(tried, literal)| [tried, literal]) {
            key.push(u8::from(put.is_some()));
            let Some((text, candidate)) = put else { continue };
            for number in [text.len(), candidate.root, candidate.end] {
                key.extend_from_slice(&number.to_be_bytes());
            }
            key.extend_from_slice(text);
        }
        key
    }
}

impl Source for Disk {
    fn candidate(&mut self, _pattern: &Pattern, number: usize, form: Form, text: &mut Vec<u8>) -> Option<Candidate> {
        let (tried, literal) = &self.candidates[number];
        let (octets, candidate) = if form == Form::Tried { tried } else { literal }.as_ref()?;
        text.clone_from(octets);
        Some(*candidate)
    }

    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&Found)) -> bool {
        let path = candidate.path(text);
        let found = if path.contains(&0) {
            Found::Nothing
        } else if candidate.is_glob {
            Found::Several(expand(&path[..candidate.root], &path[candidate.root..]))
        } else {
            stat(path).map_or(Found::Nothing, Found::One)
        };
        look(&found);
        let mut key = Vec::new();
        candidate.key(text, &mut key);
        self.seen.push((key, found));
        true
    }
}

/// Caddy: whatever the reason is, what cannot be looked at is not there.
fn stat(path: &[u8]) -> Option<Stat> {
    fs::metadata(of_octets(path)).ok().map(|metadata| Stat::of(&metadata))
}

/// What a pattern with wildcards matches below the root, in the order of the names (Go's `filepath.Glob`). DEVIATES from it where
/// the pattern ends with a slash: Go then finds nothing, here folders.
fn expand(root: &[u8], pattern: &[u8]) -> Box<[(Box<[u8]>, Stat)]> {
    let wants_folder = pattern.ends_with(b"/");
    let mut paths = vec![root.to_vec()];
    let mut names_left = NAMES_MAX;
    for component in pattern.split(|&octet| octet == b'/').filter(|component| !component.is_empty()) {
        if !has_wildcard(component) {
            let mut octets = component.iter();
            let mut plain = vec![b'/'];
            while let Some(&octet) = octets.next() {
                plain.push(if octet == b'\\' { octets.next().copied().unwrap_or(octet) } else { octet });
            }
            paths.iter_mut().for_each(|path| path.extend_from_slice(&plain));
            continue;
        }
        let mut next = Vec::new();
        for mut folder in paths {
            folder.push(b'/');
            let mut names: Vec<_> = fs::read_dir(of_octets(&folder))
                .into_iter()
                .flatten()
                .take(names_left)
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            names_left -= names.len();
            names.retain(|name| glob(component, name.as_bytes(), Space::Plain));
            names.sort_unstable();
            next.extend(names.iter().map(|name| [&folder, name.as_bytes()].concat()));
        }
        next.truncate(MATCHES_MAX);
        paths = next;
    }
    let found = paths.into_iter().filter_map(|mut path| {
        let stat = stat(&path)?;
        if wants_folder {
            if !stat.is_folder {
                return None;
            }
            path.push(b'/');
        }
        Some((path.into_boxed_slice(), stat))
    });
    found.collect()
}

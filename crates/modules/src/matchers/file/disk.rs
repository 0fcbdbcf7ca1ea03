//! File system access; everything that blocks runs on the file thread pool.

use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;

use std::time::SystemTime;

use causeway_pipeline::{Context, LogLimit};

use super::FileMatcherPlan;
use super::candidate::{self, Candidate, CandidateForm, FilePattern, has_wildcard};
use super::choose::{CandidateSource, Try};
use crate::file_server::of_bytes;
use crate::fresh::{Cost, Costly};
use crate::glob::{Space, glob};

/// Most files that a glob expands to, in the order of their names; further ones are ignored.
const MATCHES_MAX: usize = 1000;
/// Most directory entries that one glob reads.
const NAMES_MAX: usize = 100_000;

/// The metadata of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) is_directory: bool,
    pub(super) len: u64,
    pub(super) modified: SystemTime,
}

impl Stat {
    fn of(metadata: &Metadata) -> Self {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Self { is_directory: metadata.is_dir(), len: metadata.len(), modified }
    }
}

/// The lookup result for a candidate.
pub(super) enum FileLookup {
    /// Does not exist, or is not accessible.
    Nothing,
    /// The candidate's own path exists.
    One(Stat),
    /// The paths that match the candidate's wildcards.
    Several(Box<[(Box<[u8]>, Stat)]>),
}

impl FileLookup {
    /// Iterates over the found paths and their metadata; `own` is the candidate's own path.
    pub(super) fn iter<'f>(&'f self, own: &'f [u8]) -> impl Iterator<Item = (&'f [u8], Stat)> {
        let (one, several) = match self {
            Self::Nothing => (None, &[][..]),
            Self::One(stat) => (Some((own, *stat)), &[][..]),
            Self::Several(several) => (None, &**several),
        };
        one.into_iter().chain(several.iter().map(|(path, stat)| (&**path, *stat)))
    }
}

impl Costly for FileLookup {
    fn cost(&self) -> Cost {
        let bytes = match self {
            Self::Nothing | Self::One(_) => 0,
            Self::Several(several) => several.iter().map(|(path, _)| path.len() + size_of::<(Box<[u8]>, Stat)>()).sum(),
        };
        Cost { bytes, open: 0 }
    }
}

type Put = Option<(Vec<u8>, Candidate)>;

/// The file system as a source, for the candidates of one request.
pub(super) struct Disk {
    /// For each entry, its two expansions: to be looked up, and as a literal.
    candidates: Vec<(Put, Put)>,
    /// The results with their cache keys.
    pub(super) seen: Vec<(Vec<u8>, FileLookup)>,
}

impl Disk {
    /// Runs on the worker: expands every candidate that the job may need, since the job has no access to the request.
    pub(super) fn of(plan: &FileMatcherPlan, cx: &mut Context) -> Self {
        let mut put = |pattern: &FilePattern, form: CandidateForm| {
            let mut text = Vec::new();
            candidate::put(plan, pattern, form, cx, &mut text).map(|candidate| (text, candidate))
        };
        let candidates = plan.tries.iter().map(|entry| match entry {
            Try::File(pattern) => (put(pattern, CandidateForm::Tried), put(pattern, CandidateForm::Literal)),
            Try::Status(_) => (None, None),
        });
        Self { candidates: candidates.collect(), seen: Vec::new() }
    }

    /// Returns a key that identifies all candidates, to share one lookup among equal requests.
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

impl CandidateSource for Disk {
    fn candidate(
        &mut self,
        _pattern: &FilePattern,
        number: usize,
        form: CandidateForm,
        text: &mut Vec<u8>,
    ) -> Option<Candidate> {
        let (tried, literal) = &self.candidates[number];
        let (bytes, candidate) = if form == CandidateForm::Tried { tried } else { literal }.as_ref()?;
        text.clone_from(bytes);
        Some(*candidate)
    }

    fn find(&mut self, candidate: Candidate, text: &[u8], look: &mut dyn FnMut(&FileLookup)) -> bool {
        let path = candidate.path(text);
        // No file name contains a zero byte.
        let found = if path.contains(&0) {
            FileLookup::Nothing
        } else if candidate.is_glob {
            FileLookup::Several(expand(&path[..candidate.root], &path[candidate.root..]))
        } else {
            stat(path).map_or(FileLookup::Nothing, FileLookup::One)
        };
        look(&found);
        let mut key = Vec::new();
        candidate.key(text, &mut key);
        self.seen.push((key, found));
        true
    }
}

/// Reads a path's metadata. As in Caddy, every error counts as absence. Missing permission is logged for the operator.
fn stat(path: &[u8]) -> Option<Stat> {
    static FORBIDDEN: LogLimit = LogLimit::new();
    let path = of_bytes(path);
    match fs::metadata(path) {
        Ok(metadata) => Some(Stat::of(&metadata)),
        Err(error) => {
            if error.kind() == ErrorKind::PermissionDenied
                && let Some(suppressed) = FORBIDDEN.admit()
            {
                tracing::warn!(?path, %error, suppressed, "treating a file as missing: no permission to access it");
            }
            None
        }
    }
}

/// Expands a pattern with wildcards below the root, sorted by name (Go's `filepath.Glob`). DEVIATES from it if the
/// pattern ends with a slash: Go then finds no path, this function finds directories.
fn expand(root: &[u8], pattern: &[u8]) -> Box<[(Box<[u8]>, Stat)]> {
    let wants_directory = pattern.ends_with(b"/");
    let mut paths = vec![root.to_vec()];
    let mut names_left = NAMES_MAX;
    for component in pattern.split(|&byte| byte == b'/').filter(|component| !component.is_empty()) {
        // Without a wildcard no directory needs to be read: append the unescaped name.
        if !has_wildcard(component) {
            let mut bytes = component.iter();
            let mut plain = vec![b'/'];
            while let Some(&byte) = bytes.next() {
                plain.push(if byte == b'\\' { bytes.next().copied().unwrap_or(byte) } else { byte });
            }
            paths.iter_mut().for_each(|path| path.extend_from_slice(&plain));
            continue;
        }
        let mut next = Vec::new();
        for mut directory in paths {
            directory.push(b'/');
            let mut names: Vec<_> = fs::read_dir(of_bytes(&directory))
                .into_iter()
                .flatten()
                // The limit counts all entries read, not only matches: it bounds the time of the job.
                .take(names_left)
                .flatten()
                .map(|entry| entry.file_name())
                .collect();
            names_left -= names.len();
            names.retain(|name| glob(component, name.as_bytes(), Space::Plain));
            names.sort_unstable();
            next.extend(names.iter().map(|name| [&directory, name.as_bytes()].concat()));
        }
        next.truncate(MATCHES_MAX);
        paths = next;
    }
    let found = paths.into_iter().filter_map(|mut path| {
        let stat = stat(&path)?;
        if wants_directory {
            if !stat.is_directory {
                return None;
            }
            path.push(b'/');
        }
        Some((path.into_boxed_slice(), stat))
    });
    found.collect()
}

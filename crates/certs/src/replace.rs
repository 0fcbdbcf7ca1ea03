//! Atomic replacement of whole files.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Whether the new content must survive a power failure. Leaf certificates need not, because they can be signed again
/// at once: thousands of signatures take the time of a few disk flushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// `replace` flushes the content to disk before it returns.
    Flushed,
    /// The kernel writes the content back at a time of its choice.
    Unflushed,
}

/// Minimum age of a temporary file before it is removed as the leftover of a killed process. No replacement takes this
/// long.
const LEFT_AFTER: Duration = Duration::from_secs(3600);
/// How often a replacement creates its directory, if another process removes it meanwhile.
const DIRECTORY_TRIES: usize = 256;
/// Suffix of the temporary files.
const SUFFIX: &str = ".new";

/// Directories with more entries are searched for such files once per [`LEFT_AFTER`]: otherwise each of thousands of
/// values in one directory would read the names of all others.
const SEARCHED_ALWAYS_MAX: usize = 256;

/// Replaces a file atomically: a reader sees either the old content or the new. The file has mode 0600; missing parent
/// directories are created with mode 0700. Also removes the temporary files in its directory that a killed process left
/// more than an hour ago; from a large directory only one call in an hour does.
///
/// # Errors
/// Fails if the directory cannot be created or written to, or the disk is full. The old file is then unchanged.
pub fn replace(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    let (Some(directory), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidFilename.into());
    };
    let begun = || {
        make_directory(directory)?;
        remove_left(directory, Instant::now());
        fresh_file(path)
    };
    // Another process may remove the directory, which it has found empty, before the new file is in it. `AlreadyExists`
    // is the error of a directory that disappears while it is created.
    let has_gone = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists);
    let mut tries = 1;
    let (fresh, mut file) = loop {
        match begun() {
            Err(error) if has_gone(&error) && tries < DIRECTORY_TRIES => tries += 1,
            begun => break begun?,
        }
    };
    let written = file.write_all(content).and_then(|()| {
        if durability == Durability::Unflushed {
            return fs::rename(&fresh, path);
        }
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        // The rename is durable only once the directory itself is on disk.
        File::open(directory)?.sync_all()
    });
    if written.is_err() {
        let _ = fs::remove_file(&fresh);
    }
    written
}

/// Creates a temporary file next to `path`.
fn fresh_file(path: &Path) -> io::Result<(PathBuf, File)> {
    // The name is random, not the process number: processes in separate containers can have equal numbers.
    let fresh = path.with_added_extension(format!("{:016x}{SUFFIX}", RandomState::new().hash_one(0)));
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
    Ok((fresh, file))
}

pub(crate) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Whether a file is the temporary file of a replacement, in progress or left by a killed process.
pub(crate) fn is_temporary(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    let stem = name.strip_suffix(SUFFIX.as_bytes());
    let random = stem.and_then(|stem| stem.rsplit(|byte| *byte == b'.').next());
    random.is_some_and(|random| random.len() == 16 && random.iter().all(u8::is_ascii_hexdigit))
}

/// Removes old temporary files. Errors are ignored: such a file does not affect a later replacement.
fn remove_left(directory: &Path, now: Instant) {
    /// The large directories, each with the time of its last search.
    static SEARCHED: LazyLock<Mutex<HashMap<PathBuf, Instant>>> = LazyLock::new(Mutex::default);
    // Ignores poisoning: every change is one insertion.
    let searched = || SEARCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if searched().get(directory).is_some_and(|at| now.saturating_duration_since(*at) < LEFT_AFTER) {
        return;
    }
    let is_old = |at: SystemTime| at.elapsed().is_ok_and(|age| age > LEFT_AFTER);
    let mut count = 0;
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        count += 1;
        let path = entry.path();
        if is_temporary(&path) && entry.metadata().and_then(|metadata| metadata.modified()).is_ok_and(is_old) {
            let _ = fs::remove_file(path);
        }
    }
    if count > SEARCHED_ALWAYS_MAX {
        searched().insert(directory.to_owned(), now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Directory;

    // A process killed during a replacement leaves the old file whole and a partial temporary file next to it. The
    // temporary file does not stop the next replacement, regardless of its process number, and is removed later.
    #[test]
    fn files_of_a_killed_process_are_removed() {
        let directory = Directory::new();
        let path = directory.path("a.key");
        replace(&path, b"old", Durability::Flushed).unwrap();
        let left = |name: &str, age: Duration| {
            let file = File::create(directory.path(name)).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let day = Duration::from_secs(86_400);
        for name in ["a.key.0123456789abcdef.new", "b.key.0123456789abcdef.new", "a.key.txt.new", "a.key.new", "x.new"]
        {
            left(name, day);
        }
        left("a.key.00000000deadbeef.new", Duration::ZERO);
        replace(&path, b"new", Durability::Unflushed).unwrap();
        let mut names: Vec<_> = fs::read_dir(directory.path(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        // Unrelated files, and recent temporary files (possibly in use by another process) remain.
        let want = ["a.key", "a.key.00000000deadbeef.new", "a.key.new", "a.key.txt.new", "x.new"];
        assert_eq!((names, fs::read(&path).unwrap()), (want.map(str::to_owned).to_vec(), b"new".to_vec()));
    }

    // Thousands of values in one directory, such as OCSP responses: the time to write one must not depend on the number
    // of the others. Such a directory is searched once in an hour, so that a process that runs for months removes the
    // files that others have left meanwhile.
    #[test]
    fn a_large_directory_is_searched_once_in_an_hour() {
        let directory = Directory::new();
        for number in 0..SEARCHED_ALWAYS_MAX {
            File::create(directory.path(&number.to_string())).unwrap();
        }
        let left = directory.path("b.0123456789abcdef.new");
        let is_left_after = |search: &dyn Fn()| {
            File::create(&left).unwrap().set_modified(SystemTime::now() - Duration::from_secs(86_400)).unwrap();
            search();
            left.exists()
        };
        let replace = || replace(&directory.path("a"), b"new", Durability::Unflushed).unwrap();
        assert_eq!((is_left_after(&replace), is_left_after(&replace)), (false, true));
        let later = Instant::now() + LEFT_AFTER;
        assert!(!is_left_after(&|| remove_left(&directory.path(""), later)));
    }
}

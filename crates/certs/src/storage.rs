//! A folder of keys and values, laid out as Caddy's `file_system` storage is, so that either server finds what the other kept.
//!
//! - `lock`: one process at a time

mod lock;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) use lock::Lock;

use super::Error;

/// Values by keys such as `pki/authorities/local/root.crt`; nobody but the process's user may read them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStorage {
    root: PathBuf,
}

/// Whether a value must be there after a power cut. What can be made again at once need not: thousands of leaves are signed in the
/// time that the disk takes for some.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lasting {
    Yes,
    No,
}

impl FileStorage {
    /// In this folder, which is made when it is first written to.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a key's value is.
    pub fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// A value; `None` where there is none.
    pub(crate) fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path(key);
        match fs::read(&path) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Read(path, error)),
        }
    }

    /// Replaces a value as a whole: a reader sees the old one or the new one; after a power cut too where it must last.
    pub(crate) fn store(&self, key: &str, value: &[u8], lasting: Lasting) -> Result<(), Error> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let path = self.path(key);
        let failed = |error| Error::Write(path.clone(), error);
        let folder = path.parent().unwrap_or(&self.root);
        make_folder(folder).map_err(failed)?;
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let fresh = path.with_added_extension(format!("{}-{number}.new", std::process::id()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh).and_then(|mut file| {
            file.write_all(value)?;
            if lasting == Lasting::No {
                return fs::rename(&fresh, &path);
            }
            file.sync_all()?;
            fs::rename(&fresh, &path)?;
            File::open(folder)?.sync_all()
        });
        if written.is_err() {
            // What is half written is of no use to anybody.
            let _ = fs::remove_file(&fresh);
        }
        written.map_err(failed)
    }

    /// Waits until no other process, and no other thread, holds this name.
    pub(crate) fn lock(&self, name: &str) -> Result<Lock, Error> {
        let folder = self.root.join("locks");
        make_folder(&folder).map_err(|error| Error::Write(folder.clone(), error))?;
        Lock::wait(folder.join(format!("{}.lock", safe(name))))
    }
}

fn make_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A name as one component of a key, as Caddy writes it: `*.a.example` is `wildcard_.a.example`.
pub(crate) fn safe(name: &str) -> String {
    let name = name.trim().to_lowercase();
    let name = name.replace(' ', "_").replace('+', "_plus_").replace('*', "wildcard_").replace(':', "-");
    let mut name = name;
    name.retain(|char| char.is_ascii_alphanumeric() || matches!(char, '_' | '@' | '.' | '-'));
    // Two dots would lead up, also those that stood apart before.
    name.replace("..", "")
}

#[cfg(test)]
mod tests;

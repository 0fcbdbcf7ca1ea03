//! Storage in a directory of files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use super::lock::FileLock;
use super::{HeldLock, Lock, Storage, safe_key};
use crate::Error;
use crate::replace::{Durability, is_temporary, make_directory, replace};

/// The directory of locks, next to the values' directories.
const LOCKS: &str = "locks";
/// Deepest nesting of directories that [`Storage::list`] reads. It also ends a cycle of symbolic links.
const DEPTH_MAX: usize = 16;

/// A directory in which each key is a path. Only the process's user can read the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStorage {
    root: PathBuf,
}

impl FileStorage {
    /// Storage in this directory. The first write creates it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// Adds the keys below `directory`.
    fn list_directory(&self, directory: &Path, depth: usize, keys: &mut Vec<String>) -> Result<(), Error> {
        let failed = |error| Error::Read(directory.display().to_string(), error);
        let entries = match fs::read_dir(directory) {
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(());
            }
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                if depth < DEPTH_MAX && path != self.root.join(LOCKS) {
                    self.list_directory(&path, depth + 1, keys)?;
                }
            } else if !is_temporary(&path)
                && let Some(key) = path.strip_prefix(&self.root).ok().and_then(Path::to_str)
            {
                keys.push(key.to_owned());
            }
        }
        Ok(())
    }
}

impl Storage for FileStorage {
    fn identity(&self) -> String {
        format!("file_system {}", self.root.display())
    }

    fn location(&self, key: &str) -> String {
        self.path(key).display().to_string()
    }

    fn load(&self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(self.path(key)) {
            Ok(value) => Ok(Some(value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Read(self.location(key), error)),
        }
    }

    fn modified(&self, key: &str) -> Result<Option<SystemTime>, Error> {
        match fs::metadata(self.path(key)).and_then(|facts| facts.modified()) {
            Ok(modified) => Ok(Some(modified)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::Read(self.location(key), error)),
        }
    }

    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        replace(&self.path(key), value, durability).map_err(|error| Error::Write(self.location(key), error))
    }

    fn delete(&self, key: &str) -> Result<(), Error> {
        match fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::Write(self.location(key), error)),
            _ => {
                // Removes the directory of a certificate, which is empty now. It fails if the directory holds other
                // values.
                if let Some(directory) = self.path(key).parent().filter(|directory| *directory != self.root) {
                    let _ = fs::remove_dir(directory);
                }
                Ok(())
            }
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, Error> {
        let mut keys = Vec::new();
        self.list_directory(&self.path(prefix), 0, &mut keys)?;
        Ok(keys)
    }

    fn lock_within(&self, name: &str, timeout: Duration) -> Result<Lock, Error> {
        let directory = self.root.join(LOCKS);
        make_directory(&directory).map_err(|error| Error::Write(directory.display().to_string(), error))?;
        let lock = FileLock::wait(&directory.join(format!("{}.lock", safe_key(name))), timeout)?;
        Ok(Lock::new(HeldFileLock { _lock: lock, storage: self.clone() }))
    }
}

struct HeldFileLock {
    _lock: FileLock,
    storage: FileStorage,
}

impl HeldLock for HeldFileLock {
    fn store(&self, key: &str, value: &[u8], durability: Durability) -> Result<(), Error> {
        self.storage.store(key, value, durability)
    }
}

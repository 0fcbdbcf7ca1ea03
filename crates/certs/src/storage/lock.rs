//! Mutual exclusion between processes by the kernel's file locks. The kernel releases a crashed process's lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Error;

const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Held until dropped, which removes the file. Another process may have opened the file before and be waiting for its
/// lock, so each compares the locked file with the one at the path.
#[derive(Debug)]
pub(super) struct FileLock {
    path: PathBuf,
    /// Closed after the removal.
    file: File,
}

impl FileLock {
    pub(super) fn wait(path: &Path, timeout: Duration) -> Result<Self, Error> {
        let location = || path.display().to_string();
        let failed = |error| Error::Write(location(), error);
        let begun = Instant::now();
        loop {
            let mut options = OpenOptions::new();
            let file = options.write(true).create(true).truncate(false).mode(0o600).open(path).map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, path).map_err(failed)? => {
                    return Ok(Self { path: path.to_owned(), file });
                }
                // Its holder has removed it meanwhile.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(failed(explained(&error))),
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(Error::Locked(location()));
            }
            std::thread::sleep(CHECK_INTERVAL.min(left));
        }
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Another program may have removed the file, and another process holds the lock of a new one then.
        if is_at(&self.file, &self.path).unwrap_or(false) {
            // Best effort: a file that remains is locked again by the next process.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Adds the likely cause to a failure of flock(2): some network file systems have no locks.
fn explained(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{error}: flock failed; does its file system support locks?"))
}

/// Returns whether the open file is the one at the path.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let own = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(other) => Ok((own.dev(), own.ino()) == (other.dev(), other.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    // A removed file must not let two holders in, and none remains.
    #[test]
    fn one_holder_at_a_time() {
        let directory = std::env::temp_dir().join(format!("causeway-locks-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("a.lock");
        let holders = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let lock = FileLock::wait(&path, Duration::from_secs(30)).unwrap();
                        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        holders.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(!path.exists());
        std::fs::remove_dir(&directory).unwrap();
    }

    // The operator sees which property of the file system is missing: flock(2) gives ENOLCK (37) on a network one
    // without locks.
    #[test]
    fn a_file_system_without_locks_is_named() {
        let error = explained(&io::Error::from_raw_os_error(37)).to_string();
        assert!(error.contains("(os error 37)") && error.contains("does its file system support locks?"), "{error}");
    }
}

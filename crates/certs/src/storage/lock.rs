//! Mutual exclusion between processes by the kernel's file locks. The kernel releases a crashed process's lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::LOCK_PATIENCE;
use crate::Error;

const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Held until dropped. The lock file remains: if it were removed, a third process could create and lock a new file of
/// that name while a second one still waits on the old.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

impl FileLock {
    pub(super) fn wait(path: &Path) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let place = || path.display().to_string();
        let file = file.map_err(|error| Error::Write(place(), error))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_PATIENCE => std::thread::sleep(LOOK_EVERY),
                Err(TryLockError::WouldBlock) => return Err(Error::Locked(place())),
                Err(TryLockError::Error(error)) => return Err(Error::Write(place(), error)),
            }
        }
    }
}

//! One process at a time, by the kernel's locks: what a crash leaves behind locks nobody out.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::Error;

/// How long another process may sign and write; beyond, something is wrong with it.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Held until it is dropped. The file stays: its removal would let a third process lock another file of the same name.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    pub(super) fn wait(path: PathBuf) -> Result<Self, Error> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = file.map_err(|error| Error::Write(path.clone(), error))?;
        let begun = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if begun.elapsed() < PATIENCE => std::thread::sleep(LOOK_EVERY),
                Err(TryLockError::WouldBlock) => return Err(Error::Locked(path)),
                Err(TryLockError::Error(error)) => return Err(Error::Write(path, error)),
            }
        }
    }
}

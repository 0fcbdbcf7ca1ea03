//! A file with the secrets of sessions, by which a program such as Wireshark decrypts their captured bytes:
//! `insecure_secrets_log`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use data_encoding::HEXLOWER;
use rustls::KeyLog;

use super::write_secret::WriteSecret;

/// The open files of a configuration: policies with the same path share one.
#[derive(Default)]
pub(super) struct SecretsLogs(BTreeMap<PathBuf, Arc<SecretsLog>>);

impl SecretsLogs {
    /// Returns the file at `path`, which the first call opens.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<Arc<SecretsLog>> {
        if let Some(known) = self.0.get(path) {
            return Ok(Arc::clone(known));
        }
        let log = Arc::new(SecretsLog::open(path)?);
        self.0.insert(path.to_owned(), Arc::clone(&log));
        Ok(log)
    }
}

/// An open file. Each secret is one write, which blocks the worker.
pub(super) struct SecretsLog {
    file: Mutex<File>,
    /// A write has failed, which the server's log has reported.
    is_failing: AtomicBool,
}

// By hand: no secret must reach another log.
impl fmt::Debug for SecretsLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretsLog").finish_non_exhaustive()
    }
}

impl SecretsLog {
    /// Opens the file, to which the secrets are appended. A new one is readable by its owner only.
    fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Ok(Self { file: Mutex::new(file), is_failing: AtomicBool::new(false) })
    }

    /// Appends a line in the NSS key log format (draft-ietf-tls-keylogfile §2).
    fn append(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        for (index, bytes) in [client_random, secret].into_iter().enumerate() {
            if index > 0 {
                line.push(' ');
            }
            HEXLOWER.encode_append(bytes, &mut line);
        }
        line.push('\n');
        // One write for the whole line: the server that this one replaces may append to the same file.
        let written = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
        if let Err(error) = written
            && !self.is_failing.swap(true, Ordering::Relaxed)
        {
            tracing::error!("insecure_secrets_log: {error}; further faults are not logged");
        }
    }
}

/// The key log of a handshake whose secrets are written to a file, too.
#[derive(Debug)]
pub(super) struct FileKeyLog {
    pub(super) secret: Arc<WriteSecret>,
    pub(super) log: Arc<SecretsLog>,
}

impl KeyLog for FileKeyLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        // All labels, although our own alerts need only one: a capture has both directions.
        self.log.append(label, client_random, secret);
        self.secret.log(label, client_random, secret);
    }
}

//! The last configuration that was loaded, in a file, for `run --resume`.

use std::fs::{DirBuilder, OpenOptions, rename};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// `causeway/autosave.json` in the user's folder for configurations; `None` where the environment names none.
pub fn autosave_path() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
    Some(folder.join("causeway/autosave.json"))
}

/// Replaces the file as a whole, so that a reader sees the old one or the new one; nobody else may read it.
pub(super) fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let folder = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // A name of this process's own: two servers of one user may save at once.
    let fresh = path.with_extension(format!("{}.new", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .and_then(|mut file| file.write_all(text).and_then(|()| file.sync_all()))
        .and_then(|()| rename(&fresh, path));
    if written.is_err() {
        // What is half written is of no use to anybody.
        let _ = std::fs::remove_file(&fresh);
    }
    written
}

//! Replaces a file's content at once: a full disk or a kill leaves the old content.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The permissions of a file that is replaced.
#[derive(Clone, Copy)]
pub(super) enum FileMode {
    /// As before, with the owner.
    Kept,
    /// Only the owner may read and write it.
    Private,
}

/// Replaces the content of a file, or creates it. A pipe or a device gets the content as it is. A symbolic link stays one.
pub(super) fn replace_file(path: &Path, content: &[u8], mode: FileMode) -> io::Result<()> {
    let Ok(path) = fs::canonicalize(path) else { return write_beside(path, content, None) };
    let metadata = fs::metadata(&path)?;
    if !metadata.is_file() {
        return fs::write(&path, content);
    }
    let is_kept = matches!(mode, FileMode::Kept);
    let Err(error) = write_beside(&path, content, Some(&metadata).filter(|_| is_kept)) else { return Ok(()) };
    if matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        return Err(error);
    }
    // The directory, the file's owner or a mount point forbids a new file.
    if !is_kept {
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
    }
    fs::write(&path, content)
}

/// Writes a new file with the owner and the permissions of `like`, otherwise for its owner only, and gives it the name `path`.
fn write_beside(path: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written = write_like(&mut file, content, like).and_then(|()| fs::rename(&beside, path));
    written.inspect_err(|_| {
        // Best effort: the error that is reported came first.
        let _ = fs::remove_file(&beside);
    })
}

fn write_like(file: &mut File, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    if let Some(like) = like {
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            fchown(&*file, Some(like.uid()), Some(like.gid()))?;
        }
        file.set_permissions(like.permissions())?;
    }
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    // The owner and the permissions stay, and so does a symbolic link. A failed write leaves no file beside.
    #[test]
    fn a_replaced_file_keeps_its_properties() {
        let directory = std::env::temp_dir().join(format!("causeway-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("file"), directory.join("link"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        replace_file(&link, b"new", FileMode::Kept).unwrap();
        assert_eq!((fs::read(&file).unwrap(), mode()), (b"new".to_vec(), 0o640));
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        replace_file(&file, b"secret", FileMode::Private).unwrap();
        assert_eq!((fs::read(&link).unwrap(), mode()), (b"secret".to_vec(), 0o600));
        replace_file(&directory.join("created"), b"1", FileMode::Private).unwrap();
        assert!(replace_file(&directory.join("absent/file"), b"1", FileMode::Kept).is_err());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }
}

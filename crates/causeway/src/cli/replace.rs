//! Replaces a file's content at once: a full disk or a kill leaves the old content, except of files that must be
//! written in place.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::Path;

/// The permissions of a file that is replaced.
#[derive(Clone, Copy)]
pub(super) enum FileMode {
    /// As before, with the owner.
    Kept,
    /// Only the owner may read and write it.
    Private,
}

/// Replaces the content of a file, or creates it. A pipe, a device, the target of a symbolic link that does not exist,
/// and a file with more names or an access control list get the content in place: a new file would take these
/// properties from them.
pub(super) fn replace_file(path: &Path, content: &[u8], mode: FileMode) -> io::Result<()> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return write_beside(path, content, None);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return write_in_place(path, content),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() {
        return write_in_place(path, content);
    }
    let is_kept = matches!(mode, FileMode::Kept);
    // The file that a name in /proc stands for may have no name any more.
    let target = fs::canonicalize(path).ok().filter(|target| metadata.nlink() == 1 && !has_access_list(target));
    let replaced = target.map(|target| write_beside(&target, content, Some(&metadata).filter(|_| is_kept)));
    match replaced {
        Some(Err(error)) if !forbids_new_file(&error) => return Err(error),
        Some(Ok(())) => return Ok(()),
        Some(Err(_)) | None => {}
    }
    if !is_kept {
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
    }
    write_in_place(path, content)
}

/// Returns whether the directory, the file's owner or a mount point forbids a new file.
fn forbids_new_file(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, InvalidFilename, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | ResourceBusy | CrossesDevices | InvalidFilename)
}

fn has_access_list(path: &Path) -> bool {
    rustix::fs::getxattr(path, "system.posix_acl_access", &mut [0_u8; 0][..]).is_ok()
}

fn write_in_place(path: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?.write_all(content)
}

/// Writes a new file with the owner and the permissions of `like`, otherwise for its owner only, and gives it the name
/// `path`.
fn write_beside(path: &Path, content: &[u8], like: Option<&Metadata>) -> io::Result<()> {
    // The dot hides it from patterns of `import`.
    let mut name = OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidFilename)?);
    name.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(name);
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
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;
    use std::path::PathBuf;

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
        // A link to nothing creates its target; a second name stays one of the same file; the name of a pipe is no
        // file.
        std::os::unix::fs::symlink("target", directory.join("dangling")).unwrap();
        replace_file(&directory.join("dangling"), b"2", FileMode::Private).unwrap();
        assert_eq!(fs::read(directory.join("target")).unwrap(), b"2");
        fs::hard_link(&file, directory.join("second")).unwrap();
        replace_file(&file, b"both", FileMode::Kept).unwrap();
        assert_eq!(fs::read(directory.join("second")).unwrap(), b"both");
        let (mut reader, writer) = io::pipe().unwrap();
        let name = PathBuf::from(format!("/proc/self/fd/{}", writer.as_raw_fd()));
        replace_file(&name, b"piped", FileMode::Private).unwrap();
        drop(writer);
        let mut piped = String::new();
        reader.read_to_string(&mut piped).unwrap();
        assert_eq!(piped, "piped");
        fs::remove_dir_all(&directory).unwrap();
    }
}

//! From a request's path to a path of the file system, and what is hidden there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use causeway_message::{StatusCode, path};
use causeway_pipeline::{Build, BuildError, Fault};

use crate::glob::{Space, glob};

/// Puts the root and, below it, the request's decoded path into `out`: dot segments are resolved before they are put behind the
/// root, so that none is left to climb. A slash at the end goes.
///
/// # Errors
/// 400 for a path with an octet 0, which no file's name can hold.
pub(super) fn join(root: &[u8], decoded: &[u8], out: &mut Vec<u8>) -> Result<(), Fault> {
    if decoded.contains(&0) {
        return Err(Fault::status(StatusCode::BAD_REQUEST));
    }
    out.clear();
    out.extend_from_slice(if root.is_empty() { b"." } else { root });
    while out.last() == Some(&b'/') {
        out.pop();
    }
    if path::is_clean(decoded) {
        out.extend_from_slice(decoded);
    } else {
        path::clean(decoded, out);
    }
    if out.len() > 1 && out.last() == Some(&b'/') {
        out.pop();
    }
    Ok(())
}

/// Patterns of what is not shown (Caddy's documentation of `hide`): without a slash a pattern hides whatever has a component
/// of that name, with one it hides a path, all below it, and what it matches as a glob.
pub(super) struct Hidden(Box<[Vec<u8>]>);

impl Hidden {
    pub(super) fn build(written: Vec<String>, build: &mut Build<'_>) -> Result<Self, BuildError> {
        let mut patterns = Vec::with_capacity(written.len());
        for pattern in written {
            if build.template(&pattern).literal().is_none() {
                return Err(build.refuse(pattern, "a pattern without placeholders"));
            }
            if pattern.contains('/') {
                patterns.push(absolute(pattern.as_bytes()));
            } else {
                patterns.push(pattern.into_bytes());
            }
        }
        Ok(Self(patterns.into()))
    }

    /// Whether this path is hidden. Components of the root count too, as in Caddy.
    pub(super) fn holds(&self, path: &[u8]) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let path = absolute(path);
        self.0.iter().any(|pattern| {
            if !pattern.contains(&b'/') {
                return path.split(|&octet| octet == b'/').any(|component| glob(pattern, component, Space::Plain));
            }
            let below = path.strip_prefix(&**pattern).is_some_and(|rest| rest.is_empty() || rest[0] == b'/');
            below || glob(pattern, &path, Space::Plain)
        })
    }
}

/// The path from the file system's root on, as far as that can be said without looking; else as it is.
fn absolute(path: &[u8]) -> Vec<u8> {
    match std::path::absolute(Path::new(OsStr::from_bytes(path))) {
        Ok(absolute) => absolute.into_os_string().as_bytes().to_vec(),
        Err(_) => path.to_vec(),
    }
}

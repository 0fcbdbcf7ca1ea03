//! Paths of files without `.` and `..`.

use std::path::{Component, Path, PathBuf};

/// Returns the shortest path of the same meaning, by its text alone, as Go's `filepath.Clean`. It may be another file
/// if a directory is a link.
pub(super) fn clean_path(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match (component, out.components().next_back()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => _ = out.pop(),
            // The root is its own parent.
            (Component::ParentDir, Some(Component::RootDir)) => {}
            _ => out.push(component),
        }
    }
    if out.as_os_str().is_empty() { PathBuf::from(".") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Go, `filepath.Clean`.
    #[test]
    fn paths_are_cleaned_as_in_go() {
        for (path, want) in [
            ("", "."),
            (".", "."),
            ("./a//b/.", "a/b"),
            ("a/..", "."),
            ("a/../../b", "../b"),
            ("../../a", "../../a"),
            ("/../a/../..", "/"),
            ("/a/b/../c/", "/a/c"),
        ] {
            assert_eq!(clean_path(Path::new(path)), Path::new(want), "{path}");
            assert_eq!(clean_path(Path::new(path)).to_str(), Some(want), "{path}");
        }
    }
}

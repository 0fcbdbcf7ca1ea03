//! The file that a configuration was read from, so that a signal can reload it.

use std::path::{Path, PathBuf, absolute};

/// A configuration's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    /// The path as given on the command line or in the request.
    pub file: PathBuf,
    /// The adapter's name; empty for JSON.
    pub adapter: String,
}

impl ConfigFile {
    /// Whether both denote one file, by Caddy's rule: the adapters match, and the paths are equal, resolve to the same
    /// absolute path, or have the same file name.
    pub fn is_same(&self, other: &Self) -> bool {
        let names = |path: &Path| path.file_name().map(ToOwned::to_owned);
        self.is_identical(other)
            || self.has_adapter_of(other) && names(&self.file).is_some_and(|name| names(&other.file) == Some(name))
    }

    /// Whether the adapters match, and the paths are equal or resolve to the same absolute path.
    pub fn is_identical(&self, other: &Self) -> bool {
        let absolute = |path: &Path| absolute(path).ok();
        self.has_adapter_of(other)
            && (self.file == other.file || absolute(&self.file).is_some_and(|path| absolute(&other.file) == Some(path)))
    }

    fn has_adapter_of(&self, other: &Self) -> bool {
        other.adapter.is_empty() || self.adapter == other.adapter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_file() {
        let source = |file: &str, adapter: &str| ConfigFile { file: file.into(), adapter: adapter.into() };
        let ours = source("sites/Caddyfile", "caddyfile");
        for (other, want) in [
            (source("sites/Caddyfile", "caddyfile"), true),
            (source("sites/Caddyfile", ""), true),
            (source("sites/Caddyfile", "json"), false),
            (source("./sites/Caddyfile", "caddyfile"), true),
            (source("/elsewhere/Caddyfile", "caddyfile"), true),
            (source("sites/other", "caddyfile"), false),
        ] {
            assert_eq!(ours.is_same(&other), want, "{other:?}");
            let is_elsewhere = other.file.starts_with("/elsewhere");
            assert_eq!(ours.is_identical(&other), want && !is_elsewhere, "{other:?}");
        }
    }
}

//! The file which keeps the last loaded configuration for `run --resume`.

use std::ffi::OsString;
use std::path::PathBuf;

/// Returns `causeway/autosave.json` in the user's configuration directory; `None` when neither `XDG_CONFIG_HOME` nor
/// `HOME` is set, in the process or in the `environment` beside it.
pub fn autosave_path(environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let named = |name| user_directory(name, environment);
    let directory = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
    Some(directory.join("causeway/autosave.json"))
}

/// Returns the directory that a variable names, if it is set and not empty.
pub(super) fn user_directory(variable: &str, environment: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // The process's value first, which need not be UTF-8.
    let value = std::env::var_os(variable).or_else(|| environment(variable).map(OsString::from));
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}

//! The file which keeps the last loaded configuration for `run --resume`.

use std::path::PathBuf;

/// Returns `causeway/autosave.json` in the user's configuration directory; `None` when the environment sets neither
/// `XDG_CONFIG_HOME` nor `HOME`.
pub fn autosave_path() -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let directory = named("XDG_CONFIG_HOME").or_else(|| Some(named("HOME")?.join(".config")))?;
    Some(directory.join("causeway/autosave.json"))
}

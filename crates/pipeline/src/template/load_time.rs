//! Placeholders that are constant while a configuration runs: environment, system, files.
//!
//! They are evaluated once, when the configuration is loaded.
//!
//! DEVIATES Caddy, which reads `{file.PATH}` for each request: here a reload reads the file again.

use std::io::Read as _;

use crate::build::{Build, Environment};

/// The longest text of `{file.PATH}`, in bytes; the rest of a longer file is cut off.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

pub(super) fn text(name: &str, build: &Build<'_>) -> Option<String> {
    if let Some(variable) = name.strip_prefix("env.") {
        return Some(build.environment(variable).unwrap_or_default());
    }
    if let Some(path) = name.strip_prefix("file.") {
        return Some(file(path));
    }
    system(name)
}

/// Returns the text of a placeholder that is not one of files, for a name that is known only at run time.
pub(super) fn text_at_run_time(name: &str, environment: &Environment) -> Option<String> {
    match name.strip_prefix("env.") {
        Some(variable) if variable.is_empty() || variable.contains(['=', '\0']) => None,
        Some(variable) => Some(environment.get(variable).unwrap_or_default()),
        None => system(name),
    }
}

fn system(name: &str) -> Option<String> {
    Some(match name {
        "system.hostname" => rustix::system::uname().nodename().to_string_lossy().into_owned(),
        "system.slash" => std::path::MAIN_SEPARATOR.to_string(),
        "system.os" => std::env::consts::OS.to_owned(),
        "system.arch" => arch().to_owned(),
        "system.wd" => std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default(),
        _ => return None,
    })
}

/// Reads a file, without its last line end. A file that cannot be read is an empty text, as in Caddy.
fn file(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::error!(path, %error, "cannot read the file of a placeholder");
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    text.strip_suffix('\r').unwrap_or(text).to_owned()
}

/// Returns the machine's architecture by Go's name, as Caddy does.
fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}
